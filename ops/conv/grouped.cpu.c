/* Convolution with few channels a group: vectors of eight output channels of one group, positions along a row broadcast from
 * a padded copy of the source in L1. Forward, and the input gradient, which exchanges the channels and turns the taps
 * round; f32, and halves widened as they are copied. The weight gradient is in grouped_weight.cpu.c. */
#include "ops/conv/grouped.h"

enum { BAND_BYTES = 24 << 10 };

/* ---- The tile: `positions` neighbouring targets by eight channels ---- */

/* out[q * step + l] = start[l] + sum over t of src[offset[t] + q] w[t][l] */
SIMD_INLINE void tile_body(float *out, int64_t step, const float *src, const int64_t *offset, const float *w,
                           int64_t taps, const float *start, const int positions) {
    v8 s[GROUPED_TILE];
#pragma GCC unroll 14
    for (int q = 0; q < positions; q++) s[q] = v8_load(start);
    for (int64_t t = 0; t < taps; t++) {
        const float *x = src + offset[t];
        const v8 y = v8_load(w + t * 8);
#pragma GCC unroll 14
        for (int q = 0; q < positions; q++) s[q] = v8_fma(v8_set1(x[q]), y, s[q]);
    }
#pragma GCC unroll 14
    for (int q = 0; q < positions; q++) v8_store(out + q * step, s[q]);
}

typedef void (*tile_fn)(float *out, int64_t step, const float *src, const int64_t *offset, const float *w, int64_t taps,
                        const float *start);

#define TILE(R)                                                                                             \
    static void tile_##R(float *out, int64_t step, const float *src, const int64_t *offset, const float *w, \
                         int64_t taps, const float *start) {                                                \
        tile_body(out, step, src, offset, w, taps, start, R);                                               \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
#if GROUPED_TILE == 14
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
TILE(13)
TILE(14)
#endif
static const tile_fn tiles[GROUPED_TILE] = {
    tile_1, tile_2, tile_3,  tile_4,  tile_5,  tile_6,  tile_7,
#if GROUPED_TILE == 14
    tile_8, tile_9, tile_10, tile_11, tile_12, tile_13, tile_14,
#endif
};

/* ---- A pass ---- */

typedef struct pass {
    const grouped_pass *p;
    int64_t left, length, line, row; /* of the copy: a channel's line, a row of all channels */
    int64_t rows, source_rows;       /* of a band */
    int64_t blocks;                  /* of eight target channels a group */
    int64_t taps;                    /* kernel positions by source channels */
    int64_t width;                   /* target columns a remainder */
    int64_t chunk;                   /* groups */
    int64_t *offset;                 /* (taps), where every position has the same */
    float *weights;                  /* (groups, blocks, taps, 8) */
    float *workers;
    int64_t worker;
} pass;

static void plan(pass *s, const grouped_pass *p) {
    *s = (pass){.p = p};
    s->width = (p->w.target + p->w.down - 1) / p->w.down;
    depthwise_extent(&p->w, s->width, &s->left, &s->length);
    s->line = p->w.up * s->length;
    s->row = s->line * p->sources;
    s->rows = p->h.target;
    while (s->rows > 4 && depthwise_rows(&p->h, s->rows) * s->row * (int64_t)sizeof(float) > BAND_BYTES)
        s->rows = (s->rows + 1) / 2;
    s->source_rows = depthwise_rows(&p->h, s->rows);
    s->blocks = (p->targets + 7) / 8;
    s->taps = p->h.taps * p->w.taps * p->sources;
    const int64_t work = p->h.target * p->w.target * s->taps * s->blocks * 8;
    s->chunk = ct__min64(8, ct__max64(1, ct__grain(1 << 19) / ct__max64(1, work)));
    s->worker = depthwise_up(2 * s->taps, 16) + depthwise_up(s->taps * 8, 16) +
                depthwise_up(s->source_rows * s->row + 16, 16) + depthwise_up(s->width * 8, 16) * 2 + 32;
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
            for (int64_t i = 0; i < p->sources; i++, to += 8) {
                for (int64_t l = count; l < 8; l++) to[l] = 0;
                depthwise_read_f32(to, p->dtype, p->weight,
                                   group * p->w_group + first * p->w_target + i * p->w_source + k * p->w_h + t * p->w_w,
                                   p->w_target, count);
            }
}

/* A row of results, (width, 8), to its place: one line a position or one a channel, whichever is dense. */
static void store_row(const pass *s, float *results, float *turned, int64_t image, int64_t channel, int64_t count,
                      int64_t row, int64_t r) {
    const grouped_pass *p = s->p;
    const depthwise_image *y = &p->target;
    const ct_image_strides *e = &p->residual_step;
    const int64_t down = p->w.down, have = (p->w.target - r + down - 1) / down;
    const int64_t at = image * y->n + channel * y->c + row * y->h + r * y->w;
    const int64_t from = image * e->n + channel * e->c + row * e->s[1] + r * e->s[2];
    const bool by_channel = y->c != 1; /* lines of one channel */
    const bool direct = p->dtype == CT_F32 && !p->residual && !p->activate && y->w * down == 1;
    if (by_channel) {
        float *to = direct ? (float *)y->data + at : turned;
        const int64_t step = direct ? y->c : s->width;
        grouped_turn(to, step, results, 8, have, count);
        if (direct) return;
    }
    for (int64_t i = 0; !by_channel && i < have; i++) /* the next groups' place */
        __builtin_prefetch((char *)y->data + (at + i * down * y->w) * (p->dtype == CT_F32 ? 4 : 2) + 64, 1);
    const int64_t lines = by_channel ? count : have, length = by_channel ? have : count;
    for (int64_t i = 0; i < lines; i++) {
        float *line = by_channel ? turned + i * s->width : results + i * 8;
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
        depthwise_write_f32(line, p->dtype, y->data, at + (by_channel ? i * y->c : i * down * y->w), step, length);
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
                memcpy(w + count * 8, weights + (k * p->w.taps + t) * p->sources * 8,
                       (size_t)p->sources * 8 * sizeof *w);
            for (int64_t i = 0; i < p->sources; i++)
                offset[count++] = (at / p->h.down - first) * s->row + i * s->line + column;
        }
    }
    return count;
}

