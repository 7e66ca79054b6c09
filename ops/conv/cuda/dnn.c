/* Convolutions by cuDNN's graph API: the kernels. Of the ways that there are for a problem (dnn/plan.h) the fastest is chosen by
 * measuring. Whatever cuDNN refuses or fails in goes to the tiles (conv.c), and the log says why. */
#include "ops/conv/cuda/dnn.h"

#include "ops/conv/cuda/conv.h"
#include "ops/conv/cuda/dnn/plan.h"
#include "ops/conv/cuda/single.h"

#include "gen/conv.attrs.h"

#ifndef CT_CUDA_DNN
#define WITHOUT(name)                                                                         \
    const char *name##_can(const ct_call *call) { return (void)call, ct_cuda_dnn_missing(); } \
    size_t name##_scratch(const ct_call *call) { return (void)call, (size_t)0; }              \
    bool name##_run(const ct_call *call, ct_stream *stream) { return (void)call, (void)stream, false; }
WITHOUT(ct_cuda_conv_dnn)
WITHOUT(ct_cuda_conv_input_grad_dnn)
WITHOUT(ct_cuda_conv_weight_grad_dnn)
CT_CUDA_KERNELS(conv_dnn) = {
    CT_CANDIDATES(conv_fused, {"single", ct_cuda_single_fused_can, NULL, ct_cuda_single_fused_run}),
    {0},
};
#else

#include <stdio.h>
#include <string.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/move.h"
#include "backends/cuda/tune.h"

#include "gen/reduce.attrs.h"

/* ---- Running a way ---- */

CT_CUDA_OVERLAPPING_UNIT(conv_dnn);
static ct_cuda_function finishes[] = {[CT_F32] = CT_CUDA_FUNCTION("finish_f32"),
                                      [CT_F64] = CT_CUDA_FUNCTION("finish_f64"),
                                      [CT_F16] = CT_CUDA_FUNCTION("finish_f16"),
                                      [CT_BF16] = CT_CUDA_FUNCTION("finish_bf16")};

/* out = activation(sum + bias + residual). sum may be of f32 where out is of a half type, and may be out. */
static bool finish(const ct_call *call, const ct_conv_problem *p, const ct_view *out, const ct_view *sum) {
    enum { OUT, SUM, ADDED, BIASES, PACK = 4 };
    ct_cuda_conv_finish a;
    memset(&a, 0, sizeof a);
    a.out = ct_cuda_address(out), a.sum = ct_cuda_address(sum);
    a.bias = p->bias ? ct_cuda_address(p->bias) : NULL;
    a.residual = p->has_residual ? ct_cuda_address(&p->views[CT_CONV_RESIDUAL]) : NULL;
    a.activation = p->activation;
    a.wide = sum->dtype != out->dtype;
    ct_cuda_view views[4] = {ct_cuda_view_of(out), ct_cuda_view_of(sum), ct_cuda_view_of(out), ct_cuda_view_of(out)};
    if (p->has_residual) views[ADDED] = ct_cuda_view_of(&p->views[CT_CONV_RESIDUAL]);
    for (int d = 0; d < out->ndim; d++) views[BIASES].strides[d] = d == 1 && p->bias ? p->bias->strides[0] : 0;
    /* in the order in which out lies */
    for (int i = 1; i < out->ndim; i++)
        for (int j = i; j > 0 && views[OUT].strides[j] > views[OUT].strides[j - 1]; j--)
            for (int v = 0; v < 4; v++) {
                const int64_t size = views[v].dims[j], stride = views[v].strides[j];
                views[v].dims[j] = views[v].dims[j - 1], views[v].strides[j] = views[v].strides[j - 1];
                views[v].dims[j - 1] = size, views[v].strides[j - 1] = stride;
            }
    a.nest = ct_cuda_nest_of(views, 4);
    const int inner = a.nest.ndim - 1;
    const size_t size = ct_cuda_dtype_size(out->dtype), wide = ct_cuda_dtype_size(sum->dtype);
    bool packed = a.nest.sizes[inner] % PACK == 0 && a.nest.strides[BIASES][inner] >= 0 &&
                  a.nest.strides[BIASES][inner] <= 1 && (uintptr_t)a.out % (PACK * size) == 0 &&
                  (uintptr_t)a.sum % (PACK * wide) == 0 && (!a.residual || (uintptr_t)a.residual % (PACK * size) == 0);
    for (int v = OUT; v <= ADDED; v++)
        for (int d = 0; d <= inner; d++)
            packed = packed && (d == inner ? a.nest.strides[v][d] == 1 : a.nest.strides[v][d] % PACK == 0);
    a.packed = packed;
    a.bias_along = a.nest.strides[BIASES][inner] == 1;
    const int64_t items = packed ? a.nest.total / PACK : a.nest.total;
    return ct_cuda_launch(call, &finishes[out->dtype],
                          (ct_cuda_shape){.grid = ct_cuda_blocks(call, items, 256), .block = 256}, &a);
}

