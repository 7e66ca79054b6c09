/* From rates, clock and gate to the numbers that a step computes with, in f64. The lowerings (lower.c) do the same in ops. */
#include "ops/optim/optim.h"

#include <math.h>

#include "core/dtype.h"

static int64_t offset_of(const ct_view *view, int i) { return view->offset + (view->ndim ? i * view->strides[0] : 0); }
static char *place(const ct_view *view, int i) {
    return (char *)view->buffer + offset_of(view, i) * (int64_t)ct_dtype_size(view->dtype);
}

/* Optimizers keep them in f64. */
double ct__optim_number(const ct_view *view, int i) {
    if (view->dtype == CT_F64) return ((const double *)view->buffer)[offset_of(view, i)];
    return ct__dtype_get(view->dtype, place(view, i));
}
void ct__optim_put_number(const ct_view *view, int i, double value) {
    ct__dtype_put(view->dtype, place(view, i), value);
}

typedef struct inputs {
    double rate[OPTIM_RATES];
    double t, remembered; /* this step's number, from 1; what the clock remembers of the ones before */
    double scale;
} inputs;

static bool take(const ct_call *call, int rates, inputs *in) {
    const ct_view *gate = call->in[OPTIM_GATE_AT], *clock = call->in[OPTIM_CLOCK_AT];
    if (ct__optim_number(gate, 1) == 0) return false;
    for (int i = 0; i < rates; i++) in->rate[i] = ct__optim_number(call->in[OPTIM_RATES_AT], i);
    in->t = ct__optim_number(clock, 0) + 1;
    in->remembered = ct__optim_number(clock, 1);
    in->scale = in->rate[RATE_SIGN] * ct__optim_number(gate, 0);
    return true;
}

static bool go_on(const ct_call *call, const inputs *in) {
    ct__optim_put_number(call->in[OPTIM_CLOCK_AT], 0, in->t);
    ct__optim_put_number(call->in[OPTIM_CLOCK_AT], 1, in->remembered);
    return true;
}

/* 1 - beta^t, from 1 - beta: in f32 beta itself would have lost what matters */
static double bias(double rest, double t) { return -expm1(t * log1p(-rest)); }

bool ct__optim_sgd_numbers(const ct_call *call, sgd_numbers *n) {
    const optim_sgd_attrs *a = call->attrs;
    inputs in;
    if (!take(call, SGD_RATES, &in)) return false;
    const double first = in.remembered, momentum = in.rate[SGD_MOMENTUM];
    *n = (sgd_numbers){
        in.scale,           in.rate[RATE_LR], momentum * (1 - first), first + in.rate[SGD_REST] * (1 - first), momentum,
        in.rate[SGD_DECAY], a->nesterov};
    if (a->momentum) in.remembered = 0;
    return go_on(call, &in);
}

/* RAdam: without the second moment until the average is longer than 5 steps. */
static void rectify(const inputs *in, double bias2, adam_numbers *n) {
    const double most = 2 / in->rate[ADAM_REST2] - 1, rho = most - 2 * in->t * (1 - bias2) / bias2;
    n->root = 1;
    n->plain = !(rho > 5);
    if (!n->plain) n->moment *= sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) * sqrt(bias2);
}

/* NAdam: the momentum grows, and the next one is looked at already. */
static void look_ahead(inputs *in, double lr, adam_numbers *n) {
    const double rate = in->rate[ADAM_MOMENTUM_DECAY], b1 = in->rate[ADAM_BETA1];
    const double mu = b1 * (1 - 0.5 * pow(0.96, in->t * rate)), next = b1 * (1 - 0.5 * pow(0.96, (in->t + 1) * rate));
    in->remembered *= mu;
    n->gradient = lr * (1 - mu) / (1 - in->remembered);
    n->moment = lr * next / (1 - in->remembered * next);
}

