/* Names of weights: patterns, what other libraries call them, and the report of what was loaded. */
#ifndef COTANGENT_NN_NAMES_H
#define COTANGENT_NN_NAMES_H

#include "nn/module.h"

/* An error unless every rename has a pattern, few enough stars, and at least as many of them as its result. */
bool ct__renames_valid(const ct_rename *renames, int count, const char *function);

typedef enum ct__renamed { CT__NAME_SAME, CT__NAME_CHANGED, CT__NAME_LEFT_OUT, CT__NAME_FAILED } ct__renamed;
/* What the first rename that fits makes of the name; *to, where it changes, is for the caller to free. A count of -1: the
 * list ends with an empty one. */
ct__renamed ct__rename(const ct_rename *renames, int count, const char *name, char **to, const char *function);
/* The same by the aliases of the classes, from the module down to where the name leads. */
ct__renamed ct__own_name(const ct_module *module, const char *name, char **to, const char *function);

ct_load_report *ct__report_new(const char *function);
/* Copies the texts; name and source may be NULL. False with an error. */
bool ct__report_add(ct_load_report *report, ct_load_outcome outcome, const char *name, const char *source,
                    const char *note, const char *function);

#endif
