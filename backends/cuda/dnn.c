/* cuDNN: opening it, and what every graph needs. */
#include "backends/cuda/dnn.h"

#ifndef CT_CUDA_DNN
const char *ct_cuda_dnn_missing(void) { return "the module was built without cuDNN's headers"; }
#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                 \
    X(cudnnGetVersion)               \
    X(cudnnGetErrorString)           \
    X(cudnnCreate)                   \
    X(cudnnSetStream)                \
    X(cudnnBackendCreateDescriptor)  \
    X(cudnnBackendDestroyDescriptor) \
    X(cudnnBackendFinalize)          \
    X(cudnnBackendSetAttribute)      \
    X(cudnnBackendGetAttribute)      \
    X(cudnnBackendExecute)

static struct {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} dnn;

/* ---- The library ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cudnnHandle_t handle;
    CUstream stream;
    bool failed, set; /* set: to the stream */
} handles[CT_CUDA_DEVICES];

static void open_library(void) {
    const char *wanted = getenv("CT_CUDNN");
    void *library = NULL;
    if (wanted && strcmp(wanted, "0") == 0) {
        snprintf(missing, sizeof missing, "CT_CUDNN=0 turns cuDNN off");
        return;
    }
    if (wanted && *wanted) library = dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
    else {
        static const char *const names[] = {"libcudnn.so.9", "libcudnn.so"};
        for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
            library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) {
        const char *why = dlerror();
        snprintf(missing, sizeof missing, "there is no cuDNN 9: %s", why ? why : "no reason is given");
        return;
    }
#define X(name)                                                      \
    if (!(*(void **)&dnn.name = dlsym(library, #name))) {            \
        snprintf(missing, sizeof missing, "cuDNN has no %s", #name); \
        return;                                                      \
    }
    FUNCTIONS(X)
#undef X
    const size_t version = dnn.cudnnGetVersion();
    if (version < 90000) snprintf(missing, sizeof missing, "cuDNN is of version %zu; 9 is needed", version);
}

const char *ct_cuda_dnn_missing(void) {
    pthread_once(&once, open_library);
    return missing[0] ? missing : NULL;
}

size_t ct_cuda_dnn_version(void) { return dnn.cudnnGetVersion(); }

const char *ct_dnn_status(cudnnStatus_t status) { return dnn.cudnnGetErrorString(status); }

cudnnHandle_t ct_cuda_dnn_begin(const ct_call *call, const ct_cuda_device *device) {
    const int index = call->device.index;
    const CUstream stream = ct_cuda_stream(device, call->stream);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!handles[index].handle && !handles[index].failed) status = dnn.cudnnCreate(&handles[index].handle);
    if (handles[index].handle && !(handles[index].set && handles[index].stream == stream)) {
        status = dnn.cudnnSetStream(handles[index].handle, (cudaStream_t)stream);
        handles[index].stream = stream;
        handles[index].set = status == CUDNN_STATUS_SUCCESS;
    }
    if (handles[index].handle && status == CUDNN_STATUS_SUCCESS) return handles[index].handle;
    if (status != CUDNN_STATUS_SUCCESS) {
        char line[128];
        snprintf(line, sizeof line, "cudnn: it does not start: %s", ct_dnn_status(status));
        ct_cuda_host->log(line);
        handles[index].failed = !handles[index].handle;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void ct_cuda_dnn_end(void) { pthread_mutex_unlock(&lock); }

/* ---- Graphs ---- */

static bool good(ct_dnn_graph *graph, cudnnStatus_t status, const char *what) {
    if (graph->status != CUDNN_STATUS_SUCCESS) return false;
    graph->status = status;
    if (status != CUDNN_STATUS_SUCCESS) graph->what = what;
    return status == CUDNN_STATUS_SUCCESS;
}

cudnnBackendDescriptor_t ct_dnn_make(ct_dnn_graph *graph, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = NULL;
    if (graph->status != CUDNN_STATUS_SUCCESS) return NULL;
    if (graph->n == CT_DNN_DESCRIPTORS) return good(graph, CUDNN_STATUS_BAD_PARAM, "too many descriptors"), NULL;
    if (good(graph, dnn.cudnnBackendCreateDescriptor(type, &made), "a descriptor")) graph->made[graph->n++] = made;
    return made;
}

void ct_dnn_set(ct_dnn_graph *graph, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        good(graph, dnn.cudnnBackendSetAttribute(descriptor, name, type, n, values), "an attribute");
}

void ct_dnn_end(ct_dnn_graph *graph, cudnnBackendDescriptor_t descriptor) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        good(graph, dnn.cudnnBackendFinalize(descriptor), "a descriptor's check");
}

void ct_dnn_operation(ct_dnn_graph *graph, cudnnBackendDescriptor_t descriptor) {
    ct_dnn_end(graph, descriptor);
    if (graph->status == CUDNN_STATUS_SUCCESS && graph->n_operations < CT_DNN_OPERATIONS)
        graph->operations[graph->n_operations++] = descriptor;
}

cudnnDataType_t ct_dnn_type(ct_dtype dtype) {
    return dtype == CT_F64    ? CUDNN_DATA_DOUBLE
           : dtype == CT_F16  ? CUDNN_DATA_HALF
           : dtype == CT_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_FLOAT;
}

cudnnBackendDescriptor_t ct_dnn_tensor(ct_dnn_graph *graph, int64_t id, cudnnDataType_t type, int n,
                                       const int64_t *dims, const int64_t *strides, bool is_virtual) {
    const int64_t alignment = CT_DNN_ALIGNMENT;
    cudnnBackendDescriptor_t t = ct_dnn_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    ct_dnn_set(graph, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    ct_dnn_set(graph, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dims);
    ct_dnn_set(graph, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, strides);
    ct_dnn_set(graph, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    ct_dnn_set(graph, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual) ct_dnn_set(graph, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    ct_dnn_end(graph, t);
    return t;
}

void ct_dnn_pointwise(ct_dnn_graph *graph, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                      cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y) {
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = ct_dnn_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    ct_dnn_set(graph, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    ct_dnn_set(graph, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    ct_dnn_end(graph, what);
    cudnnBackendDescriptor_t operation = ct_dnn_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    ct_dnn_set(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what);
    ct_dnn_set(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    if (b) ct_dnn_set(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b);
    ct_dnn_set(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    ct_dnn_operation(graph, operation);
}

void ct_dnn_graph_free(ct_dnn_graph *graph) {
    while (graph->n > 0) dnn.cudnnBackendDestroyDescriptor(graph->made[--graph->n]);
    memset(graph, 0, sizeof *graph);
}

/* ---- Engines ---- */

enum { CONFIGS = 48, NOTES = 32, KNOBS = 64 };

static void destroy(cudnnBackendDescriptor_t *descriptors, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (descriptors[i]) dnn.cudnnBackendDestroyDescriptor(descriptors[i]);
}

static bool make_many(cudnnBackendDescriptor_t *descriptors, int n, cudnnBackendDescriptorType_t type) {
    memset(descriptors, 0, (size_t)n * sizeof *descriptors);
    for (int i = 0; i < n; i++)
        if (dnn.cudnnBackendCreateDescriptor(type, &descriptors[i]) != CUDNN_STATUS_SUCCESS) {
            destroy(descriptors, i);
            return false;
        }
    return true;
}

/* The configurations that a mode of the heuristics proposes; those that are not wanted are the caller's to destroy as well. */
static int propose(ct_dnn_graph *graph, cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs) {
    cudnnBackendDescriptor_t heuristics = NULL;
    int64_t n = 0, given = 0;
    if (dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics) != CUDNN_STATUS_SUCCESS)
        return 0;
    const bool ok =
        dnn.cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                     1, &graph->graph) == CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) ==
            CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendFinalize(heuristics) == CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n,
                                     NULL) == CUDNN_STATUS_SUCCESS;
    if (n > CONFIGS) n = CONFIGS;
    if (ok && n > 0 && make_many(configs, (int)n, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
        if (dnn.cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                                         &given, configs) != CUDNN_STATUS_SUCCESS)
            given = 0;
        if (given > n) given = n;
        destroy(configs + given, n - given);
    }
    dnn.cudnnBackendDestroyDescriptor(heuristics);
    return (int)given;
}

/* The engine of a configuration, its notes as bits, and how it is set. */
static bool describe(cudnnBackendDescriptor_t config, ct_dnn_plan *plan) {
    cudnnBackendDescriptor_t engine = NULL, knobs[KNOBS];
    cudnnBackendNumericalNote_t list[NOTES];
    cudnnBackendBehaviorNote_t habits[NOTES];
    int64_t n = 0, m = 0;
    plan->knobs = 1469598103934665603ull;
    if (dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    bool ok = dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                           &engine) == CUDNN_STATUS_SUCCESS &&
              dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                           &plan->engine) == CUDNN_STATUS_SUCCESS &&
              dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES,
                                           &n, list) == CUDNN_STATUS_SUCCESS &&
              dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, NOTES, &m,
                                           habits) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; ok && i < m && i < NOTES; i++) plan->behavior |= 1u << ((unsigned)habits[i] % 32);
    for (int64_t i = 0; ok && i < n && i < NOTES; i++) plan->notes |= 1u << ((unsigned)list[i] % 32);
    dnn.cudnnBackendDestroyDescriptor(engine);
    if (!ok || !make_many(knobs, KNOBS, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)) return false;
    n = 0;
    if (dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS,
                                     &n, knobs) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int64_t i = 0; i < n && i < KNOBS; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)0;
        int64_t value = 0, one;
        dnn.cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one, &type);
        dnn.cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &value);
        plan->knobs = (plan->knobs ^ ((uint64_t)type << 32 ^ (uint64_t)value)) * 1099511628211ull;
    }
    destroy(knobs, KNOBS);
    return true;
}

