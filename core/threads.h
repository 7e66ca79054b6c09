/* Fork-join over fixed chunks. How sums are cut never depends on the number of threads: the same bits at any count. */
#ifndef COTANGENT_CORE_THREADS_H
#define COTANGENT_CORE_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* One chunk of the work; worker is below ct__threads(), and no two running tasks of one job share it. */
typedef void (*ct_task)(void *ctx, int64_t chunk, int worker);

/* Runs fn for every chunk and returns when all are done, on as many threads as pay: that is known from what chunks of fn took in earlier jobs of
 * as many chunks. Each thread, the caller's too, begins with a range of chunks that is its own in every such job, then helps with the others. An error raised on a worker is raised again
 * on the caller's thread. Nested calls, and calls while another thread uses the pool, run on the caller's thread alone. */
void ct__parallel(int64_t chunks, ct_task fn, void *ctx);
/* For a second pass over the same data: the chunk at this one's place from the end of the range that its thread begins with, which it then
 * goes through from the end, where what it read last is still in its cache. */
int64_t ct__mirrored(int64_t chunk, int64_t chunks);
int ct__threads(void); /* how many threads may work at once, the caller's included */
/* Up to so many threads work is best cut as for one, and read by all what one has written. Above it each keeps to data of its own: the caches of
 * many hold more than any job needs, and what many have read is slow to write again. How work is cut may hang on it, a sum never. */
enum { CT__FEW_THREADS = 4 };
/* From here on ct__threads() is this on this thread, so that scratch for each worker suffices whatever another thread sets; 0 lets
 * go. */
void ct__threads_hold(int threads);

/* The size of a chunk: normal, or less when CT_GRAIN (ct__set_grain) makes tests cut everything. */
int64_t ct__grain(int64_t normal);
void ct__set_grain(int64_t grain); /* 0: normal */

/* Another number whenever that changes on which the choice of a kernel and its scratch depend besides the call: the grain, the level of
 * instructions. */
extern _Atomic uint32_t ct__tuning;

#endif
