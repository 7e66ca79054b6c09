/* The public ops of convolution: they check their options, resolve the padding, and hand on to the internal ops. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/activation.h"
#include "ops/conv/conv.h"

#include "ops/op_impl.h"

static atomic_int exact_wanted; /* 0: not asked yet, 1: no, 2: yes */

static bool exact_everywhere(void) {
    int state = atomic_load_explicit(&exact_wanted, memory_order_relaxed);
    if (!state) {
        const char *text = getenv("CT_EXACT_CONV");
        const int wanted = text && *text && strcmp(text, "0") != 0 ? 2 : 1;
        /* unless somebody has set it meanwhile: then state becomes that */
        if (atomic_compare_exchange_strong(&exact_wanted, &state, wanted)) state = wanted;
    }
    return state == 2;
}

bool ct_set_exact_conv(bool on) {
    bool before = exact_everywhere();
    atomic_store_explicit(&exact_wanted, on ? 2 : 1, memory_order_relaxed);
    return before;
}

bool ct__conv_check_residual(const ct_infer *infer, const ct_view *residual) {
    if (!residual) return true;
    const ct_view *y = &infer->out[0];
    bool same = residual->ndim == y->ndim && residual->dtype == y->dtype;
    for (int i = 0; same && i < y->ndim; i++) same = residual->dims[i] == y->dims[i];
    if (same) return true;
    return ct_infer_fail(infer, residual->dtype == y->dtype ? CT_ERR_SHAPE : CT_ERR_DTYPE,
                         "residual is %s; it has to be %s, as the result", ct_view_text(residual), ct_view_text(y));
}

/* ---- Forward ---- */

/* The options of a public op, whose attribute struct has a type of its own. */
typedef struct forward {
    int rank;
    ct_conv_options options;
    int activation;
    bool exact;
} forward;

#define FORWARD(a, n, channels)                                                 \
    (&(forward){.rank = (n),                                                    \
                .options = {.window = {.strides = &(a)->strides,                \
                                       .dilations = &(a)->dilations,            \
                                       .pads = &(a)->pads,                      \
                                       .pad_mode = (ct_pad_mode)(a)->pad_mode}, \
                            .groups = (channels),                               \
                            .channels_last = (a)->channels_last},               \
                .activation = (a)->activation,                                  \
                .exact = (a)->exact})

static bool resolve_forward(ct_infer *infer, const forward *f, ct_conv_geometry *geometry) {
    if (!ct__conv_resolve(infer, geometry, f->rank, infer->in[0], infer->in[1], infer->in[2], &f->options))
        return false;
    infer->out[0].dtype = infer->in[0]->dtype;
    infer->out[0].ndim = ct__conv_y_dims(geometry, infer->out[0].dims);
    return ct__conv_check_residual(infer, infer->in[3]);
}

static bool forward_infer(ct_infer *infer, const forward *f) {
    ct_conv_geometry geometry;
    return resolve_forward(infer, f, &geometry);
}

/* The internal op takes bias and what comes behind it, unless a derivative will need what it does not keep. */
static bool is_apart(const forward *f, ct_dtype dtype, bool recording) {
    return recording && !ct__activation_by_result(f->activation, dtype);
}

_Static_assert(sizeof(conv_fused_attrs) <= CT_HANDED_BYTES && sizeof(conv_input_grad_attrs) <= CT_HANDED_BYTES,
               "attributes of the internal ops fit");

static void take_inputs(ct_handing *h, const ct_op *to, int n) {
    h->to = to;
    h->n_in = n;
    for (int i = 0; i < n; i++) h->in[i] = (signed char)i;
}

static bool forward_hand_on(ct_handing *h, const forward *f) {
    ct_conv_geometry g;
    if (is_apart(f, h->infer.in[0]->dtype, h->recording)) return true;
    if (!resolve_forward(&h->infer, f, &g)) return false;
    const bool exact = f->exact || exact_everywhere();
    if (h->infer.in[3] || f->activation != CT_ACT_NONE) {
        take_inputs(h, &ct__op_conv_fused, 4);
        conv_fused_attrs *a = h->attrs;
        memset(a, 0, sizeof *a);
        a->activation = f->activation;
        ct__window_lists(&g.window, &a->strides, &a->dilations, &a->pads);
        a->groups = g.groups;
        a->channels_last = g.channels_last;
        a->exact = exact;
        return true;
    }
    take_inputs(h, &ct__op_conv, 3);
    conv_attrs *a = h->attrs;
    if (h->recording) memset(a, 0, sizeof *a); /* a node keeps all of it */
    ct__window_lists(&g.window, &a->strides, &a->dilations, &a->pads);
    a->groups = g.groups;
    a->channels_last = g.channels_last;
    a->exact = exact;
    return true;
}

