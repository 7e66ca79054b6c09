/* The numbers of a step (numbers.h) for kernels whose memory the host sees. */
#include "ops/optim/numbers.h"

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

static bool take(const ct_call *call, int rates, optim_inputs *in) {
    const ct_view *gate = call->in[OPTIM_GATE_AT], *clock = call->in[OPTIM_CLOCK_AT];
    if (ct__optim_number(gate, 1) == 0) return false;
    for (int i = 0; i < rates; i++) in->rate[i] = ct__optim_number(call->in[OPTIM_RATES_AT], i);
    in->t = ct__optim_number(clock, 0) + 1;
    in->remembered = ct__optim_number(clock, 1);
    in->scale = in->rate[RATE_SIGN] * ct__optim_number(gate, 0);
    return true;
}

static void go_on(const ct_call *call, const optim_inputs *in) {
    ct__optim_put_number(call->in[OPTIM_CLOCK_AT], 0, in->t);
    ct__optim_put_number(call->in[OPTIM_CLOCK_AT], 1, in->remembered);
}

#define NUMBERS(name, RATES)                                                  \
    bool ct__optim_##name##_numbers(const ct_call *call, name##_numbers *n) { \
        optim_inputs in;                                                      \
        if (!take(call, RATES, &in)) return false;                            \
        *n = optim_##name##_numbers(call->attrs, &in);                        \
        go_on(call, &in);                                                     \
        return true;                                                          \
    }
NUMBERS(sgd, SGD_RATES)
NUMBERS(adam, ADAM_RATES)
NUMBERS(rmsprop, RMSPROP_RATES)
NUMBERS(adagrad, ADAGRAD_RATES)
NUMBERS(adadelta, ADADELTA_RATES)
NUMBERS(lion, LION_RATES)
NUMBERS(lamb, LAMB_RATES)
NUMBERS(lars, LARS_RATES)
