/* scatter, scatter_add, index_add and scatter_extreme: the host side, which chooses the kernels and deals out the scratch memory. Wherever
 * there are several kernels, the ones that look at the indices come before those that write the result: a call that has to last then
 * leaves it alone when an index is wrong. */
#include "ops/index/cuda/scatter.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/move.h"
#include "ops/index/cuda/rows_sum.h"

#include "gen/index.attrs.h"

CT_CUDA_UNIT(index_scatter);
enum { THREADS = 256 };

static int resolved(int64_t axis, const ct_view *y) { return (int)(axis < 0 ? axis + (y->ndim ? y->ndim : 1) : axis); }

static void row_major(const ct_view *view, int64_t strides[CT_CUDA_DIMS]) {
    int64_t stride = 1;
    for (int d = view->ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= view->dims[d];
    }
}

/* index of scatter: as many dimensions as y. Of index_add: a vector, which stands for the axis of src. */
typedef struct plan {
    const ct_call *call;
    const ct_view *y, *x, *index, *src;
    int axis, ndim;               /* of sizes */
    int64_t sizes[CT_CUDA_DIMS];  /* that are sent: index's, or src's */
    int64_t at[CT_CUDA_DIMS];     /* strides of index in these */
    int64_t from[CT_CUDA_DIMS];   /* of src */
    int64_t places[CT_CUDA_DIMS]; /* and of the row-major place in index, which errors name */
    int64_t count, length, lanes; /* elements that are sent; of a lane; lanes */
    int64_t results;              /* elements of y */
} plan;

static void finish_plan(plan *p) {
    p->count = 1;
    for (int d = 0; d < p->ndim; d++) p->count *= p->sizes[d];
    p->length = p->axis < p->ndim ? p->sizes[p->axis] : 1;
    p->lanes = p->length ? p->count / p->length : 0;
    p->results = ct_cuda_count(p->y);
}

static plan plan_elements(const ct_call *call, int64_t axis) {
    plan p = {.call = call, .y = call->out[0], .x = call->in[0], .index = call->in[1], .src = call->in[2]};
    p.axis = resolved(axis, p.y);
    p.ndim = p.index->ndim;
    row_major(p.index, p.places);
    for (int d = 0; d < p.ndim; d++) {
        p.sizes[d] = p.index->dims[d];
        p.at[d] = p.index->strides[d];
        p.from[d] = d < p.src->ndim ? p.src->strides[d] : 0;
    }
    finish_plan(&p);
    return p;
}

static plan plan_rows(const ct_call *call, int64_t axis) {
    plan p = {.call = call, .y = call->out[0], .x = call->in[0], .index = call->in[1], .src = call->in[2]};
    p.axis = resolved(axis, p.y);
    p.ndim = p.src->ndim;
    for (int d = 0; d < p.ndim; d++) {
        p.sizes[d] = p.src->dims[d];
        p.at[d] = d == p.axis && p.index->ndim ? p.index->strides[0] : 0;
        p.from[d] = p.src->strides[d];
        p.places[d] = d == p.axis;
    }
    finish_plan(&p);
    return p;
}

/* ---- Arguments ---- */

/* to: strides of y's dimensions in what the kernel writes; with: those of operand 3; NULL: the place in index. */
static ct_cuda_scatter arguments_of(const plan *p, const int64_t *to, const int64_t *with, bool lanes) {
    ct_cuda_scatter a;
    memset(&a, 0, sizeof a);
    a.index = ct_cuda_address(p->index);
    a.src = ct_cuda_address(p->src);
    a.out = ct_cuda_address(p->y);
    a.bound = p->y->ndim ? p->y->dims[p->axis] : 1;
    a.along = p->y->ndim ? to[p->axis] : 0;
    a.out_along = p->y->ndim ? p->y->strides[p->axis] : 0;
    a.alpha = 1;
    a.wide = p->index->dtype == CT_I64;
    a.dtype = p->y->dtype;
    a.places = p->results;
    while (((int64_t)1 << a.growth) <= p->length) a.growth++;
    a.length = p->length;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < p->ndim; d++) {
        const bool fixed = d == p->axis || d >= p->y->ndim;
        if (d == p->axis) a.index_axis = p->at[d], a.src_axis = p->from[d], a.place_axis = p->places[d];
        if (d == p->axis && lanes) continue;
        ct_cuda_nest_add(&a.nest, p->sizes[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){fixed ? 0 : to[d], p->at[d], p->from[d],
                                                                !with   ? p->places[d]
                                                                : fixed ? 0
                                                                        : with[d]});
    }
    ct_cuda_nest_end(&a.nest);
    return a;
}

static ct_cuda_scattered result_of(const plan *p) {
    ct_cuda_scattered a;
    memset(&a, 0, sizeof a);
    a.to = ct_cuda_address(p->y);
    a.from = ct_cuda_address(p->x);
    a.dtype = p->y->dtype;
    while (((int64_t)1 << a.growth) <= p->length) a.growth++;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < p->y->ndim; d++)
        ct_cuda_nest_add(&a.nest, p->y->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){p->y->strides[d], p->x->strides[d], 0, 0});
    ct_cuda_nest_end(&a.nest);
    return a;
}

