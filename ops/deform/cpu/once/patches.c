/* Deformable convolution and the gradient of its weight alone, f32 and f64. Patches are sampled while the matrix engine packs
 * them, so the columns never exist as a whole. */
#include "ops/deform/cpu/kernels.h"
#include "ops/op_impl.h"

lookup ct__deform_lookup(const ct_deform *d, const ct_view *offset, const ct_view *mask) {
    lookup t = {.d = *d, .dtype = offset->dtype};
    const size_t size = ct_dtype_size(t.dtype);
    t.offset = ct__address(offset, size);
    t.offset_s = ct__image_strides(offset, d->channels_last);
    if (mask) {
        t.mask = ct__address(mask, size);
        t.mask_s = ct__image_strides(mask, d->channels_last);
    }
    return t;
}

/* Rows of pixels one behind the other, so that an image is a matrix (pixels, channels). */
static bool is_matrix(const ct_view *image, bool last, int64_t width) {
    const ct_image_strides s = ct__image_strides(image, last);
    return s.s[1] == width * s.s[2] || image->dims[ct__image_spatial(last)] == 1;
}

bool ct__deform_has_lines(const ct_view *image, const ct_deform *d) {
    const ct_image_strides s = ct__image_strides(image, d->channels_last);
    return s.c == 1 && s.s[1] == d->w.in[2] * s.s[2] && s.s[2] >= d->channels;
}

const char *ct__deform_can(const ct_view *x, const ct_view *matrix, const ct_deform *d) {
    if (x->dtype != CT_F32 && x->dtype != CT_F64) return "half types are lowered";
    if (d->channels == 0) return "there is nothing to sample";
    if (d->w.in[2] > 0 && d->w.in[1] > INT32_MAX / d->w.in[2]) return "pixels of an image are counted in 32 bits";
    return is_matrix(matrix, d->channels_last, d->w.out[2]) ? NULL : "rows of an image are not one behind the other";
}

void ct__deform_turn_weight(const ct__deform_isa *isa, const ct_deform *d, void *w, ct_weight_strides s, void *dense,
                            int64_t out, int64_t n, size_t size, bool to_dense) {
    const int64_t dims[4] = {out, d->w.kernel[1], d->w.kernel[2], n};
    const int64_t ws[4] = {s.o, s.k[1], s.k[2], s.i};
    const int64_t ds[4] = {d->taps * n, d->w.kernel[2] * n, n, 1};
    if (to_dense) isa->copy(dense, ds, w, ws, 4, dims, size);
    else isa->copy(w, ws, dense, ds, 4, dims, size);
}

static ct_gemm_type gemm_type(ct_dtype dtype) { return dtype == CT_F64 ? CT_GEMM_F64 : CT_GEMM_F32; }

/* ---- Operands in scratch ---- */

static size_t line_bytes(const ct_deform *d, ct_dtype dtype) {
    return ct__deform_rounded((size_t)d->channels * ct_dtype_size(dtype));
}

static size_t turned_bytes(const ct_view *x, const ct_deform *d) {
    const int64_t count = d->batch * d->w.in[1] * d->w.in[2] * d->channels;
    return ct__deform_has_lines(x, d) ? 0 : ct__deform_rounded((size_t)count * ct_dtype_size(x->dtype));
}

static size_t weight_bytes(const ct_deform *d, ct_dtype dtype) {
    return ct__deform_rounded((size_t)(d->out_channels * (d->channels / d->groups) * d->taps) * ct_dtype_size(dtype));
}

