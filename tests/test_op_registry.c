/* Ops that user code registers, the dispatch log, and random streams. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include <cotangent/backend.h>

#include "tests/harness.h"

/* ---- User ops ---- */

typedef struct power_attrs {
    int64_t n;
} power_attrs;

static bool same_shape(ct_infer *infer) {
    infer->out[0].dtype = infer->in[0]->dtype;
    infer->out[0].ndim = infer->in[0]->ndim;
    for (int i = 0; i < infer->in[0]->ndim; i++) infer->out[0].dims[i] = infer->in[0]->dims[i];
    const power_attrs *a = infer->attrs;
    if (a->n < 0) return ct_infer_fail(infer, CT_ERR_VALUE, "n is %lld, which is negative", (long long)a->n);
    return true;
}

static void power_lower(ct_lower *l) {
    const power_attrs *a = l->attrs;
    ct_tensor *y = ct_ones_like(l->in[0]);
    for (int64_t i = 0; i < a->n; i++) y = ct_mul(y, l->in[0]);
    l->out[0] = y;
}

static const ct_arg one_input[] = {{"x", CT_ARG_FLOAT}, {NULL, 0}};
static const ct_arg one_output[] = {{"y", 0}, {NULL, 0}};
static const ct_attr power_schema[] = {
    {.name = "n", .type = CT_ATTR_INT, .offset = offsetof(power_attrs, n), .number = 2}, {.name = NULL}};

static ct_op_slot lowered_slot;
static const ct_op lowered = {.size = sizeof(ct_op),
                              .name = "test_power",
                              .doc = "x to the n.",
                              .inputs = one_input,
                              .outputs = one_output,
                              .attrs = power_schema,
                              .attr_size = sizeof(power_attrs),
                              .infer = same_shape,
                              .lower = power_lower,
                              .slot = &lowered_slot};

static bool call_lowered(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    return ct_apply(&lowered, in, n, context, out, m);
}

TEST(an_op_without_kernel_and_vjp_is_run_and_differentiated_by_its_lowering) {
    REQUIRE(ct_op_register(&lowered));
    CHECK(ct_op_find("test_power") == &lowered);
    CHECK(ct_op_at(ct_op_count() - 1) == &lowered);
    CHECK(ct_op_differentiable(&lowered));
    power_attrs three = {3};
    ct_tensor *x = F64(CT_DIMS(2), 2, -1), *y = NULL;
    CHECK(ct_apply(&lowered, &x, 1, &three, &y, 1));
    CHECK_VALUES(y, CT_DIMS(2), 0, 8, -1);
    CHECK(ct_apply(&lowered, &x, 1, NULL, &y, 1)); /* defaults */
    CHECK_VALUES(y, CT_DIMS(2), 0, 4, 1);
    CHECK(ct_check_grad(call_lowered, &three, &x, 1, 1));
    ct_tensor *half = ct_cast(x, CT_F16);
    CHECK(ct_apply(&lowered, &half, 1, &three, &y, 1));
    CHECK(ct_dtype_of(y) == CT_F16);
    ct_tensor *whole = I64(CT_DIMS(2), 2, 3); /* CT_ARG_FLOAT makes it f32 */
    CHECK(ct_apply(&lowered, &whole, 1, &three, &y, 1));
    CHECK(ct_dtype_of(y) == CT_F32);
    CHECK_VALUES(y, CT_DIMS(2), 0, 8, 27);
    power_attrs bad = {-1};
    CHECK(!ct_apply(&lowered, &x, 1, &bad, &y, 1) && y == NULL);
    CHECK_ERROR(CT_ERR_VALUE, "test_power: n is -1, which is negative");
}

TEST(an_op_is_registered_once) {
    REQUIRE(ct_op_register(&lowered));
    CHECK(!ct_op_register(&lowered));
    CHECK_ERROR(CT_ERR_VALUE, "op_register: there is an op named test_power already");
    ct_op clash = lowered;
    clash.name = "add";
    CHECK(!ct_op_register(&clash));
    CHECK_ERROR(CT_ERR_VALUE, "op_register: there is an op named add already");
}

