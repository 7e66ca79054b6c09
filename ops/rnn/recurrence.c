/* One layer in one direction: shapes, the steps in ops, and the derivative. */
#include <string.h>

#include "ops/rnn/cells.h"

#include "ops/op_impl.h"

/* ---- Shapes ---- */

static bool is_shape(const ct_view *x, int ndim, int64_t a, int64_t b, int64_t c) {
    const int64_t dims[3] = {a, b, c};
    return !x || (x->ndim == ndim && memcmp(x->dims, dims, (size_t)ndim * sizeof *dims) == 0);
}

bool recurrence_infer(ct_infer *infer) {
    const recurrence_attrs *a = infer->attrs;
    const ct_view *gx = infer->in[0], *w = infer->in[1], *c0 = infer->in[4], *lengths = infer->in[5];
    const int64_t gates = ct__cell_gates(a->cell);
    if (!ct_dtype_is_float(gx->dtype)) return ct_infer_fail(infer, CT_ERR_DTYPE, "gx is %s", ct_view_text(gx));
    if (gx->ndim != 3 || w->ndim != 2 || w->dims[0] != gates * w->dims[1] || gx->dims[2] != w->dims[0])
        return ct_infer_fail(infer, CT_ERR_SHAPE, "takes gx [T, N, %lld H] and w_hh [%lld H, H]: %s and %s",
                             (long long)gates, (long long)gates, ct_view_text(gx), ct_view_text(w));
    const int64_t t = gx->dims[0], n = gx->dims[1], h = w->dims[1];
    if (!is_shape(infer->in[2], 1, gates * h, 0, 0) || !is_shape(infer->in[3], 2, n, h, 0) ||
        !is_shape(c0, 2, n, h, 0) || !is_shape(lengths, 1, n, 0, 0))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "b_hh, h0, c0 or lengths do not fit gx %s and w_hh %s",
                             ct_view_text(gx), ct_view_text(w));
    if (c0 && a->cell != CT_CELL_LSTM) return ct_infer_fail(infer, CT_ERR_VALUE, "only an lstm has c0");
    for (int i = 1; i < 5; i++)
        if (infer->in[i] && infer->in[i]->dtype != gx->dtype)
            return ct_infer_fail(infer, CT_ERR_DTYPE, "input %d is %s, gx is %s", i, ct_view_text(infer->in[i]),
                                 ct_view_text(gx));
    const int64_t y[3] = {t, n, h}, states[3] = {t, n, ct__cell_states(a->cell) * h}, none = 0;
    ct__infer_set(infer, 0, gx->dtype, 3, y);
    if (infer->n_out > 1) ct__infer_set(infer, 1, gx->dtype, 2, y + 1);
    if (infer->n_out > 2)
        ct__infer_set(infer, 2, gx->dtype, a->cell == CT_CELL_LSTM ? 2 : 1, a->cell == CT_CELL_LSTM ? y + 1 : &none);
    if (infer->n_out > 3) ct__infer_set(infer, 3, gx->dtype, 3, states);
    return true;
}

