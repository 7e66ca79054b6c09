/* The memory of what chunks took: a table of the jobs seen last, by function and number of chunks. */
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

void ct__cost_remember(ct_task fn, int64_t chunks, int64_t nanoseconds) {
    const uint64_t key = key_of(fn, chunks);
    const uint64_t entry = atomic_load_explicit(&entries[key % ENTRIES], memory_order_relaxed);
    int64_t cost = nanoseconds < 1 ? 1 : nanoseconds > MOST_COST ? MOST_COST : nanoseconds;
    if (entry >> 32 == key >> 32) { /* one slow run in between is not the rule */
        const int64_t before = (int64_t)(entry & 0xffffffffu), most = 4 * before;
        cost = (3 * before + (cost < most ? cost : most) + 3) / 4;
    }
    atomic_store_explicit(&entries[key % ENTRIES], (key & ~(uint64_t)0xffffffffu) | (uint64_t)cost,
                          memory_order_relaxed);
}
