/* What the module for NVIDIA devices measures and how it divides recordings into branches, on a device that is made up: its clock goes as a test
 * says. Built where CUDA's headers are. */
#include "tests/harness.h"

#ifndef CT_TEST_CUDA_HEADERS
TEST(candidates_are_measured_in_turns) { SKIP("the module for NVIDIA devices is not built here"); }
#else
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/branch.h"
#include "backends/cuda/recorded.h"
#include "backends/cuda/tune.h"

/* ---- The device ---- */

ct_cuda_driver ct_cuda;
static double now_us; /* on the device */
static bool done = true;
static ct_cuda_device device = {.capability = 90};

static void logged(const char *line) { printf("%s\n", line); }
static bool failed(ct_code code, const char *op, const char *format, ...) {
    (void)code, (void)op, (void)format;
    return false;
}
static const ct_host host = {.log = logged, .fail = failed};
const ct_host *ct_cuda_host = &host;

ct_cuda_device *ct_cuda_device_at(int index) { return (void)index, &device; }
ct_cuda_device *ct_cuda_enter(int index, CUcontext *before) { return (void)index, *before = NULL, &device; }
void ct_cuda_leave(CUcontext before) { (void)before; }
bool ct_cuda_ok(ct_cuda_device *d, CUresult result, const char *op, const char *what) {
    return (void)d, (void)op, (void)what, result == CUDA_SUCCESS;
}
CUstream ct_cuda_stream(const ct_cuda_device *d, const ct_stream *stream) { return (void)d, (void)stream, NULL; }
CUfunction ct_cuda_fill_function(ct_cuda_device *d, int index) { return (void)d, (void)index, NULL; }

static CUresult event_create(CUevent *event, unsigned flags) {
    return (void)flags, *event = calloc(1, sizeof(double)), CUDA_SUCCESS;
}
static CUresult event_destroy(CUevent event) { return free(event), CUDA_SUCCESS; }
static CUresult event_record(CUevent event, CUstream stream) {
    return (void)stream, *(double *)(void *)event = now_us, CUDA_SUCCESS;
}
static CUresult event_wait(CUevent event) { return (void)event, CUDA_SUCCESS; }
static CUresult event_query(CUevent event) { return (void)event, done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
static CUresult event_elapsed(float *ms, CUevent from, CUevent to) {
    return *ms = (float)((*(double *)(void *)to - *(double *)(void *)from) * 1e-3), CUDA_SUCCESS;
}
static CUresult stream_wait(CUstream stream) { return (void)stream, CUDA_SUCCESS; }
static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
    return (void)stream, *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
static CUresult host_function(CUstream stream, CUhostFn f, void *data) {
    return (void)stream, (void)f, (void)data, CUDA_SUCCESS;
}
static CUresult device_name(char *name, int room, CUdevice d) {
    return (void)name, (void)room, (void)d, CUDA_ERROR_NOT_SUPPORTED; /* so that nothing is kept in files */
}

/* ---- Candidates ---- */

typedef struct contest {
    double times[16];
    double begin, end, over; /* times are multiplied by `begin` at first and by `end` after so many microseconds */
    int attempts;
} contest;

static bool attempt(void *context, int candidate) {
    contest *c = context;
    const double part = now_us < c->over ? now_us / c->over : 1;
    if (c->times[candidate] < 0) return false;
    now_us += c->times[candidate] * (c->begin + (c->end - c->begin) * part);
    c->attempts++;
    return true;
}

static void start_device(void) {
    ct_cuda.cuEventCreate = event_create;
    ct_cuda.cuEventDestroy_v2 = event_destroy;
    ct_cuda.cuEventRecord = event_record;
    ct_cuda.cuEventSynchronize = event_wait;
    ct_cuda.cuEventQuery = event_query;
    ct_cuda.cuEventElapsedTime = event_elapsed;
    ct_cuda.cuStreamSynchronize = stream_wait;
    ct_cuda.cuStreamIsCapturing = is_capturing;
    ct_cuda.cuLaunchHostFunc = host_function;
    ct_cuda.cuDeviceGetName = device_name;
    now_us = 0;
}

static int tuned(contest *c, int n) {
    static char key;
    const ct_call call = {.n_in = 0};
    start_device();
    key++;
    return ct_cuda_tune(&call, "test", &key, 1, n, attempt, c);
}

TEST(candidates_are_measured_in_turns) {
    /* Clocks that fall under load make the first look good, those that rise after idleness make it look bad. */
    contest hotter = {{3000, 3100, 3100, 3100, 3100, 3100, 2700, 3100}, 1, 1.3, 1e5, 0};
    contest faster = {{2700, 3100, 3100, 3100, 3100, 3100, 2950, 3100}, 1.5, 1, 4e4, 0};
    CHECK(tuned(&hotter, 8) == 6);
    CHECK(tuned(&faster, 8) == 0);
}

TEST(what_is_hardly_faster_than_the_first_does_not_take_its_place) {
    contest close = {{3000, 2970, 2990, 2980}, 1, 1, 1, 0};
    CHECK(tuned(&close, 4) == 0);
}

TEST(candidates_that_are_far_behind_or_cannot_drop_out) {
    contest c = {{-1, 400, 9000, 390, 8000, 380, -1, 900}, 1, 1, 1, 0};
    CHECK(tuned(&c, 8) == 5);
    harness_check(c.attempts < 50, __FILE__, __LINE__, "%d attempts", c.attempts);
    contest none = {{-1, -1}, 1, 1, 1, 0};
    CHECK(tuned(&none, 2) == 0);
}

/* ---- Work in either of two ways ---- */

static double graph_times[2];
static int launched[2];
static CUresult launch(CUgraphExec graph, CUstream stream) {
    (void)stream;
    const int way = (int)(intptr_t)graph - 1;
    now_us += graph_times[way];
    launched[way]++;
    return CUDA_SUCCESS;
}
static CUresult destroy(CUgraphExec graph) { return (void)graph, CUDA_SUCCESS; }

/* Which of the two is launched after the first ones, whose number is *measured. */
static int stays(double in_order, double by_parts, int *measured) {
    start_device();
    ct_cuda.cuGraphLaunch = launch;
    ct_cuda.cuGraphExecDestroy = destroy;
    graph_times[0] = in_order, graph_times[1] = by_parts;
    launched[0] = launched[1] = 0;
    ct_cuda_work *w =
        ct_cuda_work_either(ct_cuda_work_new((CUgraphExec)(intptr_t)1), ct_cuda_work_new((CUgraphExec)(intptr_t)2));
    done = false;
    for (int i = 0; i < 40; i++) CHECK(ct_cuda_work_launch(w, NULL) == CUDA_SUCCESS);
    *measured = launched[1];
    const int before = launched[1];
    done = true;
    for (int i = 0; i < 10; i++) CHECK(ct_cuda_work_launch(w, NULL) == CUDA_SUCCESS);
    const int later = launched[1] - before;
    ct_cuda_work_free(w);
    return later == 10 ? 1 : later == 0 ? 0 : -1;
}

TEST(the_faster_of_two_recordings_stays) {
    int measured;
    unsetenv("CT_BRANCHES");
    CHECK(stays(200, 170, &measured) == 1 && measured == 8);
    CHECK(stays(200, 230, &measured) == 0 && measured == 8);
    CHECK(stays(200, 199.5, &measured) == 0);
    setenv("CT_BRANCHES", "1", 1);
    CHECK(stays(200, 230, &measured) == 1 && measured == 40);
    unsetenv("CT_BRANCHES");
}

TEST(without_measuring_work_is_done_in_order) {
    int measured;
    setenv("CT_TUNE", "0", 1);
    CHECK(stays(200, 100, &measured) == 0 && measured == 0);
}

/* ---- Parts of a recording ---- */

/* A capture of one stream: node i comes after the nodes in before[i], bit k for node k. */
enum { NODES = 32 };
static uint32_t before[NODES];
static CUgraphNode next_after[NODES];
static size_t n_next;
static int n_nodes;

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                             const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *n) {
    (void)stream, (void)id, (void)graph;
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    *nodes = next_after, *edges = NULL, *n = n_next;
    return CUDA_SUCCESS;
}
static CUresult set_dependencies(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t n,
                                 unsigned flags) {
    (void)stream, (void)edges;
    if (flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES || n > NODES) return CUDA_ERROR_INVALID_VALUE;
    memmove(next_after, nodes, n * sizeof *nodes);
    n_next = n;
    return CUDA_SUCCESS;
}
static CUresult no_stream(CUstream *stream, unsigned flags) {
    return (void)stream, (void)flags, CUDA_ERROR_NOT_SUPPORTED;
}

