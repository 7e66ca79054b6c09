/* CUDA tensors by NCCL. */
#ifndef COTANGENT_DIST_DEVICE_H
#define COTANGENT_DIST_DEVICE_H

#include <cotangent/backend.h>

#include "dist/dist.h"
#include "dist/nccl/nccl.h"

/* NULL, and in name why, where it is not there. */
const ct__nccl *ct__nccl_open(char *name, size_t room);
/* Before a collective on x: the first one of a CUDA tensor joins the group's ranks by NCCL. False after an error. */
bool ct__device_ready(ct_dist_group *group, const ct_tensor *x);
void ct__device_leave(ct_dist_group *group);
extern const ct_kernel ct__nccl_kernels[];

/* Of the call of an op, in ops.c. */
ct__dist_kind ct__op_kind(const ct_op *op);
bool ct__view_dense(const ct_view *view);
ct_dims ct__call_shape(const ct_call *call);
ct__transfer ct__transfer_of_call(const ct_call *call, int size); /* without addresses */

#endif
