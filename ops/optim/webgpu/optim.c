/* The steps of the optimizers: a dispatch makes the numbers of the step and moves its clock on, others go over the items (once/list.c). */
#include <float.h>
#include <math.h>

#include "ops/optim/webgpu/list.h"

CT_WGPU_UNIT(optim_numbers);

typedef struct params {
    uint32_t rates_stride, clock_stride, gate_stride;
    float count;
    float growth, backoff, interval, most;
} params;

/* What numbers.wgsl has to know of an op, beside its kind. */
typedef struct flags {
    int rates;
    bool momentum, nesterov, rectified, decoupled;
} flags;

static uint32_t stride_of(const ct_view *view) { return view && view->ndim ? (uint32_t)view->strides[0] : 0; }

static bool run_numbers(const ct_call *call, const char *function, optim_kind kind, const flags *f,
                        const ct_view *rates, const ct_view *clock, const ct_view *gate, params *p) {
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, 1);
    const bool is_step = f->rates > 0;
    ct_wgpu_out(&l, "rates", rates);
    ct_wgpu_out(&l, "clock", clock);
    ct_wgpu_in(&l, "gate", gate);
    ct_wgpu_out(&l, "count", call->out[0]);
    if (is_step) ct_wgpu_scratch(&l, "numbers", call, CT_F32, 0, OPTIM_NUMBERS_BYTES, CT_WGPU_WRITTEN);
    else ct_wgpu_out(&l, "numbers", NULL);
    ct_wgpu_constant(&l, "KIND", kind);
    ct_wgpu_constant(&l, "RATES", (uint32_t)f->rates);
    ct_wgpu_constant(&l, "MOMENTUM", f->momentum);
    ct_wgpu_constant(&l, "NESTEROV", f->nesterov);
    ct_wgpu_constant(&l, "RECTIFIED", f->rectified);
    ct_wgpu_constant(&l, "DECOUPLED", f->decoupled);
    p->rates_stride = stride_of(rates), p->clock_stride = stride_of(clock), p->gate_stride = stride_of(gate);
    return ct_wgpu_enqueue(call, &l, 1, p, sizeof *p);
}

static bool run_step(optim_list *l, const flags *f) {
    const ct_call *call = l->call;
    params p = {.count = (float)l->items};
    l->scratch = true;
    l->nesterov = f->nesterov;
    return run_numbers(call, "step_numbers", l->kind, f, call->in[OPTIM_RATES_AT], call->in[OPTIM_CLOCK_AT],
                       call->in[OPTIM_GATE_AT], &p);
}

static size_t numbers_scratch(const ct_call *call) {
    (void)call;
    return OPTIM_NUMBERS_BYTES;
}

/* ---- Every element by itself ---- */

/* A step's list, from attributes that all of them have. */
#define LIST(name, NAME)                                                                            \
    const optim_##name##_attrs *a = call->attrs;                                                    \
    optim_list l = ct_wgpu_optim_list(call, OPTIM_##NAME, OPTIM_ITEMS_AT, optim_##name##_width(a)); \
    l.master = a->master;                                                                           \
    (void)stream

static bool run_each(optim_list *l, const flags *f) {
    l->function = "each";
    return run_step(l, f) && ct_wgpu_optim_run(l);
}

static bool sgd_run(const ct_call *call, ct_stream *stream) {
    LIST(sgd, SGD);
    return run_each(&l, &(flags){.rates = SGD_RATES, .momentum = a->momentum, .nesterov = a->nesterov});
}
static bool adam_run(const ct_call *call, ct_stream *stream) {
    LIST(adam, ADAM);
    return run_each(
        &l,
        &(flags){.rates = ADAM_RATES, .nesterov = a->nesterov, .rectified = a->rectified, .decoupled = a->decoupled});
}
static bool rmsprop_run(const ct_call *call, ct_stream *stream) {
    LIST(rmsprop, RMSPROP);
    l.centered = a->centered;
    return run_each(&l, &(flags){.rates = RMSPROP_RATES});
}
static bool adagrad_run(const ct_call *call, ct_stream *stream) {
    LIST(adagrad, ADAGRAD);
    return run_each(&l, &(flags){.rates = ADAGRAD_RATES});
}
static bool adadelta_run(const ct_call *call, ct_stream *stream) {
    LIST(adadelta, ADADELTA);
    return run_each(&l, &(flags){.rates = ADADELTA_RATES});
}
static bool lion_run(const ct_call *call, ct_stream *stream) {
    LIST(lion, LION);
    return run_each(&l, &(flags){.rates = LION_RATES});
}

/* ---- By the lengths of items: two passes ---- */

/* Every workgroup of the second pass sums the chunks of its item: fewer, larger ones. */
static void set_lengths(optim_list *l) {
    l->sums = 2;
    if (l->chunk > 1024) l->chunk = 1 << 14;
}

static bool run_lengths(optim_list *l, const flags *f) {
    set_lengths(l);
    l->function = "lengths";
    if (!run_step(l, f) || !ct_wgpu_optim_run(l)) return false;
    l->function = "by_lengths";
    return ct_wgpu_optim_run(l);
}

static bool lamb_run(const ct_call *call, ct_stream *stream) {
    LIST(lamb, LAMB);
    return run_lengths(&l, &(flags){.rates = LAMB_RATES});
}
static bool lars_run(const ct_call *call, ct_stream *stream) {
    LIST(lars, LARS);
    return run_lengths(&l, &(flags){.rates = LARS_RATES, .nesterov = a->nesterov});
}
static size_t lamb_scratch(const ct_call *call) {
    ct_stream *stream = NULL;
    LIST(lamb, LAMB);
    set_lengths(&l);
    return ct_wgpu_optim_scratch(&l);
}
static size_t lars_scratch(const ct_call *call) {
    ct_stream *stream = NULL;
    LIST(lars, LARS);
    set_lengths(&l);
    return ct_wgpu_optim_scratch(&l);
}

/* The second pass reads what the first has stored. */
static const char *lamb_can(const ct_call *call) {
    const optim_lamb_attrs *a = call->attrs;
    const int width = optim_lamb_width(a);
    for (int i = OPTIM_ITEMS_AT; i < call->n_in; i++)
        if ((i - OPTIM_ITEMS_AT) % width >= 2 + a->master && call->in[i]->dtype != CT_F32)
            return "the moments are not f32";
    return ct_wgpu_refuses(call);
}

/* ---- Without a clock: the first input, then the list ---- */

static optim_list plain_list(const ct_call *call, optim_kind kind, int width) {
    optim_list l = ct_wgpu_optim_list(call, kind, 1, width);
    l.rate = call->in[0];
    return l;
}

/* The number of items, for a call that wants it. */
static bool put_count(const optim_list *l) {
    params p = {.count = (float)l->items};
    return !l->call->out[0] || run_numbers(l->call, "put_count", l->kind, &(flags){0}, NULL, NULL, NULL, &p);
}

static bool average_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    optim_list l = plain_list(call, OPTIM_AVERAGE, 2);
    l.function = "each";
    return put_count(&l) && ct_wgpu_optim_run(&l);
}

