/* Generators: a seed, a stream, and a counter of calls. The default one is shared by the process. */
#include "core/rng.h"

#include <stdatomic.h>

#include "core/alloc.h"
#include "core/capture.h"
#include "core/error.h"

struct ct_rng {
    uint64_t seed, stream;
    _Atomic uint64_t calls;
    _Atomic int refs; /* the program's, and one for each graph that draws from it */
};

static struct {
    _Atomic uint64_t seed;
    _Atomic uint64_t calls;
} process = {.seed = 0x5EED};

ct_random ct__rng_draw(ct_rng *rng) { return ct__rng_take(rng, 1); }

ct_random ct__rng_take(ct_rng *rng, uint64_t n) {
    if (rng) return (ct_random){rng->seed, rng->stream, atomic_fetch_add(&rng->calls, n)};
    return (ct_random){atomic_load(&process.seed), 0, atomic_fetch_add(&process.calls, n)};
}

bool ct_seed(uint64_t seed) {
    ct_capture_refuse("seed", "the seed of the random numbers", NULL);
    atomic_store(&process.seed, seed);
    atomic_store(&process.calls, 0);
    return true;
}

uint64_t ct_get_seed(void) { return atomic_load(&process.seed); }

ct_rng *ct_rng_new(uint64_t seed, uint64_t stream) {
    ct_rng *rng = ct__alloc(sizeof *rng);
    if (!rng) {
        ct__fail_memory("rng_new", sizeof *rng);
        return NULL;
    }
    rng->seed = seed;
    rng->stream = stream;
    atomic_init(&rng->calls, 0);
    atomic_init(&rng->refs, 1);
    return rng;
}

void ct__rng_retain(ct_rng *rng) {
    if (rng) atomic_fetch_add(&rng->refs, 1);
}

void ct__rng_release(ct_rng *rng) {
    if (rng && atomic_fetch_sub(&rng->refs, 1) == 1) ct__free(rng, sizeof *rng);
}

void ct_rng_free(ct_rng *rng) {
    ct__capture_rng_freed(rng);
    ct__rng_release(rng);
}

uint64_t ct_rng_position(const ct_rng *rng) {
    return rng ? atomic_load(&((ct_rng *)rng)->calls) : atomic_load(&process.calls);
}

bool ct_rng_set_position(ct_rng *rng, uint64_t position) {
    if (ct__pending()) return false;
    ct_capture_refuse("rng_set_position", "a position in the random numbers", NULL);
    atomic_store(rng ? &rng->calls : &process.calls, position);
    return true;
}
