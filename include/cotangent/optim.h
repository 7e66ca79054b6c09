/* Learning: optimizers, learning-rate schedules, gradient clipping, averages of weights, loss scaling.
 *
 *     ct_optim *opt = ct_adamw(net, .lr = 1e-3);
 *     ct_optim_group(opt, "*.bias", .weight_decay = CT_SET(0));
 *     ct_schedule *schedule = ct_schedule_cosine(opt, steps);
 *     ... ct_backward(loss); ct_clip_grad_norm(net, 1.0); ct_optim_step(opt); ct_schedule_step(schedule);
 *
 * Everything here does nothing and returns false (NaN, NULL) while an error is pending.
 *
 * Steps, clipping, averages and the loss scaler only enqueue: learning rates, numbers of steps, norms, scales and whether a step
 * is left out are data on the device of the parameters. What returns such a number, or saves it, waits for it, and says so.
 *
 * Threads: an optimizer, with its schedules, scaler, averages and network, is one thread's at a time. Different ones, of different
 * networks, may learn on different threads at once. */
#ifndef COTANGENT_OPTIM_H
#define COTANGENT_OPTIM_H

#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Optimizers ---------------------------------------------------------------------------------- */

/* An optimizer holds its network (one reference more) and, for each parameter, what the algorithm remembers. Parameters
 * of f16 and bf16 are learned as a copy in f32, which is made at their first step and kept with the state, and rounded from
 * it: what others write into such a parameter later is lost at the next step.
 *
 * Every one has lr, the learning rate; in the options below the comment is the default. Weight decay is added to the
 * gradient (weight_decay * parameter) unless the optimizer's description says that it is decoupled: there the parameter is
 * made smaller by lr * weight_decay of itself. With maximize, the gradient is climbed. net may be NULL: then the
 * parameters come from ct_optim_add_tensor. */
typedef struct ct_optim ct_optim;

/* Stochastic gradient descent: b = momentum b + (1 - dampening) g, p -= lr b; nesterov: p -= lr (g + momentum b). The
 * first b is g. */
typedef struct ct_sgd_options {
    size_t size;
    double lr;           /* 1e-3 */
    ct_opt momentum;     /* 0 */
    ct_opt dampening;    /* 0 */
    bool nesterov;       /* needs momentum and no dampening */
    ct_opt weight_decay; /* 0 */
    bool maximize;
} ct_sgd_options;
CT_API ct_optim *ct_sgd_p(ct_module *net, const ct_sgd_options *options);

/* Adam (Kingma and Ba 2015); amsgrad divides by the largest second moment so far. */
typedef struct ct_adam_options {
    size_t size;
    double lr;           /* 1e-3 */
    ct_opt beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-8 */
    ct_opt weight_decay; /* 0 */
    bool amsgrad;
    bool maximize;
} ct_adam_options;
CT_API ct_optim *ct_adam_p(ct_module *net, const ct_adam_options *options);

/* Adam with decoupled weight decay (Loshchilov and Hutter 2019). */
typedef struct ct_adamw_options {
    size_t size;
    double lr;           /* 1e-3 */
    ct_opt beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-8 */
    ct_opt weight_decay; /* 1e-2, decoupled */
    bool amsgrad;
    bool maximize;
} ct_adamw_options;
CT_API ct_optim *ct_adamw_p(ct_module *net, const ct_adamw_options *options);

/* Rectified Adam (Liu et al. 2020): momentum alone until the variance of the step can be trusted. */
typedef struct ct_radam_options {
    size_t size;
    double lr;           /* 1e-3 */
    ct_opt beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-8 */
    ct_opt weight_decay; /* 0 */
    bool decoupled_weight_decay;
    bool maximize;
} ct_radam_options;
CT_API ct_optim *ct_radam_p(ct_module *net, const ct_radam_options *options);

/* Adam with Nesterov's momentum (Dozat 2016): at step t, mu = beta1 (1 - 0.96^(t momentum_decay) / 2). */
typedef struct ct_nadam_options {
    size_t size;
    double lr;             /* 2e-3 */
    ct_opt beta1, beta2;   /* 0.9, 0.999 */
    double eps;            /* 1e-8 */
    ct_opt weight_decay;   /* 0 */
    ct_opt momentum_decay; /* 4e-3 */
    bool decoupled_weight_decay;
    bool maximize;
} ct_nadam_options;
CT_API ct_optim *ct_nadam_p(ct_module *net, const ct_nadam_options *options);

