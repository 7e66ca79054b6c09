/* The steps of the optimizers in plain ops, item by item, and the check of their lists. Kernels do the same in one pass over
 * all items. */
#include "ops/optim/optim.h"

#include "ops/op_impl.h"

/* Every item has `width` tensors of one shape, all of them floats. All but the one at `gradient` (-1: none) are written. */
static bool check_items(ct_infer *infer, int width, int gradient, ct_dtype result) {
    if (infer->n_in % width)
        return ct_infer_fail(infer, CT_ERR_VALUE, "xs holds %d tensors; items of %d are needed", infer->n_in, width);
    for (int i = 0; i < infer->n_in; i++) {
        const ct_view *first = infer->in[i - i % width], *x = infer->in[i];
        if (!ct_dtype_is_float(x->dtype))
            return ct_infer_fail(infer, CT_ERR_DTYPE, "xs[%d] is %s; it has to be of floats", i, ct_view_text(x));
        if (!ct__infer_is(infer, i, first->ndim, first->dims)) return false;
        if (i % width != gradient && ct__view_overlaps(x))
            return ct_infer_fail(infer, CT_ERR_SHAPE,
                                 "xs[%d] is %s and some of its elements share memory, so it cannot be written", i,
                                 ct_view_text(x));
    }
    ct__infer_set(infer, 0, result, 0, NULL);
    return true;
}

/* A step's item is the parameter, its master if it has one, the gradient, and the rest. */
bool optim_sgd_infer(ct_infer *infer) {
    const optim_sgd_attrs *a = infer->attrs;
    return check_items(infer, optim_sgd_width(a), 1 + a->master, CT_F32);
}
bool optim_adam_infer(ct_infer *infer) {
    const optim_adam_attrs *a = infer->attrs;
    return check_items(infer, optim_adam_width(a), 1 + a->master, CT_F32);
}
bool optim_rmsprop_infer(ct_infer *infer) {
    const optim_rmsprop_attrs *a = infer->attrs;
    return check_items(infer, optim_rmsprop_width(a), 1 + a->master, CT_F32);
}
bool optim_adagrad_infer(ct_infer *infer) {
    const optim_adagrad_attrs *a = infer->attrs;
    return check_items(infer, optim_adagrad_width(a), 1 + a->master, CT_F32);
}
bool optim_adadelta_infer(ct_infer *infer) {
    const optim_adadelta_attrs *a = infer->attrs;
    return check_items(infer, optim_adadelta_width(a), 1 + a->master, CT_F32);
}
bool optim_lion_infer(ct_infer *infer) {
    const optim_lion_attrs *a = infer->attrs;
    return check_items(infer, optim_lion_width(a), 1 + a->master, CT_F32);
}
bool optim_lamb_infer(ct_infer *infer) {
    const optim_lamb_attrs *a = infer->attrs;
    return check_items(infer, optim_lamb_width(a), 1 + a->master, CT_F32);
}
bool optim_lars_infer(ct_infer *infer) {
    const optim_lars_attrs *a = infer->attrs;
    return check_items(infer, optim_lars_width(a), 1 + a->master, CT_F32);
}
bool optim_average_infer(ct_infer *infer) { return check_items(infer, 2, 1, CT_F32); }
bool optim_scale_infer(ct_infer *infer) { return check_items(infer, 1, -1, CT_BOOL); }
bool optim_norm_infer(ct_infer *infer) {
    const double kind = ((const optim_norm_attrs *)infer->attrs)->kind;
    if (!(kind > 0)) return ct_infer_fail(infer, CT_ERR_VALUE, "kind is %g; it has to be above 0", kind);
    return check_items(infer, 1, 0, CT_F64);
}

/* ---- Lowerings ---- */

/* Halves are computed in f32. */
static ct_tensor *wide(ct_tensor *x) {
    const ct_dtype dtype = ct_dtype_of(x);
    return dtype == CT_F16 || dtype == CT_BF16 ? cast(x, CT_F32) : x;
}

/* One item with the tensors in the order of the kernels: what is learned, the gradient, the states. */
typedef struct item {
    ct_tensor *home[OPTIM_WIDTH], *rounded;
    ct_tensor *x[OPTIM_WIDTH];
    int width;
} item;

static item take_item(const ct_lower *l, int first, int width, bool master) {
    item t = {.width = width - master, .rounded = master ? l->in[first] : NULL};
    for (int i = 0; i < t.width; i++) {
        t.home[i] = l->in[first + i + master];
        t.x[i] = wide(t.home[i]);
    }
    return t;
}

static void put_item(const item *t) {
    for (int i = 0; i < t->width; i++)
        if (i != 1 && t->x[i] != t->home[i]) ct_assign(t->home[i], t->x[i]);
    if (t->rounded) ct_assign(t->rounded, t->x[0]);
}

