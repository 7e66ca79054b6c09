/* linear and its gradients on CUDA: small products in one kernel of our own; others by cuBLASLt with what belongs to them as epilogues,
 * else with a kernel behind them, else by tiles of our own.
 *
 * Of the activations the library's epilogues have relu; its gelu is the approximation by tanh, ours is exact. */
#include "ops/matmul/cuda/linear.h"

#include <string.h>

#include "backends/cuda/aside.h"
#include "backends/cuda/branch.h"
#include "backends/cuda/product.h"
#include "ops/matmul/cuda/small.h"

#include "gen/matmul.attrs.h"

CT_CUDA_OVERLAPPING_UNIT(matmul_linear);

#define PER_DTYPE(name)                                                                      \
    {                                                                                        \
        [CT_F32] = CT_CUDA_FUNCTION(name "_f32"), [CT_F64] = CT_CUDA_FUNCTION(name "_f64"),  \
        [CT_F16] = CT_CUDA_FUNCTION(name "_f16"), [CT_BF16] = CT_CUDA_FUNCTION(name "_bf16") \
    }
static ct_cuda_function finish_functions[] = PER_DTYPE("linear_finish"), slope_functions[] = PER_DTYPE("linear_slope"),
                        sums_functions[] = PER_DTYPE("linear_sums"), parts_functions[] = PER_DTYPE("linear_parts"),
                        total_functions[] = PER_DTYPE("linear_total");

static bool is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }
static size_t aligned(size_t bytes) { return (bytes + CT_CUDA_ALIGNMENT - 1) & ~(size_t)(CT_CUDA_ALIGNMENT - 1); }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* ---- Forward ---- */

static ct_cuda_product linear_problem(const ct_call *call) {
    const ct_view *x = call->in[0], *w = call->in[1], *bias = call->in[2], *y = call->out[0];
    const int last = x->ndim - 1;
    ct_cuda_product p = {.a = ct_cuda_address(x), /* (..., in) */
                         .b = ct_cuda_address(w), /* (out, in), read as its transpose */
                         .c = ct_cuda_address(y),
                         .bias = bias ? ct_cuda_address(bias) : NULL,
                         .activation = (int32_t)((const linear_fused_attrs *)call->attrs)->activation};
    p.m = last ? x->dims[last - 1] : 1;
    p.k = x->dims[last];
    p.n = w->dims[0];
    p.a_col = x->strides[last];
    p.a_row = last ? x->strides[last - 1] : p.k;
    p.b_row = w->strides[1];
    p.b_col = w->strides[0];
    p.c_col = y->strides[last];
    p.c_row = last ? y->strides[last - 1] : p.n;
    p.batch_dims = last > 1 ? last - 1 : 0;
    for (int i = 0; i < p.batch_dims; i++) {
        p.batch[i] = x->dims[i];
        p.a_batch[i] = x->strides[i];
        p.c_batch[i] = y->strides[i];
    }
    ct_cuda_product_fold(&p);
    return p;
}

/* Of halves that are not aligned for its fast kernels the library rounds the product before the epilogue. */
static bool is_aligned(const ct_cuda_product *p, const ct_cuda_blas_product *blas) {
    const uintptr_t together = (uintptr_t)blas->a | (uintptr_t)blas->b | (uintptr_t)blas->c | (uintptr_t)p->bias;
    return together % 16 == 0 && blas->a_leading % 8 == 0 && blas->b_leading % 8 == 0 && blas->c_leading % 8 == 0;
}

/* The product with bias and activation as its epilogue; false where there is no such epilogue. */
static bool with_epilogue(const ct_cuda_product *p, ct_cuda_blas_product *blas) {
    if (p->activation != CT_ACT_NONE && p->activation != CT_ACT_RELU) return false;
    if (is_half(blas->dtype) && (p->bias || p->activation) && !is_aligned(p, blas)) return false;
    const bool relu = p->activation == CT_ACT_RELU;
    blas->bias = (char *)(uintptr_t)p->bias;
    blas->epilogue = p->bias ? (relu ? CT_CUDA_BIAS_RELU : CT_CUDA_BIAS) : (relu ? CT_CUDA_RELU : CT_CUDA_PLAIN);
    return true;
}

