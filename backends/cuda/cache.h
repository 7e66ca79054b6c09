/* Files that only save time: they may be deleted at any moment, and where they cannot be read or written nothing is lost but time. Nothing
 * here knows of CUDA. */
#ifndef COTANGENT_BACKENDS_CUDA_CACHE_H
#define COTANGENT_BACKENDS_CUDA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* $XDG_CACHE_HOME/cotangent/NAME, or ~/.cache/cotangent/NAME. False: there is no such place. */
bool ct_cache_path(const char *name, char *path, size_t room);
/* Replaces a file as a whole, so that a reader never sees half of it, and makes the folders above it. write returns false where it fails; so
 * does this then, and the file is as before. */
bool ct_cache_replace(const char *path, bool (*write)(FILE *file, const void *context), const void *context);
/* All of a file of at most `most` bytes in memory from malloc; NULL: it is not there, not plain, empty, or larger. */
char *ct_cache_read(const char *path, size_t most, size_t *bytes);

#endif
