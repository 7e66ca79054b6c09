/* Depthwise convolution of bf16 with 3x3 taps next to each other and stride 1, forward and input gradient, where the processor
 * rounds to bf16 itself: sums in f32, of numbers that are widened in registers. As in the matrix products of bf16,
 * results too small for normal numbers are zero. */
#include "ops/conv/cpu/depthwise/depthwise.h"

#ifdef DEPTHWISE_BF16

enum { BLOCK = 8, LINE = 32 }; /* rows computed together; halves of a cache line */

typedef struct half_pass {
    const depthwise_pass *p;
    int64_t chunk, chunks; /* planes of a chunk; or rows, and chunks of an image */
    float *weights;        /* pixels: (blocks of 32 channels, taps and bias, even and odd channels) */
    uint16_t *zeros;       /* what stands for rows outside */
    bool stream;           /* the result is too large for the caches and goes past them */
} half_pass;

/* Where the halves of two vectors are in their common order: those of the first and of the second in turn. */
static const uint16_t interleaved[LINE] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                           8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
static const uint16_t interleaved_16[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};

/* ---- Planes: vectors of columns ---- */

/* Two numbers that are bf16, as the instructions take them. */
static inline int pair_of(float low, float high) {
    uint32_t bits[2];
    memcpy(bits, (const float[2]){low, high}, sizeof bits);
    return (int)(bits[0] >> 16 | bits[1]);
}

#define ROWS  wide_rows
#define V     __m512
#define VI    __m512i
#define VH    __m512bh
#define MASK  __mmask32
#define WIDE  32
#define R(op) _mm512_##op
#include "ops/conv/cpu/depthwise/depthwise_bf16_rows.h"

#define ROWS  narrow_rows
#define V     __m256
#define VI    __m256i
#define VH    __m256bh
#define MASK  __mmask16
#define WIDE  16
#define R(op) _mm256_##op
#include "ops/conv/cpu/depthwise/depthwise_bf16_rows.h"

static void plane(const half_pass *s, int64_t image, int64_t channel) {
    const depthwise_pass *p = s->p;
    const int64_t other = p->forward ? channel / p->multiplier : channel, first = p->h.first, width = p->w.target;
    const int64_t rest = width % 32 <= 16 ? width % 32 : 0, shift = p->w.first + 1;
    const uint16_t *src = (const uint16_t *)p->source.data + image * p->source.n + other * p->source.c;
    uint16_t *dst = (uint16_t *)p->target.data + image * p->target.n + channel * p->target.c;
    float w[10] = {0};
    for (int k = 0; k < 3; k++)
        depthwise_read_f32(w + 3 * k, CT_BF16, p->weight, channel * p->w_o + k * p->w_h, p->w_w, 3);
    if (p->bias) depthwise_read_f32(w + 9, CT_BF16, p->bias, channel * p->bias_step, 1, 1);
    for (int64_t i = 0; i < p->h.target; i += BLOCK, dst += BLOCK * p->target.h) {
        const uint16_t *rows[BLOCK + 2];
        for (int r = 0; r < BLOCK + 2; r++) {
            const int64_t row = first + i + r;
            const bool there = row >= 0 && row < p->h.source;
            rows[r] = there ? src + row * p->source.h : s->zeros;
            for (int64_t j = 0; there && r < BLOCK && j < p->w.source; j += LINE) /* what follows it */
                __builtin_prefetch(rows[r] + j + 2 * BLOCK * p->source.h, 0, 2);
        }
        wide_rows(dst, p->target.h, p->h.target - i, 0, width - rest, rows, shift, p->w.source, w);
        narrow_rows(dst, p->target.h, p->h.target - i, width - rest, width, rows, shift, p->w.source, w);
    }
}

static void planes_chunk(void *ctx, int64_t chunk, int worker) {
    const half_pass *s = ctx;
    (void)worker;
    const int64_t channels = s->p->target_channels, end = ct__min64((chunk + 1) * s->chunk, s->p->batch * channels);
    for (int64_t i = chunk * s->chunk; i < end; i++) plane(s, i / channels, i % channels);
}

/* ---- Pixels: vectors of 32 channels, those of even and of odd number apart ---- */

