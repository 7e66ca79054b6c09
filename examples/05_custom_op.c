/* An op of one's own: softsquare(x) = log(1 + x^2) with a scale, registered at run time. It is then an op like any
 * other: differentiable to any order, callable by name. */
#include <cotangent.h>
#include <cotangent/op.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

typedef struct softsquare_attrs {
    double scale;
} softsquare_attrs;

/* The shape and dtype of the result, and every complaint about the arguments. */
static bool softsquare_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    const softsquare_attrs *attrs = infer->attrs;
    if (!(attrs->scale > 0))
        return ct_infer_fail(infer, CT_ERR_VALUE, "scale is %g, expected a positive number", attrs->scale);
    infer->out[0] = *x;
    return true;
}

/* The value in simpler ops: it runs on every backend. A kernel could be added later, for speed alone. */
static void softsquare_lower(ct_lower *lower) {
    const softsquare_attrs *attrs = lower->attrs;
    lower->out[0] = ct_mul_s(ct_log1p(ct_mul(lower->in[0], lower->in[0])), attrs->scale);
}

/* The vector-Jacobian product, in ops too, so that it can be differentiated again: g * scale * 2x / (1 + x^2). */
static void softsquare_vjp(ct_vjp *vjp) {
    const softsquare_attrs *attrs = vjp->attrs;
    ct_tensor *x = vjp->in[0];
    ct_tensor *slope = ct_div(ct_mul_s(x, 2 * attrs->scale), ct_add_s(ct_mul(x, x), 1));
    vjp->grad[0] = ct_mul(vjp->cot[0], slope);
}

static const ct_arg softsquare_inputs[] = {{"x", CT_ARG_FLOAT}, {NULL, 0}};
static const ct_arg softsquare_outputs[] = {{"y", 0}, {NULL, 0}};
static const ct_attr softsquare_options[] = {
    {.name = "scale", .type = CT_ATTR_DOUBLE, .offset = offsetof(softsquare_attrs, scale), .number = 1},
    {.name = NULL},
};
static ct_op_slot softsquare_slot;
static const ct_op softsquare = {
    .size = sizeof(ct_op),
    .name = "softsquare",
    .doc = "scale * log(1 + x^2).",
    .inputs = softsquare_inputs,
    .outputs = softsquare_outputs,
    .attrs = softsquare_options,
    .attr_size = sizeof(softsquare_attrs),
    .saves_in = 1, /* vjp reads x */
    .infer = softsquare_infer,
    .vjp = softsquare_vjp,
    .lower = softsquare_lower,
    .slot = &softsquare_slot,
};

static bool call(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    return ct_apply(&softsquare, in, n, context, out, m);
}

int main(void) {
    ct_op_register(&softsquare);
    softsquare_attrs attrs;
    ct_attrs_default(ct_op_find("softsquare"), &attrs);
    ct_attrs_set(&softsquare, &attrs, "scale", "0.5");

    const double values[] = {-1, 0.5, 2};
    ct_tensor *x = ct_from_data(values, CT_DIMS(3), CT_F64), *y = NULL;
    call(&attrs, &x, 1, &y, 1);
    ct_print(y);
    if (ct_check_grad(call, &attrs, &x, 1, 1)) printf("right to second order\n");
    const double first = ct_item(ct_narrow(y, 0, 0, 1));

    softsquare_attrs bad = {.scale = -1};
    ct_tensor *none = NULL;
    const bool refused = ct_ok() && !call(&bad, &x, 1, &none, 1);
    if (refused) printf("as expected: %s\n", ct_error());
    return refused && fabs(first - 0.5 * log(2)) < 1e-12 ? 0 : 1;
}
