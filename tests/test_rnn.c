/* Recurrent networks beyond the generated suite: lengths, layers, dropout, half types, batches of more than one block. */
#include <math.h>

#include "tests/harness.h"

static ct_tensor *uniform(ct_dims shape, ct_dtype dtype) { return ct_uniform(shape, -0.5, 0.5, .dtype = dtype); }

static double distance(ct_tensor *a, ct_tensor *b) {
    return ct_item(ct_amax(ct_abs(ct_sub(ct_cast(ct_detach(a), CT_F64), ct_cast(ct_detach(b), CT_F64)))));
}

enum { MOST = 16 };

/* Weights of all layers and directions, with both biases. */
static int weights(ct_tensor **w, int64_t gates, int64_t in, int64_t hidden, int layers, int directions,
                   ct_dtype dtype) {
    int n = 0;
    for (int s = 0; s < layers * directions; s++) {
        w[n++] = uniform(CT_DIMS(gates * hidden, s < directions ? in : hidden * directions), dtype);
        w[n++] = uniform(CT_DIMS(gates * hidden, hidden), dtype);
        w[n++] = uniform(CT_DIMS(gates * hidden), dtype);
        w[n++] = uniform(CT_DIMS(gates * hidden), dtype);
    }
    return n;
}

TEST(an_lstm_of_many_rows_and_units_agrees_with_its_formulas) {
    const int64_t steps = 3, n = 60, in = 7, h = 37;
    ct_seed(1);
    ct_tensor *w[MOST], *x = ct_randn(CT_DIMS(steps, n, in), .dtype = CT_F64), *h_n, *c_n;
    int count = weights(w, 4, in, h, 1, 1, CT_F64);
    ct_tensor *y = ct_lstm(x, w, count, .h_n = &h_n, .c_n = &c_n);
    ct_tensor *state = ct_zeros(CT_DIMS(n, h), .dtype = CT_F64), *cell = state;
    for (int64_t t = 0; t < steps; t++) {
        ct_tensor *sums =
            ct_add(ct_linear(ct_select(x, 0, t), w[0], .bias = w[2]), ct_linear(state, w[1], .bias = w[3]));
        ct_tensor *i = ct_sigmoid(ct_narrow(sums, 1, 0, h)), *f = ct_sigmoid(ct_narrow(sums, 1, h, h)),
                  *g = ct_tanh(ct_narrow(sums, 1, 2 * h, h)), *o = ct_sigmoid(ct_narrow(sums, 1, 3 * h, h));
        cell = ct_add(ct_mul(f, cell), ct_mul(i, g));
        state = ct_mul(o, ct_tanh(cell));
        CHECK(distance(ct_select(y, 0, t), state) < 1e-14);
    }
    CHECK(distance(ct_select(h_n, 0, 0), state) < 1e-14);
    CHECK(distance(ct_select(c_n, 0, 0), cell) < 1e-14);
}

/* A padded batch gives each sequence what it gets alone, in both directions and through two layers. */
TEST(lengths_are_as_if_each_sequence_were_alone) {
    const int64_t steps = 5, lengths[] = {3, 5, 0, 1};
    ct_seed(2);
    ct_tensor *w[MOST], *x = ct_randn(CT_DIMS(steps, 4, 3), .dtype = CT_F64), *h0 = uniform(CT_DIMS(4, 4, 6), CT_F64),
                        *h_n, *one_n;
    int count = weights(w, 3, 3, 6, 2, 2, CT_F64);
    ct_tensor *y = ct_gru(x, w, count, .h0 = h0, .lengths = I64(CT_DIMS(4), 3, 5, 0, 1), .layers = 2,
                          .bidirectional = true, .h_n = &h_n);
    for (int64_t i = 0; i < 4; i++) {
        ct_tensor *part = ct_narrow(ct_narrow(x, 1, i, 1), 0, 0, lengths[i]);
        ct_tensor *alone =
            ct_gru(part, w, count, .h0 = ct_narrow(h0, 1, i, 1), .layers = 2, .bidirectional = true, .h_n = &one_n);
        ct_tensor *mine = ct_narrow(y, 1, i, 1);
        if (lengths[i]) CHECK(distance(ct_narrow(mine, 0, 0, lengths[i]), alone) < 1e-15);
        if (lengths[i] < steps) CHECK(ct_item(ct_sum(ct_abs(ct_narrow(mine, 0, lengths[i], steps - lengths[i])))) == 0);
        CHECK(distance(ct_narrow(h_n, 1, i, 1), one_n) < 1e-15);
    }
}

