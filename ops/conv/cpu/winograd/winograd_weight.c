/* Winograd, weight gradient: dw = G^T [ sum over tiles (B^T d B) . (A dy A^T) ] G, where the sums over tiles are
 * 36 products of (in channels x tiles) by (tiles x out channels), for every parity and tap of the depth. Tiles go through in
 * groups: all workers transform a group, then all add its products, so that sums are formed in one order and need no
 * copies per worker. Many threads take larger groups, of which each has as much as before: groups are whole numbers of the depth that
 * is summed at a time, so that sums are the same however many make a group.
 *
 * Where one group holds all tiles, a block of channels goes through all 36 products and back to weights at once: its
 * sums stay in L2, where those of all channels, four times the weights, would go to memory and come back.
 *
 * Where channels are few, and processors have no cache in common, tiles that go from those who transform them to those who multiply them cost
 * more than sums: then a group is what is summed at a time, each worker takes groups of its own through both, and their sums are added in the
 * end, in the order in which one after the other would have added them. Which way is faster is measured. */
#include "core/costs.h"
#include "ops/conv/cpu/winograd/winograd.h"

enum {
    GROUP_LEAST = 3 << 20, /* bytes of transformed tiles of a group: about an L2, */
    GROUP_MOST = 16 << 20, /* or a part of L3 for the sake of large sums, which each group reads and writes */
    GROUP_THREADS = 4,     /* that share such a group; for more of them it grows */
    SUM_SHARE = 2,
    CHUNK_TILES = 16,       /* transformed by one worker at a time */
    DEPTH = 128,            /* tiles multiplied at a time, about: a panel of them in L1 */
    WEIGHT_BLOCK = 16,      /* input channels transformed back at a time */
    BLOCK_SUMS = 256 << 10, /* bytes of a block's sums: a part of L2 */
    APART_SUMS = 1 << 20,   /* bytes of sums that each group may have for itself, */
    APART_BYTES = 32 << 20, /* and of all groups', */
    OWN_BYTES = 64 << 20,   /* and of the transformed tiles of all workers */
    TIME_UNIT = 64          /* nanoseconds in which the two ways are weighed */
};

typedef struct gradient {
    winograd_frame frame;
    const ct__kernel *kernel;
    int64_t width, panels, columns; /* columns: output channels, whole vectors */
    int64_t section, group;         /* planes of results and tiles of each in a group, at most */
    int64_t chunk;                  /* tiles transformed by one worker at a time: rows of them, or parts of a row, */
    int64_t shares;                 /* and into how many the channels of such tiles are cut, where these are few */
    int64_t depth;                  /* tiles multiplied at a time: chunks of them */
    int64_t first, end;             /* the tiles of the group at work, */
    int64_t d0, d1, low, high;      /* its planes of results, and of sources */
    float *v;                       /* (36, parities, sources, tiles, v_tile) */
    int64_t v_tile, v_point;
    float *z; /* (36, panels, planes, tiles, width) */
    int64_t z_panel, z_point;
    bool at_once; /* all tiles are one group, and sums are (workers, 36, row_block, width) */
    bool apart;   /* workers have groups of their own: v and z are those of each worker, sums those of each group */
    float *sums;  /* (36, parities, taps of the depth, in_channels, panels * width) */
    int64_t sum_row, sum_point;
    bool accumulate;
    int64_t row_block, row_blocks, panel_block, panel_blocks; /* chunks of a product */
    float *bias_parts; /* (planes, chunks of a group, panels * width): sums of y, when they are wanted */
    float *bands;
    int64_t band;
    float *weight;
    int64_t in_blocks;
} gradient;

/* Z = A dy A^T of one vector of channels. */
WINOGRAD_EVALUATE(transform_cotangents_5, 5, false)
WINOGRAD_EVALUATE(transform_cotangents_4, 4, false)
WINOGRAD_EVALUATE(transform_cotangents_2, 2, false)

