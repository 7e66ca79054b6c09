/* The plug-in contract between the core and a backend: what a kernel is, and what a device must provide. */
#ifndef COTANGENT_BACKEND_H
#define COTANGENT_BACKEND_H

#include <cotangent/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Position in a random stream: Philox's key is seed, its counter (element block, call). */
typedef struct ct_random {
    uint64_t seed, stream, call;
} ct_random;

/* One call of one kernel: everything it may read. Outputs that were not asked for are NULL. Shapes, dtypes and
 * options have been checked; outputs are dense unless the caller gave them a home (ct_into). */
typedef struct ct_call {
    const ct_op *op;
    const void *attrs;
    int n_in, n_out;
    const ct_view *const *in;
    ct_view *const *out;
    void *scratch; /* what `scratch` asked for, 64-byte aligned */
    ct_random random;
} ct_call;

typedef struct ct_stream ct_stream; /* in-order work of a device; the CPU's is NULL */

/* A candidate. It allocates nothing and writes only its outputs and scratch. */
typedef struct ct_kernel {
    const char *name;
    const char *(*can)(const ct_call *call); /* NULL: takes it; else why not. A NULL pointer takes everything */
    size_t (*scratch)(const ct_call *call);  /* bytes; NULL: none */
    bool (*run)(const ct_call *call, ct_stream *stream); /* false after ct_fail: a value, not a shape, was wrong */
} ct_kernel;

typedef struct ct_backend {
    const char *name;
    bool (*allocate)(size_t bytes, void **buffer); /* opaque buffer; false: out of memory */
    void (*release)(void *buffer, size_t bytes);
    bool (*upload)(void *buffer, size_t offset, const void *host, size_t bytes, ct_stream *stream);
    bool (*download)(void *host, const void *buffer, size_t offset, size_t bytes, ct_stream *stream);
    bool (*synchronize)(ct_stream *stream);
    const ct_kernel *(*kernels)(int op_index); /* of a built-in op; NULL: none */
    const char *missing;                       /* why it is not there; "" when it is */
} ct_backend;

#ifdef __cplusplus
}
#endif
#endif
