/* Convolutions by cuDNN's graph API.
 *
 * A problem is what a call asks for, in cuDNN's order of axes: images [N,C,...], filters [K,C,...], with two or three spatial axes. cuDNN has
 * engines for two packed layouts, channels last (NHWC with filters KRSC, where Tensor Cores are fast) and channels first (NCHW, KCRS). An
 * operand that lies so and is aligned is used in place; another one, as the filter [kh,kw,C,K] of channels last, goes through a packed copy
 * in scratch.
 *
 * For a problem there are several ways: a layout, whether bias, residual and activation are in the same pass, and an engine. They are found
 * at the first call with such sizes and kept; the fastest is chosen by measuring (backends/cuda/tune.h). Whatever cuDNN refuses or fails in
 * goes to the tiles (conv.c), and the log says why. */
#include "ops/conv/cuda/dnn.h"

#include "backends/cuda/cuda.h"
#include "backends/cuda/dnn.h"
#include "ops/conv/cuda/conv.h"

#include "gen/conv.attrs.h"

#ifndef CT_CUDA_DNN
#define WITHOUT(name)                                                                         \
    const char *name##_can(const ct_call *call) { return (void)call, ct_cuda_dnn_missing(); } \
    size_t name##_scratch(const ct_call *call) { return (void)call, (size_t)0; }              \
    bool name##_run(const ct_call *call, ct_stream *stream) { return (void)call, (void)stream, false; }
WITHOUT(ct_cuda_conv_dnn)
WITHOUT(ct_cuda_conv_input_grad_dnn)
WITHOUT(ct_cuda_conv_weight_grad_dnn)
CT_CUDA_KERNELS(conv_dnn) = {{0}};
#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/move.h"
#include "backends/cuda/tune.h"

#include "gen/reduce.attrs.h"

/* ---- Problems ---- */

enum { X, W, Y, RESIDUAL, OPERANDS };
enum { FORWARD, INPUT_GRAD, WEIGHT_GRAD };
enum { AXES = 5, IDS = 1, BIAS_ID = IDS + OPERANDS, VIRTUAL_IDS = 100 };

typedef struct problem {
    int kind, rank; /* spatial axes: 2 or 3 */
    ct_view views[OPERANDS];
    bool has_residual, exact;
    const ct_view *bias;
    int activation;
    int64_t stride[3], dilation[3], before[3], after[3];
} problem;

static int output_of(int kind) { return kind == FORWARD ? Y : kind == INPUT_GRAD ? X : W; }

/* A view in cuDNN's order of axes; one spatial axis gets another of size 1 before it. */
static ct_view in_order(const ct_view *view, int outer, int inner, int spatial) {
    ct_view v = *view;
    const int rank = view->ndim - 2, first = rank == 1 ? 3 : 2;
    v.ndim = first + rank;
    v.dims[2] = v.strides[2] = 1;
    v.dims[0] = view->dims[outer], v.strides[0] = view->strides[outer];
    v.dims[1] = view->dims[inner], v.strides[1] = view->strides[inner];
    for (int i = 0; i < rank; i++) {
        v.dims[first + i] = view->dims[spatial + i];
        v.strides[first + i] = view->strides[spatial + i];
    }
    return v;
}
static ct_view image(const ct_view *view, bool last) {
    return in_order(view, 0, last ? view->ndim - 1 : 1, last ? 1 : 2);
}
static ct_view filter(const ct_view *view, bool last) {
    return last ? in_order(view, view->ndim - 1, view->ndim - 2, 0) : in_order(view, 0, 1, 2);
}