/* A chunk is a part of a plane of x or of the cotangent, and some of its channels. */
typedef struct part {
    bool x;
    int64_t plane, first, end;
    int64_t channel, channels;
    float *bias; /* where the sums of the cotangent's channels go, or NULL */
} part;
static part part_of(const gradient *g, int64_t chunk) {
    const winograd_pass *pass = g->frame.pass;
    const int64_t chunks = ct__ceil_div(g->end - g->first, g->chunk), sources = g->high - g->low;
    const int64_t share = chunk % g->shares;
    chunk /= g->shares;
    part p = {.x = chunk / chunks < sources, .first = g->first + chunk % chunks * g->chunk};
    p.plane = p.x ? g->low + chunk / chunks : g->d0 + chunk / chunks - sources;
    p.end = ct__min(p.first + g->chunk, g->end);
    const int64_t all = p.x ? pass->in_channels : pass->out_channels;
    const int64_t most = ct__ceil_div(ct__ceil_div(all, LANES), g->shares) * LANES;
    p.channel = ct__min(all, share * most);
    p.channels = ct__min(most, all - p.channel);
    if (!p.x && g->bias_parts) p.bias = g->bias_parts + (chunk - sources * chunks) * g->sum_row;
    return p;
}

/* A part of the cotangent. */
static void transform_plane(const gradient *g, const part *p, float *band, winograd_ahead *ahead) {
    const winograd_frame *f = &g->frame;
    const winograd_image *y = &f->y;
    const int64_t step = f->step, tiles = g->end - g->first, d = p->plane, first = p->first, end = p->end;
    float *const bias = p->bias;
    winograd_evaluate_fn *transform = step == 5   ? transform_cotangents_5
                                      : step == 4 ? transform_cotangents_4
                                                  : transform_cotangents_2;
    for (int64_t at = first; at < end;) {
        const winograd_run run = winograd_next_run(&f->tiles, at, end);
        const int64_t row = run.row * step, col = run.col * step;
        const float *image = winograd_plane(y, run.image, d);
        for (int64_t c = p->channel; c < p->channel + p->channels; c += LANES) {
            const int lanes = (int)ct__min(LANES, p->channel + p->channels - c);
            float *to =
                g->z + c / g->width * g->z_panel + c % g->width + ((d - g->d0) * tiles + at - g->first) * g->width;
            vf32 sum = bias && at > first ? vf32_load(bias + c) : vf32_zero();
            /* As in the forward pass: channels last one by one and in place where that is possible, first a row of them. */
            const int64_t pace = y->c == 1 ? step : run.count * step;
            for (int64_t left = 0; left < run.count * step; left += pace) {
                const bool inside =
                    y->c == 1 && lanes == LANES && row + step <= y->height && col + left + step <= y->width;
                const float *src = inside ? image + c + row * y->h + (col + left) * y->w : band;
                const int64_t src_row = inside ? y->h : pace * LANES, src_col = inside ? y->w : LANES;
                if (!inside) {
                    if (c == p->channel || y->c == 1) winograd_clear(band, y, row, step, col + left, pace);
                    winograd_gather(band, y, image + c * y->c, lanes, row, step, col + left, pace);
                }
                for (int64_t i = 0; bias && i < step; i++)
                    for (int64_t j = 0; j < pace; j++) sum = vf32_add(sum, vf32_load(src + i * src_row + j * src_col));
                for (int64_t j = 0; j < pace; j += step, to += g->width) {
                    CT_ISA_FN(ct__winograd_ask)(ahead);
                    transform(to, g->z_point, src + j * src_col, src_row, src_col);
                }
            }
            if (bias) vf32_store(bias + c, sum);
        }
        at += run.count;
    }
}

static void transform_chunk(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const int64_t tiles = g->end - g->first, chunks = ct__ceil_div(tiles, g->chunk), sources = g->high - g->low;
    float *band = g->bands + worker * g->band;
    const part now = part_of(g, chunk), next = part_of(g, chunk + 1);
    winograd_ahead ahead = {0};
    winograd_image image = next.x ? g->frame.x : g->frame.y;
    if (chunk + 1 < (sources + g->d1 - g->d0) * chunks * g->shares && next.channels > 0) {
        ahead = winograd_ahead_of(&g->frame, next.x, next.plane, next.first, next.end);
        image.data += next.channel * image.c;
        ahead.image = &image;
        ahead.channels = next.channels;
    }
    CT_ISA_FN(ct__winograd_ahead_start)(&ahead, (now.end - now.first) * ct__ceil_div(now.channels, LANES));
    if (now.x) {
        winograd_pass pass = *g->frame.pass; /* as if it had no other channels */
        winograd_frame frame = g->frame;
        pass.in_channels = now.channels;
        frame.pass = &pass;
        frame.x.data += now.channel * frame.x.c;
        const int64_t at = (now.plane - g->low) * tiles + now.first - g->first;
        const winograd_points points = {g->v + at * g->v_tile + now.channel, g->v_point, sources * tiles * g->v_tile,
                                        g->v_tile};
        CT_ISA_FN(ct__winograd_transform_tiles)(&points, &frame, now.plane, now.first, now.end, band, &ahead);
    } else {
        transform_plane(g, &now, band, &ahead);
    }
}

