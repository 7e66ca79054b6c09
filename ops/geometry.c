/* Windows and convolutions: from attributes to numbers, and what can be wrong with them. */
#include "ops/geometry.h"

#include "ops/infer.h"

enum { LIMIT = INT32_MAX }; /* of an option, so that products of two of them do not overflow */
static const int64_t FARTHEST = (int64_t)LIMIT * LIMIT; /* what a dilated kernel reaches */

static const char *axis_name(int rank, int axis) {
    static const char *const names[3][3] = {{"length"}, {"height", "width"}, {"depth", "height", "width"}};
    return names[rank - 1][axis];
}

/* infer is NULL where everything was checked before. */
#define FAIL(code, ...) (infer ? ct_infer_fail(infer, code, __VA_ARGS__) : false)

/* One number an axis: a list of 1 or rank values, each at least `least`. */
static bool per_axis(const ct_infer *infer, const char *name, const ct_dims *list, int rank, int64_t normal,
                     int64_t least, int64_t *values) {
    if (!list || list->n == 0) {
        for (int i = 0; i < rank; i++) values[i] = normal;
        return true;
    }
    if (list->n != 1 && list->n != rank)
        return FAIL(CT_ERR_VALUE, "%ss is %s; it takes 1 number or one for each of the %d spatial axes", name,
                    ct_dims_text(*list), rank);
    for (int i = 0; i < rank; i++) {
        values[i] = list->d[list->n == 1 ? 0 : i];
        if (values[i] < least || values[i] > LIMIT)
            return FAIL(CT_ERR_VALUE, "%s %lld is not possible; it has to be at least %lld and below 2^31 (%ss is %s)",
                        name, (long long)values[i], (long long)least, name, ct_dims_text(*list));
    }
    return true;
}

static bool read_pads(const ct_infer *infer, const ct_window_options *options, int rank, int64_t *before,
                      int64_t *after) {
    const ct_dims *pads = options->pads;
    for (int i = 0; i < rank; i++) before[i] = after[i] = 0;
    if (!pads || pads->n == 0) return true;
    if (pads->n != 1 && pads->n != rank && pads->n != 2 * rank)
        return FAIL(CT_ERR_VALUE,
                    "pads is %s; it takes 1 number, %d (each axis, both sides) or %d (before and after for each axis)",
                    ct_dims_text(*pads), rank, 2 * rank);
    for (int i = 0; i < pads->n; i++) {
        if (options->pad_mode != CT_EXPLICIT && pads->d[i] != 0)
            return FAIL(CT_ERR_VALUE, "pads is %s, but pad_mode %s makes its own padding; give one of them",
                        ct_dims_text(*pads), options->pad_mode == CT_SAME ? "same" : "valid");
        /* those of a derivative may cut, by as much as a kernel reaches */
        if (options->resolved && (pads->d[i] < -FARTHEST || pads->d[i] > FARTHEST))
            return FAIL(CT_ERR_VALUE, "pad %lld is not possible", (long long)pads->d[i]);
        if (!options->resolved && (pads->d[i] < 0 || pads->d[i] > LIMIT))
            return FAIL(CT_ERR_VALUE, "pad %lld is not possible; it has to be from 0 to 2^31 - 1 (pads is %s)",
                        (long long)pads->d[i], ct_dims_text(*pads));
    }
    for (int i = 0; i < rank; i++) {
        before[i] = pads->d[pads->n == 1 ? 0 : pads->n == rank ? i : 2 * i];
        after[i] = pads->d[pads->n == 1 ? 0 : pads->n == rank ? i : 2 * i + 1];
    }
    return true;
}

static void whole_axis(ct_window *w, int a) {
    w->in[a] = w->out[a] = w->kernel[a] = w->stride[a] = w->dilation[a] = 1;
    w->before[a] = w->after[a] = 0;
}

