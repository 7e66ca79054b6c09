/* Learning: optimizers, learning-rate schedules, gradient clipping, averages of weights, loss scaling.
 *
 *     ct_optim *opt = ct_adamw(net, .lr = 1e-3);
 *     ct_optim_group(opt, "*.bias", .weight_decay = CT_SET(0));
 *     ct_schedule *schedule = ct_schedule_cosine(opt, steps);
 *     ... ct_backward(loss); ct_clip_grad_norm(net, 1.0); ct_optim_step(opt); ct_schedule_step(schedule);
 */
#ifndef COTANGENT_OPTIM_H
#define COTANGENT_OPTIM_H

#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/state.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_optim ct_optim;

/* Options of the optimizers. Every one has lr; weight decay is added to the gradient unless the optimizer's description
 * says that it is decoupled. */
typedef struct ct_sgd_options {
    size_t size;
    double lr;           /* 1e-2 */
    ct_opt momentum;     /* 0 */
    ct_opt dampening;    /* 0 */
    bool nesterov;
    ct_opt weight_decay; /* 0 */
    bool maximize;
} ct_sgd_options;
CT_API ct_optim *ct_sgd_p(ct_module *net, const ct_sgd_options *options);
/* ... Adam, AdamW, RAdam, NAdam, RMSprop, Adagrad, Adadelta, LAMB, LARS, Lion, L-BFGS, Lookahead: see optim/ */

CT_API void ct_optim_free(ct_optim *optim);
/* One step with the gradients that ct_backward has left; a parameter without a gradient or frozen is left alone. The
 * gradients are forgotten afterwards, so that the next ct_backward begins anew, unless ct_optim_keep_grad(optim, true). */
CT_API bool ct_optim_step(ct_optim *optim);
CT_API bool ct_optim_zero_grad(ct_optim *optim);
CT_API bool ct_optim_keep_grad(ct_optim *optim, bool keep);
CT_API double ct_optim_lr(const ct_optim *optim);           /* of the first group */
CT_API bool ct_optim_set_lr(ct_optim *optim, double lr);    /* of every group, in proportion to what each began with */
CT_API int64_t ct_optim_steps(const ct_optim *optim);
CT_API const char *ct_optim_name(const ct_optim *optim);

/* Gives the parameters whose path fits a pattern (as of a shell: * ? [...]) a group of their own, with some options other
 * than the optimizer's. A later group takes a parameter over from an earlier one. A pattern that fits none is an error. */
typedef struct ct_group_options {
    size_t size;
    double lr;
    ct_opt weight_decay, momentum;
} ct_group_options;
CT_API bool ct_optim_group_p(ct_optim *optim, const char *pattern, const ct_group_options *options);

CT_API bool ct_optim_put_state(ct_optim *optim, ct_state *state, const char *prefix);
CT_API bool ct_optim_take_state(ct_optim *optim, const ct_state *state, const char *prefix); /* all or nothing */

/* (clipping, EMA, schedules, scaler: see optim/) */

#ifdef __cplusplus
}
#endif
#endif