/* Of a block of input channels from `row` on; sums are c_row floats apart. */
static winograd_product product_of(const gradient *g, int64_t row, int64_t c_row) {
    winograd_product product = {.kernel = g->kernel,
                                .rows = ct__min(g->row_block, g->frame.pass->in_channels - row),
                                .a_row = 4,
                                .a_step = g->v_tile * 4,
                                .b_step = g->width * 4,
                                .c_row = c_row * 4};
    product.tile_rows = winograd_tile_rows(g->kernel, product.rows);
    return product;
}

/* A chunk: one point, a block of input channels of one parity and tap of the depth, a block of panels. */
static void multiply_chunk(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const winograd_frame *f = &g->frame;
    const winograd_pass *p = f->pass;
    const int64_t panel0 = chunk % g->panel_blocks * g->panel_block,
                  panel1 = ct__min(panel0 + g->panel_block, g->panels);
    const int64_t row = chunk / g->panel_blocks % g->row_blocks * g->row_block;
    const int64_t taps = winograd_parities(&f->x) * p->kernel[0], which = chunk / (g->panel_blocks * g->row_blocks);
    const int64_t point = which / taps, tap = which % taps, k = tap % p->kernel[0];
    const int64_t tiles = g->end - g->first;
    winograd_product product = product_of(g, row, g->sum_row);
    float *sums = g->sums + point * g->sum_point + (tap * p->in_channels + row) * g->sum_row;
    (void)worker;
    product.accumulate = g->accumulate;
    for (int64_t d = g->d0, next; d < g->d1; d = next) {
        /* Planes of results whose sources follow one another are one sum. */
        const int64_t source = winograd_source(f, d, k);
        for (next = d + 1; source >= 0 && next < g->d1 && winograd_source(f, next, k) == source + next - d;) next++;
        if (source < 0) continue;
        const float *v = g->v + point * g->v_point +
                         (tap / p->kernel[0] * (g->high - g->low) + source - g->low) * tiles * g->v_tile + row;
        const float *z = g->z + point * g->z_point + (d - g->d0) * tiles * g->width;
        for (int64_t t = 0; t < (next - d) * tiles; t += g->depth) {
            for (int64_t panel = panel0; panel < panel1; panel++) {
                product.k = ct__min(g->depth, (next - d) * tiles - t);
                product.a = v + t * g->v_tile;
                product.b = z + panel * g->z_panel + t * g->width;
                product.c = sums + panel * g->width;
                product.vecs = winograd_panel_vecs(g->kernel, g->columns, panel);
                winograd_multiply(&product);
            }
            product.accumulate = true;
        }
    }
    if (product.accumulate) return;
    for (int64_t i = 0; i < product.rows; i++) /* nothing but padding */
        memset(sums + i * g->sum_row + panel0 * g->width, 0, (size_t)((panel1 - panel0) * g->width) * sizeof *sums);
}

/* The inverse of gather_weights: w[out + l][in + i][k] = taps[(i * all + k) * LANES + l]. */
static void scatter_weights(const winograd_pass *p, float *w, const float *taps, int lanes, int64_t count) {
    const int64_t size = p->kernel[2], all = p->kernel[1] * size;
    if (p->w_k[2] == 1 && p->w_k[1] == size && p->w_in == all) {
        winograd_transpose((char *)w, p->w_out * 4, (const char *)taps, LANES * 4, count * all, lanes, count * all);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < all; k++) {
            float *to = w + i * p->w_in + k / size * p->w_k[1] + k % size * p->w_k[2];
            const float *from = taps + (i * all + k) * LANES;
            if (p->w_out == 1) vf32_store_n(to, vf32_load(from), lanes);
            else
                for (int l = 0; l < lanes; l++) to[l * p->w_out] = from[l];
        }
}

