/* The steps of the optimizers in plain ops, item by item. Everything stays where the tensors are: the numbers of a step are
 * scalars made of rates, clock and gate (numbers.h does the same for kernels), and where the gate is shut every tensor becomes
 * what it was. */
#include "ops/optim/optim.h"

#include "ops/op_impl.h"

static bool is_half(const ct_tensor *x) {
    const ct_dtype dtype = ct_dtype_of(x);
    return dtype == CT_F16 || dtype == CT_BF16;
}

/* Halves are computed in f32. */
static ct_tensor *wide(ct_tensor *x) { return is_half(x) ? cast(x, CT_F32) : x; }

/* One item with the tensors in the order of the kernels: what is learned, the gradient, the states. */
typedef struct item {
    ct_tensor *home[OPTIM_WIDTH], *rounded;
    ct_tensor *x[OPTIM_WIDTH];
    int width;
} item;

/* What the items of one call share: rates, then the numbers that a step made of them; all are scalars of one dtype. */
typedef struct shared {
    const void *attrs;
    ct_tensor *rate[OPTIM_RATES];
    ct_tensor *t, *remembered, *scale, *open; /* open: a mask */
    ct_tensor *n[5];
} shared;

static item take_item(const ct_lower *l, int first, int width, bool master) {
    item t = {.width = width - master, .rounded = master ? l->in[first] : NULL};
    for (int i = 0; i < t.width; i++) {
        t.home[i] = l->in[first + i + master];
        t.x[i] = wide(t.home[i]);
    }
    return t;
}

/* x, or what is there already where the gate is shut */
static void put(ct_tensor *home, ct_tensor *open, ct_tensor *x) {
    ct_assign(home, where(open, cast(x, ct_dtype_of(home)), home));
}

static void put_item(const item *t, ct_tensor *open) {
    for (int i = 0; i < t->width; i++)
        if (i != 1 && t->x[i] != t->home[i]) put(t->home[i], open, t->x[i]);
    if (t->rounded) put(t->rounded, open, t->x[0]);
}

static ct_tensor *scalar(double value, ct_tensor *like) { return full(CT_DIMS0, value, .dtype = ct_dtype_of(like)); }

/* x times a scalar of any dtype, and plus one */
static ct_tensor *times(ct_tensor *x, ct_tensor *number) { return mul(x, cast(number, ct_dtype_of(x))); }
static ct_tensor *plus(ct_tensor *x, ct_tensor *number) { return add(x, cast(number, ct_dtype_of(x))); }
static ct_tensor *mix(ct_tensor *a, ct_tensor *b, ct_tensor *keep, ct_tensor *rest) {
    return add(times(a, keep), times(b, rest));
}

static ct_tensor *scaled_gradient(const shared *s, const item *t) { return times(t->x[1], s->scale); }
static ct_tensor *decayed_gradient(const shared *s, const item *t, ct_tensor *decay) {
    return add(scaled_gradient(s, t), times(t->x[0], decay));
}

/* 1 - beta^t */
static ct_tensor *bias(const shared *s, ct_tensor *rest) { return neg(expm1(mul(s->t, log1p(neg(rest))))); }
static ct_tensor *length(const shared *s, ct_tensor *x) { return sqrt(sum(square(cast(x, ct_dtype_of(s->t))))); }
static ct_tensor *both_above_0(ct_tensor *a, ct_tensor *b) { return logical_and(gt_s(a, 0), gt_s(b, 0)); }

/* ---- SGD ---- */

static void sgd_numbers_of(shared *s) {
    const optim_sgd_attrs *a = s->attrs;
    ct_tensor *first = s->remembered, *later = rsub_s(first, 1);
    s->n[0] = mul(s->rate[SGD_MOMENTUM], later);
    s->n[1] = add(first, mul(s->rate[SGD_REST], later));
    if (a->momentum) s->remembered = scalar(0, first);
}
static void sgd_item(const shared *s, item *t) {
    const optim_sgd_attrs *a = s->attrs;
    ct_tensor *g = decayed_gradient(s, t, s->rate[SGD_DECAY]);
    if (a->momentum) {
        t->x[2] = mix(t->x[2], g, s->n[0], s->n[1]);
        g = a->nesterov ? add(g, times(t->x[2], s->rate[SGD_MOMENTUM])) : t->x[2];
    }
    t->x[0] = sub(t->x[0], times(g, s->rate[RATE_LR]));
}

