/* Fusion around normalizations by channels, each of whose elements depends on all of a channel: what becomes one call of two passes, what must
 * not, and the bits of eager calls. */
#include "core/passes/passes.h"
#include "core/threads.h"
#include "tests/count_calls.h"
#include "tests/fail_everywhere.h"
#include "tests/fuse_work.h"

/* x[0] the input of shape (items, channels, places), x[1] a residual, x[2] and x[3] weight and bias, x[4] a cotangent. */
static work channel_inputs(ct_dims shape, uint64_t stream) {
    work w = inputs(5, shape, stream), row = inputs(2, CT_DIMS(shape.d[1]), stream + 7);
    w.x[2] = row.x[0];
    w.x[3] = row.x[1];
    return w;
}

/* The graph of a function of such inputs, after its replays have been compared; NULL after an error. */
static ct_graph *graph_of(bool (*function)(void *), ct_dims shape) {
    work captured = channel_inputs(shape, 1), eager = channel_inputs(shape, 2);
    return capture_and_compare(function, &captured, &eager);
}

static ct_tensor *norm(work *w, ct_tensor *x) {
    return ct_batch_norm(x, .weight = w->x[2], .bias = w->x[3], .training = true);
}

/* ---- Forward ---- */

static bool norm_and_relu(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_relu(norm(w, w->x[0])));
    return ct_ok();
}

static bool norm_residual_activation_dropout(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_dropout(ct_silu(ct_add(norm(w, w->x[0]), w->x[1])), 0.3));
    return ct_ok();
}

static bool two_norms(void *context) { /* as where a residual block changes the shape */
    work *w = context;
    drop_results(w);
    leave(w, ct_relu(ct_add(norm(w, w->x[0]), norm(w, w->x[1]))));
    return ct_ok();
}

static bool sum_before(void *context) { /* as in networks with the activation first; the sum goes on elsewhere */
    work *w = context;
    drop_results(w);
    ct_tensor *sum = ct_add(w->x[0], w->x[1]);
    leave(w, ct_relu(norm(w, sum)));
    leave(w, sum);
    return ct_ok();
}

static bool of_halves(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_gelu(norm(w, ct_tanh(ct_cast(w->x[0], CT_BF16)))));
    return ct_ok();
}

static bool groups_of_channels(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_gelu(ct_group_norm(w->x[0], 2, .weight = w->x[2], .bias = w->x[3])));
    return ct_ok();
}

