/* Cotangent: tensors, autograd and deep learning in C.
 *
 * This header is the manual of the core: values, lifetimes, errors, autograd, threads, memory and
 * randomness. The ops (ct_add, ct_matmul, ct_softmax, ...) are declared, each with its meaning, in
 * cotangent/ops.h, which this header includes at its end.
 *
 * The rules that hold everywhere:
 *   - A function that returns a tensor returns NULL on failure, and NULL when it is given NULL, so calls
 *     nest and one check at the end is enough. Every other function returns true for success.
 *   - The thread keeps its first error until ct_error_clear(). While one is pending, whatever changes
 *     lasting state (backward, in-place ops, assignments) does nothing and returns false. Ops still run, but not where
 *     an optional tensor is NULL: it may be what failed.
 *   - An op's result belongs to the current scope and is released when that scope ends. ct_keep makes it
 *     yours, ct_pass hands it to the enclosing scope. There is always a root scope.
 *   - Options go by name: ct_sum(x, .axes = CT_DIMS(0), .keepdim = true). Zero means the default. Who fills such a struct by
 *     hand, for the function whose name ends in _p, zeroes it and sets its first member to its size; a size of 0 is an error.
 *     Options are added at the ends of their structs, so a program goes on with later versions of the library.
 *   - Nothing here aborts, exits or prints unless asked to.
 *
 * Threads. Every function may be called from any thread, and each thread has its own error, scopes, current device and
 * modes (ct_set_grad_enabled, ct_set_autocast, ct_set_anomaly), and the next call that ct_into speaks of. So:
 *   - A tensor may be read by any number of threads at once: ops on it, ct_item, ct_read, ct_data, its shape. References are
 *     counted atomically: ct_keep and ct_drop are free to be called on any thread, whichever made the tensor, and what is
 *     released there (a graph, a hook's context, wrapped memory, a user pointer) is released on that thread.
 *   - What changes a tensor is for one thread at a time, with none that reads it meanwhile: in-place ops, ct_into,
 *     ct_data_mut, ct_set_requires_grad, ct_set_grad, ct_hook, ct_set_user, and ct_backward for the leaves it
 *     reaches. ct_grad changes no leaf: threads may differentiate graphs of their own that share leaves. A view takes notice
 *     of a recorded change in place of its base when it is next used: that first use is a change of the view.
 *   - One graph is differentiated by one thread at a time: a pass releases what it saved.
 *   - A scope belongs to the thread that opened it, and its tensors end with it: hand a tensor to another thread with ct_keep.
 *   - Settings of the process (ct_set_threads, ct_set_pool, ct_set_pin, ct_set_exact_conv, ct_set_tf32, ct_set_log, ct_set_log_sink,
 *     ct_seed, ct_memory_...) may be called at any time. ct_set_isa and ct_set_grain: while no op is running. ct_set_allocator: before
 *     the first tensor. A ct_rng may be drawn from by many threads; who gets which numbers is then a matter of chance. */
#ifndef COTANGENT_H
#define COTANGENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_VERSION_MAJOR 0
#define CT_VERSION_MINOR 1
#define CT_VERSION_PATCH 0
#define CT_VERSION       (10000 * CT_VERSION_MAJOR + 100 * CT_VERSION_MINOR + CT_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define CT_API                               __attribute__((visibility("default")))
#define CT_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define CT_API
#define CT_PRINTF(format_index, first_index)
#endif

/* ---- Values ------------------------------------------------------------------------------------- */

/* A tensor: a dtype, up to CT_MAX_DIMS dimensions, and a strided view of shared storage. */
typedef struct ct_tensor ct_tensor;

#define CT_MAX_DIMS 8
#define CT_MAX_LIST 16 /* capacity of a ct_dims: twice the dimensions, for padding before and after */

typedef enum ct_dtype {
    CT_F32 = 0, /* the default wherever a dtype is an option */
    CT_F64,
    CT_F16,  /* IEEE binary16; computed in f32 */
    CT_BF16, /* the upper half of an f32; computed in f32 */
    CT_I8,
    CT_I16,
    CT_I32,
    CT_I64,
    CT_U8,
    CT_BOOL, /* one byte, 0 or 1 */
    /* stored and cast, but no arithmetic: */
    CT_U16,
    CT_U32,
    CT_U64,
    CT_F8E4M3,
    CT_F8E5M2,
    CT_COMPLEX64,
    CT_DTYPE_COUNT
} ct_dtype;