/* The product alone, for a kernel behind it: of halves into f32 in scratch, so that they are rounded once. */
static size_t without_epilogue(const ct_cuda_product *p, char *scratch, ct_cuda_blas_product *blas) {
    blas->epilogue = CT_CUDA_PLAIN;
    blas->bias = NULL;
    if (!is_half(blas->dtype)) return 0;
    blas->c_dtype = CT_F32;
    blas->c = scratch;
    blas->c_leading = p->n;
    return aligned((size_t)p->m * (size_t)p->n * sizeof(float));
}

static bool linear_finish(const ct_call *call, const ct_cuda_product *p, const ct_cuda_blas_product *made) {
    ct_linear_finish a = {.z = made->c,
                          .bias = p->bias,
                          .y = p->c,
                          .rows = p->m,
                          .n = p->n,
                          .z_row = made->c_leading,
                          .y_row = p->c_row,
                          .activation = p->activation};
    const uintptr_t together = (uintptr_t)a.z | (uintptr_t)a.y | (uintptr_t)a.bias;
    a.packed =
        a.n % 4 == 0 && a.z_row % 4 == 0 && a.y_row % 4 == 0 && together % (made->dtype == CT_F64 ? 32 : 16) == 0;
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, a.rows * a.n / (a.packed ? 4 : 1), 256), .block = 256};
    return ct_cuda_launch(call, &finish_functions[made->dtype], shape, &a);
}

static const char *linear_can(const ct_call *call) {
    const ct_view *bias = call->in[2];
    if (call->in[0]->dtype > CT_BF16) return "it is for floats";
    return bias && bias->dims[0] > 1 && bias->strides[0] != 1 ? "the bias is not contiguous" : NULL;
}

static const char *linear_blas_can(const ct_call *call) {
    ct_cuda_blas_product blas;
    const char *reason = linear_can(call);
    if (reason) return reason;
    if (call->flags & CT_CALL_LASTING) return "it could not stop for an error";
    if (!ct_cuda_blas_there()) return "there is no cuBLASLt";
    const ct_cuda_product p = linear_problem(call);
    return ct_cuda_product_to_blas(call, &p, call->in[0]->dtype, &blas) ? NULL : "its strides";
}

static size_t linear_scratch(const ct_call *call) {
    ct_cuda_blas_product blas;
    size_t workspace = 0;
    const ct_cuda_product p = linear_problem(call);
    if (!ct_cuda_product_to_blas(call, &p, call->in[0]->dtype, &blas)) return 0;
    if (with_epilogue(&p, &blas) && ct_cuda_blas_takes(call, &blas, &workspace)) return workspace;
    const size_t sums = without_epilogue(&p, NULL, &blas);
    ct_cuda_blas_takes(call, &blas, &workspace);
    return sums + workspace;
}

static bool linear_tiles(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_product p = linear_problem(call);
    return ct_cuda_product_tiles(call, &p, call->in[0]->dtype);
}

static bool linear_blas(const ct_call *call, ct_stream *stream) {
    ct_cuda_blas_product blas;
    bool refused = true;
    const ct_cuda_product p = linear_problem(call);
    char *scratch = ct_cuda_scratch(call);
    if (!ct_cuda_product_to_blas(call, &p, call->in[0]->dtype, &blas)) return linear_tiles(call, stream);
    if (with_epilogue(&p, &blas)) {
        const bool ok = ct_cuda_blas_multiply(call, &blas, scratch, call->scratch.bytes, &refused);
        if (!refused) return ok;
    }
    const size_t sums = without_epilogue(&p, scratch, &blas), room = call->scratch.bytes;
    if (p.batches > 1 || sums > room) return linear_tiles(call, stream);
    const bool ok = ct_cuda_blas_multiply(call, &blas, scratch + sums, room - sums, &refused);
    if (refused) return linear_tiles(call, stream);
    return ok && linear_finish(call, &p, &blas);
}

