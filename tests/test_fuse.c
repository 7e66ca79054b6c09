/* Fusion of captured graphs: which calls become one and which must not, and the bits of eager calls whatever is fused. */
#include <cotangent/capture.h>
#include <cotangent/fused.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph.h"
#include "core/passes/passes.h"
#include "core/threads.h"
#include "tests/count_calls.h"
#include "tests/fail_everywhere.h"
#include "tests/fuse_work.h"
#include "tests/harness.h"
#include "tests/host_memory.h"

/* ---- What becomes one call ---- */

static bool chain(void *context) {
    work *w = context;
    drop_results(w);
    ct_tensor *y = ct_tanh(ct_add_s(ct_mul(ct_exp(w->x[0]), w->x[1]), 1));
    leave(w, ct_sigmoid(y));
    return ct_ok();
}

TEST(a_chain_becomes_one_call_that_writes_only_its_result) {
    work captured = inputs(2, CT_DIMS(5, 1000), 1), eager = inputs(2, CT_DIMS(5, 1000), 2);
    ct_graph *graph = capture_and_compare(chain, &captured, &eager);
    REQUIRE(graph);
    CHECK(graph->n_records == 1 && count_steps(graph) == 5);
    CHECK(graph->records[0].call.n_in == 2 && graph->records[0].call.n_out == 1);
    ct_graph_free(graph);
}

static bool chain_and_gradient(void *context) {
    work *w = context;
    ct_tensor *dx = NULL;
    drop_results(w);
    ct_set_requires_grad(w->x[0], true);
    ct_tensor *y = ct_mul_s(ct_tanh(ct_exp(ct_mul_s(w->x[0], 0.5))), 3);
    ct_tensor *one = ct_ones_like(ct_detach(y));
    if (!ct_grad(&y, 1, &one, &w->x[0], 1, &dx, 0)) return false;
    leave(w, dx);
    return ct_ok();
}

TEST(a_gradient_joins_the_chain_whose_values_it_reads) {
    work captured = inputs(1, CT_DIMS(3000), 1), eager = inputs(1, CT_DIMS(3000), 2);
    ct_graph *graph = capture_and_compare(chain_and_gradient, &captured, &eager);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 1 && count_calls(graph, "tanh") == 0);
    ct_graph_free(graph);
}

static bool mixed(void *context) {
    work *w = context;
    drop_results(w);
    ct_tensor *bias = ct_reshape(ct_slice(w->x[1], 0, 0, .stop = CT_SET(1)), CT_DIMS(40)); /* broadcast */
    ct_tensor *y = ct_gelu(ct_cast(ct_add(w->x[0], bias), CT_BF16));
    y = ct_dropout(ct_reshape(y, CT_DIMS(-1)), 0.25);
    leave(w, ct_add(ct_cast(ct_reshape(y, CT_DIMS(30, 40)), CT_F32), w->x[0]));
    return ct_ok();
}

TEST(broadcasts_casts_reshapes_and_dropout_are_steps) {
    work captured = inputs(2, CT_DIMS(30, 40), 1), eager = inputs(2, CT_DIMS(30, 40), 2);
    ct_graph *graph = capture_and_compare(mixed, &captured, &eager);
    REQUIRE(graph);
    CHECK(graph->n_records == 1 && count_steps(graph) == 6);
    ct_graph_free(graph);
}

static bool dropped(void *context) {
    work *w = context;
    ct_tensor *dx = NULL;
    drop_results(w);
    ct_tensor *x = ct_set_requires_grad(w->x[0], true);
    ct_tensor *y = ct_exp(ct_dropout(ct_mul_s(x, 0.5), 0.4)), *one = ct_ones_like(ct_detach(y));
    if (!ct_grad(&y, 1, &one, &x, 1, &dx, 0)) return false;
    leave(w, dx);
    return ct_ok();
}

TEST(dropout_and_its_gradient_draw_the_same_in_every_tile) {
    work captured = inputs(1, CT_DIMS(3, 6007), 1), eager = inputs(1, CT_DIMS(3, 6007), 2);
    ct_graph *graph = capture_and_compare(dropped, &captured, &eager);
    REQUIRE(graph);
    CHECK(graph->n_records == 1);
    ct_graph_free(graph);
}

