/* What the module for NCCL, libcotangent_nccl.so, offers dist/. It opens libnccl.so.2 when it is first used, and
 * links against nothing. Functions return NULL, or what went wrong. */
#ifndef COTANGENT_DIST_NCCL_NCCL_H
#define COTANGENT_DIST_NCCL_NCCL_H

#include "dist/transport.h"

#define CT__NCCL_ENTRY "ct_dist_nccl"
enum { CT__NCCL_VERSION = 2, CT__NCCL_ID_BYTES = 128 };

typedef struct ct__nccl {
    uint32_t size, version;
    const char *(*open)(char *name, size_t room); /* the library and its version; what is missing */
    const char *(*new_id)(void *id);              /* CT__NCCL_ID_BYTES, for rank 0 to give to the others */
    /* All ranks of a group; device is the number of a CUDA device. */
    const char *(*join)(const void *id, int rank, int ranks, int device, void **comm);
    void (*leave)(void *comm);
    const char *(*cannot)(ct__dist_kind kind, ct_dtype dtype, ct_dist_reduction reduction); /* NULL: it can */
    /* Enqueues a collective on a CUstream; in and out are addresses on the device. */
    const char *(*collective)(void *comm, const ct__transfer *transfer, int ranks, void *stream);
} ct__nccl;
typedef const ct__nccl *(*ct__nccl_entry)(void);

#endif