static bool send(const plan *p, ct_cuda_function *function, ct_cuda_scatter *a) {
    const unsigned blocks = ct_cuda_blocks(p->call, a->nest.total, THREADS);
    return ct_cuda_launch(p->call, function, (ct_cuda_shape){.grid = blocks, .block = THREADS}, a);
}

static bool over_result(const plan *p, ct_cuda_function *function, ct_cuda_scattered *a) {
    const unsigned blocks = ct_cuda_blocks(p->call, a->nest.total, THREADS);
    return ct_cuda_launch(p->call, function, (ct_cuda_shape){.grid = blocks, .block = THREADS}, a);
}

/* Nothing is sent: a copy, after a look at the indices. */
static bool send_nothing(const plan *p) {
    static ct_cuda_function look = CT_CUDA_FUNCTION("scatter_look");
    const int64_t n = ct_cuda_count(p->index);
    if (n > 0) {
        ct_cuda_scatter a;
        memset(&a, 0, sizeof a);
        a.index = ct_cuda_address(p->index);
        a.bound = p->y->ndim ? p->y->dims[p->axis] : 1;
        a.wide = p->index->dtype == CT_I64;
        ct_cuda_nest_begin(&a.nest); /* index is a vector then */
        ct_cuda_nest_add(&a.nest, n,
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){0, p->index->ndim ? p->index->strides[0] : 0, 0, 1});
        ct_cuda_nest_end(&a.nest);
        if (!send(p, &look, &a)) return false;
    }
    return ct_cuda_copy(p->call, p->y, p->x);
}

/* ---- scatter ---- */

/* Short lanes, or enough of them to fill the device, are worked off by a thread each. */
static bool takes_lanes(const plan *p) { return p->length <= 8 || (p->length <= 128 && p->lanes >= 1 << 16); }

static plan plan_scatter(const ct_call *call) {
    return plan_elements(call, ((const scatter_attrs *)call->attrs)->axis);
}

static size_t scatter_scratch(const ct_call *call) {
    const plan p = plan_scatter(call);
    return p.count == 0 || takes_lanes(&p) ? 0 : (size_t)p.results * sizeof(uint64_t);
}

static bool run_scatter(const ct_call *call, ct_stream *stream) {
    static ct_cuda_function clear = CT_CUDA_FUNCTION("scatter_clear"), mark = CT_CUDA_FUNCTION("scatter_mark"),
                            puts[] = {CT_CUDA_FUNCTION("scatter_put_1"), CT_CUDA_FUNCTION("scatter_put_2"),
                                      CT_CUDA_FUNCTION("scatter_put_4"), CT_CUDA_FUNCTION("scatter_put_8")},
                            lanes[] = {CT_CUDA_FUNCTION("scatter_lanes_1"), CT_CUDA_FUNCTION("scatter_lanes_2"),
                                       CT_CUDA_FUNCTION("scatter_lanes_4"), CT_CUDA_FUNCTION("scatter_lanes_8")};
    (void)stream;
    const plan p = plan_scatter(call);
    const size_t size = ct_cuda_dtype_size(p.y->dtype);
    const int level = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
    if (p.count == 0) return send_nothing(&p);
    if (takes_lanes(&p)) {
        ct_cuda_scatter a = arguments_of(&p, p.y->strides, NULL, true);
        return ct_cuda_copy(call, p.y, p.x) && send(&p, &lanes[level], &a);
    }
    int64_t dense[CT_CUDA_DIMS] = {0};
    row_major(p.y, dense);
    ct_cuda_scattered result = result_of(&p);
    ct_cuda_scatter marked = arguments_of(&p, dense, NULL, false), put = arguments_of(&p, dense, p.y->strides, false);
    result.sums = marked.sums = put.sums = (uint64_t *)(void *)ct_cuda_scratch(call);
    return over_result(&p, &clear, &result) && send(&p, &mark, &marked) && ct_cuda_copy(call, p.y, p.x) &&
           send(&p, &puts[level], &put);
}

/* ---- Sums ---- */

static size_t sums_scratch(const plan *p) {
    const size_t n = (size_t)p->results;
    if (p->count == 0) return 0;
    if (p->y->dtype > CT_BF16) return n * sizeof(uint64_t);
    return n * (p->y->dtype == CT_F64 ? 3 : 1) * sizeof(uint64_t) + n * sizeof(uint32_t);
}

