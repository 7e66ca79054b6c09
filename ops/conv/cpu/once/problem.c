/* From a call of one of the internal ops to the problem that their kernels solve. */
#include "backends/cpu/cpu.h"
#include "ops/conv/conv.h"
#include "ops/conv/cpu/kernels.h"

#include "ops/op_impl.h"

static void *address(const ct_view *view) { return view ? ct__address(view, ct_dtype_size(view->dtype)) : NULL; }

/* Member by member: cleared as a whole first, it would take longer than a small convolution. */
static void start(ct_conv_problem *p, ct_conv_kind kind, ct_dtype dtype, const ct_view *bias, bool exact) {
    p->kind = kind;
    p->dtype = dtype;
    p->bias = address(bias);
    p->bias_stride = bias ? bias->strides[0] : 0;
    p->residual = NULL;
    p->residual_strides = (ct_image_strides){0};
    p->activation = CT_ACT_NONE;
    p->bias_grad = NULL;
    p->exact = exact;
}

static void forward_problem(const ct_call *call, ct_conv_problem *p) {
    const conv_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *w = call->in[1], *bias = call->in[2], *y = call->out[0];
    start(p, CT_CONV_FORWARD, x->dtype, bias, attrs->exact);
    ct__conv_plain_geometry(NULL, &p->geometry, x, w, bias, attrs);
    p->geometry.y = ct__image_strides(y, attrs->channels_last);
    p->x = address(x), p->w = address(w), p->y = address(y);
}

static void fused_problem(const ct_call *call, ct_conv_problem *p) {
    const conv_fused_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *w = call->in[1], *bias = call->in[2], *residual = call->in[3], *y = call->out[0];
    start(p, CT_CONV_FORWARD, x->dtype, bias, attrs->exact);
    ct__conv_fused_geometry(NULL, &p->geometry, x, w, bias, attrs);
    p->geometry.y = ct__image_strides(y, attrs->channels_last);
    p->x = address(x), p->w = address(w), p->y = address(y);
    p->residual = address(residual);
    if (residual) p->residual_strides = ct__image_strides(residual, attrs->channels_last);
    p->activation = attrs->activation;
}

static void input_grad_problem(const ct_call *call, ct_conv_problem *p) {
    const conv_input_grad_attrs *attrs = call->attrs;
    const ct_view *g = call->in[0], *w = call->in[1], *bias = call->in[2], *x = call->out[0];
    start(p, CT_CONV_INPUT_GRAD, g->dtype, bias, attrs->exact);
    ct__conv_input_grad_geometry(NULL, &p->geometry, g, w, bias, attrs);
    p->geometry.x = ct__image_strides(x, attrs->channels_last);
    p->x = address(x), p->w = address(w), p->y = address(g);
}

static void weight_grad_problem(const ct_call *call, ct_conv_problem *p) {
    const conv_weight_grad_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *g = call->in[1], *w = call->out[0];
    start(p, CT_CONV_WEIGHT_GRAD, x->dtype, NULL, attrs->exact);
    ct__conv_weight_grad_geometry(NULL, &p->geometry, x, g, attrs);
    if (w) p->geometry.w = ct__weight_strides(w, attrs->channels_last);
    p->x = address(x), p->w = address(w), p->y = address(g);
    p->bias_grad = call->n_out > 1 ? address(call->out[1]) : NULL;
}

void ct__conv_problem(const ct_call *call, ct_conv_problem *problem) {
    if (call->op == &ct__op_conv) forward_problem(call, problem);
    else if (call->op == &ct__op_conv_fused) fused_problem(call, problem);
    else if (call->op == &ct__op_conv_input_grad) input_grad_problem(call, problem);
    else weight_grad_problem(call, problem);
    ct_window *w = &problem->geometry.window;
    for (int a = 0; a < 3; a++)
        if (w->out[a] == 1) w->stride[a] = 1; /* of one window it says nothing */
}

bool ct__conv_mostly_padding(const ct_conv_problem *problem) {
    const ct_window *w = &problem->geometry.window;
    double spanned = 1, there = 1; /* of a plane; products of large options pass what integers hold */
    for (int a = 1; a < 3; a++) {
        const double before = (double)w->before[a], in = (double)w->in[a],
                     end = (double)(w->out[a] - 1) * (double)w->stride[a] - before +
                           (double)w->dilation[a] * (double)w->kernel[a];
        spanned *= (end > in ? end : in) + (before > 0 ? before : 0);
        there *= in;
    }
    return spanned > 0x1p16 && spanned > 64 * there;
}