/* Whether the engine can run it after all, in the memory that is allowed. */
static bool build(cudnnHandle_t handle, const ct_dnn_wish *wish, ct_dnn_plan *plan) {
    int64_t n = 0, workspace = 0;
    if (dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan) != CUDNN_STATUS_SUCCESS)
        return false;
    const bool ok =
        dnn.cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ==
            CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                     1, &plan->config) == CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendFinalize(plan->plan) == CUDNN_STATUS_SUCCESS &&
        dnn.cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                     &workspace) == CUDNN_STATUS_SUCCESS &&
        workspace >= 0 && (uint64_t)workspace <= wish->workspace;
    if (ok) {
        plan->workspace = (size_t)workspace;
        return true;
    }
    dnn.cudnnBackendDestroyDescriptor(plan->plan);
    return false;
}

static bool complete(ct_dnn_graph *graph, cudnnHandle_t handle) {
    if (graph->graph || graph->status != CUDNN_STATUS_SUCCESS) return graph->status == CUDNN_STATUS_SUCCESS;
    graph->graph = ct_dnn_make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    ct_dnn_set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->n_operations,
               graph->operations);
    ct_dnn_set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    ct_dnn_end(graph, graph->graph);
    return graph->status == CUDNN_STATUS_SUCCESS;
}