/* x, or a copy with the channels last, and a line of zeros at *at, which moves on. */
static ct__patches start(const ct__deform_isa *isa, const ct_deform *d, const ct_view *x, const ct_view *offset,
                         const ct_view *mask, char **at) {
    ct__patches j = {.t = ct__deform_lookup(d, offset, mask), .isa = isa};
    const size_t size = ct_dtype_size(x->dtype), line = line_bytes(d, x->dtype);
    j.zeros = memset(*at, 0, line);
    *at += line;
    j.x = ct__address(x, size);
    j.x_s = ct__image_strides(x, d->channels_last);
    if (ct__deform_has_lines(x, d)) return j;
    const int64_t c = d->channels, dims[4] = {d->batch, d->w.in[1], d->w.in[2], c};
    const int64_t from[4] = {j.x_s.n, j.x_s.s[1], j.x_s.s[2], j.x_s.c};
    const int64_t to[4] = {dims[1] * dims[2] * c, dims[2] * c, c, 1};
    isa->copy(*at, to, j.x, from, 4, dims, size);
    j.x = *at;
    j.x_s = (ct_image_strides){to[0], 1, {0, to[1], to[2]}};
    *at += turned_bytes(x, d);
    return j;
}

/* ---- Forward: y (pixels, out) = patches (pixels, taps * C) by w^T, for each image and group ---- */

static ct_deform forward_geometry(const ct_call *call) {
    const deform_conv_attrs *a = call->attrs;
    const ct_view *w = call->in[2];
    const ct_window_options options = {.strides = &a->strides, .pads = &a->pads, .dilations = &a->dilations};
    ct_deform d;
    ct__deform_resolve(NULL, &d, call->in[0], ct__deform_kernel(w, a->channels_last), &options,
                       w->dims[a->channels_last ? 3 : 0], a->groups, a->offset_groups, a->channels_last);
    return d;
}

static void pack_rows(const void *context, int64_t batch, void *dst, int64_t ld, int64_t row0, int64_t rows, int64_t k0,
                      int64_t depth) {
    const ct__patches *j = context;
    j->isa->pack[j->t.dtype == CT_F64](context, batch, dst, ld, row0, rows, k0, depth);
}

static ct_gemm forward_product(const ct_call *call, const ct_deform *d) {
    const ct_gemm_type type = gemm_type(call->in[0]->dtype);
    const ct_image_strides y = ct__image_strides(call->out[0], d->channels_last);
    const int64_t out = d->out_channels / d->groups, k = d->taps * (d->channels / d->groups);
    ct_gemm g = {.m = d->pixels, .n = out, .k = k, .a_type = type, .b_type = type, .c_type = type, .bias_type = type};
    g.pack_a = pack_rows;
    g.b_row = 1;
    g.b_col = k;
    g.c_row = d->w.out[2] == 1 ? y.s[1] : y.s[2];
    g.c_col = y.c;
    g.batch_dims = 2;
    g.batch[0] = d->batch, g.batch[1] = d->groups;
    g.b_batch[1] = out * k;
    g.c_batch[0] = y.n, g.c_batch[1] = out * y.c;
    g.bias_batch[1] = out;
    return g;
}

const char *ct__deform_forward_can(const ct_call *call) {
    const ct_deform d = forward_geometry(call);
    if (call->in[3] && call->in[3]->strides[0] != 1 && call->in[3]->dims[0] > 1) return "bias is not dense";
    return ct__deform_can(call->in[0], call->out[0], &d);
}

size_t ct__deform_forward_scratch(const ct_call *call) {
    const ct_deform d = forward_geometry(call);
    const ct_gemm g = forward_product(call, &d);
    return turned_bytes(call->in[0], &d) + weight_bytes(&d, call->in[0]->dtype) + line_bytes(&d, call->in[0]->dtype) +
           ct__gemm_scratch(&g);
}

bool ct__deform_forward_run(const ct_call *call, const ct__deform_isa *isa) {
    const ct_deform d = forward_geometry(call);
    const ct_view *w = call->in[2], *bias = call->in[3];
    const size_t size = ct_dtype_size(w->dtype);
    ct_gemm g = forward_product(call, &d);
    char *at = ct__scratch(call);
    if (d.batch == 0 || d.pixels == 0 || d.out_channels == 0) return true;
    const ct__patches j = start(isa, &d, call->in[0], call->in[1], call->in[4], &at);
    ct__deform_turn_weight(isa, &d, ct__address(w, size), ct__weight_strides(w, d.channels_last), at, d.out_channels,
                           d.channels / d.groups, size, true);
    g.b = at;
    g.bias_col = bias ? ct__address(bias, size) : NULL;
    g.c = ct__address(call->out[0], size);
    g.pack_a_ctx = &j;
    return ct__gemm(&g, at + weight_bytes(&d, w->dtype));
}