/* RMSprop: p -= lr g / (sqrt(average of g^2) + eps); centered subtracts the squared average of g under the root. */
typedef struct ct_rmsprop_options {
    size_t size;
    double lr;           /* 1e-2 */
    ct_opt alpha;        /* 0.99: how much of the average stays */
    double eps;          /* 1e-8 */
    ct_opt momentum;     /* 0 */
    ct_opt weight_decay; /* 0 */
    bool centered;
    bool maximize;
} ct_rmsprop_options;
CT_API ct_optim *ct_rmsprop_p(ct_module *net, const ct_rmsprop_options *options);

/* Adagrad (Duchi et al. 2011): p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum of g^2) + eps). */
typedef struct ct_adagrad_options {
    size_t size;
    double lr;                        /* 1e-2 */
    ct_opt lr_decay;                  /* 0 */
    ct_opt initial_accumulator_value; /* 0 */
    double eps;                       /* 1e-10 */
    ct_opt weight_decay;              /* 0 */
    bool maximize;
} ct_adagrad_options;
CT_API ct_optim *ct_adagrad_p(ct_module *net, const ct_adagrad_options *options);

/* Adadelta (Zeiler 2012). */
typedef struct ct_adadelta_options {
    size_t size;
    double lr;           /* 1 */
    ct_opt rho;          /* 0.9 */
    double eps;          /* 1e-6 */
    ct_opt weight_decay; /* 0 */
    bool maximize;
} ct_adadelta_options;
CT_API ct_optim *ct_adadelta_p(ct_module *net, const ct_adadelta_options *options);

/* LAMB (You et al. 2020): Adam's direction plus decay, for each tensor scaled to the tensor's own norm; where either norm
 * is 0 it is not scaled. */
typedef struct ct_lamb_options {
    size_t size;
    double lr;           /* 1e-3 */
    ct_opt beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-6 */
    ct_opt weight_decay; /* 1e-2, part of the direction */
    bool maximize;
} ct_lamb_options;
CT_API ct_optim *ct_lamb_p(ct_module *net, const ct_lamb_options *options);

/* LARS (You et al. 2017): for each tensor r = trust |p| / (|g| + weight_decay |p| + eps), or 1 where either norm is 0;
 * b = momentum b + lr r (g + weight_decay p); p -= b, with nesterov p -= momentum b + lr r (g + weight_decay p). */
typedef struct ct_lars_options {
    size_t size;
    double lr;           /* 0.1 */
    ct_opt momentum;     /* 0.9 */
    ct_opt weight_decay; /* 1e-4 */
    double trust;        /* 1e-3 */
    double eps;          /* 1e-8 */
    bool nesterov;
    bool maximize;
} ct_lars_options;
CT_API ct_optim *ct_lars_p(ct_module *net, const ct_lars_options *options);

/* Lion (Chen et al. 2023): p -= lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g. */
typedef struct ct_lion_options {
    size_t size;
    double lr;           /* 1e-4 */
    ct_opt beta1, beta2; /* 0.9, 0.99 */
    ct_opt weight_decay; /* 0, decoupled */
    bool maximize;
} ct_lion_options;
CT_API ct_optim *ct_lion_p(ct_module *net, const ct_lion_options *options);

/* L-BFGS: a quasi-Newton method for problems without noise. Each step evaluates the loss several times: it is taken with
 * ct_optim_step_with. All parameters have one dtype, f32 or f64, and one group. Where it goes depends on the losses, so it
 * waits for the device several times per iteration. */
typedef struct ct_lbfgs_options {
    size_t size;
    double lr;               /* 1 */
    int64_t max_iter;        /* 20: iterations per step */
    int64_t max_eval;        /* max_iter * 5 / 4: evaluations per step */
    ct_opt tolerance_grad;   /* 1e-7: done when no element of the gradient is larger */
    ct_opt tolerance_change; /* 1e-9: done when the loss or all parameters change by less */
    int64_t history_size;    /* 100 */
    bool strong_wolfe;       /* line search by the strong Wolfe conditions; otherwise steps of length lr */
} ct_lbfgs_options;
CT_API ct_optim *ct_lbfgs_p(ct_module *net, const ct_lbfgs_options *options);