TEST(padded_inputs_have_no_gradient) {
    ct_seed(3);
    ct_tensor *w[MOST], *x = ct_set_requires_grad(ct_randn(CT_DIMS(2, 4, 3)), true), *g;
    int count = weights(w, 4, 3, 5, 1, 2, CT_F32);
    ct_tensor *y = ct_lstm(x, w, count, .lengths = I64(CT_DIMS(2), 1, 4), .bidirectional = true, .batch_first = true),
              *cot = ct_ones_like(y);
    REQUIRE(ct_grad(&y, 1, &cot, &x, 1, &g, 0));
    CHECK(ct_item(ct_sum(ct_abs(ct_narrow(ct_select(g, 0, 0), 0, 1, 3)))) == 0);
    CHECK(ct_item(ct_amin(ct_abs(ct_select(g, 0, 1)))) > 0);
}

TEST(the_last_state_alone_can_be_differentiated) {
    ct_seed(4);
    ct_tensor *w[MOST], *x = ct_set_requires_grad(ct_randn(CT_DIMS(4, 2, 3), .dtype = CT_F64), true), *c_n = NULL,
                        *h_n = NULL, *from_y, *from_h;
    int count = weights(w, 4, 3, 5, 1, 1, CT_F64);
    ct_tensor *y = ct_lstm(x, w, count, .h_n = &h_n, .c_n = &c_n), *cot = uniform(CT_DIMS(2, 5), CT_F64);
    ct_tensor *last = ct_select(y, 0, 3), *h = ct_select(h_n, 0, 0);
    REQUIRE(ct_grad(&last, 1, &cot, &x, 1, &from_y, CT_RETAIN_GRAPH) && ct_grad(&h, 1, &cot, &x, 1, &from_h, 0));
    CHECK(harness_same_bits(from_y, from_h));
}

TEST(dropout_acts_between_layers_and_not_after_the_last) {
    ct_seed(5);
    ct_tensor *w[MOST], *x = ct_randn(CT_DIMS(3, 2, 4));
    int count = weights(w, 3, 4, 6, 2, 1, CT_F32);
    /* all dropped: the second layer sees zeros */
    ct_tensor *y = ct_gru(x, w, count, .layers = 2, .dropout = 1), *zero = ct_zeros(CT_DIMS(3, 2, 6));
    CHECK(harness_same_bits(y, ct_gru(zero, w + 4, 4)));
    CHECK(harness_same_bits(ct_gru(x, w, 4, .dropout = 0.9), ct_gru(x, w, 4)));
    ct_seed(6);
    ct_tensor *a = ct_gru(x, w, count, .layers = 2, .dropout = 0.5),
              *b = ct_gru(x, w, count, .layers = 2, .dropout = 0.5);
    ct_seed(6);
    CHECK(harness_same_bits(a, ct_gru(x, w, count, .layers = 2, .dropout = 0.5)));
    CHECK(!harness_same_bits(a, b));
}

TEST(half_types_are_rounded_once) {
    ct_seed(7);
    const ct_dtype kinds[] = {CT_F16, CT_BF16};
    for (int k = 0; k < 2; k++) {
        ct_tensor *w[MOST], *wide[MOST], *x = ct_randn(CT_DIMS(6, 2, 4), .dtype = kinds[k]);
        int count = weights(w, 4, 4, 6, 2, 1, kinds[k]);
        for (int i = 0; i < count; i++) wide[i] = ct_cast(w[i], CT_F32);
        ct_tensor *y = ct_lstm(x, w, count, .layers = 2),
                  *exact = ct_lstm(ct_cast(x, CT_F32), wide, count, .layers = 2);
        CHECK(harness_same_bits(y, ct_cast(exact, kinds[k])));
    }
}

