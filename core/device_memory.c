/* The memory of devices. A device's memory comes from its backend in large parts, which arenas (arena.h) divide; a part belongs
 * to a stream, and its free blocks may be used in the order of that stream at once, by others after an event. */
#include "core/device_memory.h"

#include <stdio.h>

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/sized.h"
#include "core/stream.h"

enum {
    SMALL = 0,
    LARGE = 1,
    SMALL_MOST = 256 << 10,  /* smaller blocks do not lie among larger ones, which they would keep from being joined */
    PART_UNIT = 2 << 20,     /* parts are multiples of it; those of small blocks are one */
    PART_MOST = 64 << 20,    /* unless one block is larger */
    LARGEST_STATS = 1 << 14, /* of any ct_memory to come: what is larger is no size */
};

static size_t granule_of(const ct_device_state *state) {
    return state->backend->alignment > 64 ? state->backend->alignment : 64;
}

static ct_arena *arena_of(ct_device_state *state, unsigned stream, int kind) {
    ct_arena **arena = &state->streams[stream].arenas[kind];
    if (!*arena && (*arena = ct__alloc(sizeof **arena)))
        **arena = (ct_arena){
            .books = &state->books, .stream = stream, .least = kind == LARGE ? SMALL_MOST : granule_of(state)};
    return *arena;
}

/* A part of the backend's, unless there are more of the library's than there may be. */
static bool part_new(ct_device_state *state, ct_arena *arena, size_t size) {
    const ct_backend *backend = state->backend;
    void *buffer = NULL;
    if (state->limit && state->reserved + (int64_t)size > state->limit) return false;
    if (!backend->allocate(backend->self, state->device.index, size, &buffer)) return false;
    if (!ct__arena_add(arena, buffer, size)) {
        backend->release(backend->self, state->device.index, buffer, size);
        return false;
    }
    state->reserved += (int64_t)size;
    state->from_host++;
    return true;
}

/* Parts of large blocks grow with what is in use, so that a small program stays small and a large one asks rarely. */
static size_t usual_part(const ct_device_state *state, int kind) {
    const size_t usual = ct__whole((size_t)state->reserved / 4, PART_UNIT);
    if (kind == SMALL || usual < PART_UNIT) return PART_UNIT;
    return usual > PART_MOST ? PART_MOST : usual;
}

/* A free block of another stream: one that was freed (all its work is in the order of the device's own), or of any. */
static ct_block *take_over(ct_device_state *state, unsigned stream, int kind, size_t size, bool of_open) {
    for (unsigned other = 0; other < CT__STREAMS; other++) {
        ct_arena *arena = state->streams[other].arenas[kind];
        if (other == stream || !arena || state->streams[other].open != of_open) continue;
        ct_block *block = ct__arena_take(arena, size);
        if (!block) continue;
        if (ct__stream_follow(state, stream, other)) return block;
        ct__arena_give(block);
    }
    return NULL;
}

static void trim_locked(ct_device_state *state) {
    const ct_backend *backend = state->backend;
    void *buffer;
    size_t size;
    for (unsigned i = 0; i < CT__STREAMS; i++) {
        for (int kind = 0; kind < CT__ARENAS; kind++) {
            ct_arena *arena = state->streams[i].arenas[kind];
            for (int bin = 0; arena && ct__arena_remove(arena, &bin, &buffer, &size);) {
                backend->release(backend->self, state->device.index, buffer, size);
                state->reserved -= (int64_t)size;
            }
        }
    }
    ct__pinned_trim_locked(state);
}

static ct_block *take_locked(ct_device_state *state, unsigned stream, size_t size) {
    const int kind = size <= SMALL_MOST ? SMALL : LARGE;
    ct_arena *arena = arena_of(state, stream, kind);
    if (!arena) return NULL;
    ct_block *block = ct__arena_take(arena, size);
    if (!block) block = take_over(state, stream, kind, size, false);
    const size_t usual = usual_part(state, kind), least = ct__whole(size, PART_UNIT);
    if (!block && part_new(state, arena, least > usual ? least : usual)) block = ct__arena_take(arena, size);
    /* Memory is short: what other streams have left over, else what lies unused goes back once nobody works on it. */
    if (!block) block = take_over(state, stream, kind, size, true);
    if (!block) {
        ct__device_wait(state); /* what went wrong in that work is raised, and is no reason to give up */
        trim_locked(state);
        if (part_new(state, arena, least)) block = ct__arena_take(arena, size);
    }
    return block;
}

ct_block *ct__device_take(ct_device device, const ct_stream *stream, size_t bytes) {
    ct_device_state *state = ct__device_state(device);
    if (!state || bytes > SIZE_MAX / 4) return NULL;
    const unsigned number = ct__stream_number(stream);
    const size_t granule = granule_of(state);
    pthread_mutex_lock(&state->lock);
    state->requests++;
    ct_block *block = take_locked(state, number, ct__whole(bytes ? bytes : 1, granule));
    if (block) {
        block->bytes = bytes;
        atomic_store_explicit(&block->users, (uint64_t)1 << number, memory_order_relaxed);
        atomic_store_explicit(&block->writer, number, memory_order_relaxed);
        state->in_use += (int64_t)bytes;
        if (state->in_use > state->peak) state->peak = state->in_use;
    }
    pthread_mutex_unlock(&state->lock);
    return block;
}