bool recurrence_grad_infer(ct_infer *infer) {
    const recurrence_grad_attrs *a = infer->attrs;
    const ct_view *w = infer->in[0], *y = infer->in[4], *states = infer->in[5];
    const int64_t gates = ct__cell_gates(a->cell), kept = ct__cell_states(a->cell);
    if (!ct_dtype_is_float(y->dtype)) return ct_infer_fail(infer, CT_ERR_DTYPE, "y is %s", ct_view_text(y));
    bool fits = w->ndim == 2 && y->ndim == 3 && w->dims[0] == gates * w->dims[1] && y->dims[2] == w->dims[1];
    const int64_t t = fits ? y->dims[0] : 0, n = fits ? y->dims[1] : 0, h = fits ? y->dims[2] : 0;
    fits = fits && is_shape(infer->in[1], 2, n, h, 0) && is_shape(infer->in[2], 2, n, h, 0) &&
           is_shape(infer->in[3], 1, n, 0, 0) && is_shape(states, 3, t, n, kept * h) &&
           is_shape(infer->in[6], 3, t, n, h) && is_shape(infer->in[7], 2, n, h, 0) &&
           is_shape(infer->in[8], 2, n, h, 0) && is_shape(infer->in[9], 3, t, n, kept * h);
    if (!fits)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "the inputs do not fit: w_hh is %s, y %s, states %s", ct_view_text(w),
                             ct_view_text(y), ct_view_text(states));
    for (int i = 0; i < infer->n_in; i++) /* 3 are the lengths */
        if (i != 3 && infer->in[i] && infer->in[i]->dtype != y->dtype)
            return ct_infer_fail(infer, CT_ERR_DTYPE, "input %d is %s, y is %s", i, ct_view_text(infer->in[i]),
                                 ct_view_text(y));
    const int64_t dgx[3] = {t, n, gates * h}, state[2] = {n, h}, none = 0;
    const bool gru = a->cell == CT_CELL_GRU, lstm = a->cell == CT_CELL_LSTM;
    ct__infer_set(infer, 0, y->dtype, 3, dgx);
    if (infer->n_out > 1) ct__infer_set(infer, 1, y->dtype, gru ? 3 : 1, gru ? dgx : &none);
    if (infer->n_out > 2) ct__infer_set(infer, 2, y->dtype, 2, state);
    if (infer->n_out > 3) ct__infer_set(infer, 3, y->dtype, lstm ? 2 : 1, lstm ? state : &none);
    return true;
}

/* ---- The steps in ops ---- */

enum { MOST_PARTS = 5 };

/* Part k of the last dimension, of size h. */
static ct_tensor *part(ct_tensor *x, int k, int64_t h) { return narrow(x, -1, k * h, h); }
static ct_tensor *at(ct_tensor *x, int64_t t) { return x ? select(x, 0, t) : NULL; }
/* An empty result, of the graph like the others. */
static ct_tensor *nothing(ct_tensor *x) { return narrow(reshape(x, CT_DIMS(ct_numel(x))), 0, 0, 0); }
static ct_tensor *plus(ct_tensor *a, ct_tensor *b) { return a && b ? add(a, b) : a ? a : b; }

/* Where step t is inside the sequence, [N, 1]; NULL: everywhere. */
static ct_tensor *inside(ct_tensor *lengths, int64_t t) {
    return lengths ? unsqueeze(gt_s(lengths, (double)t), 1) : NULL;
}
static ct_tensor *choose(ct_tensor *mask, ct_tensor *a, ct_tensor *b) { return mask ? where(mask, a, b) : a; }

/* Results of the steps in the order they come, joined now and then: the number of steps has no bound. */
typedef struct series {
    ct_tensor *list[64];
    int n;
} series;

static void append(series *s, ct_tensor *x) {
    if (s->n == 64) {
        s->list[0] = cat(s->list, s->n, 0);
        s->n = 1;
    }
    s->list[s->n++] = unsqueeze(x, 0);
}

/* [steps, rows, cols], in the order of time. */
static ct_tensor *joined(const series *s, bool reversed, ct_tensor *like, int64_t n, int64_t cols) {
    if (s->n == 0) return reshape(nothing(like), CT_DIMS(0, n, cols));
    ct_tensor *all = s->n == 1 ? s->list[0] : cat(s->list, s->n, 0);
    return reversed ? flip(all, CT_DIMS(0)) : all;
}