/* Of a few rows the weights are all there is to read: that is another kernel's business. */
static bool small_problem(const ct_call *call, ct_small_product *small) {
    enum { LEAST_ROWS = 8 };
    if (call->in[0]->dtype != CT_F32 || linear_can(call)) return false;
    const ct_cuda_product p = linear_problem(call);
    return p.m >= LEAST_ROWS && ct_small_product_of(call, &p, NULL, true, true, small);
}

static const char *small_can(const ct_call *call) {
    ct_small_product small;
    return small_problem(call, &small) ? NULL : "it is not small";
}

static bool small_run(const ct_call *call, ct_stream *stream) {
    ct_small_product small;
    return small_problem(call, &small) ? ct_small_forward(call, &small) : linear_tiles(call, stream);
}

static const char *aside_can(const ct_call *call) {
    ct_cuda_aside aside;
    ct_cuda_aside_begin(call, &aside);
    return linear_blas_can(&aside.call);
}

static size_t aside_scratch(const ct_call *call) {
    ct_cuda_aside aside;
    ct_cuda_aside_begin(call, &aside);
    return aside.bytes + linear_scratch(&aside.call);
}

static bool linear_aside(const ct_call *call, ct_stream *stream) {
    ct_cuda_aside aside;
    ct_cuda_aside_begin(call, &aside);
    return linear_blas(&aside.call, stream) && ct_cuda_aside_end(call, &aside);
}

/* ---- Gradients ---- */

typedef struct gradients {
    const ct_view *g, *y, *x, *w;
    ct_view *dx, *dw, *dbias; /* NULL: not wanted */
    ct_dtype dtype;
    int activation;
    bool wide_x, wide_w; /* results are f32, where operands are halves */
    int64_t rows, out, in;
    bool copies;      /* g's rows are first made, dense, in scratch */
    size_t g_bytes;   /* of these */
    const char *g_at; /* (rows, out) */
    int64_t g_row, g_col;
    int64_t x_row;
    int64_t chunks, chunk; /* the bias gradient is summed by chunks of so many rows; 0: not so */
    size_t parts_bytes;    /* of their sums, in scratch behind g's rows */
    bool apart;            /* both products may run at once, each with a workspace of its own */
} gradients;

/* All dimensions but the last as one. */
static bool has_rows(const ct_view *v, int64_t *rows, int64_t *row) {
    const int last = v->ndim - 1;
    *rows = 1;
    *row = v->dims[last];
    for (int i = last - 1; i >= 0; i--) {
        if (v->dims[i] == 1) continue;
        if (*rows == 1) *row = v->strides[i];
        else if (v->strides[i] != *rows * *row) return false;
        *rows *= v->dims[i];
    }
    return true;
}

static ct_view *result(const ct_call *call, int i) { return i < call->n_out ? call->out[i] : NULL; }

/* As an epilogue of the product for the weights the library sums a large g in a kernel of its own, at half the rate of memory; ours is
 * faster. How it is divided depends on sizes alone, so the bits do as well. */
static void divide_sums(gradients *r) {
    enum { LARGE = 1 << 21, BLOCKS = 1024, LEAST_ROWS = 64 };
    const int64_t size = (int64_t)ct_cuda_dtype_size(r->dtype), pack = 16 / size;
    const bool packed = r->g_col == 1 && r->out % pack == 0 && r->g_row % pack == 0 && (uintptr_t)r->g_at % 16 == 0;
    if (!r->dbias || !packed || r->rows * r->out < LARGE) return;
    const int64_t columns = (r->out / pack + 31) / 32, most = (r->rows + LEAST_ROWS - 1) / LEAST_ROWS;
    const int64_t wanted = (BLOCKS + columns - 1) / columns, chunks = wanted < most ? wanted : most;
    r->chunk = (r->rows + chunks - 1) / chunks;
    r->chunks = (r->rows + r->chunk - 1) / r->chunk;
    r->parts_bytes = aligned((size_t)(r->chunks * r->out) * (r->dtype == CT_F64 ? sizeof(double) : sizeof(float)));
}

