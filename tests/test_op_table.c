/* What the op table promises as a whole: which ops have no gradient, exactly; and that nothing in it is half filled in. */
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>

#include "tests/harness.h"
#include "tests/opcheck.h"

/* Whether some result of some sample can be differentiated by some input; *floats: the op takes floats at all. */
static bool has_gradient(const ct_op *op, bool *floats) {
    opcheck check = {.op = op};
    opcheck_sample sample;
    const char *at = op->samples;
    bool found = false;
    *floats = false;
    while (!found && opcheck_next_sample(&check, &at, &sample)) {
        ct_scope {
            ct_tensor *in[OPCHECK_INPUTS], *out[OPCHECK_OUTPUTS];
            for (int i = 0; i < sample.n_in; i++) {
                const opcheck_input *input = &sample.in[i];
                in[i] = NULL;
                if (input->skipped) continue;
                int64_t count = opcheck_count(input->shape);
                double *values = malloc(((size_t)count + 1) * sizeof *values);
                opcheck_fill(input, i, false, values, count);
                bool index = opcheck_is_index(input);
                ct_dtype dtype = strcmp(input->domain, "bool") == 0 ? CT_BOOL : index ? CT_I64 : CT_F32;
                in[i] = opcheck_place(dtype, input->shape, values, OPCHECK_DENSE);
                free(values);
                if (!index && !(input->flags & CT_ARG_MUTATED)) ct_set_requires_grad(in[i], true);
            }
            ct_error_clear();
            bool ran = opcheck_apply(&sample, in, out);
            for (int i = 0; i < sample.n_in; i++) *floats |= ran && in[i] && ct_requires_grad(in[i]);
            for (int i = 0; ran && i < sample.n_out && !found; i++)
                found = ct_requires_grad(out[i]) && ct_backward_from(out[i], ct_ones_like(out[i]), CT_RETAIN_GRAPH);
            if (ct_error_code() == CT_ERR_GRAD) ct_error_clear();  /* differentiating it is an error */
            if (ct_error_code() == CT_ERR_DTYPE) ct_error_clear(); /* an op of integers */
        }
        opcheck_free_sample(&sample);
    }
    return found;
}

/* Results that are integer or bool, or whose value depends on no float input; unique and bincount. The
 * comparison is exact: an op that loses its gradient, or gains one, changes this list knowingly. */
static const char *const pinned[] = {
    "all",         "any",          "argmax",     "argmin",      "argsort", "bincount",    "count_nonzero",
    "eq",          "ge",           "gt",         "isfinite",    "isinf",   "isnan",       "le",
    "logical_and", "logical_not",  "logical_or", "logical_xor", "lt",      "multinomial", "ne",
    "nonzero",     "searchsorted", "unique",     NULL,
};

TEST_LIMIT(exactly_these_ops_are_not_differentiable, 120) {
    size_t k = 0;
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        bool floats, gradient;
        if (op->flags & CT_OP_INTERNAL) continue;
        gradient = has_gradient(op, &floats);
        harness_check(ct_ok(), __FILE__, __LINE__, "%s", op->name);
        ct_error_clear();
        if (gradient || !floats) continue;
        if (pinned[k] && strcmp(pinned[k], op->name) == 0) k++;
        else if (pinned[k] && strcmp(pinned[k], op->name) < 0)
            harness_check(false, __FILE__, __LINE__, "%s is in the list and has a gradient, or is gone", pinned[k++]),
                i--;
        else harness_check(false, __FILE__, __LINE__, "%s has no gradient and is not in the list", op->name);
    }
    for (; pinned[k]; k++)
        harness_check(false, __FILE__, __LINE__, "%s is in the list and has a gradient, or is gone", pinned[k]);
}

TEST(the_table_is_in_order_of_name_and_every_op_is_found_by_it) {
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        harness_check(i == 0 || strcmp(ct_op_at(i - 1)->name, op->name) < 0, __FILE__, __LINE__, "%s is out of order",
                      op->name);
        harness_check(ct_op_find(op->name) == op, __FILE__, __LINE__, "%s is not found", op->name);
        harness_check(op->size == sizeof(ct_op) && op->slot && op->slot->index == i + 1, __FILE__, __LINE__,
                      "%s has no place", op->name);
    }
}

TEST(every_op_is_documented_and_has_samples) {
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        harness_check(op->doc && op->doc[0], __FILE__, __LINE__, "%s has no documentation", op->name);
        /* an internal op may be looked at through the op that it serves */
        bool exempt = (op->flags & CT_OP_INTERNAL) || opcheck_is_unset(op);
        harness_check(exempt || (op->samples && op->samples[0]), __FILE__, __LINE__, "%s has no samples", op->name);
    }
}

TEST(every_op_without_lowering_has_a_kernel_on_the_cpu_or_is_a_view) {
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        harness_check(op->lower || (op->flags & CT_OP_VIEW) || ct_op_kernel(op, CT_CPU, 0), __FILE__, __LINE__,
                      "%s cannot run", op->name);
    }
}

TEST(every_differentiable_op_says_how) {
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        bool marked = op->flags & CT_OP_NO_GRAD;
        harness_check(ct_op_differentiable(op) == (!marked && (op->vjp || op->lower)), __FILE__, __LINE__, "%s",
                      op->name);
        harness_check(!marked || !op->vjp, __FILE__, __LINE__, "%s has a vjp and is marked as having no gradient",
                      op->name);
    }
}

TEST(every_level_of_instructions_can_be_chosen_or_says_why_not) {
    const char *best = ct_isa();
    CHECK(ct_set_isa("base"));
    CHECK_TEXT(ct_isa(), "base");
    CHECK(ct_set_isa(best));
    CHECK(!ct_set_isa("z80"));
    CHECK_ERROR(CT_ERR_VALUE, "set_isa: there is no level named z80 on this architecture");
    CHECK(!ct_set_isa(NULL));
    CHECK_ERROR(CT_ERR_NULL, "set_isa: argument name is NULL");
    CHECK_TEXT(ct_isa(), best);
}

/* What an op is made of is no op that people call, and what is the same from both sides has one form with a number. */
TEST(helpers_of_ops_are_not_in_the_public_header) {
    static const char *const helpers[] = {"sigmoid_gate", "channel_relu", "squared_error"};
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) {
        const ct_op *op = ct_op_find(helpers[i]);
        CHECK(op && (op->flags & CT_OP_INTERNAL));
    }
    ct_scope {
        CHECK(ct_item(ct_logaddexp_s(ct_scalar(0, CT_F64), 0)) == 0.69314718055994530942);
    }
}
