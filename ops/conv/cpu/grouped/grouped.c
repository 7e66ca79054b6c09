/* Convolution with few channels per group: vectors of eight output channels of one group, positions along a row broadcast from
 * a padded copy of the source in L1. Forward, and the input gradient, which exchanges the channels and reverses the
 * taps; f32, and halves widened as they are copied, or, where the processor multiplies them, bf16 in pairs of source
 * channels, which then are the numbers: "units". The weight gradient is in grouped_weight.c. */
#include "ops/conv/cpu/grouped/grouped.h"

enum { BAND_BYTES = 24 << 10 };

/* ---- The tiles ---- */

typedef void (*tile_fn)(float *out, int64_t step, const float *src, const int64_t *offset, const float *w, int64_t taps,
                        const float *start);
#if VF32_LANES == 16
enum { PLANE_ROWS = 3 };
typedef void (*plane_fn)(void *out, int64_t step, int64_t out_row, const float *src, int64_t src_row,
                         const int64_t *offset, const float *w, int64_t taps, const float *start, int64_t count, int n);
#endif

#define TILE_NAME(name) name
#define TILE_TARGET
#define TILE_FMA(a, b, c)    v8_fma(a, b, c)
#define PLANE_FMA(a, b, c)   vf32_fma(a, b, c)
#define PLANE_STORE(p, v, n) vf32_store_n(p, v, n)
#define PLANE_TYPE           float
#include "ops/conv/cpu/grouped/grouped_tile.h"

#ifdef DEPTHWISE_BF16
/* The same with pairs of bf16 for numbers: each step adds the products of two source channels. */
#define TILE_NAME(name)    name##_bf16
#define TILE_TARGET        DEPTHWISE_BF16
#define TILE_FMA(a, b, c)  _mm256_dpbf16_ps(c, (__m256bh)(a), (__m256bh)(b))
#define PLANE_FMA(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#define PLANE_STORE(p, v, n) \
    _mm256_mask_storeu_epi16(p, (__mmask16)_bzhi_u32(0xffff, (unsigned)(n)), (__m256i)_mm512_cvtneps_pbh(v))
#define PLANE_TYPE uint16_t
#include "ops/conv/cpu/grouped/grouped_tile.h"
#endif

/* ---- A pass ---- */

typedef struct pass {
    const grouped_pass *p;
    int64_t left, length, line, row; /* of the copy: a channel's line, a row of all channels */
    int64_t rows, source_rows;       /* of a band */
    int64_t blocks;                  /* of eight target channels per group */
    int64_t units;                   /* source channels, or pairs of them */
    int64_t taps;                    /* kernel positions by units */
    int64_t width;                   /* target columns a remainder */
    int64_t chunk;                   /* groups */
    int64_t *offset;                 /* (taps), where every position has the same */
    float *weights;                  /* (groups, blocks, taps, 8) */
    float *workers;
    int64_t worker;
    bool pairs;
    const tile_fn *tiles;
} pass;

static void plan(pass *s, const grouped_pass *p) {
    *s = (pass){.p = p, .units = p->sources, .tiles = tiles};
#ifdef DEPTHWISE_BF16
    if (p->dtype == CT_BF16 && depthwise_has_bf16()) {
        s->pairs = true;
        s->units = (p->sources + 1) / 2;
        s->tiles = tiles_bf16;
    }
#endif
    s->width = (p->w.target + p->w.down - 1) / p->w.down;
    depthwise_extent(&p->w, s->width, &s->left, &s->length);
    s->line = p->w.up * s->length;
    s->row = s->line * s->units;
    s->rows = p->h.target;
    while (s->rows > 4 && depthwise_rows(&p->h, s->rows) * s->row * (int64_t)sizeof(float) > BAND_BYTES)
        s->rows = (s->rows + 1) / 2;
    s->source_rows = depthwise_rows(&p->h, s->rows);
    s->blocks = (p->targets + 7) / 8;
    s->taps = p->h.taps * p->w.taps * s->units;
    const int64_t work = p->h.target * p->w.target * s->taps * s->blocks * 8;
    s->chunk = ct__min64(8, ct__max64(1, ct__grain(1 << 19) / ct__max64(1, work)));
    s->worker = depthwise_up(2 * s->taps, 16) + depthwise_up(s->taps * 8, 16) +
                depthwise_up(s->source_rows * s->row + 16, 16) + depthwise_up(s->width * 8, 16) * 2 + 32;
}

