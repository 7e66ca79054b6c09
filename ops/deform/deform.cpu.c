/* Kernels of deformable convolution, f32 and f64. Patches are sampled while the matrix engine packs them, so the columns of
 * the forward pass and of the weight's gradient never exist as a whole; the gradient of the columns of one image does, in
 * scratch, since x takes it in another order than the offsets. Everything samples x with its channels last: channels
 * first, x is transposed into scratch once. */
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/gemm/gemm.h"
#include "ops/deform/deform.h"
#include "ops/reduce/elements.h"

#include "gen/deform.attrs.h"

typedef struct job {
    ct_deform d;
    ct_dtype dtype;
    const char *x, *offset, *mask, *columns;
    const void *zeros; /* a line of them, for what is read outside x */
    void *sink;        /* a line for what goes there */
    void *spots;       /* (offset groups, taps, blocks) of the image at hand */
    char *dx, *doffset, *dmask;
    ct_image_strides x_s, offset_s, mask_s, doffset_s, dmask_s;
    int64_t image, width;  /* the image at hand; columns of a panel */
    int64_t chunk, blocks; /* pixels of a chunk; blocks of spots */
} job;

enum { SLICE = 32, PIXELS = 64 }; /* channels and pixels of a chunk */
enum { AHEAD = 16 };              /* columns are asked for that many taps ahead */

#define SAMPLE_D f32
#include "ops/deform/sample.h"
#define SAMPLE_D f64
#include "ops/deform/sample.h"

static size_t rounded(size_t bytes) { return (bytes + 127) & ~(size_t)63; }

static ct_gemm_type gemm_type(ct_dtype dtype) { return dtype == CT_F64 ? CT_GEMM_F64 : CT_GEMM_F32; }

/* Rows of pixels one behind the other, so that an image is a matrix (pixels, channels). */
static bool is_matrix(const ct_view *image, bool last, int64_t width) {
    const ct_image_strides s = ct__image_strides(image, last);
    return s.s[1] == width * s.s[2] || image->dims[ct__image_spatial(last)] == 1;
}

static const char *can(const ct_call *call, const ct_view *x, const ct_view *matrix, const ct_deform *d) {
    (void)call;
    if (x->dtype != CT_F32 && x->dtype != CT_F64) return "half types are lowered";
    if (d->channels == 0) return "there is nothing to sample";
    if (d->w.in[1] > INT32_MAX / ct__max64(d->w.in[2], 1)) return "pixels of an image are counted in 32 bits";
    return is_matrix(matrix, d->channels_last, d->w.out[2]) ? NULL : "rows of an image are not one behind the other";
}

/* ---- Operands in scratch ---- */

static bool needs_turning(const ct_view *x, const ct_deform *d) {
    const ct_image_strides s = ct__image_strides(x, d->channels_last);
    return s.c != 1 || s.s[1] != d->w.in[2] * s.s[2] || s.s[2] < d->channels;
}

static size_t turned_bytes(const ct_view *x, const ct_deform *d) {
    const int64_t count = d->batch * d->w.in[1] * d->w.in[2] * d->channels;
    return needs_turning(x, d) ? rounded((size_t)count * ct_dtype_size(x->dtype)) : 0;
}

/* x, or a copy with the channels last at *at, which moves on. */
static void turn(job *j, const ct_view *x, char **at) {
    const ct_deform *d = &j->d;
    const size_t size = ct_dtype_size(x->dtype);
    j->x = ct__address(x, size);
    j->x_s = ct__image_strides(x, d->channels_last);
    if (!needs_turning(x, d)) return;
    const int64_t c = d->channels, dims[4] = {d->batch, d->w.in[1], d->w.in[2], c};
    const int64_t from[4] = {j->x_s.n, j->x_s.s[1], j->x_s.s[2], j->x_s.c};
    const int64_t to[4] = {dims[1] * dims[2] * c, dims[2] * c, c, 1};
    ct__copy(*at, to, j->x, from, 4, dims, size);
    j->x = *at;
    j->x_s = (ct_image_strides){to[0], 1, {0, to[1], to[2]}};
    *at += turned_bytes(x, d);
}

static size_t weight_bytes(const ct_deform *d, ct_dtype dtype) {
    return rounded((size_t)(d->out_channels * (d->channels / d->groups) * d->taps) * ct_dtype_size(dtype));
}

