/* The sweep over the op table catches what it is there for: ops that are wrong, each in one way, registered here. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cotangent/backend.h>

#include "core/tensor.h"
#include "core/threads.h"
#include "tests/harness.h"
#include "tests/opcheck.h"

/* Runs the sweep on one op, with what it prints swallowed. */
static int failures_with(const ct_op *op, const ct_kernel *kernels, unsigned what) {
    if (!ct_op_register(op) || (kernels && !ct_op_add_kernels(op, "cpu", kernels))) return -1;
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    FILE *nowhere = fopen("/dev/null", "w");
    dup2(fileno(nowhere), STDOUT_FILENO);
    opcheck_counts counts = opcheck_run(&op->name, 1, NULL, what, 1, 0, false);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    fclose(nowhere);
    return counts.ops == 1 && counts.checks + counts.failures > 0 ? counts.failures : -1;
}

static int failures_of(const ct_op *op, unsigned what) { return failures_with(op, NULL, what); }

/* ---- An op to spoil: x * x, with a kernel for each float dtype ---- */

static bool like_input(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}

static void square_lower(ct_lower *l) { l->out[0] = ct_mul(l->in[0], l->in[0]); }
static void square_vjp(ct_vjp *v) { v->grad[0] = ct_mul(v->cot[0], ct_mul_s(v->in[0], 2)); }

/* x * x at any strides; `spoil` may change an element. */
static bool run_square(const ct_call *call, double (*spoil)(const ct_call *call, int64_t index, double y)) {
    const ct_view *x = call->in[0], *y = call->out[0];
    int64_t count = ct__view_count(x), at[CT_MAX_DIMS] = {0};
    for (int64_t k = 0; k < count; k++) {
        int64_t from = x->offset, to = y->offset;
        for (int d = 0; d < x->ndim; d++) from += at[d] * x->strides[d], to += at[d] * y->strides[d];
        if (x->dtype == CT_F64) {
            double value = ((const double *)x->buffer)[from];
            value *= value;
            ((double *)y->buffer)[to] = spoil ? spoil(call, k, value) : value;
        } else {
            float value = ((const float *)x->buffer)[from];
            value *= value;
            ((float *)y->buffer)[to] = (float)(spoil ? spoil(call, k, value) : value);
        }
        for (int d = x->ndim - 1; d >= 0 && ++at[d] == x->dims[d]; d--) at[d] = 0;
    }
    return true;
}

static const char *only_f32_and_f64(const ct_call *call) {
    return call->in[0]->dtype == CT_F64 || call->in[0]->dtype == CT_F32 ? NULL : "only f32 and f64";
}

static const ct_arg inputs[] = {{"x", CT_ARG_FLOAT}, {NULL, 0}}, outputs[] = {{"y", 0}, {NULL, 0}};
#define SAMPLES "[1]\n[5]\n[67]\n[3,5,7]\n[0,3]\n[]\n[2,20011]\n"

#define KERNEL(label, expression)                                                                    \
    static double spoil_##label(const ct_call *call, int64_t index, double y) {                      \
        (void)call, (void)index;                                                                     \
        return expression;                                                                           \
    }                                                                                                \
    static bool run_##label(const ct_call *call, ct_stream *stream) {                                \
        (void)stream;                                                                                \
        return run_square(call, spoil_##label);                                                      \
    }                                                                                                \
    static const ct_kernel kernels_##label[] = {{#label, only_f32_and_f64, NULL, run_##label}, {0}}; \
    static ct_op_slot slot_##label;                                                                  \
    static const ct_op op_##label = {.size = sizeof(ct_op),                                          \
                                     .name = "sweep_" #label,                                        \
                                     .doc = "x * x.",                                                \
                                     .inputs = inputs,                                               \
                                     .outputs = outputs,                                             \
                                     .saves_in = 1,                                                  \
                                     .infer = like_input,                                            \
                                     .vjp = square_vjp,                                              \
                                     .lower = square_lower,                                          \
                                     .samples = SAMPLES,                                             \
                                     .slot = &slot_##label};

KERNEL(right, y)
/* off by 20 units in the last place of f32, at one element */
KERNEL(inexact, index == 3 ? y * (1 + 20 * 0x1p-23) : y)
KERNEL(tail, index == 66 ? 0 : y)
KERNEL(nan_at_zero_rank, call->in[0]->ndim == 0 ? NAN : y)
/* reads a transposed input as if it were dense */
KERNEL(layout, call->in[0]->ndim == 3 && call->in[0]->strides[0] == 1 ? y + 1 : y)
KERNEL(level, strcmp(ct_isa(), "base") == 0 ? y : y * (1 + 1e-4))
KERNEL(f64_in_f32, (float)y)

