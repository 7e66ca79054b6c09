/* Workloads that are more than one op: the product engine by itself, the cost of a call. */
#include <stdlib.h>

#include "backends/cpu/gemm/gemm.h" /* not public: gemm_* measure the engine without what a call of an op costs */
#include "cli/bench.h"

/* ---- The product engine at its entry ---- */

typedef struct product {
    ct_gemm gemm;
    void *scratch;
} product;

static bool run_product(void *context) {
    product *p = context;
    return ct__gemm(&p->gemm, p->scratch);
}

static bool measure_product(int64_t n, double min_time, bench_result *result) {
    ct_tensor *a = ct_randn(CT_DIMS(n, n)), *b = ct_randn(CT_DIMS(n, n)), *c = ct_zeros(CT_DIMS(n, n));
    product p = {
        .gemm = {.m = n, .n = n, .k = n, .a_row = n, .a_col = 1, .b_row = n, .b_col = 1, .c_row = n, .c_col = 1}};
    p.gemm.a = ct_data(a);
    p.gemm.b = ct_data(b);
    p.gemm.c = ct_data_mut(c);
    size_t bytes = ct__gemm_scratch(&p.gemm);
    if (!ct_ok()) return false;
    if (bytes && !(p.scratch = aligned_alloc(64, (bytes + 63) & ~(size_t)63)))
        return ct_fail(CT_ERR_MEMORY, "bench", "no memory for a product");
    bool ok = bench_measure(run_product, &p, min_time, result);
    free(p.scratch);
    return ok;
}

bool bench_gemm_8(double min_time, bench_result *result) { return measure_product(8, min_time, result); }
bool bench_gemm_16(double min_time, bench_result *result) { return measure_product(16, min_time, result); }
bool bench_gemm_32(double min_time, bench_result *result) { return measure_product(32, min_time, result); }
bool bench_gemm_48(double min_time, bench_result *result) { return measure_product(48, min_time, result); }
bool bench_gemm_64(double min_time, bench_result *result) { return measure_product(64, min_time, result); }

/* ---- The cost of a call, on four elements. Each function takes the time that CALLS calls need. ---- */

enum { CALLS = 1000, ROUNDS = 61 };

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of ROUNDS rounds, after a few that are not counted. */
static bool measure_calls(double (*round)(void), bench_result *result) {
    double seconds[ROUNDS];
    for (int i = 0; i < 5; i++) round();
    for (int i = 0; i < ROUNDS; i++) seconds[i] = round();
    if (!ct_ok()) return false;
    qsort(seconds, ROUNDS, sizeof *seconds, by_time);
    *result = (bench_result){.median = seconds[ROUNDS / 2], .least = seconds[0], .repetitions = ROUNDS};
    return true;
}

static double round_empty(void) {
    double start = bench_now();
    for (int i = 0; i < CALLS; i++)
        ct_scope {
            ct_empty(CT_DIMS(4));
        }
    return bench_now() - start;
}

static double round_inplace(void) {
    double seconds = 0;
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(4)), *y = ct_zeros(CT_DIMS(4));
        double start = bench_now();
        for (int i = 0; i < CALLS; i++) ct_add_(y, x);
        seconds = bench_now() - start;
    }
    return seconds;
}

/* The release of the results is part of the time. */
static double round_nograd(void) {
    double seconds = 0;
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(4)), *y = x;
        double start = bench_now();
        ct_scope {
            for (int i = 0; i < CALLS; i++) y = ct_add(y, x);
        }
        seconds = bench_now() - start;
    }
    return seconds;
}

static double round_recorded(void) {
    double seconds = 0;
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(4)), *y = ct_set_requires_grad(ct_zeros(CT_DIMS(4)), true);
        double start = bench_now();
        for (int i = 0; i < CALLS; i++) y = ct_add(y, x);
        seconds = bench_now() - start;
    }
    return seconds;
}

static double round_backward(void) {
    double seconds = 0;
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(4)), *y = ct_set_requires_grad(ct_zeros(CT_DIMS(4)), true);
        for (int i = 0; i < CALLS; i++) y = ct_add(y, x);
        double start = bench_now();
        ct_backward_from(y, x, 0);
        seconds = bench_now() - start;
    }
    return seconds;
}

/* Calls that change nothing from one to the next: f(x, w), each released at once. */
static double round_calls(ct_dims x_shape, ct_dims w_shape, ct_tensor *(*f)(ct_tensor *x, ct_tensor *w)) {
    double seconds = 0;
    ct_scope {
        ct_tensor *x = ct_ones(x_shape), *w = ct_ones(w_shape);
        double start = bench_now();
        ct_scope {
            for (int i = 0; i < CALLS; i++) f(x, w);
        }
        seconds = bench_now() - start;
    }
    return seconds;
}

static ct_tensor *call_scalar(ct_tensor *x, ct_tensor *w) {
    (void)w;
    return ct_add_s(x, 2.0);
}
static ct_tensor *call_add(ct_tensor *x, ct_tensor *w) { return ct_add(x, w); }
static ct_tensor *call_linear(ct_tensor *x, ct_tensor *w) { return ct_linear(x, w); }
static ct_tensor *call_conv(ct_tensor *x, ct_tensor *w) { return ct_conv2d(x, w); }
static ct_tensor *call_reshape(ct_tensor *x, ct_tensor *w) {
    (void)w;
    return ct_reshape(x, CT_DIMS(2, 2));
}
static double round_scalar(void) { return round_calls(CT_DIMS(4), CT_DIMS(1), call_scalar); }
static double round_broadcast(void) { return round_calls(CT_DIMS(2, 2), CT_DIMS(2), call_add); }
static double round_reshape(void) { return round_calls(CT_DIMS(4), CT_DIMS(1), call_reshape); }
static double round_linear(void) { return round_calls(CT_DIMS(2, 2), CT_DIMS(2, 2), call_linear); }
static double round_conv(void) { return round_calls(CT_DIMS(1, 1, 3, 3), CT_DIMS(1, 1, 2, 2), call_conv); }

#define OVERHEAD(name)                                                  \
    bool bench_overhead_##name(double min_time, bench_result *result) { \
        (void)min_time;                                                 \
        return measure_calls(round_##name, result);                     \
    }
OVERHEAD(empty)
OVERHEAD(inplace)
OVERHEAD(nograd)
OVERHEAD(recorded)
OVERHEAD(backward)
OVERHEAD(scalar)
OVERHEAD(broadcast)
OVERHEAD(reshape)
OVERHEAD(linear)
OVERHEAD(conv)