static ct_tensor *scaled_gradient(const item *t, double scale, double decay) {
    ct_tensor *g = mul_s(t->x[1], scale);
    return decay != 0 ? add(g, mul_s(t->x[0], decay)) : g;
}
static ct_tensor *mix(ct_tensor *a, ct_tensor *b, double keep) { return add(mul_s(a, keep), mul_s(b, 1 - keep)); }
static double length(ct_tensor *x) { return __builtin_sqrt(ct_item(sum(square(cast(x, CT_F64))))); }

static void sgd_item(const void *attrs, item *t) {
    const optim_sgd_attrs *a = attrs;
    ct_tensor *g = scaled_gradient(t, a->scale, a->decay);
    if (t->width > 2) {
        t->x[2] = a->first ? g : add(mul_s(t->x[2], a->momentum), mul_s(g, 1 - a->dampening));
        g = a->nesterov ? add(g, mul_s(t->x[2], a->momentum)) : t->x[2];
    }
    t->x[0] = sub(t->x[0], mul_s(g, a->lr));
}

static void adam_item(const void *attrs, item *t) {
    const optim_adam_attrs *a = attrs;
    ct_tensor *g = scaled_gradient(t, a->scale, a->decay);
    t->x[2] = mix(t->x[2], g, a->beta1);
    t->x[3] = mix(t->x[3], square(g), a->beta2);
    if (a->amsgrad) t->x[4] = maximum(t->x[4], t->x[3]);
    ct_tensor *u = add(mul_s(g, a->gradient), mul_s(t->x[2], a->moment));
    if (!a->plain) u = div(u, add_s(mul_s(sqrt(t->x[a->amsgrad ? 4 : 3]), a->root), a->eps));
    t->x[0] = sub(mul_s(t->x[0], a->shrink), u);
}

static void rmsprop_item(const void *attrs, item *t) {
    const optim_rmsprop_attrs *a = attrs;
    ct_tensor *g = scaled_gradient(t, a->scale, a->decay);
    ct_tensor *v = t->x[2] = mix(t->x[2], square(g), a->alpha);
    if (a->centered) {
        t->x[3] = mix(t->x[3], g, a->alpha);
        v = sub(v, square(t->x[3]));
    }
    ct_tensor *u = div(g, add_s(sqrt(v), a->eps));
    if (a->momentum != 0) u = t->x[3 + a->centered] = add(mul_s(t->x[3 + a->centered], a->momentum), u);
    t->x[0] = sub(t->x[0], mul_s(u, a->lr));
}

static void adagrad_item(const void *attrs, item *t) {
    const optim_adagrad_attrs *a = attrs;
    ct_tensor *g = scaled_gradient(t, a->scale, a->decay);
    t->x[2] = add(t->x[2], square(g));
    t->x[0] = sub(t->x[0], div(mul_s(g, a->lr), add_s(sqrt(t->x[2]), a->eps)));
}

static void adadelta_item(const void *attrs, item *t) {
    const optim_adadelta_attrs *a = attrs;
    ct_tensor *g = scaled_gradient(t, a->scale, a->decay);
    t->x[2] = mix(t->x[2], square(g), a->rho);
    ct_tensor *u = mul(div(sqrt(add_s(t->x[3], a->eps)), sqrt(add_s(t->x[2], a->eps))), g);
    t->x[3] = mix(t->x[3], square(u), a->rho);
    t->x[0] = sub(t->x[0], mul_s(u, a->lr));
}

static void lion_item(const void *attrs, item *t) {
    const optim_lion_attrs *a = attrs;
    ct_tensor *g = mul_s(t->x[1], a->scale);
    t->x[0] = sub(mul_s(t->x[0], a->shrink), mul_s(sign(mix(t->x[2], g, a->beta1)), a->lr));
    t->x[2] = mix(t->x[2], g, a->beta2);
}

static void lamb_item(const void *attrs, item *t) {
    const optim_lamb_attrs *a = attrs;
    ct_tensor *g = mul_s(t->x[1], a->scale);
    t->x[2] = mix(t->x[2], g, a->beta1);
    t->x[3] = mix(t->x[3], square(g), a->beta2);
    ct_tensor *u = div(mul_s(t->x[2], a->moment), add_s(mul_s(sqrt(t->x[3]), a->root), a->eps));
    u = add(u, mul_s(t->x[0], a->decay));
    t->x[0] = sub(t->x[0], mul_s(u, a->lr * optim_lamb_ratio(length(t->x[0]), length(u))));
}

