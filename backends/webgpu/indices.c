/* The host side of what kernels with an input of indices share: the look at them, and their stable order by a radix
 * sort. */
#include "backends/webgpu/indices.h"

enum { THREADS = 256, BLOCK = 1024, DIGITS = 256 };

void ct_wgpu_index_operand(ct_wgpu_launch *launch, const ct_view *index) {
    ct_wgpu_bits_operand(launch, "index", index, 4, CT_WGPU_QUADS_ONLY); /* it may lie among quads */
    ct_wgpu_constant(launch, "WIDE", index->dtype == CT_I64);
}

typedef struct look_params {
    uint32_t total, rank, bound, place;
    uint32_t dims[CT_WGPU_DIMS], strides[1][CT_WGPU_DIMS];
} look_params;

bool ct_wgpu_look(const ct_call *call, const ct_view *index, int64_t bound, int64_t place) {
    CT_WGPU_UNIT(backend_look);
    ct_wgpu_walk walk = ct_wgpu_walk_begin(1);
    for (int d = 0; d < index->ndim; d++)
        ct_wgpu_walk_add(&walk, index->dims[d], (const int64_t[]){index->strides[d] * ct_wgpu_index_words(index)});
    look_params p = {(uint32_t)walk.total, (uint32_t)walk.ndim, (uint32_t)bound, (uint32_t)place, {0}, {{0}}};
    ct_wgpu_walk_dims(&walk, p.dims);
    ct_wgpu_walk_strides(&walk, 0, p.strides[0]);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "look", THREADS);
    ct_wgpu_index_operand(&launch, index);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(walk.total, THREADS), &p, sizeof p);
}

/* ---- Order ---- */

typedef struct order_params {
    uint32_t n, blocks, shift, bits;
} order_params;

static size_t rounded(size_t bytes) { return (bytes + CT_WGPU_ALIGNMENT - 1) / CT_WGPU_ALIGNMENT * CT_WGPU_ALIGNMENT; }
static size_t array_bytes(int64_t n) { return rounded((size_t)n * sizeof(uint32_t)); }
static int64_t blocks_of(int64_t n) { return ct_wgpu_ceil_div(n, BLOCK); }

/* keys and places, twice; counts by digit and block; of each digit all of them. */
size_t ct_wgpu_order_bytes(int64_t n) {
    return 4 * array_bytes(n) + (n > BLOCK ? array_bytes(DIGITS * blocks_of(n)) + array_bytes(DIGITS) : 0);
}

ct_wgpu_ordered ct_wgpu_order_begin(int64_t n, int64_t most, size_t begin) {
    return (ct_wgpu_ordered){.n = n, .most = most, .keys = begin, .places = begin + array_bytes(n), .begin = begin};
}

bool ct_wgpu_order(const ct_call *call, ct_wgpu_ordered *o) {
    CT_WGPU_UNIT(backend_order);
    const size_t array = array_bytes(o->n), bytes = (size_t)o->n * sizeof(uint32_t);
    const size_t counts = o->begin + 4 * array, totals = counts + array_bytes(DIGITS * blocks_of(o->n));
    order_params p = {.n = (uint32_t)o->n, .blocks = (uint32_t)blocks_of(o->n)};
    int bits = 2; /* two at a time */
    while (bits < 32 && o->most >> bits) bits += 2;
    const bool single = o->n <= BLOCK;
    for (int shift = 0; shift < bits; shift += single ? bits : 8) {
        const size_t keys = o->keys == o->begin ? o->begin + 2 * array : o->begin, places = keys + array;
        p.shift = (uint32_t)shift;
        p.bits = (uint32_t)(single ? bits : 8);
        const char *const passes[] = {"count", "scan", "place"};
        for (int pass = single ? 2 : 0; pass < 3; pass++) {
            ct_wgpu_launch launch = ct_wgpu_begin(&unit, single ? "order" : passes[pass], THREADS);
            ct_wgpu_scratch(&launch, "keys", call, CT_I32, o->keys, bytes, 0);
            ct_wgpu_scratch(&launch, "places", call, CT_I32, o->places, bytes, 0);
            ct_wgpu_scratch(&launch, "to_keys", call, CT_I32, keys, bytes, CT_WGPU_WRITTEN);
            ct_wgpu_scratch(&launch, "to_places", call, CT_I32, places, bytes, CT_WGPU_WRITTEN);
            /* a single block has no use for them */
            ct_wgpu_scratch(&launch, "counts", call, CT_I32, single ? keys : counts,
                            single ? bytes : DIGITS * (size_t)p.blocks * sizeof(uint32_t), CT_WGPU_WRITTEN);
            ct_wgpu_scratch(&launch, "totals", call, CT_I32, single ? keys : totals,
                            single ? bytes : DIGITS * sizeof(uint32_t), CT_WGPU_WRITTEN);
            if (!ct_wgpu_enqueue(call, &launch, pass == 1 ? DIGITS : p.blocks, &p, sizeof p)) return false;
        }
        o->keys = keys, o->places = places;
    }
    return true;
}