/* Those of source channels 2 i and 2 i + 1, in turn. */
static void pair_weights(uint16_t *to, const grouped_pass *p, int64_t at, int64_t i, int64_t count) {
    const uint16_t *from = (const uint16_t *)p->weight + at;
    for (int64_t j = 2 * i; j < 2 * i + 2 && j < p->sources; j++)
        for (int64_t l = 0; l < count; l++) to[2 * l + j % 2] = from[j * p->w_source + l * p->w_target];
}

/* Weights of a group, eight target channels side by side, zero past the last. */
static void pack_weights(void *ctx, int64_t chunk, int worker) {
    const pass *s = ctx;
    const grouped_pass *p = s->p;
    const int64_t group = chunk / s->blocks, first = chunk % s->blocks * 8, count = ct__min64(8, p->targets - first);
    float *to = s->weights + chunk * s->taps * 8;
    (void)worker;
    for (int64_t k = 0; k < p->h.taps; k++)
        for (int64_t t = 0; t < p->w.taps; t++)
            for (int64_t i = 0; i < s->units; i++, to += 8) {
                const int64_t at = group * p->w_group + first * p->w_target + k * p->w_h + t * p->w_w;
                memset(to, 0, 8 * sizeof *to);
                if (s->pairs) pair_weights((uint16_t *)(void *)to, p, at, i, count);
                else depthwise_read_f32(to, p->dtype, p->weight, at + i * p->w_source, p->w_target, count);
            }
}

/* ---- The source ---- */

static void copy_channels(const pass *s, float *to, int64_t at, int64_t step, int64_t have, int64_t ahead) {
    const grouped_pass *p = s->p;
    const int64_t line = s->line, channels = p->sources, next = p->source.c;
    const float *from = (const float *)p->source.data + at;
    const uint16_t *half = (const uint16_t *)p->source.data + at;
    if (p->dtype == CT_F32 && step == 1) {
        for (int64_t c = 0; c < channels; c++)
            for (int64_t j = 0; j < have; j += VF32_LANES) {
                const int n = (int)ct__min64(VF32_LANES, have - j);
                __builtin_prefetch(from + c * next + j + ahead);
                vf32_store_n(to + c * line + j, vf32_load_n(from + c * next + j, n), n);
            }
    } else if (p->dtype == CT_F32 && next == 1) {
        for (int64_t j = 0; j < have; j++) __builtin_prefetch(from + j * step + ahead);
        grouped_transpose(to, line, from, step, have, channels);
    } else if (p->dtype != CT_F32 && next == 1) {
        for (int64_t j = 0; j < have; j += 8) {
            float wide[8 * GROUPED_MOST];
            const int64_t n = ct__min64(8, have - j);
            for (int64_t q = 0; q < n; q++)
                for (int64_t c = 0; c < channels; c += VF32_LANES) {
                    const uint16_t *at_c = half + (j + q) * step + c;
                    const int l = (int)ct__min64(VF32_LANES, channels - c);
                    vf32_store_n(wide + q * channels + c,
                                 p->dtype == CT_F16 ? vf32_load_f16_n(at_c, l) : vf32_load_bf16_n(at_c, l), l);
                }
            grouped_transpose(to + j, line, wide, channels, n, channels);
        }
    } else if (p->dtype != CT_F32) {
        for (int64_t c = 0; c < channels; c++)
            depthwise_widen_line(to + c * line, p->dtype, half + c * next, step, have);
    } else {
        for (int64_t c = 0; c < channels; c++) depthwise_read_f32(to + c * line, CT_F32, from, c * next, step, have);
    }
}