bool ct__optim_adam_numbers(const ct_call *call, adam_numbers *n) {
    const optim_adam_attrs *a = call->attrs;
    inputs in;
    if (!take(call, ADAM_RATES, &in)) return false;
    const double lr = in.rate[RATE_LR], decay = in.rate[ADAM_DECAY];
    const double bias1 = bias(in.rate[ADAM_REST1], in.t), bias2 = bias(in.rate[ADAM_REST2], in.t);
    *n = (adam_numbers){.scale = in.scale,
                        .beta1 = in.rate[ADAM_BETA1],
                        .rest1 = in.rate[ADAM_REST1],
                        .beta2 = in.rate[ADAM_BETA2],
                        .rest2 = in.rate[ADAM_REST2],
                        .eps = in.rate[ADAM_EPS],
                        .decay = a->decoupled ? 0 : decay,
                        .shrink = a->decoupled ? 1 - lr * decay : 1,
                        .moment = lr / bias1,
                        .root = 1 / sqrt(bias2)};
    if (a->rectified) rectify(&in, bias2, n);
    if (a->nesterov) look_ahead(&in, lr, n);
    return go_on(call, &in);
}

bool ct__optim_rmsprop_numbers(const ct_call *call, rmsprop_numbers *n) {
    const optim_rmsprop_attrs *a = call->attrs;
    inputs in;
    if (!take(call, RMSPROP_RATES, &in)) return false;
    *n = (rmsprop_numbers){in.scale,
                           in.rate[RATE_LR],
                           in.rate[RMSPROP_ALPHA],
                           in.rate[RMSPROP_REST],
                           in.rate[RMSPROP_EPS],
                           in.rate[RMSPROP_DECAY],
                           in.rate[RMSPROP_MOMENTUM],
                           a->centered};
    return go_on(call, &in);
}

bool ct__optim_adagrad_numbers(const ct_call *call, adagrad_numbers *n) {
    inputs in;
    if (!take(call, ADAGRAD_RATES, &in)) return false;
    *n = (adagrad_numbers){in.scale, in.rate[RATE_LR] / (1 + (in.t - 1) * in.rate[ADAGRAD_LR_DECAY]),
                           in.rate[ADAGRAD_EPS], in.rate[ADAGRAD_DECAY]};
    return go_on(call, &in);
}

bool ct__optim_adadelta_numbers(const ct_call *call, adadelta_numbers *n) {
    inputs in;
    if (!take(call, ADADELTA_RATES, &in)) return false;
    *n = (adadelta_numbers){in.scale,
                            in.rate[RATE_LR],
                            in.rate[ADADELTA_RHO],
                            in.rate[ADADELTA_REST],
                            in.rate[ADADELTA_EPS],
                            in.rate[ADADELTA_DECAY]};
    return go_on(call, &in);
}

bool ct__optim_lion_numbers(const ct_call *call, lion_numbers *n) {
    inputs in;
    if (!take(call, LION_RATES, &in)) return false;
    *n = (lion_numbers){in.scale,
                        in.rate[RATE_LR],
                        in.rate[LION_BETA1],
                        in.rate[LION_REST1],
                        in.rate[LION_BETA2],
                        in.rate[LION_REST2],
                        1 - in.rate[RATE_LR] * in.rate[LION_DECAY]};
    return go_on(call, &in);
}

bool ct__optim_lamb_numbers(const ct_call *call, lamb_numbers *n) {
    inputs in;
    if (!take(call, LAMB_RATES, &in)) return false;
    *n = (lamb_numbers){.scale = in.scale,
                        .lr = in.rate[RATE_LR],
                        .beta1 = in.rate[LAMB_BETA1],
                        .rest1 = in.rate[LAMB_REST1],
                        .beta2 = in.rate[LAMB_BETA2],
                        .rest2 = in.rate[LAMB_REST2],
                        .eps = in.rate[LAMB_EPS],
                        .decay = in.rate[LAMB_DECAY],
                        .moment = 1 / bias(in.rate[LAMB_REST1], in.t),
                        .root = 1 / sqrt(bias(in.rate[LAMB_REST2], in.t))};
    return go_on(call, &in);
}

bool ct__optim_lars_numbers(const ct_call *call, lars_numbers *n) {
    const optim_lars_attrs *a = call->attrs;
    inputs in;
    if (!take(call, LARS_RATES, &in)) return false;
    *n = (lars_numbers){
        in.scale,          in.rate[RATE_LR], in.rate[LARS_MOMENTUM], in.rate[LARS_DECAY], in.rate[LARS_TRUST],
        in.rate[LARS_EPS], a->nesterov};
    return go_on(call, &in);
}