/* A counted list: shapes, axes, strides, padding. Written CT_DIMS(2, 3); CT_DIMS0 is the empty list. */
typedef struct ct_dims {
    int n;
    int64_t d[CT_MAX_LIST];
} ct_dims;

#ifndef __cplusplus
#define CT_DIMS(...)                                                                         \
    ((ct_dims){.n = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) <= CT_MAX_LIST \
                        ? (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))          \
                        : -1,                                                                \
               .d = {__VA_ARGS__}})
#define CT_DIMS0 ((ct_dims){.n = 0, .d = {0}})
#endif

/* An option for which zero is a value of its own: left alone it is unset; CT_SET(0) sets it to zero. */
typedef struct ct_opt {
    bool set;
    double value;
} ct_opt;
#ifndef __cplusplus
#define CT_SET(number) ((ct_opt){true, (double)(number)})
#endif

/* Kinds of devices with a number of their own. A backend that is not in this list gets its number when it is first named
 * (ct_device_parse) or registered (cotangent/backend.h). */
#define CT_DEVICE_LIST(X) \
    X(CT_CPU, "cpu")      \
    X(CT_CUDA, "cuda")    \
    X(CT_WEBGPU, "webgpu")
typedef enum ct_device_type {
    CT_CURRENT = 0, /* the thread's current one: see ct_set_device */
#define CT_DEVICE_ENUM(type, name) type,
    CT_DEVICE_LIST(CT_DEVICE_ENUM)
#undef CT_DEVICE_ENUM
        CT_DEVICE_TYPES = 16 /* as many as there can be, CT_CURRENT among them */
} ct_device_type;

/* Where a tensor lives. A zero device is the current one. */
typedef struct ct_device {
    ct_device_type type;
    int index;
} ct_device;

/* Name ("f32"), bytes per element, and the kind of a dtype. ct_dtype_parse returns false for an unknown name; dtype may be
 * NULL there. */
CT_API const char *ct_dtype_name(ct_dtype dtype);
CT_API size_t ct_dtype_size(ct_dtype dtype);
CT_API bool ct_dtype_is_float(ct_dtype dtype); /* f32 f64 f16 bf16 */
CT_API bool ct_dtype_is_int(ct_dtype dtype);   /* i8 i16 i32 i64 u8; not bool */
CT_API bool ct_dtype_parse(const char *name, ct_dtype *dtype);
/* The dtype that an op gives when a and b meet: bool < integers < floats; f16 with bf16 gives f32. */
CT_API ct_dtype ct_dtype_promote(ct_dtype a, ct_dtype b);

/* ---- Errors -------------------------------------------------------------------------------------- */

#define CT_ERROR_LIST(X)                                             \
    X(CT_OK, "ok")                                                   \
    X(CT_ERR_NULL, "a required argument is NULL")                    \
    X(CT_ERR_SHAPE, "shapes do not fit")                             \
    X(CT_ERR_DTYPE, "dtypes do not fit")                             \
    X(CT_ERR_VALUE, "a value is out of range")                       \
    X(CT_ERR_INDEX, "an index is out of range")                      \
    X(CT_ERR_DEVICE, "devices do not fit or a device is missing")    \
    X(CT_ERR_MEMORY, "out of memory")                                \
    X(CT_ERR_GRAD, "the gradient cannot be computed")                \
    X(CT_ERR_UNSUPPORTED, "no kernel and no lowering for this call") \
    X(CT_ERR_IO, "a file cannot be read or written")                 \
    X(CT_ERR_STATE, "the object is not in a state for this call")

typedef enum ct_code {
#define CT_ERROR_ENUM(code, text) code,
    CT_ERROR_LIST(CT_ERROR_ENUM)
#undef CT_ERROR_ENUM
} ct_code;