/* One step: the new h, the new c (lstm), and the saved values. */
static ct_tensor *step(int cell, ct_tensor *gx, ct_tensor *gh, ct_tensor *h, ct_tensor **c, ct_tensor **saved,
                       int64_t size) {
    if (cell == CT_CELL_LSTM) {
        ct_tensor *gates = add(gx, gh), *i = sigmoid(part(gates, 0, size)), *f = sigmoid(part(gates, 1, size)),
                  *g = tanh(part(gates, 2, size)), *o = sigmoid(part(gates, 3, size));
        *c = add(mul(f, *c), mul(i, g));
        saved[0] = i, saved[1] = f, saved[2] = g, saved[3] = o, saved[4] = *c;
        return mul(o, tanh(*c));
    }
    if (cell == CT_CELL_GRU) {
        ct_tensor *r = sigmoid(add(part(gx, 0, size), part(gh, 0, size))),
                  *z = sigmoid(add(part(gx, 1, size), part(gh, 1, size))), *hn = part(gh, 2, size),
                  *n = tanh(add(part(gx, 2, size), mul(r, hn)));
        saved[0] = r, saved[1] = z, saved[2] = n, saved[3] = hn;
        return add(mul(rsub_s(z, 1), n), mul(z, h));
    }
    ct_tensor *sum = add(gx, gh);
    return cell == CT_CELL_RELU ? relu(sum) : tanh(sum);
}

void recurrence_lower(ct_lower *l) {
    const recurrence_attrs *a = l->attrs;
    ct_tensor *gx = l->in[0], *w = l->in[1], *b = l->in[2], *lengths = l->in[5];
    const int64_t steps = ct_dim(gx, 0), n = ct_dim(gx, 1), size = ct_dim(w, 1), kept = ct__cell_states(a->cell);
    const bool lstm = a->cell == CT_CELL_LSTM;
    ct_tensor *zero = zeros(CT_DIMS(n, size), .dtype = ct_dtype_of(gx)), *h = l->in[3] ? l->in[3] : zero,
              *c = l->in[4] ? l->in[4] : zero;
    series ys = {.n = 0}, all_states = {.n = 0};
    for (int64_t s = 0; s < steps; s++) {
        const int64_t t = a->reverse ? steps - 1 - s : s;
        ct_tensor *mask = inside(lengths, t), *gh = matmul(h, transpose(w, 0, 1)), *next = c, *saved[MOST_PARTS];
        if (b) gh = add(gh, b);
        ct_tensor *made = step(a->cell, at(gx, t), gh, h, &next, saved, size);
        append(&ys, choose(mask, made, zero));
        if (kept) {
            ct_tensor *row = cat(saved, (int)kept, 1);
            append(&all_states, choose(mask, row, mask ? zeros_like(row) : NULL));
        }
        h = choose(mask, made, h);
        if (lstm) c = choose(mask, next, c);
    }
    l->out[0] = joined(&ys, a->reverse, gx, n, size);
    if (l->n_out > 1) l->out[1] = h;
    if (l->n_out > 2) l->out[2] = lstm ? c : nothing(gx);
    if (l->n_out > 3)
        l->out[3] = kept ? joined(&all_states, a->reverse, gx, n, kept * size)
                         : zeros(CT_DIMS(steps, n, 0), .dtype = ct_dtype_of(gx));
}

/* ---- The gradient in ops ---- */

static ct_tensor *slope_sigmoid(ct_tensor *y) { return mul(y, rsub_s(y, 1)); }
static ct_tensor *slope_tanh(ct_tensor *y) { return rsub_s(square(y), 1); }

/* From dh and dc of a step: the gradient of its gates, and what goes to the step before. */
typedef struct backward_step {
    int cell;
    int64_t size;
    ct_tensor *y, *h, *c; /* the result, and the states that the step started from */
    ct_tensor *saved, *g_saved;
    ct_tensor *dh, *dc;
    ct_tensor *dgx, *dgh, *dh_direct; /* results; dh_direct: past the product with w_hh, NULL for none */
} backward_step;

static ct_tensor *more(const backward_step *b, int k, ct_tensor *g) {
    return b->g_saved ? add(g, part(b->g_saved, k, b->size)) : g;
}