#ifdef DEPTHWISE_BF16
static void copy_pairs(const pass *s, float *to, int64_t at, int64_t step, int64_t have, int64_t ahead) {
    const grouped_pass *p = s->p;
    const int64_t line = s->line, channels = p->sources, next = p->source.c;
    const uint16_t *from = (const uint16_t *)p->source.data + at;
    if (step != 1 && next == 1 && have >= 8 && channels % 8 == 0) {
        for (int64_t j = 0; j < have; j++) __builtin_prefetch(from + j * step + ahead);
        for (int64_t j = 0; j < have; j += 8)
            for (int64_t c = 0; c < channels; c += 8) {
                const int64_t q = ct__min64(j, have - 8); /* the last ones overlap those before them */
                grouped_turn_four(to + c / 2 * line + q, line, from + q * step + c, step * 2);
            }
        return;
    }
    for (int64_t c = 0; c < channels; c += 2) {
        const uint16_t *low = from + c * next, *high = c + 1 < channels ? low + next : NULL;
        float *dst = to + c / 2 * line;
        for (int64_t j = 0; j < have; j += 16) {
            const int n = (int)ct__min64(16, have - j);
            const __mmask16 m = (__mmask16)_bzhi_u32(0xffff, (unsigned)n);
            uint16_t lows[16], highs[16] = {0};
            const uint16_t *a = low + j, *b = high ? high + j : highs;
            if (step != 1) {
                for (int q = 0; q < n; q++) lows[q] = low[(j + q) * step], highs[q] = high ? high[(j + q) * step] : 0;
                a = lows, b = highs;
            } else {
                __builtin_prefetch(a + ahead);
                __builtin_prefetch(b + ahead);
            }
            const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, a));
            const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, b));
            _mm512_mask_storeu_epi32(dst + j, m, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
        }
    }
}

/* Eight channels of `have` positions. */
static DEPTHWISE_BF16 void store_pixels(uint16_t *dst, int64_t step, const float *results, int64_t have) {
    for (int64_t i = 0; i < have; i++)
        _mm_storeu_si128((__m128i *)(void *)(dst + i * step),
                         (__m128i)_mm256_cvtneps_pbh(_mm256_loadu_ps(results + i * 8)));
}
#endif

/* Rows [row, row + count) of a group, each unit a line of columns sorted modulo w.up; rows outside the image are zero. The
 * padding of the columns is not written: it stays zero from the start. What lies `ahead` elements further will be copied
 * next: lines far apart are more than the hardware sees coming. */
static void copy_rows(const pass *s, float *dst, int64_t image, int64_t group, int64_t row, int64_t count,
                      int64_t ahead) {
    const grouped_pass *p = s->p;
    const depthwise_image *x = &p->source;
    const int64_t up = p->w.up;
    for (int64_t i = row; i < row + count; i++, dst += s->row) {
        if (i < 0 || i >= p->h.source) {
            memset(dst, 0, (size_t)s->row * sizeof *dst);
            continue;
        }
        for (int64_t r = 0; r < up; r++) {
            const int64_t have = ct__max64(0, ct__min64((p->w.source - r + up - 1) / up, s->length + s->left));
            const int64_t at = image * x->n + group * p->sources * x->c + i * x->h + r * x->w;
            float *to = dst + r * s->length - s->left;
#ifdef DEPTHWISE_BF16
            if (s->pairs) {
                copy_pairs(s, to, at, up * x->w, have, ahead);
                continue;
            }
#endif
            copy_channels(s, to, at, up * x->w, have, ahead);
        }
    }
}

/* A row of results, (width, 8), to its place: one line a position or one a channel, whichever is dense. */
static void store_row(const pass *s, float *results, float *transposed, int64_t image, int64_t channel, int64_t count,
                      int64_t row, int64_t r) {
    const grouped_pass *p = s->p;
    const depthwise_image *y = &p->target;
    const ct_image_strides *e = &p->residual_step;
    const int64_t down = p->w.down, have = (p->w.target - r + down - 1) / down;
    const int64_t at = image * y->n + channel * y->c + row * y->h + r * y->w;
    const int64_t from = image * e->n + channel * e->c + row * e->s[1] + r * e->s[2];
    const bool by_channel = y->c != 1; /* lines of one channel */
#ifdef DEPTHWISE_BF16
    if (s->pairs && !by_channel && count == 8 && !p->residual && !p->activate) {
        store_pixels((uint16_t *)y->data + at, down * y->w, results, have);
        return;
    }
#endif
    const bool direct = p->dtype == CT_F32 && !p->residual && !p->activate && y->w * down == 1;
    if (by_channel) {
        float *to = direct ? (float *)y->data + at : transposed;
        const int64_t step = direct ? y->c : s->width;
        grouped_transpose(to, step, results, 8, have, count);
        if (direct) return;
    }
    for (int64_t i = 0; !by_channel && i < have; i++) /* the next groups' place */
        __builtin_prefetch((char *)y->data + (at + i * down * y->w) * (p->dtype == CT_F32 ? 4 : 2) + 64, 1);
    const int64_t lines = by_channel ? count : have, length = by_channel ? have : count;
    for (int64_t i = 0; i < lines; i++) {
        float *line = by_channel ? transposed + i * s->width : results + i * 8;
        const int64_t step = by_channel ? down * y->w : 1;
        if (p->residual) {
            const int64_t more_at = from + (by_channel ? i * e->c : i * down * e->s[2]);
            const int64_t more_step = by_channel ? down * e->s[2] : e->c;
            for (int64_t j = 0; j < length; j += VF32_LANES) {
                float more[VF32_LANES];
                const int64_t n = ct__min64(VF32_LANES, length - j);
                depthwise_read_f32(more, p->dtype, p->residual, more_at + j * more_step, more_step, n);
                for (int64_t l = 0; l < n; l++) line[j + l] += more[l];
            }
        }
        if (p->activate) p->activate(NULL, line, length);
        const int64_t place = at + (by_channel ? i * y->c : i * down * y->w);
        if (p->dtype == CT_F32) depthwise_write_f32(line, CT_F32, y->data, place, step, length);
        else depthwise_narrow_line(line, p->dtype, (uint16_t *)y->data + place, step, length);
    }
}