static bool block(void *context) {
    work *w = context;
    drop_results(w);
    ct_tensor *x = ct_set_requires_grad(w->x[0], true), *residual = w->x[1];
    ct_tensor *bias = ct_set_requires_grad(w->x[2], true), *weight = ct_set_requires_grad(w->x[3], true);
    ct_tensor *y = ct_add(ct_dropout(ct_gelu(ct_add(x, bias)), 0.1), residual);
    y = ct_layer_norm(y, CT_DIMS(48), .weight = weight, .bias = bias);
    ct_tensor *in[] = {x, bias, weight}, *grads[3], *cotangent = w->x[4];
    if (!ct_grad(&y, 1, &cotangent, in, 3, grads, 0)) return false;
    leave(w, y);
    for (int i = 0; i < 3; i++) leave(w, grads[i]);
    return ct_ok();
}

static work block_inputs(uint64_t stream) {
    work w = inputs(5, CT_DIMS(500, 48), stream), row = inputs(2, CT_DIMS(48), stream + 7);
    w.x[2] = row.x[0];
    w.x[3] = row.x[1];
    return w;
}

TEST(a_normalization_joins_what_it_follows_and_its_gradients) {
    work captured = block_inputs(1), eager = block_inputs(2);
    ct_graph *graph = capture_and_compare(block, &captured, &eager);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 1 && count_calls(graph, "row_norm") == 0 &&
          count_calls(graph, "row_norm_grad") == 0);
    ct_graph_free(graph);
}

static bool of_three(void *context) { /* as many elements as a position in the random stream has numbers */
    work *w = context;
    ct_tensor *dx = NULL;
    drop_results(w);
    ct_tensor *x = ct_set_requires_grad(w->x[0], true), *place = ct_add_s(ct_cast(ct_detach(w->x[1]), CT_I64), 3);
    ct_tensor *in[] = {ct_mul_s(x, 2), place}, *y = NULL, *one = ct_ones_like(ct_detach(x));
    const struct { double p; } half = {0.5};
    if (!ct_apply(ct_op_find("dropout_replay"), in, 2, &half, &y, 1)) return false;
    y = ct_exp(ct_dropout(y, 0.5));
    if (!ct_grad(&y, 1, &one, &x, 1, &dx, 0)) return false;
    leave(w, y);
    leave(w, dx);
    return ct_ok();
}

TEST(a_few_numbers_are_not_taken_for_elements) {
    work captured = inputs(2, CT_DIMS(3), 1), eager = inputs(2, CT_DIMS(3), 2);
    ct_graph_free(capture_and_compare(of_three, &captured, &eager));
}

static bool in_place(void *context) {
    work *w = context;
    drop_results(w);
    bool ok = ct_mul_(w->x[0], w->x[1]) && ct_add_(w->x[0], w->x[1]) && ct_tanh(w->x[0]);
    leave(w, ct_exp(w->x[0]));
    return ok && ct_add_(w->x[1], w->x[0]);
}

TEST(changes_in_place_keep_their_order) {
    work captured = inputs(2, CT_DIMS(7, 11), 1), eager = inputs(2, CT_DIMS(7, 11), 2);
    ct_graph *graph = capture_and_compare(in_place, &captured, &eager);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 1);
    ct_graph_free(graph);
}

static bool two_readers(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_exp(w->x[0]));
    leave(w, ct_sum(w->x[1]));
    leave(w, ct_tanh(w->x[0]));
    return ct_ok();
}

TEST(calls_that_read_the_same_operand_become_one) {
    work captured = inputs(2, CT_DIMS(700), 1), eager = inputs(2, CT_DIMS(700), 2);
    ct_graph *graph = capture_and_compare(two_readers, &captured, &eager);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 1);
    ct_graph_free(graph);
}

/* ---- What must not ---- */

static bool through_a_product(void *context) {
    work *w = context;
    drop_results(w);
    ct_tensor *y = ct_exp(w->x[0]);
    leave(w, ct_add(y, ct_matmul(y, w->x[1])));
    return ct_ok();
}

TEST(a_call_does_not_pass_what_it_depends_on) {
    work captured = inputs(2, CT_DIMS(12, 12), 1), eager = inputs(2, CT_DIMS(12, 12), 2);
    ct_graph *graph = capture_and_compare(through_a_product, &captured, &eager);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 0);
    ct_graph_free(graph);
}

