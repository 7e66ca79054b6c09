/* The guarded device's parts: its memory and kernels (guard.c), and how work is held back (queue.c). */
#ifndef COTANGENT_TESTS_GUARD_H
#define COTANGENT_TESTS_GUARD_H

#include <cotangent/backend.h>

extern const ct_host *guard_host;

/* The address at which kernels find what the core knows under this one. */
void *guard_inside(const void *buffer);

/* A call with all that it may point at, in one block; its views and scratch are translated. */
typedef struct guard_call {
    ct_call call;
    size_t bytes;                                           /* of the block */
    bool kept;                                              /* it is part of a recording, and run more than once */
    _Alignas(16) unsigned char numbers[8][CT_NUMBER_BYTES]; /* of elementwise ops, which have few inputs */
} guard_call;
guard_call *guard_call_copy(const ct_call *call, const ct_kernel *kernel); /* NULL after an error */
void guard_call_free(guard_call *call);

/* ---- Queues ---- */

/* CT_GUARD_QUEUE=1: work runs only when a wait needs it. 2: the same, but the work of other streams runs first. */
bool guard_queued(void);
void guard_queue_lock(bool lock); /* around a fork */

/* Each takes its arguments' content with it, and runs at once unless work is queued. */
bool guard_enqueue_call(guard_call *call, ct_stream *stream); /* takes the call over */
bool guard_enqueue_write(void *to, const void *bytes, size_t size, size_t count,
                         ct_stream *stream); /* host's bytes, repeated */
bool guard_enqueue_copy(void *to, const void *from, size_t bytes, ct_stream *stream);
bool guard_run(ct_stream *stream); /* all that is on the stream now; false after an error of its */
/* Whether work that is still queued reads or writes there. */
bool guard_in_use(const void *inside, size_t bytes);

/* Work as one, in record.c: that of a thread that records goes there. */
bool guard_is_recording(void);
bool guard_record_call(guard_call *call); /* takes the call over */
bool guard_record_copy(void *to, const void *from, size_t bytes);
bool guard_record_fill(void *to, const void *pattern, size_t size, size_t count);
bool guard_record_begin(void *self, int device, ct_stream *stream);
bool guard_record_end(void *self, int device, ct_stream *stream, void **handle);
bool guard_record_launch(void *self, int device, void *handle, ct_stream *stream);
void guard_record_free(void *self, int device, void *handle);
bool guard_record_from(void *self, int device, ct_stream *stream, const int *parts, int n);
void *guard_record_either(void *self, int device, void *in_order, void *by_parts);

bool guard_stream_new(void *self, int device, void **handle);
bool guard_stream_wrap(void *self, int device, void *theirs, void **handle); /* the handle of another stream of its */
void guard_stream_free(void *self, int device, void *handle);
ct_event *guard_event_new(void *self, int device);
void guard_event_free(void *self, int device, ct_event *event);
bool guard_event_record(void *self, int device, ct_event *event, ct_stream *stream);
bool guard_event_wait(void *self, int device, ct_event *event, ct_stream *stream);

#endif
