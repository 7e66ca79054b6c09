/* The IDX format in memory, for the reader of files and for tests. */
#ifndef COTANGENT_DATA_IDX_H
#define COTANGENT_DATA_IDX_H

#include <cotangent.h>

/* The tensor that the bytes of a whole IDX file hold, as a copy. path is only for error texts. */
ct_tensor *ct__idx_parse(const uint8_t *bytes, size_t size, const char *path);

#endif
