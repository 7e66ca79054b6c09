/* What the files of the CUDA module share: devices, and how a kernel's host side finds and launches device code.
 *
 * A kernel lies in two files: ops/NAME/cuda/FILE.cu holds its device code, compiled to one compressed fatbin that is loaded at its first use
 * on a device; ops/NAME/cuda/FILE.c its host side, in C, with the table of candidates (backends/kernel_list.h). FILE.h, which both include,
 * has the structs of arguments. */
#ifndef COTANGENT_BACKENDS_CUDA_H
#define COTANGENT_BACKENDS_CUDA_H

#include <stdatomic.h>

#include "backends/cuda/driver.h"
#include "backends/cuda/view.h"
#include "backends/kernel_list.h"

enum { CT_CUDA_DEVICES = 16, CT_CUDA_ALIGNMENT = 256 };

typedef struct ct_cuda_device {
    CUdevice device;
    _Atomic(CUcontext) context;                                  /* NULL: not open yet */
    CUstream stream;                                             /* the device's own */
    int multiprocessors, threads_per_multiprocessor, capability; /* as 90 */
    int shared_limit;                                            /* bytes that a block may have */
    CUdeviceptr word;                                            /* ct_cuda_word */
    uint32_t *noticed;                                           /* pinned, mapped */
    CUdeviceptr noticed_there;
    _Atomic bool lost; /* the context is beyond repair */
    char why[256];
} ct_cuda_device;

extern const ct_host *ct_cuda_host;

/* Device `index`, open, for what is asked of it without the driver; NULL after an error. */
ct_cuda_device *ct_cuda_device_at(int index);
/* The same with its context made current on this thread. *before is for ct_cuda_leave, which restores what was current, and means nothing
 * to anybody else. */
ct_cuda_device *ct_cuda_enter(int index, CUcontext *before);
void ct_cuda_leave(CUcontext before);
/* True for CUDA_SUCCESS; else an error of op that names what was done. */
bool ct_cuda_ok(ct_cuda_device *device, CUresult result, const char *op, const char *what);
CUstream ct_cuda_stream(const ct_cuda_device *device, const ct_stream *stream);

/* ---- Launching ---- */

/* The device code of one .cu file: CT_CUDA_UNIT(reduce_sum) declares that of ops/reduce/cuda/sum.cu. */
typedef struct ct_cuda_unit {
    const char *name;
    const unsigned char *fatbin;
    _Atomic(CUmodule) modules[CT_CUDA_DEVICES];
    /* All of its kernels call ct_does_nothing, or wait otherwise (thread.cuh), before they read or write memory. On capability 9.0 and later such a kernel is launched while
     * the one before it comes to its end, which hides most of the time between two (programmatic dependent launch). */
    bool overlaps;
} ct_cuda_unit;
/* What is found later is left out: clang 14 takes no 0 for the value of an atomic pointer. */
#define CT_CUDA_UNIT_FROM(text, code, waits) \
    { .name = (text), .fatbin = (code), .overlaps = (waits) }
#define CT_CUDA_UNIT_OF(name, overlaps)            \
    extern const unsigned char ct_fatbin_##name[]; \
    static ct_cuda_unit unit = CT_CUDA_UNIT_FROM(#name, ct_fatbin_##name, overlaps)
#define CT_CUDA_UNIT(name)             CT_CUDA_UNIT_OF(name, false)
#define CT_CUDA_OVERLAPPING_UNIT(name) CT_CUDA_UNIT_OF(name, true)

/* One function of it, found at its first use. */
typedef struct ct_cuda_function {
    ct_cuda_unit *unit;
    const char *name;
    _Atomic(CUfunction) functions[CT_CUDA_DEVICES];
    bool overlaps[CT_CUDA_DEVICES]; /* its device code waits for the kernel before it; set with functions */
} ct_cuda_function;
#define CT_CUDA_FUNCTION_OF(of, text) \
    { .unit = (of), .name = (text) }
#define CT_CUDA_FUNCTION(text) CT_CUDA_FUNCTION_OF(&unit, text)
/* Those for floats by their dtypes: name_f32, name_f64, name_f16, name_bf16. */
enum { CT_CUDA_FLOATS = CT_BF16 + 1 };
#define CT_CUDA_OF_FLOATS(name)                                                               \
    {                                                                                         \
        [CT_F32] = CT_CUDA_FUNCTION(name "_f32"), [CT_F64] = CT_CUDA_FUNCTION(name "_f64"),   \
        [CT_F16] = CT_CUDA_FUNCTION(name "_f16"), [CT_BF16] = CT_CUDA_FUNCTION(name "_bf16"), \
    }

typedef struct ct_cuda_shape {
    unsigned grid, grid_y, block, shared; /* grid_y 0: 1 */
    bool cooperative;                     /* all blocks run at one time, or it is an error */
} ct_cuda_shape;

/* Enqueues it with arguments, a struct that begins with a ct_cuda_head, which is filled in here. */
bool ct_cuda_launch(const ct_call *call, ct_cuda_function *function, ct_cuda_shape shape, void *arguments);
/* The same of a function that no unit has; overlaps: it begins as those of a unit that does. The context is current. */
bool ct_cuda_launch_function(const ct_call *call, ct_cuda_device *device, CUfunction function, bool overlaps,
                             ct_cuda_shape shape, void *arguments);
/* After work of a library was enqueued: with CT_SYNC=1 waits for it, as launches do. The context is current. */
bool ct_cuda_enqueued(ct_cuda_device *device, CUstream stream, const char *op);
/* Blocks of `threads` for n items, as many as keep the device busy. Kernels step by the size of the grid. */
unsigned ct_cuda_blocks(const ct_call *call, int64_t n, unsigned threads);
/* A thread for each item, which keeps memory busier than few threads that go on to the next ones; those few where the call changes lasting
 * state, since every thread then reads the error word first. */
unsigned ct_cuda_all_blocks(const ct_call *call, int64_t n, unsigned threads);
static inline int64_t ct_cuda_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* A grid of so many blocks, or of 2^20, whose kernels step by it. */
static inline unsigned ct_cuda_grid(int64_t blocks) { return (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20); }

/* ---- Views ---- */

size_t ct_cuda_dtype_size(ct_dtype dtype);
static inline char *ct_cuda_address(const ct_view *view) {
    return (char *)view->buffer + view->origin + (size_t)view->offset * ct_cuda_dtype_size(view->dtype);
}
/* Of an argument that may be left out. */
static inline char *ct_cuda_address_if(const ct_view *view) { return view ? ct_cuda_address(view) : NULL; }
static inline bool ct_cuda_is_aligned(const void *address) { return (uintptr_t)address % 16 == 0; } /* for packs */
ct_cuda_view ct_cuda_view_of(const ct_view *view);
static inline char *ct_cuda_scratch(const ct_call *call) { return (char *)call->scratch.buffer + call->scratch.offset; }
int64_t ct_cuda_count(const ct_view *view);
bool ct_cuda_is_dense(const ct_view *view);
/* Dimensions of size 1 go, and neighbours that all n views walk as one become one. All have the same sizes. Returns the number left, at
 * least 1. */
int ct_cuda_collapse(ct_cuda_view *views, int n);

#define CT_CUDA_KERNELS(file)                            \
    extern const ct_kernel_row ct_cuda_kernels_##file[]; \
    const ct_kernel_row ct_cuda_kernels_##file[]

#endif