/* 9 sequences are always cut by hidden units; 60 are shared out among up to four threads, by five where the weights fit 5/8 of an L2, and cut by
 * both among 21. */
TEST(the_same_bits_at_any_number_of_threads) {
    ct_seed(8);
    for (int n = 9; n <= 60; n += 51)
        for (int gru = 0; gru < 2; gru++) {
            ct_tensor *w[MOST], *x = ct_randn(CT_DIMS(4, n, 20)), *first = NULL, *first_g = NULL;
            ct_tensor *lengths = n == 60 ? ct_randint(CT_DIMS(n), 0, 5) : NULL;
            int count = weights(w, gru ? 3 : 4, 20, 150, 1, 2, CT_F32);
            ct_set_requires_grad(w[1], true);
            for (int threads = 1; threads <= 21; threads += threads < 5 ? 1 : 16) {
                ct_set_threads(threads);
                ct_tensor *y = gru ? ct_gru(x, w, count, .bidirectional = true, .lengths = lengths)
                                   : ct_lstm(x, w, count, .bidirectional = true, .lengths = lengths),
                          *cot = ct_ones_like(y), *g;
                REQUIRE(ct_grad(&y, 1, &cot, &w[1], 1, &g, 0));
                if (threads == 1) first = y, first_g = g;
                CHECK(harness_same_bits(first, y) && harness_same_bits(first_g, g));
            }
        }
}

TEST(cells_are_steps_of_the_networks) {
    ct_seed(9);
    ct_tensor *w[MOST], *x = ct_randn(CT_DIMS(3, 2, 4)), *h = ct_zeros(CT_DIMS(2, 5)), *c = h, *next;
    int count = weights(w, 4, 4, 5, 1, 1, CT_F32);
    ct_tensor *y = ct_lstm(x, w, count);
    for (int t = 0; t < 3; t++) {
        h = ct_lstm_cell(ct_select(x, 0, t), w[0], w[1], .b_ih = w[2], .b_hh = w[3], .h = h, .c = c, .c_next = &next);
        c = next;
        CHECK(harness_same_bits(ct_contiguous(ct_select(y, 0, t)), ct_contiguous(h)));
    }
}

TEST(errors_of_recurrent_networks_name_what_is_wrong) {
    ct_tensor *w[MOST], *x = ct_zeros(CT_DIMS(3, 2, 4));
    int count = weights(w, 4, 4, 5, 1, 1, CT_F32);
    ct_lstm(ct_zeros(CT_DIMS(3, 2, 6)), w, count);
    CHECK_ERROR(CT_ERR_SHAPE, "lstm: weight 0 (w_ih of layer 0) is f32[20,4]; it has to be [20,6]");
    ct_lstm(x, w, count, .layers = 3);
    CHECK_ERROR(CT_ERR_VALUE,
                "lstm: 4 weights for 3 layers in 1 directions; each takes 2 (w_ih, w_hh), 3 or 4 (b_ih, b_hh)");
    ct_lstm(x, w, count, .h0 = ct_zeros(CT_DIMS(2, 5)));
    CHECK_ERROR(CT_ERR_SHAPE, "lstm: h0 is f32[2,5]; it has to be [1,2,5]");
    ct_lstm(x, w, count, .lengths = I64(CT_DIMS(2), 1, 4));
    CHECK_ERROR(CT_ERR_INDEX, "lstm: lengths is 4 at element 1; it has to be in 0 to 3");
    ct_gru(x, w, count);
    CHECK_ERROR(CT_ERR_SHAPE, "gru: weight 0 (w_ih of layer 0) is f32[20,4]; it has to be [15,4]");
    ct_lstm_cell(ct_zeros(CT_DIMS(2, 4)), w[0], w[1], .h = ct_zeros(CT_DIMS(3, 5)));
    CHECK_ERROR(CT_ERR_SHAPE, "lstm_cell: h is f32[3,5]; it has to be [2,5]");
}
