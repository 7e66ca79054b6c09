/* The guarded device does work as one: a list of calls, writes and copies, each enqueued anew when the list is launched. CT_GUARD_RECORD=0: it
 * cannot. Of branches it takes the last that may be done first, whenever there is a choice, so that one which was forgotten to wait for others
 * reads what they have not written; every other launch is in order. */
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

typedef struct part {
    int begin, end; /* of its items */
    int *after, n;
    bool done;
} part;

typedef struct recording {
    item *items;
    int n, room;
    part *parts;
    int n_parts;
    int *order;                 /* of the parts; NULL: there is one */
    struct recording *in_parts; /* the same work; NULL: there is none */
    long launches;
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

/* What comes next: the last part whose work may be done. */
static int next_part(const recording *r) {
    for (int k = r->n_parts - 1; k >= 0; k--) {
        bool ready = !r->parts[k].done;
        for (int i = 0; ready && i < r->parts[k].n; i++) ready = r->parts[r->parts[k].after[i]].done;
        if (ready) return k;
    }
    return -1;
}

static long branched; /* parts that were done before one that comes earlier in order, for tests */
CT_API long guard_branched(void);
long guard_branched(void) { return branched; }

static bool put_in_order(recording *r) {
    if (!r->n_parts) return true;
    r->order = malloc((size_t)r->n_parts * sizeof *r->order);
    if (!r->order) return guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for the order of branches");
    for (int i = 0; i < r->n_parts; i++) {
        r->parts[i].end = i + 1 < r->n_parts ? r->parts[i + 1].begin : r->n;
        r->order[i] = next_part(r);
        branched += r->order[i] > i;
        r->parts[r->order[i]].done = true;
    }
    return true;
}

bool guard_record_from(void *self, int device, ct_stream *stream, const int *parts, int n) {
    (void)self, (void)device, (void)stream;
    recording *r = current;
    part *larger = realloc(r->parts, ((size_t)r->n_parts + 1) * sizeof *larger);
    int *after = malloc(((size_t)n + 1) * sizeof *after);
    if (larger) r->parts = larger;
    if (!larger || !after) {
        free(after);
        return guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for a branch");
    }
    memcpy(after, parts, (size_t)n * sizeof *after);
    for (int i = 0; i < n; i++)
        if (parts[i] < 0 || parts[i] >= r->n_parts) {
            free(after);
            return guard_host->fail(CT_ERR_STATE, "guard", "a branch waits for one that does not come before it");
        }
    r->parts[r->n_parts++] = (part){.begin = r->n, .after = after, .n = n};
    return true;
}

void *guard_record_either(void *self, int device, void *in_order, void *by_parts) {
    (void)self, (void)device;
    ((recording *)in_order)->in_parts = by_parts;
    return in_order;
}

bool guard_record_end(void *self, int device, ct_stream *stream, void **handle) {
    (void)stream;
    const char *can = getenv("CT_GUARD_RECORD");
    *handle = current;
    current = NULL;
    if (!can || can[0] != '0') return put_in_order(*handle);
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
    recording *r = handle;
    bool ok = true;
    launches++;
    if (r->in_parts && r->launches++ % 2 == 0) r = r->in_parts;
    for (int k = 0; ok && k < r->n_parts; k++) {
        const part *p = &r->parts[r->order[k]];
        for (int i = p->begin; ok && i < p->end; i++) ok = enqueue(&r->items[i], stream);
    }
    for (int i = 0; ok && !r->n_parts && i < r->n; i++) ok = enqueue(&r->items[i], stream);
    return ok;
}

void guard_record_free(void *self, int device, void *handle) {
    (void)self, (void)device;
    recording *r = handle;
    if (r->in_parts) guard_record_free(self, device, r->in_parts);
    for (int i = 0; i < r->n_parts; i++) free(r->parts[i].after);
    free(r->parts);
    free(r->order);
    for (int i = 0; i < r->n; i++)
        if (r->items[i].call) guard_call_free(r->items[i].call);
    free(r->items);
    free(r);
}