void ct__device_give(ct_device device, ct_block *block) {
    ct_device_state *state = ct__device_state(device);
    const ct_backend *backend = state->backend;
    pthread_mutex_lock(&state->lock);
    const unsigned owner = block->arena->stream, own = state->streams[owner].open ? owner : 0;
    uint64_t others = atomic_load_explicit(&block->users, memory_order_relaxed) & ~((uint64_t)1 << own);
    for (; others; others &= others - 1) ct__stream_follow(state, own, (unsigned)__builtin_ctzll(others));
    if (backend->discard)
        backend->discard(backend->self, state->device.index, block->buffer, block->offset, block->size,
                         own ? &state->streams[own].stream : NULL);
    state->in_use -= (int64_t)block->bytes;
    ct__arena_give(block);
    pthread_mutex_unlock(&state->lock);
}

bool ct__fail_device_memory(const char *op, ct_device device, size_t bytes) {
    const ct_device_state *state = device.type == CT_CPU ? NULL : ct__device_state(device);
    ct_memory has = {.size = sizeof has};
    if (!state || !ct_memory_stats(device, &has)) return ct__fail_memory(op, bytes);
    char limit[64] = "";
    if (has.limit) snprintf(limit, sizeof limit, ", which may take %lld (ct_set_memory_limit)", (long long)has.limit);
    if (ct__errors.called) op = NULL; /* as in ct__fail_memory */
    return ct_fail(CT_ERR_MEMORY, op,
                   "out of memory: %zu bytes could not be had on %s; %lld are in use there, and %lld taken by this "
                   "process%s",
                   bytes, ct_device_text(device), (long long)has.in_use, (long long)has.reserved, limit);
}

bool ct__scratch_take(ct_device device, const ct_stream *stream, size_t bytes, ct_memory_part *part, ct_block **block) {
    *block = NULL;
    part->bytes = bytes;
    part->offset = 0;
    if (device.type == CT_CPU) return (part->buffer = ct__alloc(bytes)) != NULL;
    *block = ct__device_take(device, stream, bytes);
    if (!*block) return false;
    part->buffer = (*block)->buffer;
    part->offset = (*block)->offset;
    return true;
}

void ct__scratch_give(ct_device device, const ct_memory_part *part, ct_block *block) {
    if (block) ct__device_give(device, block);
    else ct__free(part->buffer, part->bytes);
}

/* ---- Public ---- */

/* The state of a device that is there, in *state (NULL: it is the CPU); else an error. */
static bool state_for(ct_device device, const char *op, ct_device_state **state) {
    if (!ct__device_ok(device, op)) return false;
    device = ct__resolved(device);
    *state = NULL;
    if (device.type == CT_CPU) return true;
    *state = ct__device_state(device);
    return *state || ct__fail_memory(op, sizeof **state);
}

bool ct_memory_stats(ct_device device, ct_memory *stats) {
    const char *me = "memory_stats";
    ct_device_state *state;
    if (!stats) return ct__fail_null(me, "stats");
    const size_t size = stats->size;
    if (size < sizeof size || size > LARGEST_STATS)
        return ct_fail(CT_ERR_VALUE, me, "stats->size is %zu; it has to be sizeof(ct_memory)", size);
    if (!state_for(device, me, &state)) return false;
    ct_memory all = {.size = sizeof all};
    if (!state) {
        ct__host_memory_stats(&all);
    } else {
        pthread_mutex_lock(&state->lock);
        all.in_use = state->in_use;
        all.peak = state->peak;
        all.reserved = state->reserved;
        all.requests = state->requests;
        all.from_host = state->from_host;
        all.limit = state->limit;
        pthread_mutex_unlock(&state->lock);
    }
    ct__sized_fill(stats, size, &all, sizeof all); /* of an older caller, as far as its struct goes */
    stats->size = size;
    return true;
}

bool ct_memory_reset_peak(ct_device device) {
    ct_device_state *state;
    if (!state_for(device, "memory_reset_peak", &state)) return false;
    if (!state) {
        ct__host_memory_reset_peak();
        return true;
    }
    pthread_mutex_lock(&state->lock);
    state->peak = state->in_use;
    pthread_mutex_unlock(&state->lock);
    return true;
}

bool ct_memory_trim(ct_device device) {
    ct_device_state *state;
    if (!state_for(device, "memory_trim", &state)) return false;
    if (!state) {
        ct__host_memory_trim();
        return true;
    }
    pthread_mutex_lock(&state->lock);
    const bool ok = ct__device_wait(state);
    trim_locked(state);
    pthread_mutex_unlock(&state->lock);
    return ok;
}

bool ct_set_memory_limit(ct_device device, int64_t bytes) {
    ct_device_state *state;
    if (bytes < 0) return ct_fail(CT_ERR_VALUE, "set_memory_limit", "%lld bytes cannot be had", (long long)bytes);
    if (!state_for(device, "set_memory_limit", &state)) return false;
    if (!state) {
        ct__host_memory_limit(bytes);
        return true;
    }
    pthread_mutex_lock(&state->lock);
    state->limit = bytes;
    pthread_mutex_unlock(&state->lock);
    return true;
}