CT_API bool ct_ok(void);              /* no error is pending on this thread */
CT_API const char *ct_error(void);    /* its text, "" when none; valid until it is cleared */
CT_API ct_code ct_error_code(void);   /* its code, CT_OK when none */
CT_API const char *ct_error_op(void); /* the op or function that raised it, "" when none */
CT_API void ct_error_clear(void);     /* forget it */
CT_API const char *ct_code_text(ct_code code);
/* Raise an error from user code (an op, a callback). The first one is kept. Always returns false. */
CT_API bool ct_fail(ct_code code, const char *op, const char *format, ...) CT_PRINTF(3, 4);

/* ---- Lifetime ------------------------------------------------------------------------------------ */

/* ct_scope { ... } is a block that releases, when it is left (also by return), every tensor made inside it
 * that was neither kept nor passed on. break and continue inside it end only the scope. */
typedef struct ct_scope_mark {
    size_t depth;
} ct_scope_mark;
CT_API ct_scope_mark ct_scope_begin(void);
CT_API void ct_scope_end(ct_scope_mark mark);

CT_API ct_tensor *ct_keep(ct_tensor *x); /* one more reference, yours: give it back with ct_drop */
CT_API void ct_drop(ct_tensor *x);       /* gives a kept reference back; NULL is fine */
CT_API ct_tensor *ct_pass(ct_tensor *x); /* x outlives this scope: it then belongs to the enclosing one */
CT_API int64_t ct_live_objects(void);    /* tensors and graph nodes alive, of all threads (for leak checks) */

/* A pointer of yours that a tensor carries, for bindings: NULL at first. release(pointer), if given, is called when the tensor
 * dies or gets another one, on the thread where that happens. It belongs to this handle: views and results of x do not have
 * it. A tensor that cannot take it (an error) releases it at once. */
CT_API bool ct_set_user(ct_tensor *x, void *pointer, void (*release)(void *pointer));
CT_API void *ct_user(const ct_tensor *x);

/* ---- Making tensors from host memory, and reading them ------------------------------------------- */

/* A tensor of that shape and dtype with a copy of data, which is dense and in row-major order. */
CT_API ct_tensor *ct_from_data(const void *data, ct_dims shape, ct_dtype dtype);
/* ct_wrap(data, shape, dtype, .release, .context, .strides, .read_only, .device)
 * The same without a copy, on the CPU: data stays the caller's memory until release(context, data) is called. The tensor owns
 * its arguments even when this fails: release is then called before it returns (but for data that is NULL). With strides, in
 * elements, data is the address of element [0, 0, ...], and they may be any: negative, zero, of elements that share memory.
 * All that lies between the first and the last element has to be readable, and for changes in place writable too unless
 * read_only says that it is not: then they are errors. With device it is memory of that device, at an address that the device knows
 * (of CUDA, a CUdeviceptr), and its content is taken to be written on the stream that this thread has chosen (ct_set_stream); before
 * release is called all that uses it has been waited for. Without release nobody waits: the program sees to the order, as that of a
 * stream of its own (ct_stream_wrap) does. */
typedef struct ct_wrap_options {
    size_t size;
    ct_dims strides; /* {}: dense, in row-major order */
    void (*release)(void *context, void *data);
    void *context;
    bool read_only;
    /* {}: the CPU, whatever the current device is. (Aligned, since older programs have padding before it.) */
    ct_device device __attribute__((aligned(8)));
} ct_wrap_options;
CT_API ct_tensor *ct_wrap_p(void *data, ct_dims shape, ct_dtype dtype, const ct_wrap_options *options);
/* A tensor on the CPU, of unknown content, in memory that the device copies from and to without a copy of the host's in between
 * (page-locked). Such memory is dear: it comes from a pool, and goes back there. Where the device knows no such memory, an ordinary
 * tensor on the CPU. */
CT_API ct_tensor *ct_empty_pinned(ct_dims shape, ct_dtype dtype, ct_device device);
CT_API ct_tensor *ct_scalar(double value, ct_dtype dtype); /* shape []; converted as ct_cast does */
/* A double holds integers up to 2^53: beyond them these take and give every one. An integer dtype has to hold it; a float is
 * rounded. ct_full_i64 and ct_arange_i64 are ops. */
CT_API ct_tensor *ct_scalar_i64(int64_t value, ct_dtype dtype);