static problem problem_of(int kind, const ct_view *x, const ct_view *w, const ct_view *y, bool last,
                          const ct_dims *strides, const ct_dims *dilations, const ct_dims *pads) {
    problem p;
    memset(&p, 0, sizeof p);
    p.kind = kind;
    p.views[X] = image(x, last), p.views[W] = filter(w, last), p.views[Y] = image(y, last);
    p.rank = p.views[X].ndim - 2;
    const int rank = x->ndim - 2, added = p.rank - rank;
    for (int d = 0; d < p.rank; d++) {
        const int i = d - added;
        p.stride[d] = i < 0 ? 1 : ct_cuda_conv_listed(strides, i, 1);
        p.dilation[d] = i < 0 ? 1 : ct_cuda_conv_listed(dilations, i, 1);
        if (p.views[W].dims[2 + d] == 1) p.dilation[d] = 1; /* of one tap it says nothing */
        if (i < 0) continue;
        const bool both = pads->n == 2 * rank;
        p.before[d] = both ? pads->d[2 * i] : ct_cuda_conv_listed(pads, i, 0);
        p.after[d] = both ? pads->d[2 * i + 1] : ct_cuda_conv_listed(pads, i, 0);
    }
    return p;
}

static problem forward_problem(const ct_call *call) {
    const conv_attrs *a = call->attrs;
    problem p = problem_of(FORWARD, call->in[0], call->in[1], call->out[0], a->channels_last, &a->strides,
                           &a->dilations, &a->pads);
    p.bias = call->in[2], p.exact = a->exact;
    return p;
}

static problem fused_problem(const ct_call *call) {
    const conv_fused_attrs *a = call->attrs;
    problem p = problem_of(FORWARD, call->in[0], call->in[1], call->out[0], a->channels_last, &a->strides,
                           &a->dilations, &a->pads);
    p.bias = call->in[2], p.exact = a->exact, p.activation = a->activation;
    p.has_residual = call->in[3] != NULL;
    if (p.has_residual) p.views[RESIDUAL] = image(call->in[3], a->channels_last);
    return p;
}

static problem input_grad_problem(const ct_call *call) {
    const conv_input_grad_attrs *a = call->attrs;
    problem p = problem_of(INPUT_GRAD, call->out[0], call->in[1], call->in[0], a->channels_last, &a->strides,
                           &a->dilations, &a->pads);
    p.bias = call->in[2], p.exact = a->exact;
    return p;
}

static problem weight_grad_problem(const ct_call *call) {
    const conv_weight_grad_attrs *a = call->attrs;
    problem p = problem_of(WEIGHT_GRAD, call->in[0], call->out[0], call->in[1], a->channels_last, &a->strides,
                           &a->dilations, &a->pads);
    p.exact = a->exact;
    return p;
}

static bool is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }
static bool has_more(const problem *p) { return p->bias || p->has_residual || p->activation != CT_ACT_NONE; }

static const char *refuses(const problem *p) {
    if (p->views[X].dtype > CT_BF16) return "there are convolutions of floats only";
    for (int i = X; i <= Y; i++) {
        const int64_t n = ct_cuda_count(&p->views[i]);
        if (n == 0) return "nothing is to be computed";
        if (n > INT32_MAX) return "it has more than 2^31 elements";
    }
    for (int d = 0; d < p->rank; d++) {
        enum { FAR = 1 << 16 };
        if (p->before[d] < 0 || p->after[d] < 0) return "its padding is negative";
        if (p->stride[d] > FAR || p->dilation[d] > FAR || p->before[d] > FAR || p->after[d] > FAR)
            return "its stride, dilation or padding is beyond what cuDNN takes";
    }
    return NULL;
}

/* ---- Layouts ---- */

static void packed_strides(const ct_view *view, bool last, int64_t *strides) {
    int64_t next = 1;
    if (last) strides[1] = 1, next = view->dims[1];
    for (int d = view->ndim - 1; d >= 0; d--) {
        if (last && d == 1) continue;
        strides[d] = next;
        next *= view->dims[d];
    }
}

static bool lies(const ct_view *view, bool last) {
    int64_t strides[AXES];
    packed_strides(view, last, strides);
    for (int d = 0; d < view->ndim; d++)
        if (view->dims[d] != 1 && view->strides[d] != strides[d]) return false;
    return (uintptr_t)ct_cuda_address(view) % CT_DNN_ALIGNMENT == 0;
}

