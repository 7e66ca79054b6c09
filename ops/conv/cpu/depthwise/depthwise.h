/* Depthwise convolution, what its parts share: the forward pass and the input gradient as one kind of pass, in which each
 * position of the destination adds up taps of the source. Private to ops/conv. */
#ifndef COTANGENT_OPS_CONV_DEPTHWISE_H
#define COTANGENT_OPS_CONV_DEPTHWISE_H

#include "backends/cpu/gemm/engine.h"
#include "backends/cpu/kernel.h"
#include "ops/conv/cpu/kernels.h"

/* Functions that use the bf16 instructions are part of the AVX-512 level, and called where the level above it is in use. */
#if CT_ISA_LEVEL == 2 && __has_include(<avx512bf16intrin.h>)
#define DEPTHWISE_BF16 __attribute__((target("avx512bf16")))
static inline bool depthwise_has_bf16(void) { return ct__gemm_isa->level >= 3; }
#else
static inline bool depthwise_has_bf16(void) { return false; }
#endif

enum {
    DEPTHWISE_STREAM = 16 << 20
}; /* bytes: a result this large would not stay in the caches, it is written past them */

/* Tap t of position d looks at (d * up + first + t * step) / down, where that is whole and inside the source. Forward: up is
 * the stride; input gradient: down is. */
typedef struct depthwise_axis {
    int64_t source, target, taps, up, down, first, step;
} depthwise_axis;

typedef struct depthwise_image {
    void *data;
    int64_t n, c, h, w; /* strides in elements */
} depthwise_image;

typedef struct depthwise_pass {
    depthwise_axis h, w;
    int64_t batch, channels, multiplier;
    int64_t target_channels, sources; /* a target channel adds up `sources` channels of the source */
    bool forward;
    ct_dtype dtype;
    depthwise_image source, target;
    const void *weight; /* of output channel 0, tap (0, 0) as the pass counts them: reversed for the gradient */
    int64_t w_o, w_h, w_w;
    const void *bias;
    int64_t bias_step;
    const void *residual;
    ct_image_strides residual_step;
    ct_gemm_activate activate;
} depthwise_pass;

/* The weight gradient: x and g are read in forward terms. */
typedef struct depthwise_gradient {
    depthwise_axis h, w; /* forward: source x, target g */
    int64_t batch, channels, multiplier;
    ct_dtype dtype;
    depthwise_image x, g;
    void *weight;
    int64_t w_o, w_h, w_w;
    void *bias;
} depthwise_gradient;

/* Axis a of a window, for the pass forward or for the input gradient, whose taps are counted from the last so that steps
 * through the source are positive. */
static inline depthwise_axis depthwise_make_axis(const ct_window *s, int a, bool forward) {
    return (depthwise_axis){.source = forward ? s->in[a] : s->out[a],
                            .target = forward ? s->out[a] : s->in[a],
                            .taps = s->kernel[a],
                            .up = forward ? s->stride[a] : 1,
                            .down = forward ? 1 : s->stride[a],
                            .first = forward ? -s->before[a] : s->before[a] - (s->kernel[a] - 1) * s->dilation[a],
                            .step = s->dilation[a]};
}

/* Keeps a vector that is used several times in its register, where compilers would load it again for each use. */
#if CT_ISA_LEVEL >= 2
#define DEPTHWISE_KEEP(v) __asm__("" : "+v"(v))
#elif defined(__x86_64__)
#define DEPTHWISE_KEEP(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define DEPTHWISE_KEEP(v) __asm__("" : "+w"(v))
#else
#define DEPTHWISE_KEEP(v) (void)(v)
#endif

