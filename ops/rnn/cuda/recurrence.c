/* The recurrence on CUDA: one launch for all steps where a block per 16 hidden units has room for the weights in registers, else step by
 * step. */
#include "ops/rnn/cuda/recurrence.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/tune.h"
#include "ops/rnn/cells.h"
#include "ops/rnn/cuda/steps/steps.h"

#include "gen/rnn.attrs.h"

extern const unsigned char ct_fatbin_rnn_recurrence[], ct_fatbin_rnn_recurrence_grad[];
static ct_cuda_unit forward_unit = CT_CUDA_UNIT_FROM("rnn_recurrence", ct_fatbin_rnn_recurrence, false);
static ct_cuda_unit backward_unit = CT_CUDA_UNIT_FROM("rnn_recurrence_grad", ct_fatbin_rnn_recurrence_grad, false);

enum { MOST_UNITS = 512, FEW_UNITS = 128 };

/* By gates (1, 3, 4); few or many hidden units. */
#define OF_GATES(unit, name)                                                                      \
    {                                                                                             \
        {CT_CUDA_FUNCTION_OF(&unit, name "_1_2"), CT_CUDA_FUNCTION_OF(&unit, name "_1_8")},       \
            {CT_CUDA_FUNCTION_OF(&unit, name "_3_2"), CT_CUDA_FUNCTION_OF(&unit, name "_3_8")}, { \
            CT_CUDA_FUNCTION_OF(&unit, name "_4_2"), CT_CUDA_FUNCTION_OF(&unit, name "_4_8")      \
        }                                                                                         \
    }
static ct_cuda_function forward_functions[3][2] = OF_GATES(forward_unit, "recurrence");
static ct_cuda_function backward_functions[3][2] = OF_GATES(backward_unit, "recurrence_grad");

/* ---- The problem ---- */

static ct_cuda_series series_of(const ct_view *x) {
    ct_cuda_series s = {0};
    if (!x || ct_cuda_count(x) == 0) return s;
    s.data = ct_cuda_address(x);
    for (int i = 0; i < x->ndim && i < 3; i++) s.strides[i] = x->strides[i];
    return s;
}

static void set_lengths(ct_cuda_recurrence *p, const ct_view *lengths, int argument) {
    p->lengths_argument = argument;
    if (!lengths) return;
    p->lengths = ct_cuda_address(lengths);
    p->lengths_stride = lengths->strides[0];
    p->lengths_wide = lengths->dtype == CT_I64;
}

/* y is (T,N,H). */
static void set_sizes(ct_cuda_recurrence *p, const ct_view *y, int cell, bool reverse) {
    p->cell = cell, p->reverse = reverse;
    p->steps = (int32_t)y->dims[0], p->n = (int32_t)y->dims[1], p->h = (int32_t)y->dims[2];
    p->blocks = (p->h + CT_RNN_UNITS - 1) / CT_RNN_UNITS;
    p->groups = (p->n + CT_RNN_ROWS - 1) / CT_RNN_ROWS;
}

static ct_cuda_recurrence forward_problem(const ct_call *call) {
    const recurrence_attrs *a = call->attrs;
    ct_cuda_recurrence p;
    memset(&p, 0, sizeof p);
    set_sizes(&p, call->out[0], a->cell, a->reverse);
    set_lengths(&p, call->in[5], 5);
    p.gx = series_of(call->in[0]), p.w = series_of(call->in[1]), p.b_hh = series_of(call->in[2]);
    p.h0 = series_of(call->in[3]), p.c0 = series_of(call->in[4]);
    ct_cuda_series *const outputs[] = {&p.y, &p.h_n, &p.c_n, &p.states};
    for (int i = 0; i < call->n_out; i++) *outputs[i] = series_of(call->out[i]);
    return p;
}

static ct_cuda_recurrence backward_problem(const ct_call *call) {
    const recurrence_grad_attrs *a = call->attrs;
    ct_cuda_recurrence p;
    memset(&p, 0, sizeof p);
    set_sizes(&p, call->in[4], a->cell, a->reverse);
    set_lengths(&p, call->in[3], 3);
    p.w = series_of(call->in[0]), p.h0 = series_of(call->in[1]), p.c0 = series_of(call->in[2]);
    p.y = series_of(call->in[4]), p.states = series_of(call->in[5]);
    p.gy = series_of(call->in[6]), p.gh_n = series_of(call->in[7]), p.gc_n = series_of(call->in[8]);
    ct_cuda_series *const outputs[] = {&p.dgx, &p.dgh, &p.dh0, &p.dc0};
    for (int i = 0; i < call->n_out; i++) *outputs[i] = series_of(call->out[i]);
    return p;
}

/* ---- Where it runs ---- */

static int multiprocessors(const ct_call *call) {
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    return d ? d->multiprocessors : 0;
}

/* Groups of sequences whose blocks run at one time, one per multiprocessor. */
static int64_t together(const ct_call *call, const ct_cuda_recurrence *p) {
    const int64_t most = p->blocks ? multiprocessors(call) / p->blocks : 0;
    return p->groups < most ? p->groups : most;
}

static size_t counter_bytes(int64_t groups) { return (size_t)groups * CT_RNN_LINE * sizeof(uint32_t); }