static bool is_new(const ct_dnn_plan *plan, const ct_dnn_plan *plans, int n) {
    for (int i = 0; i < n; i++)
        if (plans[i].engine == plan->engine && plans[i].knobs == plan->knobs) return false;
    return true;
}

int ct_dnn_plans(ct_dnn_graph *graph, cudnnHandle_t handle, const ct_dnn_wish *wish, ct_dnn_plan *plans) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};
    const unsigned refused = wish->refused | 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    int n = 0, proposed = 0, unwanted = 0;
    if (!complete(graph, handle)) return 0;
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        cudnnBackendDescriptor_t configs[CONFIGS];
        if (modes[m] == CUDNN_HEUR_MODE_FALLBACK ? n > 0 : n >= wish->most) break;
        const int found = propose(graph, modes[m], configs);
        proposed += found;
        for (int i = 0; i < found; i++) {
            ct_dnn_plan plan = {.config = configs[i]};
            const bool wanted = n < wish->most && describe(configs[i], &plan) && !(plan.notes & refused) &&
                                !(plan.behavior & wish->behavior) && plan.engine != wish->unwanted;
            unwanted += !wanted;
            if (wanted && is_new(&plan, plans, n) && build(handle, wish, &plan)) plans[n++] = plan;
            else dnn.cudnnBackendDestroyDescriptor(configs[i]);
        }
    }
    if (n == 0)
        graph->what = proposed == 0          ? "no engine is proposed for it"
                      : unwanted == proposed ? "no engine computes it as it is wanted"
                                             : "no engine can be built for it";
    return n;
}

void ct_dnn_plan_free(ct_dnn_plan *plan) {
    if (plan->plan) dnn.cudnnBackendDestroyDescriptor(plan->plan);
    if (plan->config) dnn.cudnnBackendDestroyDescriptor(plan->config);
    memset(plan, 0, sizeof *plan);
}

cudnnStatus_t ct_dnn_run(cudnnHandle_t handle, const ct_dnn_plan *plan, int n, const int64_t *ids,
                         void *const *pointers, void *workspace) {
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status = dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
#define STEP(call) \
    if (status == CUDNN_STATUS_SUCCESS) status = call
    STEP(dnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids));
    STEP(dnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers));
    STEP(dnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    STEP(dnn.cudnnBackendFinalize(pack));
    STEP(dnn.cudnnBackendExecute(handle, plan->plan, pack));
#undef STEP
    dnn.cudnnBackendDestroyDescriptor(pack);
    return status;
}
#endif
