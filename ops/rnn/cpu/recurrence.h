/* What the two kernels of the recurrence share: the problem, and how its work is cut. */
#ifndef COTANGENT_OPS_RNN_RECURRENCE_H
#define COTANGENT_OPS_RNN_RECURRENCE_H

#include "backends/cpu/gemm/block.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "core/error.h"

#include "gen/rnn.attrs.h"

#include "ops/rnn/cells.h"

enum { ROWS_AT_ONCE = 4 * CT__TILE_ROWS_MAX }; /* batch rows whose products wait in scratch */

typedef struct recurrence {
    int cell;
    bool reverse, wide;
    int64_t steps, n, h, gates, kept; /* gates and kept values of a cell */
    int64_t size;                     /* bytes of an element */
    const ct__kernel *kernel;
    int64_t width, blocks; /* hidden units are taken a panel's width at a time */
    const ct_view *lengths;
} recurrence;

static inline recurrence recurrence_problem(const ct_view *y, int cell, bool reverse, const ct_view *lengths) {
    recurrence p = {.cell = cell, .reverse = reverse, .wide = y->dtype == CT_F64, .lengths = lengths};
    p.steps = y->dims[0], p.n = y->dims[1], p.h = y->dims[2];
    p.gates = ct__cell_gates(cell), p.kept = ct__cell_states(cell);
    p.size = p.wide ? 8 : 4;
    ct__gemm_ready();
    p.kernel = ct__gemm_isa->kernels[p.wide ? CT__KIND_F64 : CT__KIND_F32];
    p.width = ct__panel_width(p.kernel);
    p.blocks = ct__ceil_div(p.h, p.width);
    return p;
}

static inline const char *recurrence_refuses(const ct_view *const *views, int n) {
    for (int i = 0; i < n; i++) {
        const ct_view *x = views[i];
        if (!x) continue;
        if (ct_dtype_is_float(x->dtype) && x->dtype != CT_F32 && x->dtype != CT_F64) return "a half type";
        if (!ct_dtype_is_float(x->dtype)) continue;
        if (x->dtype != views[0]->dtype) return "several dtypes";
        int64_t dense = 1, count = 1;
        for (int d = 0; d < x->ndim; d++) count *= x->dims[d];
        if (count == 0) continue;
        for (int d = x->ndim - 1; d >= 0; d--) {
            if (x->dims[d] > 1 && x->strides[d] != dense) return "an input is not contiguous";
            dense *= x->dims[d];
        }
    }
    return NULL;
}

/* Sequence lengths, that argument of the call, as i64, checked: none is below 0 or above the number of steps. */
static inline bool recurrence_lengths(const recurrence *p, const ct_call *call, int argument, int64_t *to) {
    for (int64_t i = 0; i < p->n; i++) {
        to[i] = p->steps;
        if (!p->lengths) continue;
        const int64_t at = i * p->lengths->strides[0];
        to[i] =
            p->lengths->dtype == CT_I64 ? CT_AT(const int64_t, p->lengths)[at] : CT_AT(const int32_t, p->lengths)[at];
        if (to[i] < 0 || to[i] > p->steps) return ct__wrong_index(call, argument, i, to[i], p->steps + 1);
    }
    return true;
}

/* Sequences do not depend on one another: where every thread has a tile's rows of them, it takes its own through all
 * steps and waits for nobody. Else, or where the weights are too many to come from the last cache again and again,
 * each step is cut by hidden units, and each thread keeps its part of the weights in its own cache. Every unit of
 * every sequence is computed by itself: its bits do not depend on the cut, which may therefore depend on the number
 * of threads. */
static inline bool recurrence_by_rows(const recurrence *p) {
    return p->n >= CT__TILE_ROWS_MAX * ct__threads() && p->gates * p->h * p->h * p->size <= 4 << 20;
}
static inline int64_t recurrence_chunks(const recurrence *p) {
    const int64_t most = recurrence_by_rows(p) ? p->n : p->blocks,
                  normal = ct__grain(1 << 20) < (1 << 20) ? most : ct__threads();
    return ct__min64(most, p->n * p->h * p->h * p->gates < 32768 && normal != most ? 1 : normal);
}

/* What a block of a step reads and writes besides its products, m hidden units of some rows: spans that are too
 * short and too many for the hardware to foresee. Each of the step's products prefetches one of the lists while it
 * is computed, the last for the rest. */
typedef struct recurrence_wants {
    ct__spans list[5];
    int count;
    int64_t stride, bytes;
} recurrence_wants;

SIMD_INLINE void recurrence_want(recurrence_wants *w, const char *at, int64_t count, int64_t times) {
    w->list[w->count++] = (ct__spans){at, count, w->stride * times, w->bytes};
}

SIMD_INLINE const ct__spans *recurrence_ahead(const recurrence_wants *w, int64_t product) {
    return product < w->count ? &w->list[product] : NULL;
}
SIMD_INLINE int64_t recurrence_lists(const recurrence_wants *w, int64_t product, int64_t products) {
    return product + 1 < products ? 1 : w->count - product;
}

#define CELL(name) f32_##name
#define CELL_T     float
#define CELL_V(op) vf32_##op
#define CELL_VEC   vf32
#define CELL_LANES VF32_LANES
#include "ops/rnn/cpu/cell_rows.h"

#define CELL(name) f64_##name
#define CELL_T     double
#define CELL_V(op) vf64_##op
#define CELL_VEC   vf64
#define CELL_LANES VF64_LANES
#include "ops/rnn/cpu/cell_rows.h"

#endif