static bool run_product(const ct_call *call, const ct_conv_problem *p, const ct_conv_key *k, size_t room, char *scratch,
                        cudnnStatus_t *status) {
    ct_cuda_blas_product product;
    bool refused = true;
    const bool ok = ct_conv_product(p, k, &product) && ct_cuda_blas_multiply(call, &product, scratch, room, &refused);
    *status = refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    return ok;
}

/* Enqueues all of it. *status says how cuDNN fared; false with a good status is an error that has been raised. */
static bool run_way(const ct_call *call, const ct_conv_problem *p, const ct_conv_plan *plan, const ct_conv_way *w,
                    cudnnHandle_t handle, char *scratch, cudnnStatus_t *status) {
    if (w->product) return run_product(call, p, &plan->key, w->need, scratch, status);
    if (w->own) return *status = CUDNN_STATUS_SUCCESS, ct_conv_own_run(call, p, scratch);
    const int out = ct_conv_output(p->kind);
    const bool wide = ct_conv_has_more(p) && !w->fused && ct_conv_is_half(p->views[CT_CONV_X].dtype);
    ct_conv_problem folded;
    if (w->folded) ct_conv_fold(p, &folded);
    int64_t ids[CT_CONV_OPERANDS + 1];
    void *pointers[CT_CONV_OPERANDS + 1];
    int n = 0;
    ct_view made = p->views[out];
    *status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < CT_CONV_OPERANDS; i++) {
        if (i == CT_CONV_RESIDUAL && !(p->has_residual && w->fused)) continue;
        ids[n] = CT_CONV_IDS + i;
        pointers[n] = ct_cuda_address(&p->views[i]);
        if (w->folded && (i == CT_CONV_X || i == CT_CONV_W)) {
            pointers[n] = scratch + w->room[i];
            if (i != out && !ct_conv_fold_run(call, p, &folded, i, pointers[n], false)) return false;
        } else if (w->room[i] != CT_CONV_IN_PLACE) {
            const ct_view copy = ct_conv_packed_at(&p->views[i], w->last, scratch + w->room[i]);
            pointers[n] = scratch + w->room[i];
            if (i == out) made = copy;
            else if (!ct_cuda_copy(call, &copy, &p->views[i])) return false;
        }
        n++;
    }
    if (p->bias && w->fused) ids[n] = CT_CONV_BIAS_ID, pointers[n++] = ct_cuda_address(p->bias);
    *status = ct_dnn_run(handle, &w->plan, n, ids, pointers, scratch + w->workspace);
    if (*status != CUDNN_STATUS_SUCCESS) return false;
    ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    if (!d || !ct_cuda_enqueued(d, ct_cuda_stream(d, call->stream), call->op->name)) return false;
    if (wide) made.dtype = CT_F32;
    if (ct_conv_has_more(p) && !w->fused) return finish(call, p, &p->views[out], &made);
    if (w->folded && out != CT_CONV_Y) return ct_conv_fold_run(call, p, &folded, out, scratch + w->room[out], true);
    return w->room[out] == CT_CONV_IN_PLACE || ct_cuda_copy(call, &p->views[out], &made);
}