CT_API int ct_ndim(const ct_tensor *x);
CT_API int64_t ct_dim(const ct_tensor *x, int axis); /* axis may be negative */
CT_API ct_dims ct_shape(const ct_tensor *x);
CT_API ct_dims ct_strides(const ct_tensor *x); /* in elements */
CT_API int64_t ct_numel(const ct_tensor *x);
CT_API ct_dtype ct_dtype_of(const ct_tensor *x);
CT_API ct_device ct_device_of(const ct_tensor *x);
CT_API bool ct_is_contiguous(const ct_tensor *x);

CT_API double ct_item(const ct_tensor *x); /* the value of a one-element tensor; NaN for NULL or an error */
/* The same as an integer, which it has to be: a fraction, or what lies outside of the range, is an error. INT64_MIN then. */
CT_API int64_t ct_item_i64(const ct_tensor *x);
/* Copies x, in row-major order and its own dtype, into bytes of host memory, which must be its exact size. */
CT_API bool ct_read(const ct_tensor *x, void *data, size_t bytes);
/* The other way: the elements of x, on whatever device, become those at data, which is read before it returns. x stays where it
 * is; it has to be contiguous. As ct_data_mut it tells autograd of the change and records nothing. */
CT_API bool ct_write(ct_tensor *x, const void *data, size_t bytes);
/* The elements of a contiguous CPU tensor; of another layout or device NULL, with an error. ct_data_mut tells autograd that
 * they are about to change, and is an error where memory is read_only. */
CT_API const void *ct_data(const ct_tensor *x);
CT_API void *ct_data_mut(ct_tensor *x);
/* The same for every layout: the address of element [0, 0, ...] of a CPU tensor and the strides, in elements, that lead from
 * there to the others. They may be negative or 0. Elements that share memory cannot be had to be changed. */
CT_API const void *ct_data_strided(const ct_tensor *x, ct_dims *strides);
CT_API void *ct_data_strided_mut(ct_tensor *x, ct_dims *strides);
/* As NumPy prints: ct_print on standard output, ct_to_string into text of the given capacity (always ended by a zero),
 * returning the length that the whole text has. */
CT_API bool ct_print(const ct_tensor *x);
CT_API size_t ct_to_string(const ct_tensor *x, char *text, size_t capacity);

/* Gives the next op called on this thread a destination: its first result is written into dst, whose shape and dtype
 * have to fit, and dst is what that op returns: ct_into(dst); ct_add(a, b); */
CT_API bool ct_into(ct_tensor *dst);

/* In place, recorded by autograd; on a leaf that requires grad an error outside ct_no_grad. They return x. */
CT_API ct_tensor *ct_assign(ct_tensor *x, ct_tensor *value); /* broadcasts and casts value */
CT_API ct_tensor *ct_fill(ct_tensor *x, double value);
CT_API ct_tensor *ct_fill_i64(ct_tensor *x, int64_t value); /* as ct_scalar_i64 */
CT_API ct_tensor *ct_zero(ct_tensor *x);
CT_API ct_tensor *ct_add_(ct_tensor *x, ct_tensor *y);
CT_API ct_tensor *ct_sub_(ct_tensor *x, ct_tensor *y);
CT_API ct_tensor *ct_mul_(ct_tensor *x, ct_tensor *y);
CT_API ct_tensor *ct_div_(ct_tensor *x, ct_tensor *y);

/* ---- Autograd ------------------------------------------------------------------------------------ */

/* on: makes x a leaf whose gradient is wanted. Off: the opposite, and what it has of a gradient is forgotten; an error where x was
 * computed from others. Returns x. */
CT_API ct_tensor *ct_set_requires_grad(ct_tensor *x, bool on);
CT_API bool ct_requires_grad(const ct_tensor *x); /* x is such a leaf, or was computed from one */
CT_API bool ct_is_leaf(const ct_tensor *x);
CT_API ct_tensor *ct_detach(ct_tensor *x);                 /* the same storage, cut from the graph */
CT_API ct_tensor *ct_grad_of(const ct_tensor *leaf);       /* what ct_backward has accumulated; NULL before, no error */
CT_API bool ct_set_grad(ct_tensor *leaf, ct_tensor *grad); /* replaces it; NULL forgets it */

/* Flags of ct_backward and ct_grad. */
enum {
    CT_CREATE_GRAPH = 1, /* record the backward pass, so that its results can be differentiated again */
    CT_RETAIN_GRAPH = 2, /* keep what the graph saved, for another pass (implied by CT_CREATE_GRAPH) */
};

