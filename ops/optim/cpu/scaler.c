/* What a loss scaler keeps on the device: single numbers. */
#include "backends/cpu/kernel.h"
#include "ops/optim/numbers.h"

static bool put_one(const ct_call *call) {
    if (call->out[0]) *CT_AT(float, call->out[0]) = 1;
    return true;
}

static bool rescale_run(const ct_call *call, ct_stream *stream) {
    double scale = ct__optim_number(call->in[0], 0), good = ct__optim_number(call->in[1], 0);
    (void)stream;
    optim_rescale(call->attrs, optim_most(call->in[0]->dtype), ct__optim_number(call->in[2], 0), &scale, &good);
    ct__optim_put_number(call->in[0], 0, scale);
    ct__optim_put_number(call->in[1], 0, good);
    return put_one(call);
}

static bool left_out_run(const ct_call *call, ct_stream *stream) {
    const ct_view *count = call->in[1];
    (void)stream;
    if (ct__optim_number(call->in[0], 1) == 0) ct__optim_put_number(count, 0, ct__optim_number(count, 0) + 1);
    return put_one(call);
}

CT_KERNELS(optim_scaler) = {
    CT_CANDIDATES(optim_rescale, {"optim_rescale_numbers", NULL, NULL, rescale_run}),
    CT_CANDIDATES(optim_left_out, {"optim_left_out_numbers", NULL, NULL, left_out_run}),
    {0},
};
