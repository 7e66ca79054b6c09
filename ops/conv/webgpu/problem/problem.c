/* The geometry of a convolution, from the views and options of a call. infer has checked it. */
#include "ops/conv/webgpu/problem/problem.h"

#include "gen/conv.attrs.h"

/* The option of axis i: of a list of one it is that of every axis. */
static int64_t listed(const ct_dims *list, int i, int64_t normal) {
    return list->n == 0 ? normal : list->d[list->n == 1 ? 0 : i];
}

static void image_strides(const ct_view *v, bool last, int64_t *n, int64_t *c, int64_t *s) {
    const int rank = v->ndim - 2;
    *n = v->strides[0];
    *c = v->strides[last ? v->ndim - 1 : 1];
    for (int d = 0; d < 3; d++) s[d] = d < 3 - rank ? 0 : v->strides[(last ? 1 : 2) + d - (3 - rank)];
}

/* x and y are images, of which one may be made up; kernel has the weight's spatial sizes. */
static void resolve(ct_wgpu_conv *p, const ct_view *x, const ct_view *y, const int64_t *kernel, const ct_dims *strides,
                    const ct_dims *dilations, const ct_dims *pads, int64_t groups, bool last) {
    const int rank = x->ndim - 2, spatial = last ? 1 : 2, channel = last ? x->ndim - 1 : 1;
    p->batch = x->dims[0];
    p->groups = groups;
    p->in_each = x->dims[channel] / groups;
    p->out_each = y->dims[channel] / groups;
    p->last = last;
    p->taps = 1;
    image_strides(x, last, &p->x_n, &p->x_c, p->x_s);
    image_strides(y, last, &p->y_n, &p->y_c, p->y_s);
    for (int d = 0; d < 3; d++) {
        const int i = d - (3 - rank);
        p->in[d] = p->out[d] = p->kernel[d] = p->stride[d] = p->dilation[d] = 1;
        p->before[d] = 0;
        if (i < 0) continue;
        p->in[d] = x->dims[spatial + i], p->out[d] = y->dims[spatial + i], p->kernel[d] = kernel[i];
        p->stride[d] = listed(strides, i, 1), p->dilation[d] = listed(dilations, i, 1);
        p->before[d] = pads->n == 2 * rank ? pads->d[2 * i] : listed(pads, i, 0);
        p->taps *= p->kernel[d];
        if (p->out[d] <= 1) p->stride[d] = 1; /* of one window it says nothing */
    }
}

static void weight_strides(ct_wgpu_conv *p, const ct_view *w) {
    const int rank = w->ndim - 2;
    p->w_o = w->strides[p->last ? rank + 1 : 0];
    p->w_i = w->strides[p->last ? rank : 1];
    for (int d = 0; d < 3; d++) p->w_k[d] = d < 3 - rank ? 0 : w->strides[(p->last ? 0 : 2) + d - (3 - rank)];
}

static ct_wgpu_conv weight_grad(const ct_call *call) {
    const conv_weight_grad_attrs *a = call->attrs;
    ct_wgpu_conv p = {.kind = CT_WGPU_CONV_WEIGHT_GRAD, .x = call->in[0], .y = call->in[1], .w = call->out[0]};
    p.bias_grad = call->n_out > 1 ? call->out[1] : NULL;
    resolve(&p, p.x, p.y, a->kernel.d, &a->strides, &a->dilations, &a->pads, a->groups, a->channels_last);
    if (p.w) weight_strides(&p, p.w);
    return p;
}

ct_wgpu_conv ct_wgpu_conv_of(const ct_call *call) {
    if (strcmp(call->op->name, CT_OP_NAME_conv_weight_grad) == 0) return weight_grad(call);
    const ct_view *w = call->in[1];
    ct_wgpu_conv p = {.w = w, .bias = call->in[2]};
    if (strcmp(call->op->name, CT_OP_NAME_conv_input_grad) == 0) {
        const conv_input_grad_attrs *a = call->attrs;
        p.kind = CT_WGPU_CONV_INPUT_GRAD, p.x = call->out[0], p.y = call->in[0];
        resolve(&p, p.x, p.y, w->dims + (a->channels_last ? 0 : 2), &a->strides, &a->dilations, &a->pads, a->groups,
                a->channels_last);
    } else if (strcmp(call->op->name, CT_OP_NAME_conv_fused) == 0) {
        const conv_fused_attrs *a = call->attrs;
        p.x = call->in[0], p.y = call->out[0], p.residual = call->in[3], p.activation = (int)a->activation;
        resolve(&p, p.x, p.y, w->dims + (a->channels_last ? 0 : 2), &a->strides, &a->dilations, &a->pads, a->groups,
                a->channels_last);
        if (p.residual) image_strides(p.residual, p.last, &p.r_n, &p.r_c, p.r_s);
    } else {
        const conv_attrs *a = call->attrs;
        p.x = call->in[0], p.y = call->out[0];
        resolve(&p, p.x, p.y, w->dims + (a->channels_last ? 0 : 2), &a->strides, &a->dilations, &a->pads, a->groups,
                a->channels_last);
    }
    weight_strides(&p, w);
    return p;
}

int64_t ct_wgpu_conv_line(int64_t width) {
    const int64_t padded = (width + 3) / 4 * 4;
    return padded * 5 <= width * 6 ? padded : width;
}
