/* The settings of every kind of optimizer, in one list each: options, tables, checks and places are made of it. */
#ifndef COTANGENT_OPTIM_SETTINGS_H
#define COTANGENT_OPTIM_SETTINGS_H

/* S(k, name, how it is given, default, range, doc): number and count: 0 is the default; opt: a ct_opt; flag: a bool. */
#define LR(S, k, value)    S(k, lr, number, value, RANGE_ABOVE_0, "learning rate")
#define DECAY(S, k, value) S(k, weight_decay, opt, value, RANGE_FROM_0, "weight decay")
#define MAXIMIZE(S, k)     S(k, maximize, flag, 0, RANGE_FLAG, "climb instead of descend")
#define BETAS(S, k, second)                                                           \
    S(k, beta1, opt, 0.9, RANGE_0_TO_1, "how much of the average of gradients stays") \
    S(k, beta2, opt, second, RANGE_0_TO_1, "how much of the average of squares stays")
#define EPS(S, k, value)      S(k, eps, number, value, RANGE_ABOVE_0, "added to the divisor")
#define MOMENTUM(S, k, value) S(k, momentum, opt, value, RANGE_FROM_0, "how much of the last step stays")
#define NESTEROV(S, k)        S(k, nesterov, flag, 0, RANGE_FLAG, "look ahead along the momentum")
#define AMSGRAD(S, k)         S(k, amsgrad, flag, 0, RANGE_FLAG, "divide by the largest average of squares so far")
#define DECOUPLED(S, k)       S(k, decoupled_weight_decay, flag, 0, RANGE_FLAG, "decay apart from the gradient")

#define SGD(S, k)                                                                       \
    LR(S, k, 1e-3)                                                                      \
    MOMENTUM(S, k, 0)                                                                   \
    S(k, dampening, opt, 0, RANGE_ANY, "part of the gradient kept out of the momentum") \
    NESTEROV(S, k) DECAY(S, k, 0) MAXIMIZE(S, k)
#define ADAM(S, k)  LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-8) DECAY(S, k, 0) AMSGRAD(S, k) MAXIMIZE(S, k)
#define ADAMW(S, k) LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-8) DECAY(S, k, 1e-2) AMSGRAD(S, k) MAXIMIZE(S, k)
#define RADAM(S, k) LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-8) DECAY(S, k, 0) DECOUPLED(S, k) MAXIMIZE(S, k)
#define NADAM(S, k)    \
    LR(S, k, 2e-3)     \
    BETAS(S, k, 0.999) \
    EPS(S, k, 1e-8)    \
    DECAY(S, k, 0)     \
    S(k, momentum_decay, opt, 4e-3, RANGE_FROM_0, "how fast the momentum grows to beta1") DECOUPLED(S, k) MAXIMIZE(S, k)
#define RMSPROP(S, k)                                                                \
    LR(S, k, 1e-2)                                                                   \
    S(k, alpha, opt, 0.99, RANGE_0_TO_1, "how much of the average of squares stays") \
    EPS(S, k, 1e-8)                                                                  \
    MOMENTUM(S, k, 0)                                                                \
    DECAY(S, k, 0) S(k, centered, flag, 0, RANGE_FLAG, "divide by the deviation from the average") MAXIMIZE(S, k)
#define ADAGRAD(S, k)                                                                            \
    LR(S, k, 1e-2)                                                                               \
    S(k, lr_decay, opt, 0, RANGE_FROM_0, "how fast the learning rate falls")                     \
    S(k, initial_accumulator_value, opt, 0, RANGE_FROM_0, "what the sum of squares begins with") \
    EPS(S, k, 1e-10) DECAY(S, k, 0) MAXIMIZE(S, k)
#define ADADELTA(S, k) \
    LR(S, k, 1)        \
    S(k, rho, opt, 0.9, RANGE_0_TO_1, "how much of the averages stays") EPS(S, k, 1e-6) DECAY(S, k, 0) MAXIMIZE(S, k)
#define LAMB(S, k) LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-6) DECAY(S, k, 1e-2) MAXIMIZE(S, k)
#define LARS(S, k)                                                                         \
    LR(S, k, 0.1)                                                                          \
    MOMENTUM(S, k, 0.9)                                                                    \
    DECAY(S, k, 1e-4)                                                                      \
    S(k, trust, number, 1e-3, RANGE_ABOVE_0, "length of a step as a part of the weights'") \
    EPS(S, k, 1e-8) NESTEROV(S, k) MAXIMIZE(S, k)
#define LION(S, k) LR(S, k, 1e-4) BETAS(S, k, 0.99) DECAY(S, k, 0) MAXIMIZE(S, k)
#define LBFGS(S, k)                                                                        \
    LR(S, k, 1)                                                                            \
    S(k, max_iter, number, 20, RANGE_COUNT, "iterations per step")                         \
    S(k, max_eval, number, 0, RANGE_COUNT_OR_0, "evaluations a step; 0: max_iter * 5 / 4") \
    S(k, tolerance_grad, opt, 1e-7, RANGE_FROM_0, "done when no gradient is larger")       \
    S(k, tolerance_change, opt, 1e-9, RANGE_FROM_0, "done when nothing changes by more")   \
    S(k, history_size, number, 100, RANGE_COUNT, "how many steps are remembered")          \
    S(k, strong_wolfe, flag, 0, RANGE_FLAG, "search along the line by the strong Wolfe conditions")

/* Where the settings of a kind are: sgd_lr and so on. */
#define PLACE(k, name, how, value, range, doc) k##_##name,
#define PLACES(k, LIST)                        enum { LIST(PLACE, k) k##_setting_count };

#endif
