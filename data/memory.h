/* A dataset in memory that carries what a CSV file says of its columns. */
#ifndef COTANGENT_DATA_MEMORY_H
#define COTANGENT_DATA_MEMORY_H

#include "data/data.h"

/* Owns extra once it succeeds. */
ct_dataset *ct__memory_csv(ct_tensor *const *fields, int n, void *extra, void (*release_extra)(void *));
bool ct__memory_is_csv(const ct_dataset *dataset);
void *ct__memory_extra(const ct_dataset *dataset); /* NULL for another kind */

#endif
