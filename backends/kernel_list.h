/* How the kernels of a backend are found: by place. Every ops/FOLDER/BACKEND/FILE.c lists the kernels that it holds
 * by the names of their ops, as one table named FOLDER_FILE; mkops writes the list of these files,
 * gen/kernels_BACKEND.inc, from what lies there. What such files share goes into folders below, where no table is
 * looked for. */
#ifndef COTANGENT_BACKENDS_KERNEL_LIST_H
#define COTANGENT_BACKENDS_KERNEL_LIST_H

#include <cotangent/backend.h>

typedef struct ct_kernel_row {
    const char *op; /* NULL ends a table */
    const ct_kernel *candidates;
    const void *step; /* what the backend needs to do a call of them as a step of a fused one; NULL: it cannot */
} ct_kernel_row;

/* A row: CT_CANDIDATES(softmax, {"softmax_rows", can, scratch, run}), in order of preference. The name comes from
 * gen/FOLDER.attrs.h, so that an op which the folder does not define is an error of the compiler. */
#define CT_CANDIDATES(name, ...) CT_CANDIDATES_STEP(name, NULL, __VA_ARGS__)
/* The same for candidates that can be steps of fused calls. */
#define CT_CANDIDATES_STEP(name, step, ...) \
    { CT_OP_NAME_##name, (const ct_kernel[]){__VA_ARGS__, {0}}, step }

#endif
