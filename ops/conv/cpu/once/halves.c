/* Copies of a convolution's tensors of halves in f32, see the header. */
#include "ops/conv/cpu/halves.h"

#include "backends/cpu/gemm/block.h"
#include "core/threads.h"

enum { CHUNK = 32768, /* elements */ MOST_BYTES = 128 << 20 /* of all copies */ };

/* Elements of each tensor; 0: there is none. Which of x, w and y is the result the kind tells. */
typedef struct sizes {
    int64_t x, w, y, residual, bias, bias_grad;
} sizes;

/* Elements, where they lie in one run from the first on; -1: they do not. */
static int64_t dense_size(const int64_t *size, const int64_t *stride, int n) {
    int64_t count = 1, span = 1;
    bool forward = true; /* a step back could make up for a gap */
    for (int i = 0; i < n; i++) {
        count *= size[i];
        span += (size[i] - 1) * stride[i];
        forward &= size[i] <= 1 || stride[i] >= 0;
    }
    return count == 0 ? 0 : forward && count == span ? count : -1;
}

static int64_t image_size(const ct_image_strides *s, int64_t batch, int64_t channels, const int64_t *size) {
    const int64_t dims[] = {batch, channels, size[0], size[1], size[2]},
                  strides[] = {s->n, s->c, s->s[0], s->s[1], s->s[2]};
    return dense_size(dims, strides, 5);
}

static sizes sizes_of(const ct_conv_problem *p) {
    const ct_conv_geometry *g = &p->geometry;
    const int64_t *k = g->window.kernel;
    const int64_t weight[] = {g->out_channels, g->in_channels / g->groups, k[0], k[1], k[2]},
                  strides[] = {g->w.o, g->w.i, g->w.k[0], g->w.k[1], g->w.k[2]};
    sizes s = {.x = image_size(&g->x, g->batch, g->in_channels, g->window.in),
               .w = p->kind == CT_CONV_WEIGHT_GRAD && !p->w ? 0 : dense_size(weight, strides, 5),
               .y = image_size(&g->y, g->batch, g->out_channels, g->window.out)};
    if (p->residual) s.residual = image_size(&p->residual_strides, g->batch, g->out_channels, g->window.out);
    if (p->bias) s.bias = p->kind == CT_CONV_INPUT_GRAD ? g->in_channels : g->out_channels;
    if (p->bias_grad) s.bias_grad = g->out_channels;
    return s;
}

static size_t bytes_of(const sizes *s) {
    const int64_t count[] = {s->x, s->w, s->y, s->residual, s->bias, s->bias_grad};
    size_t bytes = 0;
    for (int i = 0; i < 6; i++) bytes += ct__room(count[i] * (int64_t)sizeof(float));
    return bytes;
}

const char *ct__conv_halves_refuse(const ct_conv_problem *p) {
    const sizes s = sizes_of(p);
    if (s.x < 0 || s.w < 0 || s.y < 0 || s.residual < 0) return "halves that are not dense";
    return bytes_of(&s) > MOST_BYTES ? "its copies in f32 would be large" : NULL;
}

size_t ct__conv_halves_bytes(const ct_conv_problem *p) {
    const sizes s = sizes_of(p);
    return bytes_of(&s);
}

typedef struct conversion {
    void (*load)(float *to, const uint16_t *from, int64_t n);
    void (*store)(uint16_t *to, const float *from, int64_t n);
    uint16_t *half;
    float *wide;
    int64_t count, chunk;
    bool back;
} conversion;

static void convert_chunk(void *ctx, int64_t chunk, int worker) {
    const conversion *c = ctx;
    const int64_t from = chunk * c->chunk, n = ct__min(c->chunk, c->count - from);
    (void)worker;
    if (c->back) c->store(c->half + from, c->wide + from, n);
    else c->load(c->wide + from, c->half + from, n);
}

static void convert(const ct_conv_problem *p, const ct_elementwise_isa *isa, const void *half, const void *wide,
                    int64_t count, bool back) {
    const bool bf16 = p->dtype == CT_BF16;
    conversion c = {bf16 ? isa->load_bf16 : isa->load_f16,
                    bf16 ? isa->store_bf16 : isa->store_f16,
                    (uint16_t *)(uintptr_t)half,
                    (float *)(uintptr_t)wide,
                    count,
                    ct__grain(CHUNK),
                    back};
    ct__parallel(ct__ceil_div(count, c.chunk), convert_chunk, &c);
}

ct_conv_problem ct__conv_halves_widen(const ct_conv_problem *p, const ct_elementwise_isa *isa, void *scratch) {
    const sizes s = sizes_of(p);
    ct_conv_problem wide = *p;
    char *at = scratch;
    wide.dtype = CT_F32;
    wide.x = ct__claim(&at, s.x * 4), wide.y = ct__claim(&at, s.y * 4);
    if (p->w) wide.w = ct__claim(&at, s.w * 4);
    if (p->kind != CT_CONV_INPUT_GRAD) convert(p, isa, p->x, wide.x, s.x, false);
    if (p->kind != CT_CONV_FORWARD) convert(p, isa, p->y, wide.y, s.y, false);
    if (p->kind != CT_CONV_WEIGHT_GRAD) convert(p, isa, p->w, wide.w, s.w, false);
    if (p->residual) {
        wide.residual = ct__claim(&at, s.residual * 4);
        convert(p, isa, p->residual, wide.residual, s.residual, false);
    }
    if (p->bias) {
        float *bias = (float *)(void *)ct__claim(&at, s.bias * 4);
        for (int64_t i = 0; i < s.bias; i++)
            (p->dtype == CT_BF16 ? isa->load_bf16 : isa->load_f16)(bias + i,
                                                                   (const uint16_t *)p->bias + i * p->bias_stride, 1);
        wide.bias = bias, wide.bias_stride = 1;
    }
    if (p->bias_grad) wide.bias_grad = ct__claim(&at, s.bias_grad * 4);
    return wide;
}

void ct__conv_halves_narrow(const ct_conv_problem *p, const ct_conv_problem *wide, const ct_elementwise_isa *isa) {
    const sizes s = sizes_of(p);
    if (p->kind == CT_CONV_FORWARD) convert(p, isa, p->y, wide->y, s.y, true);
    if (p->kind == CT_CONV_INPUT_GRAD) convert(p, isa, p->x, wide->x, s.x, true);
    if (p->kind == CT_CONV_WEIGHT_GRAD) convert(p, isa, p->w, wide->w, s.w, true);
    if (p->bias_grad) convert(p, isa, p->bias_grad, wide->bias_grad, s.bias_grad, true);
}
