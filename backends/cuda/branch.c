/* Branches of recorded work. Within a call: a second stream with its events for each thread that records, from a pool. Between calls: the nodes
 * that each part of the recording ended with are remembered, and the next node is told which of them it comes after. */
#include "backends/cuda/branch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct side {
    struct side *next;
    CUstream stream;
    CUevent begun, done;
} side;

static side *pool[CT_CUDA_DEVICES]; /* those that nobody uses */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local side *current;

int ct_cuda_branches_wanted(void) {
    const char *text = getenv("CT_BRANCHES");
    return text && text[0] == '0' ? 0 : text && text[0] == '1' ? 1 : -1;
}

static void side_free(side *s) {
    if (s->done) ct_cuda.cuEventDestroy_v2(s->done);
    if (s->begun) ct_cuda.cuEventDestroy_v2(s->begun);
    if (s->stream) ct_cuda.cuStreamDestroy_v2(s->stream);
    free(s);
}

/* NULL: there is none, and calls have no branches. */
static side *side_new(void) {
    side *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (ct_cuda.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
        ct_cuda.cuEventCreate(&s->begun, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        ct_cuda.cuEventCreate(&s->done, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
        return s;
    side_free(s);
    return NULL;
}

static void take_side(int device) {
    pthread_mutex_lock(&lock);
    side *taken = pool[device];
    if (taken) pool[device] = taken->next;
    pthread_mutex_unlock(&lock);
    current = taken ? taken : side_new();
}

static void give_side(int device) {
    side *given = current;
    current = NULL;
    if (!given) return;
    pthread_mutex_lock(&lock);
    given->next = pool[device];
    pool[device] = given;
    pthread_mutex_unlock(&lock);
}

/* What is enqueued on `after` from here on comes behind all that `before` has now. */
static bool follow(const ct_call *call, CUevent event, CUstream before, CUstream after) {
    CUcontext outer;
    ct_cuda_device *d = ct_cuda_enter(call->device.index, &outer);
    if (!d) return false;
    const bool ok =
        ct_cuda_ok(d, ct_cuda.cuEventRecord(event, before), call->op->name, "a branch cannot be recorded") &&
        ct_cuda_ok(d, ct_cuda.cuStreamWaitEvent(after, event, 0), call->op->name, "a branch cannot be recorded");
    ct_cuda_leave(outer);
    return ok;
}

static CUstream stream_of(const ct_call *call) {
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    return d ? ct_cuda_stream(d, call->stream) : NULL;
}

bool ct_cuda_branch_begin(const ct_call *call, ct_cuda_branch *branch) {
    branch->call = *call;
    branch->apart = current && stream_of(call) != current->stream;
    if (!branch->apart) return true;
    branch->stream = (ct_stream){.device = call->device, .handle = current->stream};
    branch->call.stream = &branch->stream;
    return follow(call, current->begun, stream_of(call), current->stream);
}

bool ct_cuda_branch_end(const ct_call *call, ct_cuda_branch *branch) {
    return !branch->apart || follow(call, current->done, current->stream, stream_of(call));
}

/* ---- Parts of a recording ---- */

/* Of the recording of this thread: the nodes that part k ended with are ends[begin[k]] up to ends[begin[k + 1]]. */
static _Thread_local struct {
    CUgraphNode *ends;
    int *begin;
    size_t n_ends, ends_room;
    int parts, parts_room;
    bool divided; /* it is no single row of nodes */
} recording;

static bool room_for(void **list, size_t *room, size_t n, size_t size) {
    if (n <= *room) return true;
    const size_t wanted = 2 * n + 64;
    void *larger = realloc(*list, wanted * size);
    if (!larger) return false;
    *list = larger, *room = wanted;
    return true;
}

#if CUDA_VERSION >= 12030
/* The nodes that what comes next on the stream would come after are where the last part ended. */
static bool end_part(CUstream stream) {
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    CUgraph graph;
    size_t n = 0;
    if (!recording.parts) return true;
    if (ct_cuda.cuStreamGetCaptureInfo_v3(stream, &status, NULL, &graph, &nodes, &edges, &n) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE ||
        !room_for((void **)&recording.ends, &recording.ends_room, recording.n_ends + n, sizeof *nodes))
        return false;
    if (n) memcpy(&recording.ends[recording.n_ends], nodes, n * sizeof *nodes);
    recording.n_ends += n;
    recording.begin[recording.parts] = (int)recording.n_ends;
    return true;
}

/* What comes next on the stream comes after these nodes alone; without data of edges it waits for them to be done. */
static bool come_after(CUstream stream, CUgraphNode *nodes, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (size_t k = 0; !known && k < kept; k++) known = nodes[k] == nodes[i];
        if (!known) nodes[kept++] = nodes[i];
    }
    return ct_cuda.cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, kept,
                                                        CU_STREAM_SET_CAPTURE_DEPENDENCIES) == CUDA_SUCCESS;
}

static bool start_part(CUstream stream, const int *parts, int n) {
    size_t all = 0;
    for (int i = 0; i < n; i++) all += (size_t)(recording.begin[parts[i] + 1] - recording.begin[parts[i]]);
    CUgraphNode *nodes = malloc((all + 1) * sizeof(CUgraphNode));
    if (!nodes) return false;
    all = 0;
    for (int i = 0; i < n; i++)
        for (int k = recording.begin[parts[i]]; k < recording.begin[parts[i] + 1]; k++)
            nodes[all++] = recording.ends[k];
    const bool ok = come_after(stream, nodes, all);
    free(nodes);
    return ok;
}
#else
static bool end_part(CUstream stream) { return (void)stream, true; }
static bool start_part(CUstream stream, const int *parts, int n) { return (void)stream, (void)parts, (void)n, true; }
static bool come_after(CUstream stream, CUgraphNode *nodes, size_t n) {
    return (void)stream, (void)nodes, (void)n, true;
}
#endif

/* In the recording's own order nothing is to be said, and kernels begin while the one before them comes to its end. What comes after nothing
 * stays in it too. */
static bool is_next(const int *parts, int n) {
    if (!n) return true;
    for (int i = 0; i < n; i++)
        if (parts[i] == recording.parts - 1) return n == 1 || !recording.divided;
    return false;
}

bool ct_cuda_parts_from(int index, CUstream stream, const int *parts, int n) {
    size_t room = (size_t)recording.parts_room;
    bool ok = room_for((void **)&recording.begin, &room, (size_t)recording.parts + 2, sizeof *recording.begin);
    recording.parts_room = (int)room;
    if (ok && !recording.parts) {
        recording.begin[0] = 0;
        take_side(index);
    }
    if (ok && ct_cuda.edits_graphs && recording.parts) {
        ok = end_part(stream);
        if (ok && !is_next(parts, n)) {
            recording.divided = true;
            ok = start_part(stream, parts, n);
        }
    }
    recording.parts += ok; /* there may be no room for the end of one that failed */
    return ok || ct_cuda_host->fail(CT_ERR_DEVICE, "cuda", "a branch cannot be recorded");
}

void ct_cuda_parts_end(int index, CUstream stream) {
    if (recording.divided && end_part(stream)) come_after(stream, recording.ends, recording.n_ends);
    give_side(index);
    free(recording.ends);
    free(recording.begin);
    memset(&recording, 0, sizeof recording);
}
