/* From a call of one of the internal ops to the problem that their kernels solve. */
#include "backends/cpu/cpu.h"
#include "ops/conv/conv.h"
#include "ops/conv/cpu/kernels.h"

#include "ops/op_impl.h"

static void *address(const ct_view *view) { return view ? ct__address(view, ct_dtype_size(view->dtype)) : NULL; }

static void forward_problem(const ct_call *call, ct_conv_problem *p) {
    const bool fused = call->op == &ct__op_conv_fused;
    const ct_view *x = call->in[0], *w = call->in[1], *bias = call->in[2], *residual = fused ? call->in[3] : NULL,
                  *y = call->out[0];
    const conv_attrs *plain = call->attrs;
    const conv_fused_attrs *attrs = call->attrs;
    const bool last = fused ? attrs->channels_last : plain->channels_last;
    p->kind = CT_CONV_FORWARD;
    if (fused) ct__conv_fused_geometry(NULL, &p->geometry, x, w, bias, attrs);
    else ct__conv_plain_geometry(NULL, &p->geometry, x, w, bias, plain);
    p->geometry.y = ct__image_strides(y, last);
    p->dtype = x->dtype;
    p->x = address(x), p->w = address(w), p->y = address(y);
    p->bias = address(bias);
    p->bias_stride = bias ? bias->strides[0] : 0;
    p->residual = address(residual);
    if (residual) p->residual_strides = ct__image_strides(residual, last);
    p->activation = fused ? attrs->activation : CT_ACT_NONE;
    p->exact = fused ? attrs->exact : plain->exact;
}

static void input_grad_problem(const ct_call *call, ct_conv_problem *p) {
    const conv_input_grad_attrs *attrs = call->attrs;
    const ct_view *g = call->in[0], *w = call->in[1], *bias = call->in[2], *x = call->out[0];
    p->kind = CT_CONV_INPUT_GRAD;
    ct__conv_input_grad_geometry(NULL, &p->geometry, g, w, bias, attrs);
    p->geometry.x = ct__image_strides(x, attrs->channels_last);
    p->dtype = g->dtype;
    p->x = address(x), p->w = address(w), p->y = address(g);
    p->bias = address(bias);
    p->bias_stride = bias ? bias->strides[0] : 0;
    p->exact = attrs->exact;
}

static void weight_grad_problem(const ct_call *call, ct_conv_problem *p) {
    const conv_weight_grad_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *g = call->in[1], *w = call->out[0];
    p->kind = CT_CONV_WEIGHT_GRAD;
    ct__conv_weight_grad_geometry(NULL, &p->geometry, x, g, attrs);
    if (w) p->geometry.w = ct__weight_strides(w, attrs->channels_last);
    p->dtype = x->dtype;
    p->x = address(x), p->w = address(w), p->y = address(g);
    p->bias_grad = call->n_out > 1 ? address(call->out[1]) : NULL;
    p->exact = attrs->exact;
}

void ct__conv_problem(const ct_call *call, ct_conv_problem *problem) {
    *problem = (ct_conv_problem){0};
    if (call->op == &ct__op_conv_weight_grad) weight_grad_problem(call, problem);
    else if (call->op == &ct__op_conv_input_grad) input_grad_problem(call, problem);
    else forward_problem(call, problem);
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