static bool clip_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    optim_list l = plain_list(call, OPTIM_CLIP, 1);
    const double most = ((const optim_clip_attrs *)call->attrs)->max_norm;
    l.function = "each";
    l.number = most < FLT_MAX ? (float)most : FLT_MAX;
    return put_count(&l) && (isinf(most) || ct_wgpu_optim_run(&l));
}

static optim_list unscale_list(const ct_call *call) {
    optim_list l = plain_list(call, OPTIM_UNSCALE, 1);
    l.late = ((const optim_unscale_attrs *)call->attrs)->late;
    l.scratch = true;
    l.sums = 1;
    l.function = "sums_by_chunk";
    return l;
}
static size_t unscale_scratch(const ct_call *call) {
    const optim_list l = unscale_list(call);
    return ct_wgpu_optim_scratch(&l);
}
static bool unscale_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const optim_list l = unscale_list(call);
    return ct_wgpu_optim_run(&l) && (!call->out[0] || ct_wgpu_optim_finish(&l));
}

static optim_list norm_list(const ct_call *call) {
    const double kind = ((const optim_norm_attrs *)call->attrs)->kind;
    optim_list l = ct_wgpu_optim_list(call, kind == 2 ? OPTIM_NORM_2 : OPTIM_NORM_MOST, 0, 1);
    l.scratch = true;
    l.sums = 1;
    l.number = (float)kind;
    l.function = "sums_by_chunk";
    return l;
}
static size_t norm_scratch(const ct_call *call) {
    const optim_list l = norm_list(call);
    return ct_wgpu_optim_scratch(&l);
}

/* Powers are those of magnitudes over the largest, so that none is infinite. */
static bool norm_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    optim_list l = norm_list(call);
    if (!ct_wgpu_optim_run(&l) || !ct_wgpu_optim_finish(&l)) return false;
    if (l.kind == OPTIM_NORM_2 || isinf(l.number)) return true;
    l.kind = OPTIM_NORM_POWERS;
    return ct_wgpu_optim_run(&l) && ct_wgpu_optim_finish(&l);
}

/* ---- Single numbers: scale, good and clean, or gate and count ---- */

static bool rescale_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const optim_rescale_attrs *a = call->attrs;
    const ct_dtype dtype = call->in[0]->dtype;
    params p = {.count = 1,
                .growth = (float)a->growth,
                .backoff = (float)a->backoff,
                .interval = (float)a->interval,
                .most = dtype == CT_F16    ? 65504.0f
                        : dtype == CT_BF16 ? 0x1.fep127f
                                           : FLT_MAX};
    return run_numbers(call, "rescale", OPTIM_SGD, &(flags){0}, call->in[0], call->in[1], call->in[2], &p);
}

static bool left_out_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    params p = {.count = 1};
    return run_numbers(call, "left_out", OPTIM_SGD, &(flags){0}, NULL, call->in[1], call->in[0], &p);
}

#define LISTS(name, can, scratch) CT_CANDIDATES(optim_##name, {"optim_" #name "_list", can, scratch, name##_run})

CT_WGPU_KERNELS(optim_optim) = {
    LISTS(sgd, ct_wgpu_refuses, numbers_scratch),
    LISTS(adam, ct_wgpu_refuses, numbers_scratch),
    LISTS(rmsprop, ct_wgpu_refuses, numbers_scratch),
    LISTS(adagrad, ct_wgpu_refuses, numbers_scratch),
    LISTS(adadelta, ct_wgpu_refuses, numbers_scratch),
    LISTS(lion, ct_wgpu_refuses, numbers_scratch),
    LISTS(lamb, lamb_can, lamb_scratch),
    LISTS(lars, ct_wgpu_refuses, lars_scratch),
    LISTS(average, ct_wgpu_refuses, NULL),
    LISTS(unscale, ct_wgpu_refuses, unscale_scratch),
    LISTS(clip, ct_wgpu_refuses, NULL),
    LISTS(norm, ct_wgpu_refuses, norm_scratch),
    LISTS(rescale, ct_wgpu_refuses, NULL),
    LISTS(left_out, ct_wgpu_refuses, NULL),
    {0},
};