/* ---- The choice ---- */

typedef struct trial {
    const ct_call *call;
    const ct_conv_problem *p;
    ct_conv_plan *plan;
    cudnnHandle_t handle;
    char *scratch;
    size_t room;
} trial;

static bool attempt(void *context, int i) {
    const trial *t = context;
    cudnnStatus_t status;
    return t->plan->ways[i].need <= t->room &&
           run_way(t->call, t->p, t->plan, &t->plan->ways[i], t->handle, t->scratch, &status);
}

static void log_choice(const ct_call *call, const ct_conv_plan *p) {
    const ct_conv_way *w = &p->ways[p->chosen];
    char line[256], what[64];
    if (w->product || w->own) snprintf(what, sizeof what, w->own ? "kernels of our own" : "a product");
    else
        snprintf(what, sizeof what, "engine %lld (notes %x, %x)", (long long)w->plan.engine, w->plan.notes,
                 w->plan.behavior);
    snprintf(line, sizeof line, "cudnn: %s: way %d of %d: %s, channels %s%s, %zu bytes of workspace, %zu of scratch",
             call->op->name, p->chosen, p->n, what, w->last ? "last" : "first",
             w->fused    ? ", all in one pass"
             : w->folded ? ", folded"
                         : "",
             w->plan.workspace, w->need);
    ct_cuda_host->log(line);
}

/* Measures at the first use, in memory of its own: what scratch is needed depends on the choice. */
static void choose(const ct_call *call, const ct_conv_problem *p, ct_conv_plan *made, cudnnHandle_t handle) {
    struct {
        ct_conv_key key;
        uint64_t ways; /* a list that has changed is another problem */
    } measured;
    memset(&measured, 0, sizeof measured);
    measured.key = made->key;
    measured.key.device = 0;
    trial t = {call, p, made, handle, NULL, 0};
    measured.ways = 1;
    for (int i = 0; i < made->n; i++) {
        const ct_conv_way *w = &made->ways[i];
        const uint64_t id[] = {measured.ways, (uint64_t)w->plan.engine, w->plan.knobs,
                               (uint64_t)w->own << 4 | (uint64_t)w->folded << 3 | (uint64_t)w->product << 2 |
                                   (uint64_t)w->last << 1 | w->fused};
        measured.ways = ct_conv_hash(id, sizeof id);
        if (w->need > t.room) t.room = w->need;
    }
    CUdeviceptr memory = 0;
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    if (made->n > 1 && ct_conv_measures() && d && !ct_cuda_is_capturing(ct_cuda_stream(d, call->stream))) {
        while (t.room && ct_cuda.cuMemAlloc_v2(&memory, t.room) != CUDA_SUCCESS)
            t.room = t.room < 4096 ? 0 : t.room / 4;
        t.scratch = (char *)(uintptr_t)memory;
        /* A product measures itself at its first use, which must not be inside of a measurement. */
        for (int i = 0; i < made->n; i++)
            if (made->ways[i].product) attempt(&t, i);
        char family[32];
        snprintf(family, sizeof family, "cudnn-%zu", ct_cuda_dnn_version());
        made->chosen = ct_cuda_tune(call, family, &measured, sizeof measured, made->n, attempt, &t);
        if (memory) ct_cuda.cuMemFree_v2(memory);
    } else {
        made->chosen = 0;
    }
    if (made->chosen < 0 || made->chosen >= made->n) made->chosen = 0;
    ct_conv_way *w = &made->ways[made->chosen];
    ct_cuda_blas_product product;
    if (w->product && ct_conv_product(p, &made->key, &product)) ct_cuda_blas_takes(call, &product, &w->need);
    log_choice(call, made);
}

/* ---- Kernels ---- */

