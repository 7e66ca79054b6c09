/* Products for tests/test_gemm.c: random matrices in any layout, at the end of memory, and each element of a result against the formula. */
#ifndef COTANGENT_TESTS_GEMM_PRODUCTS_H
#define COTANGENT_TESTS_GEMM_PRODUCTS_H

#include <cotangent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/gemm/gemm.h"
#include "tests/guarded_page.h"

static int passed, failed;
static const char *level_name = "";

static void report(bool ok, const char *what) {
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("FAILED %s (%s)\n", what, level_name);
}

static uint64_t rng_state = 1;
static uint32_t rng(void) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33);
}
static int64_t pick(int64_t n) { return (int64_t)(rng() % (uint32_t)n); }

/* ---- elements ---- */

static const int64_t sizes[] = {4, 8, 2, 2, 1, 1, 2, 4, 8};
static const char *names[] = {"f32", "f64", "bf16", "f16", "i8", "u8", "i16", "i32", "i64"};

static bool is_float(ct_gemm_type t) { return t <= CT_GEMM_F16; }

static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static double half_exactly(uint16_t h) {
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    const double magnitude = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
                             : exponent == 0 ? ldexp(mantissa, -24)
                                             : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

static double half_value(uint16_t h) {
    static float table[65536];
    static bool ready;
    for (int i = 0; !ready && i < 65536; i++) table[i] = (float)half_exactly((uint16_t)i);
    ready = true;
    return table[h];
}

static double get_float(ct_gemm_type t, const char *p) {
    float f;
    double d;
    uint16_t h;
    switch (t) {
    case CT_GEMM_F32: memcpy(&f, p, 4); return f;
    case CT_GEMM_F64: memcpy(&d, p, 8); return d;
    case CT_GEMM_BF16: memcpy(&h, p, 2); return from_bits((uint32_t)h << 16);
    default: memcpy(&h, p, 2); return half_value(h);
    }
}
static uint64_t get_int(ct_gemm_type t, const char *p) {
    int16_t h;
    int32_t w;
    int64_t l;
    switch (t) {
    case CT_GEMM_I8: return (uint64_t)(int64_t) * (const int8_t *)p;
    case CT_GEMM_U8: return *(const uint8_t *)p;
    case CT_GEMM_I16: memcpy(&h, p, 2); return (uint64_t)(int64_t)h;
    case CT_GEMM_I32: memcpy(&w, p, 4); return (uint64_t)(int64_t)w;
    default: memcpy(&l, p, 8); return (uint64_t)l;
    }
}

/* Exactly representable in every floating type, so that inputs carry no rounding of their own; of so many magnitudes that sums do round,
 * in every order differently. */
static void put_random(ct_gemm_type t, char *p) {
    if (!is_float(t)) {
        for (int64_t i = 0; i < sizes[t]; i++) p[i] = (char)rng();
        return;
    }
    const float x = (float)(pick(255) - 127) / (float)(64 << pick(9));
    const double d = x * (1.0 + (double)rng() * 0x1p-32);
    uint32_t u;
    memcpy(&u, &x, 4);
    uint16_t h = (uint16_t)(u >> 16);
    if (t == CT_GEMM_F32) memcpy(p, &x, 4);
    if (t == CT_GEMM_F64) memcpy(p, &d, 8);
    if (t == CT_GEMM_BF16) memcpy(p, &h, 2);
    if (t == CT_GEMM_F16) {
        int e;
        const float fraction = frexpf(fabsf(x), &e);
        h = x == 0.0f ? 0 : (uint16_t)((uint32_t)(e + 14) << 10 | ((uint32_t)(fraction * 2048.0f) & 1023u));
        if (x < 0) h |= 0x8000;
        memcpy(p, &h, 2);
    }
}

/* ---- matrices in buffers whose every other byte is a NaN that must not leak or be written, at the end of memory ---- */

typedef struct matrix {
    char *memory, *origin;
    int64_t bytes, row, col;
    int64_t batch[CT_GEMM_BATCH_DIMS];
    ct_gemm_type type;
} matrix;

enum { PLAIN, TRANSPOSED, GAPS, GAPS_TRANSPOSED, SPREAD, BACKWARDS, LAYOUTS };

static int64_t low(int64_t extent, int64_t stride) { return stride < 0 && extent > 0 ? (extent - 1) * stride : 0; }
static int64_t high(int64_t extent, int64_t stride) { return stride > 0 && extent > 0 ? (extent - 1) * stride : 0; }

static matrix make(ct_gemm_type type, int64_t rows, int64_t cols, int layout, const ct_gemm *g, unsigned broadcast,
                   bool fill) {
    matrix x = {.type = type};
    switch (layout) {
    case PLAIN: x.row = cols, x.col = 1; break;
    case TRANSPOSED: x.row = 1, x.col = rows; break;
    case GAPS: x.row = cols + 3, x.col = 1; break;
    case GAPS_TRANSPOSED: x.row = 1, x.col = rows + 5; break;
    case SPREAD: x.row = 2 * cols + 1, x.col = 2; break;
    default: x.row = -cols, x.col = 1; break;
    }
    int64_t lowest = low(rows, x.row) + low(cols, x.col), highest = high(rows, x.row) + high(cols, x.col);
    int64_t step = highest - lowest + 2;
    for (int d = g->batch_dims - 1; d >= 0; d--) {
        x.batch[d] = broadcast >> d & 1 ? 0 : (d == 1 ? -step : step);
        lowest += low(g->batch[d], x.batch[d]), highest += high(g->batch[d], x.batch[d]);
        step *= g->batch[d] > 0 ? g->batch[d] : 1;
    }
    const bool empty = rows == 0 || cols == 0;
    x.bytes = empty ? 1 : (highest - lowest + 1) * sizes[type];
    x.memory = guarded_alloc((size_t)x.bytes);
    memset(x.memory, 0xff, (size_t)x.bytes); /* NaN in every floating type */
    x.origin = x.memory - lowest * sizes[type];
    int64_t items = 1;
    for (int d = 0; d < g->batch_dims; d++) items *= g->batch[d];
    for (int64_t item = 0; fill && item < items; item++) {
        int64_t at = 0, rest = item;
        for (int d = g->batch_dims - 1; d >= 0; d--) at += rest % g->batch[d] * x.batch[d], rest /= g->batch[d];
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) put_random(type, x.origin + (at + i * x.row + j * x.col) * sizes[type]);
    }
    return x;
}

