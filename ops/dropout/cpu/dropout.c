/* The kernel of dropout_replay: element i, in row-major order, is kept where word i of the position is at least p 2^32. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/step.h"
#include "ops/create/cpu/generate.h"
#include "ops/create/cpu/rows.h"
#include "ops/index/cpu/half_rows.h"
#include "ops/random/cpu/philox/philox.h"
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

static void keep(const dropout_job *j, const uint32_t *words, const void *x, int64_t x_step, void *y, int64_t y_step,
                 int64_t n) {
    const uint32_t threshold = (uint32_t)j->threshold;
    if (j->dtype == CT_F32) {
        keep_float(words, x, x_step, y, y_step, n, threshold, (float)j->scale);
    } else if (j->dtype == CT_F64) {
        keep_double(words, x, x_step, y, y_step, n, threshold, j->scale);
    } else { /* rounded once, behind the product */
        float wide[WORDS];
        const bool bf16 = j->dtype == CT_BF16;
        half_load(wide, x, x_step, n, bf16);
        keep_float(words, wide, 1, wide, 1, n, threshold, (float)j->scale);
        half_store(y, y_step, wide, n, bf16);
    }
}

static void dropout_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const dropout_job *j = context;
    const int64_t size = (int64_t)ct_dtype_size(j->dtype), end = ct__min64((chunk + 1) * j->chunk, j->rows.count);
    for (int64_t first = chunk * j->chunk; first < end; first += WORDS) {
        uint32_t words[WORDS];
        const int64_t last = ct__min64(first + WORDS, end);
        CT_ISA_FN(ct__philox_fill)(j->at, (uint64_t)first, (int)(last - first), words);
        for (int64_t i = first; i < last;) {
            const rows_run run = rows_at(&j->rows, i, last);
            const uint32_t *word = words + (i - first);
            const void *x = j->x + run.at[1] * size;
            void *y = j->y + run.at[0] * size;
            keep(j, word, x, run.step[1], y, run.step[0], run.n);
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

static dropout_job job_of(ct_dtype dtype, ct_random at, double p) {
    return (dropout_job){.dtype = dtype, .at = at, .threshold = (uint64_t)(p * 0x1p32), .scale = 1 / (1 - p)};
}

static bool drop(const ct_call *call, ct_random at, double p) {
    const ct_view *x = call->in[0], *y = call->out[0];
    const size_t size = ct_dtype_size(y->dtype);
    dropout_job j = job_of(y->dtype, at, p);
    j.rows = rows_of(y, x);
    j.x = ct__address(x, size);
    j.y = ct__address(y, size);
    j.chunk = (ct__grain(GENERATE_CHUNK) + WORDS - 1) / WORDS * WORDS;
    const bool none = j.threshold > UINT32_MAX; /* p is 1, or as good as */
    ct__parallel((j.rows.count + j.chunk - 1) / j.chunk, none ? zero_chunk : dropout_chunk, &j);
    return true;
}

static bool run_replay(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return drop(call, ct__position(call->in[1]), ((const dropout_replay_attrs *)call->attrs)->p);
}

static ct_random drawn_at(const dropout_draw_attrs *a) {
    return (ct_random){(uint64_t)a->seed, (uint64_t)a->stream, (uint64_t)a->call};
}

static void put_position(const dropout_draw_attrs *a, int64_t *position, int64_t stride) {
    const int64_t at[3] = {a->seed, a->stream, a->call};
    for (int i = 0; i < 3; i++) position[i * stride] = at[i];
}

static bool run_draw(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const dropout_draw_attrs *a = call->attrs;
    if (call->n_out > 1 && call->out[1])
        put_position(a, (int64_t *)ct__address(call->out[1], 8), call->out[1]->strides[0]);
    return !call->out[0] || drop(call, drawn_at(a), a->p);
}

/* ---- As steps of fused calls ---- */

static void drop_part(const dropout_job *j, int64_t first, int64_t n, const char *x, char *y) {
    const int64_t size = (int64_t)ct_dtype_size(j->dtype), end = first + n;
    if (j->threshold > UINT32_MAX) {
        memset(y, 0, (size_t)(n * size));
        return;
    }
    for (int64_t i = first; i < end;) {
        uint32_t words[WORDS];
        const int64_t begin = i / 4 * 4, last = ct__min64(begin + WORDS, end);
        CT_ISA_FN(ct__philox_fill)(j->at, (uint64_t)begin, (int)(last - begin), words);
        keep(j, words + (i - begin), x + (i - first) * size, 1, y + (i - first) * size, 1, last - i);
        i = last;
    }
}

static void replay_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    ct_view position = *call->in[1];
    position.buffer = ptr[1];
    position.offset = 0;
    position.strides[0] = 1;
    const double p = ((const dropout_replay_attrs *)call->attrs)->p;
    const dropout_job j = job_of(call->out[0]->dtype, ct__position(&position), p);
    drop_part(&j, first, n, ptr[0], ptr[2]);
}

static void draw_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    const dropout_draw_attrs *a = call->attrs;
    const dropout_job j = job_of(call->out[0]->dtype, drawn_at(a), a->p);
    drop_part(&j, first, n, ptr[0], ptr[1]);
}

static void draw_begin(const ct_call *call, char *const *ptr) {
    if (ptr[2]) put_position(call->attrs, (int64_t *)(void *)ptr[2], 1);
}

static const ct_cpu_step_more draw_more = {.begin = draw_begin};
static const ct_cpu_step draw_step = {.part = draw_part, .more = &draw_more, .small = 1 << 2, .cost = 12};
static const ct_cpu_step replay_step = {.part = replay_part, .small = 1 << 1, .cost = 12};

CT_KERNELS(dropout_dropout) = {
    CT_CANDIDATES_STEP(dropout_draw, &draw_step, {"philox", NULL, NULL, run_draw}),
    CT_CANDIDATES_STEP(dropout_replay, &replay_step, {"philox", NULL, NULL, run_replay}),
    {0},
};