/* Adds d loss / d leaf to the gradient of every leaf that loss depends on. loss has one element, unless a
 * cotangent of its shape is given with ct_backward_from. */
CT_API bool ct_backward(ct_tensor *loss);
CT_API bool ct_backward_from(ct_tensor *y, ct_tensor *cotangent, unsigned flags);

/* grads[i] = sum over j of the vector-Jacobian product of ys[j] with cotangents[j], for xs[i]. cotangents may be
 * NULL, or hold NULLs, where ys[j] has one element. An x that no path reaches gets zeros. Only what the xs
 * need is computed. The results belong to the current scope. */
CT_API bool ct_grad(ct_tensor *const *ys, int ny, ct_tensor *const *cotangents, ct_tensor *const *xs, int nx,
                    ct_tensor **grads, unsigned flags);

/* ct_no_grad { ... }: nothing inside is recorded. */
CT_API bool ct_grad_enabled(void);
CT_API bool ct_set_grad_enabled(bool enabled); /* returns what it was */

/* Called with the complete gradient that arrives at x, once per pass; by ct_backward as soon as it is complete, while those of what
 * was computed earlier are still to come. It returns the gradient to go on with: NULL
 * for no change, or a tensor of the same shape. The hook lives as long as the graph does; release, if given,
 * is called with context when it dies. */
typedef ct_tensor *(*ct_hook_fn)(void *context, ct_tensor *grad);
CT_API bool ct_hook(ct_tensor *x, ct_hook_fn fn, void *context, void (*release)(void *context));
/* In a hook: the pass adds to the gradients of leaves (ct_backward); otherwise it gives gradients to whoever asked (ct_grad). */
CT_API bool ct_backward_accumulates(void);

/* A function from n tensors to m tensors. Its results are passed on with ct_pass where it opens a scope. */
typedef bool (*ct_function)(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m);

/* Runs fn without keeping its activations: backward runs it again, with the same random numbers, when it needs
 * them. context must stay valid as long as the outputs' graph does; release, if given, is then called. */
CT_API bool ct_checkpoint(ct_function fn, void *context, void (*release)(void *context), ct_tensor *const *in, int n,
                          ct_tensor **out, int m);
/* True while ct_checkpoint repeats a computation: an op that keeps running statistics must not count twice. */
CT_API bool ct_is_recomputing(void);

/* At x, along v: out = J v (ct_jvp, by two vector-Jacobian products), and out[i] = sum_j H_ij v_j of a scalar
 * function (ct_hvp). ct_jacobian of f: [n...] -> [m...] has shape [m..., n...]; ct_hessian [n..., n...]. All can be
 * differentiated again when flags has CT_CREATE_GRAPH. */
CT_API bool ct_jvp(ct_function fn, void *context, ct_tensor *const *x, ct_tensor *const *v, int n, ct_tensor **out,
                   int m, unsigned flags);
CT_API bool ct_hvp(ct_function fn, void *context, ct_tensor *const *x, ct_tensor *const *v, int n, ct_tensor **out,
                   unsigned flags);
CT_API ct_tensor *ct_jacobian(ct_function fn, void *context, ct_tensor *x, unsigned flags);
CT_API ct_tensor *ct_hessian(ct_function fn, void *context, ct_tensor *x, unsigned flags);

/* ct_check_grad(fn, context, x, n, m, .order, .tolerance, .step, .seed)
 * Compares the gradients of fn at x (f64) with central differences along random directions; with order 2, the
 * gradients of the gradients as well. False, with an error that names the input and both numbers, when they differ. */
typedef struct ct_check_options {
    size_t size;
    int order;        /* 1 or 2; default 2 */
    double tolerance; /* relative; default 1e-6 */
    double step;      /* default 1e-5 */
    uint64_t seed;
} ct_check_options;
CT_API bool ct_check_grad_p(ct_function fn, void *context, ct_tensor *const *x, int n, int m,
                            const ct_check_options *options);

