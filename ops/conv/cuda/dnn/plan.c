/* Graphs of a problem, the engines that can run them, and the table of what was found. */
#include "ops/conv/cuda/dnn/plan.h"

#ifdef CT_CUDA_DNN
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cuda/tune.h"

enum { VIRTUAL_IDS = 100, BUCKETS = 1024, PLANS = 4096 };
#define WORKSPACE_LIMIT ((size_t)512 << 20)

static ct_conv_plan *plans[BUCKETS]; /* guarded by the lock of ct_cuda_dnn_begin, as all below */
static int plan_count;

static ct_conv_key key_of(const ct_call *call, const ct_conv_problem *p) {
    ct_conv_key k;
    memset(&k, 0, sizeof k);
    k.device = call->device.index, k.kind = p->kind, k.rank = p->rank, k.dtype = (int32_t)p->views[CT_CONV_X].dtype;
    k.activation = p->activation, k.residual = p->has_residual, k.exact = p->exact;
    k.tf32 = p->views[CT_CONV_X].dtype == CT_F32 && ct_cuda_tf32(call);
    k.lasting = (call->flags & CT_CALL_LASTING) != 0;
    k.bias = p->bias != NULL;
    k.packed_bias = p->bias && (p->bias->dims[0] == 1 || p->bias->strides[0] == 1) &&
                    (uintptr_t)ct_cuda_address(p->bias) % CT_DNN_ALIGNMENT == 0;
    for (int i = 0; i < CT_CONV_OPERANDS; i++) {
        if (i == CT_CONV_RESIDUAL && !p->has_residual) continue;
        k.lies[0][i] = ct_conv_lies(&p->views[i], false), k.lies[1][i] = ct_conv_lies(&p->views[i], true);
        for (int d = 0; i <= CT_CONV_Y && d < p->views[i].ndim; d++) k.dims[i][d] = p->views[i].dims[d];
    }
    memcpy(k.stride, p->stride, sizeof k.stride);
    memcpy(k.dilation, p->dilation, sizeof k.dilation);
    memcpy(k.before, p->before, sizeof k.before);
    memcpy(k.after, p->after, sizeof k.after);
    return k;
}