/* dw = G^T m G of one vector of output channels. */
WINOGRAD_COLLECT(transform_sum_2, 2, true)
WINOGRAD_COLLECT(transform_sum_3, 3, true)
WINOGRAD_COLLECT(transform_sum_5, 5, true)

/* Input channels [in, in + count) by one vector of output channels, of one tap k of the depth. sums: of the first of
 * them and parity 0; parities are so many rows apart. */
static void transform_block(const gradient *g, const float *sums, int64_t row, int64_t parity, int64_t k, int64_t in,
                            int64_t count, int64_t out) {
    const winograd_frame *f = &g->frame;
    const winograd_pass *p = f->pass;
    const int64_t size = p->kernel[2], all = p->kernel[1] * size;
    winograd_collect_fn *transform = f->taps == 2 ? transform_sum_2 : f->taps == 3 ? transform_sum_3 : transform_sum_5;
    float taps[WEIGHT_BLOCK * WINOGRAD_KERNEL * LANES];
    for (int64_t i = 0; i < count; i++)
        for (int64_t h = 0; h < p->stride[1]; h++)
            for (int64_t w = 0; w < p->stride[2]; w++)
                transform(taps + (i * all + h * size + w) * LANES, p->stride[1] * size * LANES, p->stride[2] * LANES,
                          sums + ((h * p->stride[2] + w) * parity + i) * row, g->sum_point, vf32_zero());
    scatter_weights(p, g->weight + out * p->w_out + in * p->w_in + k * p->w_k[0], taps,
                    (int)ct__min(LANES, p->out_channels - out), count);
}

/* A chunk is a group of tiles: its sums are those that multiply_chunk would add to what is there. */
static void group_chunk(void *ctx, int64_t chunk, int worker) {
    gradient g = *(const gradient *)ctx;
    const int64_t floats = WINOGRAD_POINTS * (g.v_point + g.z_point), taps = g.frame.pass->kernel[0];
    g.first = chunk * g.group;
    g.end = ct__min(g.first + g.group, g.frame.tiles.count);
    g.v += worker * floats, g.z += worker * floats;
    g.sums += chunk * WINOGRAD_POINTS * g.sum_point;
    if (g.bias_parts) g.bias_parts += chunk * (g.group / g.chunk) * g.sum_row;
    for (int64_t i = 0; i < 2 * ct__ceil_div(g.end - g.first, g.chunk); i++) transform_chunk(&g, i, worker);
    for (int64_t i = 0; i < WINOGRAD_POINTS * taps * g.row_blocks * g.panel_blocks; i++) multiply_chunk(&g, i, worker);
}

/* A chunk of transform_sums, of the sums of all groups. */
static void transform_sums_apart(void *ctx, int64_t chunk, int worker) {
    gradient g = *(const gradient *)ctx;
    const int64_t in = chunk % g.in_blocks * WEIGHT_BLOCK, out = chunk / g.in_blocks * LANES, each = g.sum_point;
    const int64_t count = ct__min(WEIGHT_BLOCK, g.frame.pass->in_channels - in),
                  groups = ct__ceil_div(g.frame.tiles.count, g.group);
    _Alignas(64) float sums[WINOGRAD_POINTS * WEIGHT_BLOCK * LANES];
    (void)worker;
    for (int64_t point = 0; point < WINOGRAD_POINTS; point++)
        for (int64_t i = 0; i < count; i++) {
            const float *from = g.sums + point * each + (in + i) * g.sum_row + out;
            vf32 sum = vf32_load(from);
            for (int64_t group = 1; group < groups; group++)
                sum = vf32_add(sum, vf32_load(from + group * WINOGRAD_POINTS * each));
            vf32_store(sums + (point * WEIGHT_BLOCK + i) * LANES, sum);
        }
    g.sum_point = WEIGHT_BLOCK * LANES;
    transform_block(&g, sums, LANES, 0, 0, in, count, out);
}

