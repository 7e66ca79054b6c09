/* Frames, of one value or of x again: each element of the result is looked up in x. */
#include "backends/webgpu/strided.h"

#include "gen/pad.attrs.h"

/* ---- Of one value ---- */

typedef struct frame_params {
    uint32_t total, rank, pads[2];
    uint32_t dims[CT_WGPU_DIMS], before[CT_WGPU_DIMS], sizes[CT_WGPU_DIMS], to[CT_WGPU_DIMS], from[CT_WGPU_DIMS];
    uint32_t pattern[4];
} frame_params;

typedef struct frame {
    int ndim;
    int64_t dims[CT_WGPU_DIMS], before[CT_WGPU_DIMS], sizes[CT_WGPU_DIMS], to[CT_WGPU_DIMS], from[CT_WGPU_DIMS];
} frame;

/* Neighbouring axes are one where the inner one is whole and both sides lie evenly in memory. */
static frame frame_of(const ct_view *y, const ct_view *x, const ct_dims *pads) {
    frame f = {.ndim = 0};
    for (int d = 0; d < y->ndim; d++) {
        const int64_t size = y->dims[d];
        const bool whole = pads->d[2 * d] == 0 && size == x->dims[d];
        int n = f.ndim - 1;
        if (n >= 0 && whole && f.to[n] == y->strides[d] * size && f.from[n] == x->strides[d] * size) {
            f.dims[n] *= size, f.before[n] *= size, f.sizes[n] *= size;
        } else {
            n = f.ndim++;
            f.dims[n] = size, f.before[n] = pads->d[2 * d], f.sizes[n] = x->dims[d];
        }
        f.to[n] = y->strides[d], f.from[n] = x->strides[d];
    }
    return f;
}

/* Elements twice as wide. */
static bool widen(frame *f, size_t size, uint64_t places) {
    const int last = f->ndim - 1;
    if (last < 0 || places % (2 * size) || f->to[last] != 1 || f->from[last] != 1) return false;
    if (f->dims[last] % 2 || f->before[last] % 2 || f->sizes[last] % 2) return false;
    for (int d = 0; d < last; d++)
        if (f->to[d] % 2 || f->from[d] % 2) return false;
    for (int d = 0; d < last; d++) f->to[d] /= 2, f->from[d] /= 2;
    f->dims[last] /= 2, f->before[last] /= 2, f->sizes[last] /= 2;
    return true;
}

#define ONE_UNIT  "fn move_unit(to: u32, source: u32) { to_store(to, from_load(source)); }\n"
#define QUAD_UNIT "fn move_unit(to: u32, source: u32) { to_store4(4u * to, from_load4(4u * source)); }\n"
static const char frame_word[] = ONE_UNIT "fn put_frame(to: u32) { to_store(to, i32(p.pattern.x)); }\n";
static const char frame_pair[] = ONE_UNIT "fn put_frame(to: u32) { to_store(to, p.pattern.xy); }\n";
static const char frame_quad[] =
    QUAD_UNIT "fn put_frame(to: u32) { to_store4(4u * to, bitcast<vec4<i32>>(p.pattern)); }\n";

/* A fill, and a copy into it: for elements that are written as parts of words. */
static bool fill_and_copy(const ct_call *call, const ct_dims *pads, const uint32_t bits[2]) {
    ct_view x = *call->in[0], y = *call->out[0];
    for (int d = 0; d < x.ndim; d++) {
        const int64_t before = pads->d[2 * d], after = pads->d[2 * d + 1];
        if (before > 0) y.offset += before * y.strides[d];
        else x.offset -= before * x.strides[d];
        x.dims[d] += (before < 0 ? before : 0) + (after < 0 ? after : 0);
        if (x.dims[d] < 0) x.dims[d] = 0; /* cuts from both sides may meet */
        y.dims[d] = x.dims[d];
    }
    return ct_wgpu_fill_view(call, call->out[0], bits) && ct_wgpu_copy_view(call, &y, &x);
}

