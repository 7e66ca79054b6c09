/* The guarded device does work as one: a list of calls, writes and copies, each enqueued anew when the list is launched. CT_GUARD_RECORD=0: it
 * cannot. */
#include <stdlib.h>
#include <string.h>

#include "tests/guard/guard.h"

typedef struct item {
    guard_call *call; /* NULL: a copy, or a pattern */
    void *to;
    const void *from; /* NULL: a pattern of size bytes, count times */
    size_t size, count;
    unsigned char pattern[CT_NUMBER_BYTES];
} item;

typedef struct recording {
    item *items;
    int n, room;
} recording;

static _Thread_local recording *current;

bool guard_is_recording(void) { return current != NULL; }

static bool add(item made) {
    recording *r = current;
    if (r->n == r->room) {
        const int room = r->room ? 2 * r->room : 16;
        item *larger = realloc(r->items, (size_t)room * sizeof *larger);
        if (!larger) {
            if (made.call) guard_call_free(made.call);
            return guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for recorded work");
        }
        r->items = larger;
        r->room = room;
    }
    r->items[r->n++] = made;
    return true;
}

bool guard_record_call(guard_call *call) {
    call->kept = true;
    return add((item){.call = call});
}

bool guard_record_copy(void *to, const void *from, size_t bytes) {
    return add((item){.to = to, .from = from, .size = bytes});
}

bool guard_record_fill(void *to, const void *pattern, size_t size, size_t count) {
    item made = {.to = to, .size = size, .count = count};
    memcpy(made.pattern, pattern, size);
    return add(made);
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

static bool enqueue(const item *i, ct_stream *stream) {
    if (i->call) return guard_enqueue_call(i->call, stream);
    return i->from ? guard_enqueue_copy(i->to, i->from, i->size, stream)
                   : guard_enqueue_write(i->to, i->pattern, i->size, i->count, stream);
}

/* How often work has been done as one, for tests. */
static _Atomic long launches;
CT_API long guard_launches(void);
long guard_launches(void) { return launches; }

bool guard_record_launch(void *self, int device, void *handle, ct_stream *stream) {
    (void)self, (void)device;
    const recording *r = handle;
    bool ok = true;
    launches++;
    for (int i = 0; ok && i < r->n; i++) ok = enqueue(&r->items[i], stream);
    return ok;
}

void guard_record_free(void *self, int device, void *handle) {
    (void)self, (void)device;
    recording *r = handle;
    for (int i = 0; i < r->n; i++)
        if (r->items[i].call) guard_call_free(r->items[i].call);
    free(r->items);
    free(r);
}
