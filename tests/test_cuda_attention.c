/* Attention and recurrent layers on an NVIDIA device at sizes beyond the samples of the ops, which fill blocks and leave rests: against the CPU
 * in f64, as views of one tensor, to the second order, with the same bits at every run, and with wrong lengths. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* |a - b| over |b|, both as vectors. */
static double distance(ct_tensor *a, ct_tensor *b) {
    a = ct_cast(ct_to(a, cpu), CT_F64), b = ct_cast(ct_to(b, cpu), CT_F64);
    return sqrt(ct_item(ct_sum(ct_square(ct_sub(a, b)))) / (1e-300 + ct_item(ct_sum(ct_square(b)))));
}

/* Weights and what they are multiplied by are rounded to the dtype, and the results once more. */
static double tolerance(ct_dtype dtype) {
    return dtype == CT_F64 ? 1e-13 : dtype == CT_F32 ? 2e-6 : dtype == CT_F16 ? 1e-3 : 8e-3;
}

/* The same for every device and dtype: what bf16 has of a draw. */
static ct_tensor *numbers_of(uint64_t seed, ct_dims shape, ct_dtype dtype, ct_device d) {
    ct_seed(seed); /* for dropout; the numbers are of a stream of their own, since threads share the default one */
    ct_rng *rng = ct_rng_new(seed, 0);
    ct_tensor *x = ct_randn(shape, .device = cpu, .rng = rng);
    ct_rng_free(rng);
    return ct_to(ct_cast(ct_cast(x, CT_BF16), dtype), d);
}

static ct_tensor *leaf(ct_tensor *x) { return ct_set_requires_grad(ct_detach(x), true); }

/* ---- Attention ---- */

typedef struct attention {
    int64_t batch, heads, kv_heads, tq, tk, d, dv;
    bool causal, bottom_right, views; /* views: of one tensor (B,T,3,H,D) */
    int mask;                         /* 1: truth values, 2: numbers */
    double dropout;
} attention;

/* y, dq, dk, dv on a device, in a dtype, from the same numbers; those are bf16's. */
static bool attend(const attention *a, ct_dtype dtype, ct_device d, ct_tensor *made[4]) {
    ct_tensor *x[3], *mask = NULL;
    if (a->views) {
        ct_tensor *all = numbers_of(1, CT_DIMS(a->batch, a->tq, 3, a->heads, a->d), dtype, d);
        for (int i = 0; i < 3; i++) x[i] = leaf(ct_transpose(ct_select(all, 2, i), 1, 2));
    } else {
        const ct_dims shapes[3] = {CT_DIMS(a->batch, a->heads, a->tq, a->d),
                                   CT_DIMS(a->batch, a->kv_heads, a->tk, a->d),
                                   CT_DIMS(a->batch, a->kv_heads, a->tk, a->dv)};
        for (int i = 0; i < 3; i++) x[i] = leaf(numbers_of(1 + (uint64_t)i, shapes[i], dtype, d));
    }
    if (a->mask) {
        mask = numbers_of(4, CT_DIMS(a->heads, 1, a->tk), dtype, d);
        if (a->mask == 1) mask = ct_gt_s(mask, -0.5);
    }
    ct_tensor *g = numbers_of(5, CT_DIMS(a->batch, a->heads, a->tq, a->dv), dtype, d);
    made[0] = ct_scaled_dot_product_attention(x[0], x[1], x[2], .mask = mask, .causal = a->causal,
                                              .bottom_right = a->bottom_right, .dropout = a->dropout);
    if (!made[0] || !ct_backward_from(made[0], g, 0)) return false;
    for (int i = 0; i < 3; i++) made[1 + i] = ct_grad_of(x[i]);
    return ct_ok();
}

static const attention problems[] = {
    {1, 2, 2, 300, 300, 64, 64, .causal = true},
    {2, 2, 2, 200, 200, 64, 64, .causal = true, .views = true},
    {1, 2, 2, 257, 100, 64, 64, .causal = false},
    {1, 4, 2, 130, 200, 48, 40, .causal = true, .bottom_right = true}, /* more keys than queries */
    {1, 2, 1, 200, 70, 32, 24, .causal = true, .bottom_right = true},  /* queries that see nothing */
    {1, 2, 2, 140, 140, 128, 128, .causal = true},
    {1, 2, 1, 129, 65, 100, 72, .causal = false},
    {33, 2, 2, 5, 7, 17, 17, .causal = false},   /* more heads than run together */
    {1, 2, 2, 150, 150, 50, 50, .causal = true}, /* rows that are not of whole 16 bytes */
    {1, 2, 2, 70, 90, 64, 64, .mask = 1},
    {1, 2, 1, 70, 90, 40, 80, .mask = 2, .causal = true},
    {1, 2, 2, 90, 67, 64, 64, .dropout = 0.25},
    {1, 1, 1, 70, 70, 200, 150, .causal = true}, /* too large for registers */
};