/* Lookahead (Zhang et al. 2019) around another optimizer, which it owns: after every k steps of it the slow weights move by
 * alpha of the way to the fast ones, which go on from there; a step that a loss scaler leaves out counts as one of the k.
 * Learning rate, groups and parameters are those of inner. */
typedef struct ct_lookahead_options {
    size_t size;
    ct_opt alpha; /* 0.5 */
    int64_t k;    /* 5 */
} ct_lookahead_options;
CT_API ct_optim *ct_lookahead_p(ct_optim *inner, const ct_lookahead_options *options);

CT_API void ct_optim_free(ct_optim *optim);

/* One more parameter, in the first group: a leaf that requires grad; it is kept. The name is for groups, state and errors,
 * and must be new. Only before the first step. */
CT_API bool ct_optim_add_tensor(ct_optim *optim, const char *name, ct_tensor *x);

/* One step with the gradients that ct_backward has left; a parameter without a gradient or frozen is left alone. The
 * gradients are forgotten afterwards, so that the next ct_backward begins anew, unless ct_optim_keep_grad(optim, true). */
CT_API bool ct_optim_step(ct_optim *optim);
/* One step of an optimizer that evaluates the loss itself: fn computes it, and nothing else; gradients are cleared before
 * and found by ct_backward after it. Every optimizer takes it. Returns the loss before the step, NaN after an error, and so waits
 * for the device. */
typedef ct_tensor *(*ct_loss_fn)(void *context);
CT_API double ct_optim_step_with(ct_optim *optim, ct_loss_fn fn, void *context);

CT_API bool ct_optim_zero_grad(ct_optim *optim); /* forgets the gradients, or clears them: ct_optim_reuse_grad */
CT_API bool ct_optim_keep_grad(ct_optim *optim, bool keep);
/* From here on gradients that are forgotten keep their memory: they become zeros, and the next ct_backward adds to them at the
 * same address, as a step that is recorded and run again needs it. It costs a pass over them to clear and one to add; and what has
 * a gradient of zeros is not left alone by a step as what has none is: momentum and weight decay go on. */
CT_API bool ct_optim_reuse_grad(ct_optim *optim, bool reuse);
CT_API double ct_optim_lr(const ct_optim *optim); /* of the first group */
/* Of every group, in proportion to what each began with. Zero is legal here. */
CT_API bool ct_optim_set_lr(ct_optim *optim, double lr);
/* The momentum of SGD, RMSprop and LARS, and the beta1 of the others, of every group; NaN and an error where there is none. */
CT_API double ct_optim_momentum(const ct_optim *optim);
CT_API bool ct_optim_set_momentum(ct_optim *optim, double momentum);
/* Steps so far, without those that a loss scaler left out; with a scaler it waits for the device, which counts these. */
CT_API int64_t ct_optim_steps(const ct_optim *optim);
CT_API const char *ct_optim_name(const ct_optim *optim); /* "adamw" */

/* Gives the parameters whose path fits a pattern (as of a shell: * ? [...]; * also crosses dots) a group of their own, with
 * some options other than the optimizer's. A later group takes a parameter over from an earlier one. A pattern that fits
 * none is an error. */
typedef struct ct_group_options {
    size_t size;
    double lr;
    ct_opt weight_decay, momentum; /* momentum: or beta1 */
} ct_group_options;
CT_API bool ct_optim_group_p(ct_optim *optim, const char *pattern, const ct_group_options *options);

/* Everything that the next step depends on but parameters and options. The tensors are shared, not copied. Taking checks
 * all of it before anything changes. */
CT_API bool ct_optim_put_state(ct_optim *optim, ct_state *state, const char *prefix);
CT_API bool ct_optim_take_state(ct_optim *optim, const ct_state *state, const char *prefix); /* all or nothing */

/* By name, for programs that read the choice from a file. Settings are numbers in the order of the table; a bool is 0 or 1. */
typedef struct ct_optim_info {
    const char *name; /* "adamw" */
    const char *doc;
    const ct_setting *settings;
    int count;       /* of settings */
    bool needs_loss; /* only ct_optim_step_with */
} ct_optim_info;
CT_API const ct_optim_info *ct_optim_find(const char *name); /* NULL: there is none of that name; no error */
CT_API const ct_optim_info *ct_optim_info_at(int i);         /* NULL past the end */
CT_API ct_optim *ct_optim_build(const ct_optim_info *info, ct_module *net,
                                const double *values); /* NULL: the defaults */