static void lars_item(const void *attrs, item *t) {
    const optim_lars_attrs *a = attrs;
    const double r = optim_lars_ratio(a, length(t->x[0]), length(t->x[1]) * __builtin_fabs(a->scale));
    ct_tensor *u = mul_s(scaled_gradient(t, a->scale, a->decay), a->lr * r);
    t->x[2] = add(mul_s(t->x[2], a->momentum), u);
    t->x[0] = sub(t->x[0], a->nesterov ? add(mul_s(t->x[2], a->momentum), u) : t->x[2]);
}

/* Every item in a scope of its own. */
static void lower_items(ct_lower *l, int width, bool master, void (*step)(const void *attrs, item *t)) {
    ct_no_grad
        for (int i = 0; i + width <= l->n_in; i += width)
            ct_scope {
                item t = take_item(l, i, width, master);
                step(l->attrs, &t);
                put_item(&t);
            }
    if (l->want[0]) l->out[0] = full(CT_DIMS0, (double)(l->n_in / width), .dtype = CT_F32);
}

void optim_sgd_lower(ct_lower *l) {
    lower_items(l, optim_sgd_width(l->attrs), ((const optim_sgd_attrs *)l->attrs)->master, sgd_item);
}
void optim_adam_lower(ct_lower *l) {
    lower_items(l, optim_adam_width(l->attrs), ((const optim_adam_attrs *)l->attrs)->master, adam_item);
}
void optim_rmsprop_lower(ct_lower *l) {
    lower_items(l, optim_rmsprop_width(l->attrs), ((const optim_rmsprop_attrs *)l->attrs)->master, rmsprop_item);
}
void optim_adagrad_lower(ct_lower *l) {
    lower_items(l, optim_adagrad_width(l->attrs), ((const optim_adagrad_attrs *)l->attrs)->master, adagrad_item);
}
void optim_adadelta_lower(ct_lower *l) {
    lower_items(l, optim_adadelta_width(l->attrs), ((const optim_adadelta_attrs *)l->attrs)->master, adadelta_item);
}
void optim_lion_lower(ct_lower *l) {
    lower_items(l, optim_lion_width(l->attrs), ((const optim_lion_attrs *)l->attrs)->master, lion_item);
}
void optim_lamb_lower(ct_lower *l) {
    lower_items(l, optim_lamb_width(l->attrs), ((const optim_lamb_attrs *)l->attrs)->master, lamb_item);
}
void optim_lars_lower(ct_lower *l) {
    lower_items(l, optim_lars_width(l->attrs), ((const optim_lars_attrs *)l->attrs)->master, lars_item);
}

void optim_average_lower(ct_lower *l) {
    const double keep = ((const optim_average_attrs *)l->attrs)->keep;
    ct_no_grad
        for (int i = 0; i + 2 <= l->n_in; i += 2)
            ct_scope {
                /* by half the difference from the one that counts more, as the kernel does (lanes.h) */
                const bool newer = keep < 0.5;
                ct_tensor *heavy = wide(l->in[i + newer]), *light = wide(l->in[i + !newer]);
                ct_tensor *half = sub(mul_s(heavy, 0.5), mul_s(light, 0.5));
                ct_assign(l->in[i], sub(heavy, mul_s(half, 2 * (newer ? keep : 1 - keep))));
            }
    if (l->want[0]) l->out[0] = full(CT_DIMS0, (double)(l->n_in / 2), .dtype = CT_F32);
}

void optim_scale_lower(ct_lower *l) {
    bool finite = true;
    ct_no_grad
        for (int i = 0; i < l->n_in; i++)
            ct_scope {
                ct_tensor *y = mul_s(wide(l->in[i]), ((const optim_scale_attrs *)l->attrs)->factor);
                finite = finite && ct_item(all(isfinite(y))) != 0;
                ct_assign(l->in[i], y);
            }
    if (l->want[0]) l->out[0] = full(CT_DIMS0, (double)finite, .dtype = CT_BOOL);
}

void optim_norm_lower(ct_lower *l) {
    const double kind = ((const optim_norm_attrs *)l->attrs)->kind;
    double total = 0;
    ct_no_grad
        for (int i = 0; i < l->n_in; i++)
            ct_scope {
                if (ct_numel(l->in[i]) == 0) continue;
                ct_tensor *x = abs(cast(l->in[i], CT_F64));
                if (__builtin_isinf(kind)) {
                    const double largest = ct_item(amax(x));
                    total = largest > total || largest != largest ? largest : total;
                } else {
                    total += ct_item(sum(pow_s(x, kind)));
                }
            }
    l->out[0] = full(CT_DIMS0, __builtin_isinf(kind) ? total : __builtin_pow(total, 1 / kind), .dtype = CT_F64);
}
