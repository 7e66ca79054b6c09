/* CT_LOG=replay: how long each record of a graph takes, told when the graph is freed. Of all replays the least time counts.
 *
 * On the CPU: with one thread that of the processor where it is less than that of the clock, since other work on the machine disturbs it least.
 *
 * On a device whose backend has timed events: the device's own. Events stand between the records and are recorded with them, so that the device does all
 * of it as one, in order, and never waits for the host in between. What an event itself takes, the least time between two that have
 * nothing between them, is left out. The host waits for the device after each replay, and reads the events. What the device cannot do as one has
 * events around it too; there, the time that it waits for the host counts.
 *
 * On other devices: the time to enqueue. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/log.h"
#include "core/passes/passes.h"
#include "core/stream.h"
#include "core/threads.h"

typedef struct record_time {
    double least;                      /* nanoseconds; negative: it has not been run by itself */
    ct_event *marks[CT__REPLAY_MARKS]; /* on a device; NULL: there is none at this place */
} record_time;

typedef struct ct_replay_times {
    size_t bytes;
    int64_t replays;
    uint64_t clock, processor; /* when the records that are being done began */
    bool now;                  /* this replay is timed */
    bool enqueued;             /* of some records, the time to enqueue */
    bool marked;               /* of some, the time on a device */
    double gap;                /* between two marks with nothing between them, the least; negative: it is not known */
    record_time records[];
} ct_replay_times;

static ct_replay_times *times_new(int records) {
    const size_t bytes = sizeof(ct_replay_times) + (size_t)records * sizeof(record_time);
    ct_replay_times *made = ct__alloc(bytes);
    if (!made) return NULL; /* a log is no reason to fail */
    memset(made, 0, bytes);
    made->bytes = bytes;
    made->gap = -1;
    for (int i = 0; i < records; i++) made->records[i].least = -1;
    return made;
}

bool ct__replay_is_timed(ct_graph *g) {
    const bool wanted = ct__log_on(CT__LOG_REPLAY);
    if (wanted && !g->times) g->times = times_new(g->n_records);
    if (!g->times) return false;
    if (g->times->now != wanted) ct__graph_forget(g); /* recordings have marks, or have none */
    g->times->now = wanted;
    g->times->replays += wanted;
    return wanted;
}

/* ---- By the clock ---- */

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

static void keep_least(double *least, double took) {
    if (*least < 0 || took < *least) *least = took;
}

void ct__replay_time_end(ct_graph *g, int first, int last) {
    uint64_t took = ct__log_now() - g->times->clock;
    const uint64_t busy = processor_now() - g->times->processor;
    record_time *records = g->times->records;
    if (records[first].marks[CT__MARK_BEHIND]) return; /* the device tells */
    if (ct__record_device(g, &g->records[first]).type != CT_CPU) g->times->enqueued = true;
    if (ct__threads() == 1 && busy < took) took = busy;
    keep_least(&records[first].least, (double)took);
    for (int i = first + 1; i <= last; i++) records[i].least = 0; /* it was done along with the first */
}

/* ---- By the device ---- */

static bool tells_times(const ct_backend *b) { return b->timed_new && b->timed_record && b->timed_elapsed; }

bool ct__replay_is_marked(const ct_graph *g, ct_device device) {
    return g->times && g->times->now && tells_times(ct__backend(device.type));
}

bool ct__replay_mark(ct_graph *g, int i, ct_replay_mark place) {
    const ct_device device = ct__record_device(g, &g->records[i]);
    if (!ct__replay_is_marked(g, device)) return true;
    const ct_backend *backend = ct__backend(device.type);
    ct_event **mark = &g->times->records[i].marks[place];
    if (!*mark) *mark = backend->timed_new(backend->self, device.index);
    return *mark && backend->timed_record(backend->self, device.index, *mark, ct__stream_now(device));
}

/* From one mark to another, if both are there. */
static bool read_marks(ct_device device, ct_event *from, ct_event *to, double *least) {
    const ct_backend *backend = ct__backend(device.type);
    double took = 0;
    if (!from || !to) return true;
    if (!backend->timed_elapsed(backend->self, device.index, from, to, &took)) return false;
    keep_least(least, took > 0 ? took : 0);
    return true;
}

bool ct__replay_times_read(ct_graph *g) {
    ct_event *before = NULL; /* what lies between a record and the one before it */
    bool ok = true;
    for (int i = 0; ok && i < g->n_records; i++) {
        record_time *t = &g->times->records[i];
        const ct_device device = ct__record_device(g, &g->records[i]);
        if (!t->marks[CT__MARK_BEHIND]) continue;
        if (t->marks[CT__MARK_BEFORE]) {
            before = t->marks[CT__MARK_BEFORE];
            ok = ct_synchronize(device);
        }
        ok = ok && read_marks(device, before, t->marks[CT__MARK_BEHIND], &t->least) &&
             read_marks(device, t->marks[CT__MARK_BEHIND], t->marks[CT__MARK_AGAIN], &g->times->gap);
        before = t->marks[CT__MARK_BEHIND];
        g->times->marked = true;
    }
    return ok;
}

/* ---- The log ---- */

static double microseconds(const ct_replay_times *times, int i) {
    const record_time *t = &times->records[i];
    const double took = t->marks[CT__MARK_BEHIND] && times->gap > 0 ? t->least - times->gap : t->least;
    return took > 0 ? took / 1e3 : 0;
}

static void log_all(const ct_replay_times *times, double all) {
    char text[256], gap[64] = "";
    if (times->marked) snprintf(gap, sizeof gap, "; on the device, without the %.1f us of each mark", times->gap / 1e3);
    snprintf(text, sizeof text, "replay: %lld replays; the least time of each record, %.1f us in all%s%s",
             (long long)times->replays, all, gap,
             times->enqueued ? "; of what a device does that tells no times, the time to enqueue" : "");
    ct__log_put(text);
}

static void free_marks(ct_graph *g) {
    for (int i = 0; i < g->n_records; i++)
        for (int k = 0; k < CT__REPLAY_MARKS; k++) {
            ct_event *mark = g->times->records[i].marks[k];
            const ct_device device = ct__record_device(g, &g->records[i]);
            const ct_backend *backend = ct__backend(device.type);
            if (mark) backend->event_free(backend->self, device.index, mark);
        }
}

void ct__replay_times_log(ct_graph *g) {
    ct_replay_times *times = g->times;
    if (!times) return;
    char text[64];
    double all = 0;
    for (int i = 0; i < g->n_records; i++) all += microseconds(times, i);
    log_all(times, all);
    for (int i = 0; i < g->n_records; i++) {
        const double took = microseconds(times, i);
        snprintf(text, sizeof text, "%10.1f us %5.1f %% ", took, all > 0 ? 100 * took / all : 0);
        ct__record_log(g, i, text);
    }
    ct__graph_forget(g); /* recordings that the marks are part of */
    free_marks(g);
    ct__free(times, times->bytes);
    g->times = NULL;
}