/* A chunk is one vector of output channels by a block of input channels of one tap of the depth. */
static void transform_sums(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const winograd_pass *p = g->frame.pass;
    const int64_t in = chunk % g->in_blocks * WEIGHT_BLOCK, k = chunk / g->in_blocks % p->kernel[0];
    const int64_t out = chunk / (g->in_blocks * p->kernel[0]) * LANES;
    (void)worker;
    transform_block(g, g->sums + (k * p->in_channels + in) * g->sum_row + out, g->sum_row,
                    p->kernel[0] * p->in_channels, k, in, ct__min(WEIGHT_BLOCK, p->in_channels - in), out);
}

/* A chunk: a block of input channels by one panel, all points of it and back. The sums are those of multiply_chunk, in
 * the same order. */
static void finish_chunk(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const int64_t panel = chunk % g->panels, row = chunk / g->panels * g->row_block, tiles = g->end - g->first;
    float *sums = g->sums + worker * WINOGRAD_POINTS * g->sum_point;
    winograd_product product = product_of(g, row, g->width);
    product.vecs = winograd_panel_vecs(g->kernel, g->columns, panel);
    for (int64_t point = 0; point < WINOGRAD_POINTS; point++)
        for (int64_t t = 0; t < tiles; t += g->depth) {
            product.accumulate = t > 0;
            product.k = ct__min(g->depth, tiles - t);
            product.a = g->v + point * g->v_point + t * g->v_tile + row;
            product.b = g->z + point * g->z_point + panel * g->z_panel + t * g->width;
            product.c = sums + point * g->sum_point;
            winograd_multiply(&product);
        }
    for (int64_t v = 0; v < product.vecs; v++)
        for (int64_t i = 0; i < product.rows; i += WEIGHT_BLOCK)
            transform_block(g, sums + i * g->width + v * LANES, g->width, 0, 0, row + i,
                            ct__min(WEIGHT_BLOCK, product.rows - i), panel * g->width + v * LANES);
}