/* Mixed precision: ct_autocast(CT_BF16) { ... } runs matrix products, convolutions, attention and recurrent ops inside it on
 * inputs cast to bf16 (or CT_F16), and losses, softmax, norms and sums on f32; everything else takes what it is given, and
 * batch_norm, whose statistics are f32, gives that back.
 * Parameters stay f32, and so do their gradients. f64 is left alone. It counts for this thread; backward does what forward did and needs no block
 * around it. ct_set_autocast does the same without a block; CT_F32 turns it off. It returns what it was. */
CT_API ct_dtype ct_set_autocast(ct_dtype dtype);

/* Whether products and convolutions of f32 may run on a device's Tensor Cores in TF32, which rounds operands to 10 bits of mantissa and
 * adds in f32 (default false, also CT_TF32=1). The CPU and devices without them compute in f32 as ever. It counts for the
 * process, and for backward as it is then. Returns what it was. */
CT_API bool ct_set_tf32(bool on);

/* Anomaly mode: every op's results, forward and backward, are searched for NaN; the first op that makes one out
 * of inputs without one is an error that names it. Slow. It counts for this thread; CT_ANOMALY=1 turns it on for every thread
 * that does not turn it off. */
CT_API bool ct_set_anomaly(bool on); /* returns what it was */

/* ---- Threads, memory, randomness, log ------------------------------------------------------------ */

CT_API bool ct_set_threads(int count); /* 0: as many as the process may use. Also CT_THREADS=n */
CT_API int ct_get_threads(void);
/* Whether the library's threads are pinned to processors when they fill those that the process may use (default true, also
 * CT_PIN=0), and a limit on the size of the chunks that work is cut into (0: none; also CT_GRAIN=n), with which tests
 * cut everything; set it only while no op is running. Pinning counts for threads started from now on. */
CT_API bool ct_set_pin(bool on);
CT_API bool ct_set_grain(int64_t elements);
/* Runs the library's parallel work on the host's threads: run(context, tasks, task, task_context) has to call
 * task(task_context, i) for every i below tasks, in any order and on any thread, and return when all are done. */
typedef void (*ct_pool_run)(void *context, int64_t tasks, void (*task)(void *task_context, int64_t i),
                            void *task_context);
CT_API bool ct_set_pool(ct_pool_run run, void *context, int threads); /* run NULL: the library's own pool again */

/* The level of vector instructions in use ("base", "avx2", "avx512", "avx512bf16", "avx512amx", "neon", "neonbf16"). Also CT_ISA=name.
 * A level that the machine lacks is an error. Switch it only while no op is running. */
CT_API const char *ct_isa(void);
CT_API bool ct_set_isa(const char *name);

/* Whether convolutions keep to sums of products, as their option exact says for one call (default false, also
 * CT_EXACT_CONV=1). Otherwise kernels of 2x2, 3x3 and 5x5, and with stride 2 of 4x4, may use Winograd's algorithm, which
 * rounds a few times more coarsely and in which an infinity or NaN may spread over a tile of up to 5x5 results (10x10 of a
 * transposed one with stride 2). Returns what it was. */
CT_API bool ct_set_exact_conv(bool on);

/* Host memory comes from these, in large blocks that the library keeps and reuses; allocate must return memory
 * aligned to `alignment`, or NULL. Only before anything is made: a tensor, a module, a dataset. Libraries that are loaded to
 * read files (libpng and the like), and the C library itself, take their own. */
typedef void *(*ct_allocate_fn)(void *context, size_t bytes, size_t alignment);
typedef void (*ct_release_fn)(void *context, void *memory, size_t bytes);
CT_API bool ct_set_allocator(ct_allocate_fn allocate, ct_release_fn release, void *context);
/* Memory from there for objects of your own, as malloc, calloc, realloc and free do it, aligned for any type, on any thread.
 * NULL when there is none, without an error: the caller knows whom to name. What the library gives away (ct_image_encode_png)
 * goes back by ct_free, to which NULL is nothing. */
CT_API void *ct_malloc(size_t bytes);
CT_API void *ct_calloc(size_t count, size_t bytes);
CT_API void *ct_realloc(void *memory, size_t bytes); /* NULL leaves the block as it was */
CT_API void ct_free(void *memory);