TEST(a_definition_that_cannot_work_is_refused) {
    ct_op op = lowered;
    op.name = "test_bad";
    op.size = 3;
    CHECK(!ct_op_register(&op));
    CHECK(ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    op = lowered;
    op.name = NULL;
    CHECK(!ct_op_register(&op));
    CHECK_ERROR(CT_ERR_NULL, "op_register: argument op->name is NULL");
    op = lowered;
    op.name = "test_bad";
    op.infer = NULL;
    op.lower = NULL;
    CHECK(!ct_op_register(&op));
    CHECK_ERROR(CT_ERR_VALUE, "op_register: op test_bad has neither infer nor lower");
    static const ct_arg misplaced[] = {{"xs", CT_ARG_LIST}, {"y", 0}, {NULL, 0}};
    op = lowered;
    op.name = "test_bad";
    op.inputs = misplaced;
    CHECK(!ct_op_register(&op));
    CHECK_ERROR(CT_ERR_VALUE, "op_register: op test_bad: the list input xs has to be the last");
    CHECK(!ct_op_register(NULL));
    CHECK_ERROR(CT_ERR_NULL, "op_register: argument op is NULL");
}

/* With a kernel of its own, for dense f64; `can` refuses the rest, which is lowered. */
static int kernel_runs;
static const char *can_cube(const ct_call *call) { return call->in[0]->dtype == CT_F64 ? NULL : "only f64"; }
static size_t cube_scratch(const ct_call *call) {
    (void)call;
    return 64;
}
static bool run_cube(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *x = call->in[0];
    ct_view *y = call->out[0];
    int64_t n = 1, at[CT_MAX_DIMS] = {0};
    for (int i = 0; i < x->ndim; i++) n *= x->dims[i];
    memset((char *)call->scratch.buffer + call->scratch.offset, 0, 64);
    kernel_runs++;
    for (int64_t k = 0; k < n; k++) {
        int64_t from = x->offset, to = y->offset;
        for (int d = 0; d < x->ndim; d++) from += at[d] * x->strides[d], to += at[d] * y->strides[d];
        double value = ((const double *)x->buffer)[from];
        if (value > 1e6) return ct_fail(CT_ERR_VALUE, call->op->name, "%g at %lld is too large", value, (long long)k);
        ((double *)y->buffer)[to] = value * value * value;
        for (int d = x->ndim - 1; d >= 0 && ++at[d] == x->dims[d]; d--) at[d] = 0;
    }
    return true;
}
static const ct_kernel cube_kernels[] = {{"cube_f64", can_cube, cube_scratch, run_cube}, {0}};
static bool cube_infer(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}
static void cube_lower(ct_lower *l) { l->out[0] = ct_mul(ct_mul(l->in[0], l->in[0]), l->in[0]); }
static void cube_vjp(ct_vjp *v) { v->grad[0] = ct_mul(v->cot[0], ct_mul_s(ct_mul(v->in[0], v->in[0]), 3)); }
static ct_op_slot cube_slot;
static const ct_op cube = {.size = sizeof(ct_op),
                           .name = "test_cube",
                           .doc = "x cubed.",
                           .inputs = one_input,
                           .outputs = one_output,
                           .saves_in = 1,
                           .infer = cube_infer,
                           .vjp = cube_vjp,
                           .lower = cube_lower,
                           .slot = &cube_slot};
static bool call_cube(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context;
    return ct_apply(&cube, in, n, NULL, out, m);
}

TEST(a_user_ops_kernel_runs_where_it_can_and_its_lowering_elsewhere) {
    REQUIRE(ct_op_register(&cube) && ct_op_add_kernels(&cube, "cpu", cube_kernels));
    ct_tensor *x = F64(CT_DIMS(2, 2), 1, 2, 3, -4), *y = NULL, *small = ct_cast(x, CT_F32);
    CHECK(ct_apply(&cube, &x, 1, NULL, &y, 1) && kernel_runs == 1);
    CHECK_VALUES(y, CT_DIMS(2, 2), 0, 1, 8, 27, -64);
    ct_tensor *turned = ct_t(x);
    CHECK(ct_apply(&cube, &turned, 1, NULL, &y, 1) && kernel_runs == 2);
    CHECK_VALUES(y, CT_DIMS(2, 2), 0, 1, 27, 8, -64);
    CHECK(ct_apply(&cube, &small, 1, NULL, &y, 1) && kernel_runs == 2);
    CHECK(ct_dtype_of(y) == CT_F32);
    CHECK_VALUES(y, CT_DIMS(2, 2), 0, 1, 8, 27, -64);
    CHECK(ct_check_grad(call_cube, NULL, &x, 1, 1));
    ct_tensor *large = F64(CT_DIMS(1), 1e7);
    CHECK(!ct_apply(&cube, &large, 1, NULL, &y, 1));
    CHECK_ERROR(CT_ERR_VALUE, "test_cube: 1e+07 at 0 is too large");
}

static ct_op_slot bare_slot;
static const ct_op bare = {.size = sizeof(ct_op),
                           .name = "test_bare",
                           .doc = "A kernel only.",
                           .inputs = one_input,
                           .outputs = one_output,
                           .infer = cube_infer,
                           .slot = &bare_slot};

TEST(without_kernel_and_lowering_the_error_names_what_was_tried) {
    REQUIRE(ct_op_register(&bare) && ct_op_add_kernels(&bare, "cpu", cube_kernels));
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *y = NULL;
    CHECK(!ct_apply(&bare, &x, 1, NULL, &y, 1));
    CHECK_ERROR(CT_ERR_UNSUPPORTED,
                "test_bare: no kernel of cpu takes f32[2] (cube_f64: only f64), and the op has no lowering");
    CHECK(!ct_op_differentiable(&bare));
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(1), 2), true);
    REQUIRE(ct_apply(&bare, &w, 1, NULL, &y, 1));
    /* a silently detached gradient would be the worst answer */
    CHECK(!ct_requires_grad(y) || !ct_backward(y));
    CHECK(ct_ok() || ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

/* Of one row it needs nothing; what it says of more than the table does not count. */
static void pass_on(ct_vjp *v) { v->grad[0] = ct_dim(v->in[0], 0) == 1 ? v->cot[0] : ct_mul(v->cot[0], v->in[0]); }
static void save_rows(ct_saving *s) {
    if (ct_dim(s->in[0], 0) == 1) s->saves.in = 0;
    s->saves.out = ~(uint64_t)0;
}
static ct_op_slot saver_slot;
static const ct_op saver = {.size = sizeof(ct_op),
                            .name = "test_saver",
                            .doc = "Its derivative is given, whatever it is.",
                            .inputs = one_input,
                            .outputs = one_output,
                            .saves_in = 1,
                            .infer = cube_infer,
                            .vjp = pass_on,
                            .lower = cube_lower,
                            .slot = &saver_slot,
                            .saves_less = save_rows};

TEST(an_op_may_save_less_of_some_calls_and_never_more) {
    REQUIRE(ct_op_register(&saver));
    for (int rows = 1; rows <= 2; rows++) {
        ct_tensor *leaf = ct_set_requires_grad(ct_full(CT_DIMS(rows), 3), true), *x = ct_neg(leaf), *y = NULL;
        REQUIRE(ct_apply(&saver, &x, 1, NULL, &y, 1));
        ct_tensor *sum = ct_sum(y);
        ct_no_grad {
            ct_fill(y, 7);
        }
        if (rows == 1) {
            ct_no_grad {
                ct_fill(x, 7);
            }
        }
        CHECK(ct_backward(sum));
        CHECK_NEAR(harness_at(ct_grad_of(leaf), 0), rows == 1 ? -1 : 3, 0);
    }
    ct_tensor *leaf = ct_set_requires_grad(ct_full(CT_DIMS(2), 3), true), *x = ct_neg(leaf), *y = NULL;
    REQUIRE(ct_apply(&saver, &x, 1, NULL, &y, 1));
    ct_no_grad {
        ct_fill(x, 7);
    }
    CHECK(!ct_backward(ct_sum(y)));
    CHECK_ERROR(CT_ERR_GRAD, "test_saver: argument x was changed in place after the op ran, and its gradient needs the "
                             "old values; clone it first, or change it out of place");
}

/* ---- The dispatch log ---- */

TEST(the_dispatch_log_has_a_line_a_call_with_shapes_and_kernel) {
    ct_tensor *a = ct_ones(CT_DIMS(2, 3)), *b = ct_ones(CT_DIMS(3));
    harness_log_start();
    ct_add(a, b);
    harness_log_stop();
    ct_add(a, b);
    CHECK(harness_log_calls("add") == 1);
    const char *line = NULL;
    for (int i = 0; harness_log_line(i); i++)
        if (strncmp(harness_log_line(i), "add(", 4) == 0) line = harness_log_line(i);
    REQUIRE(line != NULL);
    CHECK(strncmp(line, "add(f32[2,3], f32[2,3]) -> f32[2,3]  ", 37) == 0);
    CHECK(strstr(line, " us") != NULL);
}

TEST(the_dispatch_log_tells_refusals_and_lowerings) {
    REQUIRE(ct_op_register(&cube) && ct_op_add_kernels(&cube, "cpu", cube_kernels));
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *y = NULL;
    harness_log_start();
    ct_apply(&cube, &x, 1, NULL, &y, 1);
    harness_log_stop();
    REQUIRE(harness_log_line(0) != NULL);
    CHECK(strncmp(harness_log_line(0), "test_cube(f32[2]) -> f32[2]  lower (cube_f64: only f64)", 55) == 0);
    CHECK(harness_log_calls("mul") == 2);
}

TEST(a_log_that_does_not_exist_is_an_error) {
    CHECK(!ct_set_log("weather"));
    CHECK_ERROR(CT_ERR_VALUE, "set_log: there is no log named weather; there are: dispatch, capture, replay");
    CHECK(ct_set_log(NULL) && ct_set_log(""));
}

/* ---- Random streams ---- */

TEST(a_seed_fixes_the_stream_and_every_call_moves_on) {
    ct_seed(7);
    CHECK(ct_rng_position(NULL) == 0);
    ct_tensor *a = ct_rand(CT_DIMS(100)), *b = ct_rand(CT_DIMS(100));
    CHECK(ct_rng_position(NULL) == 2);
    CHECK(!harness_same_bits(a, b));
    ct_seed(7);
    CHECK(harness_same_bits(a, ct_rand(CT_DIMS(100))));
    CHECK(harness_same_bits(b, ct_rand(CT_DIMS(100))));
    CHECK(ct_rng_set_position(NULL, 1));
    CHECK(harness_same_bits(b, ct_rand(CT_DIMS(100))));
    ct_seed(8);
    CHECK(!harness_same_bits(a, ct_rand(CT_DIMS(100))));
}

TEST(generators_are_independent_of_each_other) {
    ct_rng *one = ct_rng_new(3, 0), *two = ct_rng_new(3, 1), *again = ct_rng_new(3, 0);
    uint64_t before = ct_rng_position(NULL);
    ct_tensor *a = ct_randn(CT_DIMS(64), .rng = one), *b = ct_randn(CT_DIMS(64), .rng = two),
              *c = ct_randn(CT_DIMS(64), .rng = again);
    CHECK(harness_same_bits(a, c));
    CHECK(!harness_same_bits(a, b));
    CHECK(ct_rng_position(one) == 1 && ct_rng_position(NULL) == before);
    CHECK(ct_rng_set_position(one, 0));
    CHECK(harness_same_bits(a, ct_randn(CT_DIMS(64), .rng = one)));
    ct_rng_free(one);
    ct_rng_free(two);
    ct_rng_free(again);
}

TEST(a_longer_draw_begins_with_the_shorter_one) {
    ct_seed(5);
    ct_tensor *few = ct_rand(CT_DIMS(10));
    ct_seed(5);
    ct_tensor *many = ct_rand(CT_DIMS(1000));
    CHECK(harness_same_bits(few, ct_narrow(many, 0, 0, 10))); /* value = f(seed, call, element) */
}

TEST(uniform_numbers_fill_their_range_evenly) {
    enum { N = 1 << 18 };
    ct_seed(1);
    ct_tensor *x = ct_rand(CT_DIMS(N), .dtype = CT_F64);
    CHECK(ct_item(ct_amin(x)) >= 0 && ct_item(ct_amax(x)) < 1);
    CHECK_NEAR(ct_item(ct_mean(x)), 0.5, 6 * sqrt(1.0 / 12 / N));
    CHECK_NEAR(ct_item(ct_mean(ct_mul(x, x))), 1.0 / 3, 6 * sqrt(4.0 / 45 / N));
    ct_tensor *z = ct_randn(CT_DIMS(N), .dtype = CT_F64);
    CHECK_NEAR(ct_item(ct_mean(z)), 0, 6 / sqrt(N));
    CHECK_NEAR(ct_item(ct_mean(ct_mul(z, z))), 1, 6 * sqrt(2.0 / N));
    CHECK_NEAR(ct_item(ct_mean(ct_pow_s(z, 4))), 3, 6 * sqrt(96.0 / N));
}

/* ---- Ops of user code that do not keep their promises ---- */

static int odd_ndim;
static int64_t odd_size;
static ct_dtype odd_dtype;

static bool odd_infer(ct_infer *infer) {
    infer->out[0].dtype = odd_dtype;
    infer->out[0].ndim = odd_ndim;
    for (int i = 0; i < odd_ndim && i < CT_MAX_DIMS; i++)
        infer->out[0].dims[i] = odd_size, infer->out[0].strides[i] = 1;
    return true;
}

static void doubled(ct_lower *l) { l->out[0] = ct_add(l->in[0], l->in[0]); }
static ct_op_slot odd_slot, odd_view_slot;
static const ct_op odd = {.size = sizeof(ct_op),
                          .name = "odd",
                          .doc = "",
                          .inputs = one_input,
                          .outputs = one_output,
                          .infer = odd_infer,
                          .lower = doubled,
                          .slot = &odd_slot};
static const ct_op odd_view = {.size = sizeof(ct_op),
                               .name = "odd_view",
                               .doc = "",
                               .inputs = one_input,
                               .outputs = one_output,
                               .flags = CT_OP_VIEW,
                               .infer = odd_infer,
                               .slot = &odd_view_slot};

TEST(what_a_user_op_infers_is_checked) {
    REQUIRE(ct_op_register(&odd) && ct_op_register(&odd_view));
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *y = x;
    odd_ndim = 12, odd_size = 2, odd_dtype = CT_F32;
    CHECK(!ct_apply(&odd, &x, 1, NULL, &y, 1) && !y);
    CHECK_ERROR(CT_ERR_SHAPE, "odd: its infer gave result 0 12 dimensions; 0 to 8 can be had");
    odd_ndim = 1, odd_size = -2;
    CHECK(!ct_apply(&odd, &x, 1, NULL, &y, 1) && !y);
    CHECK_ERROR(CT_ERR_SHAPE,
                "odd: the result would be f32[-2]: a size is negative, or there are more elements than can "
                "be counted");
    odd_ndim = 3, odd_size = 1LL << 40;
    CHECK(!ct_apply(&odd, &x, 1, NULL, &y, 1) && !y && ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    odd_ndim = 1, odd_size = 2, odd_dtype = (ct_dtype)99;
    CHECK(!ct_apply(&odd, &x, 1, NULL, &y, 1) && !y && ct_error_code() == CT_ERR_DTYPE);
    ct_error_clear();
    odd_ndim = 1, odd_size = 3, odd_dtype = CT_F32; /* what the lowering gives is [2] */
    CHECK(!ct_apply(&odd, &x, 1, NULL, &y, 1) && !y);
    CHECK_ERROR(CT_ERR_SHAPE, "odd: its lowering gave f32[2] as result 0, where its infer said f32[3]");
    CHECK(!ct_apply(&odd_view, &x, 1, NULL, &y, 1) && !y);
    CHECK_ERROR(CT_ERR_SHAPE, "odd_view: its infer gave result 0, f32[3], elements outside of the storage of x");
    odd_size = 2;
    CHECK(ct_apply(&odd, &x, 1, NULL, &y, 1));
    CHECK_VALUES(y, CT_DIMS(2), 0, 2, 4);
    CHECK(ct_apply(&odd_view, &x, 1, NULL, &y, 1));
    CHECK_VALUES(y, CT_DIMS(2), 0, 1, 2);
}

TEST(apply_without_arrays_is_an_error) {
    const ct_op *add = ct_op_find("add"), *cat = ct_op_find("cat");
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *pair[2] = {x, x}, *y = NULL;
    CHECK(!ct_apply(add, NULL, 2, NULL, &y, 1));
    CHECK_ERROR(CT_ERR_NULL, "add: argument inputs is NULL");
    CHECK(!ct_apply(cat, NULL, 3, NULL, &y, 1));
    CHECK_ERROR(CT_ERR_NULL, "cat: argument inputs is NULL");
    CHECK(!ct_apply(add, pair, 2, NULL, NULL, 1));
    CHECK_ERROR(CT_ERR_NULL, "add: argument outputs is NULL");
    CHECK(!ct_apply(add, pair, -1, NULL, &y, 1));
    CHECK_ERROR(CT_ERR_VALUE, "add: takes 2 inputs, not -1");
}

TEST(only_optional_results_can_be_left_out) {
    const bool none[2] = {false, false}, first[2] = {true, false};
    ct_tensor *x = F32(CT_DIMS(2), 2, 1), *y[2];
    CHECK(!ct_apply_with(ct_op_find("sort"), &x, 1, NULL, y, 2, none, NULL));
    CHECK_ERROR(CT_ERR_VALUE, "sort: result 0, values, is always computed; it cannot be left out");
    CHECK(ct_apply_with(ct_op_find("sort"), &x, 1, NULL, y, 2, first, NULL) && y[0] && !y[1]);
}