static bool add(const plan *p, double alpha) {
    static ct_cuda_function begins[] = {CT_CUDA_FUNCTION("add_begin_f32"), CT_CUDA_FUNCTION("add_begin_f64"),
                                        CT_CUDA_FUNCTION("add_begin_f16"), CT_CUDA_FUNCTION("add_begin_bf16")},
                            marks[] = {CT_CUDA_FUNCTION("add_mark_f32"), CT_CUDA_FUNCTION("add_mark_f64"),
                                       CT_CUDA_FUNCTION("add_mark_f16"), CT_CUDA_FUNCTION("add_mark_bf16")},
                            sums[] = {CT_CUDA_FUNCTION("add_sum_f32"), CT_CUDA_FUNCTION("add_sum_f64"),
                                      CT_CUDA_FUNCTION("add_sum_f16"), CT_CUDA_FUNCTION("add_sum_bf16")},
                            ends[] = {CT_CUDA_FUNCTION("add_end_f32"), CT_CUDA_FUNCTION("add_end_f64"),
                                      CT_CUDA_FUNCTION("add_end_f16"), CT_CUDA_FUNCTION("add_end_bf16")},
                            clear = CT_CUDA_FUNCTION("scatter_clear"), sum_whole = CT_CUDA_FUNCTION("add_sum_whole"),
                            end_whole = CT_CUDA_FUNCTION("add_end_whole");
    const ct_dtype dtype = p->y->dtype;
    if (p->count == 0) return send_nothing(p);
    int64_t dense[CT_CUDA_DIMS] = {0};
    row_major(p->y, dense);
    ct_cuda_scattered result = result_of(p);
    ct_cuda_scatter a = arguments_of(p, dense, NULL, false);
    a.alpha = alpha;
    result.sums = a.sums = (uint64_t *)(void *)ct_cuda_scratch(p->call);
    if (dtype > CT_BF16)
        return over_result(p, &clear, &result) && send(p, &sum_whole, &a) && over_result(p, &end_whole, &result);
    result.exponents = a.exponents = (uint32_t *)(void *)(a.sums + p->results * (dtype == CT_F64 ? 3 : 1));
    return over_result(p, &begins[dtype], &result) && send(p, &marks[dtype], &a) && send(p, &sums[dtype], &a) &&
           over_result(p, &ends[dtype], &result);
}

static plan plan_scatter_add(const ct_call *call) {
    return plan_elements(call, ((const scatter_add_attrs *)call->attrs)->axis);
}

size_t ct_cuda_scatter_add_scratch(const ct_call *call) {
    const plan p = plan_scatter_add(call);
    return sums_scratch(&p);
}

bool ct_cuda_scatter_add(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const plan p = plan_scatter_add(call);
    return add(&p, 1);
}

static plan plan_index_add(const ct_call *call) {
    return plan_rows(call, ((const index_add_attrs *)call->attrs)->axis);
}

size_t ct_cuda_index_add_scratch(const ct_call *call) {
    const plan p = plan_index_add(call);
    return sums_scratch(&p);
}

bool ct_cuda_index_add(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const plan p = plan_index_add(call);
    return add(&p, ((const index_add_attrs *)call->attrs)->alpha);
}

/* ---- scatter_extreme ---- */

static plan plan_extreme(const ct_call *call) {
    return plan_elements(call, ((const scatter_extreme_attrs *)call->attrs)->axis);
}

static size_t extreme_scratch(const ct_call *call) {
    const plan p = plan_extreme(call);
    return p.count == 0 ? 0 : (size_t)p.results * sizeof(uint64_t);
}

static bool run_extreme(const ct_call *call, ct_stream *stream) {
    static ct_cuda_function begin = CT_CUDA_FUNCTION("extreme_begin"), fold = CT_CUDA_FUNCTION("extreme_fold"),
                            end = CT_CUDA_FUNCTION("extreme_end"), product_begin = CT_CUDA_FUNCTION("product_begin"),
                            product_lanes = CT_CUDA_FUNCTION("product_lanes"),
                            product_end = CT_CUDA_FUNCTION("product_end");
    (void)stream;
    const plan p = plan_extreme(call);
    const int reduce = ((const scatter_extreme_attrs *)call->attrs)->reduce;
    const bool product = reduce == CT_FOLD_PROD;
    if (p.count == 0) return send_nothing(&p);
    int64_t dense[CT_CUDA_DIMS] = {0};
    row_major(p.y, dense);
    ct_cuda_scattered result = result_of(&p);
    ct_cuda_scatter a = arguments_of(&p, dense, NULL, product);
    result.fold = a.fold = reduce;
    result.sums = a.sums = (uint64_t *)(void *)ct_cuda_scratch(call);
    return over_result(&p, product ? &product_begin : &begin, &result) &&
           send(&p, product ? &product_lanes : &fold, &a) && over_result(&p, product ? &product_end : &end, &result);
}

CT_CUDA_KERNELS(index_scatter) = {
    CT_CANDIDATES(scatter, {"scatter_last", NULL, scatter_scratch, run_scatter}),
    CT_CANDIDATES(scatter_extreme, {"scatter_extreme_ranks", NULL, extreme_scratch, run_extreme}),
    {0},
};
