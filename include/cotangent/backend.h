/* The contract between the core and a backend: what a kernel is, and what a device has to provide. A backend is one constant
 * struct that a module hands over when it is opened. A module is a shared object named libcotangent_NAME.so that exports
 * ct_backend_module; it links against nothing of Cotangent: all it needs of the core comes in a ct_host.
 *
 * Threads: every function of a backend and every kernel may be called from several threads at once. What a module keeps (its books of
 * memory, handles of the vendor's) it guards itself. `can` and `scratch` are pure. The functions of a ct_host may be called from any
 * thread; `fail` raises the error of the thread that calls it, and from a thread of the pool it reaches the caller of
 * `parallel`. Backends and kernels are registered before tensors of them are made by other threads. */
#ifndef COTANGENT_BACKEND_H
#define COTANGENT_BACKEND_H

#include <cotangent/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. A module of another version is refused; members are only ever added at the ends of structs,
 * whose size says how much of them there is: what a shorter one lacks is zero, and a longer one may set nothing that the
 * library does not know. ct_call is made by the core; ct_host.call_size says how much of it. */
#define CT_BACKEND_VERSION 1

/* ---- Kernels --------------------------------------------------------------------------------------- */

/* Position in a random stream: Philox's key is seed, its counter (element block, call). */
typedef struct ct_random {
    uint64_t seed, stream, call;
} ct_random;

/* In-order work of a device. NULL is the device's own stream, the only one of the CPU. */
struct ct_stream {
    ct_device device;
    void *handle; /* the backend's own, from its stream_new or stream_wrap; of "cuda" a CUstream */
};
typedef struct ct_event ct_event; /* a point in a stream, opaque */
typedef struct ct_kernel ct_kernel;

/* A part of a device's memory. The buffer is opaque: only a backend knows whether it is an address. */
typedef struct ct_memory_part {
    void *buffer;
    size_t offset, bytes;
} ct_memory_part;

enum { CT_NUMBER_BYTES = 16 };

/* Flags of a call. */
enum {
    /* It writes into memory that was there before: the destination of ct_into, a mutated input (weights, running
     * statistics). It has to do nothing if the device's error word is set when its turn comes. */
    CT_CALL_LASTING = 1,
    CT_CALL_GRADIENT = 2, /* part of the gradient of `called`; for the texts of errors */
    CT_CALL_TF32 = 4,     /* products and convolutions of f32 may round their operands to TF32 (ct_set_tf32) */
};

/* One call of one kernel: everything it may read. Outputs that were not asked for are NULL. Shapes, dtypes and
 * options have been checked; outputs are dense unless the caller gave them a destination (ct_into).
 * The call, its views and its attributes are valid only until run returns: who enqueues them copies them. What a view points to
 * stays until all work is done that was enqueued on the same stream before the memory was given back. */
typedef struct ct_call {
    const ct_op *op;
    const ct_kernel *kernel; /* the one that was chosen; NULL in can and scratch */
    const void *attrs;
    int n_in, n_out;
    const ct_view *const *in;
    ct_view *const *out;
    ct_memory_part scratch; /* what `scratch` asked for, aligned as the backend says */
    ct_random random;
    ct_device device;
    ct_stream *stream;  /* also run's second argument */
    const char *called; /* the op or function that the program called, which errors name; often that of op */
    unsigned flags;     /* CT_CALL_ */
    /* Bit i: in[i] is a number, as the 2 in ct_add_s(x, 2). Its buffer is the host's address of CT_NUMBER_BYTES bytes that begin with
     * the one element, good until run returns, and all its strides are 0. Only calls of elementwise ops have any. */
    uint32_t numbers;
    int workers; /* for how many threads of the CPU scratch is enough: a call that is run again may take no more (ct_host.hold_workers) */
} ct_call;