/* Why not, or NULL. scratch may be NULL: then only sizes are right. */
static const char *gradients_of(const ct_call *call, char *scratch, gradients *r) {
    int64_t rows;
    *r = (gradients){.g = call->in[0],
                     .y = call->in[1],
                     .x = call->in[2],
                     .w = call->in[3],
                     .dx = result(call, 0),
                     .dw = result(call, 1),
                     .dbias = result(call, 2),
                     .dtype = call->in[0]->dtype,
                     .activation = (int)((const linear_grad_attrs *)call->attrs)->activation};
    r->wide_x = r->dx && r->dx->dtype != r->dtype;
    r->wide_w = (r->dw && r->dw->dtype != r->dtype) || (r->dbias && r->dbias->dtype != r->dtype);
    if (r->dtype > CT_BF16) return "it is for floats";
    if ((r->dx && !r->w) || (r->dw && !r->x)) return "an operand is missing";
    if (!r->dx && !r->dw) return "there is no product";
    if (is_half(r->dtype) && r->activation != CT_ACT_NONE && r->activation != CT_ACT_RELU)
        return "a result in half precision does not tell the derivative";
    r->out = r->g->dims[r->g->ndim - 1];
    r->in = r->w ? r->w->dims[1] : r->x->dims[r->x->ndim - 1];
    const ct_view *made[] = {r->dx, r->dw, r->dbias};
    for (int i = 0; i < 3; i++)
        if (made[i] && !ct_cuda_is_dense(made[i])) return "a result is not dense";
    if (r->dw && !has_rows(r->x, &rows, &r->x_row)) return "x has no rows at one distance";
    r->copies = r->activation != CT_ACT_NONE || !has_rows(r->g, &r->rows, &r->g_row);
    r->g_col = r->g->strides[r->g->ndim - 1];
    /* as the library wants it: rows or columns next to each other, and none twice */
    r->copies = r->copies || !((r->g_col == 1 && r->g_row >= r->out) || (r->g_row == 1 && r->g_col >= r->rows));
    r->g_at = ct_cuda_address(r->g);
    if (r->copies) {
        r->rows = r->out ? ct_cuda_count(r->g) / r->out : 0;
        r->g_row = r->out;
        r->g_col = 1;
        r->g_at = scratch;
        r->g_bytes = aligned((size_t)ct_cuda_count(r->g) * ct_cuda_dtype_size(r->dtype));
    }
    if (!r->rows || !r->out || !r->in) return "there is nothing to multiply";
    divide_sums(r);
    r->apart = r->dx && r->dw && ct_cuda_leaves_room((double)r->rows * (double)r->out * (double)r->in);
    return NULL;
}

/* dx (rows, in) = g (rows, out) w (out, in) */
static ct_cuda_product product_of_dx(const gradients *r) {
    return (ct_cuda_product){.a = r->g_at,
                             .b = ct_cuda_address(r->w),
                             .c = ct_cuda_address(r->dx),
                             .m = r->rows,
                             .n = r->in,
                             .k = r->out,
                             .a_row = r->g_row,
                             .a_col = r->g_col,
                             .b_row = r->w->strides[0],
                             .b_col = r->w->strides[1],
                             .c_row = r->in,
                             .c_col = 1,
                             .wide = r->wide_x,
                             .batches = 1};
}

