/* What the text dataset asks of a vocabulary beyond the public functions. */
#ifndef COTANGENT_DATA_VOCABULARY_H
#define COTANGENT_DATA_VOCABULARY_H

#include "data/data.h"

/* The characters of a text; path, where not NULL, and op are for errors. */
ct_vocabulary *ct__vocabulary_of(const char *text, size_t bytes, const char *op, const char *path);
/* Writes at most `bytes` numbers. */
bool ct__vocabulary_read(const ct_vocabulary *vocabulary, const char *text, size_t bytes, bool skip, const char *op,
                         int32_t *numbers, int64_t *count);

#endif
