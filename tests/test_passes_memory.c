/* Passes that move records or give them other memory, and what they go by: casts at once, results in place of operands, and which records come
 * before which. */
#include <cotangent/backend.h>
#include <stdlib.h>

#include "core/passes/depends.h"
#include "tests/passes.h"

/* ---- Dependencies ---- */

/* Row 1 of t is written anew, then row 0: what reads a row depends on what wrote it, and no reader of the other on that. */
static bool rows_written_apart(void *context) {
    WORK;
    ct_tensor *t = ct_exp(w->x);
    if (!ct_assign(ct_select(t, 0, 1), ct_select(w->state, 0, 2))) return false;
    keep(w, 0, ct_tanh(ct_select(t, 0, 0)));
    keep(w, 1, ct_sin(ct_select(t, 0, 1)));
    keep(w, 2, ct_cos(t));
    if (!ct_assign(ct_select(t, 0, 0), ct_select(w->state, 0, 1))) return false;
    keep(w, 3, ct_relu(ct_select(t, 0, 1)));
    keep(w, 4, ct_neg(t));
    return true;
}

/* The n-th record of an op. */
static int find_record(const ct_graph *g, const char *op, int n) {
    for (int i = 0; i < g->n_records; i++)
        if (g->records[i].kind == CT__CALL && strcmp(g->records[i].call.op->name, op) == 0 && n-- == 0) return i;
    return -1;
}

static bool comes_after(const ct_depends *d, int late, int early) {
    if (late == early) return true;
    for (int i = d->begin[1][late]; i < d->begin[1][late + 1]; i++)
        if (comes_after(d, d->to[1][i], early)) return true;
    return false;
}

TEST(a_write_to_a_part_comes_between_the_uses_of_that_part_alone) {
    work w;
    make(&w);
    ct_scope {
        ct_graph *g = NULL;
        ct_depends d;
        CHECK(ct_capture_passes("none"));
        ct_no_grad {
            g = ct_capture(rows_written_apart, &w, CT_CAPTURE_WARM);
        }
        CHECK(ct_capture_passes(NULL) && g && ct__depends_build(g, 0, &d));
        const char *write = "clone";
        const int all = find_record(g, "exp", 0), row_1 = find_record(g, write, 0), row_0 = find_record(g, write, 1);
        const int first = find_record(g, "tanh", 0), second = find_record(g, "sin", 0), both = find_record(g, "cos", 0);
        const int second_again = find_record(g, "relu", 0), both_again = find_record(g, "neg", 0);
        CHECK(all >= 0 && row_1 > all && row_0 > row_1 && first >= 0 && second >= 0 && both >= 0);
        CHECK(second_again > row_0 && both_again > row_0);
        CHECK(comes_after(&d, row_1, all) && comes_after(&d, first, all) && !comes_after(&d, first, row_1));
        CHECK(comes_after(&d, second, row_1) && comes_after(&d, both, row_1) && comes_after(&d, both, all));
        CHECK(comes_after(&d, row_0, first) && comes_after(&d, row_0, both) && !comes_after(&d, row_0, second));
        CHECK(comes_after(&d, second_again, row_1) && !comes_after(&d, second_again, row_0));
        CHECK(comes_after(&d, both_again, row_0) && comes_after(&d, both_again, row_1));
        ct__depends_free(&d);
        ct_graph_free(g);
    }
    drop(&w);
}

/* ---- Casts ---- */

enum { LAYERS = 5 };
typedef struct layers {
    ct_tensor *x, *weights[LAYERS], *y; /* kept; y is the function's */
} layers;

