/* The guarded device's second mode: work is queued, a queue a stream, and runs only when a wait needs it. So a missing wait, memory
 * that is used again too early and a record that points at its caller's stack show as wrong numbers. What runs is what the
 * stream depends on and no more (CT_GUARD_QUEUE=1), or everything else first (2): both are legal, and what was forgotten in
 * the order of two streams goes wrong in one of them.
 * The first kernel that finds a wrong value sets the error word: until the wait that raises it is over, calls that change
 * lasting state are skipped. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/guard/guard.h"

typedef struct queue queue;

typedef enum work_kind { CALL, WRITE, COPY, AWAIT } work_kind;

typedef struct work {
    struct work *next;
    work_kind kind;
    guard_call *call;
    char *to; /* addresses inside */
    const char *from;
    size_t bytes, count;
    queue *other; /* AWAIT: its work up to ticket has to be done */
    uint64_t ticket;
    char content[];
} work;

/* Queues live as long as the process: what awaits the work of a stream may outlive the stream. */
struct queue {
    work *first, **last;
    uint64_t queued, done; /* how many works so far */
    queue *next;
};

struct ct_event {
    queue *of;
    uint64_t ticket;
};

static queue own = {.last = &own.first}, *queues = &own;
static bool error_word;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int mode(void) {
    const char *text = getenv("CT_GUARD_QUEUE");
    return text ? atoi(text) : 0;
}

bool guard_queued(void) {
    static int known = -1;
    if (known < 0) known = mode();
    return known > 0;
}

void guard_queue_lock(bool take) {
    if (take) pthread_mutex_lock(&lock);
    else pthread_mutex_unlock(&lock);
}

static queue *queue_of(ct_stream *stream) { return stream ? stream->handle : &own; }

/* ---- Running ---- */

static bool run_until(queue *q, uint64_t ticket);

static bool run_call(guard_call *made) {
    const ct_call *call = &made->call;
    bool ok = true;
    guard_host->hold_workers(call->workers); /* its scratch is for that many */
    if (!(error_word && (call->flags & CT_CALL_LASTING))) ok = call->kernel->run(call, NULL);
    guard_host->hold_workers(0);
    if (!made->kept) guard_call_free(made);
    return ok;
}

static void repeat(char *to, const char *pattern, size_t size, size_t count) {
    if (size == 1) memset(to, pattern[0], count);
    else
        for (size_t i = 0; i < count; i++) memcpy(to + i * size, pattern, size);
}

static bool run_work(work *w) {
    bool ok = true;
    switch (w->kind) {
    case CALL: ok = run_call(w->call); break;
    case WRITE: repeat(w->to, w->content, w->bytes, w->count); break;
    case COPY: memmove(w->to, w->from, w->bytes); break;
    case AWAIT: ok = run_until(w->other, w->ticket); break;
    }
    return ok;
}

/* The kernel that fails has raised its error on this thread, which is the one that waits. */
static bool run_until(queue *q, uint64_t ticket) {
    bool ok = true;
    while (q->done < ticket && q->first) {
        work *w = q->first;
        q->first = w->next;
        if (!q->first) q->last = &q->first;
        if (!run_work(w)) {
            ok = false;
            error_word = true;
        }
        q->done++;
        free(w);
    }
    return ok;
}

bool guard_run(ct_stream *stream) {
    bool ok = true;
    if (!guard_queued()) return true;
    pthread_mutex_lock(&lock);
    queue *q = queue_of(stream);
    for (queue *other = queues; other && mode() == 2; other = other->next)
        if (other != q) ok = run_until(other, other->queued) && ok;
    ok = run_until(q, q->queued) && ok;
    error_word = false; /* it has been heard of */
    pthread_mutex_unlock(&lock);
    return ok;
}

static bool view_lies_in(const ct_view *view, const char *from, const char *to) {
    return view && (const char *)view->buffer >= from && (const char *)view->buffer < to;
}