TEST_LIMIT(attention_and_its_gradients_are_the_cpus_at_sizes_that_fill_blocks, 300) {
    CUDA(d);
    static const ct_dtype dtypes[] = {CT_BF16, CT_F16, CT_F32, CT_F64};
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
        for (int t = 0; t < 4; t++)
            ct_scope {
                ct_tensor *here[4], *there[4];
                REQUIRE(attend(&problems[k], CT_F64, cpu, here) && attend(&problems[k], dtypes[t], d, there));
                for (int i = 0; i < 4; i++) {
                    const double off = distance(there[i], here[i]);
                    harness_check(off <= tolerance(dtypes[t]), __FILE__, __LINE__,
                                  "%s of problem %zu in %s is off by %g",
                                  (const char *const[]){"y", "dq", "dk", "dv"}[i], k, ct_dtype_name(dtypes[t]), off);
                }
            }
}

TEST_LIMIT(attention_gives_the_same_bits_every_time, 120) {
    CUDA(d);
    const attention a = {2, 3, 3, 333, 333, 64, 64, .causal = true};
    ct_tensor *once[4], *again[4];
    REQUIRE(attend(&a, CT_BF16, d, once) && attend(&a, CT_BF16, d, again));
    for (int i = 0; i < 4; i++) CHECK(harness_same_bits(ct_to(once[i], cpu), ct_to(again[i], cpu)));
}

/* The gradient of |dq|^2 + |dv|^2. */
static bool second_order(ct_device d, ct_dtype dtype, ct_tensor *made[3]) {
    ct_tensor *x[3], *first[3];
    for (int i = 0; i < 3; i++) x[i] = leaf(numbers_of(1 + (uint64_t)i, CT_DIMS(1, 2, i ? 10 : 9, 6), dtype, d));
    ct_tensor *y = ct_scaled_dot_product_attention(x[0], x[1], x[2], .causal = true), *loss = ct_sum(ct_square(y));
    if (!ct_grad(&loss, 1, NULL, x, 3, first, CT_CREATE_GRAPH)) return false;
    loss = ct_add(ct_sum(ct_square(first[0])), ct_sum(ct_square(first[2])));
    return ct_grad(&loss, 1, NULL, x, 3, made, 0);
}

TEST_LIMIT(attention_is_differentiable_twice, 120) {
    CUDA(d);
    ct_tensor *here[3], *there[3], *single[3];
    REQUIRE(second_order(cpu, CT_F64, here) && second_order(d, CT_F64, there) && second_order(d, CT_F32, single));
    for (int i = 0; i < 3; i++) CHECK(distance(there[i], here[i]) < 1e-12 && distance(single[i], here[i]) < 2e-5);
}

/* ---- Recurrent layers ---- */

typedef enum kind { TANH, RELU, LSTM, GRU, KINDS } kind;

typedef struct recurrent {
    int64_t steps, batch, hidden;
    bool bidirectional, lengths;
} recurrent;

enum { FEATURES = 24, MOST_WEIGHTS = 8 };