static uint32_t bits(void) {
    uint32_t all = 0;
    for (size_t i = 0; i < n_next; i++) all |= 1u << ((intptr_t)next_after[i] - 1);
    return all;
}
static void add_node(void) {
    before[n_nodes++] = bits();
    next_after[0] = (CUgraphNode)(intptr_t)n_nodes;
    n_next = 1;
}
static void start_part(int nodes, const int *parts, int n) {
    CHECK(ct_cuda_parts_from(0, NULL, parts, n));
    for (int i = 0; i < nodes; i++) add_node();
}
#define PART(nodes, ...) start_part(nodes, (const int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))

TEST(parts_of_a_recording_come_after_those_that_they_name) {
    ct_cuda.cuStreamGetCaptureInfo_v3 = capture_info;
    ct_cuda.cuStreamUpdateCaptureDependencies_v2 = set_dependencies;
    ct_cuda.cuStreamCreate = no_stream;
    ct_cuda.edits_graphs = true;
    for (int again = 0; again < 2; again++) { /* the second recording knows nothing of the first */
        n_nodes = 0, n_next = 0;
        start_part(1, NULL, 0); /* part 0: node 0 */
        PART(2, 0);             /* 1: nodes 1, 2 */
        PART(1, 0);             /* 2: node 3, beside part 1 */
        PART(1, 1, 2);          /* 3: node 4 */
        PART(0, 1);             /* 4: nothing, after part 1 */
        PART(1, 4);             /* 5: node 5 */
        PART(1, 5);             /* 6: node 6 */
        PART(1, 2);             /* 7: node 7 */
        ct_cuda_parts_end(0, NULL);
        const uint32_t expected[] = {0, 1, 2, 1, 1 << 2 | 1 << 3, 1 << 2, 1 << 5, 1 << 3};
        CHECK(n_nodes == 8);
        for (int i = 0; i < n_nodes; i++)
            harness_check(before[i] == expected[i], __FILE__, __LINE__, "node %d comes after %x, not %x", i, before[i],
                          expected[i]);
        for (int i = 4; i < 8; i++) /* what nothing came after joins */
            CHECK(i == 5 || bits() >> i & 1);
    }
}
#endif
