/* Kernels of row_norm and of its gradients: a row comes from memory once and is gone over in the first cache. The
 * gradients of weight and bias are summed by chunks of rows, then over the chunks. */
#include "backends/cpu/kernel.h"
#include "ops/norm/cpu/moments.h"

#include "gen/norm.attrs.h"

enum { PARTS = 32, COLUMNS = 512 };

NORM_LINE_MOMENTS(f32, float, vf32)
NORM_LINE_MOMENTS(f64, double, vf64)

typedef struct row_job {
    const void *x, *g, *weight, *bias; /* (rows, n), (rows, n), (n), (n) */
    void *y, *dweight, *dbias;
    void *sums;                   /* (parts, 2, n): of dweight and of dbias */
    int64_t rows, n, part, ahead; /* ahead: how far g is fetched before it is read */
    double eps;
    bool rms, streams;
} row_job;

/* xhat = ((x - centre) - rest) scale, with centre + rest the mean to more digits than the dtype has. */
#define ROWS_OF(D, T, V)                                                                                          \
    typedef struct D##_row {                                                                                      \
        V centre, rest, scale;                                                                                    \
    } D##_row;                                                                                                    \
    static inline D##_row D##_row_of(const row_job *j, const T *x /* (n) */, double *rstd) {                      \
        norm_moments m = D##_line_moments(x, j->n, !j->rms, j->n <= NORM_BLOCK ? x + j->n : NULL);                \
        T centre = (T)m.mean;                                                                                     \
        *rstd = 1 / sqrt(m.square / (double)j->n + j->eps);                                                       \
        return (D##_row){D##_set1(centre), D##_set1((T)((m.mean - (double)centre) * *rstd)), D##_set1((T)*rstd)}; \
    }                                                                                                             \
    SIMD_INLINE V D##_hat(D##_row r, V x) { return D##_sub(D##_mul(D##_sub(x, r.centre), r.scale), r.rest); }     \
    static void D##_rows(void *ctx, int64_t chunk, int worker) {                                                  \
        enum { L = D##_lanes };                                                                                   \
        (void)worker;                                                                                             \
        const row_job *j = ctx;                                                                                   \
        const T *w = j->weight, *b = j->bias;                                                                     \
        const int64_t n = j->n, end = ct__min64((chunk + 1) * j->part, j->rows);                                  \
        for (int64_t row = chunk * j->part; row < end; row++) {                                                   \
            const T *x = (const T *)j->x + row * n;                                                               \
            T *y = (T *)j->y + row * n;                                                                           \
            double rstd;                                                                                          \
            const D##_row r = D##_row_of(j, x, &rstd);                                                            \
            int64_t i = 0;                                                                                        \
            for (; i + L <= n; i += L) {                                                                          \
                V v = D##_hat(r, D##_load(x + i));                                                                \
                if (w) v = D##_mul(v, D##_load(w + i));                                                           \
                if (b) v = D##_add(v, D##_load(b + i));                                                           \
                if (j->streams) D##_stream(y + i, v);                                                             \
                else D##_store(y + i, v);                                                                         \
            }                                                                                                     \
            if (i < n) {                                                                                          \
                const int k = (int)(n - i);                                                                       \
                V v = D##_hat(r, D##_load_n(x + i, k));                                                           \
                if (w) v = D##_mul(v, D##_load_n(w + i, k));                                                      \
                if (b) v = D##_add(v, D##_load_n(b + i, k));                                                      \
                D##_store_n(y + i, v, k);                                                                         \
            }                                                                                                     \
        }                                                                                                         \
        if (j->streams) simd_fence();                                                                             \
    }                                                                                                             \
    static void D##_row_grads(void *ctx, int64_t chunk, int worker) {                                             \
        enum { L = D##_lanes };                                                                                   \
        (void)worker;                                                                                             \
        const row_job *j = ctx;                                                                                   \
        const T *w = j->weight;                                                                                   \
        const int64_t n = j->n, end = ct__min64((chunk + 1) * j->part, j->rows);                                  \
        T *dw = j->dweight ? (T *)j->sums + chunk * 2 * n : NULL,                                                 \
          *db = j->dbias ? (T *)j->sums + (chunk * 2 + 1) * n : NULL;                                             \
        if (dw) memset(dw, 0, (size_t)n * sizeof(T));                                                             \
        if (db) memset(db, 0, (size_t)n * sizeof(T));                                                             \
        const V one = D##_set1(1);                                                                                \
        for (int64_t row = chunk * j->part; row < end; row++) {                                                   \
            const T *x = (const T *)j->x + row * n, *g = (const T *)j->g + row * n;                               \
            double rstd;                                                                                          \
            const D##_row r = D##_row_of(j, x, &rstd);                                                            \
            V s0 = D##_set1(0), s1 = s0, p0 = s0, p1 = s0;                                                        \
            int64_t i = 0;                                                                                        \
            for (; i + 2 * L <= n; i += 2 * L) {                                                                  \
                NORM_FETCH(g + i + j->ahead, 2 * L);                                                              \
                V g0 = D##_load(g + i), g1 = D##_load(g + i + L);                                                 \
                V h0 = D##_hat(r, D##_load(x + i)), h1 = D##_hat(r, D##_load(x + i + L));                         \
                if (dw) {                                                                                         \
                    D##_store(dw + i, D##_fma(g0, h0, D##_load(dw + i)));                                         \
                    D##_store(dw + i + L, D##_fma(g1, h1, D##_load(dw + i + L)));                                 \
                }                                                                                                 \
                if (db) {                                                                                         \
                    D##_store(db + i, D##_add(g0, D##_load(db + i)));                                             \
                    D##_store(db + i + L, D##_add(g1, D##_load(db + i + L)));                                     \
                }                                                                                                 \
                if (w) g0 = D##_mul(g0, D##_load(w + i)), g1 = D##_mul(g1, D##_load(w + i + L));                  \
                s0 = D##_add(s0, g0), s1 = D##_add(s1, g1);                                                       \
                p0 = D##_fma(g0, h0, p0), p1 = D##_fma(g1, h1, p1);                                               \
            }                                                                                                     \
            for (; i < n; i += L) { /* lanes beyond the end have g = 0 */                                         \
                const int k = (int)ct__min64(n - i, L);                                                           \
                V g0 = D##_load_n(g + i, k), h0 = D##_hat(r, D##_load_n(x + i, k));                               \
                if (dw) D##_store_n(dw + i, D##_fma(g0, h0, D##_load_n(dw + i, k)), k);                           \
                if (db) D##_store_n(db + i, D##_add(g0, D##_load_n(db + i, k)), k);                               \
                if (w) g0 = D##_mul(g0, D##_load_n(w + i, k));                                                    \
                s0 = D##_add(s0, g0);                                                                             \
                p0 = D##_fma(g0, h0, p0);                                                                         \
            }                                                                                                     \
            if (!j->y) continue;                                                                                  \
            T *dx = (T *)j->y + row * n;                                                                          \
            if (j->rms && n == 1) { /* 1 - xhat^2 = eps rstd^2, of which a difference would leave nothing */      \
                dx[0] = (T)((double)g[0] * (w ? (double)w[0] : 1) * j->eps * rstd * rstd * rstd);                 \
                continue;                                                                                         \
            }                                                                                                     \
            const double mean = j->rms ? 0 : (double)D##_hsum(D##_add(s0, s1)) / (double)n;                       \
            const V middle = D##_set1((T)mean),                                                                   \
                    minus_turn = D##_set1((T)(-(double)D##_hsum(D##_add(p0, p1)) / (double)n));                   \
            for (i = 0; i < n; i += L) { /* differences first: rstd may be large, and rounded is not itself */    \
                const int k = (int)ct__min64(n - i, L);                                                           \
                V gi = k == L ? D##_load(g + i) : D##_load_n(g + i, k);                                           \
                V xi = k == L ? D##_load(x + i) : D##_load_n(x + i, k);                                           \
                V wi = !w ? one : k == L ? D##_load(w + i) : D##_load_n(w + i, k);                                \
                V d = D##_mul(D##_fma(D##_hat(r, xi), minus_turn, D##_sub(D##_mul(gi, wi), middle)), r.scale);    \
                if (k < L) D##_store_n(dx + i, d, k);                                                             \
                else if (j->streams) D##_stream(dx + i, d);                                                       \
                else D##_store(dx + i, d);                                                                        \
            }                                                                                                     \
        }                                                                                                         \
        if (j->streams) simd_fence();                                                                             \
    }                                                                                                             \
    /* The chunks' sums, in order. */                                                                             \
    static void D##_columns(void *ctx, int64_t chunk, int worker) {                                               \
        (void)worker;                                                                                             \
        const row_job *j = ctx;                                                                                   \
        const int64_t parts = (j->rows + j->part - 1) / j->part, first = chunk * COLUMNS,                         \
                      end = ct__min64(first + COLUMNS, j->n);                                                     \
        for (int which = 0; which < 2; which++) {                                                                 \
            T *to = which ? j->dbias : j->dweight;                                                                \
            if (!to) continue;                                                                                    \
            memset(to + first, 0, (size_t)(end - first) * sizeof(T));                                             \
            for (int64_t p = 0; p < parts; p++) {                                                                 \
                const T *from = (const T *)j->sums + (p * 2 + which) * j->n;                                      \
                for (int64_t i = first; i < end; i++) to[i] += from[i];                                           \
            }                                                                                                     \
        }                                                                                                         \
    }
