/* The loop of the kernels that scatter along one axis. Elements of index that differ in any other coordinate go to
 * different places, so those coordinates (the lanes) are shared out among the threads, and along the axis every lane
 * is worked off in order: the same result at any number of threads. Included by kernel files. */
#ifndef COTANGENT_OPS_INDEX_LANES_H
#define COTANGENT_OPS_INDEX_LANES_H

#include <stdatomic.h>
#include <string.h>

#include "ops/index/cpu/walk.h"

/* A block: n_axis by n_lanes elements of index and src, and the places they go to; strides in elements. A block
 * function returns -1, or a * n_lanes + lane of the first index that is out of range. */
typedef struct lane_block {
    char *dst;
    const char *src;
    const void *index;
    int64_t along, dst_lane;        /* strides in dst: of the axis, of a lane */
    int64_t src_axis, src_lane;     /* in src */
    int64_t index_axis, index_lane; /* in index */
    int64_t n_axis, n_lanes, bound;
} lane_block;

typedef int64_t (*block_fn)(const lane_block *s);

/* The two loops of a block: lanes go inside when they lie closer together than the axis. */
typedef struct block_loops {
    bool lanes_inside;
    int64_t outer, inner;                                          /* how often */
    int64_t index_out, index_in, src_out, src_in, dst_out, dst_in; /* steps */
} block_loops;

static inline block_loops block_loops_of(const lane_block *s) {
    const bool lanes = s->n_lanes > 1 && (s->n_axis == 1 || s->index_lane <= s->index_axis);
    if (lanes)
        return (block_loops){true,        s->n_axis,   s->n_lanes, s->index_axis, s->index_lane,
                             s->src_axis, s->src_lane, 0,          s->dst_lane};
    return (block_loops){false,       s->n_lanes,  s->n_axis, s->index_lane, s->index_axis, s->src_lane,
                         s->src_axis, s->dst_lane, 0};
}

/* Whether what the inner loop goes over lies side by side, in a row of its own. */
static inline bool block_is_rows(const lane_block *s, const block_loops *l) {
    return s->along == 1 && l->index_in == 1 && l->src_in == 1 && l->dst_in == 0;
}

/* Defines a block function: BODY sees `T *to`, `const S *from`. FIRST says how many of an inner loop are done already: FROM_START, or
 * BEHIND_ROW, which has ROW_FN's loop without steps go over a row, up to an index that is out of range. */
#define BLOCK_FN(name, T, S, I, FIRST, BODY)                                                    \
    static int64_t name(const lane_block *s) {                                                  \
        const block_loops l = block_loops_of(s);                                                \
        for (int64_t o = 0; o < l.outer; o++)                                                   \
            for (int64_t i = FIRST(name, T, S, I); i < l.inner; i++) {                          \
                const int64_t k = ((const I *)s->index)[o * l.index_out + i * l.index_in];      \
                if (__builtin_expect((uint64_t)k >= (uint64_t)s->bound, 0))                     \
                    return l.lanes_inside ? o * s->n_lanes + i : i * s->n_lanes + o;            \
                T *to = (T *)(void *)s->dst + o * l.dst_out + k * s->along + i * l.dst_in;      \
                const S *from = (const S *)(const void *)s->src + o * l.src_out + i * l.src_in; \
                BODY;                                                                           \
            }                                                                                   \
        return -1;                                                                              \
    }
#define FROM_START(name, T, S, I) 0

enum { PREFETCH_AHEAD = 512 }; /* elements from the one worked on to those prefetched */
#define ROW_FN(name, T, S, I, BODY)                                                             \
    static int64_t name##_row(T *dst, const S *src, const I *index, int64_t n, int64_t bound) { \
        int64_t i = 0;                                                                          \
        for (; i < n && (uint64_t)(int64_t)index[i] < (uint64_t)bound; i++) {                   \
            if (i % 8 == 0) {                                                                   \
                __builtin_prefetch(index + i + PREFETCH_AHEAD, 0, 3);                           \
                __builtin_prefetch(src + i + PREFETCH_AHEAD, 0, 3);                             \
            }                                                                                   \
            T *to = dst + index[i];                                                             \
            const S *from = src + i;                                                            \
            BODY;                                                                               \
        }                                                                                       \
        return i;                                                                               \
    }
#define BEHIND_ROW(name, T, S, I)                                                                           \
    (block_is_rows(s, &l)                                                                                   \
         ? name##_row((T *)(void *)s->dst + o * l.dst_out, (const S *)(const void *)s->src + o * l.src_out, \
                      (const I *)s->index + o * l.index_out, l.inner, s->bound)                             \
         : 0)
#define BLOCK_AND_ROW_FN(name, T, S, I, BODY) \
    ROW_FN(name, T, S, I, BODY)               \
    BLOCK_FN(name, T, S, I, BEHIND_ROW, BODY)

typedef struct lanes {
    const ct_call *call;
    const ct_view *index;
    lane_block block; /* of the first lane; its n_lanes is that of a whole block */
    block_fn fn;
    int axis;
    int ndim; /* dimensions outside a block */
    int64_t dims[CT_MAX_DIMS], dst[CT_MAX_DIMS], src[CT_MAX_DIMS], at[CT_MAX_DIMS], place[CT_MAX_DIMS];
    int64_t place_axis, place_lane; /* row-major strides of index, to say where an error is */
    int64_t lanes, blocks, blocks_per_row, blocks_per_chunk;
    size_t dst_size, src_size, index_size;
    bool lane_inside; /* no dimension before the axis is part of a block */
    _Atomic bool failed;
} lanes;

