/* Streams of devices: making them, this thread's, and the order in which they use memory. What a device has in the core (its
 * streams, its memory's books) lives here too. */
#include "core/stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/call.h"
#include "core/device.h"
#include "core/error.h"

/* ---- States of devices ---- */

enum { DEVICES = 256 };
typedef _Atomic(ct_device_state *) state_entry;
static _Atomic(state_entry *) states[CT_DEVICE_TYPES]; /* of a backend's devices, DEVICES each */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* A child never finds a lock taken. */
static void each_lock(int (*change)(pthread_mutex_t *)) {
    for (int type = 0; type < CT_DEVICE_TYPES; type++) {
        state_entry *list = atomic_load(&states[type]);
        for (int i = 0; list && i < DEVICES; i++)
            if (atomic_load(&list[i])) change(&atomic_load(&list[i])->lock);
    }
}
static void before_fork(void) {
    pthread_mutex_lock(&making);
    each_lock(pthread_mutex_lock);
}
static void after_fork(void) {
    each_lock(pthread_mutex_unlock);
    pthread_mutex_unlock(&making);
}
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

/* CT_DEVICE_MEMORY: bytes, or a number of K, M, G or T (powers of 1024); 0 or nothing: no limit. */
static bool limit_from_environment(int64_t *limit) {
    static const char units[] = "KMGT";
    const char *text = getenv("CT_DEVICE_MEMORY");
    *limit = 0;
    if (!text || !*text) return true;
    char *end;
    const double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    const double bytes = ldexp(value, unit ? 10 * (int)(unit - units + 1) : 0);
    if (end == text || (unit ? end[1] : *end) || !(bytes >= 0 && bytes < 0x1p62))
        return ct_fail(CT_ERR_VALUE, NULL,
                       "CT_DEVICE_MEMORY is '%s'; it is a number of bytes, or of K, M, G or T, as 8G", text);
    *limit = (int64_t)bytes;
    return true;
}

static ct_device_state *state_new(ct_device device) {
    int64_t limit;
    ct_device_state *state = limit_from_environment(&limit) ? calloc(1, sizeof *state) : NULL;
    if (!state) return NULL;
    state->limit = device.type == CT_CPU ? 0 : limit;
    pthread_mutex_init(&state->lock, NULL);
    state->backend = ct__backend(device.type);
    state->device = device;
    state->books.get = ct__alloc;
    for (unsigned i = 0; i < CT__STREAMS; i++) {
        state->streams[i].number = i;
        state->streams[i].stream.device = device;
    }
    state->streams[0].open = true;
    return state;
}

ct_device_state *ct__device_state(ct_device device) {
    state_entry *list = atomic_load_explicit(&states[device.type], memory_order_acquire);
    ct_device_state *state =
        list && device.index < DEVICES ? atomic_load_explicit(&list[device.index], memory_order_acquire) : NULL;
    if (state || device.index >= DEVICES) return state;
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&making);
    list = atomic_load(&states[device.type]);
    if (!list && (list = calloc(DEVICES, sizeof *list))) atomic_store(&states[device.type], list);
    state = list ? atomic_load(&list[device.index]) : NULL;
    if (list && !state && (state = state_new(device))) atomic_store(&list[device.index], state);
    pthread_mutex_unlock(&making);
    return state;
}

/* ---- Order ---- */

static ct_stream *stream_of(ct_device_state *state, unsigned number) {
    return number ? &state->streams[number].stream : NULL;
}

bool ct__stream_follow(ct_device_state *state, unsigned waiter, unsigned of) {
    const ct_backend *backend = state->backend;
    const int index = state->device.index;
    if (!state->streams[of].open) of = 0; /* which waited for it when it was freed */
    if (waiter == of) return true;
    ct_event **event = &state->streams[of].event;
    if (!*event) *event = backend->event_new(backend->self, index);
    return *event && backend->event_record(backend->self, index, *event, stream_of(state, of)) &&
           backend->event_wait(backend->self, index, *event, stream_of(state, waiter));
}

/* A stream is noted as a user only once it waits: another thread on the same stream that finds the note needs no wait. */
static bool order(ct_device_state *state, ct_block *block, unsigned stream, bool writes) {
    const uint64_t mine = (uint64_t)1 << stream, users = atomic_load(&block->users);
    uint64_t before = writes ? users & ~mine : users & mine ? 0 : (uint64_t)1 << atomic_load(&block->writer);
    bool ok = true;
    if (before) {
        pthread_mutex_lock(&state->lock);
        for (; ok && before; before &= before - 1)
            ok = ct__stream_follow(state, stream, (unsigned)__builtin_ctzll(before));
        pthread_mutex_unlock(&state->lock);
    }
    if (!ok) return false;
    if (!writes) {
        if (!(users & mine)) atomic_fetch_or(&block->users, mine);
    } else if (users != mine || atomic_load(&block->writer) != stream) {
        atomic_store(&block->writer, stream);
        atomic_store(&block->users, mine);
    }
    return true;
}