static bool run_constant(const ct_call *call, ct_stream *stream) {
    CT_WGPU_UNIT(pad_frame);
    const pad_constant_attrs *at = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    uint32_t bits[2];
    (void)stream;
    size_t size = ct_wgpu_dtype_size(y->dtype);
    ct_wgpu_bits_of(y->dtype, at->value, bits);
    frame f = frame_of(y, x, &at->pads);
    uint32_t word = bits[0];
    if (size == 1) word = (word & 0xff) * 0x01010101u;
    if (size == 2) word = (word & 0xffff) * 0x00010001u;
    frame_params p = {.total = 1,
                      .rank = (uint32_t)f.ndim,
                      .pattern = {word, size == 8 ? bits[1] : word, word, size == 8 ? bits[1] : word}};
    while (size < 16 && widen(&f, size, ct_wgpu_begin_of(y) | ct_wgpu_begin_of(x))) size *= 2;
    if (size < 4) return fill_and_copy(call, &at->pads, bits);
    for (int d = 0; d < f.ndim; d++) {
        p.total *= (uint32_t)f.dims[d];
        p.dims[d] = (uint32_t)f.dims[d], p.before[d] = (uint32_t)f.before[d], p.sizes[d] = (uint32_t)f.sizes[d];
        p.to[d] = (uint32_t)f.to[d], p.from[d] = (uint32_t)f.from[d];
    }
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "frame", 256);
    ct_wgpu_move_operands(&launch, y, x, size);
    launch.more = size == 16 ? frame_quad : size == 8 ? frame_pair : frame_word;
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.total, 256), &p, sizeof p);
}

/* ---- Of x again ---- */

typedef struct params {
    uint32_t total, rank, mode, pad;
    uint32_t sizes[CT_WGPU_DIMS], before[CT_WGPU_DIMS], widths[CT_WGPU_DIMS], small[CT_WGPU_DIMS], large[CT_WGPU_DIMS];
} params;

static params params_of(const ct_view *written, const ct_view *small, const ct_view *large, const ct_dims *pads,
                        int mode) {
    params p = {.total = (uint32_t)ct_wgpu_count(written), .mode = (uint32_t)mode};
    for (int d = 0; d < small->ndim; d++) {
        p.sizes[p.rank] = (uint32_t)small->dims[d];
        p.before[p.rank] = (uint32_t)pads->d[2 * d];
        p.widths[p.rank] = (uint32_t)large->dims[d];
        p.small[p.rank] = (uint32_t)small->strides[d];
        p.large[p.rank++] = (uint32_t)large->strides[d];
    }
    return p;
}

static bool run_repeat(const ct_call *call, ct_stream *stream) {
    CT_WGPU_UNIT(pad_repeat);
    const pad_repeat_attrs *at = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    (void)stream;
    const params p = params_of(y, x, y, &at->pads, at->mode);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "repeat", 256);
    ct_wgpu_move_operands(&launch, y, x, ct_wgpu_dtype_size(x->dtype));
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.total, 256), &p, sizeof p);
}

static bool run_repeat_grad(const ct_call *call, ct_stream *stream) {
    CT_WGPU_UNIT(pad_repeat_grad);
    const pad_repeat_grad_attrs *at = call->attrs;
    const ct_view *g = call->in[0], *y = call->out[0];
    (void)stream;
    if (y->ndim == 0) return ct_wgpu_copy_view(call, y, g);
    const params p = params_of(y, y, g, &at->pads, at->mode);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "repeat_grad", 256);
    ct_wgpu_out(&launch, "y", y);
    ct_wgpu_in(&launch, "g", g);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.total, 256), &p, sizeof p);
}

CT_WGPU_KERNELS(pad_pad) = {
    CT_CANDIDATES(pad_constant, {"pad_constant_elements", ct_wgpu_refuses, NULL, run_constant}),
    CT_CANDIDATES(pad_repeat, {"pad_repeat_elements", ct_wgpu_refuses, NULL, run_repeat}),
    CT_CANDIDATES(pad_repeat_grad, {"pad_repeat_grad_elements", ct_wgpu_refuses, NULL, run_repeat_grad}),
    {0},
};