static bool halved_layers(void *context) {
    layers *l = context;
    ct_tensor *y = ct_cast(l->x, CT_BF16);
    for (int i = 0; i < LAYERS; i++) y = ct_matmul(y, ct_cast(l->weights[i], CT_BF16));
    ct_drop(l->y);
    return (l->y = y) && ct_keep(y);
}
static bool kept_for_later(void *context) { /* with all of them in use at the end there is nothing to lose */
    layers *l = context;
    ct_tensor *y = ct_cast(l->x, CT_BF16), *halves[LAYERS];
    for (int i = 0; i < LAYERS; i++) y = ct_matmul(y, halves[i] = ct_cast(l->weights[i], CT_BF16));
    for (int i = LAYERS; i--;) y = ct_matmul(y, halves[i]);
    ct_drop(l->y);
    return (l->y = y) && ct_keep(y);
}
static bool changed_weight(void *context) {
    layers *l = context;
    ct_tensor *y = ct_cast(l->x, CT_BF16), *halves[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        y = ct_matmul(y, halves[i] = ct_cast(l->weights[i], CT_BF16));
        if (i == 1 && !ct_add_(l->weights[3], l->weights[3])) return false;
    }
    for (int i = LAYERS; i--;) y = ct_matmul(y, halves[i]);
    ct_drop(l->y);
    return (l->y = y) && ct_keep(y);
}

static bool large_before_small(void *context) {
    layers *l = context;
    ct_tensor *half = ct_cast(l->weights[0], CT_BF16), *y = ct_matmul(ct_cast(l->x, CT_BF16), half);
    y = ct_matmul(y, ct_cast(l->weights[1], CT_BF16));
    for (int i = 2; i < LAYERS; i++) y = ct_add(y, ct_cast(ct_select(l->weights[i], 0, 0), CT_BF16));
    ct_drop(l->y);
    return (l->y = y) && ct_keep(y);
}

TEST(casts_that_wait_for_nothing_are_done_at_once_on_a_device) {
    static const struct {
        const char *name;
        bool (*function)(void *context);
        int64_t side;
        int at_once, left; /* calls of cast_all, and of cast */
    } all[] = {{"small ones", halved_layers, 16, 1, 0},
               {"large ones, of which one at a time is in use", halved_layers, 256, 0, 6},
               {"large ones that are in use together", kept_for_later, 256, 1, 0},
               {"small ones behind large ones that stay", large_before_small, 256, 1, 2},
               {"one of what is changed before it", changed_weight, 256, 1, 1}};
    ct_device device, cpu = {CT_CPU, 0};
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", "1", 1);
    REQUIRE(ct_device_parse("guard", &device) && ct_set_device(device));
    for (size_t f = 0; f < sizeof all / sizeof *all; f++)
        ct_scope {
            const ct_dims square = CT_DIMS(all[f].side, all[f].side);
            ct_tensor *results[2];
            for (int captured = 0; captured < 2; captured++) {
                ct_rng *rng = ct_rng_new(9, 0);
                layers l = {.x = ct_keep(ct_to(ct_randn(CT_DIMS(8, all[f].side), .rng = rng, .device = cpu), device))};
                for (int i = 0; i < LAYERS; i++)
                    l.weights[i] = ct_keep(ct_to(ct_randn(square, .rng = rng, .device = cpu), device));
                CHECK(ct_capture_passes("casts"));
                ct_graph *g = captured ? ct_capture(all[f].function, &l, CT_CAPTURE_WARM) : NULL;
                if (captured && CHECK(g != NULL))
                    harness_check(count_calls(g, "cast_all") == all[f].at_once && count_calls(g, "cast") == all[f].left,
                                  __FILE__, __LINE__, "%s: %d calls at once, %d by themselves", all[f].name,
                                  count_calls(g, "cast_all"), count_calls(g, "cast"));
                for (int i = captured; i < 3; i++) CHECK(captured ? ct_replay(g) : all[f].function(&l));
                results[captured] = ct_to(l.y, cpu);
                ct_graph_free(g);
                ct_drop(l.x), ct_drop(l.y);
                for (int i = 0; i < LAYERS; i++) ct_drop(l.weights[i]);
                ct_rng_free(rng);
            }
            harness_check(harness_same_bits(results[0], results[1]), __FILE__, __LINE__, "%s: other bits", all[f].name);
        }
    CHECK(ct_capture_passes(NULL) && ct_set_device(cpu));
}

/* ---- Results in place of operands ---- */

enum { WIDE = 4096 };

