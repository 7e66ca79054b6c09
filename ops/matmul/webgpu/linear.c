/* linear and its gradients on WebGPU. Bias and activation are what the product ends with; in gradients the slope of the
 * activation is what the product reads g through, and the bias gradient comes out of the product for the weights, as
 * one more column. */
#include "backends/webgpu/product.h"

#include "gen/matmul.attrs.h"

/* ---- Forward ---- */

static ct_wgpu_product forward(const ct_call *call) {
    const ct_view *x = call->in[0], *w = call->in[1], *y = call->out[0];
    const int last = x->ndim - 1;
    ct_wgpu_product p = {.a = x, /* (..., in) */
                         .b = w, /* (out, in), read as its transpose */
                         .c = y,
                         .bias = call->in[2],
                         .activation = (int)((const linear_fused_attrs *)call->attrs)->activation};
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
    ct_wgpu_product_fold(&p);
    return p;
}

static const char *forward_can(const ct_call *call) {
    const ct_wgpu_product p = forward(call);
    const char *reason = ct_wgpu_refuses(call);
    return reason ? reason : ct_wgpu_product_refuses(&p);
}

static size_t forward_scratch(const ct_call *call) {
    const ct_wgpu_product p = forward(call);
    return ct_wgpu_product_scratch(call, &p);
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_product p = forward(call);
    return ct_wgpu_product_run(call, &p, 0);
}

/* ---- Gradients ---- */

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

typedef struct gradients {
    ct_wgpu_product dx, dw; /* c NULL: not wanted */
} gradients;

static ct_view *result(const ct_call *call, int i) { return i < call->n_out ? call->out[i] : NULL; }

/* Why not, or NULL. */
static const char *gradients_of(const ct_call *call, gradients *r) {
    const ct_view *g = call->in[0], *x = call->in[2], *w = call->in[3];
    const ct_view *dx = result(call, 0), *dw = result(call, 1), *dbias = result(call, 2);
    const int activation = (int)((const linear_grad_attrs *)call->attrs)->activation;
    const ct_view *y = activation == CT_ACT_NONE ? NULL : call->in[1];
    const bool half = g->dtype == CT_F16 || g->dtype == CT_BF16;
    int64_t rows, g_row, y_row = 0, x_row = 0, dx_row = 0, n;
    const int last = g->ndim - 1;
    if ((dx && !w) || (dw && !x)) return "an operand is missing";
    if (!dw && dbias) return "there is no product to sum in";
    if (activation == CT_ACT_GELU || activation == CT_ACT_SILU) return "the result does not tell the derivative";
    if (half && activation > CT_ACT_RELU) return "a result in half precision does not tell the derivative";
    if (!has_rows(g, &rows, &g_row)) return "g has no rows at one distance";
    if (y && !has_rows(y, &n, &y_row)) return "y has no rows at one distance";
    if (dw && !has_rows(x, &n, &x_row)) return "x has no rows at one distance";
    if (dx && !has_rows(dx, &n, &dx_row)) return "dx has no rows at one distance";
    const int64_t out = g->dims[last], g_col = g->strides[last], y_col = y ? y->strides[last] : 0;
    *r = (gradients){0};
    if (dx) /* (rows, in) = g (rows, out) w (out, in) */
        r->dx = (ct_wgpu_product){.a = g,
                                  .b = w,
                                  .c = dx,
                                  .y = y,
                                  .m = rows,
                                  .n = w->dims[1],
                                  .k = out,
                                  .a_row = g_row,
                                  .a_col = g_col,
                                  .b_row = w->strides[0],
                                  .b_col = w->strides[1],
                                  .c_row = dx_row,
                                  .c_col = dx->strides[last],
                                  .y_row = y_row,
                                  .y_col = y_col,
                                  .slope = activation,
                                  .batches = 1};
    if (dw) /* (out, in) = g' (out, rows) x (rows, in) */
        r->dw = (ct_wgpu_product){.a = g,
                                  .b = x,
                                  .c = dw,
                                  .y = y,
                                  .extra = dbias,
                                  .m = out,
                                  .n = x->dims[x->ndim - 1],
                                  .k = rows,
                                  .a_row = g_col,
                                  .a_col = g_row,
                                  .b_row = x_row,
                                  .b_col = x->strides[x->ndim - 1],
                                  .c_row = dw->strides[0],
                                  .c_col = dw->strides[1],
                                  .y_row = y_col,
                                  .y_col = y_row,
                                  .slope = activation,
                                  .batches = 1};
    return NULL;
}

static const char *gradients_can(const ct_call *call) {
    gradients r;
    const char *reason = ct_wgpu_refuses(call);
    if (!reason) reason = gradients_of(call, &r);
    if (!reason && r.dx.c) reason = ct_wgpu_product_refuses(&r.dx);
    if (!reason && r.dw.c) reason = ct_wgpu_product_refuses(&r.dw);
    return reason;
}

/* The second product uses what the first did: they run one after the other. */
static size_t gradients_scratch(const ct_call *call) {
    gradients r;
    if (gradients_of(call, &r)) return 0;
    const size_t dx = r.dx.c ? ct_wgpu_product_scratch(call, &r.dx) : 0,
                 dw = r.dw.c ? ct_wgpu_product_scratch(call, &r.dw) : 0;
    return dx > dw ? dx : dw;
}

static bool gradients_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    gradients r;
    const char *reason = gradients_of(call, &r);
    if (reason) return ct_wgpu_host->fail(CT_ERR_STATE, call->op->name, "it was not asked for: %s", reason);
    return (!r.dw.c || ct_wgpu_product_run(call, &r.dw, 0)) && (!r.dx.c || ct_wgpu_product_run(call, &r.dx, 0));
}

CT_WGPU_KERNELS(matmul_linear) = {
    CT_CANDIDATES(linear_fused, {"tiles", forward_can, forward_scratch, forward_run}),
    CT_CANDIDATES(linear_grad, {"tiles", gradients_can, gradients_scratch, gradients_run}),
    {0},
};