bool ct__stream_use(const ct_storage *storage, const ct_stream *stream, bool writes) {
    if (!storage || !storage->block) return true;
    return order(ct__device_state(storage->device), storage->block, ct__stream_number(stream), writes);
}

/* ---- Of this thread ---- */

/* What this thread has to do with a device. */
enum { SEATS = 16 };
typedef struct seat {
    ct_device_state *state;
    ct_stream_slot *slot; /* the stream it has chosen; NULL: the device's own */
    bool lasting;         /* it has enqueued calls that change lasting state since it last waited, */
    unsigned heard;       /* when the device had had so many errors */
} seat;
static _Thread_local seat seats[SEATS];
static _Thread_local int seat_count;

static seat *seat_of(ct_device device) {
    for (int i = 0; i < seat_count; i++)
        if (ct__same_device(seats[i].state->device, device)) return &seats[i];
    return NULL;
}

static seat *seat_taken(ct_device_state *state) { /* NULL: it has to do with more devices than there is room for */
    seat *found = seat_of(state->device);
    if (found || seat_count == SEATS) return found;
    seats[seat_count] = (seat){.state = state};
    return &seats[seat_count++];
}

ct_stream *ct__stream_now(ct_device device) {
    const seat *s = seat_count ? seat_of(device) : NULL;
    return s && s->slot && s->slot->open ? &s->slot->stream : NULL;
}

bool ct__stream_enter(ct_call *call, ct_tensor *const *in, ct_tensor *const *out) {
    ct_device_state *state = ct__device_state(call->device);
    if (!state) return ct__fail_memory(call->op->name, sizeof *state);
    const unsigned number = ct__stream_number(call->stream = ct__stream_now(call->device));
    bool ok = true;
    int last = 0;
    for (int i = 0; ok && i < call->n_in; i++) {
        const ct_arg *arg = ct__input_arg(call->op, i, &last);
        if (in[i] && in[i]->storage && in[i]->storage->block)
            ok = order(state, in[i]->storage->block, number, arg->flags & CT_ARG_MUTATED);
    }
    for (int i = 0; ok && i < call->n_out; i++)
        if (out[i] && out[i]->storage->block) ok = order(state, out[i]->storage->block, number, true);
    seat *s = ok && (call->flags & CT_CALL_LASTING) ? seat_taken(state) : NULL;
    if (s && !s->lasting) {
        s->lasting = true;
        s->heard = atomic_load(&state->errors);
    }
    return ok;
}

/* ---- Waiting ---- */

static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER; /* of the last errors of all devices */

/* After a wait for a stream, which raised an error if it did not go well. Another thread that has had lasting calls in the queue
 * meanwhile does not know whether they were done: it hears of the error at its own next wait. */
static bool waited(ct_device_state *state, const ct_stream *stream, bool ok) {
    seat *s = seat_of(state->device);
    const bool covered = s && s->lasting && stream == ct__stream_now(state->device);
    if (!ok) {
        pthread_mutex_lock(&hearing);
        if (ct__errors.record) state->last_error = *ct__errors.record;
        state->last_error.code = ct__errors.code;
        atomic_fetch_add(&state->errors, 1);
        pthread_mutex_unlock(&hearing);
    } else if (covered && s->heard != atomic_load(&state->errors)) {
        pthread_mutex_lock(&hearing);
        ct__error_put(&state->last_error);
        pthread_mutex_unlock(&hearing);
        ok = false;
    }
    if (covered) s->lasting = false;
    return ok;
}

bool ct__stream_wait(ct_device device, ct_stream *stream) {
    ct_device_state *state = ct__device_state(device);
    if (!state) return ct__fail_memory("synchronize", sizeof *state);
    const ct_backend *backend = state->backend;
    const char *called = ct__errors.called;
    ct__errors.called = NULL;
    const bool ok = backend->wait(backend->self, device.index, backend->stream_new ? stream : NULL);
    const bool fine = waited(state, stream, ok);
    ct__errors.called = called;
    return fine;
}

bool ct__stream_download(const ct_storage *storage, size_t offset, void *data, size_t bytes) {
    ct_device_state *state = ct__device_state(storage->device);
    const ct_backend *backend = state->backend;
    ct_stream *stream = ct__stream_now(storage->device);
    if (!ct__stream_use(storage, stream, false)) return false;
    const char *called = ct__errors.called;
    ct__errors.called = NULL;
    const bool ok = backend->download(backend->self, storage->device.index, data, storage->buffer,
                                      storage->block->offset + offset, bytes, stream);
    const bool fine = waited(state, stream, ok);
    ct__errors.called = called;
    return fine;
}

bool ct__device_wait(ct_device_state *state) {
    bool ok = ct__stream_wait(state->device, NULL);
    for (unsigned i = 1; i < CT__STREAMS; i++)
        if (state->streams[i].open && state->backend->stream_new)
            ok = ct__stream_wait(state->device, &state->streams[i].stream) && ok;
    return ok;
}