/* *why: NULL, or why cuDNN cannot do it. */
static ct_conv_plan *begin(const ct_call *call, const ct_conv_problem *p, cudnnHandle_t *handle, CUcontext *before,
                           const char **why) {
    *why = "cuDNN does not start";
    ct_cuda_device *d = ct_cuda_enter(call->device.index, before);
    if (!d) return NULL;
    if (!(*handle = ct_cuda_dnn_begin(call, d))) {
        ct_cuda_leave(*before);
        return NULL;
    }
    ct_conv_plan *made = ct_conv_plan_for(call, p, *handle);
    *why = made ? made->n ? NULL : made->why : "out of memory";
    if (!*why) return made;
    ct_cuda_dnn_end();
    ct_cuda_leave(*before);
    return NULL;
}

static void end(CUcontext before) {
    ct_cuda_dnn_end();
    ct_cuda_leave(before);
}

static const char *can(const ct_call *call, const ct_conv_problem *p) {
    const char *why = ct_conv_refuses(p);
    CUcontext before;
    cudnnHandle_t handle;
    if (!why && begin(call, p, &handle, &before, &why)) end(before);
    return why;
}

static size_t scratch(const ct_call *call, const ct_conv_problem *p) {
    const char *why;
    CUcontext before;
    cudnnHandle_t handle;
    ct_conv_plan *made = begin(call, p, &handle, &before, &why);
    if (!made) return 0;
    if (made->chosen < 0) choose(call, p, made, handle);
    const size_t need = made->ways[made->chosen].need;
    end(before);
    return need;
}

/* *refused: cuDNN did not do it, and the log says why. */
static bool run(const ct_call *call, const ct_conv_problem *p, bool *refused) {
    const char *why;
    CUcontext before;
    cudnnHandle_t handle;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    bool ok = false;
    ct_conv_plan *made = begin(call, p, &handle, &before, &why);
    if (made) {
        if (made->chosen < 0)
            choose(call, p, made, handle); /* its operands are aligned otherwise than when scratch was asked for */
        const ct_conv_way *w = &made->ways[made->chosen];
        if (w->need > call->scratch.bytes) why = "operands that lie otherwise than before need more scratch";
        else ok = run_way(call, p, made, w, handle, ct_cuda_scratch(call), &status);
        if (status != CUDNN_STATUS_SUCCESS) why = ct_dnn_status(status);
        end(before);
    }
    *refused = why != NULL;
    if (why) {
        char line[256];
        snprintf(line, sizeof line, "cudnn: %s goes to the tiles: %s", call->op->name, why);
        ct_cuda_host->log(line);
    }
    return ok;
}

const char *ct_cuda_conv_dnn_can(const ct_call *call) {
    const char *missing = ct_cuda_dnn_missing();
    const ct_conv_problem p = ct_conv_forward_problem(call);
    return missing ? missing : can(call, &p);
}

size_t ct_cuda_conv_dnn_scratch(const ct_call *call) {
    const ct_conv_problem p = ct_conv_forward_problem(call);
    return scratch(call, &p);
}

bool ct_cuda_conv_dnn_run(const ct_call *call, ct_stream *stream) {
    const ct_conv_problem p = ct_conv_forward_problem(call);
    bool refused;
    const bool ok = run(call, &p, &refused);
    return refused ? ct_cuda_conv_tiles_run(call, stream) : ok;
}

const char *ct_cuda_conv_input_grad_dnn_can(const ct_call *call) {
    const char *missing = ct_cuda_dnn_missing();
    const ct_conv_problem p = ct_conv_input_grad_problem(call);
    return missing ? missing : can(call, &p);
}

size_t ct_cuda_conv_input_grad_dnn_scratch(const ct_call *call) {
    const ct_conv_problem p = ct_conv_input_grad_problem(call);
    return scratch(call, &p);
}

bool ct_cuda_conv_input_grad_dnn_run(const ct_call *call, ct_stream *stream) {
    const ct_conv_problem p = ct_conv_input_grad_problem(call);
    bool refused;
    const bool ok = run(call, &p, &refused);
    return refused ? ct_cuda_conv_input_grad_tiles_run(call, stream) : ok;
}

/* The sum of the result's gradient for the bias is that of the op sum: its call. */
typedef struct bias_sum {
    ct_call call;
    sum_attrs attrs;
    const ct_view *in[1];
    ct_view *out[1];
    const ct_kernel *kernel; /* NULL: it is not asked for */
} bias_sum;

