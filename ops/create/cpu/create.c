/* Fills memory with one value, for every dtype and stride. */
#include <string.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/step.h"
#include "core/dtype.h"
#include "ops/create/cpu/rows.h"

#include "gen/create.attrs.h"

enum { CHUNK_BYTES = 1 << 18 };

typedef struct fill {
    rows rows;
    char *y;
    size_t size;   /* of an element */
    int64_t chunk; /* elements */
    bool bytes;    /* all bytes of an element are alike: memset will do */
    char element[16];
} fill;

static void fill_run(const fill *f, char *y, int64_t n, int64_t step) {
    if (step == 1 && f->bytes) {
        memset(y, f->element[0], (size_t)n * f->size);
        return;
    }
#define FILL(size, type)                                          \
    case size: {                                                  \
        type value;                                               \
        memcpy(&value, f->element, sizeof value);                 \
        type *to = (type *)y;                                     \
        if (step == 1)                                            \
            for (int64_t i = 0; i < n; i++) to[i] = value;        \
        else                                                      \
            for (int64_t i = 0; i < n; i++) to[i * step] = value; \
        return;                                                   \
    }
    switch (f->size) {
        FILL(1, uint8_t)
        FILL(2, uint16_t)
        FILL(4, uint32_t)
        FILL(8, uint64_t)
    }
#undef FILL
}

static void fill_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const fill *f = context;
    int64_t first = chunk * f->chunk, end = ct__min64(first + f->chunk, f->rows.count);
    while (first < end) {
        rows_run run = rows_at(&f->rows, first, end);
        fill_run(f, f->y + run.at[0] * (int64_t)f->size, run.n, run.step[0]);
        first += run.n;
    }
}

static bool fill_with(const ct_call *call, double value) {
    const ct_view *y = call->out[0];
    size_t size = ct_dtype_size(y->dtype);
    fill f = {.rows = rows_of(y, NULL),
              .size = size,
              .y = ct__address(y, size),
              .chunk = ct__grain(CHUNK_BYTES / (int64_t)size)};
    ct__dtype_put(y->dtype, f.element, value);
    f.bytes = true;
    for (size_t i = 1; i < size; i++) f.bytes &= f.element[i] == f.element[0];
    ct__parallel((f.rows.count + f.chunk - 1) / f.chunk, fill_chunk, &f);
    return true;
}

/* ---- As steps of fused calls ---- */

static void fill_part(const ct_call *call, int64_t n, char *to, double value) {
    const ct_dtype dtype = call->out[0]->dtype;
    fill f = {.size = ct_dtype_size(dtype)};
    ct__dtype_put(dtype, f.element, value);
    fill_run(&f, to, n, 1);
}

#define PART(name, value)                                                                      \
    static void name##_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) { \
        (void)first;                                                                           \
        fill_part(call, n, ptr[call->n_in], value);                                            \
    }                                                                                          \
    static const ct_cpu_step name##_step = {.part = name##_part, .cost = 1};
PART(zeros, 0)
PART(ones, 1)
PART(full, ((const full_attrs *)call->attrs)->value)
PART(full_like, ((const full_like_attrs *)call->attrs)->value)

static bool run_zeros(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, 0);
}

static bool run_ones(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, 1);
}

static bool run_full(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, ((const full_attrs *)call->attrs)->value);
}

static bool run_full_like(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, ((const full_like_attrs *)call->attrs)->value);
}

static bool run_empty(const ct_call *call, ct_stream *stream) {
    (void)call;
    (void)stream;
    return true;
}

CT_KERNELS(create_create) = {
    CT_CANDIDATES_STEP(zeros, &zeros_step, {"fill", NULL, NULL, run_zeros}),
    CT_CANDIDATES_STEP(ones, &ones_step, {"fill", NULL, NULL, run_ones}),
    CT_CANDIDATES_STEP(full, &full_step, {"fill", NULL, NULL, run_full}),
    CT_CANDIDATES(empty, {"leave", NULL, NULL, run_empty}),
    CT_CANDIDATES_STEP(zeros_like, &zeros_step, {"fill", NULL, NULL, run_zeros}),
    CT_CANDIDATES_STEP(ones_like, &ones_step, {"fill", NULL, NULL, run_ones}),
    CT_CANDIDATES_STEP(full_like, &full_like_step, {"fill", NULL, NULL, run_full_like}),
    CT_CANDIDATES(empty_like, {"leave", NULL, NULL, run_empty}),
    {0},
};
