/* Workloads of recurrent networks: weights as a layer would begin with, so that gates are not saturated. */
#include <math.h>

#include "cli/bench.h"

enum { STEPS = 64, BATCH = 32, WIDTH = 256, WEIGHTS = 4 };

typedef struct network {
    bool gru;
    ct_tensor *x, *cotangent, *weights[WEIGHTS];
} network;

static bool run_network(void *context) {
    network *w = context;
    bool ok = false;
    ct_scope {
        ct_tensor *y = w->gru ? ct_gru(w->x, w->weights, WEIGHTS) : ct_lstm(w->x, w->weights, WEIGHTS);
        ok = ct_backward_from(y, w->cotangent, 0);
        for (int i = 0; i < WEIGHTS; i++) ct_set_grad(w->weights[i], NULL);
    }
    return ok;
}

/* In f32, or with ct_autocast in bf16. */
static bool measure_network(bool gru, ct_dtype dtype, double min_time, bench_result *result) {
    const int64_t rows = (gru ? 3 : 4) * WIDTH;
    const double bound = 1 / sqrt(WIDTH);
    bool ok = false;
    network w = {.gru = gru,
                 .x = ct_randn(CT_DIMS(STEPS, BATCH, WIDTH)),
                 .cotangent = ct_randn(CT_DIMS(STEPS, BATCH, WIDTH), .dtype = dtype)};
    for (int i = 0; i < WEIGHTS; i++)
        w.weights[i] =
            ct_set_requires_grad(ct_uniform(i < 2 ? CT_DIMS(rows, WIDTH) : CT_DIMS(rows), -bound, bound), true);
    ct_autocast(dtype) ok = ct_ok() && bench_measure(run_network, &w, min_time, result);
    return ok;
}

bool bench_lstm(double min_time, bench_result *result) { return measure_network(false, CT_F32, min_time, result); }
bool bench_gru(double min_time, bench_result *result) { return measure_network(true, CT_F32, min_time, result); }
bool bench_lstm_bf16(double min_time, bench_result *result) {
    return measure_network(false, CT_BF16, min_time, result);
}
bool bench_gru_bf16(double min_time, bench_result *result) { return measure_network(true, CT_BF16, min_time, result); }
