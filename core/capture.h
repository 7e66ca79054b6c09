/* Recording, as the rest of the core sees it: what is told to the capture of this thread, if there is one. */
#ifndef COTANGENT_CORE_CAPTURE_H
#define COTANGENT_CORE_CAPTURE_H

#include <cotangent/capture.h>

#include "core/call.h"

extern _Thread_local ct_graph *ct__capturing; /* NULL: nothing is recorded */

/* What cannot be recorded ends the recording, not the function, which goes on to its end: ct_capture then raises the error. So none of
 * these fails. */
/* Nothing more is recorded, and the function goes on: what it does is whole in any case. The error that is pending, if it was not there
 * before, waits for the end. */
void ct__capture_give_up(bool was_pending);
void ct__capture_call(const ct_call *call, const ct_request *r); /* after a kernel has run */
void ct__capture_made(ct_storage *storage);                      /* it is new */
bool ct__capture_let_go(ct_storage *storage);     /* gives up a reference to what is known; true: it was the last */
void ct__capture_drew(ct_rng *rng, ct_random at); /* a generator has given a position to an op */
void ct__capture_rng_freed(ct_rng *rng);          /* the program gives a generator up */
/* The lowering of a random op begins (1) and ends (-1): what it writes may be its position. */
void ct__capture_random_lowering(int change);
/* An op that has its random position as numbers runs by its lowering where a device is to do work as one, in which a position is data. */
bool ct__capture_lowers(const ct_op *op, ct_device device);
/* The host writes: data of bytes to offset, or a pattern over all of it. */
void ct__capture_put(ct_storage *storage, size_t offset, const void *data, size_t bytes);
void ct__capture_fill(ct_storage *storage, const void *pattern, size_t size);

#endif