/* A value that a kernel found wrong: element `position` (in row-major order) of input `argument` of op, or a number made of its
 * elements: then `what` says which ("the sum of the weights in row"), and a position that is not negative ends its name. It should lie
 * in low to high. Of what is_real the doubles count, else the integers. CT_NO_BOUND and an infinity are no upper bound;
 * DBL_MAX says that it has to be finite, DBL_MIN as low that it has to be above 0. */
typedef struct ct_wrong_value {
    const ct_op *op; /* of the call, as are called and flags */
    const char *called;
    unsigned flags;
    ct_code code; /* CT_ERR_INDEX or CT_ERR_VALUE */
    int argument;
    const char *what; /* that lives as long as the module; NULL: an element */
    bool is_real;
    int64_t position;
    int64_t value, low, high;
    double real_value, real_low, real_high;
} ct_wrong_value;
#define CT_NO_BOUND INT64_MAX

/* Raises the error for it, with the text that it has on every backend. Returns false. */
CT_API bool ct_fail_value(const ct_wrong_value *wrong);

/* A candidate. It allocates nothing and writes only its outputs and scratch. */
struct ct_kernel {
    const char *name;
    const char *(*can)(const ct_call *call); /* NULL: takes it; else why not. A NULL pointer takes everything */
    size_t (*scratch)(const ct_call *call);  /* bytes; NULL: none */
    /* False after an error: a value, not a shape, was wrong (ct_fail_value), or the work could not be enqueued. A device that
     * runs it later notes the first such value in its error word instead (see ct_backend). */
    bool (*run)(const ct_call *call, ct_stream *stream);
};

/* ---- Backends -------------------------------------------------------------------------------------- */

/* Every function gets self first, then the index of the device. Those that return bool raise an error (ct_host.fail) before
 * they return false. What takes a stream is enqueued there (NULL: the device's own stream) and returns at once; only wait and
 * download wait. Several threads may call at once. NULL members are allowed where it says so.
 *
 * Errors of work that was enqueued. A kernel that finds a wrong value on the device (an index out of range) stays inside of its memory,
 * and notes the first such value, all that a ct_wrong_value has, in a word of the device, the error word. The next wait or
 * download, of any stream, raises it (ct_host.fail_value) and clears the word. While it is set, calls that are
 * CT_CALL_LASTING do nothing, so that a bad index does not ruin weights before anybody hears of it; what other calls
 * compute in the meantime is of no use to anybody. The device can be used on.
 *
 * Order. The core sees to it that a call is enqueued only where all that it reads has been written before it, in the order of its stream
 * or by an event that the stream waits for; and that memory is used for something else only after its last use, in that
 * order. release comes after a wait for all work that used the buffer. */