/* dw (out, in) = g' (out, rows) x (rows, in) */
static ct_cuda_product product_of_dw(const gradients *r) {
    return (ct_cuda_product){.a = r->g_at,
                             .b = ct_cuda_address(r->x),
                             .c = ct_cuda_address(r->dw),
                             .m = r->out,
                             .n = r->in,
                             .k = r->rows,
                             .a_row = r->g_col,
                             .a_col = r->g_row,
                             .b_row = r->x_row,
                             .b_col = r->x->strides[r->x->ndim - 1],
                             .c_row = r->in,
                             .c_col = 1,
                             .wide = r->wide_w,
                             .batches = 1};
}

/* With the sums of g's columns as an epilogue, where they are wanted. */
static bool dw_to_blas(const ct_call *call, const gradients *r, const ct_cuda_product *p, ct_cuda_blas_product *blas) {
    if (!ct_cuda_product_to_blas(call, p, r->dtype, blas)) return false;
    if (!r->dbias || r->chunks) return true;
    blas->epilogue = CT_CUDA_BIAS_GRADIENT;
    blas->bias = ct_cuda_address(r->dbias);
    return true;
}

static const char *gradients_can(const ct_call *call) {
    gradients r;
    ct_cuda_blas_product blas;
    size_t workspace;
    const char *reason = gradients_of(call, NULL, &r);
    if (reason) return reason;
    if (call->flags & CT_CALL_LASTING) return "it could not stop for an error";
    if (!ct_cuda_blas_there()) return "there is no cuBLASLt";
    if (r.dx) {
        const ct_cuda_product p = product_of_dx(&r);
        if (!ct_cuda_product_to_blas(call, &p, r.dtype, &blas)) return "the strides of w";
    }
    if (!r.dw) return NULL;
    const ct_cuda_product p = product_of_dw(&r);
    if (!dw_to_blas(call, &r, &p, &blas)) return "the strides of x";
    return ct_cuda_blas_takes(call, &blas, &workspace) ? NULL : "the library has no such epilogue";
}

/* Without the library; where it is there, the lowering's products by it are better than tiles. */
static const char *gradients_tiles_can(const ct_call *call) {
    gradients r;
    return ct_cuda_blas_there() ? "there is cuBLASLt" : gradients_of(call, NULL, &r);
}

static size_t workspace_of_dx(const ct_call *call, const gradients *r) {
    ct_cuda_blas_product blas;
    size_t workspace = 0;
    const ct_cuda_product p = product_of_dx(r);
    if (ct_cuda_product_to_blas(call, &p, r->dtype, &blas)) ct_cuda_blas_takes(call, &blas, &workspace);
    return workspace;
}

static size_t workspace_of_dw(const ct_call *call, const gradients *r) {
    ct_cuda_blas_product blas;
    size_t workspace = 0;
    const ct_cuda_product p = product_of_dw(r);
    if (dw_to_blas(call, r, &p, &blas)) ct_cuda_blas_takes(call, &blas, &workspace);
    return aligned(workspace);
}

static size_t gradients_scratch(const ct_call *call) {
    gradients r;
    if (gradients_of(call, NULL, &r)) return 0;
    const size_t dx = r.dx ? workspace_of_dx(call, &r) : 0, dw = r.dw ? workspace_of_dw(call, &r) : 0;
    return r.g_bytes + r.parts_bytes + (r.apart ? dx + dw : larger(dx, dw));
}

static bool slope(const ct_call *call, const gradients *r) {
    ct_linear_slope a = {.g = ct_cuda_address(r->g),
                         .y = r->activation != CT_ACT_NONE ? ct_cuda_address(r->y) : NULL,
                         .out = ct_cuda_scratch(call),
                         .activation = r->activation};
    const ct_cuda_view views[] = {ct_cuda_view_of(r->g), ct_cuda_view_of(a.y ? r->y : r->g)};
    a.nest = ct_cuda_nest_of(views, 2);
    a.packed = ct_cuda_is_dense(r->g) && (!a.y || ct_cuda_is_dense(r->y)) &&
               ((uintptr_t)a.g | (uintptr_t)a.y | (uintptr_t)a.out) % 16 == 0;
    const int64_t each = a.packed ? 16 / (int64_t)ct_cuda_dtype_size(r->dtype) : 1;
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, (a.nest.total + each - 1) / each, 256), .block = 256};
    return ct_cuda_launch(call, &slope_functions[r->dtype], shape, &a);
}