/* ---- Gradients ------------------------------------------------------------------------------------ */

/* All gradients together, as one vector: their norm before clipping is returned (NaN after an error); if it is larger than
 * max_norm, they are scaled by max_norm / (norm + 1e-6), in place. Parameters without a gradient do not count. */
typedef struct ct_clip_options {
    size_t size;
    double norm_type;        /* 2; INFINITY: the largest magnitude */
    bool error_if_nonfinite; /* a norm that is NaN or infinite is an error and nothing is changed; it is waited for */
} ct_clip_options;
CT_API double ct_clip_grad_norm_p(ct_module *net, double max_norm, const ct_clip_options *options);
CT_API bool ct_clip_grad_value(ct_module *net, double limit); /* each element into -limit .. limit */
CT_API double ct_grad_norm(ct_module *net);
/* The same for the parameters of an optimizer, also those without a module; a little faster. */
CT_API double ct_optim_clip_grad_norm_p(ct_optim *optim, double max_norm, const ct_clip_options *options);
CT_API bool ct_optim_clip_grad_value(ct_optim *optim, double limit);
CT_API double ct_optim_grad_norm(ct_optim *optim);
/* The same norms, which as numbers are waited for, as f64 scalars that stay on the device. NULL after an error. */
CT_API ct_tensor *ct_clip_grad_norm_tensor_p(ct_module *net, double max_norm, const ct_clip_options *options);
CT_API ct_tensor *ct_grad_norm_tensor(ct_module *net);
CT_API ct_tensor *ct_optim_clip_grad_norm_tensor_p(ct_optim *optim, double max_norm, const ct_clip_options *options);
CT_API ct_tensor *ct_optim_grad_norm_tensor(ct_optim *optim);

/* ---- Averages of weights -------------------------------------------------------------------------- */

/* An exponential moving average of a network's parameters, average = decay average + (1 - decay) parameter at every
 * update, in f32 for half types; buffers are copied. It begins as a copy of the network, which it holds. */
typedef struct ct_ema ct_ema;
typedef struct ct_ema_options {
    size_t size;
    ct_opt decay; /* 0.999 */
    bool warmup;  /* at update t (from 0) the decay is at most (1 + t) / (10 + t) */
} ct_ema_options;
CT_API ct_ema *ct_ema_new_p(ct_module *net, const ct_ema_options *options);
CT_API void ct_ema_free(ct_ema *ema); /* puts the network's own values back first if the averages are in it */
CT_API bool ct_ema_update(ct_ema *ema);
CT_API bool ct_ema_swap_in(ct_ema *ema);  /* the network has the averages from here: to evaluate or to save it */
CT_API bool ct_ema_swap_out(ct_ema *ema); /* the network has its own values again, to the bit */
CT_API bool ct_ema_put_state(ct_ema *ema, ct_state *state, const char *prefix);
CT_API bool ct_ema_take_state(ct_ema *ema, const ct_state *state, const char *prefix); /* all or nothing */

/* ---- Loss scaling --------------------------------------------------------------------------------- */

/* Keeps small gradients of f16 from vanishing: the loss is multiplied by a scale, gradients are divided by it, and a step
 * whose gradients are not finite is left out and makes the scale smaller.
 *
 *     ct_backward(ct_scaler_scale(scaler, loss)); ct_scaler_unscale(scaler, opt); ct_optim_clip_grad_norm(opt, 1.0);
 *     ct_scaler_step(scaler, opt); ct_scaler_update(scaler); */
