/* Branches of recorded work: a second stream with its events for each thread that records, from a pool. */
#include "backends/cuda/branch.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct side {
    struct side *next;
    CUstream stream;
    CUevent begun, done;
} side;

static side *pool[CT_CUDA_DEVICES]; /* those that nobody uses */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local side *current;

/* CT_BRANCHES=0: recorded work has none. */
static bool are_wanted(void) {
    const char *text = getenv("CT_BRANCHES");
    return !text || text[0] != '0';
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

void ct_cuda_branches_begin(int device) {
    if (!are_wanted()) return;
    pthread_mutex_lock(&lock);
    side *taken = pool[device];
    if (taken) pool[device] = taken->next;
    pthread_mutex_unlock(&lock);
    current = taken ? taken : side_new();
}

void ct_cuda_branches_end(int device) {
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