static bool sum_columns(const ct_call *call, const gradients *r) {
    ct_linear_sums a = {.g = r->g_at,
                        .out = ct_cuda_address(r->dbias),
                        .rows = r->rows,
                        .n = r->out,
                        .g_row = r->g_row,
                        .g_col = r->g_col,
                        .wide = r->wide_w};
    const int64_t threads = (r->out + CT_LINEAR_COLUMNS - 1) / CT_LINEAR_COLUMNS * 256;
    return ct_cuda_launch(call, &sums_functions[r->dtype],
                          (ct_cuda_shape){.grid = ct_cuda_blocks(call, threads, 256), .block = 256}, &a);
}

static bool sum_chunks(const ct_call *call, const gradients *r) {
    char *parts = ct_cuda_scratch(call) + r->g_bytes;
    const int64_t columns = (r->out * (int64_t)ct_cuda_dtype_size(r->dtype) / 16 + 31) / 32;
    ct_linear_parts a = {
        .g = r->g_at, .out = parts, .rows = r->rows, .n = r->out, .g_row = r->g_row, .chunk = r->chunk};
    ct_linear_sums b = {.g = parts,
                        .out = ct_cuda_address(r->dbias),
                        .rows = r->chunks,
                        .n = r->out,
                        .g_row = r->out,
                        .g_col = 1,
                        .wide = r->wide_w};
    const int64_t threads = (r->out + CT_LINEAR_COLUMNS - 1) / CT_LINEAR_COLUMNS * 256;
    return ct_cuda_launch(call, &parts_functions[r->dtype],
                          (ct_cuda_shape){.grid = (unsigned)columns, .grid_y = (unsigned)r->chunks, .block = 256},
                          &a) &&
           ct_cuda_launch(call, &total_functions[r->dtype],
                          (ct_cuda_shape){.grid = ct_cuda_blocks(call, threads, 256), .block = 256}, &b);
}

/* The gradients of weights and bias, with `room` bytes of scratch. */
static bool make_dw(const ct_call *call, const gradients *r, char *workspace, size_t room) {
    ct_cuda_blas_product blas;
    if (!r->dw) return !r->dbias || r->chunks || sum_columns(call, r);
    ct_cuda_product p = product_of_dw(r);
    bool ok = true, refused = !dw_to_blas(call, r, &p, &blas);
    if (!refused) ok = ct_cuda_blas_multiply(call, &blas, workspace, room, &refused);
    if (!refused) return ok;
    return ct_cuda_product_tiles(call, &p, r->dtype) && (!r->dbias || r->chunks || sum_columns(call, r));
}

static bool make_dx(const ct_call *call, const gradients *r, char *workspace, size_t room) {
    ct_cuda_blas_product blas;
    if (!r->dx) return true;
    ct_cuda_product p = product_of_dx(r);
    bool ok = true, refused = !ct_cuda_product_to_blas(call, &p, r->dtype, &blas);
    if (!refused) ok = ct_cuda_blas_multiply(call, &blas, workspace, room, &refused);
    return refused ? ct_cuda_product_tiles(call, &p, r->dtype) : ok;
}

static bool make_both(const ct_call *call, const gradients *r, char *workspace, size_t room) {
    const size_t first = workspace_of_dw(call, r);
    ct_cuda_branch branch;
    if (first > room) return make_dw(call, r, workspace, room) && make_dx(call, r, workspace, room);
    if (!ct_cuda_branch_begin(call, &branch)) return false;
    const bool ok = make_dw(&branch.call, r, workspace, first) && make_dx(call, r, workspace + first, room - first);
    return ct_cuda_branch_end(call, &branch) && ok;
}