TEST(a_batch_norm_is_one_call_with_activation_residual_and_dropout) {
    const struct {
        bool (*function)(void *);
        int steps;
    } cases[] = {{norm_and_relu, 2},     {norm_residual_activation_dropout, 4},         {two_norms, 4},
                 {sum_before, 3},        {of_halves, strcmp(ct_isa(), "base") ? 4 : 6}, /* there x is cast, and y */
                 {groups_of_channels, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_graph *graph = graph_of(cases[i].function, CT_DIMS(5, 6, 70));
        REQUIRE(graph);
        harness_check(graph->n_records == 1 && count_steps(graph) == cases[i].steps, __FILE__, __LINE__,
                      "case %zu: %d records, %d steps", i, graph->n_records, count_steps(graph));
        ct_graph_free(graph);
    }
}

/* ---- Backward ---- */

/* The cotangent depends on all of y, as that of a loss does: the gradient cannot join the forward pass. */
static bool differentiate(work *w, ct_tensor *y) {
    ct_tensor *in[] = {w->x[0], w->x[1], w->x[2], w->x[3]}, *grads[4];
    ct_tensor *cotangent = ct_add(w->x[4], ct_mean(ct_detach(y)));
    if (!ct_grad(&y, 1, &cotangent, in, 4, grads, 0)) return false;
    leave(w, ct_detach(y));
    for (int i = 0; i < 4; i++) leave(w, grads[i]);
    return ct_ok();
}

static void want_gradients(work *w) {
    drop_results(w);
    for (int i = 0; i < 4; i++) ct_set_requires_grad(w->x[i], true);
}

static bool block(void *context) { /* the residual takes the gradient of relu too */
    work *w = context;
    want_gradients(w);
    return differentiate(w, ct_relu(ct_add(norm(w, w->x[0]), w->x[1])));
}

static bool block_of_two(void *context) {
    work *w = context;
    want_gradients(w);
    return differentiate(w, ct_leaky_relu(ct_add(norm(w, w->x[0]), norm(w, w->x[1])), 0.1));
}

static bool block_of_halves(void *context) {
    work *w = context;
    want_gradients(w);
    ct_tensor *x = ct_cast(w->x[0], CT_BF16), *r = ct_cast(w->x[1], CT_BF16);
    return differentiate(w, ct_cast(ct_relu(ct_add(norm(w, x), r)), CT_F32));
}

static ct_tensor *norm_add_relu(work *w, ct_tensor *x, ct_tensor *residual) {
    return ct_batch_norm(x, .weight = w->x[2], .bias = w->x[3], .residual = residual, .relu = true, .training = true);
}

static bool block_in_one(void *context) {
    work *w = context;
    want_gradients(w);
    return differentiate(w, norm_add_relu(w, w->x[0], w->x[1]));
}

static bool block_in_one_of_halves(void *context) {
    work *w = context;
    want_gradients(w);
    ct_tensor *x = ct_cast(w->x[0], CT_BF16), *r = ct_cast(w->x[1], CT_BF16);
    return differentiate(w, ct_cast(norm_add_relu(w, norm_add_relu(w, x, NULL), r), CT_F32));
}

static bool second_gradient(void *context) {
    work *w = context;
    want_gradients(w);
    ct_tensor *y = ct_silu(norm(w, w->x[0])), *dx = NULL, *cotangent = w->x[4];
    if (!ct_grad(&y, 1, &cotangent, &w->x[0], 1, &dx, CT_CREATE_GRAPH)) return false;
    return differentiate(w, dx);
}

/* A gradient that is added to in place, then goes through the norm: what the first pass writes is where one of its inputs was. */
static bool sum_in_place(void *context) {
    work *w = context;
    want_gradients(w);
    ct_tensor *h = ct_relu(ct_mul_s(w->x[1], 2)), *y = ct_relu(ct_add(norm(w, ct_mul(w->x[0], h)), h));
    return differentiate(w, ct_add(ct_relu(norm(w, y)), y));
}

static bool (*const backward[])(void *) = {
    block, block_of_two, block_of_halves, block_in_one, block_in_one_of_halves, second_gradient, sum_in_place};
enum { BACKWARD = sizeof backward / sizeof *backward };

TEST(the_gradient_of_an_activation_joins_that_of_the_norm) {
    ct_graph *graph = graph_of(block, CT_DIMS(5, 6, 70));
    REQUIRE(graph);
    CHECK(graph->n_records == 3 && count_calls(graph, "fused") == 2 && count_calls(graph, "mean") == 1);
    CHECK(count_steps(graph) == 6); /* norm, add, relu; and behind the mean add, relu's gradient, the norm's */
    ct_graph_free(graph);
    graph = graph_of(block_in_one, CT_DIMS(5, 6, 70));
    REQUIRE(graph);
    CHECK(graph->n_records == 3 &&
          count_steps(graph) == 2); /* behind the mean add and the norm's gradient, with relu's */
    ct_graph_free(graph);
    graph = graph_of(block_of_two, CT_DIMS(5, 6, 70));
    REQUIRE(graph);
    CHECK(count_calls(graph, "channel_norm") == 0 && count_calls(graph, "channel_norm_grad") == 0);
    CHECK(count_calls(graph, "leaky_relu_grad_x") == 0);
    ct_graph_free(graph);
}

static void compare_all(void) {
    static const ct_dims shapes[] = {{3, {2, 2, 1}},    {3, {5, 6, 70}},    {3, {3, 33, 16}},
                                     {3, {4, 3, 5000}}, {3, {9, 16, 1024}}, {3, {2, 2, 20000}}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < BACKWARD; i++)
            ct_scope {
                ct_graph_free(graph_of(backward[i], shapes[s]));
                harness_check(ct_ok(), __FILE__, __LINE__, "shape %zu, function %d: %s", s, i,
                              ct_ok() ? "" : ct_error());
                ct_error_clear();
            }
}

TEST_LIMIT(gradients_have_the_bits_of_eager_calls_at_any_size_and_number_of_threads, 120) {
    for (int threads = 1; threads <= 3; threads++) {
        ct_set_threads(threads);
        compare_all();
    }
    ct_set_threads(0);
}

TEST_LIMIT(and_in_small_chunks_and_at_every_level_of_instructions, 120) {
    char best[16];
    strncpy(best, ct_isa(), sizeof best - 1), best[15] = 0;
    ct__set_grain(1);
    for (int i = 0; i < BACKWARD; i++) ct_graph_free(graph_of(backward[i], CT_DIMS(3, 4, 35)));
    ct__set_grain(0);
    static const char *const levels[] = {"base", "avx2", "neon"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (ct_set_isa(levels[i])) compare_all();
        ct_error_clear();
    }
    CHECK(ct_set_isa(best));
}

/* ---- What is not one call ---- */

static bool norm_of_norm(void *context) { /* the second needs all of the first */
    work *w = context;
    drop_results(w);
    leave(w, ct_relu(norm(w, ct_relu(norm(w, w->x[0])))));
    return ct_ok();
}

static bool channels_last(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_relu(ct_batch_norm(w->x[0], .training = true, .channels_last = true)));
    return ct_ok();
}