/* Lists that were written by ct__window_lists: nothing can be wrong with them. */
static bool read_resolved(ct_window *w, int rank, const int64_t *kernel, const ct_window_options *options) {
    const int first = 3 - rank;
    w->rank = rank;
    for (int a = 0; a < first; a++) whole_axis(w, a);
    for (int i = 0; i < rank; i++) {
        w->kernel[first + i] = kernel[i];
        w->stride[first + i] = options->strides->d[i];
        w->dilation[first + i] = options->dilations->d[i];
        w->before[first + i] = options->pads->d[2 * i];
        w->after[first + i] = options->pads->d[2 * i + 1];
    }
    return true;
}

static bool read_options(const ct_infer *infer, ct_window *w, int rank, const int64_t *kernel,
                         const ct_window_options *options) {
    if (!infer && options->resolved && options->strides->n == rank && options->dilations->n == rank &&
        options->pads->n == 2 * rank)
        return read_resolved(w, rank, kernel, options);
    const int first = 3 - rank;
    w->rank = rank;
    for (int a = 0; a < first; a++) whole_axis(w, a);
    for (int i = 0; i < rank; i++) {
        w->kernel[first + i] = kernel[i];
        if (kernel[i] < 1 || kernel[i] > LIMIT)
            return FAIL(CT_ERR_SHAPE, "the kernel has %s %lld; it has to be at least 1 and below 2^31",
                        axis_name(rank, i), (long long)kernel[i]);
    }
    return per_axis(infer, "stride", options->strides, rank, 1, 1, w->stride + first) &&
           per_axis(infer, "dilation", options->dilations, rank, 1, 1, w->dilation + first) &&
           read_pads(infer, options, rank, w->before + first, w->after + first);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

bool ct__window_resolve(const ct_infer *infer, ct_window *w, int rank, const int64_t *in, const int64_t *kernel,
                        const ct_window_options *options) {
    if (!read_options(infer, w, rank, kernel, options)) return false;
    for (int i = 0; i < rank; i++) {
        const int a = 3 - rank + i;
        const int64_t span = w->dilation[a] * (w->kernel[a] - 1) + 1;
        w->in[a] = in[i];
        /* a stride past the end gives one window, however long it is: kernels need not fear large ones */
        const int64_t all = ct__add(in[i], ct__add(larger(w->before[a], 0), larger(w->after[a], 0)));
        /* with ceil_mode a window may reach past the padding by less than a stride, also the first and only one */
        const int64_t slack = options->round_up ? w->stride[a] - 1 : 0;
        if (w->stride[a] > all) w->stride[a] = larger(all, 1);
        const int64_t stride = w->stride[a];
        if (options->pad_mode == CT_SAME) {
            w->out[a] = in[i] ? (in[i] - 1) / stride + 1 : 0;
            const int64_t total = larger((w->out[a] - 1) * stride + span - in[i], 0);
            w->before[a] = total / 2;
            w->after[a] = total - total / 2;
            continue;
        }
        const int64_t padded = ct__add(in[i], ct__add(w->before[a], w->after[a]));
        if (span > padded && (options->resolved || ct__sub(span, padded) <= slack)) {
            w->out[a] = ct__sub(span, padded) <= slack;
            continue;
        }
        if (span > padded)
            return FAIL(CT_ERR_SHAPE,
                        "the kernel's %s is %lld (size %lld, dilation %lld), more than the padded input's %lld "
                        "(size %lld, pads %lld and %lld)",
                        axis_name(rank, i), (long long)span, (long long)w->kernel[a], (long long)w->dilation[a],
                        (long long)padded, (long long)in[i], (long long)w->before[a], (long long)w->after[a]);
        const int64_t reach = ct__add(padded - span, options->round_up ? stride - 1 : 0);
        w->out[a] = (stride == 1 ? reach : reach / stride) + 1;
        if (options->round_up && ct__mul(w->out[a] - 1, stride) >= ct__add(in[i], w->before[a])) w->out[a]--;
    }
    return true;
}

bool ct__window_resolve_transposed(const ct_infer *infer, ct_window *w, int rank, const int64_t *out,
                                   const int64_t *kernel, const ct_window_options *options,
                                   const ct_dims *output_padding) {
    int64_t more[3];
    if (!read_options(infer, w, rank, kernel, options) ||
        !per_axis(infer, "output_padding", output_padding, rank, 0, 0, more))
        return false;
    for (int i = 0; i < rank; i++) {
        const int a = 3 - rank + i;
        const int64_t span = w->dilation[a] * (w->kernel[a] - 1) + 1, stride = w->stride[a];
        w->out[a] = out[i];
        if (more[i] >= larger(stride, w->dilation[a]))
            return FAIL(CT_ERR_VALUE, "output_padding %lld has to be below the stride or the dilation (%lld and %lld)",
                        (long long)more[i], (long long)stride, (long long)w->dilation[a]);
        if (options->pad_mode == CT_SAME) {
            if (more[i])
                return FAIL(CT_ERR_VALUE, "output_padding %lld does not go with pad_mode same, whose size is given",
                            (long long)more[i]);
            const int64_t total = larger(span - stride, 0);
            if (__builtin_mul_overflow(out[i], stride, &w->in[a]))
                return FAIL(CT_ERR_SHAPE, "the result's %s is too large", axis_name(rank, i));
            w->before[a] = total / 2;
            w->after[a] = total - total / 2;
            continue;
        }
        int64_t reach;
        if (__builtin_mul_overflow(out[i] - 1, stride, &reach))
            return FAIL(CT_ERR_SHAPE, "the result's %s is too large", axis_name(rank, i));
        w->after[a] = ct__sub(w->after[a], more[i]);
        w->in[a] = ct__sub(ct__add(reach, span), ct__add(w->before[a], w->after[a]));
        if (w->in[a] < 0)
            return FAIL(CT_ERR_SHAPE,
                        "the result's %s would be %lld: size %lld, stride %lld, kernel %lld, dilation %lld, pads %lld "
                        "and %lld, output_padding %lld",
                        axis_name(rank, i), (long long)w->in[a], (long long)out[i], (long long)stride,
                        (long long)w->kernel[a], (long long)w->dilation[a], (long long)w->before[a],
                        (long long)(w->after[a] + more[i]), (long long)more[i]);
    }
    return true;
}

static ct_dims list_of(const ct_window *w, const int64_t *values) {
    ct_dims list = {.n = w->rank};
    for (int i = 0; i < w->rank; i++) list.d[i] = values[3 - w->rank + i];
    return list;
}

ct_dims ct__window_in(const ct_window *w) { return list_of(w, w->in); }
ct_dims ct__window_out(const ct_window *w) { return list_of(w, w->out); }
ct_dims ct__window_kernel(const ct_window *w) { return list_of(w, w->kernel); }
ct_dims ct__window_strides(const ct_window *w) { return list_of(w, w->stride); }
ct_dims ct__window_dilations(const ct_window *w) { return list_of(w, w->dilation); }

ct_dims ct__window_pads(const ct_window *w) {
    ct_dims list = {.n = 2 * w->rank};
    for (int i = 0; i < w->rank; i++) {
        list.d[2 * i] = w->before[3 - w->rank + i];
        list.d[2 * i + 1] = w->after[3 - w->rank + i];
    }
    return list;
}

void ct__window_lists(const ct_window *w, ct_dims *strides, ct_dims *dilations, ct_dims *pads) {
    const int first = 3 - w->rank;
    strides->n = dilations->n = w->rank;
    pads->n = 2 * w->rank;
    for (int i = 0; i < w->rank; i++) {
        strides->d[i] = w->stride[first + i];
        dilations->d[i] = w->dilation[first + i];
        pads->d[2 * i] = w->before[first + i];
        pads->d[2 * i + 1] = w->after[first + i];
    }
}

/* The first o at or after 0 with o * stride >= at. */
static int64_t reaches(int64_t at, int64_t stride) { return at <= 0 ? 0 : (at + stride - 1) / stride; }

void ct__window_inside(const ct_window *w, int a, int64_t k, int64_t *first, int64_t *last) {
    const int64_t shift = k * w->dilation[a] - w->before[a]; /* o * stride + shift in [0, in) */
    const int64_t begin = reaches(-shift, w->stride[a]), end = reaches(w->in[a] - shift, w->stride[a]);
    *last = end < w->out[a] ? end : w->out[a];
    *first = begin < *last ? begin : *last;
}

/* ---- Images and convolutions ---- */

static const char *image_form(int rank, bool channels_last) {
    static const char *const forms[2][3] = {{"[N,C,L]", "[N,C,H,W]", "[N,C,D,H,W]"},
                                            {"[N,L,C]", "[N,H,W,C]", "[N,D,H,W,C]"}};
    return forms[channels_last][rank - 1];
}

/* What holds of every convolution, either way round: ranks, dtypes, groups. image is x, or y of a transposed one. */
static bool check_operands(const ct_infer *infer, int *rank, const ct_view *image, const char *name, const ct_view *w,
                           const ct_view *bias, const ct_conv_options *options) {
    if (*rank == 0) {
        *rank = image->ndim - 2;
        if (*rank < 1 || *rank > 3)
            return FAIL(CT_ERR_SHAPE, "%s is %s; it takes images of 1 to 3 spatial axes, [N,C,...] or channels last",
                        name, ct_view_text(image));
    }
    if (!infer) return true;
    if (!ct_dtype_is_float(image->dtype))
        return FAIL(CT_ERR_DTYPE, "%s is %s; convolutions take floats, cast it first", name, ct_view_text(image));
    if (w->dtype != image->dtype || (bias && bias->dtype != image->dtype))
        return FAIL(CT_ERR_DTYPE, "%s is %s, %s is %s; they need the same dtype, cast one of them", name,
                    ct_view_text(image), w->dtype != image->dtype ? "w" : "bias",
                    ct_view_text(w->dtype != image->dtype ? w : bias));
    if (image->ndim != *rank + 2)
        return FAIL(CT_ERR_SHAPE, "%s is %s; it has to be %s", name, ct_view_text(image),
                    image_form(*rank, options->channels_last));
    if (w->ndim != *rank + 2)
        return FAIL(CT_ERR_SHAPE, "w is %s; for %s %s it needs %d dimensions, %s", ct_view_text(w), name,
                    ct_view_text(image), *rank + 2,
                    options->channels_last ? "[kernel..., in / groups, out]" : "[out, in / groups, kernel...]");
    if (options->groups < 1)
        return FAIL(CT_ERR_VALUE, "groups is %lld; it has to be at least 1", (long long)options->groups);
    return true;
}

/* The channels of both sides; out is w's own axis, in that of one group. */
static bool check_channels(const ct_infer *infer, ct_conv_geometry *g, int rank, const ct_view *w,
                           const ct_conv_options *options) {
    g->groups = options->groups;
    g->channels_last = options->channels_last;
    g->out_channels = w->dims[options->channels_last ? rank + 1 : 0];
    if (__builtin_mul_overflow(w->dims[options->channels_last ? rank : 1], g->groups, &g->in_channels))
        return FAIL(CT_ERR_SHAPE, "w is %s with groups %lld: too many channels", ct_view_text(w), (long long)g->groups);
    g->w = ct__weight_strides(w, options->channels_last);
    if (g->groups > 1 && g->out_channels % g->groups)
        return FAIL(CT_ERR_SHAPE, "groups is %lld, which does not divide the %lld %s channels of w %s",
                    (long long)g->groups, (long long)g->out_channels, "output", ct_view_text(w));
    return true;
}

static bool check_bias(const ct_infer *infer, const ct_view *bias, int64_t channels) {
    if (!bias || (bias->ndim == 1 && bias->dims[0] == channels)) return true;
    return FAIL(CT_ERR_SHAPE, "bias is %s; it has to be [%lld], one number an output channel", ct_view_text(bias),
                (long long)channels);
}

bool ct__conv_resolve(const ct_infer *infer, ct_conv_geometry *g, int rank, const ct_view *x, const ct_view *w,
                      const ct_view *bias, const ct_conv_options *options) {
    if (!check_operands(infer, &rank, x, "x", w, bias, options)) return false;
    const bool last = options->channels_last;
    const int64_t channels = x->dims[ct__image_channel(x->ndim, last)];
    if (infer && options->groups > 1 && channels % options->groups)
        return FAIL(CT_ERR_SHAPE, "groups is %lld, which does not divide the %lld channels of x %s",
                    (long long)options->groups, (long long)channels, ct_view_text(x));
    if (!check_channels(infer, g, rank, w, options)) return false;
    if (g->in_channels != channels)
        return FAIL(
            CT_ERR_SHAPE, "channels differ: x is %s with %lld channels, w is %s, which with groups %lld takes %lld",
            ct_view_text(x), (long long)channels, ct_view_text(w), (long long)g->groups, (long long)g->in_channels);
    if (!check_bias(infer, bias, g->out_channels)) return false;
    g->batch = x->dims[0];
    g->x = ct__image_strides(x, last);
    g->y = (ct_image_strides){0};
    return ct__window_resolve(infer, &g->window, rank, x->dims + ct__image_spatial(last), w->dims + (last ? 0 : 2),
                              &options->window);
}

bool ct__conv_resolve_transposed(const ct_infer *infer, ct_conv_geometry *g, int rank, const ct_view *y,
                                 const ct_view *w, const ct_view *bias, const ct_conv_options *options,
                                 const ct_dims *output_padding) {
    if (!check_operands(infer, &rank, y, "x", w, bias, options)) return false;
    const bool last = options->channels_last;
    const int64_t channels = y->dims[ct__image_channel(y->ndim, last)];
    if (channels % options->groups)
        return FAIL(CT_ERR_SHAPE, "groups is %lld, which does not divide the %lld channels of x %s",
                    (long long)options->groups, (long long)channels, ct_view_text(y));
    if (w->dims[last ? rank + 1 : 0] != channels)
        return FAIL(CT_ERR_SHAPE,
                    "channels differ: x is %s with %lld channels, w is %s, which takes %lld; a transposed weight is %s",
                    ct_view_text(y), (long long)channels, ct_view_text(w), (long long)w->dims[last ? rank + 1 : 0],
                    last ? "[kernel..., out / groups, in]" : "[in, out / groups, kernel...]");
    if (!check_channels(infer, g, rank, w, options) || !check_bias(infer, bias, g->in_channels)) return false;
    g->batch = y->dims[0];
    g->x = (ct_image_strides){0};
    g->y = ct__image_strides(y, last);
    return ct__window_resolve_transposed(infer, &g->window, rank, y->dims + ct__image_spatial(last),
                                         w->dims + (last ? 0 : 2), &options->window, output_padding);
}

static int image_dims(const ct_conv_geometry *g, int64_t channels, const int64_t *sizes, int64_t *dims) {
    const int rank = g->window.rank, spatial = ct__image_spatial(g->channels_last);
    dims[0] = g->batch;
    dims[ct__image_channel(rank + 2, g->channels_last)] = channels;
    for (int i = 0; i < rank; i++) dims[spatial + i] = sizes[3 - rank + i];
    return rank + 2;
}

int ct__conv_x_dims(const ct_conv_geometry *g, int64_t *dims) {
    return image_dims(g, g->in_channels, g->window.in, dims);
}

int ct__conv_y_dims(const ct_conv_geometry *g, int64_t *dims) {
    return image_dims(g, g->out_channels, g->window.out, dims);
}

int ct__conv_w_dims(const ct_conv_geometry *g, int64_t *dims) {
    const int rank = g->window.rank, spatial = g->channels_last ? 0 : 2;
    dims[g->channels_last ? rank + 1 : 0] = g->out_channels;
    dims[g->channels_last ? rank : 1] = g->in_channels / g->groups;
    for (int i = 0; i < rank; i++) dims[spatial + i] = g->window.kernel[3 - rank + i];
    return rank + 2;
}