static ct_view packed_at(const ct_view *view, bool last, char *address) {
    ct_view v = *view;
    v.buffer = address, v.origin = 0, v.offset = 0;
    packed_strides(view, last, v.strides);
    return v;
}

/* ---- Plans ---- */

/* All on which the choice of a way depends, without padding. */
typedef struct key {
    int32_t device, kind, rank, dtype, activation, bias, residual, exact, tf32, lasting;
    int32_t lies[2][OPERANDS]; /* by layout: channels first, channels last */
    int64_t dims[Y + 1][AXES], stride[3], dilation[3], before[3], after[3];
} key;

enum { NO_BIAS, BIAS, STRIDED_BIAS };

typedef struct way {
    bool last, fused;
    ct_dnn_plan plan;
    size_t room[OPERANDS]; /* where in scratch a packed copy is; IN_PLACE: the operand is used as it lies */
    size_t workspace, need;
} way;
#define IN_PLACE        ((size_t)-1)

enum { WAYS = 10, GRAPHS = 4, BUCKETS = 1024, PLANS = 4096 };
#define WORKSPACE_LIMIT ((size_t)512 << 20)

typedef struct plan {
    key key;
    struct plan *next;
    ct_dnn_graph graphs[GRAPHS];
    int n_graphs, n, chosen; /* chosen: -1 until it has been measured */
    way ways[WAYS];
    char why[160]; /* where n is 0 */
} plan;

static plan *plans[BUCKETS]; /* guarded by the lock of ct_cuda_dnn_begin, as all below */
static int plan_count;

static key key_of(const ct_call *call, const problem *p) {
    key k;
    memset(&k, 0, sizeof k);
    k.device = call->device.index, k.kind = p->kind, k.rank = p->rank, k.dtype = (int32_t)p->views[X].dtype;
    k.activation = p->activation, k.residual = p->has_residual, k.exact = p->exact;
    k.tf32 = p->views[X].dtype == CT_F32 && ct_cuda_tf32(call);
    k.lasting = (call->flags & CT_CALL_LASTING) != 0;
    if (p->bias) {
        const bool fits = (p->bias->dims[0] == 1 || p->bias->strides[0] == 1) &&
                          (uintptr_t)ct_cuda_address(p->bias) % CT_DNN_ALIGNMENT == 0;
        k.bias = fits ? BIAS : STRIDED_BIAS;
    }
    for (int i = 0; i < OPERANDS; i++) {
        if (i == RESIDUAL && !p->has_residual) continue;
        k.lies[0][i] = lies(&p->views[i], false), k.lies[1][i] = lies(&p->views[i], true);
        for (int d = 0; i <= Y && d < p->views[i].ndim; d++) k.dims[i][d] = p->views[i].dims[d];
    }
    memcpy(k.stride, p->stride, sizeof k.stride);
    memcpy(k.dilation, p->dilation, sizeof k.dilation);
    memcpy(k.before, p->before, sizeof k.before);
    memcpy(k.after, p->after, sizeof k.after);
    return k;
}

/* The packed copies of a way, and the workspace behind them. A half result that our own kernel finishes is one of f32 before. */
static void lay_out(const problem *p, const key *k, way *w) {
    const int out = output_of(p->kind);
    const bool wide = has_more(p) && !w->fused && is_half(p->views[X].dtype);
    size_t at = 0;
    for (int i = 0; i < OPERANDS; i++) {
        w->room[i] = IN_PLACE;
        if (i == RESIDUAL && !(p->has_residual && w->fused)) continue;
        if (k->lies[w->last][i] && !(i == out && (k->lasting || wide))) continue;
        const size_t size = i == out && wide ? sizeof(float) : ct_cuda_dtype_size(p->views[i].dtype);
        w->room[i] = at;
        at += ((size_t)ct_cuda_count(&p->views[i]) * size + CT_CUDA_ALIGNMENT - 1) / CT_CUDA_ALIGNMENT *
              CT_CUDA_ALIGNMENT;
    }
    w->workspace = at;
    w->need = at + w->plan.workspace;
}

