/* What the two kernels of the recurrence share: the problem, and how its work is cut. */
#ifndef COTANGENT_OPS_RNN_RECURRENCE_H
#define COTANGENT_OPS_RNN_RECURRENCE_H

#include "backends/cpu/gemm/block.h"
#include "backends/cpu/gemm/caches.h"
#include "backends/cpu/gemm/terms.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "core/error.h"

#include "gen/rnn.attrs.h"

#include "ops/rnn/cells.h"

enum { ROWS_AT_ONCE = 4 * CT__TILE_ROWS_MAX, TERM_ROWS_AT_ONCE = 64 }; /* batch rows whose products wait in scratch */

typedef struct recurrence {
    int cell;
    bool reverse, wide;
    int64_t steps, n, h, gates, kept; /* gates and kept values of a cell */
    int64_t size;                     /* bytes of an element */
    const ct__kernel *kernel;
    int64_t width, blocks; /* hidden units are taken a panel's width at a time */
    int64_t rows_at_once;
    /* Matrix registers, for weights that came from bf16: what they are multiplied by, states or gradients of gates,
     * goes as terms (gemm/terms.h). NULL: there are none. Whether the weights are such is seen when they are read. */
    const ct__kernel *registers;
    bool in_terms;
    const ct_view *lengths;
} recurrence;

static inline void recurrence_use(recurrence *p, bool in_terms) {
    p->in_terms = in_terms;
    p->rows_at_once = in_terms ? TERM_ROWS_AT_ONCE : ROWS_AT_ONCE;
    p->width = ct__panel_width(in_terms ? p->registers : p->kernel);
    p->blocks = ct__ceil_div(p->h, p->width);
}