static bool chain_of_three(void *context) {
    ct_tensor **t = context;
    return ct_assign(t[1], ct_sum(ct_sin(ct_tanh(ct_exp(t[0]))))) != NULL;
}
static bool operand_used_again(void *context) {
    ct_tensor **t = context, *y = ct_exp(t[0]), *z = ct_tanh(y);
    return ct_assign(t[1], ct_add(ct_sum(z), ct_sum(y))) != NULL;
}
static bool operand_used_twice(void *context) {
    ct_tensor **t = context, *y = ct_exp(ct_reshape(t[0], CT_DIMS(64, 64)));
    return ct_assign(t[1], ct_sum(ct_sub(y, ct_t(y)))) != NULL; /* an element is read after another was written */
}
static bool other_dtype(void *context) {
    ct_tensor **t = context;
    return ct_assign(t[1], ct_sum(ct_cast(ct_cast(ct_exp(t[0]), CT_I32), CT_F32))) != NULL;
}
static bool gradient_of_a_loss(void *context) {
    ct_tensor **t = context, *target = t[2], *dx = NULL;
    ct_tensor *x = ct_set_requires_grad(ct_mul_s(ct_reshape(t[0], CT_DIMS(8, 512)), 3), true);
    ct_tensor *loss = ct_cross_entropy_loss(x, target, .label_smoothing = 0.1, .ignore_index = CT_SET(7));
    return ct_grad(&loss, 1, NULL, &x, 1, &dx, 0) &&
           ct_assign(t[1], ct_add(loss, ct_sum(ct_mul(dx, ct_reshape(t[0], CT_DIMS(8, 512)))))) != NULL;
}

TEST(results_overwrite_operands_that_nobody_uses_any_more) {
    static const struct {
        const char *name;
        bool (*function)(void *context);
        int before, after; /* so many times what x takes is in use at once */
    } all[] = {{"a chain", chain_of_three, 2, 1},
               {"an operand that is used again", operand_used_again, 2, 2},
               {"an operand that is also read transposed", operand_used_twice, 2, 2},
               {"casts", other_dtype, 2, 2},
               {"logits", gradient_of_a_loss, 2, 1}};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        ct_tensor *t[] = {ct_randn(CT_DIMS(WIDE)), ct_zeros(CT_DIMS0), ct_randint(CT_DIMS(8), 0, 512)};
        float sums[2];
        ct_graph_info info[2];
        for (int on = 0; on < 2; on++) {
            CHECK(ct_capture_passes(on ? "overwrite" : "none"));
            ct_graph *g = ct_capture(all[f].function, t, 0);
            info[on].size = sizeof *info;
            CHECK(g && ct_graph_describe(g, &info[on]) && ct_fill(t[1], 0) && ct_replay(g) && ct_replay(g));
            sums[on] = (float)ct_item(t[1]);
            ct_graph_free(g);
        }
        CHECK(sums[0] == sums[1]);
        const int64_t wide = WIDE * sizeof(float);
        harness_check(info[0].needed_bytes / wide == all[f].before && info[1].needed_bytes / wide == all[f].after,
                      __FILE__, __LINE__, "%s: %lld bytes as recorded, %lld in place", all[f].name,
                      (long long)info[0].needed_bytes, (long long)info[1].needed_bytes);
    }
    CHECK(ct_capture_passes(NULL));
}

/* y[i] = a[i] + b[n - 1 - i]: it may be written over a, and over b it may not. */
static bool like_a(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}
static bool add_reversed(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const float *of[2];
    const int64_t n = call->out[0]->dims[0];
    for (int i = 0; i < 2; i++) of[i] = (const float *)call->in[i]->buffer + call->in[i]->offset;
    float *y = (float *)call->out[0]->buffer + call->out[0]->offset;
    for (int64_t i = 0; i < n; i++) y[i] = of[0][i] + of[1][n - 1 - i];
    return true;
}
static const ct_arg two_inputs[] = {{"a", CT_ARG_FLOAT}, {"b", CT_ARG_FLOAT}, {NULL, 0}};
static const ct_arg one_output[] = {{"y", 0}, {NULL, 0}};
static ct_op_slot reversed_slot;
static const ct_op reversed = {.size = sizeof(ct_op),
                               .name = "test_add_reversed",
                               .doc = "a and b backwards.",
                               .inputs = two_inputs,
                               .outputs = one_output,
                               .flags = CT_OP_ALIAS_OK | CT_OP_NO_GRAD,
                               .infer = like_a,
                               .slot = &reversed_slot};