typedef struct ct_scaler ct_scaler;
typedef struct ct_scaler_options {
    size_t size;
    double growth_factor;    /* 2 */
    double backoff_factor;   /* 0.5 */
    int64_t growth_interval; /* 2000: steps without a bad gradient before the scale grows */
} ct_scaler_options;
CT_API ct_scaler *ct_scaler_new_p(double init_scale, const ct_scaler_options *options); /* 0: 65536 */
CT_API void ct_scaler_free(ct_scaler *scaler);
/* The scale, an f32 that lies where the loss is: it is waited for. */
CT_API double ct_scaler_value(const ct_scaler *scaler);
CT_API ct_tensor *ct_scaler_scale(ct_scaler *scaler, ct_tensor *loss);
/* Divides the gradients, once per step; only needed where they are looked at before ct_scaler_step, which does it otherwise. */
CT_API bool ct_scaler_unscale(ct_scaler *scaler, ct_optim *optim);
CT_API bool ct_scaler_step(ct_scaler *scaler, ct_optim *optim); /* true also when the step was left out */
CT_API bool
ct_scaler_skipped(const ct_scaler *scaler);      /* the last ct_scaler_step left its step out; it is waited for */
CT_API bool ct_scaler_update(ct_scaler *scaler); /* once after the steps of all optimizers */
CT_API bool ct_scaler_put_state(ct_scaler *scaler, ct_state *state, const char *prefix);
CT_API bool ct_scaler_take_state(ct_scaler *scaler, const ct_state *state, const char *prefix); /* all or nothing */

/* ---- Schedules ------------------------------------------------------------------------------------ */

/* The learning rate as a function of the number t of ct_schedule_step calls so far. Making a schedule sets the rate for
 * t = 0. base is the rate that the optimizer was made with; groups keep their proportion to it, also where a schedule names
 * an absolute rate, which is that of the first group. A schedule must not outlive its optimizer. */
typedef struct ct_schedule ct_schedule;

typedef struct ct_schedule_gamma_options {
    size_t size;
    ct_opt gamma; /* 0.1 */
} ct_schedule_gamma_options;
typedef struct ct_schedule_min_options {
    size_t size;
    double min_lr; /* 0: what it falls to */
} ct_schedule_min_options;

/* base gamma^floor(t / every) */
CT_API ct_schedule *ct_schedule_step_decay_p(ct_optim *optim, int64_t every, const ct_schedule_gamma_options *options);
/* base gamma^(number of milestones reached) */
CT_API ct_schedule *ct_schedule_multi_step_p(ct_optim *optim, ct_dims milestones,
                                             const ct_schedule_gamma_options *options);
/* base gamma^t */
CT_API ct_schedule *ct_schedule_exponential(ct_optim *optim, double gamma);
/* From base to min_lr along half a cosine in `steps` steps (and back up after). */
CT_API ct_schedule *ct_schedule_cosine_p(ct_optim *optim, int64_t steps, const ct_schedule_min_options *options);

/* The same falls again and again, the first taking `first` steps and each `multiply` times as long as the one before. */
typedef struct ct_schedule_restarts_options {
    size_t size;
    int64_t multiply; /* 1 */
    double min_lr;    /* 0 */
} ct_schedule_restarts_options;
CT_API ct_schedule *ct_schedule_cosine_restarts_p(ct_optim *optim, int64_t first,
                                                  const ct_schedule_restarts_options *options);

/* base times a factor that goes in a straight line from start to end in `steps` steps, and stays. */
typedef struct ct_schedule_warmup_options {
    size_t size;
    double start; /* 1/3 */
    ct_opt end;   /* 1 */
} ct_schedule_warmup_options;
CT_API ct_schedule *ct_schedule_warmup_p(ct_optim *optim, int64_t steps, const ct_schedule_warmup_options *options);

/* base times factor for the first `steps` steps, then base. */
CT_API ct_schedule *ct_schedule_constant(ct_optim *optim, double factor, int64_t steps);

/* base (1 - t / steps)^power, 0 at the end. */
typedef struct ct_schedule_polynomial_options {
    size_t size;
    double power; /* 1 */
} ct_schedule_polynomial_options;
CT_API ct_schedule *ct_schedule_polynomial_p(ct_optim *optim, int64_t steps,
                                             const ct_schedule_polynomial_options *options);

/* Up from max_lr / div_factor to max_lr and down to that divided by final_div_factor, all in `steps` steps; the momentum
 * (or beta1) goes the other way. It stays where it ends. */
typedef struct ct_schedule_one_cycle_options {
    size_t size;
    double pct_start;        /* 0.3: part of the steps that goes up */
    double div_factor;       /* 25 */
    double final_div_factor; /* 1e4 */
    bool linear;             /* straight lines rather than cosines */
    bool three_phase;        /* down as slowly as up, then on to the end */
    bool keep_momentum;      /* leave the momentum alone */
    double base_momentum;    /* 0.85 */
    double max_momentum;     /* 0.95 */
} ct_schedule_one_cycle_options;
CT_API ct_schedule *ct_schedule_one_cycle_p(ct_optim *optim, double max_lr, int64_t steps,
                                            const ct_schedule_one_cycle_options *options);

