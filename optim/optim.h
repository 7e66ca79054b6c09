/* What the files of optim/ share: the optimizer itself, and the description of a kind. */
#ifndef COTANGENT_OPTIM_OPTIM_H
#define COTANGENT_OPTIM_OPTIM_H

#include <cotangent/capture.h>
#include <cotangent/op.h>
#include <cotangent/optim.h>
#include <string.h>

#include "support/options.h"

enum { OPTIM_SETTINGS = 10, OPTIM_STATES = 3, OPTIM_RATES = 9 };

/* What a setting may be. */
typedef enum optim_range {
    RANGE_ANY,
    RANGE_ABOVE_0,
    RANGE_FROM_0,
    RANGE_0_TO_1, /* 1 excluded */
    RANGE_FLAG,
    RANGE_COUNT, /* a whole number above 0 */
    RANGE_COUNT_OR_0,
} optim_range;

typedef struct optim_param {
    const ct_parameter *source; /* NULL: a tensor by itself */
    char *name;
    ct_tensor *x;                          /* kept */
    ct_tensor *master;                     /* the copy in f32 of a half type, or NULL; kept */
    ct_tensor *state[OPTIM_STATES], *slow; /* kept; slow: of Lookahead */
    int states, group;
    int clock; /* among the optimizer's; -1: it has made no step */
    bool half;
    ct_tensor *grad; /* borrowed, during a step; NULL: not in it */
    /* Of whose elements one run is learned here, and others by other processes; parts is 0: all of them are. Masters
     * and states are as large as what optim_part gives. */
    ct_division division;
    bool stepped; /* in the last step */
} optim_param;

/* The steps that parameters have made together, on their device, where a step that the loss scaler shuts does not count. Those of
 * one clock have always stepped in one call. */
typedef struct optim_clock {
    ct_tensor *x; /* kept: the number of steps, and what the kind remembers besides (ops/optim) */
    int users;    /* parameters; 0: free */
} optim_clock;

typedef struct optim_group {
    double initial_lr;
    double s[OPTIM_SETTINGS];
    ct_tensor *rates; /* its row of the optimizer's; kept */
} optim_group;

/* One call of a step's op. */
typedef struct optim_call {
    ct_tensor *rates, *clock, *gate, **items;
    int n;
    bool master;
} optim_call;

/* A kind of optimizer. lr is its first setting. */
typedef struct optim_kind {
    ct_optim_info info;
    const optim_range *ranges; /* of the settings */
    const char *states[OPTIM_STATES];
    int (*state_count)(const double *s);                   /* how many of them it needs with these settings */
    bool (*check)(const double *s);                        /* that settings go together; NULL: they always do */
    bool (*step)(const double *s, const optim_call *call); /* by its op; NULL: it evaluates the loss itself */
    int (*rates)(const double *s, double *a); /* for the op, but for the sign, which goes before them; how many */
    bool by_tensor;   /* an element's step depends on the others of its tensor, which has to be whole */
    bool has_product; /* the clock remembers a product that goes into the state; else whether there were states */
} optim_kind;

typedef struct lbfgs lbfgs;

struct ct_optim {
    const optim_kind *kind;
    ct_optim *inner;         /* of Lookahead, which has nothing else but alpha and k; owned */
    double alpha, sent_keep; /* sent_keep: what its rates hold */
    int64_t k;
    ct_parameters *list; /* holds the network; NULL: none */
    optim_param *params;
    optim_group *groups;
    int count, capacity, group_count;
    int momentum, weight_decay, maximize; /* where these are among the settings; -1: nowhere */
    optim_clock *clocks;
    int clock_count;
    ct_tensor *rates, *gate; /* (groups, rates) as last brought over; a gate that is open; kept */
    double *sent;            /* what was brought over */
    int rate_count;          /* of a group */
    ct_tensor *shut;         /* the steps that a gate left out; NULL: none had a gate; kept */
    ct_tensor **items;       /* room for the list of one call */
    int64_t steps;           /* those that a gate left out among them */
    bool keep_grad, reuse_grad;
    int64_t version;       /* of the tensors that a captured step uses: counts up when some are replaced */
    ct_tensor *given_gate; /* of the next step, by the loss scaler; borrowed */
    lbfgs *history;
};

