/* Windows of pooling: checks, and windows as ops. */
#include "ops/pool/pool.h"

#include "ops/op_impl.h"

enum { MOST_TAPS = 1 << 24 };

#define FAIL(code, ...) (infer ? ct_infer_fail(infer, code, __VA_ARGS__) : false)

static bool check_axis(const ct_infer *infer, const ct_window *w, int a, const ct_view *x) {
    const int64_t span = w->dilation[a] * (w->kernel[a] - 1) + 1;
    const int64_t most = w->before[a] > w->after[a] ? w->before[a] : w->after[a];
    if (w->in[a] < 1) return FAIL(CT_ERR_SHAPE, "x is %s; there is nothing to pool", ct_view_text(x));
    if (most > span / 2)
        return FAIL(CT_ERR_VALUE, "pad %lld is more than half of the kernel's extent, %lld (size %lld, dilation %lld)",
                    (long long)most, (long long)span, (long long)w->kernel[a], (long long)w->dilation[a]);
    /* The first tap lies before the end and the last one not before the beginning, so only taps further apart than x is
     * long can miss it; where x has no element nothing is taken from it. */
    const bool may_miss = w->dilation[a] > w->in[a] && ct__count(x->ndim, x->dims) != 0;
    for (int64_t o = 0; o < w->out[a] && may_miss; o++) {
        int64_t first, last;
        ct__pool_taps(w, a, o, &first, &last);
        if (first >= last)
            return FAIL(CT_ERR_SHAPE, "window %lld (size %lld, dilation %lld, pad %lld) has no element of x, %s",
                        (long long)o, (long long)w->kernel[a], (long long)w->dilation[a], (long long)w->before[a],
                        ct_view_text(x));
    }
    return true;
}

bool ct__pool_resolve(const ct_infer *infer, ct_window *w, int rank, const ct_view *x, const ct_pool_options *options) {
    static const char *const forms[2][4] = {{"[N,C,...]", "[N,C,L]", "[N,C,H,W]", "[N,C,D,H,W]"},
                                            {"[N,...,C]", "[N,L,C]", "[N,H,W,C]", "[N,D,H,W,C]"}};
    const int spatial = x->ndim - 2, first = ct__image_spatial(options->channels_last);
    if (spatial < 1 || spatial > 3 || (rank && spatial != rank))
        return FAIL(CT_ERR_SHAPE, "x is %s; it has to be %s", ct_view_text(x), forms[options->channels_last][rank]);
    if (options->kernel->n != 1 && options->kernel->n != spatial)
        return FAIL(CT_ERR_VALUE, "kernel is %s; it takes 1 number or one for each of the %d spatial axes",
                    ct_dims_text(*options->kernel), spatial);
    int64_t kernel[3];
    ct_dims like_kernel = {.n = spatial};
    for (int i = 0; i < spatial; i++)
        like_kernel.d[i] = kernel[i] = options->kernel->d[options->kernel->n == 1 ? 0 : i];
    const bool default_stride = options->strides->n == 0 || (options->strides->n == 1 && options->strides->d[0] == 0);
    const ct_window_options how = {.strides = default_stride ? &like_kernel : options->strides,
                                   .pads = options->pads,
                                   .dilations = options->dilations,
                                   .pad_mode = options->pad_mode,
                                   .round_up = options->ceil_mode};
    if (!ct__window_resolve(infer, w, spatial, x->dims + first, kernel, &how)) return false;
    for (int a = 3 - spatial; a < 3; a++)
        if (!check_axis(infer, w, a, x)) return false;
    /* kernels keep a list of a window's taps */
    if ((double)w->kernel[0] * (double)w->kernel[1] * (double)w->kernel[2] > MOST_TAPS)
        return FAIL(CT_ERR_VALUE, "kernel is %s, more than 2^24 taps; x is %s", ct_dims_text(*options->kernel),
                    ct_view_text(x));
    return true;
}

bool ct__pool_infer(const ct_infer *infer, ct_window *w, const ct_view *image, bool of_windows, const ct_dims *sizes,
                    const ct_pool_options *options) {
    if (sizes->n < 1 || sizes->n > 3 || image->ndim != sizes->n + 2)
        return FAIL(CT_ERR_SHAPE, "%s and sizes %s: there have to be two dimensions more than sizes",
                    ct_view_text(image), ct_dims_text(*sizes));
    /* what the public ops leave to defaults, they have made explicit */
    bool explicit = options->kernel->n == sizes->n && options->strides->n == sizes->n;
    for (int i = 0; explicit && i < sizes->n; i++) explicit = options->strides->d[i] > 0 && sizes->d[i] >= 0;
    if (!explicit)
        return FAIL(CT_ERR_VALUE, "sizes %s, kernel %s and strides %s: one number is needed for each axis",
                    ct_dims_text(*sizes), ct_dims_text(*options->kernel), ct_dims_text(*options->strides));
    const int first = ct__image_spatial(options->channels_last);
    ct_view x = *image;
    for (int i = 0; i < sizes->n; i++) x.dims[first + i] = sizes->d[i];
    if (!ct__pool_resolve(infer, w, sizes->n, &x, options)) return false;
    const int64_t *expected = of_windows ? w->out : w->in;
    for (int i = 0; i < sizes->n; i++)
        if (image->dims[first + i] != expected[3 - sizes->n + i])
            return FAIL(CT_ERR_SHAPE, "%s has %lld along spatial axis %d; with sizes %s there are %lld",
                        ct_view_text(image), (long long)image->dims[first + i], i, ct_dims_text(*sizes),
                        (long long)expected[3 - sizes->n + i]);
    return true;
}