static bool gradients_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    gradients r;
    char *scratch = ct_cuda_scratch(call);
    const char *reason = gradients_of(call, scratch, &r);
    /* scratch was asked for where the addresses were aligned otherwise */
    if (r.g_bytes + r.parts_bytes > call->scratch.bytes) r.chunks = 0, r.parts_bytes = 0;
    if (reason || r.g_bytes > call->scratch.bytes)
        return ct_cuda_host->fail(CT_ERR_STATE, call->op->name, "it was not asked for: %s",
                                  reason ? reason : "scratch");
    char *workspace = scratch + r.g_bytes + r.parts_bytes;
    const size_t room = call->scratch.bytes - r.g_bytes - r.parts_bytes;
    if (!((!r.copies || slope(call, &r)) && (!r.chunks || sum_chunks(call, &r))))
        return false; /* while g is in cache */
    if (r.apart) return make_both(call, &r, workspace, room);
    return make_dw(call, &r, workspace, room) && make_dx(call, &r, workspace, room);
}

/* ---- Small gradients ---- */

/* Both products as small ones, of g and y as they are; false: one of them is not. */
static bool small_products(const ct_call *call, gradients *r, ct_small_product *dx, ct_small_product *dw) {
    int64_t rows, y_row = 0;
    if (gradients_of(call, NULL, r) || r->dtype != CT_F32) return false;
    const bool slopes = r->activation != CT_ACT_NONE;
    if (!has_rows(r->g, &r->rows, &r->g_row) || (slopes && (!has_rows(r->y, &rows, &y_row) || y_row != r->g_row)))
        return false;
    r->g_col = r->g->strides[r->g->ndim - 1];
    r->g_at = ct_cuda_address(r->g);
    if (r->g_col != 1 || (slopes && r->y->strides[r->y->ndim - 1] != 1)) return false;
    const char *y = slopes ? ct_cuda_address(r->y) : NULL;
    if (r->dx) {
        ct_cuda_product p = product_of_dx(r);
        p.activation = r->activation;
        if (!ct_small_product_of(call, &p, y, true, false, dx)) return false;
    }
    if (!r->dw) return !r->dbias;
    ct_cuda_product p = product_of_dw(r);
    p.activation = r->activation;
    if (!ct_small_product_of(call, &p, y, false, false, dw)) return false;
    if (r->dbias) dw->sums = (float *)(void *)ct_cuda_address(r->dbias);
    return true;
}

static const char *small_gradients_can(const ct_call *call) {
    gradients r;
    ct_small_product dx, dw;
    return small_products(call, &r, &dx, &dw) ? NULL : "it is not small";
}

static bool small_gradients_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    gradients r;
    ct_small_product dx, dw;
    if (!small_products(call, &r, &dx, &dw))
        return ct_cuda_host->fail(CT_ERR_STATE, call->op->name, "it was not asked for: it is not small");
    return ct_small_gradients(call, r.dx ? &dx : NULL, r.dw ? &dw : NULL);
}

CT_CUDA_KERNELS(matmul_linear) = {
    CT_CANDIDATES(linear_fused, {"small", small_can, NULL, small_run},
                  {"cublaslt", linear_blas_can, linear_scratch, linear_blas},
                  {"cublaslt_aside", aside_can, aside_scratch, linear_aside},
                  {"tiles", linear_can, NULL, linear_tiles}),
    CT_CANDIDATES(linear_grad, {"small", small_gradients_can, NULL, small_gradients_run},
                  {"cublaslt", gradients_can, gradients_scratch, gradients_run},
                  {"tiles", gradients_tiles_can, gradients_scratch, gradients_run}),
    {0},
};