SIMD_INLINE DEPTHWISE_BF16 void store_pixel(uint16_t *to, __m512 even, __m512 odd, bool stream) {
    const __m512i order = _mm512_loadu_epi16(interleaved);
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even); /* even ones below */
    const __m512i v = _mm512_permutexvar_epi16(order, both);
    if (stream) _mm512_stream_si512((void *)to, v);
    else _mm512_storeu_si512(to, v);
}

/* `count` positions, a multiple of `block`, that have all their columns; rows outside are zeros, of step 0. */
SIMD_INLINE DEPTHWISE_BF16 void pixels_body(uint16_t *dst, int64_t dst_step, const uint16_t *const *src,
                                            const int64_t *step, const float *w, int64_t count, bool stream,
                                            const int block) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __m512 weight[18];
#pragma GCC unroll 18
    for (int i = 0; i < 18; i++) {
        weight[i] = _mm512_loadu_ps(w + i * 16);
        DEPTHWISE_KEEP(weight[i]);
    }
    for (int64_t j = 0; j < count; j += block) {
        __m512 even[4], odd[4];
#pragma GCC unroll 4
        for (int q = 0; q < block; q++) even[q] = _mm512_loadu_ps(w + 18 * 16), odd[q] = _mm512_loadu_ps(w + 19 * 16);
#pragma GCC unroll 3
        for (int k = 0; k < 3; k++) {
            const uint16_t *at = src[k] + j * step[k];
#pragma GCC unroll 6
            for (int t = 0; t < block + 2; t++) {
                const __m512i v = _mm512_loadu_si512(at + t * step[k]);
                __m512 e = (__m512)_mm512_slli_epi32(v, 16), o = (__m512)_mm512_and_si512(v, high);
                DEPTHWISE_KEEP(e);
                DEPTHWISE_KEEP(o);
#pragma GCC unroll 4
                for (int q = 0; q < block; q++)
                    if (t - q >= 0 && t - q < 3) {
                        even[q] = _mm512_fmadd_ps(e, weight[2 * (k * 3 + t - q)], even[q]);
                        odd[q] = _mm512_fmadd_ps(o, weight[2 * (k * 3 + t - q) + 1], odd[q]);
                    }
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < block; q++) store_pixel(dst + (j + q) * dst_step, even[q], odd[q], stream);
    }
}
static __attribute__((noinline)) DEPTHWISE_BF16 void pixels_four(uint16_t *dst, int64_t dst_step,
                                                                 const uint16_t *const *src, const int64_t *step,
                                                                 const float *w, int64_t count, bool stream) {
    pixels_body(dst, dst_step, src, step, w, count, stream, 4);
}
static __attribute__((noinline)) DEPTHWISE_BF16 void pixels_one(uint16_t *dst, int64_t dst_step,
                                                                const uint16_t *const *src, const int64_t *step,
                                                                const float *w, int64_t count, bool stream) {
    pixels_body(dst, dst_step, src, step, w, count, stream, 1);
}

static void pixels_chunk(void *ctx, int64_t chunk, int worker) {
    const half_pass *s = ctx;
    const depthwise_pass *p = s->p;
    const depthwise_image *x = &p->source, *y = &p->target;
    const int64_t image = chunk / s->chunks, row0 = chunk % s->chunks * s->chunk;
    const int64_t row1 = ct__min64(row0 + s->chunk, p->h.target), first = p->w.first;
    /* Positions [inner, outer) have all their columns inside. */
    const int64_t inner = ct__min64(p->w.target, ct__max64(0, -first));
    const int64_t outer = ct__max64(inner, ct__min64(p->w.target, p->w.source - 2 - first));
    (void)worker;
    for (int64_t c = 0; c < p->channels; c += LINE) {
        const int64_t channel = ct__min64(c, p->channels - LINE);
        const float *w = s->weights + c / LINE * 20 * 16;
        for (int64_t i = row0; i < row1; i++) {
            const uint16_t *rows[3], *at[3];
            int64_t step[3];
            for (int k = 0; k < 3; k++) {
                const int64_t row = i + p->h.first + k;
                const bool there = row >= 0 && row < p->h.source;
                rows[k] = there ? (const uint16_t *)x->data + image * x->n + row * x->h + channel : s->zeros;
                step[k] = there ? x->w : 0;
            }
            uint16_t *dst = (uint16_t *)y->data + image * y->n + i * y->h + channel;
            for (int64_t j = 0; j < p->w.target;) {
                if (j >= inner && j < outer) {
                    const int64_t count = outer - j < 4 ? outer - j : (outer - j) / 4 * 4;
                    for (int k = 0; k < 3; k++) at[k] = rows[k] + (j + first) * step[k];
                    (count < 4 ? pixels_one : pixels_four)(dst + j * y->w, y->w, at, step, w, count, s->stream);
                    j += count;
                    continue;
                }
                /* At an edge: a copy of three columns, zero outside. */
                uint16_t edge[9 * LINE] = {0};
                const int64_t edge_step[3] = {LINE, LINE, LINE};
                for (int k = 0; k < 3; k++) {
                    at[k] = edge + k * 3 * LINE;
                    for (int64_t t = 0; t < 3; t++)
                        if (j + first + t >= 0 && j + first + t < p->w.source)
                            memcpy(edge + (k * 3 + t) * LINE, rows[k] + (j + first + t) * step[k], 2 * LINE);
                }
                pixels_one(dst + j * y->w, y->w, at, edge_step, w, 1, s->stream);
                j++;
            }
        }
    }
    if (s->stream) simd_fence();
}

