/* Devices of the WebGPU module, for its own files. */
#ifndef COTANGENT_BACKENDS_WEBGPU_DEVICE_H
#define COTANGENT_BACKENDS_WEBGPU_DEVICE_H

#include <pthread.h>

#include "backends/webgpu/runtime.h"
#include "backends/webgpu/webgpu.h"

enum {
    CT_WGPU_DEVICES = 16,
    CT_WGPU_SLOTS = 16,        /* storage bindings that we use at most */
    CT_WGPU_HEAD = 80,         /* bytes of Params before the text's own */
    CT_WGPU_BLOCK = 768,       /* bytes of the uniform that a dispatch sees */
    CT_WGPU_RING = 1 << 20,    /* bytes of uniforms in one command buffer */
    CT_WGPU_STAGING = 4 << 20, /* bytes of small uploads in one command buffer */
    CT_WGPU_BATCH = 128,       /* dispatches in one command buffer */
    CT_WGPU_WORD = 128,        /* bytes of the error word */
};

/* A part of device memory as the core knows it. */
typedef struct ct_wgpu_buffer {
    WGPUBuffer buffer;
    uint64_t size;
    unsigned generation; /* of the device that it was made on */
} ct_wgpu_buffer;

/* What a kernel that may find a wrong value is known by, in the error word. */
typedef struct ct_wgpu_noted {
    const ct_op *op;
    const char *called;
    unsigned flags;
    const char *whats[CT_WGPU_WHATS];
} ct_wgpu_noted;

typedef struct ct_wgpu_table ct_wgpu_table; /* pipelines or bind groups by their keys */

typedef struct ct_wgpu_pipeline {
    WGPUComputePipeline made; /* NULL: its text is not compiled yet */
    char *text;
    int slots;  /* storage bindings, that of the error word included */
    bool notes; /* the last of them is it */
    bool waits; /* to be compiled */
    const char *function, *unit, *op;
} ct_wgpu_pipeline;

/* A dispatch, or (pipeline NULL) a copy between buffers. */
typedef struct ct_wgpu_command {
    ct_wgpu_pipeline *pipeline;
    WGPUBindGroup group;
    uint32_t offset, x, y;
    WGPUBuffer from, to;
    uint64_t from_offset, to_offset, bytes;
} ct_wgpu_command;

typedef struct ct_wgpu_device {
    WGPUAdapter adapter;   /* NULL: the program did not give it */
    WGPUInstance instance; /* whose events tell of it */
    WGPUDevice given;      /* of the program's own, before it is opened */
    char name[128], driver[128];
    int kind; /* of adapter; the lower, the better */
    bool
        stores_parts; /* a store to one component of a vector leaves the others alone, which the language does not promise: in SPIR-V and
                          DXIL it does, in Metal the whole vector may be written */
    bool adopted;         /* the program's own: it is not opened again */
    pthread_mutex_t lock; /* for all below */
    WGPUDevice device;    /* NULL: not open */
    WGPUQueue queue;
    ct_wgpu_limits limits;
    unsigned generation;
    int64_t live; /* buffers of the core's that are of this generation */
    _Atomic bool lost;
    char why[256];       /* lost, or an error that no scope has caught */
    _Atomic bool failed; /* the latter */
    char fault[512];

    /* Work that is not submitted yet. */
    WGPUCommandEncoder encoder;
    WGPUComputePassEncoder pass;
    int dispatches;
    ct_wgpu_command
        *waiting; /* in order, behind what is in the encoder: from the first on that needs a text compiled */
    int n_waiting, waiting_room;
    ct_wgpu_pipeline **uncompiled;
    int n_uncompiled, uncompiled_room;
    WGPUBuffer uniforms, staging, word;
    unsigned char *uniforms_here, *staging_here;
    size_t uniforms_used, staging_used;
    WGPUBuffer reading; /* mapped to read results */
    uint64_t reading_size;

    ct_wgpu_noted *noted; /* of kernels since the last wait */
    int n_noted, noted_room;

    WGPUBindGroupLayout group_layouts[CT_WGPU_SLOTS + 2]; /* by the number of storages */
    WGPUPipelineLayout layouts[CT_WGPU_SLOTS + 2];
    ct_wgpu_table *pipelines, *groups;
    WGPUComputePipeline pipeline_set; /* in the open pass */
} ct_wgpu_device;