/* The packed copies of a way, and the workspace behind them. A half result that our own kernel finishes is one of f32 before. */
static void lay_out(const ct_conv_problem *p, const ct_conv_key *k, ct_conv_way *w) {
    const int out = ct_conv_output(p->kind);
    const bool wide = ct_conv_has_more(p) && !w->fused && ct_conv_is_half(p->views[CT_CONV_X].dtype);
    size_t at = 0;
    for (int i = 0; i < CT_CONV_OPERANDS; i++) {
        w->room[i] = CT_CONV_IN_PLACE;
        if (i == CT_CONV_RESIDUAL && !(p->has_residual && w->fused)) continue;
        const bool folded = w->folded && (i == CT_CONV_X || i == CT_CONV_W);
        if (k->lies[w->last][i] && !folded && !(i == out && (k->lasting || wide))) continue;
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
    int64_t strides[CT_CONV_AXES];
    ct_conv_packed_strides(view, last, strides);
    return ct_dnn_tensor(g, id, type, view->ndim, view->dims, strides, is_virtual);
}

static void convolution(ct_dnn_graph *g, const ct_conv_problem *p, cudnnBackendDescriptor_t x,
                        cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y) {
    static const cudnnBackendDescriptorType_t types[] = {
        [CT_CONV_FORWARD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        [CT_CONV_INPUT_GRAD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        [CT_CONV_WEIGHT_GRAD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
    static const struct {
        cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
    } names[] = {
        [CT_CONV_FORWARD] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [CT_CONV_INPUT_GRAD] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [CT_CONV_WEIGHT_GRAD] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const bool twice = p->views[CT_CONV_X].dtype == CT_F64;
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
                            [CT_ACT_SILU] = CUDNN_POINTWISE_SWISH_FWD};

/* Whether an engine may have all of it in one pass: of f32 only what it does not approximate, and no gelu, which it cuts off where the
 * result is small. A sigmoid of a sum with a residual has come out wrong in bf16 (cuDNN 9.14), by the way that was the fastest in one run of many:
 * with residuals only relu is taken along. */
static bool can_fuse(const ct_conv_problem *p, const ct_conv_key *k) {
    const ct_dtype dtype = p->views[CT_CONV_X].dtype;
    return ct_conv_has_more(p) && k->bias == k->packed_bias && dtype != CT_F64 &&
           ((ct_conv_is_half(dtype) && !p->has_residual) || p->activation <= CT_ACT_RELU) &&
           p->activation <= CT_ACT_SILU && p->activation != CT_ACT_GELU;
}

static void describe(ct_dnn_graph *g, const ct_conv_problem *p, bool last, bool fused) {
    const int out = ct_conv_output(p->kind);
    const ct_view *result = &p->views[out];
    const cudnnDataType_t type = ct_dnn_type(result->dtype);
    cudnnBackendDescriptor_t tensors[CT_CONV_Y + 1];
    int virtuals = 0;
    for (int i = CT_CONV_X; i <= CT_CONV_Y; i++) {
        if (i == out && fused)
            tensors[i] = tensor_of(g, VIRTUAL_IDS + virtuals++, CUDNN_DATA_FLOAT, result, last, true);
        else if (i == out && ct_conv_has_more(p) && ct_conv_is_half(result->dtype))
            tensors[i] = tensor_of(g, CT_CONV_IDS + i, CUDNN_DATA_FLOAT, result, last, false);
        else tensors[i] = tensor_of(g, CT_CONV_IDS + i, type, &p->views[i], last, false);
    }
    convolution(g, p, tensors[CT_CONV_X], tensors[CT_CONV_W], tensors[CT_CONV_Y]);
    if (!fused) return;
    int left = (p->bias != NULL) + p->has_residual + (p->activation != CT_ACT_NONE);
    cudnnBackendDescriptor_t at = tensors[out];
#define NEXT()                                                                             \
    (--left ? tensor_of(g, VIRTUAL_IDS + virtuals++, CUDNN_DATA_FLOAT, result, last, true) \
            : tensor_of(g, CT_CONV_IDS + out, type, result, last, false))
    if (p->bias) {
        ct_view b = *result;
        for (int d = 0; d < b.ndim; d++)
            if (d != 1) b.dims[d] = 1;
        cudnnBackendDescriptor_t bias = tensor_of(g, CT_CONV_BIAS_ID, type, &b, last, false), to = NEXT();
        ct_dnn_pointwise(g, CUDNN_POINTWISE_ADD, at, bias, to);
        at = to;
    }
    if (p->has_residual) {
        cudnnBackendDescriptor_t residual = tensor_of(g, CT_CONV_IDS + CT_CONV_RESIDUAL, type, result, last, false),
                                 to = NEXT();
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
static unsigned refused_notes(const ct_conv_problem *p, const ct_conv_key *k) {
#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)
    unsigned notes =
        NOTE(REDUCED_PRECISION_REDUCTION) | NOTE(FFT) | NOTE(WINOGRAD_TILE_6x6) | NOTE(WINOGRAD_TILE_13x13);
    const ct_dtype dtype = p->views[CT_CONV_X].dtype;
    if (dtype == CT_F32 && !k->tf32) notes |= NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS);
    if (p->exact || ct_conv_is_half(dtype)) notes |= NOTE(WINOGRAD) | NOTE(WINOGRAD_TILE_4x4);
    return notes;
#undef NOTE
}

/* An engine whose results are wrong, as cuDNN 9.14 has it: that of weight gradients takes the padding behind for that before, and that of input
 * gradients rounds a half result more than once. */
static int64_t unwanted_engine(const ct_conv_problem *p) {
    enum { PADS_ALIKE = 1, ROUNDS_HALVES = 2, NONE = -1 };
    bool differ = false;
    for (int d = 0; d < p->rank; d++) differ = differ || p->before[d] != p->after[d];
    if (p->kind == CT_CONV_WEIGHT_GRAD && differ) return PADS_ALIKE;
    return p->kind == CT_CONV_INPUT_GRAD && ct_conv_is_half(p->views[CT_CONV_X].dtype) ? ROUNDS_HALVES : NONE;
}

bool ct_conv_measures(void) {
    const char *text = getenv("CT_TUNE");
    return !(text && strcmp(text, "0") == 0);
}

static void add_ways(ct_conv_plan *made, const ct_conv_problem *p, cudnnHandle_t handle, ct_conv_way like, int most) {
    ct_dnn_plan found[CT_CONV_WAYS];
    const ct_view *w = &p->views[CT_CONV_W];
    /* Some engines for channels that Tensor Cores do not take as they are round a half result before they add the bias: in three
     * dimensions the first one does, in two it does not. */
    const bool odd = like.fused && ct_conv_is_half(w->dtype) && (w->dims[0] % 8 || w->dims[1] % 8);
    if (odd) most = p->rank == 3 ? 0 : 1;
    if (most > CT_CONV_WAYS - made->n) most = CT_CONV_WAYS - made->n;
    if (most < 1 || made->n_graphs == CT_CONV_GRAPHS) return;
    ct_dnn_graph *g = &made->graphs[made->n_graphs++];
    describe(g, p, like.last, like.fused);
    /* cuBLASLt may round a half result before it adds the bias, and so do engines that call it; older headers lack the note's name. */
    enum { BY_CUBLASLT = 1 << 4 };
    const bool rounds = like.fused && ct_conv_is_half(p->views[CT_CONV_X].dtype);
    const ct_dnn_wish wish = {.refused = refused_notes(p, &made->key),
                              .behavior = rounds ? BY_CUBLASLT : 0,
                              .workspace = WORKSPACE_LIMIT,
                              .most = most,
                              .unwanted = unwanted_engine(p)};
    const int n = ct_dnn_plans(g, handle, &wish, found);
    for (int i = 0; i < n; i++) {
        ct_conv_way *way = &made->ways[made->n++];
        *way = like;
        way->plan = found[i];
        lay_out(p, &made->key, way);
    }
    if (n == 0 && !made->why[0])
        snprintf(made->why, sizeof made->why, "cuDNN: %s%s%s", g->what ? g->what : "no engine",
                 g->status == CUDNN_STATUS_SUCCESS ? "" : ": ",
                 g->status == CUDNN_STATUS_SUCCESS ? "" : ct_dnn_status(g->status));
    if (n == 0) ct_dnn_graph_free(g), made->n_graphs--;
}

static void add_product(ct_conv_plan *made, const ct_call *call, const ct_conv_problem *p) {
    ct_cuda_blas_product product;
    ct_conv_way w = {.last = true, .fused = true, .product = true};
    if (!ct_conv_product(p, &made->key, &product) || !ct_cuda_blas_takes(call, &product, &w.need)) return;
    for (int i = 0; i < CT_CONV_OPERANDS; i++) w.room[i] = CT_CONV_IN_PLACE;
    made->ways[made->n++] = w;
}

static void add_own(ct_conv_plan *made, const ct_call *call, const ct_conv_problem *p) {
    ct_conv_way w = {.own = true};
    if (made->n == CT_CONV_WAYS || ct_conv_own_refuses(call, p, &w.need)) return;
    for (int i = 0; i < CT_CONV_OPERANDS; i++) w.room[i] = CT_CONV_IN_PLACE;
    made->ways[made->n++] = w;
}

static void find_ways(ct_conv_plan *made, const ct_call *call, const ct_conv_problem *p, cudnnHandle_t handle) {
    const ct_conv_key *k = &made->key;
    const ct_dtype dtype = p->views[CT_CONV_X].dtype;
    const bool cores = ct_conv_is_half(dtype) || k->tf32; /* Tensor Cores want channels last */
    int first = 0, last = 0;
    for (int i = CT_CONV_X; i <= CT_CONV_Y; i++)
        if (i != CT_CONV_W) first += k->lies[0][i], last += k->lies[1][i];
    const bool is_last = last == first ? cores : last > first, more = ct_conv_has_more(p), fuses = can_fuse(p, k),
               one = !ct_conv_measures();
    add_product(made, call, p);
    if (one && made->n) return;
        /* In one pass if there is one, else with a kernel of our own behind it. */
#define WAYS(problem, most, ...)                                                                               \
    do {                                                                                                       \
        const int before = made->n;                                                                            \
        if (fuses) add_ways(made, problem, handle, (ct_conv_way){.fused = true, __VA_ARGS__}, one ? 1 : most); \
        const int left = made->n == before ? most : more ? 3 : 0;                                              \
        if (!(one && made->n)) add_ways(made, problem, handle, (ct_conv_way){__VA_ARGS__}, one ? 1 : left);    \
    } while (0)
    ct_conv_problem folded;
    if (cores && ct_conv_fold(p, &folded)) WAYS(&folded, 5, .last = true, .folded = true);
    if (one && made->n) return;
    WAYS(p, 12, .last = is_last);
    if (one && made->n) return;
    /* The other layout, through copies. */
    if (!made->n || (cores && !is_last)) WAYS(p, 8, .last = !is_last);
#undef WAYS
    if (!(one && made->n)) add_own(made, call, p);
}

static void forget(ct_conv_plan *p) {
    for (int i = 0; i < p->n; i++) ct_dnn_plan_free(&p->ways[i].plan);
    for (int i = 0; i < p->n_graphs; i++) ct_dnn_graph_free(&p->graphs[i]);
    free(p);
}

static void forget_all(void) {
    for (int i = 0; i < BUCKETS; i++)
        for (ct_conv_plan *p = plans[i], *next; p; p = next) next = p->next, forget(p);
    memset(plans, 0, sizeof plans);
    plan_count = 0;
}

uint64_t ct_conv_hash(const void *bytes, size_t size) {
    uint64_t hash = 1469598103934665603ull, word;
    for (size_t i = 0; i + sizeof word <= size; i += sizeof word) {
        memcpy(&word, (const char *)bytes + i, sizeof word);
        hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
        hash ^= hash >> 32;
    }
    return hash;
}

ct_conv_plan *ct_conv_plan_for(const ct_call *call, const ct_conv_problem *p, cudnnHandle_t handle) {
    const ct_conv_key k = key_of(call, p);
    ct_conv_plan **bucket = &plans[ct_conv_hash(&k, sizeof k) % BUCKETS];
    for (ct_conv_plan *known = *bucket; known; known = known->next)
        if (memcmp(&known->key, &k, sizeof k) == 0) return known;
    if (plan_count == PLANS) forget_all();
    ct_conv_plan *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->key = k;
    made->chosen = -1;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    find_ways(made, call, p, handle);
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
#endif
