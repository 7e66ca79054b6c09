/* Problems from calls, and how their operands lie. */
#include "ops/conv/cuda/dnn/plan.h"

#ifdef CT_CUDA_DNN
#include <string.h>

#include "ops/conv/cuda/conv.h"

#include "gen/conv.attrs.h"

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

static ct_conv_problem problem_of(int kind, const ct_view *x, const ct_view *w, const ct_view *y, bool last,
                                  const ct_dims *strides, const ct_dims *dilations, const ct_dims *pads) {
    ct_conv_problem p;
    memset(&p, 0, sizeof p);
    p.kind = kind;
    p.views[CT_CONV_X] = image(x, last), p.views[CT_CONV_W] = filter(w, last), p.views[CT_CONV_Y] = image(y, last);
    p.rank = p.views[CT_CONV_X].ndim - 2;
    const int rank = x->ndim - 2, added = p.rank - rank;
    for (int d = 0; d < p.rank; d++) {
        const int i = d - added;
        p.stride[d] = i < 0 ? 1 : ct_cuda_conv_listed(strides, i, 1);
        p.dilation[d] = i < 0 ? 1 : ct_cuda_conv_listed(dilations, i, 1);
        if (p.views[CT_CONV_W].dims[2 + d] == 1) p.dilation[d] = 1; /* of one tap it says nothing */
        if (i < 0) continue;
        const bool both = pads->n == 2 * rank;
        p.before[d] = both ? pads->d[2 * i] : ct_cuda_conv_listed(pads, i, 0);
        p.after[d] = both ? pads->d[2 * i + 1] : ct_cuda_conv_listed(pads, i, 0);
        /* What a transposed convolution's output_padding takes off is beyond the last window all the same. */
        const int64_t span = p.dilation[d] * (p.views[CT_CONV_W].dims[2 + d] - 1) + 1,
                      room = p.views[CT_CONV_X].dims[2 + d] + p.before[d] - span;
        if (p.after[d] < 0 && room >= 0 && room / p.stride[d] + 1 == p.views[CT_CONV_Y].dims[2 + d]) p.after[d] = 0;
    }
    return p;
}

ct_conv_problem ct_conv_forward_problem(const ct_call *call) {
    const conv_attrs *a = call->attrs;
    ct_conv_problem p = problem_of(CT_CONV_FORWARD, call->in[0], call->in[1], call->out[0], a->channels_last,
                                   &a->strides, &a->dilations, &a->pads);
    p.bias = call->in[2], p.exact = a->exact;
    return p;
}

ct_conv_problem ct_conv_fused_problem(const ct_call *call) {
    const conv_fused_attrs *a = call->attrs;
    ct_conv_problem p = problem_of(CT_CONV_FORWARD, call->in[0], call->in[1], call->out[0], a->channels_last,
                                   &a->strides, &a->dilations, &a->pads);
    p.bias = call->in[2], p.exact = a->exact, p.activation = a->activation;
    p.has_residual = call->in[3] != NULL;
    if (p.has_residual) p.views[CT_CONV_RESIDUAL] = image(call->in[3], a->channels_last);
    return p;
}

ct_conv_problem ct_conv_input_grad_problem(const ct_call *call) {
    const conv_input_grad_attrs *a = call->attrs;
    ct_conv_problem p = problem_of(CT_CONV_INPUT_GRAD, call->out[0], call->in[1], call->in[0], a->channels_last,
                                   &a->strides, &a->dilations, &a->pads);
    p.bias = call->in[2], p.exact = a->exact;
    return p;
}

ct_conv_problem ct_conv_weight_grad_problem(const ct_call *call) {
    const conv_weight_grad_attrs *a = call->attrs;
    ct_conv_problem p = problem_of(CT_CONV_WEIGHT_GRAD, call->in[0], call->out[0], call->in[1], a->channels_last,
                                   &a->strides, &a->dilations, &a->pads);
    p.exact = a->exact;
    return p;
}

const char *ct_conv_refuses(const ct_conv_problem *p) {
    if (p->views[CT_CONV_X].dtype > CT_BF16) return "there are convolutions of floats only";
    for (int i = CT_CONV_X; i <= CT_CONV_Y; i++) {
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

/* ---- Kernels of our own ---- */

static ct_cores_problem own_problem(const ct_conv_problem *p) {
    ct_cores_problem c = {.x = &p->views[CT_CONV_X], .w = &p->views[CT_CONV_W], .g = &p->views[CT_CONV_Y]};
    c.bias = p->kind == CT_CONV_INPUT_GRAD ? p->bias : NULL;
    for (int d = 0; d < 2; d++) c.stride[d] = p->stride[d], c.dilation[d] = p->dilation[d], c.before[d] = p->before[d];
    return c;
}

const char *ct_conv_own_refuses(const ct_call *call, const ct_conv_problem *p, size_t *scratch) {
    const ct_cores_problem c = own_problem(p);
    *scratch = 0;
    return p->kind == CT_CONV_FORWARD       ? "it is no gradient"
           : p->kind == CT_CONV_WEIGHT_GRAD ? ct_cores_weight_refuses(call, &c, scratch)
                                            : ct_cores_input_refuses(call, &c);
}

bool ct_conv_own_run(const ct_call *call, const ct_conv_problem *p, char *scratch) {
    const ct_cores_problem c = own_problem(p);
    return p->kind == CT_CONV_WEIGHT_GRAD ? ct_cores_weight_run(call, &c, scratch) : ct_cores_input_run(call, &c);
}

/* ---- Layouts ---- */

void ct_conv_packed_strides(const ct_view *view, bool last, int64_t *strides) {
    int64_t next = 1;
    if (last) strides[1] = 1, next = view->dims[1];
    for (int d = view->ndim - 1; d >= 0; d--) {
        if (last && d == 1) continue;
        strides[d] = next;
        next *= view->dims[d];
    }
}

bool ct_conv_lies(const ct_view *view, bool last) {
    int64_t strides[CT_CONV_AXES];
    ct_conv_packed_strides(view, last, strides);
    for (int d = 0; d < view->ndim; d++)
        if (view->dims[d] != 1 && view->strides[d] != strides[d]) return false;
    return (uintptr_t)ct_cuda_address(view) % CT_DNN_ALIGNMENT == 0;
}

ct_view ct_conv_packed_at(const ct_view *view, bool last, char *address) {
    ct_view v = *view;
    v.buffer = address, v.origin = 0, v.offset = 0;
    ct_conv_packed_strides(view, last, v.strides);
    return v;
}
#endif
