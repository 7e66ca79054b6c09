/* The guarded device does calls as one: a list of them, each enqueued anew when the list is launched. CT_GUARD_RECORD=0: it cannot. */
#include <stdlib.h>

#include "tests/guard/guard.h"

typedef struct recording {
    guard_call **calls;
    int n, room;
} recording;

static _Thread_local recording *current;

bool guard_is_recording(void) { return current != NULL; }

bool guard_record_call(guard_call *call) {
    recording *r = current;
    if (r->n == r->room) {
        const int room = r->room ? 2 * r->room : 16;
        guard_call **larger = realloc(r->calls, (size_t)room * sizeof *larger);
        if (!larger) {
            guard_call_free(call);
            return guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for a recorded call");
        }
        r->calls = larger;
        r->room = room;
    }
    call->kept = true;
    r->calls[r->n++] = call;
    return true;
}

bool guard_record_begin(void *self, int device, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    current = calloc(1, sizeof *current);
    return current || guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for a recording");
}

bool guard_record_end(void *self, int device, ct_stream *stream, void **handle) {
    (void)stream;
    const char *can = getenv("CT_GUARD_RECORD");
    *handle = current;
    current = NULL;
    if (!can || can[0] != '0') return true;
    guard_record_free(self, device, *handle);
    *handle = NULL;
    return true;
}

bool guard_record_launch(void *self, int device, void *handle, ct_stream *stream) {
    (void)self, (void)device;
    const recording *r = handle;
    bool ok = true;
    for (int i = 0; ok && i < r->n; i++) ok = guard_enqueue_call(r->calls[i], stream);
    return ok;
}

void guard_record_free(void *self, int device, void *handle) {
    (void)self, (void)device;
    recording *r = handle;
    for (int i = 0; i < r->n; i++) guard_call_free(r->calls[i]);
    free(r->calls);
    free(r);
}