/* Between base_lr and max_lr, up in `up` steps and down in `down`, again and again. */
typedef enum ct_cyclic_mode {
    CT_TRIANGULAR = 0, /* all cycles alike */
    CT_TRIANGULAR2,    /* each half as high as the one before */
    CT_EXP_RANGE,      /* height times gamma^t */
} ct_cyclic_mode;
typedef struct ct_schedule_cyclic_options {
    size_t size;
    int64_t up;   /* 2000 */
    int64_t down; /* as up */
    ct_cyclic_mode mode;
    double gamma;         /* 1 */
    bool cycle_momentum;  /* the momentum goes the other way */
    double base_momentum; /* 0.8 */
    double max_momentum;  /* 0.9 */
} ct_schedule_cyclic_options;
CT_API ct_schedule *ct_schedule_cyclic_p(ct_optim *optim, double base_lr, double max_lr,
                                         const ct_schedule_cyclic_options *options);

/* Times factor whenever the metric given to ct_schedule_step_metric has not become better for more than `patience` steps. */
typedef struct ct_schedule_plateau_options {
    size_t size;
    bool maximize;    /* larger is better */
    ct_opt factor;    /* 0.1, below 1 */
    ct_opt patience;  /* 10 */
    ct_opt threshold; /* 1e-4: better by less does not count */
    bool absolute;    /* the threshold is a difference, not a part of the best */
    int64_t cooldown; /* 0: steps to wait after a reduction */
    double min_lr;    /* 0 */
    ct_opt eps;       /* 1e-8: a smaller reduction is left out */
} ct_schedule_plateau_options;
CT_API ct_schedule *ct_schedule_plateau_p(ct_optim *optim, const ct_schedule_plateau_options *options);

/* base times what fn returns for t. */
CT_API ct_schedule *ct_schedule_lambda(ct_optim *optim, double (*fn)(void *context, int64_t t), void *context);

/* All at once: the factors of the parts are multiplied. Or one after the other: part i + 1 begins, at its own t = 0, at
 * t = milestones[i], of which there are n - 1. Both own their parts, which belong to one optimizer. At
 * most 256 are within one another. */
CT_API ct_schedule *ct_schedule_chain(ct_schedule *const *parts, int n);
CT_API ct_schedule *ct_schedule_sequence(ct_schedule *const *parts, int n, const int64_t *milestones);

CT_API void ct_schedule_free(ct_schedule *schedule);
CT_API bool ct_schedule_step(ct_schedule *schedule);                       /* an error where a metric is needed */
CT_API bool ct_schedule_step_metric(ct_schedule *schedule, double metric); /* others than plateau ignore the metric */
CT_API bool ct_schedule_needs_metric(const ct_schedule *schedule);
CT_API int64_t ct_schedule_steps(const ct_schedule *schedule); /* t */
CT_API const char *ct_schedule_name(const ct_schedule *schedule);
/* Taking also sets the optimizer's rate (and momentum) to what the schedule gives. */
CT_API bool ct_schedule_put_state(ct_schedule *schedule, ct_state *state, const char *prefix);
CT_API bool ct_schedule_take_state(ct_schedule *schedule, const ct_state *state,
                                   const char *prefix); /* all or nothing */

/* By name, as for optimizers. Every one has a setting "warmup", steps of linear warm-up from (almost) 0 before it. A setting
 * that counts steps and is above 0 and below 1 is that part of total_steps; 0 is what is left of total_steps. */
typedef struct ct_schedule_info {
    const char *name; /* "cosine" */
    const char *doc;
    const ct_setting *settings;
    int count;
    bool needs_metric; /* stepped once per epoch with a metric, not once per step: total_steps are then epochs */
} ct_schedule_info;
CT_API const ct_schedule_info *ct_schedule_find(const char *name); /* NULL: there is none of that name; no error */
CT_API const ct_schedule_info *ct_schedule_info_at(int i);         /* NULL past the end */
CT_API ct_schedule *ct_schedule_build(const ct_schedule_info *info, ct_optim *optim, const double *values,
                                      int64_t total_steps);

#ifdef __cplusplus
}
#endif

#include <cotangent/optim_options.h> /* ct_adamw(net, .lr = 1e-3) and so on, over the functions ending in _p */

#endif
