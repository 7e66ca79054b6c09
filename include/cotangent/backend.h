/* The contract between the core and a backend: what a kernel is, and what a device has to provide. A backend is one constant
 * struct that a module hands over when it is opened. A module is a shared object named libcotangent_NAME.so that exports
 * ct_backend_module; it links against nothing of Cotangent: all it needs of the core comes in a ct_host. */
#ifndef COTANGENT_BACKEND_H
#define COTANGENT_BACKEND_H

#include <cotangent/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. A module of another version is refused; members are only ever added at the ends of structs,
 * whose size says how much of them there is. */
#define CT_BACKEND_VERSION 1

/* ---- Kernels --------------------------------------------------------------------------------------- */

/* Position in a random stream: Philox's key is seed, its counter (element block, call). */
typedef struct ct_random {
    uint64_t seed, stream, call;
} ct_random;

typedef struct ct_stream ct_stream; /* in-order work of a device, opaque; the CPU's is NULL */
typedef struct ct_event ct_event;   /* a point in a stream, opaque */
typedef struct ct_kernel ct_kernel;

/* A part of a device's memory. The buffer is opaque: only a backend knows whether it is an address. */
typedef struct ct_memory_part {
    void *buffer;
    size_t offset, bytes;
} ct_memory_part;

/* One call of one kernel: everything it may read. Outputs that were not asked for are NULL. Shapes, dtypes and
 * options have been checked; outputs are dense unless the caller gave them a destination (ct_into). */
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
    uint32_t
        numbers; /* bit i: in[i] is a number, as the 2 in ct_add_s(x, 2). Its buffer is the host's address of one element, good
                         during the call, and all its strides are 0. Only calls of elementwise ops have any */
} ct_call;

/* A candidate. It allocates nothing and writes only its outputs and scratch. */
struct ct_kernel {
    const char *name;
    const char *(*can)(const ct_call *call); /* NULL: takes it; else why not. A NULL pointer takes everything */
    size_t (*scratch)(const ct_call *call);  /* bytes; NULL: none */
    bool (*run)(const ct_call *call, ct_stream *stream); /* false after an error: a value, not a shape, was wrong */
};

/* ---- Backends -------------------------------------------------------------------------------------- */

/* Every function gets self first, then the index of the device. Those that return bool raise an error (ct_host.fail) before
 * they return false. What takes a stream is enqueued there (NULL: the device's own stream) and returns at once; only wait,
 * event_wait_host and download wait. NULL members are allowed where it says so. */
typedef struct ct_backend {
    uint32_t size;    /* sizeof(ct_backend) */
    uint32_t version; /* CT_BACKEND_VERSION */
    const char *name; /* "cuda": also what --device and ct_device_parse take */
    void *self;
    size_t alignment; /* of buffers and scratch, in bytes */

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
    ct_stream *(*stream_new)(void *self, int device); /* NULL after an error */
    void (*stream_free)(void *self, int device, ct_stream *stream);
    ct_event *(*event_new)(void *self, int device);
    void (*event_free)(void *self, int device, ct_event *event);
    bool (*event_record)(void *self, int device, ct_event *event, ct_stream *stream);
    bool (*event_wait)(void *self, int device, ct_event *event, ct_stream *stream); /* stream waits for it */

    /* Until all that was enqueued is done; what went wrong in it is raised here. */
    bool (*wait)(void *self, int device, ct_stream *stream);

    /* The candidates for an op in order of preference, ended by an unnamed one; NULL: none. They live as long as the backend. */
    const ct_kernel *(*kernels)(void *self, const ct_op *op);
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
    const ct_backend *(*backend)(const char *name); /* another one that is open, "cpu" above all; NULL: none */
} ct_host;

/* What a module exports. It returns its backend, or NULL and why it cannot be used here. */
#define CT_BACKEND_ENTRY "ct_backend_module"
typedef const ct_backend *(*ct_backend_entry)(const ct_host *host, char *why, size_t room);

/* Candidates of a registered op on a backend ("cpu"), in order of preference, ended by an unnamed one.
 * They must live as long as the process. Without any the op runs by its lowering. */
CT_API bool ct_op_add_kernels(const ct_op *op, const char *backend, const ct_kernel *kernels);
/* The candidates of an op on a type of device; NULL: none, or the backend is missing. */
CT_API const ct_kernel *ct_op_kernels(const ct_op *op, ct_device_type type);
/* Registers a backend that is part of the program. Its name has to be new. */
CT_API bool ct_backend_register(const ct_backend *backend);

#ifdef __cplusplus
}
#endif
#endif
