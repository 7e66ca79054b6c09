/* What the forward and the backward kernel of attention share: the problem, blocks of rows in the type of the computation, and
 * products of such blocks on the register tiles of the matrix engine. */
#ifndef COTANGENT_OPS_ATTENTION_SDPA_H
#define COTANGENT_OPS_ATTENTION_SDPA_H

#include <math.h>

#include "backends/cpu/gemm/block.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "ops/random/cpu/philox/philox.h"
#include "ops/random/cpu/position.h"

#include "gen/attention.attrs.h"

enum {
    SDPA_KEYS = 256,          /* keys of a block, at most: its part of K and V stays in the second cache */
    SDPA_LD = SDPA_KEYS + 16, /* between rows of scores; not a power of two, which would crowd one set of the cache */
    SDPA_TILE = 32,           /* query rows whose scores are in the first cache, at most */
};

typedef struct sdpa {
    const ct_view *q, *k, *v, *mask; /* (B,H,Tq,D) (B,Hk,Tk,D) (B,Hk,Tk,Dv), mask (B,H,Tq,Tk) or NULL */
    int64_t batch, heads, kv_heads, group, tq, tk, d, dv;
    double scale;
    bool causal;
    int64_t ahead; /* causal: query i sees keys 0 to i + ahead */
    bool drops;
    double dropout;
    uint32_t threshold; /* words below it drop their element */
    ct_random random;
    const ct__kernel *kernel; /* its tiles and its type */
    /* For products of two inputs of bf16, whose products are exact in f32; kernel where they are widened. In matrix
     * registers, where the weights and their gradient are multiplied as well (sdpa_terms.h). */
    const ct__kernel *inputs;
    bool in_registers;
    bool wide;    /* computes in f64 */
    int64_t size; /* bytes of an element of the computation */
    int64_t tile; /* query rows at a time */
} sdpa;

static inline sdpa sdpa_problem(const ct_view *q, const ct_view *k, const ct_view *v, const ct_view *mask,
                                const ct_view *stream, double scale, bool causal, bool bottom_right, double dropout) {
    sdpa s = {.q = q, .k = k, .v = v, .mask = mask, .scale = scale, .causal = causal, .dropout = dropout};
    s.batch = q->dims[0], s.heads = q->dims[1], s.tq = q->dims[2], s.d = q->dims[3];
    s.kv_heads = k->dims[1], s.tk = k->dims[2], s.dv = v->dims[3];
    s.group = s.kv_heads ? s.heads / s.kv_heads : 1;
    s.ahead = bottom_right ? s.tk - s.tq : 0;
    s.wide = q->dtype == CT_F64;
    s.size = s.wide ? 8 : 4;
    ct__gemm_ready();
    s.kernel = ct__gemm_isa->kernels[s.wide ? CT__KIND_F64 : CT__KIND_F32];
    s.inputs = s.kernel;
    if (q->dtype == CT_BF16 && ct__gemm_isa->kernels[CT__KIND_BF16])
        s.inputs = ct__gemm_larger_kernel(ct__gemm_isa->kernels[CT__KIND_BF16], s.tq, ct__min64(s.tk, s.dv), s.d);
    s.in_registers = s.inputs->block != NULL;
    s.tile = s.in_registers ? SDPA_TILE : s.kernel->rows > 8 ? s.kernel->rows : 2 * s.kernel->rows;
    s.drops = stream && dropout > 0;
    if (s.drops) s.threshold = (uint32_t)ct__min64((int64_t)(dropout * 0x1p32), UINT32_MAX);
    return s;
}

/* (B,T,H,D) as (B,H,T,D), in a copy of the view. NULL stays. */
static inline const ct_view *sdpa_heads_first(const ct_view *x, bool rows_first, ct_view *copy) {
    if (!x || !rows_first) return x;
    *copy = *x;
    copy->dims[1] = x->dims[2], copy->dims[2] = x->dims[1];
    copy->strides[1] = x->strides[2], copy->strides[2] = x->strides[1];
    return copy;
}

/* Of gradients that are together (B,T,H+2Hk,D): those of heads first to first + count - 1. */
static inline void sdpa_part(const ct_view *all, int64_t first, int64_t count, ct_view *part) {
    *part = *all;
    part->dims[2] = count;
    part->offset += first * all->strides[2];
}

/* Before it runs: can and scratch may not look at values. */
static inline void sdpa_start(sdpa *s, const ct_view *stream) {
    if (s->drops) s->random = ct__position(stream);
}

/* The keys that query row i sees. */
static inline int64_t sdpa_seen(const sdpa *s, int64_t i) {
    return s->causal ? ct__max64(0, ct__min64(s->tk, i + s->ahead + 1)) : s->tk;
}

