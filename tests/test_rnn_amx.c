/* Recurrent networks on kernels in matrix registers (amx_level.h): weights of bf16 are multiplied there, and results
 * are those of f32, since states and gradients are not rounded for it. */
#include <stdio.h>

#include "tests/harness.h"

#include "tests/amx_level.h"

enum { LSTM, GRU, TANH, RELU };

typedef struct sizes {
    const char *name;
    int cell;
    int64_t steps, batch, inputs, hidden;
    bool states, lengths, bidirectional;
} sizes;

static const sizes cases[] = {
    {"lstm", LSTM, 5, 32, 12, 64, .states = true},
    {"lstm, odd sizes", LSTM, 4, 37, 9, 51, .states = true},
    {"lstm from zero", LSTM, 3, 16, 8, 33, .states = false},
    {"lstm, lengths, both directions", LSTM, 6, 19, 7, 40, .states = true, .lengths = true, .bidirectional = true},
    {"lstm, many rows", LSTM, 2, 150, 5, 20, .states = true},
    {"gru", GRU, 5, 32, 12, 64, .states = true},
    {"gru, lengths, both directions", GRU, 6, 21, 7, 35, .states = true, .lengths = true, .bidirectional = true},
    {"rnn", TANH, 5, 17, 12, 45, .states = true},
    {"rnn of relu, lengths", RELU, 4, 20, 6, 29, .states = true, .lengths = true},
};
enum { CASES = sizeof cases / sizeof *cases, WEIGHTS = 8, RESULTS = 3 + WEIGHTS }; /* y, dx, dh0, then the weights' */

/* What bf16 can hold, as that dtype. */
static ct_tensor *some(ct_dims shape, double bound, ct_dtype dtype) {
    return ct_cast(ct_cast(ct_uniform(shape, -bound, bound), CT_BF16), dtype);
}

static ct_tensor *network(const sizes *c, ct_tensor *x, ct_tensor *h0, ct_tensor *lengths, ct_tensor **w, int n) {
    if (c->cell == LSTM) return ct_lstm(x, w, n, .h0 = h0, .lengths = lengths, .bidirectional = c->bidirectional);
    if (c->cell == GRU) return ct_gru(x, w, n, .h0 = h0, .lengths = lengths, .bidirectional = c->bidirectional);
    return ct_rnn(x, w, n, .h0 = h0, .lengths = lengths, .bidirectional = c->bidirectional, .relu = c->cell == RELU);
}

/* finer: weights that bf16 cannot hold. Returns the number of results, 0 for an error. */
static int compute(const sizes *c, ct_dtype dtype, bool finer, ct_tensor *out[RESULTS]) {
    ct_seed(21);
    const int64_t rows = (c->cell == LSTM ? 4 : c->cell == GRU ? 3 : 1) * c->hidden, ways = c->bidirectional ? 2 : 1;
    ct_tensor *in[2 + WEIGHTS], **w = in + 2, *lengths = NULL;
    in[0] = some(CT_DIMS(c->steps, c->batch, c->inputs), 1, dtype);
    in[1] = some(CT_DIMS(ways, c->batch, c->hidden), 1, dtype);
    const int n = (int)(4 * ways);
    for (int i = 0; i < n; i++) {
        const ct_dims shape = i % 4 == 0   ? CT_DIMS(rows, c->inputs)
                              : i % 4 == 1 ? CT_DIMS(rows, c->hidden)
                                           : CT_DIMS(rows);
        w[i] = some(shape, 0.25, dtype);
        if (finer) w[i] = ct_detach(ct_add_s(w[i], 1e-4));
    }
    if (c->lengths) lengths = ct_randint(CT_DIMS(c->batch), 0, c->steps + 1);
    for (int i = 0; i < 2 + n; i++) ct_set_requires_grad(in[i], true);
    out[0] = network(c, in[0], c->states ? in[1] : NULL, lengths, w, n);
    if (!out[0]) return 0;
    ct_tensor *g = some(ct_shape(out[0]), 1, dtype);
    if (!c->states) in[1] = in[0];
    return ct_grad(&out[0], 1, &g, in, 2 + n, out + 1, 0) ? 3 + n : 0;
}

/* The largest error beyond `relative` of each element and `absolute` of the largest. */
static double beyond(ct_tensor *got, ct_tensor *expected, double relative, double absolute) {
    ct_tensor *error = ct_abs(ct_sub(ct_cast(got, CT_F64), expected)), *size = ct_abs(expected);
    const double most = ct_item(ct_amax(size));
    return ct_item(ct_amax(ct_sub(error, ct_add_s(ct_mul_s(size, relative), absolute * most))));
}

/* bf16: one rounding at the end. f32: none but those of sums and functions. */
TEST(results_are_as_near_to_f64_as_their_dtype_allows) {
    ops_use_amx();
    for (int i = 0; i < CASES; i++) {
        for (int half = 0; half < 2; half++) {
            ct_scope {
                ct_tensor *got[RESULTS], *expected[RESULTS];
                int64_t before = blocks_done;
                const int n = compute(&cases[i], CT_F64, false, expected);
                REQUIRE(n > 0 && blocks_done == before);
                REQUIRE(compute(&cases[i], half ? CT_BF16 : CT_F32, false, got) == n && blocks_done > before);
                for (int k = 0; k < n; k++) {
                    const double worst = beyond(got[k], expected[k], half ? 0.004 : 2e-6, 2e-6);
                    if (!(worst <= 0))
                        printf("%s, %s, result %d: off by %g\n", cases[i].name, half ? "bf16" : "f32", k, worst);
                    CHECK(worst <= 0);
                }
            }
        }
    }
    ops_use_what_there_is();
}

TEST(other_weights_stay_in_vector_registers) {
    ops_use_amx();
    ct_tensor *got[RESULTS], *expected[RESULTS];
    const int64_t before = blocks_done;
    const int n = compute(&cases[1], CT_F64, true, expected);
    REQUIRE(n > 0 && compute(&cases[1], CT_F32, true, got) == n);
    CHECK(blocks_done == before);
    for (int k = 0; k < n; k++) CHECK(beyond(got[k], expected[k], 2e-6, 2e-6) <= 0);
    ops_use_what_there_is();
}

TEST(the_same_bits_at_any_number_of_threads) {
    ops_use_amx();
    for (int i = 0; i < CASES; i++) {
        ct_scope {
            ct_tensor *first[RESULTS], *now[RESULTS];
            for (int threads = 1; threads <= 7; threads += 3) {
                REQUIRE(ct_set_threads(threads));
                const int n = compute(&cases[i], CT_BF16, false, threads == 1 ? first : now);
                REQUIRE(n > 0);
                for (int k = 0; k < n && threads > 1; k++) CHECK(harness_same_bits(first[k], now[k]));
            }
        }
    }
    ct_set_threads(0);
    ops_use_what_there_is();
}
