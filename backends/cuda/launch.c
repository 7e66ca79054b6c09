/* Device code: loading it, finding functions, launching them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/fill.h"

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* CT_OVERLAP=0: no kernel is launched before the one before it is over. */
static bool overlap_is_wanted(void) {
    static _Atomic int state;
    int now = atomic_load_explicit(&state, memory_order_relaxed);
    if (!now) {
        const char *text = getenv("CT_OVERLAP");
        now = text && text[0] == '0' ? 1 : 2;
        atomic_store(&state, now);
    }
    return now == 2;
}

/* Device code that was translated from an older generation's has no such instruction. */
static bool waits_for_kernel_before(CUfunction function) {
    int generation = 0;
    return overlap_is_wanted() &&
           ct_cuda.cuFuncGetAttribute(&generation, CU_FUNC_ATTRIBUTE_PTX_VERSION, function) == CUDA_SUCCESS &&
           generation >= 90;
}

/* The context is current, the lock held. */
static CUfunction load(ct_cuda_device *d, int index, ct_cuda_function *function) {
    CUfunction found = atomic_load(&function->functions[index]);
    if (found) return found;
    CUmodule module = atomic_load(&function->unit->modules[index]);
    if (!module) {
        if (!ct_cuda_ok(d, ct_cuda.cuModuleLoadData(&module, function->unit->fatbin), function->unit->name,
                        "its device code cannot be loaded"))
            return NULL;
        atomic_store(&function->unit->modules[index], module);
    }
    if (!ct_cuda_ok(d, ct_cuda.cuModuleGetFunction(&found, module, function->name), function->name,
                    "it is not in the device code"))
        return NULL;
    function->overlaps[index] = function->unit->overlaps && d->capability >= 90 && waits_for_kernel_before(found);
    atomic_store(&function->functions[index], found);
    return found;
}

static CUfunction find(ct_cuda_device *d, int index, ct_cuda_function *function) {
    CUfunction found = atomic_load_explicit(&function->functions[index], memory_order_acquire);
    if (found) return found;
    pthread_mutex_lock(&loading);
    found = load(d, index, function);
    pthread_mutex_unlock(&loading);
    return found;
}

static bool synchronous(void) { /* CT_SYNC=1: a fault is reported by the call that caused it */
    static _Atomic int state;
    int now = atomic_load_explicit(&state, memory_order_relaxed);
    if (!now) {
        const char *text = getenv("CT_SYNC");
        now = text && text[0] == '1' ? 2 : 1;
        atomic_store(&state, now);
    }
    return now == 2;
}

bool ct_cuda_enqueued(ct_cuda_device *d, CUstream stream, const char *op) {
    return !synchronous() || ct_cuda_ok(d, ct_cuda.cuStreamSynchronize(stream), op, "its kernel failed");
}

static CUresult enqueue(CUfunction function, ct_cuda_shape shape, bool overlaps, CUstream stream, void *arguments) {
    void *parameters[] = {arguments};
    const unsigned grid_y = shape.grid_y ? shape.grid_y : 1;
    if (shape.cooperative)
        return ct_cuda.cuLaunchCooperativeKernel(function, shape.grid, grid_y, 1, shape.block, 1, 1, shape.shared,
                                                 stream, parameters);
    if (!overlaps)
        return ct_cuda.cuLaunchKernel(function, shape.grid, grid_y, 1, shape.block, 1, 1, shape.shared, stream,
                                      parameters, NULL);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = shape.grid,
                                   .gridDimY = grid_y,
                                   .gridDimZ = 1,
                                   .blockDimX = shape.block,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = shape.shared,
                                   .hStream = stream,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    return ct_cuda.cuLaunchKernelEx(&config, function, parameters, NULL);
}

bool ct_cuda_launch_function(const ct_call *call, ct_cuda_device *d, CUfunction function, bool overlaps,
                             ct_cuda_shape shape, void *arguments) {
    const CUstream stream = ct_cuda_stream(d, call->stream);
    *(ct_cuda_head *)arguments = (ct_cuda_head){.word = (ct_cuda_word *)(uintptr_t)d->word,
                                                .noticed = (uint32_t *)(uintptr_t)d->noticed_there,
                                                .op = (uint64_t)(uintptr_t)call->op,
                                                .called = (uint64_t)(uintptr_t)call->called,
                                                .flags = call->flags,
                                                .lasting = (call->flags & CT_CALL_LASTING) != 0};
    return ct_cuda_ok(d, enqueue(function, shape, overlaps && overlap_is_wanted(), stream, arguments), call->op->name,
                      "its kernel cannot be launched") &&
           ct_cuda_enqueued(d, stream, call->op->name);
}

bool ct_cuda_launch(const ct_call *call, ct_cuda_function *function, ct_cuda_shape shape, void *arguments) {
    CUcontext before;
    const int index = call->device.index;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    CUfunction found = find(d, index, function);
    bool ok = found != NULL;
    if (ok && shape.shared > 48 * 1024)
        ok = ct_cuda_ok(
            d, ct_cuda.cuFuncSetAttribute(found, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shape.shared),
            call->op->name, "the device has not as much shared memory");
    ok = ok && ct_cuda_launch_function(call, d, found, function->overlaps[index], shape, arguments);
    ct_cuda_leave(before);
    return ok;
}

unsigned ct_cuda_blocks(const ct_call *call, int64_t n, unsigned threads) {
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    if (!d) return 1;
    const int64_t most = (int64_t)d->multiprocessors * (d->threads_per_multiprocessor / (int)threads) * 4;
    const int64_t blocks = (n + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

unsigned ct_cuda_all_blocks(const ct_call *call, int64_t n, unsigned threads) {
    return call->flags & CT_CALL_LASTING ? ct_cuda_blocks(call, n, threads)
                                         : ct_cuda_grid(ct_cuda_ceil_div(n, threads));
}

/* ---- Filling ---- */

CT_CUDA_UNIT(backend_fill);

CUfunction ct_cuda_fill_function(ct_cuda_device *d, int index) {
    static ct_cuda_function function = CT_CUDA_FUNCTION("fill_wide");
    return find(d, index, &function);
}

bool ct_cuda_fill_wide(ct_cuda_device *d, int index, CUdeviceptr to, const void *pattern, size_t size, size_t n,
                       CUstream stream) {
    const CUfunction found = ct_cuda_fill_function(d, index);
    if (!found) return false;
    ct_cuda_fill_arguments arguments = {.to = (char *)(uintptr_t)to, .size = (int32_t)size, .n = (int64_t)n};
    memcpy(arguments.pattern, pattern, size);
    void *parameters[] = {&arguments};
    const size_t blocks = (n + 255) / 256;
    return ct_cuda_ok(d,
                      ct_cuda.cuLaunchKernel(found, blocks < 4096 ? (unsigned)blocks : 4096, 1, 1, 256, 1, 1, 0, stream,
                                             parameters, NULL),
                      "fill", "its kernel cannot be launched");
}
