/* CT_LOG=replay: how long each record of a graph takes, told when the graph is freed. Of all replays the least time counts, and
 * with one thread that of the processor where it is less than that of the clock: other work on the machine disturbs these least. What a device does behind the host's back is not in it: there it is the time to enqueue. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/graph.h"
#include "core/log.h"
#include "core/passes/passes.h"
#include "core/threads.h"

typedef struct ct_replay_times {
    size_t bytes;
    int64_t replays;
    uint64_t clock, processor; /* when the records that are being done began */
    uint64_t least[];          /* nanoseconds of each record; UINT64_MAX: it has not been run by itself */
} ct_replay_times;

bool ct__replay_is_timed(ct_graph *g) {
    if (!g->times) {
        const size_t bytes = sizeof(ct_replay_times) + (size_t)g->n_records * sizeof(uint64_t);
        g->times = ct__alloc(bytes);
        if (!g->times) return false; /* a log is no reason to fail */
        memset(g->times, 0xff, bytes);
        g->times->bytes = bytes;
        g->times->replays = 0;
    }
    g->times->replays++;
    return true;
}

/* Of this process, which stands still while others run. */
static uint64_t processor_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void ct__replay_time_begin(ct_graph *g) {
    g->times->processor = processor_now();
    g->times->clock = ct__log_now(); /* the finer one, and the cheaper to read, is read last and first */
}

void ct__replay_time_end(ct_graph *g, int first, int last) {
    uint64_t took = ct__log_now() - g->times->clock, *least = &g->times->least[first];
    const uint64_t busy = processor_now() - g->times->processor;
    if (ct__threads() == 1 && busy < took) took = busy;
    if (took < *least) *least = took;
    for (int i = first + 1; i <= last; i++) g->times->least[i] = 0; /* it was done along with the first */
}

void ct__replay_times_log(ct_graph *g) {
    ct_replay_times *times = g->times;
    if (!times) return;
    char text[160];
    double all = 0;
    for (int i = 0; i < g->n_records; i++) all += times->least[i] == UINT64_MAX ? 0 : (double)times->least[i];
    snprintf(text, sizeof text, "replay: %lld replays; the least time of each record, %.1f us in all",
             (long long)times->replays, all / 1e3);
    ct__log_put(text);
    for (int i = 0; i < g->n_records; i++) {
        const double took = times->least[i] == UINT64_MAX ? 0 : (double)times->least[i];
        snprintf(text, sizeof text, "%10.1f us %5.1f %% ", took / 1e3, all > 0 ? 100 * took / all : 0);
        ct__record_log(g, i, text);
    }
    ct__free(times, times->bytes);
    g->times = NULL;
}