static const ct_kernel reversed_kernels[] = {{"reversed", NULL, NULL, add_reversed}, {0}};

static bool over_the_first(void *context) {
    ct_tensor **t = context, *in[] = {ct_exp(t[0]), t[0]}, *y;
    return ct_apply(&reversed, in, 2, NULL, &y, 1) && ct_assign(t[1], y);
}
static bool over_the_second(void *context) {
    ct_tensor **t = context, *in[] = {t[0], ct_exp(t[0])}, *y;
    return ct_apply(&reversed, in, 2, NULL, &y, 1) && ct_assign(t[1], y);
}
static bool beside_the_first(void *context) { /* which lies elsewhere in its storage than the result does */
    ct_tensor **t = context, *in[] = {ct_narrow(t[2], 0, 1, WIDE), ct_exp(t[0])}, *y;
    return ct_apply(&reversed, in, 2, NULL, &y, 1) && ct_assign(t[1], y);
}
static bool one_as_both(void *context) {
    ct_tensor **t = context, *one = ct_exp(t[0]), *in[] = {one, one}, *y;
    return ct_apply(&reversed, in, 2, NULL, &y, 1) && ct_assign(t[1], y);
}

TEST(an_op_that_is_not_elementwise_overwrites_its_first_operand_alone) {
    static bool (*const functions[])(void *context) = {over_the_first, over_the_second, beside_the_first, one_as_both};
    REQUIRE(ct_op_register(&reversed) && ct_op_add_kernels(&reversed, "cpu", reversed_kernels));
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        bool (*function)(void *context) = functions[f];
        ct_tensor *t[] = {ct_randn(CT_DIMS(WIDE)), ct_zeros(CT_DIMS(WIDE)), ct_randn(CT_DIMS(WIDE + 1))}, *eager = NULL;
        CHECK(function(t) && (eager = ct_clone(t[1])) && ct_capture_passes("overwrite"));
        ct_graph *g = ct_capture(function, t, 0);
        ct_graph_info info = {.size = sizeof info};
        CHECK(g && ct_graph_describe(g, &info) && ct_fill(t[1], 0) && ct_replay(g) && ct_replay(g));
        CHECK(harness_same_bits(eager, t[1]));
        CHECK(info.needed_bytes / (WIDE * (int64_t)sizeof(float)) == (f == 0 ? 1 : 2));
        ct_graph_free(g);
    }
    CHECK(ct_capture_passes(NULL));
    for (int to = 0; to < 2; to++) { /* the same of what ct_into names */
        ct_tensor *in[] = {ct_randn(CT_DIMS(WIDE)), ct_randn(CT_DIMS(WIDE))}, *wanted = NULL, *y = NULL;
        CHECK(ct_apply(&reversed, in, 2, NULL, &wanted, 1));
        CHECK(ct_into(in[to]) && ct_apply(&reversed, in, 2, NULL, &y, 1));
        CHECK(y && harness_same_bits(wanted, in[to]));
    }
}

TEST(overwriting_respects_what_is_written_and_effects) {
    static const expectation all[] = {{"written between", written_between, "exp", 2, 0},
                                      {"partly written between", partly_written_between, "exp", 2, 0},
                                      {"written later", result_written_later, "exp", 2, 0},
                                      {"kept", results_kept, "exp", 2, 0},
                                      {"constants", of_changed_constants, "exp", 2, 0},
                                      {"memory that another tensor shares", shared_memory, "exp", 2, 0},
                                      {"memory that was wrapped as well", wrapped_memory, "exp", 2, 0},
                                      {"an effect between", effect_between, "exp", 2, 0}};
    EXPECT_ALL("overwrite", all);
    EXPECT_ALL("hoist,overwrite,order", all);
}