/* ---- Adam and its family ---- */

enum { GRADIENT, MOMENT, ROOT, EPS, SHRINK };

static void rectify(shared *s, ct_tensor *bias2) {
    ct_tensor *most = add_s(rdiv_s(s->rate[ADAM_REST2], 2), -1);
    ct_tensor *rho = sub(most, div(mul_s(mul(s->t, rsub_s(bias2, 1)), 2), bias2)), *known = gt_s(rho, 5);
    ct_tensor *over = mul(mul(add_s(rho, -4), add_s(rho, -2)), most);
    ct_tensor *under = mul(mul(add_s(most, -4), add_s(most, -2)), rho), *one = scalar(1, rho);
    s->n[MOMENT] = mul(s->n[MOMENT], where(known, mul(sqrt(div(over, under)), sqrt(bias2)), one));
    s->n[ROOT] = cast(known, ct_dtype_of(rho));
    s->n[EPS] = where(known, s->n[EPS], one);
}

/* beta1 (1 - 0.96^(t momentum_decay) / 2) */
static ct_tensor *momentum_at(const shared *s, ct_tensor *t) {
    ct_tensor *power = exp(mul_s(mul(t, s->rate[ADAM_MOMENTUM_DECAY]), __builtin_log(0.96)));
    return mul(s->rate[ADAM_BETA1], rsub_s(mul_s(power, 0.5), 1));
}
static void look_ahead(shared *s) {
    ct_tensor *mu = momentum_at(s, s->t), *next = momentum_at(s, add_s(s->t, 1)), *lr = s->rate[RATE_LR];
    s->remembered = mul(s->remembered, mu);
    s->n[GRADIENT] = div(mul(lr, rsub_s(mu, 1)), rsub_s(s->remembered, 1));
    s->n[MOMENT] = div(mul(lr, next), rsub_s(mul(s->remembered, next), 1));
}

static void adam_numbers_of(shared *s) {
    const optim_adam_attrs *a = s->attrs;
    ct_tensor *lr = s->rate[RATE_LR], *bias2 = bias(s, s->rate[ADAM_REST2]);
    s->n[MOMENT] = div(lr, bias(s, s->rate[ADAM_REST1]));
    s->n[ROOT] = rdiv_s(sqrt(bias2), 1);
    s->n[EPS] = s->rate[ADAM_EPS];
    s->n[SHRINK] = rsub_s(mul(lr, s->rate[ADAM_DECAY]), 1);
    if (a->rectified) rectify(s, bias2);
    if (a->nesterov) look_ahead(s);
}
static void adam_item(const shared *s, item *t) {
    const optim_adam_attrs *a = s->attrs;
    ct_tensor *g = a->decoupled ? scaled_gradient(s, t) : decayed_gradient(s, t, s->rate[ADAM_DECAY]);
    t->x[2] = mix(t->x[2], g, s->rate[ADAM_BETA1], s->rate[ADAM_REST1]);
    t->x[3] = mix(t->x[3], square(g), s->rate[ADAM_BETA2], s->rate[ADAM_REST2]);
    if (a->amsgrad) t->x[4] = maximum(t->x[4], t->x[3]);
    ct_tensor *u = times(t->x[2], s->n[MOMENT]), *root = sqrt(t->x[a->amsgrad ? 4 : 3]);
    if (a->nesterov) u = add(u, times(g, s->n[GRADIENT]));
    ct_tensor *divisor = times(root, s->n[ROOT]);
    if (a->rectified) divisor = where(eq_s(s->n[ROOT], 0), mul_s(g, 0), divisor); /* whatever the root is */
    u = div(u, plus(divisor, s->n[EPS]));
    t->x[0] = sub(a->decoupled ? times(t->x[0], s->n[SHRINK]) : t->x[0], u);
}

/* ---- Others ---- */