static int64_t batch_offset(const ct_gemm *g, const int64_t *strides, int64_t item) {
    int64_t at = 0;
    for (int d = g->batch_dims - 1; d >= 0; d--) at += item % g->batch[d] * strides[d], item /= g->batch[d];
    return at;
}

/* ---- running and checking ---- */

static void *aligned_scratch(size_t bytes, void **memory) {
    *memory = malloc(bytes + 64);
    char *p = (char *)*memory + (64 - (uintptr_t)*memory % 64) % 64;
    memset(p, 0xff, bytes); /* dirty: nothing may depend on what scratch held */
    return bytes ? p : NULL;
}

static bool multiply(const ct_gemm *g) {
    void *memory;
    void *scratch = aligned_scratch(ct__gemm_scratch(g), &memory);
    const bool ok = ct__gemm(g, scratch);
    free(memory);
    return ok;
}

static void relu_half(const void *ctx, void *x, int64_t n) { /* 0.5 max(x, 0), f32 */
    (void)ctx;
    for (int64_t i = 0; i < n; i++) ((float *)x)[i] = ((float *)x)[i] > 0 ? 0.5f * ((float *)x)[i] : 0.0f;
}

static double rounding(ct_gemm_type t) {
    switch (t) {
    case CT_GEMM_F32: return 0x1p-24;
    case CT_GEMM_F64: return 0x1p-53;
    case CT_GEMM_BF16: return 0x1p-8;
    case CT_GEMM_F16: return 0x1p-11;
    default: return 0.0;
    }
}

/* One element of the result against the formula; `old` is C before the call. */
static bool element_right(const ct_gemm *g, int64_t item, int64_t i, int64_t j, const char *old) {
    const int64_t a_size = sizes[g->a_type], b_size = sizes[g->b_type], c_size = sizes[g->c_type];
    const char *a = (const char *)g->a + (batch_offset(g, g->a_batch, item) + i * g->a_row) * a_size;
    const char *b = (const char *)g->b + (batch_offset(g, g->b_batch, item) + j * g->b_col) * b_size;
    const int64_t c_at = (batch_offset(g, g->c_batch, item) + i * g->c_row + j * g->c_col) * c_size;
    const char *c = (const char *)g->c + c_at;
    if (!is_float(g->a_type)) {
        uint64_t sum = g->accumulate ? get_int(g->c_type, old + c_at) : 0;
        for (int64_t p = 0; p < g->k; p++)
            sum += get_int(g->a_type, a + p * g->a_col * a_size) * get_int(g->b_type, b + p * g->b_row * b_size);
        if (g->bias_col) sum += get_int(g->bias_type, (const char *)g->bias_col + j * sizes[g->bias_type]);
        return memcmp(&sum, c, (size_t)c_size) == 0; /* little-endian: the low bytes */
    }
    double sum = 0, size = 0;
    for (int64_t p = 0; p < g->k; p++) {
        const double x =
            get_float(g->a_type, a + p * g->a_col * a_size) * get_float(g->b_type, b + p * g->b_row * b_size);
        sum += x, size += fabs(x);
    }
    if (g->scale) sum *= g->alpha, size *= fabs(g->alpha);
    double extra = 0;
    if (g->accumulate) extra = get_float(g->c_type, old + c_at), sum += extra, size += fabs(extra);
    const int64_t bias = batch_offset(g, g->bias_batch, item);
    if (g->bias_row)
        extra = get_float(g->bias_type, (const char *)g->bias_row + (bias + i) * sizes[g->bias_type]), sum += extra,
        size += fabs(extra);
    if (g->bias_col)
        extra = get_float(g->bias_type, (const char *)g->bias_col + (bias + j) * sizes[g->bias_type]), sum += extra,
        size += fabs(extra);
    if (g->residual) {
        extra = get_float(g->c_type, (const char *)g->residual + (batch_offset(g, g->residual_batch, item) +
                                                                  i * g->residual_row + j * g->residual_col) *
                                                                     c_size);
        sum += extra, size += fabs(extra);
    }
    if (g->activate) sum = sum > 0 ? 0.5 * sum : 0.0;
    /* k additions and a few more, each within one rounding of the running sum, then C's rounding. */
    const double acc = g->a_type == CT_GEMM_F64 ? 0x1p-53 : 0x1p-24;
    const double sums = g->a_type == CT_GEMM_F64 ? 2 : 1; /* the one that it is compared with rounds too */
    const double bound = ((double)g->k + 8.0) * sums * acc * size + 1.01 * rounding(g->c_type) * fabs(sum) + 1e-30;
    return fabs(get_float(g->c_type, c) - sum) <= bound;
}

