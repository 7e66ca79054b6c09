/* What the steps' ops and kernels share: how many tensors an item has, and the ratios of LAMB and LARS. */
#ifndef COTANGENT_OPS_OPTIM_H
#define COTANGENT_OPS_OPTIM_H

#include "gen/optim.attrs.h"

enum { OPTIM_WIDTH = 6 }; /* the most, the master among them */

static inline int optim_sgd_width(const optim_sgd_attrs *a) { return 2 + (a->momentum != 0) + a->master; }
static inline int optim_adam_width(const optim_adam_attrs *a) { return 4 + a->amsgrad + a->master; }
static inline int optim_rmsprop_width(const optim_rmsprop_attrs *a) {
    return 3 + a->centered + (a->momentum != 0) + a->master;
}
static inline int optim_adagrad_width(const optim_adagrad_attrs *a) { return 3 + a->master; }
static inline int optim_adadelta_width(const optim_adadelta_attrs *a) { return 4 + a->master; }
static inline int optim_lion_width(const optim_lion_attrs *a) { return 3 + a->master; }
static inline int optim_lamb_width(const optim_lamb_attrs *a) { return 4 + a->master; }
static inline int optim_lars_width(const optim_lars_attrs *a) { return 3 + a->master; }

static inline double optim_lamb_ratio(double weight, double step) { return weight > 0 && step > 0 ? weight / step : 1; }
static inline double optim_lars_ratio(const optim_lars_attrs *a, double weight, double gradient) {
    return weight > 0 && gradient > 0 ? a->trust * weight / (gradient + a->decay * weight + a->eps) : 1;
}

#endif