static bool shifted(void *context) {
    work *w = context;
    drop_results(w);
    ct_tensor *low = ct_slice(w->x[0], 0, 0, .stop = CT_SET(50)), *high = ct_slice(w->x[0], 0, 25, .stop = CT_SET(75));
    return ct_into(low) && ct_mul_s(low, 2) && ct_into(high) && ct_add_s(high, 1) && ct_ok();
}

TEST(changes_of_overlapping_views_stay_apart) {
    work captured = inputs(1, CT_DIMS(75), 1), eager = inputs(1, CT_DIMS(75), 2);
    ct_graph *graph = capture_and_compare(shifted, &captured, &eager);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 0);
    ct_graph_free(graph);
}

static int64_t seen;
static bool look(void *context) {
    seen += ct_item(((work *)context)->x[0]) > 0;
    return ct_ok();
}
static bool around_an_effect(void *context) {
    work *w = context;
    ct_tensor *one = w->x[1];
    return ct_add_(w->x[0], one) && ct_capture_effect(look, w) && ct_add_(w->x[0], one);
}

TEST(what_is_kept_does_not_pass_an_effect) {
    work w = {.x = {ct_zeros(CT_DIMS0), ct_ones(CT_DIMS0)}};
    ct_graph *graph = ct_capture(around_an_effect, &w, CT_CAPTURE_WARM);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 0 && ct_replay(graph));
    ct_graph_free(graph);
}

static bool around_an_index(void *context) {
    work *w = context;
    drop_results(w);
    bool ok = ct_add_(w->x[0], w->x[1]) != NULL;
    leave(w, ct_index_select(w->x[1], 0, w->x[2]));
    return ok && ct_add_(w->x[0], w->x[1]);
}

TEST(what_is_kept_does_not_pass_a_call_that_may_fail) {
    work w = inputs(2, CT_DIMS(40), 1);
    w.x[2] = ct_zeros(CT_DIMS(3), .dtype = CT_I64);
    ct_graph *graph = ct_capture(around_an_index, &w, CT_CAPTURE_WARM);
    REQUIRE(graph);
    const double before = harness_at(w.x[0], 7), step = harness_at(w.x[1], 7);
    CHECK(count_calls(graph, "fused") == 0 && ct_fill_i64(w.x[2], 99) && !ct_replay(graph));
    CHECK(ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    CHECK_NEAR(harness_at(w.x[0], 7), before + step, 1e-6);
    ct_graph_free(graph);
    drop_results(&w);
}

static bool of_nothing(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_exp(ct_add_s(w->x[0], 1)));
    return ct_ok();
}

TEST(calls_without_elements_stay_as_they_are) {
    work captured = inputs(1, CT_DIMS(3, 0), 1), eager = inputs(1, CT_DIMS(3, 0), 2);
    ct_graph *graph = capture_and_compare(of_nothing, &captured, &eager);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 0);
    ct_graph_free(graph);
}

TEST(the_pass_can_be_left_out) {
    work captured = inputs(2, CT_DIMS(5, 10), 1), eager = inputs(2, CT_DIMS(5, 10), 2);
    ct__passes_set("-fuse");
    ct_graph *graph = capture_and_compare(chain, &captured, &eager);
    ct__passes_set(NULL);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 0 && graph->n_records == 5);
    ct_graph_free(graph);
}

static bool two_of_the_same_data(void *context) {
    work *w = context;
    const float row[] = {1, 2, 3, 4, 5};
    drop_results(w);
    leave(w, ct_sum(ct_tanh(ct_exp(ct_from_data(row, CT_DIMS(5), CT_F32)))));
    leave(w, ct_sum(ct_sqrt(ct_sigmoid(ct_from_data(row, CT_DIMS(5), CT_F32)))));
    return ct_ok();
}

TEST(fused_calls_of_the_same_memory_are_not_taken_for_the_same) {
    work captured = {.n = 0}, eager = {.n = 0};
    ct__passes_set("fuse,cse");
    ct_graph *graph = capture_and_compare(two_of_the_same_data, &captured, &eager);
    ct__passes_set(NULL);
    REQUIRE(graph);
    CHECK(count_calls(graph, "fused") == 2);
    ct_graph_free(graph);
}

