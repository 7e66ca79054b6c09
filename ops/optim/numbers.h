/* From rates, clock and gate to the numbers that a step computes with, in f64: the same text for the host and for CUDA's device code. The
 * lowerings (lower.c) do it in ops. */
#ifndef COTANGENT_OPS_OPTIM_NUMBERS_H
#define COTANGENT_OPS_OPTIM_NUMBERS_H

#include <float.h>
#include <math.h>

#include "ops/optim/optim.h"

#ifdef __CUDACC__
#define OPTIM_NUMBERS static __device__ inline
#else
#define OPTIM_NUMBERS static inline
#endif

/* What a step reads; it may change what the clock remembers. */
typedef struct optim_inputs {
    double rate[OPTIM_RATES];
    double t, remembered; /* this step's number, from 1; what the clock remembers of the ones before */
    double scale;         /* of the gradient: sign and gate */
} optim_inputs;

/* 1 - beta^t, from 1 - beta: in f32 beta itself would have lost what matters */
OPTIM_NUMBERS double optim_bias(double rest, double t) { return -expm1(t * log1p(-rest)); }

OPTIM_NUMBERS sgd_numbers optim_sgd_numbers(const optim_sgd_attrs *a, optim_inputs *in) {
    const double first = in->remembered, momentum = in->rate[SGD_MOMENTUM];
    sgd_numbers n;
    n.scale = in->scale;
    n.lr = in->rate[RATE_LR];
    n.keep = momentum * (1 - first);
    n.take = first + in->rate[SGD_REST] * (1 - first);
    n.momentum = momentum;
    n.decay = in->rate[SGD_DECAY];
    n.nesterov = a->nesterov;
    if (a->momentum) in->remembered = 0;
    return n;
}

/* RAdam: without the second moment until the average is longer than 5 steps. */
OPTIM_NUMBERS void optim_rectify(const optim_inputs *in, double bias2, adam_numbers *n) {
    const double most = 2 / in->rate[ADAM_REST2] - 1, rho = most - 2 * in->t * (1 - bias2) / bias2;
    n->root = 1;
    n->plain = !(rho > 5);
    if (!n->plain) n->moment *= sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) * sqrt(bias2);
}

/* NAdam: the momentum grows, and the next one is looked at already. */
OPTIM_NUMBERS void optim_look_ahead(optim_inputs *in, double lr, adam_numbers *n) {
    const double rate = in->rate[ADAM_MOMENTUM_DECAY], b1 = in->rate[ADAM_BETA1];
    const double mu = b1 * (1 - 0.5 * pow(0.96, in->t * rate)), next = b1 * (1 - 0.5 * pow(0.96, (in->t + 1) * rate));
    in->remembered *= mu;
    n->gradient = lr * (1 - mu) / (1 - in->remembered);
    n->moment = lr * next / (1 - in->remembered * next);
}

OPTIM_NUMBERS adam_numbers optim_adam_numbers(const optim_adam_attrs *a, optim_inputs *in) {
    const double lr = in->rate[RATE_LR], decay = in->rate[ADAM_DECAY];
    const double bias2 = optim_bias(in->rate[ADAM_REST2], in->t);
    adam_numbers n;
    n.scale = in->scale;
    n.beta1 = in->rate[ADAM_BETA1];
    n.rest1 = in->rate[ADAM_REST1];
    n.beta2 = in->rate[ADAM_BETA2];
    n.rest2 = in->rate[ADAM_REST2];
    n.eps = in->rate[ADAM_EPS];
    n.decay = a->decoupled ? 0 : decay;
    n.shrink = a->decoupled ? 1 - lr * decay : 1;
    n.gradient = 0;
    n.moment = lr / optim_bias(in->rate[ADAM_REST1], in->t);
    n.root = 1 / sqrt(bias2);
    n.plain = false;
    if (a->rectified) optim_rectify(in, bias2, &n);
    if (a->nesterov) optim_look_ahead(in, lr, &n);
    return n;
}

OPTIM_NUMBERS rmsprop_numbers optim_rmsprop_numbers(const optim_rmsprop_attrs *a, optim_inputs *in) {
    rmsprop_numbers n;
    n.scale = in->scale;
    n.lr = in->rate[RATE_LR];
    n.alpha = in->rate[RMSPROP_ALPHA];
    n.rest = in->rate[RMSPROP_REST];
    n.eps = in->rate[RMSPROP_EPS];
    n.decay = in->rate[RMSPROP_DECAY];
    n.momentum = in->rate[RMSPROP_MOMENTUM];
    n.centered = a->centered;
    return n;
}