TEST(a_norm_waits_for_all_of_another) {
    ct_graph *graph = graph_of(norm_of_norm, CT_DIMS(5, 6, 70));
    REQUIRE(graph);
    CHECK(graph->n_records == 2 && count_calls(graph, "fused") == 2 && count_steps(graph) == 4);
    ct_graph_free(graph);
}

TEST(lines_that_are_not_contiguous_or_are_long_stay_calls_of_their_own) {
    ct_graph *graph = graph_of(channels_last, CT_DIMS(5, 6, 70));
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 0);
    ct_graph_free(graph);
    graph = graph_of(norm_and_relu, CT_DIMS(2, 2, 20000));
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 0);
    ct_graph_free(graph);
}

/* What a record writes over what others have read before it is no result of a group: nobody reads it behind. */
static bool added_to(void *context) {
    work *w = context;
    drop_results(w);
    ct_tensor *a = ct_exp(w->x[0]), *sum = ct_sum(a); /* reads a before it is changed */
    ct_no_grad {
        ct_add_(a, w->x[1]);
    }
    leave(w, ct_tanh(a));
    leave(w, sum);
    return ct_ok();
}

TEST(what_is_changed_in_place_and_read_by_the_group_alone_is_not_written) {
    ct_graph *graph = graph_of(added_to, CT_DIMS(5, 6, 700));
    REQUIRE(graph);
    for (int i = 0; i < graph->n_records; i++) {
        const ct_call *call = &graph->records[i].call;
        if (graph->records[i].kind == CT__CALL && strcmp(call->op->name, "fused") == 0) CHECK(call->n_out == 1);
    }
    CHECK(count_calls(graph, "fused") == 1);
    ct_graph_free(graph);
}

static bool fuse_and_replay(void) {
    bool ok = false;
    ct_scope {
        work w = {.x = {ct_ones(CT_DIMS(3, 2, 5)), ct_ones(CT_DIMS(3, 2, 5)), ct_ones(CT_DIMS(2)), ct_ones(CT_DIMS(2)),
                        ct_ones(CT_DIMS(3, 2, 5))}};
        ct_graph *graph = ct_ok() ? ct_capture(block, &w, CT_CAPTURE_WARM) : NULL;
        ok = graph && ct_replay(graph);
        ct_graph_free(graph);
        drop_results(&w);
    }
    return ok;
}

TEST_LIMIT(any_allocation_of_such_a_capture_may_fail, 120) { FAIL_EVERYWHERE(fuse_and_replay); }