typedef struct ct_backend {
    uint32_t size;    /* sizeof(ct_backend) */
    uint32_t version; /* CT_BACKEND_VERSION */
    const char *name; /* "cuda": also what --device and ct_device_parse take */
    void *self;
    size_t alignment; /* of storages and scratch, in bytes: a power of two from 16 on */

    int (*device_count)(void *self);
    bool (*device_info)(void *self, int device, ct_device_info *info);

    /* Memory comes in large parts: the core caches and divides it. Out of memory: false without an error. */
    bool (*allocate)(void *self, int device, size_t bytes, void **buffer);
    void (*release)(void *self, int device, void *buffer, size_t bytes);

    /* Offsets and sizes in bytes. upload has read the host's memory when it returns; download has written it. */
    bool (*upload)(void *self, int device, void *buffer, size_t offset, const void *host, size_t bytes,
                   ct_stream *stream);
    bool (*download)(void *self, int device, void *host, const void *buffer, size_t offset, size_t bytes,
                     ct_stream *stream);
    bool (*copy)(void *self, int device, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream);
    /* From another device of the same backend. NULL: the core goes through the host. */
    bool (*copy_peer)(void *self, int device, void *to, size_t to_offset, int from_device, const void *from,
                      size_t from_offset, size_t bytes, ct_stream *stream);
    /* count elements of size bytes (1, 2, 4, 8 or 16), each the bytes at pattern. */
    bool (*fill)(void *self, int device, void *buffer, size_t offset, const void *pattern, size_t size, size_t count,
                 ct_stream *stream);

    /* Streams beside the device's own, and events; all NULL in a backend that has one stream. */
    bool (*stream_new)(void *self, int device, void **handle);
    void (*stream_free)(void *self, int device, void *handle); /* what is enqueued there is done all the same */
    ct_event *(*event_new)(void *self, int device);            /* NULL after an error */
    void (*event_free)(void *self, int device, ct_event *event);
    bool (*event_record)(void *self, int device, ct_event *event, ct_stream *stream);
    /* What is enqueued on stream from now on waits for what the event marked when it was last recorded. */
    bool (*event_wait)(void *self, int device, ct_event *event, ct_stream *stream);

    /* Until all that was enqueued on the stream is done; what went wrong in it is raised here. */
    bool (*wait)(void *self, int device, ct_stream *stream);

    /* The candidates for an op in order of preference, ended by an unnamed one; NULL: none. They live as long as the backend. */
    const ct_kernel *(*kernels)(void *self, const ct_op *op);

    /* What these bytes hold is of no use to anybody any more, once the work is done that is on the stream now; the core keeps
     * them for its next tensors. For devices that look for errors. NULL: nobody wants to know. */
    void (*discard)(void *self, int device, void *buffer, size_t offset, size_t bytes, ct_stream *stream);
    size_t
        kernel_size; /* sizeof(ct_kernel): from one candidate to the next. Where it is not the library's own, calls name
                           copies of them; 0: as it was in the first version, four pointers */
    /* DLPack's number for its kind of device (cotangent/dlpack.h); 0: its tensors are not exchanged that way. Otherwise its
     * buffers are addresses, as the specification has them. */
    int32_t dlpack_type;

    /* The handle for a stream that the program has made itself with the vendor's functions, and keeps: stream_free is not called for
     * it. NULL: there are none such. */
    bool (*stream_wrap)(void *self, int device, void *theirs, void **handle);
    /* Host memory that upload and download copy from and to faster than from other memory, by its address alone. It comes in large
     * parts too, and a failure is no error. Both NULL: there is no such memory. */
    bool (*host_allocate)(void *self, int device, size_t bytes, void **memory);
    void (*host_release)(void *self, int device, void *memory, size_t bytes);
    /* The dtypes that its tensors may have, a bit (1 << dtype) each; 0: all there are. A tensor of another one is an error where it
     * would come to be, and what is needed in f64 on the way to a result is made on the CPU or computed in f32. */
    uint32_t dtypes;
    /* Work as one: what kernels, copy and fill enqueue on the stream between the two is recorded in place of being done, and what record_end
     * gives does it, in order, as often as it is launched. *handle NULL, without an error: this work cannot be recorded. All NULL: none can. */
    bool (*record_begin)(void *self, int device, ct_stream *stream);
    bool (*record_end)(void *self, int device, ct_stream *stream, void **handle);
    bool (*record_launch)(void *self, int device, void *handle, ct_stream *stream);
    void (*record_free)(void *self, int device, void *handle);
    /* Makes ready what these calls need that takes long, as device code that is compiled for each, and several at once since that goes in
     * parallel. The calls have kernels, views without buffers, and live as long as the graph that they are for. ready[i] becomes false where call i
     * cannot be done after all, which is no error. NULL: nothing takes long. */
    void (*prepare)(void *self, const ct_call *const *calls, int n, bool *ready);
    /* Branches of work as one. What is enqueued after the k-th call of record_from in a recording is its part k, from 0 on; it comes after the n
     * parts that are named, and what these came after, and may be done beside all others. Without any call there is one part. record_either makes one
     * handle of two that do the same, in order and by parts, of which a launch may take either; they are its from then on. Both NULL: work is done in
     * order. */
    bool (*record_from)(void *self, int device, ct_stream *stream, const int *parts, int n);
    void *(*record_either)(void *self, int device, void *in_order, void *by_parts);
    /* Times on the device. A timed event, which event_free frees, notes the device's clock when all is done that came before it on the stream; as part
     * of a recording it does so in every launch. timed_elapsed is of two such events, both done. All NULL: the device does not tell. */
    ct_event *(*timed_new)(void *self, int device); /* NULL after an error */
    bool (*timed_record)(void *self, int device, ct_event *event, ct_stream *stream);
    bool (*timed_elapsed)(void *self, int device, ct_event *from, ct_event *to, double *nanoseconds);
} ct_backend;