/* Bytes of C's buffer that belong to no element must be as they were. */
static bool gaps_untouched(const ct_gemm *g, const matrix *c, const char *before) {
    char *mark = (char *)calloc(1, (size_t)c->bytes);
    int64_t items = 1;
    bool ok = true;
    for (int d = 0; d < g->batch_dims; d++) items *= g->batch[d];
    for (int64_t item = 0; item < items; item++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++)
                memset(mark + (c->origin - c->memory) +
                           (batch_offset(g, g->c_batch, item) + i * c->row + j * c->col) * sizes[c->type],
                       1, (size_t)sizes[c->type]);
    for (int64_t i = 0; i < c->bytes; i++) ok = ok && (mark[i] || c->memory[i] == before[i]);
    free(mark);
    return ok;
}

typedef struct setup {
    ct_gemm g;
    matrix a, b, c, residual;
    char *bias, *before;
} setup;

static void point(setup *s) {
    ct_gemm *g = &s->g;
    g->a = s->a.origin, g->a_row = s->a.row, g->a_col = s->a.col;
    g->b = s->b.origin, g->b_row = s->b.row, g->b_col = s->b.col;
    g->c = s->c.origin, g->c_row = s->c.row, g->c_col = s->c.col;
    memcpy(g->a_batch, s->a.batch, sizeof g->a_batch);
    memcpy(g->b_batch, s->b.batch, sizeof g->b_batch);
    memcpy(g->c_batch, s->c.batch, sizeof g->c_batch);
    s->before = (char *)malloc((size_t)s->c.bytes);
    memcpy(s->before, s->c.memory, (size_t)s->c.bytes);
}
static void release(setup *s) {
    matrix *all[] = {&s->a, &s->b, &s->c, &s->residual};
    for (int i = 0; i < 4; i++) guarded_free(all[i]->memory, (size_t)all[i]->bytes);
    free(s->bias), free(s->before);
}

static void plain_setup(setup *s, ct_gemm_type t, int64_t m, int64_t n, int64_t k, int la, int lb, int lc) {
    memset(s, 0, sizeof *s);
    s->g.m = m, s->g.n = n, s->g.k = k;
    s->g.a_type = s->g.b_type = s->g.c_type = s->g.bias_type = t;
    s->a = make(t, m, k, la, &s->g, 0, true);
    s->b = make(t, k, n, lb, &s->g, 0, true);
    s->c = make(t, m, n, lc, &s->g, 0, true);
    point(s);
}

/* Every element, or a sample of large results; and the same bits again for other thread counts. */
static bool run_and_check(setup *s, bool threads) {
    const ct_gemm *g = &s->g;
    int64_t items = 1;
    for (int d = 0; d < g->batch_dims; d++) items *= g->batch[d];
    if (!multiply(g)) return false;
    bool ok = gaps_untouched(g, &s->c, s->before);
    const char *old = s->before + (s->c.origin - s->c.memory);
    const int64_t count = items * g->m * g->n;
    const bool all = (double)count * (double)(g->k + 1) < 2e5;
    for (int64_t e = 0, checks = all ? count : 600; e < checks && count > 0 && ok; e++) {
        const int64_t at = all ? e : (int64_t)(((uint64_t)rng() << 20 ^ rng()) % (uint64_t)count);
        ok = element_right(g, at / (g->m * g->n), at / g->n % g->m, at % g->n, old);
        if (!ok)
            printf("  item %ld row %ld col %ld\n", (long)(at / (g->m * g->n)), (long)(at / g->n % g->m),
                   (long)(at % g->n));
    }
    if (!threads) return ok;
    char *first = (char *)malloc((size_t)s->c.bytes);
    memcpy(first, s->c.memory, (size_t)s->c.bytes);
    for (int i = 0; i < 2; i++) {
        ct_set_threads(i ? 7 : 1);
        memcpy(s->c.memory, s->before, (size_t)s->c.bytes);
        ok = multiply(g) && memcmp(first, s->c.memory, (size_t)s->c.bytes) == 0 && ok;
    }
    ct_set_threads(2);
    free(first);
    return ok;
}

#endif