static bool recorded(ct_tensor *const *in, int n) {
    bool any = false;
    for (int i = 0; i < n; i++) any |= in[i] && ct_requires_grad(in[i]);
    return any && ct_grad_enabled();
}

/* What takes several ops is computed in f32 for half types, and rounded once at the end. */
typedef struct operands {
    ct_tensor *x, *w, *bias, *residual;
    ct_dtype dtype;
} operands;

static operands operands_of(const ct_lower *l, bool several) {
    operands o = {l->in[0], l->in[1], l->in[2], l->in[3], ct_dtype_of(l->in[0])};
    if (!several || (o.dtype != CT_F16 && o.dtype != CT_BF16)) return o;
    o.x = cast(o.x, CT_F32);
    o.w = cast(o.w, CT_F32);
    if (o.bias) o.bias = cast(o.bias, CT_F32);
    if (o.residual) o.residual = cast(o.residual, CT_F32);
    return o;
}

static ct_tensor *result_of(ct_tensor *y, const operands *o) {
    return y && ct_dtype_of(y) != o->dtype ? cast(y, o->dtype) : y;
}

static void forward_lower(ct_lower *l, const forward *f) {
    const ct_view *xs = &l->in[0]->view, *ws = &l->in[1]->view;
    ct_conv_geometry g;
    if (!ct__conv_resolve(NULL, &g, f->rank, xs, ws, NULL, &f->options)) return;
    const bool exact = f->exact || exact_everywhere();
    /* Some derivatives need the argument, which the fused op does not keep. */
    const bool apart = is_apart(f, ct_dtype_of(l->in[0]), recorded(l->in, 4));
    const int activation = apart ? CT_ACT_NONE : f->activation;
    const operands o = operands_of(l, apart);
    const ct_dims strides = ct__window_strides(&g.window), dilations = ct__window_dilations(&g.window),
                  pads = ct__window_pads(&g.window);
    ct_tensor *y;
    if (o.residual || activation != CT_ACT_NONE)
        y = conv_fused(o.x, o.w, .bias = o.bias, .residual = o.residual, .strides = strides, .dilations = dilations,
                       .pads = pads, .groups = g.groups, .channels_last = g.channels_last, .activation = activation,
                       .exact = exact);
    else
        y = conv(o.x, o.w, .bias = o.bias, .strides = strides, .dilations = dilations, .pads = pads, .groups = g.groups,
                 .channels_last = g.channels_last, .exact = exact);
    l->out[0] = result_of(apart ? ct__activated(y, f->activation) : y, &o);
}

bool conv1d_infer(ct_infer *infer) {
    const conv1d_attrs *a = infer->attrs;
    return forward_infer(infer, FORWARD(a, 1, a->groups));
}

bool conv1d_hand_on(ct_handing *h) {
    const conv1d_attrs *a = h->infer.attrs;
    return forward_hand_on(h, FORWARD(a, 1, a->groups));
}

void conv1d_lower(ct_lower *l) {
    const conv1d_attrs *a = l->attrs;
    forward_lower(l, FORWARD(a, 1, a->groups));
}

bool conv2d_infer(ct_infer *infer) {
    const conv2d_attrs *a = infer->attrs;
    return forward_infer(infer, FORWARD(a, 2, a->groups));
}

bool conv2d_hand_on(ct_handing *h) {
    const conv2d_attrs *a = h->infer.attrs;
    return forward_hand_on(h, FORWARD(a, 2, a->groups));
}

void conv2d_lower(ct_lower *l) {
    const conv2d_attrs *a = l->attrs;
    forward_lower(l, FORWARD(a, 2, a->groups));
}

bool conv3d_infer(ct_infer *infer) {
    const conv3d_attrs *a = infer->attrs;
    return forward_infer(infer, FORWARD(a, 3, a->groups));
}

bool conv3d_hand_on(ct_handing *h) {
    const conv3d_attrs *a = h->infer.attrs;
    return forward_hand_on(h, FORWARD(a, 3, a->groups));
}

void conv3d_lower(ct_lower *l) {
    const conv3d_attrs *a = l->attrs;
    forward_lower(l, FORWARD(a, 3, a->groups));
}

bool depthwise_conv2d_infer(ct_infer *infer) {
    const depthwise_conv2d_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0], *w = infer->in[1];
    const int64_t channels = x->ndim == 4 ? x->dims[ct__image_channel(4, a->channels_last)] : 1;
    const int64_t own = w->ndim == 4 ? w->dims[a->channels_last ? 2 : 1] : 1;
    if (channels < 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it needs at least one channel", ct_view_text(x));
    if (own != 1 || (w->ndim == 4 && w->dims[a->channels_last ? 3 : 0] % channels))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "w is %s; for the %lld channels of x %s it has to be %s",
                             ct_view_text(w), (long long)channels, ct_view_text(x),
                             a->channels_last ? "[kh, kw, 1, channels * multiplier]"
                                              : "[channels * multiplier, 1, kh, kw]");
    return forward_infer(infer, FORWARD(a, 2, channels));
}

