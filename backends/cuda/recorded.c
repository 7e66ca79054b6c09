/* Recorded graphs. Products of cuBLASLt clear a counter of 4 bytes before many of their kernels, which becomes a node of its own kind: on an
 * H200 the device takes some 5 us from the kernel before it to the one behind it, with a kernel in its place less than 2. */
#include "backends/cuda/recorded.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/branch.h"
#include "backends/cuda/fill.h"
#include "backends/cuda/tune.h"

#if CUDA_VERSION >= 12030
enum { NEIGHBORS = 16, SMALL = 1 << 16 }; /* nodes before and behind one, and bytes of a fill, at most */

/* Without data of edges the driver refuses to tell of those that are not plain. */
static bool neighbors_of(CUgraphNode node, CUgraphNode *before, size_t *n_before, CUgraphNode *behind,
                         size_t *n_behind) {
    *n_before = *n_behind = 0;
    if (ct_cuda.cuGraphNodeGetDependencies_v2(node, NULL, NULL, n_before) != CUDA_SUCCESS ||
        ct_cuda.cuGraphNodeGetDependentNodes_v2(node, NULL, NULL, n_behind) != CUDA_SUCCESS)
        return false;
    if (*n_before > NEIGHBORS || *n_behind > NEIGHBORS) return false;
    return (!*n_before || ct_cuda.cuGraphNodeGetDependencies_v2(node, before, NULL, n_before) == CUDA_SUCCESS) &&
           (!*n_behind || ct_cuda.cuGraphNodeGetDependentNodes_v2(node, behind, NULL, n_behind) == CUDA_SUCCESS);
}

static bool add_kernel(CUfunction function, CUgraph graph, const CUDA_MEMSET_NODE_PARAMS *fill,
                       const CUgraphNode *before, size_t n_before, CUgraphNode *made) {
    ct_cuda_fill_arguments arguments = {
        .to = (char *)(uintptr_t)fill->dst, .size = (int32_t)fill->elementSize, .n = (int64_t)fill->width};
    memcpy(arguments.pattern, &fill->value, fill->elementSize); /* the low bytes are first */
    void *parameters[] = {&arguments};
    const CUDA_KERNEL_NODE_PARAMS node = {.func = function,
                                          .gridDimX = (unsigned)((fill->width + 255) / 256),
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 256,
                                          .blockDimY = 1,
                                          .blockDimZ = 1,
                                          .kernelParams = parameters};
    return ct_cuda.cuGraphAddKernelNode_v2(made, graph, before, n_before, &node) == CUDA_SUCCESS;
}

static bool replace_fill(CUfunction function, CUgraph graph, CUgraphNode node) {
    CUDA_MEMSET_NODE_PARAMS fill;
    CUgraphNode before[NEIGHBORS], behind[NEIGHBORS], same[NEIGHBORS], made;
    size_t n_before, n_behind;
    if (ct_cuda.cuGraphMemsetNodeGetParams(node, &fill) != CUDA_SUCCESS || fill.height != 1 ||
        fill.width * fill.elementSize > SMALL || !neighbors_of(node, before, &n_before, behind, &n_behind) ||
        !add_kernel(function, graph, &fill, before, n_before, &made))
        return false;
    for (size_t i = 0; i < n_behind; i++) same[i] = made;
    if ((!n_behind || ct_cuda.cuGraphAddDependencies_v2(graph, same, behind, NULL, n_behind) == CUDA_SUCCESS) &&
        ct_cuda.cuGraphDestroyNode(node) == CUDA_SUCCESS)
        return true;
    ct_cuda.cuGraphDestroyNode(made);
    return false;
}

static int replace_fills(ct_cuda_device *d, int index, CUgraph graph, CUgraphNode *nodes, size_t n) {
    CUfunction function = NULL;
    int replaced = 0;
    for (size_t i = 0; i < n; i++) {
        CUgraphNodeType type;
        if (ct_cuda.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_MEMSET) continue;
        if (!function && !(function = ct_cuda_fill_function(d, index))) return replaced;
        replaced += replace_fill(function, graph, nodes[i]);
    }
    return replaced;
}
#endif

static void log_recorded(size_t nodes, int replaced) {
    char line[120];
    snprintf(line, sizeof line, "cuda: a graph of %zu nodes is recorded; %d fills became kernels", nodes, replaced);
    ct_cuda_host->log(line);
}