static inline recurrence recurrence_problem(const ct_view *y, int cell, bool reverse, const ct_view *lengths) {
    recurrence p = {.cell = cell, .reverse = reverse, .wide = y->dtype == CT_F64, .lengths = lengths};
    p.steps = y->dims[0], p.n = y->dims[1], p.h = y->dims[2];
    p.gates = ct__cell_gates(cell), p.kept = ct__cell_states(cell);
    p.size = p.wide ? 8 : 4;
    ct__gemm_ready();
    p.kernel = ct__gemm_isa->kernels[p.wide ? CT__KIND_F64 : CT__KIND_F32];
    const ct__kernel *pairs = p.wide ? NULL : ct__gemm_isa->kernels[CT__KIND_BF16];
    if (pairs) pairs = ct__gemm_larger_kernel(pairs, p.n, p.h, p.h);
    if (pairs && pairs->block) p.registers = pairs;
    recurrence_use(&p, false);
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

/* ---- Terms ---- */

/* Rows of terms of n floats: bytes from row to row, not a power of two, and of a term of all rows. */
static inline int64_t recurrence_term_ld(int64_t n) { return ct__round_up(n * 2, 64) + 64; }
static inline int64_t recurrence_term(const recurrence *p, int64_t n) { return p->n * recurrence_term_ld(n); }
/* All of them, for this step and the one before. */
static inline int64_t recurrence_terms_bytes(const recurrence *p, int64_t n) {
    return p->registers ? 2 * CT__TERMS * recurrence_term(p, n) : 0;
}

/* Whether all weights are bf16, as those are that a bf16 network brings: the first that is not ends it. */
static inline bool recurrence_is_bf16(const recurrence *p, const ct_view *w) {
    const uint32_t *x = (const uint32_t *)ct__address(w, 4);
    const int64_t count = p->gates * p->h * p->h;
    uint32_t low = 0;
    for (int64_t i = 0; i < count && !(low & 0xffff); i += 256)
        for (int64_t j = i; j < ct__min64(i + 256, count); j++) low |= x[j];
    return !(low & 0xffff);
}

/* The weights as packers read them. Those that are bf16 are the upper halves of floats, in the order of bytes that
 * processors with matrix registers have. */
static inline ct__matrix recurrence_weights(const recurrence *p, const ct_view *w) {
    const char *at = (const char *)ct__address(w, (size_t)p->size);
    if (p->in_terms) return (ct__matrix){at + 2, CT_GEMM_BF16, 2 * w->strides[0], 2 * w->strides[1]};
    return (ct__matrix){at, p->kernel->packed, w->strides[0], w->strides[1]};
}

/* Bytes of the weights' panels, deep each: of either kind. */
static inline int64_t recurrence_panel(const recurrence *p, int64_t deep) {
    return ct__panel_bytes(p->in_terms ? p->registers : p->kernel, deep);
}
static inline int64_t recurrence_panels_bytes(const recurrence *p, int64_t count, int64_t deep) {
    recurrence other = *p;
    int64_t bytes = count * other.blocks * recurrence_panel(&other, deep);
    if (!p->registers) return bytes;
    recurrence_use(&other, true);
    return ct__max64(bytes, count * other.blocks * recurrence_panel(&other, deep));
}

/* Room for the products of rows_at_once rows with `count` panels. */
static inline size_t recurrence_room(const recurrence *p, int64_t count) {
    recurrence other = *p;
    if (p->registers) recurrence_use(&other, true);
    return ct__room(ct__max64(p->rows_at_once * p->width, other.rows_at_once * other.width) * count * p->size);
}

/* Rows [r, r + rows) of terms of n floats by a panel, which is not said yet. */
static inline ct__block recurrence_by_terms(const recurrence *p, const char *terms, int64_t n, int64_t r, int64_t rows,
                                            int64_t m, ct__run runs[CT__TERMS]) {
    const int64_t ld = recurrence_term_ld(n);
    for (int i = 0; i < CT__TERMS; i++) runs[i] = (ct__run){i * recurrence_term(p, n), 0};
    return (ct__block){.a = terms + r * ld,
                       .a_row = ld,
                       .a_step = 4,
                       .b_step = p->width * 4,
                       .m = rows,
                       .n = m,
                       .k = ct__ceil_div(n, 2),
                       .runs = runs,
                       .n_runs = CT__TERMS};
}

/* m floats from place j on of row i, of n. Once in each file: it does much at a call. */
static __attribute__((noinline, unused)) void recurrence_put_terms(const recurrence *p, char *terms, int64_t n,
                                                                   int64_t i, int64_t j, const float *x, int64_t m) {
    uint16_t *row = (uint16_t *)(void *)(terms + i * recurrence_term_ld(n));
    ct__terms_of(x, m, row + j, recurrence_term(p, n) / 2);
}

static inline const ct__kernel *recurrence_kernel(const recurrence *p) {
    return p->in_terms ? p->registers : p->kernel;
}
static inline void recurrence_enter(const recurrence *p) {
    if (p->in_terms) p->registers->enter();
}
static inline void recurrence_leave(const recurrence *p) {
    if (p->in_terms) p->registers->leave();
}

/* ---- How the work is cut ---- */

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

/* Every unit of every sequence is computed by itself: its bits do not depend on the cut, which may therefore depend on the number of
 * threads. Sequences do not depend on one another: a part that has all units takes its sequences through all steps and waits for nobody. That
 * is the cut where every thread has a tile's rows of them, and the weights are not too many to come from the last cache again and again. Else
 * each step is cut by hidden units too, and each thread keeps its part of the weights in its own cache: by few threads as far as there are
 * blocks of units, by many as recurrence_cut_for_many says. */
typedef struct recurrence_cut {
    int64_t rows, units; /* parts that each is cut into */
} recurrence_cut;

/* For many threads: what one writes at a step, as few others as possible read, since to write again where many have read takes a processor a
 * hundred nanoseconds for each line. So sequences are cut as far as pays for the multipliers, and units so far that all threads
 * have a part and its weights fit the cache. One part of the units: nobody waits. */
static inline recurrence_cut recurrence_cut_for_many(const recurrence *p, int64_t threads) {
    enum { ROWS = 4 }; /* with which the multipliers are nearly busy */
    const ct_caches *caches = ct__caches();
    const int64_t bytes = p->gates * p->h * p->h * p->size, near = caches->l2_ways * caches->l2_way * 5 / 8;
    const int64_t wanted = ct__max64(ct__ceil_div(threads * ROWS, p->n), ct__ceil_div(bytes, near)),
                  units = ct__min64(wanted, ct__min64(p->blocks, threads));
    return (recurrence_cut){ct__max64(1, ct__min64(p->n / ROWS, threads / units)), units};
}

static inline recurrence_cut recurrence_cut_of(const recurrence *p) {
    enum { LEAST_ROWS = 8, LEAST_TERM_ROWS = 16 }; /* that a part keeps the multipliers busy with */
    const int64_t threads = ct__threads(), tile = p->in_terms ? 16 : CT__TILE_ROWS_MAX;
    const bool apart = p->n >= tile * threads && p->gates * p->h * p->h * p->size <= 4 << 20;
    if (ct__grain(1 << 20) < (1 << 20)) /* tests cut everything */
        return apart ? (recurrence_cut){p->n, 1} : (recurrence_cut){ct__min64(p->n, 3), p->blocks};
    if (p->n * p->h * p->h * p->gates < 32768) return (recurrence_cut){1, 1};
    if (apart) return (recurrence_cut){ct__min64(p->n, threads), 1};
    if (!p->in_terms && threads > CT__FEW_THREADS) return recurrence_cut_for_many(p, threads);
    const int64_t units = ct__min64(p->blocks, threads), rows = p->n / (p->in_terms ? LEAST_TERM_ROWS : LEAST_ROWS);
    return (recurrence_cut){ct__max64(ct__min64(rows, threads / units), 1), units};
}

/* Whether a part takes its sequences through all steps. */
static inline bool recurrence_by_rows(const recurrence_cut *cut) { return cut->units == 1; }

/* What is in a chunk of a step: rows [first, stop) and blocks of hidden units [block, end). */
typedef struct recurrence_part {
    int64_t first, stop, block, end;
} recurrence_part;

/* The parts of a block of units follow one another: neighbours share its weights. */
static inline recurrence_part recurrence_part_of(const recurrence *p, recurrence_cut cut, int64_t chunk) {
    const int64_t row = chunk % cut.rows, unit = chunk / cut.rows;
    return (recurrence_part){row * p->n / cut.rows, (row + 1) * p->n / cut.rows, unit * p->blocks / cut.units,
                             (unit + 1) * p->blocks / cut.units};
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
