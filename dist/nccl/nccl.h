/* What the module for NCCL, libcotangent_nccl.so, offers dist/. It opens libnccl.so.2 when it is first used, and
 * links against nothing. Functions return NULL, or what went wrong. */
#ifndef COTANGENT_DIST_NCCL_NCCL_H
#define COTANGENT_DIST_NCCL_NCCL_H

#include "dist/transport.h"

#define CT__NCCL_ENTRY "ct_dist_nccl"
enum { CT__NCCL_VERSION = 3, CT__NCCL_ID_BYTES = 128 };

typedef struct ct__nccl {
    uint32_t size, version;
    const char *(*open)(char *name, size_t room); /* the library and its version; what is missing */
    const char *(*new_id)(void *id);              /* CT__NCCL_ID_BYTES, for rank 0 to give to the others */
    /* All ranks of a group; device is the number of a CUDA device. */
    const char *(*join)(const void *id, int rank, int ranks, int device, void **comm);
    void (*leave)(void *comm);
    const char *(*cannot)(ct__dist_kind kind, ct_dtype dtype, ct_dist_reduction reduction); /* NULL: it can */
    /* Enqueues a collective, a send or a receive on a CUstream; in and out are addresses on the device. */
    const char *(*collective)(void *comm, const ct__transfer *transfer, int ranks, void *stream);
    void (*abort)(void *comm); /* what is on its way ends, somehow; from any thread */
    /* An event behind what a stream has by now, or NULL; whether it has come there, or never will. */
    void *(*mark)(void *stream);
    bool (*passed)(void *mark);
    void (*forget)(void *mark);
    const char *(*group)(bool end); /* sends and receives between its beginning and its end go on beside each other */
} ct__nccl;
typedef const ct__nccl *(*ct__nccl_entry)(void);

#endif
