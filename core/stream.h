/* Streams: in what order a device's work may run. The CPU has no streams, and nothing here is called for it.
 *
 * A stream has a number below CT__STREAMS on its device; 0 is the device's own, which is NULL everywhere else. A block of memory
 * knows the stream that wrote it last and the streams that have used it since (ct_block.writer, users). A stream that uses it for the
 * first time since waits for the writer, by event; one that writes it waits for every user; and its memory is handed out
 * again in the order of the stream it belongs to, which has waited for every user. */
#ifndef COTANGENT_CORE_STREAM_H
#define COTANGENT_CORE_STREAM_H

#include <pthread.h>

#include "core/arena.h"
#include "core/error.h"
#include "core/tensor.h"

enum { CT__STREAMS = 64, CT__ARENAS = 2 }; /* of a stream one arena for small blocks, one for large ones */

typedef struct ct_stream_slot {
    ct_stream stream; /* what the program and the backend get a pointer to; first */
    unsigned number;
    _Atomic bool open;
    bool theirs;                  /* the program's own: it is not ours to free */
    ct_event *event;              /* recorded anew whenever another stream has to wait for this one */
    ct_arena *arenas[CT__ARENAS]; /* NULL until they are needed */
} ct_stream_slot;

/* What the core keeps for one device. */
typedef struct ct_device_state {
    pthread_mutex_t lock; /* of all below */
    const ct_backend *backend;
    ct_device device;
    ct_books books;
    ct_stream_slot streams[CT__STREAMS]; /* 0 is always open; slots are never freed, so a stale pointer does no harm */
    _Atomic unsigned errors;             /* found in its work so far, */
    ct_error_record last_error;          /* and the last of them */
    int64_t in_use, peak, reserved, requests, from_host, limit;
    ct_arena *pinned; /* of the host's memory that it copies from and to directly; NULL until it is needed */
} ct_device_state;

ct_device_state *ct__device_state(ct_device device); /* of one that is there; NULL: out of memory, or after an error */

/* The stream of this thread's work on a device; NULL: the device's own. */
ct_stream *ct__stream_now(ct_device device);
static inline unsigned ct__stream_number(const ct_stream *stream) {
    return stream ? ((const ct_stream_slot *)(const void *)stream)->number : 0;
}

/* Before work is enqueued on stream that reads (or writes) the storage: waits, on the device, for what has to come first. */
bool ct__stream_use(const ct_storage *storage, const ct_stream *stream, bool writes);
/* The same for every tensor of a call, on the stream of this thread, which becomes the call's: those of out are written, and
 * what its op changes among those of in. */
bool ct__stream_enter(ct_call *call, ct_tensor *const *in, ct_tensor *const *out);
/* What is enqueued on `waiter` from now on runs after all that `of` has now. The device's lock is held. */
bool ct__stream_follow(ct_device_state *state, unsigned waiter, unsigned of);
/* Waits for all work of a device, on every stream. */
bool ct__device_wait(ct_device_state *state);
/* Until the work of a stream is done; what went wrong in it is raised, and names the op it went wrong in, not the one that waits. */
bool ct__stream_wait(ct_device device, ct_stream *stream);
bool ct__stream_download(const ct_storage *storage, size_t offset, void *data, size_t bytes); /* waits as well */

#endif