/* ---- The tile for planes: `rows` rows by sixteen columns by eight channels, a vector of columns for each channel ---- */

#if VF32_LANES == 16
enum { PLANE_ROWS = 3 };

/* out[c * step + r * out_row + j] = start[c] + sum over t of src[offset[t] + r * src_row + j] w[t][c], j < n, c < count */
SIMD_INLINE void plane_body(float *out, int64_t step, int64_t out_row, const float *src, int64_t src_row,
                            const int64_t *offset, const float *w, int64_t taps, const float *start, int64_t count,
                            int n, const int rows) {
    vf32 s[PLANE_ROWS * 8];
#pragma GCC unroll 24
    for (int i = 0; i < 8 * rows; i++) s[i] = vf32_set1(start[i % 8]);
    for (int64_t t = 0; t < taps; t++) {
        const float *x = src + offset[t];
        const vf32 x0 = vf32_load(x), x1 = rows > 1 ? vf32_load(x + src_row) : x0,
                   x2 = rows > 2 ? vf32_load(x + 2 * src_row) : x0;
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) {
            const vf32 y = vf32_set1(w[t * 8 + c]);
            s[c] = vf32_fma(x0, y, s[c]);
            if (rows > 1) s[8 % (8 * rows) + c] = vf32_fma(x1, y, s[8 % (8 * rows) + c]);
            if (rows > 2) s[16 % (8 * rows) + c] = vf32_fma(x2, y, s[16 % (8 * rows) + c]);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < 8 * rows; i++)
        if (i % 8 < count) vf32_store_n(out + i % 8 * step + i / 8 * out_row, s[i], n);
}