void depthwise_conv2d_lower(ct_lower *l) {
    const depthwise_conv2d_attrs *a = l->attrs;
    forward_lower(l, FORWARD(a, 2, ct_dim(l->in[0], a->channels_last ? 3 : 1)));
}

/* ---- Transposed ---- */

static bool resolve_transposed(ct_infer *infer, const forward *f, const ct_dims *output_padding,
                               ct_conv_geometry *geometry) {
    if (!ct__conv_resolve_transposed(infer, geometry, f->rank, infer->in[0], infer->in[1], infer->in[2], &f->options,
                                     output_padding))
        return false;
    int64_t dims[CT_MAX_DIMS];
    ct__infer_set(infer, 0, infer->in[0]->dtype, ct__conv_x_dims(geometry, dims), dims);
    return ct__conv_check_residual(infer, infer->in[3]);
}

static bool transposed_infer(ct_infer *infer, const forward *f, const ct_dims *output_padding) {
    ct_conv_geometry geometry;
    return resolve_transposed(infer, f, output_padding, &geometry);
}

static bool transposed_hand_on(ct_handing *h, const forward *f, const ct_dims *output_padding) {
    ct_conv_geometry g;
    if (h->infer.in[3] || f->activation != CT_ACT_NONE) return true;
    if (!resolve_transposed(&h->infer, f, output_padding, &g)) return false;
    take_inputs(h, &ct__op_conv_input_grad, 3);
    conv_input_grad_attrs *a = h->attrs;
    memset(a, 0, sizeof *a);
    a->size = ct__window_in(&g.window);
    ct__window_lists(&g.window, &a->strides, &a->dilations, &a->pads);
    a->groups = g.groups;
    a->channels_last = g.channels_last;
    a->exact = f->exact || exact_everywhere();
    return true;
}

static void transposed_lower(ct_lower *l, const forward *f, const ct_dims *output_padding) {
    const ct_view *xs = &l->in[0]->view, *ws = &l->in[1]->view;
    ct_conv_geometry g;
    if (!ct__conv_resolve_transposed(NULL, &g, f->rank, xs, ws, NULL, &f->options, output_padding)) return;
    const operands o = operands_of(l, l->in[3] || f->activation != CT_ACT_NONE);
    ct_tensor *y =
        conv_input_grad(o.x, o.w, ct__window_in(&g.window), .bias = o.bias, .strides = ct__window_strides(&g.window),
                        .dilations = ct__window_dilations(&g.window), .pads = ct__window_pads(&g.window),
                        .groups = g.groups, .channels_last = g.channels_last, .exact = f->exact || exact_everywhere());
    if (o.residual) y = add(y, o.residual);
    l->out[0] = result_of(ct__activated(y, f->activation), &o);
}

bool conv_transpose1d_infer(ct_infer *infer) {
    const conv_transpose1d_attrs *a = infer->attrs;
    return transposed_infer(infer, FORWARD(a, 1, a->groups), &a->output_paddings);
}

bool conv_transpose1d_hand_on(ct_handing *h) {
    const conv_transpose1d_attrs *a = h->infer.attrs;
    return transposed_hand_on(h, FORWARD(a, 1, a->groups), &a->output_paddings);
}

void conv_transpose1d_lower(ct_lower *l) {
    const conv_transpose1d_attrs *a = l->attrs;
    transposed_lower(l, FORWARD(a, 1, a->groups), &a->output_paddings);
}

bool conv_transpose2d_infer(ct_infer *infer) {
    const conv_transpose2d_attrs *a = infer->attrs;
    return transposed_infer(infer, FORWARD(a, 2, a->groups), &a->output_paddings);
}

bool conv_transpose2d_hand_on(ct_handing *h) {
    const conv_transpose2d_attrs *a = h->infer.attrs;
    return transposed_hand_on(h, FORWARD(a, 2, a->groups), &a->output_paddings);
}

void conv_transpose2d_lower(ct_lower *l) {
    const conv_transpose2d_attrs *a = l->attrs;
    transposed_lower(l, FORWARD(a, 2, a->groups), &a->output_paddings);
}

bool conv_transpose3d_infer(ct_infer *infer) {
    const conv_transpose3d_attrs *a = infer->attrs;
    return transposed_infer(infer, FORWARD(a, 3, a->groups), &a->output_paddings);
}

bool conv_transpose3d_hand_on(ct_handing *h) {
    const conv_transpose3d_attrs *a = h->infer.attrs;
    return transposed_hand_on(h, FORWARD(a, 3, a->groups), &a->output_paddings);
}

void conv_transpose3d_lower(ct_lower *l) {
    const conv_transpose3d_attrs *a = l->attrs;
    transposed_lower(l, FORWARD(a, 3, a->groups), &a->output_paddings);
}
