/* The kernel of dropout_replay: element i, in row-major order, is kept where word i of the position is at least p 2^32. */
#include "backends/cpu/kernel.h"
#include "ops/create/cpu/generate.h"
#include "ops/create/cpu/rows.h"
#include "ops/index/cpu/half_rows.h"
#include "ops/random/cpu/philox.h"
#include "ops/random/cpu/position.h"

#include "gen/dropout.attrs.h"

enum { WORDS = GENERATE_BLOCK };

typedef struct dropout_job {
    rows rows;
    ct_random at;
    ct_dtype dtype;
    const char *x;
    char *y;
    uint64_t threshold;
    double scale;
    int64_t chunk;
} dropout_job;

#define KEEP(type)                                                                                                    \
    static void keep_##type(const uint32_t *words, const type *x, int64_t x_step, type *y, int64_t y_step, int64_t n, \
                            uint32_t threshold, type scale) {                                                         \
        if (x_step == 1 && y_step == 1)                                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = words[i] >= threshold ? x[i] * scale : 0;                          \
        else                                                                                                          \
            for (int64_t i = 0; i < n; i++) y[i * y_step] = words[i] >= threshold ? x[i * x_step] * scale : 0;        \
    }
KEEP(float)
KEEP(double)

static void dropout_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const dropout_job *j = context;
    const int64_t size = (int64_t)ct_dtype_size(j->dtype), end = ct__min64((chunk + 1) * j->chunk, j->rows.count);
    for (int64_t first = chunk * j->chunk; first < end; first += WORDS) {
        uint32_t words[WORDS];
        const int64_t last = ct__min64(first + WORDS, end);
        philox_fill(j->at, (uint64_t)first, (int)(last - first), words);
        for (int64_t i = first; i < last;) {
            const rows_run run = rows_at(&j->rows, i, last);
            const uint32_t *word = words + (i - first), threshold = (uint32_t)j->threshold;
            const void *x = j->x + run.at[1] * size;
            void *y = j->y + run.at[0] * size;
            if (j->dtype == CT_F32) {
                keep_float(word, x, run.step[1], y, run.step[0], run.n, threshold, (float)j->scale);
            } else if (j->dtype == CT_F64) {
                keep_double(word, x, run.step[1], y, run.step[0], run.n, threshold, j->scale);
            } else { /* rounded once, behind the product */
                float wide[WORDS];
                const bool bf16 = j->dtype == CT_BF16;
                half_load(wide, x, run.step[1], run.n, bf16);
                keep_float(word, wide, 1, wide, 1, run.n, threshold, (float)j->scale);
                half_store(y, run.step[0], wide, run.n, bf16);
            }
            i += run.n;
        }
    }
}

static void zero_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const dropout_job *j = context;
    const int64_t size = (int64_t)ct_dtype_size(j->dtype), end = ct__min64((chunk + 1) * j->chunk, j->rows.count);
    for (int64_t i = chunk * j->chunk; i < end;) {
        const rows_run run = rows_at(&j->rows, i, end);
        for (int64_t k = 0; k < run.n; k++) memset(j->y + (run.at[0] + k * run.step[0]) * size, 0, (size_t)size);
        i += run.n;
    }
}

static bool drop(const ct_call *call, ct_random at, double p) {
    const ct_view *x = call->in[0], *y = call->out[0];
    const size_t size = ct_dtype_size(y->dtype);
    dropout_job j = {.rows = rows_of(y, x), .dtype = y->dtype, .x = ct__address(x, size), .y = ct__address(y, size)};
    j.at = at;
    j.threshold = (uint64_t)(p * 0x1p32);
    j.scale = 1 / (1 - p);
    j.chunk = (ct__grain(GENERATE_CHUNK) + WORDS - 1) / WORDS * WORDS;
    const bool none = j.threshold > UINT32_MAX; /* p is 1, or as good as */
    ct__parallel((j.rows.count + j.chunk - 1) / j.chunk, none ? zero_chunk : dropout_chunk, &j);
    return true;
}

static bool run_replay(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return drop(call, ct__position(call->in[1]), ((const dropout_replay_attrs *)call->attrs)->p);
}

static bool run_draw(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const dropout_draw_attrs *a = call->attrs;
    if (call->n_out > 1 && call->out[1]) {
        int64_t *position = (int64_t *)ct__address(call->out[1], 8);
        const int64_t at[3] = {a->seed, a->stream, a->call};
        for (int i = 0; i < 3; i++) position[i * call->out[1]->strides[0]] = at[i];
    }
    return !call->out[0] || drop(call, (ct_random){(uint64_t)a->seed, (uint64_t)a->stream, (uint64_t)a->call}, a->p);
}

CT_KERNELS(dropout_dropout) = {
    CT_CANDIDATES(dropout_draw, {"philox", NULL, NULL, run_draw}),
    CT_CANDIDATES(dropout_replay, {"philox", NULL, NULL, run_replay}),
    {0},
};