/* ---- The weight's gradient: (out, taps * C) = g^T (out, pixels) by patches, image after image ---- */

static ct_deform weight_geometry(const ct_call *call) {
    const deform_conv_weight_grad_attrs *a = call->attrs;
    const ct_window_options options = {.strides = &a->strides, .pads = &a->pads, .dilations = &a->dilations};
    ct_deform d;
    ct__deform_resolve(NULL, &d, call->in[1], a->kernel.d, &options,
                       call->in[0]->dims[ct__image_channel(4, a->channels_last)], a->groups, a->offset_groups,
                       a->channels_last);
    return d;
}

/* The patches as a right operand, a panel of `width` columns. */
static void pack_panel(const void *context, int64_t batch, void *dst, int64_t k0, int64_t depth, int64_t col0,
                       int64_t cols) {
    const ct__patches *j = context;
    j->isa->pack[j->t.dtype == CT_F64](context, batch, dst, j->width, k0, depth, col0, cols);
}

static ct_gemm weight_product(const ct_call *call, const ct_deform *d) {
    const ct_gemm_type type = gemm_type(call->in[0]->dtype);
    const ct_image_strides s = ct__image_strides(call->in[0], d->channels_last);
    const int64_t out = d->out_channels / d->groups, n = d->taps * (d->channels / d->groups);
    ct_gemm g = {.m = out, .n = n, .k = d->pixels, .a_type = type, .b_type = type, .c_type = type};
    g.a_row = s.c;
    g.a_col = d->w.out[2] == 1 ? s.s[1] : s.s[2];
    g.pack_b = pack_panel;
    g.c_row = n;
    g.c_col = 1;
    g.batch_dims = 1;
    g.batch[0] = d->groups;
    g.a_batch[0] = out * s.c;
    g.c_batch[0] = out * n;
    g.accumulate = true;
    return g;
}

const char *ct__deform_weight_can(const ct_call *call) {
    const ct_deform d = weight_geometry(call);
    return ct__deform_can(call->in[1], call->in[0], &d);
}

size_t ct__deform_weight_scratch(const ct_call *call) {
    const ct_deform d = weight_geometry(call);
    const ct_gemm g = weight_product(call, &d);
    return turned_bytes(call->in[1], &d) + weight_bytes(&d, call->in[1]->dtype) + line_bytes(&d, call->in[1]->dtype) +
           ct__gemm_scratch(&g);
}

bool ct__deform_weight_run(const ct_call *call, const ct__deform_isa *isa) {
    const ct_deform d = weight_geometry(call);
    const ct_view *dw = call->out[0];
    const size_t size = ct_dtype_size(dw->dtype), bytes = weight_bytes(&d, dw->dtype);
    ct_gemm g = weight_product(call, &d);
    ct_gemm_geometry tile;
    char *at = ct__scratch(call);
    const int64_t image = ct__image_strides(call->in[0], d.channels_last).n;
    ct__patches j = start(isa, &d, call->in[1], call->in[2], call->in[3], &at);
    if (!ct__gemm_geometry(&g, &tile)) return false;
    j.width = tile.width;
    g.c = memset(at, 0, bytes);
    g.pack_b_ctx = &j;
    for (j.image = 0; j.image < d.batch && d.pixels > 0; j.image++) {
        g.a = (const char *)ct__address(call->in[0], size) + j.image * image * (int64_t)size;
        if (!ct__gemm(&g, at + bytes)) return false;
    }
    ct__deform_turn_weight(isa, &d, ct__address(dw, size), ct__weight_strides(dw, d.channels_last), at, d.out_channels,
                           d.channels / d.groups, size, false);
    return true;
}