/* apart: if that can be. */
static void plan(const winograd_pass *p, gradient *g, bool apart) {
    *g = (gradient){.kernel = ct__gemm_kernel(CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_F32)};
    winograd_frame *f = &g->frame;
    CT_ISA_FN(ct__winograd_take_phase)(f, p, (const int64_t[3]){0, 0, 0});
    g->width = ct__panel_width(g->kernel);
    g->panels = ct__ceil_div(p->out_channels, g->width);
    g->columns = ct__round_up(p->out_channels, LANES);
    g->v_tile = winograd_odd(ct__round_up(p->in_channels, LANES));
    const int64_t parities = winograd_parities(&f->x), planes = ct__max64(1, f->planes);
    g->sum_row = g->panels * g->width;
    g->sum_point = winograd_odd(parities * p->kernel[0] * p->in_channels * g->sum_row);
    const int64_t v_bytes = WINOGRAD_POINTS * 4 * parities * g->v_tile, z_bytes = WINOGRAD_POINTS * 4 * g->sum_row;
    const int64_t threads =
        planes > 1 ? 1 : ct__threads(); /* planes of several groups would be summed in another order */
    const int64_t least = GROUP_LEAST * ct__max64(1, threads / GROUP_THREADS);
    const int64_t most = ct__min(GROUP_MOST, ct__max64(least, SUM_SHARE * WINOGRAD_POINTS * 4 * g->sum_point));
    const int64_t cols = ct__max64(1, f->tiles.cols);
    g->chunk = cols > CHUNK_TILES ? ct__ceil_div(cols, ct__ceil_div(cols, CHUNK_TILES)) : CHUNK_TILES / cols * cols;
    g->depth = DEPTH / g->chunk * g->chunk;
    g->section = ct__min(planes, 2 * p->kernel[0]);
    while (g->section < planes &&
           g->chunk * (v_bytes * winograd_slots(f, g->section + 1) + z_bytes * (g->section + 1)) <= most)
        g->section++;
    g->section = ct__ceil_div(planes, ct__ceil_div(planes, g->section));
    const int64_t slots = winograd_slots(f, g->section), bytes = v_bytes * slots + z_bytes * g->section;
    const int64_t group = most / bytes;
    bool plain = parities * p->kernel[0] * planes == 1 && f->tiles.count > 0;
    for (int a = 0; a < 3; a++) plain = plain && CT_ISA_FN(ct__winograd_phases)(p, a) == 1;
    const int64_t groups = ct__ceil_div(f->tiles.count, ct__max64(1, g->depth)),
                  sum_bytes = WINOGRAD_POINTS * 4 * g->sum_point;
    g->apart = apart && plain && ct__threads() > 1 && 2 * groups > ct__threads() && sum_bytes <= APART_SUMS &&
               groups * sum_bytes <= APART_BYTES && ct__threads() * g->depth * bytes <= OWN_BYTES;
    if (g->apart) g->group = g->depth;
    else if (planes == 1) g->group = ct__max64(1, group / g->depth) * g->depth;
    else g->group = ct__max64(1, group / g->chunk) * g->chunk;
    g->group = ct__max64(1, ct__min(g->group, ct__round_up(f->tiles.count, g->chunk)));
    g->v_point = winograd_odd(parities * slots * g->group * g->v_tile);
    g->z_panel = g->section * g->group * g->width;
    g->z_point = winograd_odd(g->panels * g->z_panel);
    g->band =
        winograd_odd(winograd_span(&f->x, 0, 1) * winograd_span(&f->x, 1, ct__min(f->tiles.cols, g->chunk)) * LANES);
    g->panel_block = 4;
    g->panel_blocks = ct__ceil_div(g->panels, g->panel_block);
    g->at_once = plain && !g->apart && f->tiles.count <= g->group;
    const int64_t rows = g->at_once ? BLOCK_SUMS / (WINOGRAD_POINTS * 4 * g->width) / g->kernel->rows : 5;
    g->row_blocks = ct__max64(1, ct__ceil_div(p->in_channels, ct__max64(1, rows) * g->kernel->rows));
    const int64_t products = g->at_once ? g->panels : WINOGRAD_POINTS * parities * p->kernel[0] * g->panel_blocks;
    while (!g->apart && products * g->row_blocks < 4 * ct__threads() &&
           p->in_channels > 2 * g->row_blocks * g->kernel->rows)
        g->row_blocks++;
    g->row_block = ct__ceil_div(p->in_channels, g->row_blocks);
    g->row_blocks = ct__ceil_div(p->in_channels, g->row_block); /* none of them is empty */
    if (g->at_once) g->sum_point = winograd_odd(g->row_block * g->width);
    g->in_blocks = ct__ceil_div(p->in_channels, WEIGHT_BLOCK);
    /* Three chunks of transforms for each thread, if there are vectors enough: no result depends on it. */
    const int64_t parts = (slots + g->section) * ct__ceil_div(g->group, g->chunk),
                  vectors = ct__max64(p->in_channels, p->out_channels) / LANES;
    const int64_t wanted = ct__threads() > 1 && !g->apart ? ct__ceil_div(3 * ct__threads(), parts) : 1;
    g->shares = ct__max64(1, ct__min(wanted, vectors));
}

/* Floats of all sums, and of transformed tiles. */
static int64_t sums_of(const gradient *g) {
    const int64_t times = g->at_once ? ct__threads() : g->apart ? ct__ceil_div(g->frame.tiles.count, g->group) : 1;
    return times * WINOGRAD_POINTS * g->sum_point;
}
static int64_t tiles_of(const gradient *g) {
    return (g->apart ? ct__threads() : 1) * WINOGRAD_POINTS * (g->v_point + g->z_point);
}

static int64_t floats_of(const gradient *g) {
    const int64_t tiles = g->apart ? g->frame.tiles.count : g->group;
    const int64_t parts = g->frame.pass->bias_grad ? g->section * ct__ceil_div(tiles, g->chunk) * g->sum_row : 0;
    return tiles_of(g) + sums_of(g) + ct__threads() * g->band + parts;
}

size_t CT_ISA_FN(ct__winograd_weight_bytes)(const winograd_pass *pass) {
    gradient together, apart;
    plan(pass, &together, false);
    plan(pass, &apart, true);
    return (size_t)ct__max64(floats_of(&together), floats_of(&apart)) * sizeof(float);
}