bool ct_wgpu_start(char *why, size_t room); /* finds the adapters */
extern const ct_backend ct_wgpu_backend;
const ct_kernel *ct_wgpu_kernels_of(void *self, const ct_op *op);

ct_wgpu_device *ct_wgpu_device_at(int index); /* as it is; NULL: there is none */
/* A device of the program's own, of which references were taken; its index, or -1: it cannot be used. */
int ct_wgpu_add(WGPUInstance instance, WGPUAdapter adapter, WGPUDevice device);
void ct_wgpu_adopt_waiting(void); /* adopt.c: those that were given before the module was opened */
bool ct_wgpu_given_function(const char *name, void *function,
                            size_t size); /* of the program's runtime; false: it gave none */

/* Device `index`, open and locked; NULL after an error. */
ct_wgpu_device *ct_wgpu_enter(int index);
static inline void ct_wgpu_leave(ct_wgpu_device *device) { pthread_mutex_unlock(&device->lock); }

/* ---- All that follows: the device is locked ---- */

void ct_wgpu_push(ct_wgpu_device *device); /* errors from here on */
/* Since the push: NULL, or the text of the first error, good until the next one. */
const char *ct_wgpu_pop(ct_wgpu_device *device);
void ct_wgpu_until(ct_wgpu_device *device, _Atomic int *flag); /* lets the runtime work until it is set */
void ct_wgpu_first_work(ct_wgpu_device *device); /* after dispatches have been submitted: see settle_at_exit */
/* Raises what went wrong outside of scopes, and a loss; true: nothing did. */
bool ct_wgpu_sound(ct_wgpu_device *device, const char *op);

/* queue.c */
bool ct_wgpu_queue_open(ct_wgpu_device *device);
void ct_wgpu_queue_close(ct_wgpu_device *device);
WGPUBuffer ct_wgpu_make_buffer(ct_wgpu_device *device, uint64_t bytes, WGPUBufferUsage usage);
bool ct_wgpu_record(ct_wgpu_device *device, const ct_wgpu_command *command, const char *op);
bool ct_wgpu_encode(ct_wgpu_device *device, const char *op); /* compiles what commands wait for, and records them */
bool ct_wgpu_flush(ct_wgpu_device *device, const char *op);  /* submits what there is */
bool ct_wgpu_wait(ct_wgpu_device *device, const char *op);   /* until it is done, and raises what it found wrong */
void ct_wgpu_settle(ct_wgpu_device *device);                 /* until what was submitted is done */
bool ct_wgpu_upload(ct_wgpu_device *device, ct_wgpu_buffer *to, uint64_t offset, const void *host, uint64_t bytes);
bool ct_wgpu_download(ct_wgpu_device *device, void *host, const ct_wgpu_buffer *from, uint64_t offset, uint64_t bytes);

/* move.c */
bool ct_wgpu_move(ct_wgpu_device *device, unsigned flags, ct_wgpu_buffer *to, uint64_t to_offset, ct_wgpu_buffer *from,
                  uint64_t from_offset, uint64_t bytes); /* flags as of a call */
bool ct_wgpu_fill(ct_wgpu_device *device, ct_wgpu_buffer *to, uint64_t offset, const void *pattern, size_t size,
                  uint64_t n);

/* pipeline.c */
bool ct_wgpu_pipelines_make(ct_wgpu_device *device); /* compiles all texts that wait */
bool ct_wgpu_pipeline_again(ct_wgpu_device *device, ct_wgpu_pipeline *pipeline,
                            const char *op); /* it failed; it waits once more */
void ct_wgpu_pipeline_free(ct_wgpu_pipeline *pipeline);
void ct_wgpu_pipeline_drop(ct_wgpu_device *device, ct_wgpu_pipeline *pipeline); /* the last one, which nobody uses */
void ct_wgpu_pipelines_close(ct_wgpu_device *device);

/* launch.c */
typedef struct ct_wgpu_caller {
    const ct_op *op;
    const char *called;
    unsigned flags;
} ct_wgpu_caller;
bool ct_wgpu_dispatch(ct_wgpu_device *device, const ct_wgpu_caller *caller, const ct_wgpu_launch *launch,
                      int64_t groups, const void *params, size_t params_bytes);
void ct_wgpu_launch_close(ct_wgpu_device *device);
void ct_wgpu_forget_buffer(ct_wgpu_device *device, const ct_wgpu_buffer *buffer);

#endif