/* dst: where it goes, of x's shape (its dtype is not looked at); src NULL: there is none. */
static void lanes_plan(lanes *l, const ct_call *call, block_fn fn, int64_t axis, const ct_view *x, const ct_view *dst,
                       void *dst_data, size_t dst_size, const ct_view *index, const ct_view *src) {
    enum { CHUNK = 32 << 10 };
    int64_t row_major[CT_MAX_DIMS], stride = 1;
    memset(l, 0, sizeof *l);
    l->call = call;
    l->index = index;
    l->fn = fn;
    l->axis = (int)(axis < 0 ? axis + (x->ndim ? x->ndim : 1) : axis);
    l->dst_size = dst_size;
    l->src_size = src ? ct_dtype_size(src->dtype) : 0;
    l->index_size = ct_dtype_size(index->dtype);
    l->block.dst = dst_data;
    l->block.src = src ? ct__address(src, l->src_size) : NULL;
    l->block.index = ct__address(index, l->index_size);
    l->block.n_axis = l->block.n_lanes = l->block.bound = l->block.along = 1;
    if (x->ndim) l->block.along = dst->strides[l->axis], l->block.bound = x->dims[l->axis];
    for (int d = index->ndim - 1; d >= 0; d--) {
        row_major[d] = stride;
        stride *= index->dims[d];
    }
    /* the last dimension besides the axis makes the lanes of a block, unless the axis does better by itself */
    bool lane = false;
    l->lane_inside = true;
    int64_t count = 1;
    for (int d = index->ndim - 1; d >= 0; d--) {
        const int64_t ss = src && d < src->ndim ? src->strides[d] : 0;
        count *= index->dims[d];
        if (d == l->axis) {
            l->block.n_axis = index->dims[d];
            l->block.index_axis = index->strides[d], l->block.src_axis = ss, l->place_axis = row_major[d];
        } else if (index->dims[d] == 1) {
            continue;
        } else if (!lane && (d > l->axis || index->dims[l->axis] < 64)) {
            lane = true;
            l->lane_inside = d > l->axis;
            l->lanes = index->dims[d];
            l->block.index_lane = index->strides[d], l->block.src_lane = ss, l->block.dst_lane = dst->strides[d],
            l->place_lane = row_major[d];
        } else {
            const int n = l->ndim++;
            l->dims[n] = index->dims[d];
            l->dst[n] = dst->strides[d], l->src[n] = ss, l->at[n] = index->strides[d], l->place[n] = row_major[d];
        }
    }
    if (!lane) l->lanes = 1;
    if (count == 0) return;
    const int64_t length = l->block.n_axis;
    l->block.n_lanes = ct__min64(l->lanes, ct__grain(ct__max64(16, CHUNK / length)));
    l->blocks_per_row = (l->lanes + l->block.n_lanes - 1) / l->block.n_lanes;
    l->blocks = l->blocks_per_row;
    for (int i = 0; i < l->ndim; i++) l->blocks *= l->dims[i];
    l->blocks_per_chunk = ct__grain(ct__max64(1, CHUNK / (length * l->block.n_lanes)));
}

static bool lanes_fail(lanes *l, int64_t position, int64_t value) {
    if (!atomic_exchange(&l->failed, true)) index_fail(l->call, l->index, position, value, l->block.bound);
    return false;
}

/* Blocks first to end - 1, into what lies `away` bytes from block.dst. */
static bool lanes_work(lanes *l, int64_t first, int64_t end, intptr_t away) {
    for (int64_t number = first; number < end; number++) {
        if (atomic_load_explicit(&l->failed, memory_order_relaxed)) return false;
        lane_block s = l->block;
        const int64_t lane = number % l->blocks_per_row * l->block.n_lanes;
        int64_t rest = number / l->blocks_per_row, to = lane * s.dst_lane, from = lane * s.src_lane,
                at = lane * s.index_lane, place = lane * l->place_lane;
        for (int d = 0; d < l->ndim; d++) { /* dims[0] is the innermost */
            const int64_t i = rest % l->dims[d];
            rest /= l->dims[d];
            to += i * l->dst[d], from += i * l->src[d], at += i * l->at[d], place += i * l->place[d];
        }
        s.n_lanes = ct__min64(s.n_lanes, l->lanes - lane);
        s.dst += to * (int64_t)l->dst_size + away;
        s.src += from * (int64_t)l->src_size;
        s.index = (const char *)s.index + at * (int64_t)l->index_size;
        const int64_t bad = l->fn(&s);
        if (bad >= 0) {
            const int64_t a = bad / s.n_lanes, i = bad % s.n_lanes;
            return lanes_fail(l, place + a * l->place_axis + i * l->place_lane,
                              index_value(l->index, s.index, a * s.index_axis + i * s.index_lane));
        }
    }
    return true;
}

static void lanes_chunk(void *context, int64_t chunk, int worker) {
    lanes *l = context;
    (void)worker;
    lanes_work(l, chunk * l->blocks_per_chunk, ct__min64((chunk + 1) * l->blocks_per_chunk, l->blocks), 0);
}

static bool lanes_run(lanes *l) {
    if (l->blocks) ct__parallel((l->blocks + l->blocks_per_chunk - 1) / l->blocks_per_chunk, lanes_chunk, l);
    return !atomic_load(&l->failed);
}

#endif
