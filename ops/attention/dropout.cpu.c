/* A position in the random stream as a tensor, and what dropout multiplies by from there: element i takes word i. */
#include "backends/cpu/kernel.h"
#include "ops/attention/position.h"
#include "ops/create/generate.h"
#include "ops/random/philox.h"

#include "gen/attention.attrs.h"

static bool run_position(const ct_call *call, ct_stream *stream) {
    int64_t *to = CT_AT(int64_t, call->out[0]);
    const int64_t step = call->out[0]->strides[0];
    (void)stream;
    to[0] = (int64_t)call->random.seed;
    to[step] = (int64_t)call->random.stream;
    to[2 * step] = (int64_t)call->random.call;
    return true;
}

typedef struct factors_spec {
    ct_random at;
    bool wide;
    uint32_t threshold;
    double keep;
} factors_spec;

static void make_factors(const void *spec, int64_t first, int n, void *to) {
    const factors_spec *s = spec;
    uint32_t words[GENERATE_BLOCK + PHILOX_BATCH];
    philox_fill(s->at, (uint64_t)first, n, words);
    if (s->wide)
        for (int i = 0; i < n; i++) ((double *)to)[i] = words[i] >= s->threshold ? s->keep : 0;
    else
        for (int i = 0; i < n; i++) ((float *)to)[i] = words[i] >= s->threshold ? (float)s->keep : 0;
}

static bool run_factors(const ct_call *call, ct_stream *stream) {
    const dropout_factors_attrs *a = call->attrs;
    (void)stream;
    factors_spec s = {.at = ct__position(call->in[0]),
                      .wide = call->out[0]->dtype == CT_F64,
                      .threshold = (uint32_t)ct__min64((int64_t)(a->p * 0x1p32), UINT32_MAX),
                      .keep = a->p < 1 ? 1 / (1 - a->p) : 0};
    return generate(call->out[0], make_factors, &s);
}

CT_KERNELS(random_position) = {{"random_position", NULL, NULL, run_position}, {0}};
CT_KERNELS(dropout_factors) = {{"dropout_factors", NULL, NULL, run_factors}, {0}};
