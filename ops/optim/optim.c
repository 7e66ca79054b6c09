/* The steps of the optimizers as ops: the check of their lists. What they mean is in lower.c, and their kernels do the same in
 * one pass over all items. */
#include "ops/optim/optim.h"

#include "ops/op_impl.h"

/* The list from input `first` on holds items of `width` tensors of one shape, all of them floats. All but the one at `gradient` (-1:
 * none) are written. */
static bool check_items(ct_infer *infer, int first, int width, int gradient) {
    const int n = infer->n_in - first;
    if (n % width) return ct_infer_fail(infer, CT_ERR_VALUE, "xs holds %d tensors; items of %d are needed", n, width);
    for (int i = first; i < infer->n_in; i++) {
        const int place = (i - first) % width;
        const ct_view *lead = infer->in[i - place], *x = infer->in[i];
        if (!ct_dtype_is_float(x->dtype))
            return ct_infer_fail(infer, CT_ERR_DTYPE, "xs[%d] is %s; it has to be of floats", i - first,
                                 ct_view_text(x));
        if (!ct__infer_is(infer, i, lead->ndim, lead->dims)) return false;
        if (place != gradient && ct__view_overlaps(x))
            return ct_infer_fail(infer, CT_ERR_SHAPE,
                                 "xs[%d] is %s and some of its elements share memory, so it cannot be written",
                                 i - first, ct_view_text(x));
    }
    return true;
}

/* The result is the number of items. */
static bool count_items(ct_infer *infer, int first, int width, int gradient) {
    if (!check_items(infer, first, width, gradient)) return false;
    ct__infer_set(infer, 0, CT_F32, 0, NULL);
    return true;
}

/* A step's item is the parameter, its master if it has one, the gradient, and the rest. */
static bool check_step(ct_infer *infer, int64_t rates, int width, bool master) {
    const int64_t two = 2;
    if (!ct__infer_is(infer, OPTIM_RATES_AT, 1, &rates) || !ct__infer_is(infer, OPTIM_CLOCK_AT, 1, &two) ||
        !ct__infer_is(infer, OPTIM_GATE_AT, 1, &two))
        return false;
    const ct_view *clock = infer->in[OPTIM_CLOCK_AT];
    if (!ct_dtype_is_float(clock->dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "clock is %s; it has to be of floats", ct_view_text(clock));
    return count_items(infer, OPTIM_ITEMS_AT, width, 1 + master);
}

bool optim_sgd_infer(ct_infer *infer) {
    const optim_sgd_attrs *a = infer->attrs;
    return check_step(infer, SGD_RATES, optim_sgd_width(a), a->master);
}
bool optim_adam_infer(ct_infer *infer) {
    const optim_adam_attrs *a = infer->attrs;
    return check_step(infer, ADAM_RATES, optim_adam_width(a), a->master);
}
bool optim_rmsprop_infer(ct_infer *infer) {
    const optim_rmsprop_attrs *a = infer->attrs;
    return check_step(infer, RMSPROP_RATES, optim_rmsprop_width(a), a->master);
}
bool optim_adagrad_infer(ct_infer *infer) {
    const optim_adagrad_attrs *a = infer->attrs;
    return check_step(infer, ADAGRAD_RATES, optim_adagrad_width(a), a->master);
}
bool optim_adadelta_infer(ct_infer *infer) {
    const optim_adadelta_attrs *a = infer->attrs;
    return check_step(infer, ADADELTA_RATES, optim_adadelta_width(a), a->master);
}
bool optim_lion_infer(ct_infer *infer) {
    const optim_lion_attrs *a = infer->attrs;
    return check_step(infer, LION_RATES, optim_lion_width(a), a->master);
}
bool optim_lamb_infer(ct_infer *infer) {
    const optim_lamb_attrs *a = infer->attrs;
    return check_step(infer, LAMB_RATES, optim_lamb_width(a), a->master);
}
bool optim_lars_infer(ct_infer *infer) {
    const optim_lars_attrs *a = infer->attrs;
    return check_step(infer, LARS_RATES, optim_lars_width(a), a->master);
}
bool optim_average_infer(ct_infer *infer) {
    return ct__infer_is(infer, 0, 1, (const int64_t[]){2}) && count_items(infer, 1, 2, 1);
}
bool optim_unscale_infer(ct_infer *infer) {
    if (!ct__infer_is(infer, 0, 0, (const int64_t[]){0}) || !check_items(infer, 1, 1, -1)) return false;
    const ct_dtype dtype = infer->in[0]->dtype;
    ct__infer_set(infer, 0, dtype == CT_F64 ? CT_F64 : CT_F32, 1, (const int64_t[]){2});
    return true;
}
bool optim_clip_infer(ct_infer *infer) {
    const double most = ((const optim_clip_attrs *)infer->attrs)->max_norm;
    if (!(most >= 0)) return ct_infer_fail(infer, CT_ERR_VALUE, "max_norm is %g; it has to be 0 or more", most);
    return ct__infer_is(infer, 0, 0, (const int64_t[]){0}) && count_items(infer, 1, 1, -1);
}
/* A scalar that is written. */
static bool check_scalar(ct_infer *infer, int i, const char *name) {
    const ct_view *x = infer->in[i];
    if (!ct_dtype_is_float(x->dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "%s is %s; it has to be a float", name, ct_view_text(x));
    return ct__infer_is(infer, i, 0, (const int64_t[]){0});
}
bool optim_rescale_infer(ct_infer *infer) {
    if (!check_scalar(infer, 0, "scale") || !check_scalar(infer, 1, "good") ||
        !ct__infer_is(infer, 2, 0, (const int64_t[]){0}))
        return false;
    ct__infer_set(infer, 0, CT_F32, 0, NULL);
    return true;
}
bool optim_left_out_infer(ct_infer *infer) {
    if (!ct__infer_is(infer, 0, 1, (const int64_t[]){2}) || !check_scalar(infer, 1, "count")) return false;
    ct__infer_set(infer, 0, CT_F32, 0, NULL);
    return true;
}
bool optim_norm_infer(ct_infer *infer) {
    const double kind = ((const optim_norm_attrs *)infer->attrs)->kind;
    if (!(kind > 0)) return ct_infer_fail(infer, CT_ERR_VALUE, "kind is %g; it has to be above 0", kind);
    if (!check_items(infer, 0, 1, 0)) return false;
    ct__infer_set(infer, 0, ct__widest_float(), 0, NULL);
    return true;
}