static void bias_sum_of(const ct_call *call, bias_sum *s) {
    static _Atomic(const ct_op *) sum;
    const conv_weight_grad_attrs *a = call->attrs;
    memset(s, 0, sizeof *s);
    if (call->n_out < 2 || !call->out[1]) return;
    if (!sum) sum = ct_cuda_host->op_find(CT_OP_NAME_sum);
    const int channel = a->channels_last ? call->in[1]->ndim - 1 : 1;
    for (int d = 0; d < call->in[1]->ndim; d++)
        if (d != channel) s->attrs.axes.d[s->attrs.axes.n++] = d;
    s->call = *call;
    s->call.op = sum;
    s->call.attrs = &s->attrs;
    s->call.n_in = s->call.n_out = 1;
    s->in[0] = call->in[1], s->out[0] = call->out[1];
    s->call.in = s->in, s->call.out = s->out;
    s->kernel = ct_cuda_kernels_of(NULL, sum);
}

const char *ct_cuda_conv_weight_grad_dnn_can(const ct_call *call) {
    const char *missing = ct_cuda_dnn_missing();
    if (missing) return missing;
    if (!call->out[0]) return "the weight's gradient is not asked for";
    const ct_conv_problem p = ct_conv_weight_grad_problem(call);
    return can(call, &p);
}

size_t ct_cuda_conv_weight_grad_dnn_scratch(const ct_call *call) {
    const ct_conv_problem p = ct_conv_weight_grad_problem(call);
    const size_t tiles = ct_cuda_conv_weight_grad_tiles_scratch(call);
    size_t most = scratch(call, &p);
    bias_sum s;
    bias_sum_of(call, &s);
    if (s.kernel && s.kernel->scratch) {
        const size_t bytes = s.kernel->scratch(&s.call);
        if (bytes > most) most = bytes;
    }
    return tiles > most ? tiles : most;
}

bool ct_cuda_conv_weight_grad_dnn_run(const ct_call *call, ct_stream *stream) {
    const ct_conv_problem p = ct_conv_weight_grad_problem(call);
    bool refused;
    const bool ok = run(call, &p, &refused);
    if (refused) return ct_cuda_conv_weight_grad_tiles_run(call, stream);
    if (!ok) return false;
    bias_sum s;
    bias_sum_of(call, &s);
    return !s.kernel || s.kernel->run(&s.call, stream); /* in the same scratch, after it */
}

static const char *fused_can(const ct_call *call) {
    const char *missing = ct_cuda_dnn_missing();
    const ct_conv_problem p = ct_conv_fused_problem(call);
    const ct_view *w = &p.views[CT_CONV_W];
    if (p.rank == 2 && w->dims[1] == 1 && w->dims[0] > 1 && w->dims[0] == p.views[CT_CONV_X].dims[1])
        return "depthwise ones have kernels of their own, which are faster with all behind them apart";
    return missing ? missing : can(call, &p);
}

static size_t fused_scratch(const ct_call *call) {
    const ct_conv_problem p = ct_conv_fused_problem(call);
    return scratch(call, &p);
}

static bool fused_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const conv_fused_attrs *a = call->attrs;
    ct_conv_problem p = ct_conv_fused_problem(call);
    bool refused;
    const bool ok = run(call, &p, &refused);
    if (!refused) return ok;
    if (!ct_cuda_conv_forward(call, call->in[0], call->in[1], call->in[2], call->out[0], &a->strides, &a->dilations,
                              &a->pads, a->groups, a->channels_last))
        return false;
    p.bias = NULL;
    return finish(call, &p, &p.views[CT_CONV_Y], &p.views[CT_CONV_Y]);
}

CT_CUDA_KERNELS(conv_dnn) = {
    CT_CANDIDATES(conv_fused, {"single", ct_cuda_single_fused_can, NULL, ct_cuda_single_fused_run},
                  {"cudnn", fused_can, fused_scratch, fused_run}),
    {0},
};
#endif