static inline int64_t depthwise_floor(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t depthwise_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

/* The source of tap t of position d; negative: none. */
static inline int64_t depthwise_at(const depthwise_axis *a, int64_t d, int64_t t) {
    int64_t at = d * a->up + a->first + t * a->step;
    if (a->down > 1) at = at % a->down ? -1 : at / a->down;
    return at < a->source ? at : -1; /* negative: outside as well */
}

/* Whether tap t is inside the source for all positions from d to last, whole steps of `down` apart, or for none. */
static inline bool depthwise_alike(const depthwise_axis *a, int64_t d, int64_t last, int64_t t) {
    const int64_t shift = a->first + t * a->step, low = d * a->up + shift, high = last * a->up + shift;
    const int64_t end = a->source * a->down;
    return low % a->down || (low >= 0 && high < end) || high < 0 || low >= end;
}

/* Source lines are kept sorted by column modulo `up`, `length` of each from index `left` on: where tap t of the target columns
 * with remainder r modulo `down` begins in such a line; -1: they have no such tap. */
static inline int64_t depthwise_offset(const depthwise_axis *a, int64_t r, int64_t t, int64_t left, int64_t length) {
    const int64_t at = r * a->up + a->first + t * a->step;
    if (depthwise_floor(at, a->down) * a->down != at) return -1;
    const int64_t e = at / a->down, index = depthwise_floor(e, a->up);
    return (e - index * a->up) * length + index - left;
}

/* left and length for whole vectors of `lanes` targets a remainder. */
static inline void depthwise_extent(const depthwise_axis *a, int64_t lanes, int64_t *left, int64_t *length) {
    const int64_t last = (a->down - 1) * a->up + a->first + (a->taps - 1) * a->step;
    const int64_t high = depthwise_floor(depthwise_floor(last, a->down), a->up);
    *left = ct__min64(depthwise_floor(depthwise_floor(a->first, a->down), a->up), 0);
    *length = ct__max64(high, 0) + lanes - *left;
}

/* Source rows that `rows` rows of the target may look at. */
static inline int64_t depthwise_rows(const depthwise_axis *a, int64_t rows) {
    return ((rows - 1) * a->up + (a->taps - 1) * a->step) / a->down + 2;
}

/* A bit for each lane in [low, high), as far as there are such. */
static inline uint32_t depthwise_lanes(int64_t low, int64_t high, int lanes) {
    const uint64_t from = (uint64_t)ct__max64(0, ct__min64(low, lanes)),
                   to = (uint64_t)ct__max64(0, ct__min64(high, lanes));
    return (uint32_t)(((1ull << to) - 1) & ~((1ull << from) - 1));
}

/* One line of halves as f32, and back. */
SIMD_INLINE void depthwise_widen_line(float *dst, ct_dtype dtype, const uint16_t *src, int64_t step, int64_t count) {
    uint16_t line[VF32_LANES];
    int64_t i = 0;
    if (step == 1 && dtype == CT_BF16)
        for (; i + VF32_LANES <= count; i += VF32_LANES) {
            __builtin_prefetch(src + i + 1024, 0, 2); /* most often the plane goes on there */
            vf32_store(dst + i, vf32_load_bf16(src + i));
        }
    for (; i < count; i += VF32_LANES) {
        const int n = (int)ct__min64(VF32_LANES, count - i);
        const uint16_t *from = src + i;
        if (step != 1) {
#pragma GCC unroll 1
            for (int j = 0; j < n; j++) line[j] = src[(i + j) * step];
            from = line;
        }
        vf32_store_n(dst + i, dtype == CT_F16 ? vf32_load_f16_n(from, n) : vf32_load_bf16_n(from, n), n);
    }
}
#ifdef DEPTHWISE_BF16
void CT_ISA_FN(ct__depthwise_narrow_bf16)(const float *src, uint16_t *dst, int64_t count);
#endif
SIMD_INLINE void depthwise_narrow_line(const float *src, ct_dtype dtype, uint16_t *dst, int64_t step, int64_t count) {
    uint16_t line[VF32_LANES];
#ifdef DEPTHWISE_BF16
    if (step == 1 && dtype == CT_BF16 && depthwise_has_bf16()) {
        CT_ISA_FN(ct__depthwise_narrow_bf16)(src, dst, count);
        return;
    }
#endif
    for (int64_t i = 0; i < count; i += VF32_LANES) {
        const int n = (int)ct__min64(VF32_LANES, count - i);
        uint16_t *to = step == 1 ? dst + i : line;
        const vf32 v = vf32_load_n(src + i, n);
        if (dtype == CT_F16) vf32_store_f16_n(to, v, n);
        else vf32_store_bf16_n(to, v, n);
#pragma GCC unroll 1
        for (int j = 0; step != 1 && j < n; j++) dst[(i + j) * step] = line[j];
    }
}
/* The same of any dtype that computes as T, in depthwise.c. */
#define DEPTHWISE_LINES(type, T)                                                                                   \
    void CT_ISA_FN(ct__depthwise_read_##type)(T * dst, ct_dtype dtype, const void *data, int64_t at, int64_t step, \
                                              int64_t count);                                                      \
    void CT_ISA_FN(ct__depthwise_write_##type)(const T *src, ct_dtype dtype, void *data, int64_t at, int64_t step, \
                                               int64_t count);
DEPTHWISE_LINES(f32, float)
DEPTHWISE_LINES(f64, double)
#define depthwise_read_f32  CT_ISA_FN(ct__depthwise_read_f32)
#define depthwise_write_f32 CT_ISA_FN(ct__depthwise_write_f32)
#define depthwise_read_f64  CT_ISA_FN(ct__depthwise_read_f64)
#define depthwise_write_f64 CT_ISA_FN(ct__depthwise_write_f64)

/* Planes of one channel at a time, any strides (depthwise_planes.h), and vectors of channels (depthwise_pixels.h). */
#define DEPTHWISE_ENTRY(path)                                                                \
    size_t CT_ISA_FN(ct__depthwise_##path##_bytes)(const depthwise_pass *pass);              \
    void CT_ISA_FN(ct__depthwise_##path)(const depthwise_pass *pass, void *scratch);         \
    size_t CT_ISA_FN(ct__depthwise_##path##_grad_bytes)(const depthwise_gradient *gradient); \
    void CT_ISA_FN(ct__depthwise_##path##_grad)(const depthwise_gradient *gradient, void *scratch);
DEPTHWISE_ENTRY(planes)
DEPTHWISE_ENTRY(pixels)

#ifdef DEPTHWISE_BF16
/* depthwise_bf16.c, either way; bytes of scratch where there is none yet. */
bool CT_ISA_FN(ct__depthwise_bf16_can)(const depthwise_pass *pass, bool pixels);
size_t CT_ISA_FN(ct__depthwise_bf16)(const depthwise_pass *pass, bool pixels, void *scratch);
#endif

#endif