/* Offsets of the taps of target row `row` and remainder r from the copy's row `first`, and how many there are. Taps that this
 * position lacks are left out, and w then lists the weights of the others. */
static int64_t list_taps(const pass *s, int64_t row, int64_t r, int64_t first, int64_t *offset, float *w,
                         const float *weights) {
    const grouped_pass *p = s->p;
    int64_t count = 0;
    for (int64_t k = 0; k < p->h.taps; k++) {
        const int64_t at = row * p->h.up + p->h.first + k * p->h.step;
        if (depthwise_floor(at, p->h.down) * p->h.down != at) continue;
        for (int64_t t = 0; t < p->w.taps; t++) {
            const int64_t column = depthwise_offset(&p->w, r, t, s->left, s->length);
            if (column < 0) continue;
            if (w)
                memcpy(w + count * 8, weights + (k * p->w.taps + t) * s->units * 8, (size_t)s->units * 8 * sizeof *w);
            for (int64_t i = 0; i < s->units; i++)
                offset[count++] = (at / p->h.down - first) * s->row + i * s->line + column;
        }
    }
    return count;
}

/* ---- Planes ---- */

#if VF32_LANES == 16
/* Whether vectors of columns are filled well, and where they belong. */
static bool in_planes(const pass *s) {
    const grouped_pass *p = s->p;
    const int64_t vectors = (p->w.target + 15) / 16;
    return (p->dtype == CT_F32 || s->pairs) && !p->residual && !p->activate && p->target.w == 1 && p->target.c != 1 &&
           p->w.up == 1 && p->w.down == 1 && p->h.down == 1 && p->w.target * 5 >= vectors * 16 * 4;
}

static __attribute__((noinline)) void compute_planes(const pass *s, const float *source, const float *weights,
                                                     const float *start, int64_t image, int64_t channel, int64_t count,
                                                     int64_t row0, int64_t rows) {
    const depthwise_image *y = &s->p->target;
    const int64_t row = s->p->h.up * s->row, parts = (rows + PLANE_ROWS - 1) / PLANE_ROWS, size = s->pairs ? 2 : 4;
    char *out = (char *)y->data + (image * y->n + channel * y->c + row0 * y->h) * size;
    const plane_fn *tile = planes;
#ifdef DEPTHWISE_BF16
    if (s->pairs) tile = planes_bf16;
#endif
    for (int64_t part = 0; part < parts; part++) {
        const int64_t begin = rows * part / parts, high = rows * (part + 1) / parts - begin;
        for (int64_t j = 0; j < s->width; j += 16)
            tile[high - 1](out + (begin * y->h + j) * size, y->c, y->h, source + begin * row + j, row, s->offset,
                           weights, s->taps, start, count, (int)ct__min64(16, s->width - j));
    }
}
#else
static bool in_planes(const pass *s) { return (void)s, false; }
static void compute_planes(const pass *s, const float *source, const float *weights, const float *start, int64_t image,
                           int64_t channel, int64_t count, int64_t row0, int64_t rows) {
    (void)s, (void)source, (void)weights, (void)start, (void)image, (void)channel, (void)count, (void)row0, (void)rows;
}
#endif

/* ---- All of it ---- */