/* ---- Random graphs ---- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

enum { ROWS = 12, COLUMNS = 130, OPS = 26 };

/* A few numbers as the dtype has them, of no more than the size of 2. */
static ct_tensor *tame(ct_tensor *x) {
    return ct_dtype_is_float(ct_dtype_of(x)) ? ct_clamp(x, .min = CT_SET(-2), .max = CT_SET(2)) : x;
}

static ct_tensor *random_operand(ct_tensor **pool, int n, uint64_t *state) {
    return pool[next_random(state) % (uint64_t)n];
}

static ct_tensor *as_float(ct_tensor *x) { return ct_dtype_is_float(ct_dtype_of(x)) ? x : ct_cast(x, CT_F32); }

/* A row of x, as what layer_norm multiplies with. */
static ct_tensor *weight_of(ct_tensor *x) {
    return ct_reshape(ct_slice(as_float(x), 0, 2, .stop = CT_SET(3)), CT_DIMS(COLUMNS));
}

static ct_tensor *random_op(ct_tensor **pool, int n, uint64_t *state) {
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16, CT_I32, CT_I64, CT_U8, CT_BOOL, CT_F32};
    ct_tensor *a = random_operand(pool, n, state), *b = random_operand(pool, n, state);
    const bool truth = ct_dtype_of(a) == CT_BOOL;
    switch (next_random(state) % 27) {
    case 0: return ct_add(a, b);
    case 1: return truth || ct_dtype_of(b) == CT_BOOL ? ct_mul(a, b) : ct_sub(a, b);
    case 2: return ct_mul(tame(a), tame(b));
    case 3: return ct_maximum(a, b);
    case 4: return ct_where(ct_lt(a, b), a, b);
    case 5: return ct_gt_s(truth ? ct_exp(a) : a, 1);
    case 6:
    case 7: return ct_cast(tame(a), dtypes[next_random(state) % 9]);
    case 8: return ct_tanh(a);
    case 9: return ct_gelu(a);
    case 10: return truth ? ct_exp(a) : ct_relu(a);
    case 11: return ct_add_s(a, 1);
    case 12: return ct_rsub_s(truth ? ct_exp(a) : tame(a), 3);
    case 13: return ct_dropout(ct_dtype_is_float(ct_dtype_of(a)) ? a : ct_cast(a, CT_F32), 0.3);
    case 14: return ct_reshape(ct_exp(ct_reshape(tame(a), CT_DIMS(-1))), CT_DIMS(ROWS, COLUMNS));
    case 15: return ct_add(a, ct_slice(b, 0, 3, .stop = CT_SET(4)));
    case 16: return ct_mul(tame(a), ct_tanh(ct_slice(b, 1, 5, .stop = CT_SET(6))));
    case 17: return ct_add(a, ct_sum(tame(b)));
    case 18: return ct_clone(ct_expand(ct_slice(a, 0, 1, .stop = CT_SET(2)), CT_DIMS(ROWS, COLUMNS)));
    case 19: return ct_sigmoid(ct_mul_s(truth ? ct_exp(a) : tame(a), 2));
    case 20: return ct_t(ct_contiguous(ct_t(a)));
    case 21: return ct_softmax(a, 1);
    case 22: return ct_log_softmax(tame(a), -1);
    case 23: return ct_layer_norm(as_float(a), CT_DIMS(COLUMNS), .weight = weight_of(b), .bias = weight_of(a));
    case 24: return ct_fmax(a, ct_square(tame(b)));
    case 25: /* each element depends on many */
        a = ct_batch_norm(ct_reshape(as_float(a), CT_DIMS(ROWS, 26, 5)), .training = true);
        return ct_reshape(a, CT_DIMS(ROWS, COLUMNS));
    default:
        a = ct_group_norm(ct_reshape(as_float(a), CT_DIMS(ROWS, 10, 13)), 5);
        return ct_reshape(a, CT_DIMS(ROWS, COLUMNS));
    }
}