/* Between w and a dense [out, taps, C / groups]. */
static void turn_weight(const ct_deform *d, const ct_view *w, void *dense, bool to_dense) {
    const ct_weight_strides s = ct__weight_strides(w, d->channels_last);
    const int64_t each = d->channels / d->groups;
    const int64_t dims[4] = {d->out_channels, d->w.kernel[1], d->w.kernel[2], each};
    const int64_t ws[4] = {s.o, s.k[1], s.k[2], s.i};
    const int64_t ds[4] = {d->taps * each, d->w.kernel[2] * each, each, 1};
    const size_t size = ct_dtype_size(w->dtype);
    if (to_dense) ct__copy(dense, ds, ct__address(w, size), ws, 4, dims, size);
    else ct__copy(ct__address(w, size), ws, dense, ds, 4, dims, size);
}

static void find_block(void *context, int64_t block, int worker) {
    const job *j = context;
    (void)worker;
    if (j->dtype == CT_F64) f64_find_spots(j, block);
    else f32_find_spots(j, block);
}

static void find(job *j) { ct__parallel(j->blocks, find_block, j); }

static int64_t blocks_of(const ct_deform *d) { return (d->pixels + PIXELS - 1) / PIXELS; }

static size_t spot_bytes(const ct_deform *d, ct_dtype dtype) {
    const size_t block = dtype == CT_F64 ? sizeof(f64_spots) : sizeof(f32_spots);
    return rounded((size_t)(blocks_of(d) * d->offset_groups * d->taps) * block) +
           2 * rounded((size_t)d->channels * ct_dtype_size(dtype));
}

/* The table of spots, a line of zeros and one to drop into at *at, which moves on. */
static void place_spots(job *j, char **at) {
    const size_t line = rounded((size_t)j->d.channels * ct_dtype_size(j->dtype));
    j->zeros = memset(*at, 0, 2 * line);
    j->sink = *at + line;
    j->spots = *at + 2 * line;
    j->chunk = ct__grain(PIXELS / 2);
    j->blocks = blocks_of(&j->d);
    *at += spot_bytes(&j->d, j->dtype);
}