/* Memory of a device (the zero device is the current one; {CT_CPU} the host's, where graphs are too). */
typedef struct ct_memory {
    size_t size;       /* sizeof(ct_memory), set by the caller */
    int64_t in_use;    /* bytes held by live tensors, graphs, other objects and running ops */
    int64_t peak;      /* the most that in_use has been since ct_memory_reset_peak */
    int64_t reserved;  /* bytes taken from the system or the device: what is in use and what is kept for reuse */
    int64_t requests;  /* allocations asked for, ever */
    int64_t from_host; /* allocations that had to go to the system or the device */
    int64_t limit;     /* of reserved, from ct_set_memory_limit; 0: none */
} ct_memory;
CT_API bool ct_memory_stats(ct_device device, ct_memory *stats);
CT_API bool ct_memory_reset_peak(ct_device device);
CT_API bool ct_memory_trim(ct_device device); /* gives unused blocks back; waits for the device first */
/* The most that the library takes of a device's memory; 0, at first: all there is. Beyond it what is unused goes back, and if that
 * does not help, the call that needs more fails with CT_ERR_MEMORY. CT_DEVICE_MEMORY=8G (or bytes, K, M, T) sets it for every device
 * but the CPU. */
CT_API bool ct_set_memory_limit(ct_device device, int64_t bytes);

/* A stream of random numbers: Philox4x32-10, value = f(seed, stream, call counter, element). NULL is the default
 * generator of the process, which ct_seed sets. */
typedef struct ct_rng ct_rng;
CT_API bool ct_seed(uint64_t seed);
CT_API uint64_t ct_get_seed(void); /* of the default generator */
CT_API ct_rng *ct_rng_new(uint64_t seed, uint64_t stream);
CT_API void ct_rng_free(ct_rng *rng);
CT_API uint64_t ct_rng_position(const ct_rng *rng); /* how many calls it has served */
CT_API bool ct_rng_set_position(ct_rng *rng, uint64_t position);

/* What to log: a comma-separated list, NULL or "" for nothing. "dispatch" writes a line an op: shapes, kernel,
 * refusals, microseconds; "capture" and "replay" tell of captured steps (docs/capture.md). Also CT_LOG=dispatch. Lines go to sink, or to standard error without one. */
CT_API bool ct_set_log(const char *what);
CT_API void ct_set_log_sink(void (*sink)(void *context, const char *line), void *context);

/* ---- Devices ------------------------------------------------------------------------------------- */

/* The current device of this thread, the CPU to begin with: where tensors are made that name no other, and what a zero
 * ct_device means. An op sets it to that of its inputs while it runs, so its parts land where its data is. */
CT_API bool ct_set_device(ct_device device);
CT_API ct_device ct_get_device(void);
/* "cpu", "cuda", "cuda:1". The name of a backend that is in no list opens its module: libcotangent_NAME.so in a folder of
 * CT_BACKEND_PATH, beside the library, or where the loader looks. False with an error when it is not there. */
CT_API bool ct_device_parse(const char *text, ct_device *device);
/* Whether a backend is there, and if not, why; the text is "" when it is. Opens its module the first time. */
CT_API const char *ct_backend_missing(ct_device_type type);
CT_API const char *ct_backend_name(ct_device_type type); /* "cuda"; NULL: there is no such type */
CT_API int ct_device_count(ct_device_type type);         /* 0 when the backend is missing */
CT_API const char *ct_device_text(ct_device device);     /* "cuda:1", "cpu"; in one of a few rotating buffers */

/* Fills as much of info as its size says. */
typedef struct ct_device_info {
    uint32_t size; /* sizeof(ct_device_info), set by the caller */
    char name[128], driver[128];
    int64_t memory, memory_free; /* bytes; 0: unknown */
    char libraries[256];         /* of the vendor's, with versions: "cuBLASLt 13.1.0, no cuDNN"; "": it needs none */
    char features[256];          /* what it can do and how much of it, in words; "": nothing worth a word */
} ct_device_info;
CT_API bool ct_device_describe(ct_device device, ct_device_info *info);
/* Whether tensors of a dtype can be there: WebGPU has no f64. Of a device that is missing it says true. */
CT_API bool ct_device_has_dtype(ct_device device, ct_dtype dtype);
/* Waits until all work of a device is done. What went wrong in it since the last wait becomes this thread's error: of an index
 * out of range, say, the CPU tells at once, and a device at the next wait of any thread (here, ct_item, ct_read). Until then
 * ops that change lasting state (in place, optimizer steps, running statistics) do nothing on that device; a thread that has
 * called such ops in the meantime hears of the error at its own next wait, too. */