#define PLANE(R)                                                                                                  \
    static void plane_##R(float *out, int64_t step, int64_t out_row, const float *src, int64_t src_row,           \
                          const int64_t *offset, const float *w, int64_t taps, const float *start, int64_t count, \
                          int n) {                                                                                \
        plane_body(out, step, out_row, src, src_row, offset, w, taps, start, count, n, R);                        \
    }
PLANE(1)
PLANE(2)
PLANE(3)
static void (*const planes[PLANE_ROWS])(float *out, int64_t step, int64_t out_row, const float *src, int64_t src_row,
                                        const int64_t *offset, const float *w, int64_t taps, const float *start,
                                        int64_t count, int n) = {plane_1, plane_2, plane_3};

/* Whether vectors of columns are filled well, and where they belong. */
static bool in_planes(const grouped_pass *p) {
    const int64_t vectors = (p->w.target + 15) / 16;
    return p->dtype == CT_F32 && !p->residual && !p->activate && p->target.w == 1 && p->target.c != 1 && p->w.up == 1 &&
           p->w.down == 1 && p->h.down == 1 && p->w.target * 5 >= vectors * 16 * 4;
}

static __attribute__((noinline)) void compute_planes(const pass *s, const float *source, const float *weights,
                                                     const float *start, int64_t image, int64_t channel, int64_t count,
                                                     int64_t row0, int64_t rows) {
    const depthwise_image *y = &s->p->target;
    const int64_t row = s->p->h.up * s->row, parts = (rows + PLANE_ROWS - 1) / PLANE_ROWS;
    float *out = (float *)y->data + image * y->n + channel * y->c + row0 * y->h;
    for (int64_t part = 0; part < parts; part++) {
        const int64_t begin = rows * part / parts, high = rows * (part + 1) / parts - begin;
        for (int64_t j = 0; j < s->width; j += 16)
            planes[high - 1](out + begin * y->h + j, y->c, y->h, source + begin * row + j, row, s->offset, weights,
                             s->taps, start, count, (int)ct__min64(16, s->width - j));
    }
}
#else
static bool in_planes(const grouped_pass *p) { return (void)p, false; }
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
    float *turned = results + depthwise_up(s->width * 8, 16);
    const bool same = p->h.down == 1 && p->w.down == 1; /* every position has the same taps */
    const int64_t pieces = (s->width + GROUPED_TILE - 1) / GROUPED_TILE, piece = (s->width + pieces - 1) / pieces;
    for (int64_t row0 = 0; row0 < p->h.target; row0 += s->rows) {
        const int64_t rows = ct__min64(s->rows, p->h.target - row0);
        const int64_t first = depthwise_floor(row0 * p->h.up + p->h.first, p->h.down);
        grouped_copy(source, s->line, s->row, &p->source, p->dtype, &p->w, s->left, s->length, p->h.source, image,
                     group * p->sources, p->sources, first, depthwise_rows(&p->h, rows) - (p->h.down == 1), ahead);
        int64_t taps = s->taps;
        for (int64_t block = 0; block < s->blocks; block++) {
            const float *weights = s->weights + (group * s->blocks + block) * s->taps * 8;
            const int64_t channel = group * p->targets + block * 8, count = ct__min64(8, p->targets - block * 8);
            const depthwise_image *y = &p->target;
            const bool straight = same && count == 8 && y->c == 1 && p->dtype == CT_F32 && !p->residual && !p->activate;
            float start[8] = {0};
            if (p->bias) depthwise_read_f32(start, p->dtype, p->bias, channel * p->bias_step, p->bias_step, count);
            if (in_planes(p)) {
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
                    for (int64_t j = 0; j < s->width; j += piece)
                        tiles[ct__min64(piece, s->width - j) - 1](out + j * step, step, src + j, offset, w, taps,
                                                                  start);
                    if (!straight) store_row(s, results, turned, image, channel, count, row, r);
                }
        }
    }
}

/* A chunk: neighbouring groups of an image, which share cache lines when channels are last. */
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