static inline ct_gemm_type sdpa_type(ct_dtype dtype) {
    return dtype == CT_F64 ? CT_GEMM_F64 : dtype == CT_F32 ? CT_GEMM_F32 : dtype == CT_F16 ? CT_GEMM_F16 : CT_GEMM_BF16;
}

/* Rows [r0, ...) of one head as a matrix. */
static inline ct__matrix sdpa_matrix(const ct_view *x, int64_t b, int64_t h, int64_t r0) {
    const size_t size = ct_dtype_size(x->dtype);
    const char *at = (const char *)ct__address(x, size);
    at += (b * x->strides[0] + h * x->strides[1] + r0 * x->strides[2]) * (int64_t)size;
    return (ct__matrix){at, sdpa_type(x->dtype), x->strides[2], x->strides[3]};
}

/* Rows in the type of the computation, elements side by side; ld in bytes. */
typedef struct sdpa_rows {
    const char *at;
    int64_t ld;
} sdpa_rows;

/* Reads them where they lie, or from a copy in buffer (n, cols), as rows of A for that kernel. */
static inline sdpa_rows sdpa_take(const ct__kernel *kernel, const ct_view *x, int64_t b, int64_t h, int64_t r0,
                                  int64_t n, void *buffer) {
    const ct__matrix m = sdpa_matrix(x, b, h, r0);
    const int64_t cols = x->dims[3], size = ct__type_size(kernel->packed), ld = ct__round_up(cols, kernel->group);
    const bool same = m.type == kernel->packed && ld == cols;
    if (same && (m.col == 1 || cols <= 1) && m.row >= 0 && m.row <= 2 * cols)
        return (sdpa_rows){(const char *)m.data, m.row * size};
    if (n > 0 && cols > 0) ct__gemm_isa->pack_a(kernel, &m, buffer, ld, 0, n, cols);
    return (sdpa_rows){(const char *)buffer, ld * size};
}

/* Rows that are wanted soon; they lie too far apart for the hardware to guess. */
static inline ct__spans sdpa_soon(const ct_view *x, int64_t b, int64_t h, int64_t r0, int64_t n) {
    const ct__matrix m = sdpa_matrix(x, b, h, r0);
    const int64_t size = ct__type_size(m.type);
    return (ct__spans){(const char *)m.data, m.col == 1 ? ct__max64(0, n) : 0, m.row * size, x->dims[3] * size};
}

/* Keys that a worker has room for: whole panels, whose width need not divide a block. */
static inline int64_t sdpa_room_keys(const sdpa *s) {
    const int64_t keys = ct__min64(s->tk, SDPA_KEYS);
    return ct__max64(ct__round_up(keys, ct__panel_width(s->kernel)), ct__round_up(keys, ct__panel_width(s->inputs)));
}

/* K^T or V^T of a block of keys as panels: (cols, n) in panels of the tile's width. */
static inline void sdpa_panels(const sdpa *s, const ct_view *x, int64_t b, int64_t h, int64_t r0, int64_t n,
                               void *panels) {
    const ct__matrix m = sdpa_matrix(x, b, h, r0), transposed = {m.data, m.type, m.col, m.row};
    if (n > 0 && x->dims[3] > 0) ct__gemm_isa->pack_b(s->inputs, &transposed, panels, x->dims[3], n);
}

/* m rows of an input from r on by the panels of another (depth, n), to rows of scores. */
static inline ct__block sdpa_scores(const sdpa *s, const sdpa_rows *rows, int64_t r, const char *panels, int64_t depth,
                                    char *to, int64_t m, int64_t n) {
    const ct__kernel *k = s->inputs;
    const int64_t unit = k->group * ct__type_size(k->packed);
    return (ct__block){.a = rows->at + r * rows->ld,
                       .a_row = rows->ld,
                       .a_step = unit,
                       .b = panels,
                       .b_step = ct__panel_width(k) * unit,
                       .panel = ct__panel_bytes(k, depth),
                       .c = to,
                       .c_row = SDPA_LD * s->size,
                       .m = m,
                       .n = n,
                       .k = ct__ceil_div(depth, k->group)};
}

/* Rows of a tile where there are so many, evened out. */
static inline int64_t sdpa_tile_rows(const sdpa *s, int64_t rows) {
    const int64_t even = ct__ceil_div(rows, ct__ceil_div(rows, s->tile));
    return s->in_registers ? ct__round_up(even, s->inputs->row_step) : even;
}

static inline void sdpa_enter(const sdpa *s) {
    if (s->in_registers) s->inputs->enter();
}
static inline void sdpa_leave(const sdpa *s) {
    if (s->in_registers) s->inputs->leave();
}