TEST(a_right_op_passes) { CHECK(failures_with(&op_right, kernels_right, OPCHECK_ALL) == 0); }
TEST(an_inexact_element_is_caught) { CHECK(failures_with(&op_inexact, kernels_inexact, OPCHECK_VALUES) == 1); }
TEST(a_wrong_last_element_is_caught) { CHECK(failures_with(&op_tail, kernels_tail, OPCHECK_VALUES) == 1); }
TEST(a_wrong_scalar_is_caught) {
    CHECK(failures_with(&op_nan_at_zero_rank, kernels_nan_at_zero_rank, OPCHECK_VALUES) == 1);
}
TEST(a_wrong_layout_is_caught) { CHECK(failures_with(&op_layout, kernels_layout, OPCHECK_VALUES) == 1); }
TEST(a_level_that_differs_is_caught) {
    if (strcmp(ct_isa(), "base") == 0) SKIP("this machine has one level");
    CHECK(failures_with(&op_level, kernels_level, OPCHECK_VALUES) == 1);
}
TEST(f64_computed_in_f32_is_caught) { CHECK(failures_with(&op_f64_in_f32, kernels_f64_in_f32, OPCHECK_VALUES) == 1); }

static void crash_lower(ct_lower *l) {
    l->out[0] = NULL;
    kill(getpid(), SIGSEGV);
}
static ct_op_slot crash_slot;
static const ct_op crash = {.size = sizeof(ct_op),
                            .name = "sweep_crash",
                            .doc = "",
                            .inputs = inputs,
                            .outputs = outputs,
                            .infer = like_input,
                            .lower = crash_lower,
                            .samples = "[3]\n",
                            .slot = &crash_slot};
TEST(a_crash_is_one_failure) { CHECK(failures_of(&crash, OPCHECK_VALUES) == 1); }

static void leak_lower(ct_lower *l) { l->out[0] = ct_keep(ct_mul(l->in[0], l->in[0])); }
static ct_op_slot leak_slot;
static const ct_op leak = {.size = sizeof(ct_op),
                           .name = "sweep_leak",
                           .doc = "",
                           .inputs = inputs,
                           .outputs = outputs,
                           .infer = like_input,
                           .lower = leak_lower,
                           .samples = "[3]\n",
                           .slot = &leak_slot};
TEST(a_leak_is_caught) { CHECK(failures_of(&leak, OPCHECK_VALUES) == 1); }

/* ---- Gradients ---- */

#define GRADIENT(label, expression)                                 \
    static void vjp_##label(ct_vjp *v) { v->grad[0] = expression; } \
    static ct_op_slot slot_##label;                                 \
    static const ct_op op_##label = {.size = sizeof(ct_op),         \
                                     .name = "sweep_" #label,       \
                                     .doc = "x * x.",               \
                                     .inputs = inputs,              \
                                     .outputs = outputs,            \
                                     .saves_in = 1,                 \
                                     .infer = like_input,           \
                                     .vjp = vjp_##label,            \
                                     .lower = square_lower,         \
                                     .samples = SAMPLES,            \
                                     .slot = &slot_##label};

GRADIENT(first_order, ct_mul(v->cot[0], ct_mul_s(v->in[0], 2 + 1e-7)))
GRADIENT(detached, ct_mul(v->cot[0], ct_mul_s(ct_detach(v->in[0]), 2)))
GRADIENT(detached_cotangent, ct_mul(ct_detach(v->cot[0]), ct_mul_s(v->in[0], 2)))
GRADIENT(forgotten, NULL)
GRADIENT(contiguous_only,
         ct_is_contiguous(v->cot[0]) ? ct_mul(v->cot[0], ct_mul_s(v->in[0], 2)) : ct_mul_s(v->in[0], 2))

TEST(a_first_derivative_off_by_a_ten_millionth_is_caught) {
    CHECK(failures_of(&op_first_order, OPCHECK_GRADIENTS) == 1);
}
TEST(a_gradient_cut_from_its_input_is_caught) { CHECK(failures_of(&op_detached, OPCHECK_GRADIENTS) == 1); }
TEST(a_gradient_cut_from_its_cotangent_is_caught) {
    CHECK(failures_of(&op_detached_cotangent, OPCHECK_GRADIENTS) == 1);
}
TEST(a_forgotten_gradient_is_caught) { CHECK(failures_of(&op_forgotten, OPCHECK_GRADIENTS) == 1); }
TEST(a_gradient_that_wants_a_dense_cotangent_is_caught) {
    CHECK(failures_of(&op_contiguous_only, OPCHECK_GRADIENTS) == 1);
}