/* What the core offers a module. */
typedef struct ct_host {
    uint32_t size;    /* sizeof(ct_host) */
    uint32_t version; /* CT_BACKEND_VERSION */
    uint64_t
        layouts; /* CT_ATTRIBUTE_LAYOUTS (cotangent/layouts.h) of the library: a module built with another one must refuse */

    bool (*fail)(ct_code code, const char *op, const char *format, ...) CT_PRINTF(3, 4); /* returns false */
    bool (*ok)(void);
    void (*log)(const char *line);   /* to the log of dispatch, where it is on */
    void *(*allocate)(size_t bytes); /* the library's own host memory: NULL without an error when there is none */
    void (*release)(void *memory, size_t bytes); /* bytes as asked for */
    /* Runs task(context, chunk, worker) for every chunk on the library's threads and returns when all are done. */
    void (*parallel)(int64_t chunks, void (*task)(void *context, int64_t chunk, int worker), void *context);
    int (*op_count)(void);
    const ct_op *(*op_at)(int index);
    const ct_op *(*op_find)(const char *name);
    const ct_backend *(*backend)(const char *name);  /* another one that is open, "cpu" above all; NULL: none */
    bool (*fail_value)(const ct_wrong_value *wrong); /* ct_fail_value */
    size_t call_size;                                /* sizeof(ct_call) of the library */
    /* From here on calls of the CPU's kernels on this thread take that many threads at most, as a call that was kept needs it
     * (ct_call.workers); 0: as many as there are. */
    void (*hold_workers)(int workers);
} ct_host;

/* What a module exports. It returns its backend, or NULL and why it cannot be used here. */
#define CT_BACKEND_ENTRY "ct_backend_module"
typedef const ct_backend *(*ct_backend_entry)(const ct_host *host, char *why, size_t room);
/* What it may export beside that: its candidates for an op, as its backend's `kernels` gives them, without any device being there. Of
 * the host it may look at the ops alone. It is for those who want to know what a module covers where it cannot run. */
#define CT_BACKEND_KERNELS "ct_backend_kernels"
typedef const ct_kernel *(*ct_backend_kernels_entry)(const ct_host *host, const ct_op *op);

/* Another function that a backend's module exports, found as the module is, and good as long as the process lives; no device is
 * opened. NULL after an error: there is no such module, or nothing of that name in it. */
typedef void (*ct_module_function)(void);
CT_API ct_module_function ct_backend_symbol(const char *backend, const char *symbol);

/* Candidates of a registered op on a backend ("cpu"), in order of preference, ended by an unnamed one.
 * They must live as long as the process. Without any the op runs by its lowering. */
#define ct_op_add_kernels(op, backend, kernels) ct_op_add_kernels_p(op, backend, kernels, sizeof(ct_kernel))
CT_API bool ct_op_add_kernels_p(const ct_op *op, const char *backend, const ct_kernel *kernels, size_t kernel_size);
/* Candidate i of an op on a type of device; NULL: there are no more, or the backend is missing. */
CT_API const ct_kernel *ct_op_kernel(const ct_op *op, ct_device_type type, int i);
/* Registers a backend that is part of the program. Its name has to be new. */
CT_API bool ct_backend_register(const ct_backend *backend);

#ifdef __cplusplus
}
#endif
#endif