ROWS_OF(f32, float, vf32)
ROWS_OF(f64, double, vf64)

static const char *can_rows(const ct_call *call) { return norm_can(call, call->in[0]->dtype); }

static bool run_row_norm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_attrs *a = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    const size_t size = ct_dtype_size(x->dtype);
    row_job j = {.x = ct__address(x, size), .y = ct__address(y, size), .rows = x->dims[0], .n = x->dims[1]};
    if (j.rows == 0 || j.n == 0) return true;
    if (call->in[1]) j.weight = ct__address(call->in[1], size);
    if (call->in[2]) j.bias = ct__address(call->in[2], size);
    j.eps = a->eps, j.rms = a->rms;
    j.streams = norm_streams(j.y, j.n * (int64_t)size, j.rows * j.n * (int64_t)size);
    j.part = ct__max64(ct__grain(32768) / j.n, 1);
    ct__parallel((j.rows + j.part - 1) / j.part, x->dtype == CT_F32 ? f32_rows : f64_rows, &j);
    return true;
}

/* Rows of a chunk: few chunks, since each has sums of its own. */
static int64_t rows_a_part(int64_t rows) { return ct__max64(ct__grain((rows + PARTS - 1) / PARTS), 1); }

static size_t grad_scratch(const ct_call *call) {
    const ct_view *x = call->in[1];
    const int64_t part = rows_a_part(x->dims[0]);
    return (size_t)((x->dims[0] + part - 1) / part * 2 * x->dims[1]) * ct_dtype_size(x->dtype);
}