static void rmsprop_item(const shared *s, item *t) {
    const optim_rmsprop_attrs *a = s->attrs;
    ct_tensor *g = decayed_gradient(s, t, s->rate[RMSPROP_DECAY]), *alpha = s->rate[RMSPROP_ALPHA];
    ct_tensor *v = t->x[2] = mix(t->x[2], square(g), alpha, s->rate[RMSPROP_REST]);
    if (a->centered) {
        t->x[3] = mix(t->x[3], g, alpha, s->rate[RMSPROP_REST]);
        v = sub(v, square(t->x[3]));
    }
    ct_tensor *u = div(g, plus(sqrt(v), s->rate[RMSPROP_EPS])), **b = &t->x[3 + a->centered];
    if (a->momentum) u = *b = add(times(*b, s->rate[RMSPROP_MOMENTUM]), u);
    t->x[0] = sub(t->x[0], times(u, s->rate[RATE_LR]));
}

static void adagrad_numbers_of(shared *s) {
    s->n[0] = div(s->rate[RATE_LR], add_s(mul(add_s(s->t, -1), s->rate[ADAGRAD_LR_DECAY]), 1));
}
static void adagrad_item(const shared *s, item *t) {
    ct_tensor *g = decayed_gradient(s, t, s->rate[ADAGRAD_DECAY]);
    t->x[2] = add(t->x[2], square(g));
    t->x[0] = sub(t->x[0], div(times(g, s->n[0]), plus(sqrt(t->x[2]), s->rate[ADAGRAD_EPS])));
}

static void adadelta_item(const shared *s, item *t) {
    ct_tensor *g = decayed_gradient(s, t, s->rate[ADADELTA_DECAY]), *eps = s->rate[ADADELTA_EPS];
    t->x[2] = mix(t->x[2], square(g), s->rate[ADADELTA_RHO], s->rate[ADADELTA_REST]);
    ct_tensor *u = mul(div(sqrt(plus(t->x[3], eps)), sqrt(plus(t->x[2], eps))), g);
    t->x[3] = mix(t->x[3], square(u), s->rate[ADADELTA_RHO], s->rate[ADADELTA_REST]);
    t->x[0] = sub(t->x[0], times(u, s->rate[RATE_LR]));
}

static void lion_numbers_of(shared *s) { s->n[0] = rsub_s(mul(s->rate[RATE_LR], s->rate[LION_DECAY]), 1); }
static void lion_item(const shared *s, item *t) {
    ct_tensor *g = scaled_gradient(s, t), *c = mix(t->x[2], g, s->rate[LION_BETA1], s->rate[LION_REST1]);
    t->x[0] = sub(times(t->x[0], s->n[0]), times(sign(c), s->rate[RATE_LR]));
    t->x[2] = mix(t->x[2], g, s->rate[LION_BETA2], s->rate[LION_REST2]);
}

static void lamb_numbers_of(shared *s) {
    s->n[MOMENT] = rdiv_s(bias(s, s->rate[LAMB_REST1]), 1);
    s->n[ROOT] = rdiv_s(sqrt(bias(s, s->rate[LAMB_REST2])), 1);
}
static void lamb_item(const shared *s, item *t) {
    ct_tensor *g = scaled_gradient(s, t);
    t->x[2] = mix(t->x[2], g, s->rate[LAMB_BETA1], s->rate[LAMB_REST1]);
    t->x[3] = mix(t->x[3], square(g), s->rate[LAMB_BETA2], s->rate[LAMB_REST2]);
    ct_tensor *u = div(times(t->x[2], s->n[MOMENT]), plus(times(sqrt(t->x[3]), s->n[ROOT]), s->rate[LAMB_EPS]));
    u = add(u, times(t->x[0], s->rate[LAMB_DECAY]));
    ct_tensor *p = length(s, t->x[0]), *d = length(s, u), *lr = s->rate[RATE_LR];
    t->x[0] = sub(t->x[0], times(u, where(both_above_0(p, d), mul(lr, div(p, d)), lr)));
}