static job start(const ct_call *call, const ct_deform *d, int offset, int mask) {
    job j = {.d = *d, .dtype = call->in[offset]->dtype};
    const size_t size = ct_dtype_size(j.dtype);
    j.offset = ct__address(call->in[offset], size);
    j.offset_s = ct__image_strides(call->in[offset], d->channels_last);
    if (call->in[mask]) {
        j.mask = ct__address(call->in[mask], size);
        j.mask_s = ct__image_strides(call->in[mask], d->channels_last);
    }
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

static ct_gemm forward_product(const ct_call *call, const ct_deform *d) {
    const ct_gemm_type type = gemm_type(call->in[0]->dtype);
    const ct_image_strides y = ct__image_strides(call->out[0], d->channels_last);
    const int64_t out = d->out_channels / d->groups, k = d->taps * (d->channels / d->groups);
    ct_gemm g = {.m = d->pixels, .n = out, .k = k, .a_type = type, .b_type = type, .c_type = type, .bias_type = type};
    g.pack_a = type == CT_GEMM_F64 ? f64_pack_rows : f32_pack_rows;
    g.b_row = 1;
    g.b_col = k;
    g.c_row = d->w.out[2] == 1 ? y.s[1] : y.s[2];
    g.c_col = y.c;
    g.batch_dims = 1;
    g.batch[0] = d->groups;
    g.b_batch[0] = out * k;
    g.c_batch[0] = out * y.c;
    g.bias_batch[0] = out;
    return g;
}

static const char *forward_can(const ct_call *call) {
    const ct_deform d = forward_geometry(call);
    if (call->in[3] && call->in[3]->strides[0] != 1 && call->in[3]->dims[0] > 1) return "bias is not dense";
    return can(call, call->in[0], call->out[0], &d);
}

static size_t forward_scratch(const ct_call *call) {
    const ct_deform d = forward_geometry(call);
    const ct_gemm g = forward_product(call, &d);
    return turned_bytes(call->in[0], &d) + weight_bytes(&d, call->in[0]->dtype) + spot_bytes(&d, call->in[0]->dtype) +
           ct__gemm_scratch(&g);
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    const ct_deform d = forward_geometry(call);
    ct_gemm g = forward_product(call, &d);
    job j = start(call, &d, 1, 4);
    char *at = call->scratch;
    (void)stream;
    if (d.batch == 0 || d.pixels == 0 || d.out_channels == 0) return true;
    turn(&j, call->in[0], &at);
    turn_weight(&d, call->in[2], at, true);
    g.b = at;
    at += weight_bytes(&d, j.dtype);
    place_spots(&j, &at);
    const int64_t size = (int64_t)ct_dtype_size(j.dtype), image = ct__image_strides(call->out[0], d.channels_last).n;
    g.bias_col = call->in[3] ? ct__address(call->in[3], ct_dtype_size(j.dtype)) : NULL;
    g.pack_a_ctx = &j;
    for (j.image = 0; j.image < d.batch; j.image++) {
        find(&j);
        g.c = (char *)ct__address(call->out[0], (size_t)size) + j.image * image * size;
        if (!ct__gemm(&g, at)) return false;
    }
    return true;
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

static ct_gemm weight_product(const ct_call *call, const ct_deform *d) {
    const ct_gemm_type type = gemm_type(call->in[0]->dtype);
    const ct_image_strides s = ct__image_strides(call->in[0], d->channels_last);
    const int64_t out = d->out_channels / d->groups, n = d->taps * (d->channels / d->groups);
    ct_gemm g = {.m = out, .n = n, .k = d->pixels, .a_type = type, .b_type = type, .c_type = type};
    g.a_row = s.c;
    g.a_col = d->w.out[2] == 1 ? s.s[1] : s.s[2];
    g.pack_b = type == CT_GEMM_F64 ? f64_pack_panel : f32_pack_panel;
    g.c_row = n;
    g.c_col = 1;
    g.batch_dims = 1;
    g.batch[0] = d->groups;
    g.a_batch[0] = out * s.c;
    g.c_batch[0] = out * n;
    g.accumulate = true;
    return g;
}

static const char *weight_can(const ct_call *call) {
    const ct_deform d = weight_geometry(call);
    return can(call, call->in[1], call->in[0], &d);
}

static size_t weight_scratch(const ct_call *call) {
    const ct_deform d = weight_geometry(call);
    const ct_gemm g = weight_product(call, &d);
    return turned_bytes(call->in[1], &d) + weight_bytes(&d, call->in[1]->dtype) + spot_bytes(&d, call->in[1]->dtype) +
           ct__gemm_scratch(&g);
}

static bool weight_run(const ct_call *call, ct_stream *stream) {
    const ct_deform d = weight_geometry(call);
    ct_gemm g = weight_product(call, &d);
    ct_gemm_geometry tile;
    job j = start(call, &d, 2, 3);
    char *at = call->scratch;
    const ct_image_strides s = ct__image_strides(call->in[0], d.channels_last);
    const int64_t size = (int64_t)ct_dtype_size(j.dtype);
    (void)stream;
    turn(&j, call->in[1], &at);
    place_spots(&j, &at);
    char *dense = at;
    const size_t bytes = weight_bytes(&d, j.dtype);
    memset(dense, 0, bytes);
    if (!ct__gemm_geometry(&g, &tile)) return false;
    j.width = tile.width;
    g.c = dense;
    g.pack_b_ctx = &j;
    for (j.image = 0; j.image < d.batch && d.pixels > 0; j.image++) {
        find(&j);
        g.a = (const char *)ct__address(call->in[0], (size_t)size) + j.image * s.n * size;
        if (!ct__gemm(&g, at + bytes)) return false;
    }
    turn_weight(&d, call->out[0], dense, false);
    return true;
}

/* ---- Gradients of x, offset and mask: columns (pixels, taps * C) = g (pixels, out) by w, image after image ---- */

static ct_deform grad_geometry(const ct_call *call) {
    const deform_conv_grad_attrs *a = call->attrs;
    const ct_view *w = call->in[3];
    const ct_window_options options = {.strides = &a->strides, .pads = &a->pads, .dilations = &a->dilations};
    ct_deform d;
    ct__deform_resolve(NULL, &d, call->in[1], ct__deform_kernel(w, a->channels_last), &options,
                       w->dims[a->channels_last ? 3 : 0], a->groups, a->offset_groups, a->channels_last);
    return d;
}

static ct_gemm grad_product(const ct_call *call, const ct_deform *d) {
    const ct_gemm_type type = gemm_type(call->in[0]->dtype);
    const ct_image_strides s = ct__image_strides(call->in[0], d->channels_last);
    const int64_t out = d->out_channels / d->groups, n = d->taps * (d->channels / d->groups);
    ct_gemm g = {.m = d->pixels, .n = n, .k = out, .a_type = type, .b_type = type, .c_type = type};
    g.a_row = d->w.out[2] == 1 ? s.s[1] : s.s[2];
    g.a_col = s.c;
    g.b_row = n;
    g.b_col = 1;
    g.c_row = d->taps * d->channels;
    g.c_col = 1;
    g.batch_dims = 1;
    g.batch[0] = d->groups;
    g.a_batch[0] = out * s.c;
    g.b_batch[0] = out * n;
    g.c_batch[0] = n;
    return g;
}

static const char *grad_can(const ct_call *call) {
    const ct_deform d = grad_geometry(call);
    return can(call, call->in[1], call->in[0], &d);
}

static size_t columns_bytes(const ct_deform *d, ct_dtype dtype) {
    return rounded((size_t)(d->pixels * d->taps * d->channels) * ct_dtype_size(dtype));
}

static size_t image_bytes(const ct_deform *d, ct_dtype dtype) {
    return rounded((size_t)(d->w.in[1] * d->w.in[2] * d->channels) * ct_dtype_size(dtype));
}

static size_t grad_scratch(const ct_call *call) {
    const ct_deform d = grad_geometry(call);
    const ct_gemm g = grad_product(call, &d);
    const ct_dtype dtype = call->in[1]->dtype;
    return turned_bytes(call->in[1], &d) + weight_bytes(&d, dtype) + columns_bytes(&d, dtype) + image_bytes(&d, dtype) +
           spot_bytes(&d, dtype) + ct__gemm_scratch(&g);
}

static void moves_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    for (int64_t p = chunk * j->chunk; p < ct__min64((chunk + 1) * j->chunk, j->d.pixels); p++) {
        if (j->dtype == CT_F64) f64_moves_of_pixel(j, p);
        else f32_moves_of_pixel(j, p);
    }
}

static void spread_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    const int64_t first = chunk * SLICE, end = ct__min64(first + SLICE, j->d.channels);
    if (j->dtype == CT_F64) f64_spread_channels(j, first, end);
    else f32_spread_channels(j, first, end);
}