static bool random_graph(void *context) {
    work *w = context;
    uint64_t state = w->seed;
    ct_tensor *pool[OPS + 8], *wanted[3], *grads[3], *loss = NULL;
    int n = 0;
    drop_results(w);
    for (int i = 0; i < 3; i++) pool[n++] = wanted[i] = ct_set_requires_grad(w->x[i], true);
    pool[n++] = ct_cast(ct_detach(w->x[0]), CT_BF16);
    for (int i = 0; i < OPS; i++) {
        ct_tensor *y = random_op(pool, n, &state);
        if (!y) return false;
        pool[n++] = y;
        if (next_random(&state) % 4 == 0) leave(w, ct_detach(y));
    }
    if (next_random(&state) % 3 == 0) /* a change in place, of what is kept */
        ct_no_grad {
            if (!ct_add_(w->x[5], ct_tanh(w->x[5]))) return false;
        }
    for (int i = n - 6; i < n; i++)
        if (ct_requires_grad(pool[i])) {
            ct_tensor *part = ct_sum(ct_cast(tame(pool[i]), CT_F32));
            loss = loss ? ct_add(loss, part) : part;
        }
    if (loss) {
        if (!ct_grad(&loss, 1, NULL, wanted, 3, grads, 0)) return false;
        for (int i = 0; i < 3; i++) leave(w, grads[i]);
    }
    return ct_ok();
}

static void compare_random_graphs(int n, uint64_t seed) {
    for (int k = 0; k < n && !harness_failed(); k++)
        ct_scope {
            work captured = inputs(6, CT_DIMS(ROWS, COLUMNS), 1), eager = inputs(6, CT_DIMS(ROWS, COLUMNS), 2);
            captured.seed = eager.seed = seed + (uint64_t)k;
            ct_graph_free(capture_and_compare(random_graph, &captured, &eager));
            CHECK(ct_ok());
            ct_error_clear();
        }
}

TEST(random_graphs_have_the_bits_of_eager_calls) { compare_random_graphs(200, 100); }

TEST(random_graphs_have_the_same_bits_on_two_threads_and_in_small_chunks) {
    for (int threads = 1; threads <= 2; threads++) {
        ct_set_threads(threads);
        compare_random_graphs(10, 1000);
        ct__set_grain(1);
        compare_random_graphs(6, 2000);
        ct__set_grain(0);
    }
    ct_set_threads(0);
}

TEST(random_graphs_have_the_same_bits_at_every_level_of_instructions) {
    char best[16];
    strncpy(best, ct_isa(), sizeof best - 1), best[15] = 0;
    static const char *const levels[] = {"base", "avx2", "neon"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!ct_set_isa(levels[i])) {
            ct_error_clear();
            continue;
        }
        compare_random_graphs(10, 3000);
    }
    CHECK(ct_set_isa(best));
}

/* ---- Memory ---- */

static bool wide_and_long(void *context) { /* twenty results of which each would have to wait for the last sum */
    work *w = context;
    drop_results(w);
    ct_tensor *total = ct_zeros(CT_DIMS0);
    for (int i = 0; i < 20; i++) total = ct_add(total, ct_sum(ct_exp(ct_mul_s(w->x[0], 0.1 * i))));
    leave(w, total);
    return ct_ok();
}

TEST(fusion_does_not_need_more_memory_at_once) {
    work captured = inputs(1, CT_DIMS(64, 1024), 1), eager = inputs(1, CT_DIMS(64, 1024), 2);
    int64_t needed[2] = {0};
    for (int fused = 0; fused < 2; fused++) {
        ct__passes_set(fused ? NULL : "-fuse");
        ct_graph *graph = capture_and_compare(wide_and_long, &captured, &eager);
        ct__passes_set(NULL);
        REQUIRE(graph);
        ct_graph_info info = {.size = sizeof info};
        CHECK(ct_graph_describe(graph, &info));
        needed[fused] = info.needed_bytes;
        ct_graph_free(graph);
    }
    CHECK(needed[1] <= needed[0]);
}

static bool fuse_and_replay(void) {
    bool ok = false;
    ct_scope {
        work w = {.x = {ct_ones(CT_DIMS(9)), ct_ones(CT_DIMS(9))}};
        ct_graph *graph = w.x[0] && w.x[1] ? ct_capture(chain, &w, CT_CAPTURE_WARM) : NULL;
        ok = graph && ct_replay(graph);
        ct_graph_free(graph);
        drop_results(&w);
    }
    return ok;
}

TEST_LIMIT(any_allocation_of_a_fused_capture_may_fail, 120) { FAIL_EVERYWHERE(fuse_and_replay); }