static void one_group(const pass *s, int64_t image, int64_t group, int worker) {
    const grouped_pass *p = s->p;
    const int64_t ahead = p->source.c == 1 ? ct__max64(16, p->sources) : p->sources * p->source.c; /* the next group */
    int64_t *listed_offset = (int64_t *)(void *)(s->workers + worker * s->worker);
    const int64_t *offset = s->offset;
    float *listed = (float *)(void *)(((uintptr_t)(listed_offset + s->taps) + 63) & ~(uintptr_t)63);
    float *source = listed + depthwise_up(s->taps * 8, 16);
    float *results = source + depthwise_up(s->source_rows * s->row + 16, 16);
    float *transposed = results + depthwise_up(s->width * 8, 16);
    const bool same = p->h.down == 1 && p->w.down == 1; /* every position has the same taps */
    const int64_t across = (s->width + GROUPED_TILE - 1) / GROUPED_TILE, tile = (s->width + across - 1) / across;
    for (int64_t row0 = 0; row0 < p->h.target; row0 += s->rows) {
        const int64_t rows = ct__min64(s->rows, p->h.target - row0);
        const int64_t first = depthwise_floor(row0 * p->h.up + p->h.first, p->h.down);
        copy_rows(s, source, image, group, first, depthwise_rows(&p->h, rows) - (p->h.down == 1), ahead);
        int64_t taps = s->taps;
        for (int64_t block = 0; block < s->blocks; block++) {
            const float *weights = s->weights + (group * s->blocks + block) * s->taps * 8;
            const int64_t channel = group * p->targets + block * 8, count = ct__min64(8, p->targets - block * 8);
            const depthwise_image *y = &p->target;
            const bool straight = same && count == 8 && y->c == 1 && p->dtype == CT_F32 && !p->residual && !p->activate;
            float start[8] = {0};
            if (p->bias) depthwise_read_f32(start, p->dtype, p->bias, channel * p->bias_step, p->bias_step, count);
            if (in_planes(s)) {
                compute_planes(s, source, weights, start, image, channel, count, row0, rows);
                continue;
            }
            for (int64_t row = row0; row < row0 + rows; row++)
                for (int64_t r = 0; r < p->w.down && r < p->w.target; r++) {
                    const float *src = source + (same ? (row - row0) * p->h.up * s->row : 0), *w = weights;
                    if (!same) {
                        taps = list_taps(s, row, r, first, listed_offset, listed, weights);
                        offset = listed_offset;
                        w = listed;
                    }
                    /* Eight channels next to each other are stored by the tile. */
                    float *out = results;
                    if (straight) out = (float *)y->data + image * y->n + channel + row * y->h;
                    const int64_t step = straight ? y->w : 8;
                    for (int64_t j = 0; straight && j < s->width; j++) __builtin_prefetch(out + j * step + 16, 1);
                    for (int64_t j = 0; j < s->width; j += tile)
                        s->tiles[ct__min64(tile, s->width - j) - 1](out + j * step, step, src + j, offset, w, taps,
                                                                    start);
                    if (!straight) store_row(s, results, transposed, image, channel, count, row, r);
                }
        }
    }
}

/* A chunk: neighboring groups of an image, which share cache lines when channels are last. */
static void group_chunk(void *ctx, int64_t chunk, int worker) {
    const pass *s = ctx;
    const int64_t chunks = (s->p->groups + s->chunk - 1) / s->chunk, first = chunk % chunks * s->chunk;
    const int64_t end = ct__min64(first + s->chunk, s->p->groups);
    for (int64_t group = first; group < end; group++) one_group(s, chunk / chunks, group, worker);
}

size_t CT_ISA_FN(ct__grouped_pass_bytes)(const grouped_pass *p) {
    pass s;
    plan(&s, p);
    return (size_t)(depthwise_up(p->groups * s.blocks * s.taps * 8, 16) + depthwise_up(2 * s.taps, 16) +
                    ct__threads() * s.worker) *
           sizeof(float);
}

void CT_ISA_FN(ct__grouped_pass)(const grouped_pass *p, void *scratch) {
    pass s;
    plan(&s, p);
    s.weights = scratch;
    s.offset = (int64_t *)(void *)(s.weights + depthwise_up(p->groups * s.blocks * s.taps * 8, 16));
    s.workers = (float *)(void *)s.offset + depthwise_up(2 * s.taps, 16);
    if (p->h.down == 1 && p->w.down == 1) list_taps(&s, 0, 0, p->h.first, s.offset, NULL, NULL);
    memset(s.workers, 0, (size_t)(ct__threads() * s.worker) * sizeof *s.workers); /* the padding of copied rows */
    ct__parallel(p->groups * s.blocks, pack_weights, &s);
    ct__parallel(p->batch * ((p->groups + s.chunk - 1) / s.chunk), group_chunk, &s);
}
