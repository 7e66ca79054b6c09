/* Choices that were measured, kept in memory and in a text file: which of n candidates was the fastest for a key. Nothing here knows of
 * CUDA. The file is input like any other: lines that do not parse are skipped, sizes are checked, and a file or folder that is missing,
 * foreign or cannot be written means only that choices are not kept. */
#ifndef COTANGENT_BACKENDS_CUDA_CHOICES_H
#define COTANGENT_BACKENDS_CUDA_CHOICES_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CT_CHOICE_KEY = 512,     /* bytes of a key at most */
    CT_CHOICE_FAMILY = 63,   /* characters of a family at most, of letters, digits and ._- */
    CT_CHOICE_COUNT = 1 << 9 /* candidates at most */
};

typedef struct ct_choices ct_choices;

/* An empty table, filled from the file at path where it can be read. NULL path: in memory only. NULL: no memory. */
ct_choices *ct_choices_open(const char *path);
void ct_choices_free(ct_choices *choices);
/* -1: it is not known for that many candidates. */
int ct_choices_find(const ct_choices *choices, const char *family, const void *key, size_t bytes, int n);
/* False: it cannot be kept (a limit above, or no memory, or there are too many). */
bool ct_choices_keep(ct_choices *choices, const char *family, const void *key, size_t bytes, int n, int choice);
/* Writes the file anew with what others have added to it meanwhile, and makes the folders above it. The file is replaced as a whole, so
 * that a reader never sees half of it; of two processes that save at the same moment one loses its last choices. */
bool ct_choices_save(ct_choices *choices);

#endif