/* The optimizer whose parameters and groups these are: the one inside Lookahead. */
static inline ct_optim *optim_base(const ct_optim *optim) {
    while (optim->inner) optim = optim->inner;
    return (ct_optim *)optim;
}

/* A pending error is put aside, so that something can be put right in spite of it, and then raised again. */
typedef struct optim_error {
    ct_code code;
    char op[64], text[1024];
} optim_error;
void optim_error_take(optim_error *error);
void optim_error_put(const optim_error *error);

bool optim_given(const void *object, const char *function,
                 const char *argument); /* no error is pending, and it is there */
ct_optim *optim_new(const optim_kind *kind, ct_module *net, const double *values); /* values: checked */
bool optim_check_value(const char *function, const ct_setting *setting, optim_range range, double value);
int optim_setting(const optim_kind *kind, const char *name); /* -1: it has none of that name */
/* False, with an error: its network has other tensors than when it was made. */
bool optim_is_current(const ct_optim *optim, const char *function);
bool optim_collect(ct_optim *optim, const char *function); /* finds the gradients; parameters that moved are an error */
bool optim_forget(ct_optim *optim);                        /* the gradients, unless they are to be kept */
bool optim_half(ct_dtype dtype);
/* a becomes keep a + (1 - keep) x for n / 2 pairs a, x. *rates holds the numbers, on the device, and is made at first; *sent is the
 * keep that it holds. */
bool optim_average(ct_tensor **rates, double *sent, double keep, ct_tensor *const *items, int n);
/* What is learned here of x, the parameter or its gradient: x itself, or a flat view of a run of its elements, in the
 * current scope. NULL after an error. */
ct_tensor *optim_part(const optim_param *p, ct_tensor *x);
/* Brings what other processes have learned: of the parameters in the last step, or of all that are divided. */
bool optim_gather(ct_optim *optim, bool all);
/* A gradient that can be changed in place: grad itself, or a copy that takes its place. NULL after an error. */
ct_tensor *optim_own_grad(ct_tensor *leaf, ct_tensor *grad);
/* Numbers of a step, all of them value, where the parameters are (numbers.c); and what the host has to say of them. */
ct_tensor *optim_numbers(ct_dims shape, double value, ct_device device);
bool optim_put_numbers(ct_tensor *x, const double *values);
bool optim_get_clock(ct_tensor *clock, double *steps, double *remembered); /* waits for them */
bool optim_new_clock(ct_optim *optim, double steps, double remembered, ct_device device, int *clock);
void optim_set_clock(ct_optim *optim, optim_param *p, int clock); /* -1: none */

extern const optim_kind *const optim_kinds[]; /* ended by NULL */
extern const optim_kind optim_lookahead;

double optim_lbfgs_step(ct_optim *optim, ct_loss_fn fn, void *context);
void optim_lbfgs_free(lbfgs *history);
bool optim_lbfgs_put(ct_optim *optim, ct_state *state, const char *prefix);
bool optim_lbfgs_take(const ct_optim *optim, const ct_state *state, const char *prefix, lbfgs **taken);
bool optim_lookahead_step(ct_optim *optim);

/* A name made of parts, in room of its own; NULL, with an error, without memory. Free it. */
char *optim_name(const char *function, const char *prefix, const char *name, const char *suffix);
/* A tensor of a state that has to be there with this shape and dtype, copied and kept; NULL after an error. */
ct_tensor *optim_take_tensor(const char *function, const ct_state *state, const char *name, const ct_tensor *like,
                             ct_dtype dtype);

#endif