static bool grad_run(const ct_call *call, ct_stream *stream) {
    const ct_deform d = grad_geometry(call);
    ct_gemm g = grad_product(call, &d);
    job j = start(call, &d, 2, 4);
    const ct_dtype dtype = j.dtype;
    const int64_t size = (int64_t)ct_dtype_size(dtype), c = d.channels;
    const ct_image_strides s = ct__image_strides(call->in[0], d.channels_last);
    char *at = call->scratch;
    (void)stream;
    turn(&j, call->in[1], &at);
    place_spots(&j, &at);
    turn_weight(&d, call->in[3], at, true);
    g.b = at;
    at += weight_bytes(&d, dtype);
    g.c = at;
    j.columns = at;
    at += columns_bytes(&d, dtype);
    j.dx = at;
    at += image_bytes(&d, dtype);
    for (int k = 1; k < call->n_out; k++) {
        if (!call->out[k]) continue;
        *(k == 1 ? &j.doffset : &j.dmask) = ct__address(call->out[k], (size_t)size);
        *(k == 1 ? &j.doffset_s : &j.dmask_s) = ct__image_strides(call->out[k], d.channels_last);
    }
    const ct_view *dx = call->out[0];
    const ct_image_strides to = ct__image_strides(dx, d.channels_last);
    for (j.image = 0; j.image < d.batch && c > 0; j.image++) {
        if (d.pixels > 0) {
            find(&j);
            g.a = (const char *)ct__address(call->in[0], (size_t)size) + j.image * s.n * size;
            if (!ct__gemm(&g, at)) return false;
            if (j.doffset || j.dmask) ct__parallel((d.pixels + j.chunk - 1) / j.chunk, moves_chunk, &j);
        }
        ct__parallel((c + SLICE - 1) / SLICE, spread_chunk, &j);
        const int64_t dims[3] = {d.w.in[1], d.w.in[2], c}, from[3] = {d.w.in[2] * c, c, 1};
        const int64_t place[3] = {to.s[1], to.s[2], to.c};
        ct__copy((char *)ct__address(dx, (size_t)size) + j.image * to.n * size, place, j.dx, from, 3, dims,
                 (size_t)size);
    }
    return true;
}

CT_KERNELS(deform_conv) = {{"deform_conv_gemm", forward_can, forward_scratch, forward_run}, {0}};
CT_KERNELS(deform_conv_weight_grad) = {{"deform_conv_weight_gemm", weight_can, weight_scratch, weight_run}, {0}};
CT_KERNELS(deform_conv_grad) = {{"deform_conv_grad_gemm", grad_can, grad_scratch, grad_run}, {0}};