static void step_back(backward_step *b) {
    const int64_t size = b->size;
    if (b->cell == CT_CELL_LSTM) {
        ct_tensor *i = part(b->saved, 0, size), *f = part(b->saved, 1, size), *g = part(b->saved, 2, size),
                  *o = part(b->saved, 3, size), *tc = tanh(part(b->saved, 4, size));
        ct_tensor *dc = more(b, 4, add(b->dc, mul(mul(b->dh, o), slope_tanh(tc))));
        ct_tensor *gates[] = {
            mul(more(b, 0, mul(dc, g)), slope_sigmoid(i)), mul(more(b, 1, mul(dc, b->c)), slope_sigmoid(f)),
            mul(more(b, 2, mul(dc, i)), slope_tanh(g)), mul(more(b, 3, mul(b->dh, tc)), slope_sigmoid(o))};
        b->dgx = b->dgh = cat(gates, 4, 1);
        b->dc = mul(dc, f);
        b->dh_direct = NULL;
    } else if (b->cell == CT_CELL_GRU) {
        ct_tensor *r = part(b->saved, 0, size), *z = part(b->saved, 1, size), *n = part(b->saved, 2, size),
                  *hn = part(b->saved, 3, size);
        ct_tensor *dn = mul(more(b, 2, mul(b->dh, rsub_s(z, 1))), slope_tanh(n)),
                  *dr = mul(more(b, 0, mul(dn, hn)), slope_sigmoid(r)),
                  *dz = mul(more(b, 1, mul(b->dh, sub(b->h, n))), slope_sigmoid(z));
        ct_tensor *to_x[] = {dr, dz, dn}, *to_h[] = {dr, dz, more(b, 3, mul(dn, r))};
        b->dgx = cat(to_x, 3, 1), b->dgh = cat(to_h, 3, 1);
        b->dh_direct = mul(b->dh, z);
    } else {
        b->dgx = b->dgh = b->cell == CT_CELL_RELU ? mul(b->dh, cast(gt_s(b->y, 0), ct_dtype_of(b->dh)))
                                                  : mul(b->dh, slope_tanh(b->y));
        b->dh_direct = NULL;
    }
}

void recurrence_grad_lower(ct_lower *l) {
    const recurrence_grad_attrs *a = l->attrs;
    ct_tensor *w = l->in[0], *lengths = l->in[3], *y = l->in[4], *states = l->in[5], *gy = l->in[6];
    const int64_t steps = ct_dim(y, 0), n = ct_dim(y, 1), size = ct_dim(w, 1);
    const bool lstm = a->cell == CT_CELL_LSTM, gru = a->cell == CT_CELL_GRU;
    ct_tensor *zero = zeros(CT_DIMS(n, size), .dtype = ct_dtype_of(y)), *h0 = l->in[1] ? l->in[1] : zero,
              *c0 = l->in[2] ? l->in[2] : zero;
    ct_tensor *dh = l->in[7] ? l->in[7] : zero, *dc = l->in[8] ? l->in[8] : zero;
    series to_x = {.n = 0}, to_h = {.n = 0};
    for (int64_t s = steps - 1; s >= 0; s--) {
        const int64_t t = a->reverse ? steps - 1 - s : s, before = a->reverse ? t + 1 : t - 1;
        ct_tensor *mask = inside(lengths, t);
        backward_step b = {.cell = a->cell,
                           .size = size,
                           .y = at(y, t),
                           .h = s ? at(y, before) : h0,
                           .c = s && lstm ? part(at(states, before), 4, size) : c0,
                           .saved = at(states, t),
                           .g_saved = at(l->in[9], t),
                           .dc = dc};
        if (s && a->reverse && lengths) { /* a sequence that begins here began from the initial states */
            ct_tensor *later = inside(lengths, before);
            b.h = where(later, b.h, h0), b.c = where(later, b.c, c0);
        }
        b.dh = choose(mask, add(dh, at(gy, t)), dh);
        step_back(&b);
        ct_tensor *none = mask ? zeros_like(b.dgx) : NULL, *dgx = choose(mask, b.dgx, none),
                  *dgh = choose(mask, b.dgh, none);
        dh = choose(mask, plus(matmul(dgh, w), b.dh_direct), b.dh);
        dc = choose(mask, b.dc, dc);
        append(&to_x, dgx);
        if (gru) append(&to_h, dgh);
    }
    l->out[0] = joined(&to_x, !a->reverse, y, n, ct_dim(w, 0));
    if (l->n_out > 1) l->out[1] = gru ? joined(&to_h, !a->reverse, y, n, ct_dim(w, 0)) : nothing(y);
    if (l->n_out > 2) l->out[2] = dh;
    if (l->n_out > 3) l->out[3] = lstm ? dc : nothing(y);
}