/* ---- Streams ---- */

bool ct_set_stream(ct_device device, ct_stream *stream) {
    const char *me = "set_stream";
    if (!ct__device_ok(device, me)) return false;
    device = ct__resolved(device);
    if (stream && !ct__same_device(stream->device, device))
        return ct_fail(CT_ERR_DEVICE, me, "the stream is of %s, not of %s", ct_device_text(stream->device),
                       ct_device_text(device));
    ct_stream_slot *slot = (ct_stream_slot *)(void *)stream;
    const ct_backend *backend = ct__backend(device.type);
    if (slot && !slot->open) return ct_fail(CT_ERR_STATE, me, "the stream has been freed");
    if (!backend->stream_new) slot = NULL; /* it stands for the only one */
    seat *s = seat_of(device);
    if (!s && slot && !(s = seat_taken(ct__device_state(device))))
        return ct_fail(CT_ERR_STATE, me, "a thread has streams of at most %d devices", SEATS);
    if (s) s->slot = slot;
    return true;
}

ct_stream *ct_get_stream(ct_device device) { return ct__stream_now(ct__resolved(device)); }

/* Its number may have been that of another stream, which blocks of memory still note as a user: so it begins after all that
 * there is now, and such a note is true of it too. */
static bool open_locked(ct_device_state *state, ct_stream_slot *slot, bool wraps, void *theirs) {
    const ct_backend *backend = state->backend;
    const int index = state->device.index;
    slot->open = true;
    slot->theirs = wraps;
    if (!backend->stream_new) return true;
    bool ok = wraps ? backend->stream_wrap(backend->self, index, theirs, &slot->stream.handle)
                    : backend->stream_new(backend->self, index, &slot->stream.handle);
    for (unsigned i = 0; ok && i < CT__STREAMS; i++)
        if (state->streams[i].open) ok = ct__stream_follow(state, slot->number, i);
    slot->open = ok;
    return ok;
}

static ct_stream *open_stream(ct_device device, bool wraps, void *theirs, const char *me) {
    if (!ct__device_ok(device, me)) return NULL;
    const ct_backend *backend = ct__backend(ct__resolved(device).type);
    if (wraps && backend->stream_new && !backend->stream_wrap) {
        ct_fail(CT_ERR_UNSUPPORTED, me, "%s has no streams of the program's own", backend->name);
        return NULL;
    }
    ct_device_state *state = ct__device_state(ct__resolved(device));
    if (!state) {
        ct__fail_memory(me, sizeof *state);
        return NULL;
    }
    pthread_mutex_lock(&state->lock);
    unsigned number = 1;
    while (number < CT__STREAMS && state->streams[number].open) number++;
    ct_stream_slot *slot = number < CT__STREAMS ? &state->streams[number] : NULL;
    const bool ok = slot && open_locked(state, slot, wraps, theirs);
    pthread_mutex_unlock(&state->lock);
    if (!slot) ct_fail(CT_ERR_STATE, me, "%s has %d streams already", ct_device_text(state->device), CT__STREAMS - 1);
    return ok ? &slot->stream : NULL;
}

ct_stream *ct_stream_new(ct_device device) { return open_stream(device, false, NULL, "stream_new"); }

ct_stream *ct_stream_wrap(ct_device device, void *handle) { return open_stream(device, true, handle, "stream_wrap"); }

void ct_stream_free(ct_stream *stream) {
    ct_stream_slot *slot = (ct_stream_slot *)(void *)stream;
    ct_device_state *state = stream ? ct__device_state(stream->device) : NULL;
    if (!state || !slot->open) return;
    const ct_backend *backend = state->backend;
    pthread_mutex_lock(&state->lock);
    if (backend->stream_new) {
        ct__stream_follow(state, 0, slot->number);
        if (slot->event) backend->event_free(backend->self, state->device.index, slot->event);
        if (!slot->theirs) backend->stream_free(backend->self, state->device.index, slot->stream.handle);
    }
    slot->event = NULL;
    slot->stream.handle = NULL;
    slot->open = false;
    pthread_mutex_unlock(&state->lock);
}

bool ct_stream_synchronize(ct_stream *stream) {
    const char *me = "stream_synchronize";
    if (!stream) return ct__fail_null(me, "stream");
    const ct_stream_slot *slot = (const ct_stream_slot *)(const void *)stream;
    if (!slot->open) return ct_fail(CT_ERR_STATE, me, "the stream has been freed");
    return ct__stream_wait(stream->device, stream);
}

bool ct_synchronize(ct_device device) {
    if (!ct__device_ok(device, "synchronize")) return false;
    ct_device_state *state = ct__device_state(ct__resolved(device));
    return state ? ct__device_wait(state) : ct__fail_memory("synchronize", sizeof *state);
}