static bool run_row_norm_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[1];
    const size_t size = ct_dtype_size(x->dtype);
    row_job j = {.x = ct__address(x, size), .g = ct__address(call->in[0], size), .rows = x->dims[0], .n = x->dims[1]};
    if (call->in[2]) j.weight = ct__address(call->in[2], size);
    void **to[] = {&j.y, &j.dweight, &j.dbias};
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i]) *to[i] = ct__address(call->out[i], size);
    j.sums = ct__scratch(call);
    j.eps = a->eps, j.rms = a->rms;
    j.streams = j.y && norm_streams(j.y, j.n * (int64_t)size, j.rows * j.n * (int64_t)size);
    j.part = rows_a_part(j.rows);
    j.ahead = ct__max64(ct__min64(j.n, NORM_BLOCK), 768);
    if (j.n == 0) return true;
    const bool f32 = x->dtype == CT_F32;
    ct__parallel((j.rows + j.part - 1) / j.part, f32 ? f32_row_grads : f64_row_grads, &j);
    if (j.dweight || j.dbias) ct__parallel((j.n + COLUMNS - 1) / COLUMNS, f32 ? f32_columns : f64_columns, &j);
    return true;
}

CT_KERNELS(norm_row_norm) = {
    CT_CANDIDATES(row_norm, {"rows", can_rows, NULL, run_row_norm}),
    CT_CANDIDATES(row_norm_grad, {"rows", can_rows, grad_scratch, run_row_norm_grad}),
    {0},
};
