/* Dropout: probabilities, shapes, and the way to dropout_replay, which is its own derivative. */
#include "ops/dropout/dropout.h"

#include <cotangent/backend.h>

#include "ops/op_impl.h"

static bool infer_same(ct_infer *infer, double p) {
    const ct_view *x = infer->in[0];
    if (!(p >= 0 && p <= 1)) return ct_infer_fail(infer, CT_ERR_VALUE, "p is %g; a probability lies in [0, 1]", p);
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

ct_tensor *ct__position_of(const ct_lower *l) {
    const int64_t at[3] = {(int64_t)l->random->seed, (int64_t)l->random->stream, (int64_t)l->random->call};
    return ct_from_data(at, CT_DIMS(3), CT_I64);
}

/* 0 or 1 / (1 - p) for every element of a shape. */
static ct_tensor *factors(const ct_lower *l, ct_dims shape, double p) {
    return dropout_replay(expand(ones(CT_DIMS0, .dtype = ct_dtype_of(l->in[0])), shape), ct__position_of(l), p);
}

/* ---- By element ---- */

bool dropout_infer(ct_infer *infer) { return infer_same(infer, ((const dropout_attrs *)infer->attrs)->p); }

void dropout_lower(ct_lower *l) {
    const dropout_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *position;
    if (a->eval || a->p == 0) {
        l->out[0] = x;
        return;
    }
    const bool recorded = ct_grad_enabled() && ct_requires_grad(x); /* then its gradient reads the position */
    l->out[0] = dropout_draw(x, a->p, (int64_t)l->random->seed, (int64_t)l->random->stream, (int64_t)l->random->call,
                             .position = recorded ? &position : NULL);
}

bool dropout_draw_infer(ct_infer *infer) {
    if (infer->n_out > 1) ct__infer_set(infer, 1, CT_I64, 1, (const int64_t[]){3});
    return infer_same(infer, ((const dropout_draw_attrs *)infer->attrs)->p);
}

void dropout_draw_lower(ct_lower *l) {
    const dropout_draw_attrs *a = l->attrs;
    const int64_t at[3] = {a->seed, a->stream, a->call};
    ct_tensor *position = ct_from_data(at, CT_DIMS(3), CT_I64);
    l->out[0] = dropout_replay(l->in[0], position, a->p);
    if (l->n_out > 1 && l->want[1]) l->out[1] = position;
}

void dropout_draw_vjp(ct_vjp *v) {
    if (!ct__vjp_has(v, 1)) return;
    v->grad[0] = dropout_replay(v->cot[0], v->out[1], ((const dropout_draw_attrs *)v->attrs)->p);
}

bool dropout_replay_infer(ct_infer *infer) {
    const ct_view *position = infer->in[1];
    if (position->ndim != 1 || position->dims[0] != 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "position is %s; it has to be [3]: seed, stream and call",
                             ct_view_text(position));
    return infer_same(infer, ((const dropout_replay_attrs *)infer->attrs)->p);
}

void dropout_replay_lower(ct_lower *l) {
    const double p = ((const dropout_replay_attrs *)l->attrs)->p, threshold = __builtin_floor(p * 0x1p32);
    ct_tensor *x = l->in[0];
    if (threshold >= 0x1p32) { /* p is 1, or as good as */
        l->out[0] = zeros_like(x);
        return;
    }
    ct_tensor *kept = ge_s(random_words(l->in[1], ct_shape(x)), threshold);
    l->out[0] = where(kept, mul_s(x, 1 / (1 - p)), ct_scalar(0, ct_dtype_of(x)));
}

void dropout_replay_vjp(ct_vjp *v) {
    v->grad[0] = dropout_replay(v->cot[0], v->in[1], ((const dropout_replay_attrs *)v->attrs)->p);
}

bool alpha_dropout_infer(ct_infer *infer) { return infer_same(infer, ((const alpha_dropout_attrs *)infer->attrs)->p); }

/* With s = -least, what dropped elements become before scaling: a (x or -s) + a s p has mean 0 and variance 1 for a^-2 =
 * (1 - p) (1 + p s^2), when x has. */
void alpha_dropout_lower(ct_lower *l) {
    const alpha_dropout_attrs *attrs = l->attrs;
    ct_tensor *x = l->in[0];
    const double s = 1.7580993408473766, p = attrs->p;
    if (attrs->eval || p == 0) {
        l->out[0] = x;
        return;
    }
    const double a = p < 1 ? 1 / __builtin_sqrt((1 - p) * (1 + p * s * s)) : 0;
    ct_tensor *kept = gt_s(factors(l, ct_shape(x), p), 0),
              *dropped = full(CT_DIMS0, a * s * (p - 1), .dtype = ct_dtype_of(x));
    l->out[0] = where(kept, add_s(mul_s(x, a), a * s * p), dropped);
}

/* ---- By channel, by item ---- */

static bool infer_channels(ct_infer *infer, double p, int ndim, bool last) {
    const ct_view *x = infer->in[0];
    if (x->ndim != ndim)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to have %d dimensions, %s", ct_view_text(x), ndim,
                             last ? "[batch, ..., channels]" : "[batch, channels, ...]");
    return infer_same(infer, p);
}

static ct_tensor *by_channel(const ct_lower *l, double p, bool eval, bool last) {
    ct_tensor *x = l->in[0];
    if (eval || p == 0) return x;
    ct_dims shape = ct_shape(x);
    for (int i = 1; i < shape.n; i++)
        if (i != (last ? shape.n - 1 : 1)) shape.d[i] = 1;
    return mul(x, factors(l, shape, p));
}

bool dropout2d_infer(ct_infer *infer) {
    const dropout2d_attrs *a = infer->attrs;
    return infer_channels(infer, a->p, 4, a->channels_last);
}
void dropout2d_lower(ct_lower *l) {
    const dropout2d_attrs *a = l->attrs;
    l->out[0] = by_channel(l, a->p, a->eval, a->channels_last);
}

bool dropout3d_infer(ct_infer *infer) {
    const dropout3d_attrs *a = infer->attrs;
    return infer_channels(infer, a->p, 5, a->channels_last);
}
void dropout3d_lower(ct_lower *l) {
    const dropout3d_attrs *a = l->attrs;
    l->out[0] = by_channel(l, a->p, a->eval, a->channels_last);
}

bool stochastic_depth_infer(ct_infer *infer) {
    const stochastic_depth_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (x->ndim == 0) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be [batch, ...]", ct_view_text(x));
    return infer_same(infer, a->p);
}
void stochastic_depth_lower(ct_lower *l) {
    const stochastic_depth_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    ct_dims shape = ct_shape(x);
    for (int i = a->batch ? 0 : 1; i < shape.n; i++) shape.d[i] = 1;
    l->out[0] = a->eval || a->p == 0 ? x : mul(x, factors(l, shape, a->p));
}