/* log of the sum of exp of two elements, whose derivative reads the result: of too few digits in half precision. */
static bool one_number(ct_infer *infer) {
    infer->out[0] = (ct_view){.dtype = infer->in[0]->dtype};
    return true;
}
static void coarse_lower(ct_lower *l) { l->out[0] = ct_log(ct_sum(ct_exp(l->in[0]))); }
static void coarse_vjp(ct_vjp *v) { v->grad[0] = ct_mul(v->cot[0], ct_exp(ct_sub(v->in[0], v->out[0]))); }
static ct_op_slot coarse_slot;
static const ct_op coarse = {.size = sizeof(ct_op),
                             .name = "sweep_coarse",
                             .doc = "",
                             .inputs = inputs,
                             .outputs = outputs,
                             .saves_in = 1,
                             .saves_out = 1,
                             .infer = one_number,
                             .vjp = coarse_vjp,
                             .lower = coarse_lower,
                             .samples = "[2]\n[7]\n",
                             .slot = &coarse_slot};
TEST(a_gradient_that_reads_a_half_result_is_caught) { CHECK(failures_of(&coarse, OPCHECK_GRADIENTS) == 1); }

/* A kink where the sample says there is none. */
static void step_lower(ct_lower *l) { l->out[0] = ct_sum(ct_relu(l->in[0])); }
static bool scalar_result(ct_infer *infer) {
    infer->out[0].dtype = infer->in[0]->dtype;
    infer->out[0].ndim = 0;
    return true;
}
static ct_op_slot rough_slot;
static const ct_op rough = {.size = sizeof(ct_op),
                            .name = "sweep_rough",
                            .doc = "",
                            .inputs = inputs,
                            .outputs = outputs,
                            .infer = scalar_result,
                            .lower = step_lower,
                            .samples = "[2000]\n",
                            .slot = &rough_slot};
TEST(a_sample_that_is_not_smooth_is_a_failure) { CHECK(failures_of(&rough, OPCHECK_GRADIENTS) == 1); }

/* ---- Threads ---- */

static bool run_threads(const ct_call *call, ct_stream *stream) {
    (void)stream;
    bool ok = run_square(call, NULL);
    if (ct__view_count(call->out[0]) && ct__threads() == 7) /* one bit */
        ((unsigned char *)call->out[0]->buffer)[(size_t)call->out[0]->offset * ct_dtype_size(call->out[0]->dtype)] ^= 1;
    return ok;
}
static const ct_kernel kernels_threads[] = {{"threads", only_f32_and_f64, NULL, run_threads}, {0}};
static ct_op_slot slot_threads;
static const ct_op threads = {.size = sizeof(ct_op),
                              .name = "sweep_threads",
                              .doc = "x * x.",
                              .inputs = inputs,
                              .outputs = outputs,
                              .saves_in = 1,
                              .infer = like_input,
                              .vjp = square_vjp,
                              .lower = square_lower,
                              .samples = SAMPLES,
                              .slot = &slot_threads};
TEST(one_bit_that_depends_on_the_threads_is_caught) {
    CHECK(failures_with(&threads, kernels_threads, OPCHECK_THREADS) == 1);
}

/* ---- Integers ---- */

static void wrong_integer(ct_lower *l) {
    l->out[0] = ct_dtype_of(l->in[0]) == CT_I8 ? ct_add_s(ct_mul(l->in[0], l->in[0]), 1) : ct_mul(l->in[0], l->in[0]);
}
static const ct_arg any_input[] = {{"x", 0}, {NULL, 0}};
static ct_op_slot integer_slot;
static const ct_op integer = {.size = sizeof(ct_op),
                              .name = "sweep_integer",
                              .doc = "x * x.",
                              .inputs = any_input,
                              .outputs = outputs,
                              .infer = like_input,
                              .lower = wrong_integer,
                              .samples = SAMPLES,
                              .slot = &integer_slot};
TEST(an_integer_width_that_differs_is_caught) { CHECK(failures_of(&integer, OPCHECK_VALUES) == 1); }

TEST(a_sample_that_cannot_be_read_is_a_failure) {
    static ct_op_slot slot;
    static ct_op op;
    op = op_right;
    op.name = "sweep_sample";
    op.samples = "[3 axis=1\n";
    op.slot = &slot;
    CHECK(failures_of(&op, OPCHECK_VALUES) == 1);
}