bool guard_in_use(const void *inside, size_t bytes) {
    const char *from = inside, *to = from + bytes;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const queue *q = queues; q; q = q->next) {
        for (const work *w = q->first; w; w = w->next) {
            const ct_call *call = w->kind == CALL ? &w->call->call : NULL;
            for (int i = 0; call && i < call->n_in; i++) found |= view_lies_in(call->in[i], from, to);
            for (int i = 0; call && i < call->n_out; i++) found |= view_lies_in(call->out[i], from, to);
            found |= call && (const char *)call->scratch.buffer >= from && (const char *)call->scratch.buffer < to;
            found |= !call && ((w->to >= from && w->to < to) || (w->from >= from && w->from < to));
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- Queueing ---- */

static bool enqueue(work *w, ct_stream *stream) {
    if (!w) return guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for work that is to be queued");
    pthread_mutex_lock(&lock);
    queue *q = queue_of(stream);
    *q->last = w;
    q->last = &w->next;
    q->queued++;
    pthread_mutex_unlock(&lock);
    return true;
}

static work *work_new(work_kind kind, const void *content, size_t bytes) {
    work *w = malloc(sizeof *w + bytes);
    if (!w) return NULL;
    *w = (work){.kind = kind};
    if (bytes) memcpy(w->content, content, bytes);
    return w;
}

bool guard_enqueue_call(guard_call *call, ct_stream *stream) {
    if (!guard_queued()) return run_call(call);
    work *w = work_new(CALL, NULL, 0);
    if (w) w->call = call;
    else if (!call->kept) guard_call_free(call);
    return enqueue(w, stream);
}

bool guard_enqueue_write(void *to, const void *bytes, size_t size, size_t count, ct_stream *stream) {
    if (!guard_queued()) {
        repeat(to, bytes, size, count);
        return true;
    }
    work *w = work_new(WRITE, bytes, size);
    if (w) w->to = to, w->bytes = size, w->count = count;
    return enqueue(w, stream);
}

bool guard_enqueue_copy(void *to, const void *from, size_t bytes, ct_stream *stream) {
    if (!guard_queued()) {
        memmove(to, from, bytes);
        return true;
    }
    work *w = work_new(COPY, NULL, 0);
    if (w) w->to = to, w->from = from, w->bytes = bytes;
    return enqueue(w, stream);
}

/* ---- Streams and events ---- */

bool guard_stream_new(void *self, int device, void **handle) {
    (void)self, (void)device;
    queue *made = calloc(1, sizeof *made);
    if (!made) return guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for a stream");
    made->last = &made->first;
    pthread_mutex_lock(&lock);
    made->next = queues->next;
    queues->next = made;
    pthread_mutex_unlock(&lock);
    *handle = made;
    return true;
}

bool guard_stream_wrap(void *self, int device, void *theirs, void **handle) {
    (void)self, (void)device;
    bool known = false;
    pthread_mutex_lock(&lock);
    for (const queue *q = queues; q; q = q->next) known |= q == theirs;
    pthread_mutex_unlock(&lock);
    *handle = theirs;
    return known || guard_host->fail(CT_ERR_VALUE, "stream_wrap", "it is no stream");
}

void guard_stream_free(void *self, int device, void *handle) { (void)self, (void)device, (void)handle; }

ct_event *guard_event_new(void *self, int device) {
    (void)self, (void)device;
    ct_event *event = calloc(1, sizeof *event);
    if (!event) guard_host->fail(CT_ERR_MEMORY, "guard", "no memory for an event");
    return event;
}

void guard_event_free(void *self, int device, ct_event *event) {
    (void)self, (void)device;
    free(event);
}

bool guard_event_record(void *self, int device, ct_event *event, ct_stream *stream) {
    (void)self, (void)device;
    pthread_mutex_lock(&lock);
    event->of = queue_of(stream);
    event->ticket = event->of->queued;
    pthread_mutex_unlock(&lock);
    return true;
}

bool guard_event_wait(void *self, int device, ct_event *event, ct_stream *stream) {
    (void)self, (void)device;
    if (!guard_queued() || !event->of) return true;
    work *w = work_new(AWAIT, NULL, 0);
    if (w) w->other = event->of, w->ticket = event->ticket;
    return enqueue(w, stream);
}