static void lars_item(const shared *s, item *t) {
    const optim_lars_attrs *a = s->attrs;
    ct_tensor *p = length(s, t->x[0]), *g = mul(length(s, t->x[1]), abs(s->scale)), *lr = s->rate[RATE_LR];
    ct_tensor *under = add(add(g, mul(p, s->rate[LARS_DECAY])), s->rate[LARS_EPS]);
    ct_tensor *scaled = mul(lr, div(mul(s->rate[LARS_TRUST], p), under));
    ct_tensor *u = times(decayed_gradient(s, t, s->rate[LARS_DECAY]), where(both_above_0(p, g), scaled, lr));
    t->x[2] = add(times(t->x[2], s->rate[LARS_MOMENTUM]), u);
    t->x[0] = sub(t->x[0], a->nesterov ? add(times(t->x[2], s->rate[LARS_MOMENTUM]), u) : t->x[2]);
}

/* ---- One call ---- */

static ct_tensor *count_of(int items) { return full(CT_DIMS0, (double)items, .dtype = CT_F32); }

/* The numbers, then every item in a scope of its own, then the clock. */
static void lower_step(ct_lower *l, int rates, int width, bool master, void (*numbers)(shared *s),
                       void (*step)(const shared *s, item *t)) {
    ct_no_grad
        ct_scope {
            shared s = {.attrs = l->attrs};
            ct_tensor *clock = l->in[OPTIM_CLOCK_AT], *gate = wide(l->in[OPTIM_GATE_AT]);
            const ct_dtype dtype = ct_dtype_of(wide(l->in[OPTIM_RATES_AT]));
            ct_tensor *all = wide(l->in[OPTIM_RATES_AT]), *ticks = cast(clock, dtype);
            for (int i = 0; i < rates; i++) s.rate[i] = select(all, 0, i);
            s.t = add_s(select(ticks, 0, 0), 1);
            s.remembered = select(ticks, 0, 1);
            s.scale = mul(s.rate[RATE_SIGN], cast(select(gate, 0, 0), dtype));
            s.open = ne_s(select(gate, 0, 1), 0);
            if (numbers) numbers(&s);
            for (int i = OPTIM_ITEMS_AT; i + width <= l->n_in; i += width)
                ct_scope {
                    item t = take_item(l, i, width, master);
                    step(&s, &t);
                    put_item(&t, s.open);
                }
            put(clock, s.open, stack(((ct_tensor *[]){s.t, s.remembered}), 2, 0));
        }
    if (l->want[0]) l->out[0] = count_of((l->n_in - OPTIM_ITEMS_AT) / width);
}

void optim_sgd_lower(ct_lower *l) {
    const optim_sgd_attrs *a = l->attrs;
    lower_step(l, SGD_RATES, optim_sgd_width(a), a->master, sgd_numbers_of, sgd_item);
}
void optim_adam_lower(ct_lower *l) {
    const optim_adam_attrs *a = l->attrs;
    lower_step(l, ADAM_RATES, optim_adam_width(a), a->master, adam_numbers_of, adam_item);
}
void optim_rmsprop_lower(ct_lower *l) {
    const optim_rmsprop_attrs *a = l->attrs;
    lower_step(l, RMSPROP_RATES, optim_rmsprop_width(a), a->master, NULL, rmsprop_item);
}
void optim_adagrad_lower(ct_lower *l) {
    const optim_adagrad_attrs *a = l->attrs;
    lower_step(l, ADAGRAD_RATES, optim_adagrad_width(a), a->master, adagrad_numbers_of, adagrad_item);
}
void optim_adadelta_lower(ct_lower *l) {
    const optim_adadelta_attrs *a = l->attrs;
    lower_step(l, ADADELTA_RATES, optim_adadelta_width(a), a->master, NULL, adadelta_item);
}
void optim_lion_lower(ct_lower *l) {
    const optim_lion_attrs *a = l->attrs;
    lower_step(l, LION_RATES, optim_lion_width(a), a->master, lion_numbers_of, lion_item);
}
void optim_lamb_lower(ct_lower *l) {
    const optim_lamb_attrs *a = l->attrs;
    lower_step(l, LAMB_RATES, optim_lamb_width(a), a->master, lamb_numbers_of, lamb_item);
}
void optim_lars_lower(ct_lower *l) {
    const optim_lars_attrs *a = l->attrs;
    lower_step(l, LARS_RATES, optim_lars_width(a), a->master, NULL, lars_item);
}

/* ---- Without a clock ---- */

