/* What the chunks of jobs took, remembered from one run to the next: from it the pool knows how many threads a job pays for, on any machine and
 * for any op, without a figure of its own at each place that makes a job. Bits never depend on it. */
#ifndef COTANGENT_CORE_COSTS_H
#define COTANGENT_CORE_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/threads.h"

int64_t ct__nanoseconds(void); /* of a clock that only goes forward */

/* Nanoseconds of a chunk of fn in a job of so many chunks, as remembered; what chunks are cut for when there is no memory of it. */
int64_t ct__cost_of_chunk(ct_task fn, int64_t chunks);
void ct__cost_remember(ct_task fn, int64_t chunks, int64_t nanoseconds);

/* Where the same can be done in a plain way and in one that shares more, what both took decides which way the next one goes: small jobs stay
 * on the caller's thread or not, large ones are cut so that threads have less of each other's. What it costs
 * to bring data to other caches and back depends on who had it before, and on how far apart these are; no count of chunks tells. The way that
 * takes longer is tried again now and then, some times in a row, since the first finds the data where the other has left it. Jobs are told
 * apart by their size, too: one function may have large and small ones of as many chunks. */
typedef struct ct_weighed {
    ct_task fn;
    int64_t chunks, size; /* what grows with the work */
} ct_weighed;

bool ct__cost_is_less_plain(const ct_weighed *job);
/* time: in nanoseconds, or any unit that serves both ways; from some 16 million on all are the same. */
void ct__cost_weigh(const ct_weighed *job, bool plain, int64_t time);

#endif