void ct_cuda_recorded_improve(ct_cuda_device *d, int index, CUgraph graph) {
    size_t n = 0;
    int replaced = 0;
    if (ct_cuda.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS) return;
#if CUDA_VERSION >= 12030
    CUgraphNode *nodes = ct_cuda.edits_graphs && n ? malloc(n * sizeof(CUgraphNode)) : NULL;
    if (nodes && ct_cuda.cuGraphGetNodes(graph, nodes, &n) == CUDA_SUCCESS)
        replaced = replace_fills(d, index, graph, nodes, n);
    free(nodes);
#endif
    log_recorded(n, replaced);
}

/* ---- Work that is done in either of two ways ---- */

enum { TURNS = 8, SKIPPED = 2, MEASURED = 2 * TURNS }; /* the first launches upload what they need */
enum { IN_ORDER, BY_PARTS, UNDECIDED };
static const double advantage = 0.99; /* that branches have to have */

struct ct_cuda_work {
    CUgraphExec graphs[2];
    int choice;
    int launches;                /* while it is undecided */
    CUevent events[MEASURED][2]; /* before and behind each launch that is measured; NULL: there are none yet */
};

ct_cuda_work *ct_cuda_work_new(CUgraphExec graph) {
    ct_cuda_work *made = calloc(1, sizeof *made);
    if (made) made->graphs[IN_ORDER] = graph;
    else ct_cuda.cuGraphExecDestroy(graph);
    return made;
}

static void free_events(ct_cuda_work *w) {
    for (int i = 0; i < MEASURED; i++)
        for (int k = 0; k < 2; k++) {
            if (w->events[i][k]) ct_cuda.cuEventDestroy_v2(w->events[i][k]);
            w->events[i][k] = NULL;
        }
}

static bool make_events(ct_cuda_work *w) {
    bool ok = true;
    for (int i = 0; i < MEASURED; i++)
        for (int k = 0; k < 2; k++)
            ok = ok && ct_cuda.cuEventCreate(&w->events[i][k], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
    if (!ok) free_events(w);
    return ok;
}

ct_cuda_work *ct_cuda_work_either(ct_cuda_work *in_order, ct_cuda_work *by_parts) {
    const int wanted = ct_cuda_branches_wanted();
    in_order->graphs[BY_PARTS] = by_parts->graphs[IN_ORDER];
    free(by_parts);
    in_order->choice = wanted == 1                                                      ? BY_PARTS
                       : wanted == 0 || !ct_cuda_tune_is_on() || !make_events(in_order) ? IN_ORDER
                                                                                        : UNDECIDED;
    return in_order;
}

/* By the least time of each; those before are skipped. */
static void decide(ct_cuda_work *w) {
    float least[2] = {HUGE_VALF, HUGE_VALF}, time;
    char line[160];
    for (int i = SKIPPED; i < MEASURED; i++)
        if (ct_cuda.cuEventElapsedTime(&time, w->events[i][0], w->events[i][1]) == CUDA_SUCCESS && time < least[i % 2])
            least[i % 2] = time;
    w->choice = least[BY_PARTS] < advantage * least[IN_ORDER] ? BY_PARTS : IN_ORDER;
    free_events(w);
    snprintf(line, sizeof line, "cuda: recorded work takes %.4f ms in order and %.4f ms with branches",
             (double)least[0], (double)least[1]);
    ct_cuda_host->log(line);
}

static CUresult launch_measured(ct_cuda_work *w, CUstream stream) {
    CUevent *events = w->events[w->launches];
    const int way = w->launches++ % 2;
    CUresult result = ct_cuda.cuEventRecord(events[0], stream);
    if (result == CUDA_SUCCESS) result = ct_cuda.cuGraphLaunch(w->graphs[way], stream);
    return result == CUDA_SUCCESS ? ct_cuda.cuEventRecord(events[1], stream) : result;
}

/* Nothing waits for the times: until they are there, work is done in order. */
CUresult ct_cuda_work_launch(ct_cuda_work *w, CUstream stream) {
    if (w->choice == UNDECIDED && !ct_cuda_is_capturing(stream)) {
        if (w->launches < MEASURED) return launch_measured(w, stream);
        if (ct_cuda.cuEventQuery(w->events[MEASURED - 1][1]) == CUDA_SUCCESS) decide(w);
    }
    return ct_cuda.cuGraphLaunch(w->graphs[w->choice == BY_PARTS ? BY_PARTS : IN_ORDER], stream);
}

void ct_cuda_work_free(ct_cuda_work *w) {
    if (!w) return;
    free_events(w);
    for (int i = 0; i < 2; i++)
        if (w->graphs[i]) ct_cuda.cuGraphExecDestroy(w->graphs[i]);
    free(w);
}