/* n elements of the computation to a row of a view, times factor. */
static inline void sdpa_put(const sdpa *s, const void *from, double factor, const ct_view *to, int64_t b, int64_t h,
                            int64_t r, int64_t c, int64_t n) {
    const int64_t at = b * to->strides[0] + h * to->strides[1] + r * to->strides[2] + c * to->strides[3],
                  step = to->strides[3];
    if (s->wide) {
        const double *x = from;
        double *y = CT_AT(double, to) + at;
        for (int64_t i = 0; i < n; i++) y[i * step] = x[i] * factor;
        return;
    }
    const float *x = from, f = (float)factor;
    if (to->dtype == CT_F32) {
        float *y = CT_AT(float, to) + at;
        if (step == 1)
            for (int64_t i = 0; i < n; i++) y[i] = x[i] * f;
        else
            for (int64_t i = 0; i < n; i++) y[i * step] = x[i] * f;
        return;
    }
    uint16_t *y = CT_AT(uint16_t, to) + at, half[VF32_LANES];
    for (int64_t i = 0; i < n; i += VF32_LANES) {
        const int m = (int)ct__min64(VF32_LANES, n - i);
        const vf32 value = vf32_mul(vf32_load_n(x + i, m), vf32_set1(f));
        if (step == 1) {
            if (to->dtype == CT_F16) vf32_store_f16_n(y + i, value, m);
            else vf32_store_bf16_n(y + i, value, m);
            continue;
        }
        if (to->dtype == CT_F16) vf32_store_f16(half, value);
        else vf32_store_bf16(half, value);
        for (int k = 0; k < m; k++) y[(i + k) * step] = half[k];
    }
}

/* One element of a float view as a double. */
static inline double sdpa_number(const ct_view *x, int64_t at) {
    switch (x->dtype) {
    case CT_F64: return CT_AT(const double, x)[at];
    case CT_F32: return (double)CT_AT(const float, x)[at];
    default: {
        uint16_t bits = CT_AT(const uint16_t, x)[at];
        vf32 v = x->dtype == CT_F16 ? vf32_load_f16_n(&bits, 1) : vf32_load_bf16_n(&bits, 1);
        float lanes[VF32_LANES];
        vf32_store(lanes, v);
        return (double)lanes[0];
    }
    }
}

/* exp(x / UNIT): every weight is such a power. Where one instruction looks up 16 floats and others take fractions
 * and scale, the base is 2, which saves half of the arithmetic:
 *     2^x = 2^floor(x) 2^(i/16) 2^r, 0 <= r < 1/16, 2^r = 1 + r (c1 + r (c2 + r c3)) to within 2^-28
 * Adding 1.5 * 2^19 rounds down to i/16 and leaves i in the low bits. Exactly 1 at 0, 0 at -inf. */
#if CT_ISA_LEVEL >= 2
#define F32_UNIT 0x1.715476p0f
static inline vf32 f32_power(vf32 x) {
    const vf32 place = vf32_set1(0x1.8p19f),
               t = _mm512_add_round_ps(x, place, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC),
               r = _mm512_reduce_ps(x, 4 << 4 | _MM_FROUND_TO_NEG_INF),
               root = simd_lookup16(simd_exp_lut, vf32_bits(t));
    vf32 q = vf32_fma(r, vf32_set1(0x1.d03d66p-5f), vf32_set1(0x1.ebe5b8p-3f));
    q = vf32_fma(q, r, vf32_set1(0x1.62e43ep-1f));
    return vf32_scalef(vf32_fma(vf32_mul(root, r), q, root), x);
}
#else
#define F32_UNIT 1.0f
static inline vf32 f32_power(vf32 x) { return vf32_exp_clamped(vf32_maxb(vf32_set1(-104.0f), x)); }
#endif
static inline vf64 f64_power(vf64 x) {
    return vf64_exp_clamped(vf64_maxb(vf64_set1(-746.0), x));
} /* below it exp is 0 */

#define ROWS(name) f32_##name
#define ROWS_T     float
#define ROWS_V(op) vf32_##op
#define ROWS_VEC   vf32
#define ROWS_LANES VF32_LANES
#define ROWS_UNIT  F32_UNIT
#define ROWS_EXP   expf
#include "ops/attention/cpu/sdpa_rows.h"

#define ROWS(name) f64_##name
#define ROWS_T     double
#define ROWS_V(op) vf64_##op
#define ROWS_VEC   vf64
#define ROWS_LANES VF64_LANES
#define ROWS_UNIT  1.0
#define ROWS_EXP   exp
#include "ops/attention/cpu/sdpa_rows.h"

#endif