CT_API bool ct_synchronize(ct_device device);

/* Streams: work of one is done in order, works of two in any order or at once. All threads share the device's own stream,
 * unless one chooses another for its ops. A tensor may be used on any stream: what uses it there waits, on the device, for the
 * stream that wrote it. A device without streams (the CPU) takes all calls, and does everything in order. */
typedef struct ct_stream ct_stream;
CT_API ct_stream *ct_stream_new(ct_device device); /* at most 63 of a device; NULL after an error */
CT_API void
ct_stream_free(ct_stream *stream); /* its work is done all the same; who had chosen it gets the device's own */
/* A stream of the program's own (of CUDA, a CUstream, as CUDA programs have them), which stays the program's: ct_stream_free lets go of
 * it, before it is destroyed. What the program puts on it itself and what the library does there are done in one order. */
CT_API ct_stream *ct_stream_wrap(ct_device device, void *handle);
CT_API bool ct_set_stream(ct_device device, ct_stream *stream); /* of this thread; NULL: the device's own again */
CT_API ct_stream *ct_get_stream(ct_device device);              /* NULL: the device's own */
CT_API bool ct_stream_synchronize(ct_stream *stream); /* waits for the work of one; errors as in ct_synchronize */

/* The version of the library that runs: a number to compare with CT_VERSION, that of this header, and "1.2.3". */
CT_API int ct_version(void);
CT_API const char *ct_version_text(void);

/* ---- Blocks (C only) ----------------------------------------------------------------------------- */

#ifndef __cplusplus
#if !defined(__GNUC__)
#error "ct_scope and ct_no_grad need the cleanup attribute of GCC or Clang"
#endif
struct ct__scope_block {
    ct_scope_mark mark;
    bool once;
};
struct ct__grad_block {
    bool before;
    bool once;
};
struct ct__autocast_block {
    ct_dtype before;
    bool once;
};
static inline void ct__autocast_leave(struct ct__autocast_block *block) { ct_set_autocast(block->before); }
static inline void ct__scope_leave(struct ct__scope_block *block) { ct_scope_end(block->mark); }
static inline void ct__grad_leave(struct ct__grad_block *block) { ct_set_grad_enabled(block->before); }
#define CT__PASTE2(a, b) a##b
#define CT__PASTE(a, b)  CT__PASTE2(a, b)
#define CT__SCOPE(name)                                                                                               \
    for (struct ct__scope_block name __attribute__((cleanup(ct__scope_leave))) = {ct_scope_begin(), true}; name.once; \
         name.once = false)
#define CT__NO_GRAD(name)                                                                                          \
    for (struct ct__grad_block name __attribute__((cleanup(ct__grad_leave))) = {ct_set_grad_enabled(false), true}; \
         name.once; name.once = false)
#define CT__AUTOCAST(name, dtype)                                                                                      \
    for (struct ct__autocast_block name __attribute__((cleanup(ct__autocast_leave))) = {ct_set_autocast(dtype), true}; \
         name.once; name.once = false)
#define ct_autocast(dtype) CT__AUTOCAST(CT__PASTE(ct__autocast_block_, __COUNTER__), dtype)
#define ct_scope           CT__SCOPE(CT__PASTE(ct__scope_block_, __COUNTER__))
#define ct_no_grad         CT__NO_GRAD(CT__PASTE(ct__grad_block_, __COUNTER__))

/* Options by name. */
#define ct_wrap(...)                        ct__wrap_x(__VA_ARGS__, .size = sizeof(ct_wrap_options))
#define ct__wrap_x(data, shape, dtype, ...) ct_wrap_p((data), (shape), (dtype), &(ct_wrap_options){__VA_ARGS__})
#define ct_check_grad(...)                  ct__check_grad_x(__VA_ARGS__, .size = sizeof(ct_check_options))
#define ct__check_grad_x(fn, context, x, n, m, ...) \
    ct_check_grad_p((fn), (context), (x), (n), (m), &(ct_check_options){__VA_ARGS__})
#endif

#ifdef __cplusplus
}
#endif

#ifndef CT_WITHOUT_OPS
#include "cotangent/ops.h"
#endif

#endif