/* y and the gradients of x, the initial state and all weights. Returns how many, 0 after an error. */
static int recur(const recurrent *r, kind k, ct_dtype dtype, ct_device d, ct_tensor **made) {
    const int64_t gates = k == LSTM ? 4 : k == GRU ? 3 : 1, h = r->hidden;
    const int directions = r->bidirectional ? 2 : 1, count = 4 * directions;
    ct_tensor *w[MOST_WEIGHTS], *lengths = NULL;
    for (int i = 0; i < count; i++) {
        const ct_dims shape = i % 4 == 0   ? CT_DIMS(gates * h, FEATURES)
                              : i % 4 == 1 ? CT_DIMS(gates * h, h)
                                           : CT_DIMS(gates * h);
        w[i] = leaf(ct_mul_s(numbers_of(1 + (uint64_t)i, shape, dtype, d), 1.0 / 32));
    }
    ct_tensor *x = leaf(numbers_of(11, CT_DIMS(r->steps, r->batch, FEATURES), dtype, d));
    ct_tensor *h0 = leaf(numbers_of(12, CT_DIMS(directions, r->batch, h), dtype, d));
    if (r->lengths) {
        double numbers[256];
        for (int64_t i = 0; i < r->batch; i++) numbers[i] = (double)((7 * i + 3) % (r->steps + 1));
        lengths = ct_to(harness_tensor(CT_I64, CT_DIMS(r->batch), numbers, (int)r->batch), d);
    }
    ct_tensor *h_n = NULL, *y = NULL;
    if (k == LSTM)
        y = ct_lstm(x, w, count, .h0 = h0, .lengths = lengths, .bidirectional = r->bidirectional, .h_n = &h_n);
    else if (k == GRU)
        y = ct_gru(x, w, count, .h0 = h0, .lengths = lengths, .bidirectional = r->bidirectional, .h_n = &h_n);
    else
        y = ct_rnn(x, w, count, .h0 = h0, .lengths = lengths, .bidirectional = r->bidirectional, .h_n = &h_n,
                   .relu = k == RELU);
    if (!y || !ct_backward(ct_add(ct_sum(ct_square(y)), ct_sum(h_n)))) return 0;
    int n = 0;
    made[n++] = y, made[n++] = h_n, made[n++] = ct_grad_of(x), made[n++] = ct_grad_of(h0);
    for (int i = 0; i < count; i++) made[n++] = ct_grad_of(w[i]);
    return ct_ok() ? n : 0;
}

enum { MOST_MADE = 4 + MOST_WEIGHTS };

TEST_LIMIT(recurrent_layers_and_their_gradients_are_the_cpus, 600) {
    CUDA(d);
    static const recurrent layers[] = {{5, 3, 40, .lengths = true},
                                       {7, 70, 150, .bidirectional = true, .lengths = true},
                                       {9, 20, 512, .bidirectional = true},
                                       {3, 400, 128, .lengths = false}, /* more groups of sequences than run together */
                                       {2, 5, 700, .lengths = false}};  /* too many units for registers */
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_BF16};
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++)
        for (int k = 0; k < KINDS; k++)
            for (int t = 0; t < 3; t++)
                ct_scope {
                    ct_tensor *here[MOST_MADE], *there[MOST_MADE];
                    const int n = recur(&layers[l], (kind)k, CT_F64, cpu, here);
                    REQUIRE(n > 0 && recur(&layers[l], (kind)k, dtypes[t], d, there) == n);
                    /* every step rounds what the next one reads */
                    const double unit = dtypes[t] == CT_F64 ? 1e-12 : dtypes[t] == CT_F32 ? 1e-5 : 0.05;
                    for (int i = 0; i < n; i++) {
                        const double off = distance(there[i], here[i]);
                        harness_check(off <= unit, __FILE__, __LINE__,
                                      "result %d of layer %zu, cell %d in %s is off by %g", i, l, k,
                                      ct_dtype_name(dtypes[t]), off);
                    }
                }
}

static void *recur_alone(void *device) {
    const recurrent r = {20, 33, 96, .lengths = false};
    bool same = true;
    ct_scope {
        ct_tensor *made[2][MOST_MADE];
        for (int i = 0; i < 2; i++) same = recur(&r, LSTM, CT_F32, *(ct_device *)device, made[i]) > 0 && same;
        for (int i = 0; same && i < 8; i++) same = harness_same_bits(ct_to(made[0][i], cpu), ct_to(made[1][i], cpu));
    }
    return same && ct_ok() ? device : NULL;
}

TEST_LIMIT(recurrent_layers_of_several_threads_give_the_same_bits_every_time, 120) {
    CUDA(d);
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, recur_alone, &d) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        CHECK(pthread_join(threads[i], &result) == 0 && result != NULL);
    }
}

TEST_LIMIT(a_wrong_length_is_an_error_and_the_device_goes_on, 120) {
    CUDA(d);
    ct_tensor *w[] = {ct_to(harness_randn(CT_DIMS(12, 3)), d), ct_to(harness_randn(CT_DIMS(12, 3)), d)};
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(4, 2, 3)), d), *lengths = ct_to(I64(CT_DIMS(2), 3, 9), d);
    ct_lstm(x, w, 2, .lengths = lengths);
    CHECK(!ct_synchronize(d) && ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    CHECK(isfinite(ct_item(ct_sum(ct_lstm(x, w, 2)))));
}