/* The gradient of the bias: those of the parts of what is summed at a time, of `all` parts. */
static void add_bias(const gradient *g, int64_t all) {
    const winograd_pass *p = g->frame.pass;
    const int64_t each = g->depth / g->chunk;
    for (int64_t chunk = 0; p->bias_grad && chunk < all; chunk += each)
        for (int64_t o = 0; o < p->out_channels; o++) {
            const float *at = g->bias_parts + chunk * g->sum_row + o;
            float sum = 0; /* by itself: that of all has no place for its last bits */
            for (int64_t i = 0; i < ct__min(each, all - chunk); i++) sum += at[i * g->sum_row];
            p->bias_grad[o] += sum;
        }
}

/* Adds what a phase gives to the sums. */
static void add_phase(gradient *g) {
    const winograd_pass *p = g->frame.pass;
    const int64_t taps = winograd_parities(&g->frame.x) * p->kernel[0];
    for (g->d0 = 0; g->d0 < g->frame.planes; g->d0 = g->d1) {
        g->d1 = ct__min(g->d0 + g->section, g->frame.planes);
        winograd_sources(&g->frame, g->d0, g->d1, &g->low, &g->high);
        g->high = ct__max64(g->low, g->high);
        for (g->first = 0; g->first < g->frame.tiles.count; g->first = g->end, g->accumulate = true) {
            g->end = ct__min(g->first + g->group, g->frame.tiles.count);
            const int64_t chunks = ct__ceil_div(g->end - g->first, g->chunk), planes = g->d1 - g->d0;
            ct__parallel((g->high - g->low + planes) * chunks * g->shares, transform_chunk, g);
            add_bias(g, planes * chunks);
            if (g->at_once) ct__parallel(g->row_blocks * g->panels, finish_chunk, g);
            else ct__parallel(WINOGRAD_POINTS * taps * g->row_blocks * g->panel_blocks, multiply_chunk, g);
        }
    }
}

/* Groups of tiles apart, then their sums. */
static void add_apart(gradient *g) {
    g->d1 = g->high = 1;
    ct__parallel(ct__ceil_div(g->frame.tiles.count, g->group), group_chunk, g);
    add_bias(g, ct__ceil_div(g->frame.tiles.count, g->chunk));
    ct__parallel(g->columns / LANES * g->in_blocks, transform_sums_apart, g);
}

/* All phases, one after the other, then the sums. */
static void add_together(gradient *g) {
    const winograd_pass *p = g->frame.pass;
    int64_t phase[3];
    for (phase[0] = 0; phase[0] < CT_ISA_FN(ct__winograd_phases)(p, 0); phase[0]++)
        for (phase[1] = 0; phase[1] < CT_ISA_FN(ct__winograd_phases)(p, 1); phase[1]++)
            for (phase[2] = 0; phase[2] < CT_ISA_FN(ct__winograd_phases)(p, 2); phase[2]++) {
                CT_ISA_FN(ct__winograd_take_phase)(&g->frame, p, phase);
                add_phase(g);
            }
    if (g->at_once) return;
    if (!g->accumulate) memset(g->sums, 0, (size_t)(WINOGRAD_POINTS * g->sum_point) * sizeof *g->sums);
    ct__parallel(g->columns / LANES * p->kernel[0] * g->in_blocks, transform_sums, g);
}

void CT_ISA_FN(ct__winograd_weight_pass)(const winograd_pass *p, float *weight, void *scratch) {
    gradient g;
    plan(p, &g, true);
    const bool weighed = g.apart;
    const ct_weighed kind = {group_chunk, g.frame.tiles.count, ct__threads() * WINOGRAD_POINTS * g.sum_point};
    const int64_t start = weighed ? ct__nanoseconds() : 0;
    if (weighed && ct__cost_is_less_plain(&kind)) plan(p, &g, false);
    g.weight = weight;
    g.v = scratch;
    g.z = g.v + WINOGRAD_POINTS * g.v_point;
    g.sums = g.v + tiles_of(&g);
    g.bands = g.sums + sums_of(&g);
    if (p->bias_grad) {
        g.bias_parts = g.bands + ct__threads() * g.band;
        memset(p->bias_grad, 0, (size_t)p->out_channels * sizeof *p->bias_grad);
    }
    if (g.apart) add_apart(&g);
    else add_together(&g);
    if (weighed) ct__cost_weigh(&kind, !g.apart, (ct__nanoseconds() - start) / TIME_UNIT);
}
