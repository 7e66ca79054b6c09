/* The memory of what chunks and small jobs took: tables of the jobs seen last, by function and number of chunks. */
#include "core/costs.h"

#include <stdatomic.h>
#include <time.h>

enum {
    ENTRIES = 1024,        /* a power of two */
    USUAL_COST = 10000,    /* what ops cut their chunks for */
    MOST_COST = 1000000000 /* more is a thread that was not running */
};

/* The upper half tells whose entry it is, the lower one is the cost: both in one word, so that no lock is needed. A job that has lost its
 * entry to another is taken as new. */
static _Atomic uint64_t entries[ENTRIES];

int64_t ct__nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t key_of(ct_task fn, int64_t chunks) {
    const uint64_t key = ((uint64_t)(uintptr_t)fn ^ (uint64_t)chunks * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return key ^ key >> 32;
}

int64_t ct__cost_of_chunk(ct_task fn, int64_t chunks) {
    const uint64_t key = key_of(fn, chunks);
    const uint64_t entry = atomic_load_explicit(&entries[key % ENTRIES], memory_order_relaxed);
    return entry >> 32 == key >> 32 ? (int64_t)(entry & 0xffffffffu) : USUAL_COST;
}

/* A running mean of what is remembered, 0 for nothing, in which one slow run in between is not the rule. */
static int64_t remembered(int64_t before, int64_t now) {
    const int64_t cost = now < 1 ? 1 : now > MOST_COST ? MOST_COST : now, most = 4 * before;
    return before ? (3 * before + (cost < most ? cost : most) + 3) / 4 : cost;
}

void ct__cost_remember(ct_task fn, int64_t chunks, int64_t nanoseconds) {
    const uint64_t key = key_of(fn, chunks);
    const uint64_t entry = atomic_load_explicit(&entries[key % ENTRIES], memory_order_relaxed);
    const int64_t cost = remembered(entry >> 32 == key >> 32 ? (int64_t)(entry & 0xffffffffu) : 0, nanoseconds);
    atomic_store_explicit(&entries[key % ENTRIES], (key & ~(uint64_t)0xffffffffu) | (uint64_t)cost,
                          memory_order_relaxed);
}

/* What a weighed job took in the plain way and shared, in steps, how often it was weighed, and whose it is: in one word as well. */
enum {
    STEP = 16,
    TIME_BITS = 20,
    TIMES_BITS = 12,
    TIMES_SHIFT = 2 * TIME_BITS,
    OWNER_SHIFT = TIMES_SHIFT + TIMES_BITS
};
enum { IN_A_ROW = 4, TRIED_EVERY = 1 << (TIMES_BITS - 2) }; /* times */
enum { MARGIN = 8 }; /* shared, times vary more: it has to save an eighth of what it takes so */

typedef struct weights {
    int64_t shared, plain; /* 0: not known */
    int64_t times;
} weights;

static _Atomic uint64_t weighed[ENTRIES];

static uint64_t key_of_weighed(const ct_weighed *job) {
    const int magnitude = job->size > 0 ? 63 - __builtin_clzll((unsigned long long)job->size) : 0;
    return key_of(job->fn, job->chunks * 64 + magnitude);
}

static weights weights_of(uint64_t key) {
    const uint64_t entry = atomic_load_explicit(&weighed[key % ENTRIES], memory_order_relaxed);
    const uint64_t mask = (1u << TIME_BITS) - 1;
    if (entry >> OWNER_SHIFT != key >> OWNER_SHIFT) return (weights){0, 0, 0};
    return (weights){(int64_t)(entry & mask), (int64_t)(entry >> TIME_BITS & mask),
                     (int64_t)(entry >> TIMES_SHIFT & ((1 << TIMES_BITS) - 1))};
}

/* After 32, 128 and 512 times, and then again and again. */
static bool is_tried_again(int64_t times) {
    const int64_t in = times % TRIED_EVERY;
    for (int64_t at = times < TRIED_EVERY ? 32 : TRIED_EVERY / 2; at < TRIED_EVERY; at *= 4)
        if (in >= at && in < at + IN_A_ROW) return true;
    return false;
}

bool ct__cost_is_less_plain(const ct_weighed *job) {
    const weights w = weights_of(key_of_weighed(job));
    if (w.times < IN_A_ROW || !w.shared) return false;
    if (w.times < 2 * IN_A_ROW || !w.plain) return true;
    return (w.plain <= w.shared + w.shared / MARGIN) != is_tried_again(w.times);
}

/* What it usually takes: each time a step towards what it took now, so that neither one that was interrupted nor one that was lucky counts for
 * much; of the first times the least, since code and threads were cold. */
static int64_t usual(int64_t before, int64_t now, bool first) {
    const int64_t most = (1 << TIME_BITS) - 1, time = now / STEP < 1 ? 1 : now / STEP < most ? now / STEP : most;
    if (!before) return time;
    if (first) return time < before ? time : before;
    const int64_t reach = before / 4 + 1, step = time - before;
    const int64_t next = before + (step > reach ? reach : step < -reach ? -reach : step);
    return next < 1 ? 1 : next < most ? next : most;
}

void ct__cost_weigh(const ct_weighed *job, bool plain, int64_t time) {
    const uint64_t key = key_of_weighed(job);
    weights w = weights_of(key);
    int64_t *way = plain ? &w.plain : &w.shared;
    *way = usual(*way, time, w.times < 2 * IN_A_ROW);
    if (++w.times == 2 * TRIED_EVERY) w.times = TRIED_EVERY;
    atomic_store_explicit(&weighed[key % ENTRIES],
                          key >> OWNER_SHIFT << OWNER_SHIFT | (uint64_t)w.times << TIMES_SHIFT |
                              (uint64_t)w.plain << TIME_BITS | (uint64_t)w.shared,
                          memory_order_relaxed);
}