OPTIM_NUMBERS adagrad_numbers optim_adagrad_numbers(const optim_adagrad_attrs *a, optim_inputs *in) {
    adagrad_numbers n;
    (void)a;
    n.scale = in->scale;
    n.lr = in->rate[RATE_LR] / (1 + (in->t - 1) * in->rate[ADAGRAD_LR_DECAY]);
    n.eps = in->rate[ADAGRAD_EPS];
    n.decay = in->rate[ADAGRAD_DECAY];
    return n;
}

OPTIM_NUMBERS adadelta_numbers optim_adadelta_numbers(const optim_adadelta_attrs *a, optim_inputs *in) {
    adadelta_numbers n;
    (void)a;
    n.scale = in->scale;
    n.lr = in->rate[RATE_LR];
    n.rho = in->rate[ADADELTA_RHO];
    n.rest = in->rate[ADADELTA_REST];
    n.eps = in->rate[ADADELTA_EPS];
    n.decay = in->rate[ADADELTA_DECAY];
    return n;
}

OPTIM_NUMBERS lion_numbers optim_lion_numbers(const optim_lion_attrs *a, optim_inputs *in) {
    lion_numbers n;
    (void)a;
    n.scale = in->scale;
    n.lr = in->rate[RATE_LR];
    n.beta1 = in->rate[LION_BETA1];
    n.rest1 = in->rate[LION_REST1];
    n.beta2 = in->rate[LION_BETA2];
    n.rest2 = in->rate[LION_REST2];
    n.shrink = 1 - in->rate[RATE_LR] * in->rate[LION_DECAY];
    return n;
}

OPTIM_NUMBERS lamb_numbers optim_lamb_numbers(const optim_lamb_attrs *a, optim_inputs *in) {
    lamb_numbers n;
    (void)a;
    n.scale = in->scale;
    n.lr = in->rate[RATE_LR];
    n.beta1 = in->rate[LAMB_BETA1];
    n.rest1 = in->rate[LAMB_REST1];
    n.beta2 = in->rate[LAMB_BETA2];
    n.rest2 = in->rate[LAMB_REST2];
    n.eps = in->rate[LAMB_EPS];
    n.decay = in->rate[LAMB_DECAY];
    n.moment = 1 / optim_bias(in->rate[LAMB_REST1], in->t);
    n.root = 1 / sqrt(optim_bias(in->rate[LAMB_REST2], in->t));
    return n;
}

OPTIM_NUMBERS lars_numbers optim_lars_numbers(const optim_lars_attrs *a, optim_inputs *in) {
    lars_numbers n;
    n.scale = in->scale;
    n.lr = in->rate[RATE_LR];
    n.momentum = in->rate[LARS_MOMENTUM];
    n.decay = in->rate[LARS_DECAY];
    n.trust = in->rate[LARS_TRUST];
    n.eps = in->rate[LARS_EPS];
    n.nesterov = a->nesterov;
    return n;
}

/* What the learning rate of an item is multiplied by, from its lengths. */
OPTIM_NUMBERS double optim_lamb_ratio(const lamb_numbers *n, double weight, double direction) {
    (void)n;
    return weight > 0 && direction > 0 ? weight / direction : 1;
}
OPTIM_NUMBERS double optim_lars_ratio(const lars_numbers *n, double weight, double gradient) {
    gradient *= fabs(n->scale);
    return weight > 0 && gradient > 0 ? n->trust * weight / (gradient + n->decay * weight + n->eps) : 1;
}

/* ---- The loss scaler ---- */

/* The largest finite number of a scale. */
OPTIM_NUMBERS double optim_most(ct_dtype dtype) {
    return dtype == CT_F64 ? DBL_MAX : dtype == CT_F16 ? 65504 : dtype == CT_BF16 ? 0x1.fep127 : FLT_MAX;
}

OPTIM_NUMBERS void optim_rescale(const optim_rescale_attrs *a, double most, double clean, double *scale, double *good) {
    const bool due = *good + 1 >= a->interval;
    if (clean == 0) *scale *= a->backoff;
    else if (due && *scale * a->growth <= most) *scale *= a->growth;
    *good = clean != 0 && !due ? *good + 1 : 0;
}

#endif