/* ---- The derivative ---- */

static ct_tensor *rows(ct_tensor *x) { return reshape(x, CT_DIMS(ct_dim(x, 0) * ct_dim(x, 1), ct_dim(x, 2))); }

/* dW_hh: over all steps at once, dgh^T times the h that each step started from. */
static ct_tensor *weight_gradient(const recurrence_attrs *a, ct_tensor *dgh, ct_tensor *y, ct_tensor *h0,
                                  ct_tensor *lengths) {
    const int64_t steps = ct_dim(y, 0), n = ct_dim(y, 1), size = ct_dim(y, 2), wide = ct_dim(dgh, 2);
    ct_tensor *dw = NULL;
    if (steps > 1 && n > 0)
        dw = matmul(t(rows(narrow(dgh, 0, !a->reverse, steps - 1))), rows(narrow(y, 0, a->reverse, steps - 1)));
    if (h0 && steps > 0 && n > 0) {
        ct_tensor *first = at(dgh, a->reverse ? steps - 1 : 0);
        if (lengths && a->reverse) { /* each sequence begins at its own last step */
            ct_tensor *last = cast(ct_maximum(sub_s(lengths, 1), zeros_like(lengths)), CT_I64);
            first = select(gather(dgh, 0, expand(reshape(last, CT_DIMS(1, n, 1)), CT_DIMS(1, n, wide))), 0, 0);
        }
        dw = plus(dw, matmul(t(first), h0));
    }
    return dw ? dw : zeros(CT_DIMS(wide, size), .dtype = ct_dtype_of(y));
}

void recurrence_vjp(ct_vjp *v) {
    const recurrence_attrs *a = v->attrs;
    ct_tensor *w = v->in[1], *h0 = v->in[3], *c0 = v->in[4], *lengths = v->in[5], *y = v->out[0];
    const bool lstm = a->cell == CT_CELL_LSTM, gru = a->cell == CT_CELL_GRU;
    if (!ct__vjp_has(v, 0) || !ct__vjp_has(v, 3)) return;
    recurrence_grad_attrs attrs = {.cell = a->cell, .reverse = a->reverse};
    ct_tensor *cot[4] = {NULL};
    for (int i = 0; i < v->n_out && i < 4; i++)
        if (v->cot[i] && ct_numel(v->cot[i])) cot[i] = contiguous(v->cot[i]); /* NULL: no gradient came from there */
    if (!cot[0]) cot[0] = zeros(ct_shape(y), .dtype = ct_dtype_of(y));
    ct_tensor *in[] = {w, h0, lstm ? c0 : NULL, lengths, y, v->out[3], cot[0], cot[1], lstm ? cot[2] : NULL, cot[3]};
    ct_tensor *made[4] = {NULL};
    const bool want[] = {true, gru && (v->need[1] || v->need[2]), v->need[3], lstm && v->need[4]};
    if (!ct_apply_with(&ct__op_recurrence_grad, in, 10, &attrs, made, 4, want, NULL)) return;
    ct_tensor *dgh = gru ? made[1] : made[0];
    if (v->need[0]) v->grad[0] = made[0];
    if (v->need[1]) v->grad[1] = weight_gradient(a, dgh, y, h0, lengths);
    if (v->need[2]) v->grad[2] = sum(dgh, .axes = CT_DIMS(0, 1));
    if (v->need[3]) v->grad[3] = made[2];
    if (v->need[4]) v->grad[4] = made[3];
}