void optim_average_lower(ct_lower *l) {
    ct_no_grad
        ct_scope {
            ct_tensor *rates = wide(l->in[0]), *keep = select(rates, 0, 0), *rest = select(rates, 0, 1);
            ct_tensor *older = ge_s(keep, 0.5), *part = mul_s(where(older, rest, keep), 2);
            for (int i = 1; i + 2 <= l->n_in; i += 2)
                ct_scope {
                    /* by half the difference from the one that counts more, as the kernel does (lanes.h) */
                    ct_tensor *a = wide(l->in[i]), *x = cast(l->in[i + 1], ct_dtype_of(a));
                    ct_tensor *heavy = where(older, a, x), *light = where(older, x, a);
                    ct_tensor *mean = sub(heavy, times(sub(mul_s(heavy, 0.5), mul_s(light, 0.5)), part));
                    ct_assign(l->in[i], where(eq_s(keep, 0), x, mean));
                }
        }
    if (l->want[0]) l->out[0] = count_of((l->n_in - 1) / 2);
}

void optim_unscale_lower(ct_lower *l) {
    const bool late = ((const optim_unscale_attrs *)l->attrs)->late;
    ct_no_grad {
        ct_tensor *factor = rdiv_s(wide(l->in[0]), 1), *one = scalar(1, factor), *finite = one;
        for (int i = 1; i < l->n_in; i++)
            ct_scope {
                ct_tensor *x = wide(l->in[i]), *y = late ? x : times(x, factor);
                finite = ct_pass(mul(finite, cast(all(isfinite(y)), ct_dtype_of(factor))));
                if (!late) ct_assign(l->in[i], y);
            }
        if (l->want[0]) l->out[0] = stack(((ct_tensor *[]){late ? factor : one, finite}), 2, 0);
    }
}

void optim_clip_lower(ct_lower *l) {
    const double most = ((const optim_clip_attrs *)l->attrs)->max_norm;
    ct_no_grad
        ct_scope {
            ct_tensor *factor = rdiv_s(add_s(wide(l->in[0]), 1e-6), most), *one = scalar(1, factor);
            factor = where(ge_s(factor, 1), one, factor); /* NaN stays */
            for (int i = 1; i < l->n_in && !__builtin_isinf(most); i++)
                ct_scope {
                    ct_assign(l->in[i], times(wide(l->in[i]), factor));
                }
        }
    if (l->want[0]) l->out[0] = count_of(l->n_in - 1);
}

void optim_rescale_lower(ct_lower *l) {
    const optim_rescale_attrs *a = l->attrs;
    ct_no_grad
        ct_scope {
            ct_tensor *scale = l->in[0], *clean = ne_s(l->in[2], 0), *good = add_s(wide(l->in[1]), 1);
            ct_tensor *due = ge_s(good, a->interval), *larger = mul_s(scale, a->growth);
            ct_tensor *grown = where(logical_and(due, isfinite(larger)), larger, scale);
            ct_assign(scale, where(clean, grown, mul_s(scale, a->backoff)));
            ct_assign(l->in[1], where(logical_and(clean, logical_not(due)), good, scalar(0, good)));
        }
    if (l->want[0]) l->out[0] = count_of(1);
}

void optim_left_out_lower(ct_lower *l) {
    ct_no_grad
        ct_scope {
            ct_tensor *count = wide(l->in[1]), *open = ne_s(select(l->in[0], 0, 1), 0);
            ct_assign(l->in[1], where(open, count, add_s(count, 1)));
        }
    if (l->want[0]) l->out[0] = count_of(1);
}

void optim_norm_lower(ct_lower *l) {
    const double kind = ((const optim_norm_attrs *)l->attrs)->kind;
    ct_no_grad {
        const ct_dtype widest = ct__widest_float();
        ct_tensor *total = full(CT_DIMS0, 0, .dtype = widest);
        for (int i = 0; i < l->n_in; i++)
            ct_scope {
                if (ct_numel(l->in[i]) == 0) continue;
                ct_tensor *x = abs(cast(l->in[i], widest));
                total = ct_pass(__builtin_isinf(kind) ? maximum(total, amax(x)) : add(total, sum(pow_s(x, kind))));
            }
        l->out[0] = __builtin_isinf(kind) ? total : kind == 2 ? sqrt(total) : pow_s(total, 1 / kind);
    }
}