static const char *refuses(const ct_call *call, const ct_view *y) {
    if (y->dtype != CT_F32) return "it is not of f32";
    if (call->flags & CT_CALL_LASTING) return "it could not stop for an error";
    if (y->dims[2] > MOST_UNITS) return "it has too many hidden units for registers";
    if (y->dims[0] >= INT32_MAX || y->dims[1] >= INT32_MAX - CT_RNN_ROWS) return "it is too long";
    return (y->dims[2] + CT_RNN_UNITS - 1) / CT_RNN_UNITS <= multiprocessors(call)
               ? NULL
               : "the device has too few multiprocessors";
}

/* Scratch: the counters, then the exchange. */
static bool launch(const ct_call *call, ct_cuda_function (*functions)[2], ct_cuda_recurrence *p, unsigned shared) {
    if (p->blocks == 0 || p->groups == 0) return true;
    const int64_t groups = together(call, p);
    const int64_t gates = ct__cell_gates(p->cell);
    p->counters = (uint32_t *)(void *)ct_cuda_scratch(call);
    p->exchange = (float *)(void *)(ct_cuda_scratch(call) + counter_bytes(groups));
    p->fast = ct_cuda_tf32(call);
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(call->device.index, &before);
    if (!d) return false;
    const bool cleared =
        ct_cuda_ok(d,
                   ct_cuda.cuMemsetD32Async((CUdeviceptr)(uintptr_t)p->counters, 0, (size_t)groups * CT_RNN_LINE,
                                            ct_cuda_stream(d, call->stream)),
                   call->op->name, "its counters cannot be cleared");
    ct_cuda_leave(before);
    ct_cuda_function *function = &functions[gates == 1 ? 0 : gates - 2][p->h > FEW_UNITS];
    return cleared && ct_cuda_launch(call, function,
                                     (ct_cuda_shape){.grid = (unsigned)(groups * p->blocks),
                                                     .block = CT_RNN_THREADS,
                                                     .shared = shared,
                                                     .cooperative = true},
                                     p);
}

/* ---- Forward ---- */

static const char *forward_can(const ct_call *call) {
    return call->out[0] ? refuses(call, call->out[0]) : "y is not wanted";
}

static size_t forward_scratch(const ct_call *call) {
    const ct_cuda_recurrence p = forward_problem(call);
    const int64_t groups = together(call, &p);
    return counter_bytes(groups) + (size_t)(groups * 2 * CT_RNN_ROWS * p.blocks * CT_RNN_UNITS) * sizeof(float);
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_recurrence p = forward_problem(call);
    /* the state of 16 sequences, and the sums of all warps, as the kernel lays them out */
    const int64_t columns = ct__cell_gates(p.cell) * CT_RNN_UNITS + 8,
                  row = (p.h > FEW_UNITS ? MOST_UNITS : FEW_UNITS) + 8;
    return launch(call, forward_functions, &p,
                  (unsigned)(CT_RNN_ROWS * (row + CT_RNN_WARPS * columns)) * (unsigned)sizeof(float));
}

/* ---- Backward ---- */

static const char *backward_can(const ct_call *call) {
    if (call->in[9]) return "states have a cotangent of their own";
    return call->out[0] ? refuses(call, call->in[4]) : "dgx is not wanted";
}

static size_t backward_scratch(const ct_call *call) {
    const ct_cuda_recurrence p = backward_problem(call);
    const int64_t groups = together(call, &p);
    return counter_bytes(groups) + (size_t)(groups * 2 * p.blocks * p.blocks * CT_RNN_THREADS) * sizeof(float);
}

static bool backward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_recurrence p = backward_problem(call);
    const int64_t columns = ct__cell_gates(p.cell) * CT_RNN_UNITS + 8;
    return launch(call, backward_functions, &p, (unsigned)(CT_RNN_ROWS * columns) * (unsigned)sizeof(float));
}

/* ---- Step by step ---- */

static const char *steps_refuse(const ct_view *y) {
    const bool fits = y->dims[0] < INT32_MAX && y->dims[1] < INT32_MAX && y->dims[2] < INT32_MAX / 8;
    if (y->dtype != CT_F32 && y->dtype != CT_F64) return "a half type";
    return fits ? NULL : "it is too long";
}
static const char *steps_forward_can(const ct_call *call) {
    return call->out[0] ? steps_refuse(call->out[0]) : "y is not wanted";
}
static const char *steps_backward_can(const ct_call *call) {
    if (call->in[9]) return "states have a cotangent of their own";
    return call->out[0] ? steps_refuse(call->in[4]) : "dgx is not wanted";
}
static size_t steps_forward_scratch(const ct_call *call) {
    const ct_cuda_recurrence p = forward_problem(call);
    return ct_rnn_forward_scratch(call, &p, call->in[0]->dtype);
}
static size_t steps_backward_scratch(const ct_call *call) {
    const ct_cuda_recurrence p = backward_problem(call);
    return ct_rnn_backward_scratch(call, &p, call->in[0]->dtype);
}
static bool steps_forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_cuda_recurrence p = forward_problem(call);
    return ct_rnn_forward_run(call, &p, call->in[0]->dtype);
}
static bool steps_backward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_cuda_recurrence p = backward_problem(call);
    return ct_rnn_backward_run(call, &p, call->in[0]->dtype);
}

CT_CUDA_KERNELS(rnn_recurrence) = {
    CT_CANDIDATES(recurrence, {"persistent", forward_can, forward_scratch, forward_run},
                  {"steps", steps_forward_can, steps_forward_scratch, steps_forward_run}),
    CT_CANDIDATES(recurrence_grad, {"persistent_grad", backward_can, backward_scratch, backward_run},
                  {"steps_grad", steps_backward_can, steps_backward_scratch, steps_backward_run}),
    {0},
};