static void pack_pixels(const half_pass *s) {
    const depthwise_pass *p = s->p;
    float *to = s->weights;
    for (int64_t c = 0; c < p->channels; c += LINE)
        for (int t = 0; t < 10; t++, to += LINE) {
            const int64_t channel = ct__min64(c, p->channels - LINE);
            float line[LINE] = {0};
            if (t < 9)
                depthwise_read_f32(line, CT_BF16, p->weight, channel * p->w_o + t / 3 * p->w_h + t % 3 * p->w_w, p->w_o,
                                   LINE);
            else if (p->bias) depthwise_read_f32(line, CT_BF16, p->bias, channel * p->bias_step, p->bias_step, LINE);
            for (int l = 0; l < LINE; l++) to[l % 2 * 16 + l / 2] = line[l];
        }
}

/* ---- Both ---- */

bool CT_ISA_FN(ct__depthwise_bf16_can)(const depthwise_pass *p, bool pixels) {
    const depthwise_axis *h = &p->h, *w = &p->w;
    return p->dtype == CT_BF16 && depthwise_has_bf16() && !p->residual && !p->activate && p->sources == 1 &&
           h->up == 1 && h->down == 1 && w->up == 1 && w->down == 1 && h->taps == 3 && w->taps == 3 && h->step == 1 &&
           w->step == 1 && (pixels ? p->channels >= LINE : p->source.w == 1 && p->target.w == 1);
}

/* Without scratch: how many bytes of it. */
size_t CT_ISA_FN(ct__depthwise_bf16)(const depthwise_pass *p, bool pixels, void *scratch) {
    half_pass s = {.p = p};
    if (pixels) {
        const depthwise_image *y = &p->target;
        const bool large = p->batch * p->target_channels * p->h.target * p->w.target >= DEPTHWISE_STREAM / 4;
        s.stream = large && ((uintptr_t)y->data % 64 | (uint64_t)(p->channels | y->w | y->h | y->n) % LINE) == 0;
        const int64_t work = ct__max64(1, p->w.target * p->channels * 9);
        const int64_t rows = ct__max64(1, ct__min64(p->h.target, ct__grain(1 << 19) / work));
        const int64_t weights = (p->channels + LINE - 1) / LINE * 10 * LINE;
        s.chunks = (p->h.target + rows - 1) / rows;
        s.chunk = (p->h.target + s.chunks - 1) / s.chunks;
        s.weights = scratch;
        if (!scratch) return (size_t)(weights + 3 * LINE) * sizeof(float);
        s.zeros = (uint16_t *)(void *)(s.weights + weights);
        memset(s.zeros, 0, LINE * sizeof *s.zeros);
        pack_pixels(&s);
        ct__parallel(p->batch * s.chunks, pixels_chunk, &s);
        return 0;
    }
    s.chunk = ct__max64(1, ct__grain(16384) / ct__max64(1, p->h.target * p->w.target));
    const size_t bytes = (size_t)(p->w.source + p->w.target + 8 * LINE) * sizeof *s.zeros;
    if (!scratch) return bytes;
    s.zeros = memset(scratch, 0, bytes);
    ct__parallel((p->batch * p->target_channels + s.chunk - 1) / s.chunk, planes_chunk, &s);
    return 0;
}

#endif
