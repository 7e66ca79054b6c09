/* What the steps' ops and kernels share: where things are in their lists, and the numbers that a step computes with. */
#ifndef COTANGENT_OPS_OPTIM_H
#define COTANGENT_OPS_OPTIM_H

#include <cotangent/backend.h>

#include "gen/optim.attrs.h"

enum { OPTIM_WIDTH = 6 }; /* the most tensors of an item, the master among them */
enum { OPTIM_RATES = 9 }; /* the most rates */

/* The inputs of a step before its items. */
enum { OPTIM_RATES_AT, OPTIM_CLOCK_AT, OPTIM_GATE_AT, OPTIM_ITEMS_AT };

/* The order of the rates, as optim.def has it. All begin with the sign of the gradient and the learning rate. */
enum { RATE_SIGN, RATE_LR };
enum { SGD_MOMENTUM = 2, SGD_REST, SGD_DECAY, SGD_RATES };
enum { ADAM_BETA1 = 2, ADAM_REST1, ADAM_BETA2, ADAM_REST2, ADAM_EPS, ADAM_DECAY, ADAM_MOMENTUM_DECAY, ADAM_RATES };
enum { RMSPROP_ALPHA = 2, RMSPROP_REST, RMSPROP_EPS, RMSPROP_DECAY, RMSPROP_MOMENTUM, RMSPROP_RATES };
enum { ADAGRAD_LR_DECAY = 2, ADAGRAD_EPS, ADAGRAD_DECAY, ADAGRAD_RATES };
enum { ADADELTA_RHO = 2, ADADELTA_REST, ADADELTA_EPS, ADADELTA_DECAY, ADADELTA_RATES };
enum { LION_BETA1 = 2, LION_REST1, LION_BETA2, LION_REST2, LION_DECAY, LION_RATES };
enum { LAMB_BETA1 = 2, LAMB_REST1, LAMB_BETA2, LAMB_REST2, LAMB_EPS, LAMB_DECAY, LAMB_RATES };
enum { LARS_MOMENTUM = 2, LARS_DECAY, LARS_TRUST, LARS_EPS, LARS_RATES };

static inline int optim_sgd_width(const optim_sgd_attrs *a) { return 2 + a->momentum + a->master; }
static inline int optim_adam_width(const optim_adam_attrs *a) { return 4 + a->amsgrad + a->master; }
static inline int optim_rmsprop_width(const optim_rmsprop_attrs *a) {
    return 3 + a->centered + a->momentum + a->master;
}
static inline int optim_adagrad_width(const optim_adagrad_attrs *a) { return 3 + a->master; }
static inline int optim_adadelta_width(const optim_adadelta_attrs *a) { return 4 + a->master; }
static inline int optim_lion_width(const optim_lion_attrs *a) { return 3 + a->master; }
static inline int optim_lamb_width(const optim_lamb_attrs *a) { return 4 + a->master; }
static inline int optim_lars_width(const optim_lars_attrs *a) { return 3 + a->master; }

/* ---- The numbers of one step, made of rates, clock and gate; scale multiplies the gradient ---- */

typedef struct sgd_numbers {
    double scale, lr, keep, take, momentum, decay; /* b = keep b + take g */
    bool nesterov;
} sgd_numbers;

/* p = shrink p - (gradient g + moment m) / (root sqrt(v) + eps), with plain without the divisor */
typedef struct adam_numbers {
    double scale, beta1, rest1, beta2, rest2, eps, decay, shrink, gradient, moment, root;
    bool plain;
} adam_numbers;

typedef struct rmsprop_numbers {
    double scale, lr, alpha, rest, eps, decay, momentum;
    bool centered;
} rmsprop_numbers;

typedef struct adagrad_numbers {
    double scale, lr, eps, decay;
} adagrad_numbers;

typedef struct adadelta_numbers {
    double scale, lr, rho, rest, eps, decay;
} adadelta_numbers;

typedef struct lion_numbers {
    double scale, lr, beta1, rest1, beta2, rest2, shrink;
} lion_numbers;

typedef struct lamb_numbers {
    double scale, lr, beta1, rest1, beta2, rest2, eps, decay, moment, root;
} lamb_numbers;

typedef struct lars_numbers {
    double scale, lr, momentum, decay, trust, eps;
    bool nesterov;
} lars_numbers;

/* These read the inputs of a call whose memory the host sees, and move its clock on. False: the gate is shut, and nothing changes. */
bool ct__optim_sgd_numbers(const ct_call *call, sgd_numbers *n);
bool ct__optim_adam_numbers(const ct_call *call, adam_numbers *n);
bool ct__optim_rmsprop_numbers(const ct_call *call, rmsprop_numbers *n);
bool ct__optim_adagrad_numbers(const ct_call *call, adagrad_numbers *n);
bool ct__optim_adadelta_numbers(const ct_call *call, adadelta_numbers *n);
bool ct__optim_lion_numbers(const ct_call *call, lion_numbers *n);
bool ct__optim_lamb_numbers(const ct_call *call, lamb_numbers *n);
bool ct__optim_lars_numbers(const ct_call *call, lars_numbers *n);
/* Element i of a vector, or the only one of a scalar. */
double ct__optim_number(const ct_view *view, int i);
void ct__optim_put_number(const ct_view *view, int i, double value);

#endif