static cudnnBackendDescriptor_t tensor_of(ct_dnn_graph *g, int64_t id, cudnnDataType_t type, const ct_view *view,
                                          bool last, bool is_virtual) {
    int64_t strides[AXES];
    packed_strides(view, last, strides);
    return ct_dnn_tensor(g, id, type, view->ndim, view->dims, strides, is_virtual);
}

static void convolution(ct_dnn_graph *g, const problem *p, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
                        cudnnBackendDescriptor_t y) {
    static const cudnnBackendDescriptorType_t types[] = {
        [FORWARD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        [INPUT_GRAD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        [WEIGHT_GRAD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
    static const struct {
        cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
    } names[] = {
        [FORWARD] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [INPUT_GRAD] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [WEIGHT_GRAD] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const bool twice = p->views[X].dtype == CT_F64;
    const cudnnDataType_t computed = twice ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t rank = p->rank;
    cudnnBackendDescriptor_t c = ct_dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    ct_dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    ct_dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    ct_dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &rank);
    ct_dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, rank, p->dilation);
    ct_dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, rank, p->stride);
    ct_dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, rank, p->before);
    ct_dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, rank, p->after);
    ct_dnn_end(g, c);
    cudnnBackendDescriptor_t operation = ct_dnn_make(g, types[p->kind]);
    ct_dnn_set(g, operation, names[p->kind].geometry, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c);
    ct_dnn_set(g, operation, names[p->kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    ct_dnn_set(g, operation, names[p->kind].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
    ct_dnn_set(g, operation, names[p->kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    if (twice) {
        const double alpha = 1, beta = 0;
        ct_dnn_set(g, operation, names[p->kind].alpha, CUDNN_TYPE_DOUBLE, 1, &alpha);
        ct_dnn_set(g, operation, names[p->kind].beta, CUDNN_TYPE_DOUBLE, 1, &beta);
    } else {
        const float alpha = 1, beta = 0;
        ct_dnn_set(g, operation, names[p->kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
        ct_dnn_set(g, operation, names[p->kind].beta, CUDNN_TYPE_FLOAT, 1, &beta);
    }
    ct_dnn_operation(g, operation);
}

static const int modes[] = {[CT_ACT_RELU] = CUDNN_POINTWISE_RELU_FWD,
                            [CT_ACT_SIGMOID] = CUDNN_POINTWISE_SIGMOID_FWD,
                            [CT_ACT_TANH] = CUDNN_POINTWISE_TANH_FWD,
                            [CT_ACT_GELU] = CUDNN_POINTWISE_GELU_FWD,
                            [CT_ACT_SILU] = CUDNN_POINTWISE_SWISH_FWD};

/* Whether an engine may have all of it in one pass: of f32 only what it does not approximate. */
static bool can_fuse(const problem *p, const key *k) {
    const ct_dtype dtype = p->views[X].dtype;
    return has_more(p) && k->bias != STRIDED_BIAS && dtype != CT_F64 &&
           (is_half(dtype) || p->activation <= CT_ACT_RELU) && p->activation <= CT_ACT_SILU;
}

static void describe(ct_dnn_graph *g, const problem *p, bool last, bool fused) {
    const int out = output_of(p->kind);
    const ct_view *result = &p->views[out];
    const cudnnDataType_t type = ct_dnn_type(result->dtype);
    cudnnBackendDescriptor_t tensors[Y + 1];
    int virtuals = 0;
    for (int i = X; i <= Y; i++) {
        if (i == out && fused)
            tensors[i] = tensor_of(g, VIRTUAL_IDS + virtuals++, CUDNN_DATA_FLOAT, result, last, true);
        else if (i == out && has_more(p) && is_half(result->dtype))
            tensors[i] = tensor_of(g, IDS + i, CUDNN_DATA_FLOAT, result, last, false);
        else tensors[i] = tensor_of(g, IDS + i, type, &p->views[i], last, false);
    }
    convolution(g, p, tensors[X], tensors[W], tensors[Y]);
    if (!fused) return;
    int left = (p->bias != NULL) + p->has_residual + (p->activation != CT_ACT_NONE);
    cudnnBackendDescriptor_t at = tensors[out];
#define NEXT()                                                                             \
    (--left ? tensor_of(g, VIRTUAL_IDS + virtuals++, CUDNN_DATA_FLOAT, result, last, true) \
            : tensor_of(g, IDS + out, type, result, last, false))
    if (p->bias) {
        ct_view b = *result;
        for (int d = 0; d < b.ndim; d++)
            if (d != 1) b.dims[d] = 1;
        cudnnBackendDescriptor_t bias = tensor_of(g, BIAS_ID, type, &b, last, false), to = NEXT();
        ct_dnn_pointwise(g, CUDNN_POINTWISE_ADD, at, bias, to);
        at = to;
    }
    if (p->has_residual) {
        cudnnBackendDescriptor_t residual = tensor_of(g, IDS + RESIDUAL, type, result, last, false), to = NEXT();
        ct_dnn_pointwise(g, CUDNN_POINTWISE_ADD, at, residual, to);
        at = to;
    }
    if (p->activation != CT_ACT_NONE) {
        cudnnBackendDescriptor_t to = NEXT();
        ct_dnn_pointwise(g, (cudnnPointwiseMode_t)modes[p->activation], at, NULL, to);
    }
#undef NEXT
}

/* Engines whose sums are not what this library promises. */
static unsigned refused_notes(const problem *p, const key *k) {
#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)
    unsigned notes =
        NOTE(REDUCED_PRECISION_REDUCTION) | NOTE(FFT) | NOTE(WINOGRAD_TILE_6x6) | NOTE(WINOGRAD_TILE_13x13);
    const ct_dtype dtype = p->views[X].dtype;
    if (dtype == CT_F32 && !k->tf32) notes |= NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS);
    if (p->exact || is_half(dtype)) notes |= NOTE(WINOGRAD) | NOTE(WINOGRAD_TILE_4x4);
    return notes;
#undef NOTE
}

static bool measures(void) {
    const char *text = getenv("CT_TUNE");
    return !(text && strcmp(text, "0") == 0);
}

static void add_ways(plan *made, const problem *p, cudnnHandle_t handle, bool last, bool fused, int most) {
    ct_dnn_plan found[WAYS];
    if (most > WAYS - made->n) most = WAYS - made->n;
    if (most < 1 || made->n_graphs == GRAPHS) return;
    ct_dnn_graph *g = &made->graphs[made->n_graphs++];
    describe(g, p, last, fused);
    const ct_dnn_wish wish = {refused_notes(p, &made->key), WORKSPACE_LIMIT, most};
    const int n = ct_dnn_plans(g, handle, &wish, found);
    for (int i = 0; i < n; i++) {
        way *w = &made->ways[made->n++];
        *w = (way){.last = last, .fused = fused, .plan = found[i]};
        lay_out(p, &made->key, w);
    }
    if (n == 0 && !made->why[0])
        snprintf(made->why, sizeof made->why, "cuDNN: %s%s%s", g->what ? g->what : "no engine",
                 g->status == CUDNN_STATUS_SUCCESS ? "" : ": ",
                 g->status == CUDNN_STATUS_SUCCESS ? "" : ct_dnn_status(g->status));
    if (n == 0) ct_dnn_graph_free(g), made->n_graphs--;
}

static void find_ways(plan *made, const problem *p, cudnnHandle_t handle) {
    const key *k = &made->key;
    const ct_dtype dtype = p->views[X].dtype;
    const bool cores = is_half(dtype) || k->tf32; /* Tensor Cores want channels last */
    int first = 0, last = 0;
    for (int i = X; i <= Y; i++)
        if (i != W) first += k->lies[0][i], last += k->lies[1][i];
    const bool is_last = last == first ? cores : last > first, more = has_more(p), fuses = can_fuse(p, k),
               one = !measures();
    if (fuses) add_ways(made, p, handle, is_last, true, one ? 1 : 5);
    if (!(fuses && one && made->n)) add_ways(made, p, handle, is_last, false, one ? 1 : more ? 3 : 6);
    if (one && made->n) return;
    /* The other layout, through copies. */
    if (made->n && !(cores && !is_last)) return;
    if (fuses) add_ways(made, p, handle, !is_last, true, one ? 1 : 4);
    if (!(fuses && one && made->n)) add_ways(made, p, handle, !is_last, false, one ? 1 : more ? 2 : 4);
}

static void forget(plan *p) {
    for (int i = 0; i < p->n; i++) ct_dnn_plan_free(&p->ways[i].plan);
    for (int i = 0; i < p->n_graphs; i++) ct_dnn_graph_free(&p->graphs[i]);
    free(p);
}

static void forget_all(void) {
    for (int i = 0; i < BUCKETS; i++)
        for (plan *p = plans[i], *next; p; p = next) next = p->next, forget(p);
    memset(plans, 0, sizeof plans);
    plan_count = 0;
}

static uint64_t hash_of(const void *bytes, size_t size) {
    uint64_t hash = 1469598103934665603ull, word;
    for (size_t i = 0; i + sizeof word <= size; i += sizeof word) {
        memcpy(&word, (const char *)bytes + i, sizeof word);
        hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
        hash ^= hash >> 32;
    }
    return hash;
}

/* The plan of a problem, made at its first use; NULL: no memory. */
static plan *plan_for(const ct_call *call, const problem *p, cudnnHandle_t handle) {
    const key k = key_of(call, p);
    plan **bucket = &plans[hash_of(&k, sizeof k) % BUCKETS];
    for (plan *known = *bucket; known; known = known->next)
        if (memcmp(&known->key, &k, sizeof k) == 0) return known;
    if (plan_count == PLANS) forget_all();
    plan *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->key = k;
    made->chosen = -1;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    find_ways(made, p, handle);
    clock_gettime(CLOCK_MONOTONIC, &to);
    char line[256];
    snprintf(line, sizeof line, "cudnn: %s: %d ways found in %.1f ms%s%s", call->op->name, made->n,
             (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6, made->n ? "" : ": ",
             made->n ? "" : made->why);
    ct_cuda_host->log(line);
    made->next = *bucket;
    *bucket = made;
    plan_count++;
    return made;
}

/* ---- Running a way ---- */

CT_CUDA_UNIT(conv_dnn);
static ct_cuda_function finishes[] = {[CT_F32] = CT_CUDA_FUNCTION("finish_f32"),
                                      [CT_F64] = CT_CUDA_FUNCTION("finish_f64"),
                                      [CT_F16] = CT_CUDA_FUNCTION("finish_f16"),
                                      [CT_BF16] = CT_CUDA_FUNCTION("finish_bf16")};

/* out = activation(sum + bias + residual). sum may be of f32 where out is of a half type, and may be out. */
static bool finish(const ct_call *call, const problem *p, const ct_view *out, const ct_view *sum) {
    enum { OUT, SUM, ADDED, BIASES, PACK = 4 };
    ct_cuda_conv_finish a;
    memset(&a, 0, sizeof a);
    a.out = ct_cuda_address(out), a.sum = ct_cuda_address(sum);
    a.bias = p->bias ? ct_cuda_address(p->bias) : NULL;
    a.residual = p->has_residual ? ct_cuda_address(&p->views[RESIDUAL]) : NULL;
    a.activation = p->activation;
    a.wide = sum->dtype != out->dtype;
    ct_cuda_view views[4] = {ct_cuda_view_of(out), ct_cuda_view_of(sum), ct_cuda_view_of(out), ct_cuda_view_of(out)};
    if (p->has_residual) views[ADDED] = ct_cuda_view_of(&p->views[RESIDUAL]);
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

/* Enqueues all of it. *status says how cuDNN fared; false with a good status is an error that has been raised. */
static bool run_way(const ct_call *call, const problem *p, const way *w, cudnnHandle_t handle, char *scratch,
                    cudnnStatus_t *status) {
    const int out = output_of(p->kind);
    const bool wide = has_more(p) && !w->fused && is_half(p->views[X].dtype);
    int64_t ids[OPERANDS + 1];
    void *pointers[OPERANDS + 1];
    int n = 0;
    ct_view made = p->views[out];
    *status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < OPERANDS; i++) {
        if (i == RESIDUAL && !(p->has_residual && w->fused)) continue;
        ids[n] = IDS + i;
        pointers[n] = ct_cuda_address(&p->views[i]);
        if (w->room[i] != IN_PLACE) {
            const ct_view copy = packed_at(&p->views[i], w->last, scratch + w->room[i]);
            pointers[n] = scratch + w->room[i];
            if (i == out) made = copy;
            else if (!ct_cuda_copy(call, &copy, &p->views[i])) return false;
        }
        n++;
    }
    if (p->bias && w->fused) ids[n] = BIAS_ID, pointers[n++] = ct_cuda_address(p->bias);
    *status = ct_dnn_run(handle, &w->plan, n, ids, pointers, scratch + w->workspace);
    if (*status != CUDNN_STATUS_SUCCESS) return false;
    if (wide) made.dtype = CT_F32;
    if (has_more(p) && !w->fused) return finish(call, p, &p->views[out], &made);
    return w->room[out] == IN_PLACE || ct_cuda_copy(call, &p->views[out], &made);
}

/* ---- The choice ---- */

typedef struct trial {
    const ct_call *call;
    const problem *p;
    plan *plan;
    cudnnHandle_t handle;
    char *scratch;
    size_t room;
} trial;

static bool attempt(void *context, int i) {
    const trial *t = context;
    cudnnStatus_t status;
    return t->plan->ways[i].need <= t->room &&
           run_way(t->call, t->p, &t->plan->ways[i], t->handle, t->scratch, &status);
}

static void log_choice(const ct_call *call, const plan *p) {
    const way *w = &p->ways[p->chosen];
    char line[256];
    snprintf(line, sizeof line,
             "cudnn: %s: way %d of %d: engine %lld, channels %s%s, %zu bytes of workspace, %zu of scratch",
             call->op->name, p->chosen, p->n, (long long)w->plan.engine, w->last ? "last" : "first",
             w->fused ? ", all in one pass" : "", w->plan.workspace, w->need);
    ct_cuda_host->log(line);
}

/* Measures at the first use, in memory of its own: what scratch is needed depends on the choice. */
static void choose(const ct_call *call, const problem *p, plan *made, cudnnHandle_t handle) {
    struct {
        key key;
        uint64_t ways; /* a list that has changed is another problem */
    } measured;
    memset(&measured, 0, sizeof measured);
    measured.key = made->key;
    measured.key.device = 0;
    trial t = {call, p, made, handle, NULL, 0};
    measured.ways = 1;
    for (int i = 0; i < made->n; i++) {
        const way *w = &made->ways[i];
        const uint64_t id[] = {measured.ways, (uint64_t)w->plan.engine, w->plan.knobs,
                               (uint64_t)w->last << 1 | w->fused};
        measured.ways = hash_of(id, sizeof id);
        if (w->need > t.room) t.room = w->need;
    }
    CUdeviceptr memory = 0;
    if (made->n > 1 && measures()) {
        while (t.room && ct_cuda.cuMemAlloc_v2(&memory, t.room) != CUDA_SUCCESS)
            t.room = t.room < 4096 ? 0 : t.room / 4;
        t.scratch = (char *)(uintptr_t)memory;
        char family[32];
        snprintf(family, sizeof family, "cudnn-%zu", ct_cuda_dnn_version());
        made->chosen = ct_cuda_tune(call, family, &measured, sizeof measured, made->n, attempt, &t);
        if (memory) ct_cuda.cuMemFree_v2(memory);
    } else {
        made->chosen = 0;
    }
    if (made->chosen < 0 || made->chosen >= made->n) made->chosen = 0;
    log_choice(call, made);
}

/* ---- Kernels ---- */

/* *why: NULL, or why cuDNN cannot do it. */
static plan *begin(const ct_call *call, const problem *p, cudnnHandle_t *handle, CUcontext *before, const char **why) {
    *why = "cuDNN does not start";
    ct_cuda_device *d = ct_cuda_enter(call->device.index, before);
    if (!d) return NULL;
    if (!(*handle = ct_cuda_dnn_begin(call, d))) {
        ct_cuda_leave(*before);
        return NULL;
    }
    plan *made = plan_for(call, p, *handle);
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

static const char *can(const ct_call *call, const problem *p) {
    const char *why = refuses(p);
    CUcontext before;
    cudnnHandle_t handle;
    if (!why && begin(call, p, &handle, &before, &why)) end(before);
    return why;
}

static size_t scratch(const ct_call *call, const problem *p) {
    const char *why;
    CUcontext before;
    cudnnHandle_t handle;
    plan *made = begin(call, p, &handle, &before, &why);
    if (!made) return 0;
    if (made->chosen < 0) choose(call, p, made, handle);
    const size_t need = made->ways[made->chosen].need;
    end(before);
    return need;
}

/* *refused: cuDNN did not do it, and the log says why. */
static bool run(const ct_call *call, const problem *p, bool *refused) {
    const char *why;
    CUcontext before;
    cudnnHandle_t handle;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    bool ok = false;
    plan *made = begin(call, p, &handle, &before, &why);
    if (made) {
        if (made->chosen < 0)
            choose(call, p, made, handle); /* its operands are aligned otherwise than when scratch was asked for */
        const way *w = &made->ways[made->chosen];
        if (w->need > call->scratch.bytes) why = "operands that lie otherwise than before need more scratch";
        else ok = run_way(call, p, w, handle, ct_cuda_scratch(call), &status);
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
    const problem p = forward_problem(call);
    return missing ? missing : can(call, &p);
}

size_t ct_cuda_conv_dnn_scratch(const ct_call *call) {
    const problem p = forward_problem(call);
    return scratch(call, &p);
}

bool ct_cuda_conv_dnn_run(const ct_call *call, ct_stream *stream) {
    const problem p = forward_problem(call);
    bool refused;
    const bool ok = run(call, &p, &refused);
    return refused ? ct_cuda_conv_tiles_run(call, stream) : ok;
}

const char *ct_cuda_conv_input_grad_dnn_can(const ct_call *call) {
    const char *missing = ct_cuda_dnn_missing();
    const problem p = input_grad_problem(call);
    return missing ? missing : can(call, &p);
}

size_t ct_cuda_conv_input_grad_dnn_scratch(const ct_call *call) {
    const problem p = input_grad_problem(call);
    return scratch(call, &p);
}

bool ct_cuda_conv_input_grad_dnn_run(const ct_call *call, ct_stream *stream) {
    const problem p = input_grad_problem(call);
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
    const problem p = weight_grad_problem(call);
    return can(call, &p);
}

size_t ct_cuda_conv_weight_grad_dnn_scratch(const ct_call *call) {
    const problem p = weight_grad_problem(call);
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
    const problem p = weight_grad_problem(call);
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
    const problem p = fused_problem(call);
    return missing ? missing : can(call, &p);
}

static size_t fused_scratch(const ct_call *call) {
    const problem p = fused_problem(call);
    return scratch(call, &p);
}

static bool fused_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const conv_fused_attrs *a = call->attrs;
    problem p = fused_problem(call);
    bool refused;
    const bool ok = run(call, &p, &refused);
    if (!refused) return ok;
    if (!ct_cuda_conv_forward(call, call->in[0], call->in[1], call->in[2], call->out[0], &a->strides, &a->dilations,
                              &a->pads, a->groups, a->channels_last))
        return false;
    p.bias = NULL;
    return finish(call, &p, &p.views[Y], &p.views[Y]);
}

CT_CUDA_KERNELS(conv_dnn) = {
    CT_CANDIDATES(conv_fused, {"cudnn", fused_can, fused_scratch, fused_run}),
    {0},
};
#endif
