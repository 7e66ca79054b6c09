/* Tensors shared with other libraries, without a copy, by DLPack (https://dmlc.github.io/dlpack): NumPy, PyTorch, JAX, CuPy, TVM.
 * The structs below are laid out as versions 1.x of that specification say, so a pointer to one may be given to anybody who
 * speaks it (as DLManagedTensorVersioned * and DLManagedTensor *).
 *
 *     ct_dl_managed *out = ct_to_dlpack(x);      // hand it on; whoever takes it calls out->deleter(out) at the end
 *     ct_tensor *x = ct_from_dlpack(given);      // given is ours now, and let go with the last tensor that shows its memory
 *
 * Memory is shared: what one side writes the other sees. Who writes into memory of ours tells autograd so, with ct_data_mut.
 *
 * Threads: both ways may be gone on any thread, and a deleter may be called on any. */
#ifndef COTANGENT_DLPACK_H
#define COTANGENT_DLPACK_H

#include <cotangent.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version that is written. Any 1.x is read; another major number is refused. */
#define CT_DL_MAJOR 1
#define CT_DL_MINOR 0

/* Kinds of devices, as far as they are met here. */
enum {
    CT_DL_CPU = 1,
    CT_DL_CUDA = 2,
    CT_DL_CUDA_HOST = 3, /* pinned memory: the host's, too */
    CT_DL_ROCM_HOST = 11,
    CT_DL_WEBGPU = 15,
};

/* Kinds of elements. */
enum {
    CT_DL_INT = 0,
    CT_DL_UINT = 1,
    CT_DL_FLOAT = 2,
    CT_DL_BFLOAT = 4,
    CT_DL_COMPLEX = 5,
    CT_DL_BOOL = 6,
    CT_DL_F8E4M3FN = 10, /* CT_F8E4M3 */
    CT_DL_F8E5M2 = 12,   /* CT_F8E5M2 */
};

typedef struct ct_dl_device {
    int32_t type, index;
} ct_dl_device;

typedef struct ct_dl_dtype {
    uint8_t kind, bits;
    uint16_t lanes; /* 1: others are refused */
} ct_dl_dtype;

typedef struct ct_dl_tensor {
    void *data; /* byte_offset before the first element */
    ct_dl_device device;
    int32_t ndim;
    ct_dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: dense, in row-major order */
    uint64_t byte_offset;
} ct_dl_tensor;

/* Flags of a managed tensor. */
enum {
    CT_DL_READ_ONLY = 1,
    CT_DL_COPIED = 2,
    CT_DL_PADDED = 4, /* elements of less than a byte have one each: no such dtype is met here */
};

/* A tensor with an owner (DLManagedTensorVersioned). */
typedef struct ct_dl_managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct ct_dl_managed *self); /* may be NULL */
    uint64_t flags;
    ct_dl_tensor tensor;
} ct_dl_managed;

/* The same as it was before version 1 (DLManagedTensor): without flags, so memory is taken to be writable. */
typedef struct ct_dl_unversioned {
    ct_dl_tensor tensor;
    void *context;
    void (*deleter)(struct ct_dl_unversioned *self); /* may be NULL */
} ct_dl_unversioned;

/* x for others, with strides, on the CPU or on a device whose backend takes part (ct_backend.dlpack_type), which is waited for.
 * It holds x until its deleter is called. NULL after an error: a tensor that requires grad has to be ct_detach-ed first, or its
 * gradient would be lost unseen; the unversioned form cannot say that memory is read-only, and refuses it. */
CT_API ct_dl_managed *ct_to_dlpack(ct_tensor *x);
CT_API ct_dl_unversioned *ct_to_dlpack_unversioned(ct_tensor *x);
/* A tensor on the memory of another library, in the current scope. It owns its argument even when it fails: the deleter has then
 * been called. Memory that is read-only stays so: changes in place are errors. */
CT_API ct_tensor *ct_from_dlpack(ct_dl_managed *managed);
CT_API ct_tensor *ct_from_dlpack_unversioned(ct_dl_unversioned *managed);

#ifdef __cplusplus
}
#endif
#endif
