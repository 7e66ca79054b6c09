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
bool ct__nccl_new_id(void *id); /* of a group; false after an error */

/* A collective from before it is enqueued until it has ended on the device, within the time limit (watch.c). */
uint64_t ct__watch_begin(const ct__nccl *nccl, const ct_dist_group *group, const ct__transfer *t, ct_dims shape);
void ct__watch_enqueued(uint64_t place, void *stream);
void ct__watch_leave(const ct_dist_group *group);

/* NCCL without MPI (alone.c). */
bool ct__alone_join(int *local_ranks);                                /* local_ranks: those of this machine */
bool ct__alone_carries(const ct_dist_group *group);                   /* also what is in the host's memory */
bool ct__alone_device(const ct_dist_group *group, ct_device *device); /* that it goes through */
/* Messages that have begun go all at once, when one of them is waited for. */
void ct__alone_begin(ct_dist_work *work, ct_dist_group *group, ct__dist_kind kind, int peer);
bool ct__alone_deliver(void);
bool ct__alone_barrier(ct_dist_group *group);
bool ct__alone_split(ct_dist_group *from, int color, int key,
                     ct_dist_group *made); /* its rank, size, ranks and identity */
extern const ct_kernel ct__nccl_kernels[];

/* Of the call of an op, in ops.c. */
ct__dist_kind ct__op_kind(const ct_op *op);
bool ct__view_dense(const ct_view *view);
ct_dims ct__call_shape(const ct_call *call);
ct__transfer ct__transfer_of_call(const ct_call *call, int size); /* without addresses */

#endif