ct_window ct__pool_window(const ct_dims *sizes, const ct_dims *kernel, const ct_dims *strides, const ct_dims *pads,
                          const ct_dims *dilations, bool ceil_mode) {
    ct_window w;
    const ct_window_options how = {
        .strides = strides, .pads = pads, .dilations = dilations, .pad_mode = CT_EXPLICIT, .round_up = ceil_mode};
    ct__window_resolve(NULL, &w, sizes->n, sizes->d, kernel->d, &how);
    return w;
}

void ct__pool_shape(ct_infer *infer, int output, const ct_view *image, const ct_window *w, const int64_t *sizes,
                    bool channels_last, ct_dtype dtype) {
    ct__infer_like(infer, output, image, dtype);
    for (int i = 0; i < w->rank; i++)
        infer->out[output].dims[ct__image_spatial(channels_last) + i] = sizes[3 - w->rank + i];
}

/* ---- Windows in ops ---- */

static ct_tensor *whole(ct_tensor *x, int64_t factor, int64_t more) { /* factor x + more */
    return add_s(mul_s(x, (double)factor), (double)more);
}

ct_tensor *ct__pool_starts(const ct_window *w, int a) {
    return whole(ct__counted(w->out[a]), w->stride[a], -w->before[a]);
}

ct_tensor *ct__pool_first_taps(const ct_window *w, int a) { /* ceil(-start / dilation), not below 0 */
    const int64_t d = w->dilation[a];
    return clamp(floor_div_s(whole(ct__pool_starts(w, a), -1, d - 1), (double)d), .min = CT_SET(0));
}

ct_tensor *ct__pool_last_taps(const ct_window *w, int a) { /* floor((in - 1 - start) / dilation), within the kernel */
    ct_tensor *last = floor_div_s(whole(ct__pool_starts(w, a), -1, w->in[a] - 1), (double)w->dilation[a]);
    return clamp(last, .max = CT_SET(w->kernel[a] - 1));
}

ct_tensor *ct__pool_windows(ct_tensor *x, const ct_window *w, ct_tensor *const *tables, bool channels_last) {
    const int rank = w->rank, first = ct__image_spatial(channels_last);
    const int64_t batch = ct_dim(x, 0), channels = ct_dim(x, ct__image_channel(rank + 2, channels_last));
    for (int i = 0; i < rank; i++) x = index_select(x, first + i, tables[3 - rank + i]);
    /* every axis apart into windows and taps, then the taps to the end */
    ct_dims apart = {.n = 2 * rank + 2}, order = {.n = 2 * rank + 2}, shape = {.n = rank + 3};
    int64_t taps = 1;
    apart.d[0] = shape.d[0] = batch;
    apart.d[channels_last ? 2 * rank + 1 : 1] = shape.d[channels_last ? rank + 1 : 1] = channels;
    order.d[0] = 0;
    order.d[channels_last ? rank + 1 : 1] = channels_last ? 2 * rank + 1 : 1;
    for (int i = 0; i < rank; i++) {
        apart.d[first + 2 * i] = shape.d[first + i] = w->out[3 - rank + i];
        apart.d[first + 2 * i + 1] = w->kernel[3 - rank + i];
        order.d[first + i] = first + 2 * i;
        order.d[rank + 2 + i] = first + 2 * i + 1;
        taps *= w->kernel[3 - rank + i];
    }
    shape.d[rank + 2] = taps;
    return reshape(permute(reshape(x, apart), order), shape);
}

/* A vector along spatial axis i, shaped to broadcast with an image. */
static ct_tensor *along(ct_tensor *vector, const ct_window *w, int a, bool channels_last) {
    ct_dims shape = {.n = w->rank + (channels_last ? 1 : 0)};
    for (int i = 0; i < shape.n; i++) shape.d[i] = 1;
    shape.d[a - (3 - w->rank)] = w->out[a];
    return reshape(vector, shape);
}

ct_tensor *ct__pool_places(ct_tensor *taps, const ct_window *w, ct_tensor *const *starts, bool channels_last) {
    ct_tensor *place = NULL;
    int64_t inner = ct__window_taps(w);
    for (int a = 3 - w->rank; a < 3; a++) { /* the tap along this axis, then its place, then the plane's so far */
        inner /= w->kernel[a];
        ct_tensor *k = remainder_s(floor_div_s(taps, (double)inner), (double)w->kernel[a]);
        ct_tensor *at = ct_add(mul_s(k, (double)w->dilation[a]), along(starts[a], w, a, channels_last));
        place = place ? ct_add(mul_s(place, (double)w->in[a]), at) : at;
    }
    return place;
}
