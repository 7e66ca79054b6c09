/* Winograd, weight gradient: dw = G^T [ sum over tiles (B^T d B) . (A dy A^T) ] G, where the sums over tiles are
 * 36 products of (in channels x tiles) by (tiles x out channels), for every parity and tap of the depth. Tiles go through in
 * groups: all workers transform a group, then all add its products, so that sums are formed in one order and need no
 * copies per worker. Many threads take larger groups, of which each has as much as before: groups are whole numbers of the depth that
 * is summed at a time, so that sums are the same however many make a group.
 *
 * Where one group holds all tiles, a block of channels goes through all 36 products and back to weights at once: its
 * sums stay in L2, where those of all channels, four times the weights, would go to memory and come back.
 *
 * Many threads share no transformed tiles: writing lines that other cores have read since takes longer than transforming the
 * same tiles again. Each worker has blocks of input and output channels, transforms those channels of the tiles itself, as
 * many tiles as are summed at a time, and adds their products, all in its L2. Where channels are too few for that the tiles
 * are split as well: into as many splits as the sizes say, on any number of threads, whose gradients are added in order. */
#include "backends/cpu/gemm/caches.h"
#include "ops/conv/cpu/winograd/winograd_gradient.h"

enum {
    GROUP_LEAST = 3 << 20, /* bytes of transformed tiles of a group: about an L2, */
    GROUP_MOST = 16 << 20, /* or a part of L3 for the sake of large sums, which each group reads and writes */
    GROUP_THREADS = 4,     /* that share such a group; for more of them it grows */
    SUM_SHARE = 2,
    CHUNK_TILES = 16,       /* transformed by one worker at a time */
    DEPTH = 128,            /* tiles multiplied at a time, about: a panel of them in L1 */
    BLOCK_SUMS = 256 << 10, /* bytes of a block's sums: a part of L2 */
    FEW_THREADS = 4,        /* which share transformed tiles */
    LARGE_WEIGHT = 1 << 16, /* channels by channels, of which blocks with DEPTH tiles would not be in L2, */
    LESS_DEPTH = 64,        /* so that fewer are multiplied at a time */
    SPLITS = 16,            /* blocks of channels and splits of tiles that there are to be, for as many threads, */
    SPLIT_CHANNELS = 32,    /* the blocks so large in both, */
    SPLIT_TILES = 512       /* and the splits at least */
};

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

/* ---- Blocks of channels ---- */

/* The products of the tiles at hand, for some channels and panels of the block: added to those before, and transformed back where
 * they are the last. */
static void add_block(const gradient *g, int64_t row, int64_t rows, int64_t panel, int64_t panels, bool accumulate,
                      bool last) {
    winograd_product product = product_of(g, row, g->sum_row);
    product.rows = rows;
    product.tile_rows = winograd_tile_rows(g->kernel, rows);
    product.k = g->end - g->first;
    product.accumulate = accumulate;
    for (int64_t point = 0; point < WINOGRAD_POINTS; point++)
        for (int64_t i = panel; i < panel + panels; i++) {
            product.a = g->v + point * g->v_point + row - g->v_first;
            product.b = g->z + point * g->z_point + (i - g->z_first) * g->z_panel;
            product.c = g->sums + point * g->sum_point + (i - panel) * g->width;
            product.vecs = winograd_panel_vecs(g->kernel, g->columns, i);
            winograd_multiply(&product);
        }
    const int64_t out = panel * g->width, outs = ct__min(panels * g->width, g->columns - out);
    for (int64_t o = 0; last && o < outs; o += LANES)
        for (int64_t i = 0; i < rows; i += WEIGHT_BLOCK)
            transform_block(g, g->sums + i * g->sum_row + o, g->sum_row, 0, 0, row + i, ct__min(WEIGHT_BLOCK, rows - i),
                            out + o);
}

/* A chunk is a block of input channels by one of panels, in one split. Its sums are those of multiply_chunk, in the same order. */
static void block_chunk(void *ctx, int64_t chunk, int worker) {
    gradient g = *(const gradient *)ctx;
    const winograd_pass *p = g.frame.pass;
    const int64_t row = chunk / g.panel_blocks % g.row_blocks * g.row_block,
                  rows = ct__min(g.row_block, p->in_channels - row);
    const int64_t panel = chunk % g.panel_blocks * g.panel_block, panels = ct__min(g.panel_block, g.panels - panel);
    const int64_t out = panel * g.width, outs = ct__min(panels * g.width, p->out_channels - out);
    float *band = g.bands + worker * g.worker;
    g.v = band + g.band, g.v_first = row;
    g.z = g.v + WINOGRAD_POINTS * g.v_point, g.z_first = panel;
    g.sums = g.z + WINOGRAD_POINTS * g.z_point;
    g.split = chunk / (g.panel_blocks * g.row_blocks);
    const int64_t begin = split_begin(&g, g.split), end = split_begin(&g, g.split + 1);
    for (g.first = begin; g.first < end; g.first = g.end) {
        g.end = ct__min(g.first + g.depth, end);
        for (int64_t at = g.first; at < g.end; at += g.chunk) {
            const int64_t next = at + g.chunk, last = ct__min(next, g.end), later = next < g.end ? g.end : end;
            const part x = {true, g.low, at, last, row, rows, NULL},
                       y = {false, 0, at, last, out, outs, row == 0 ? bias_part(&g, at / g.chunk) : NULL},
                       after = {true, g.low, next, ct__min(next + g.chunk, later), row, rows, NULL};
            transform_part(&g, &x, &y, band);
            transform_part(&g, &y, next < end ? &after : NULL, band);
        }
        for (int64_t i = 0; i < rows; i += g.sum_rows)
            for (int64_t j = 0; j < panels; j += g.sum_panels)
                add_block(&g, row + i, ct__min(g.sum_rows, rows - i), panel + j, ct__min(g.sum_panels, panels - j),
                          g.first > begin, g.end == end);
    }
}

/* Times are in products of one point of a tile and a pair of channels. */
enum {
    TRANSFORM_CHANNELS = 14, /* a channel of a tile is transformed in the time of so many, */
    SHARE_CHANNELS = 6,      /* and shared in that of so many by all threads together; */
    BACK_TILES = 9           /* a sum is transformed back in the time that it takes to add so many tiles */
};

static double time_of_sharing(const gradient *g) {
    const winograd_pass *p = g->frame.pass;
    const double tiles = (double)g->frame.tiles.count, channels = (double)(p->in_channels + p->out_channels),
                 pairs = (double)p->in_channels * (double)p->out_channels;
    return ((tiles + BACK_TILES) * pairs + TRANSFORM_CHANNELS * tiles * channels) / ct__threads() +
           SHARE_CHANNELS * tiles * channels;
}

enum { SUM_ROWS = 64, SUM_COLUMNS = 64 }; /* of sums that are done with at once */

/* How much of a block of channels has sums at a time: all of it, unless the tiles are. */
static void cut_sums(const gradient *g, int64_t *rows, int64_t *panels) {
    if (g->frame.tiles.count > g->depth) return;
    *rows = ct__min(*rows, SUM_ROWS);
    *panels = ct__min(*panels, ct__ceil_div(SUM_COLUMNS, g->width));
}

static double time_of_blocks(const gradient *g, int64_t rows, int64_t panels) {
    const winograd_pass *p = g->frame.pass;
    const ct_caches *caches = ct__caches();
    const int64_t chunks = g->splits * ct__ceil_div(p->in_channels, rows) * ct__ceil_div(g->panels, panels);
    const int64_t cols = panels * g->width, pairs = rows * cols;
    const double tiles = (double)ct__ceil_div(g->frame.tiles.count, g->splits);
    const double time = (double)ct__ceil_div(chunks, ct__threads()) *
                        ((tiles + BACK_TILES) * (double)pairs + TRANSFORM_CHANNELS * tiles * (double)(rows + cols));
    int64_t sum_rows = rows, sum_panels = panels;
    cut_sums(g, &sum_rows, &sum_panels);
    const int64_t bytes =
        WINOGRAD_POINTS * 4 *
        (ct__min(g->depth, g->frame.tiles.count) * (winograd_odd(rows) + cols) + sum_rows * sum_panels * g->width);
    return bytes > caches->l2_ways * caches->l2_way ? 1.25 * time : time;
}

/* Gives workers blocks of channels if they are done sooner so. No sum depends on it. */
static void cut_channels(gradient *g) {
    const winograd_pass *p = g->frame.pass;
    double best = time_of_sharing(g);
    const int64_t vectors = ct__ceil_div(p->in_channels, WEIGHT_BLOCK);
    for (int64_t panels = g->panels; panels > 0; panels = winograd_next_size(g->panels, panels))
        for (int64_t blocks = vectors; blocks > 0; blocks = winograd_next_size(vectors, blocks)) {
            const int64_t rows = ct__min(p->in_channels, blocks * WEIGHT_BLOCK);
            const double time = time_of_blocks(g, rows, panels);
            if (time >= best) continue;
            best = time, g->own = true;
            g->row_block = rows, g->panel_block = panels;
        }
    if (!g->own) return;
    g->row_blocks = ct__ceil_div(p->in_channels, g->row_block);
    g->panel_blocks = ct__ceil_div(g->panels, g->panel_block);
    g->group = ct__round_up(g->frame.tiles.count, g->chunk);
    g->v_tile = winograd_odd(ct__round_up(g->row_block, LANES));
    const int64_t deep = ct__min(g->depth, g->frame.tiles.count);
    g->v_point = winograd_odd(deep * g->v_tile);
    g->z_panel = deep * g->width;
    g->z_point = winograd_odd(g->panel_block * g->z_panel);
    g->sum_rows = g->row_block, g->sum_panels = g->panel_block;
    cut_sums(g, &g->sum_rows, &g->sum_panels);
    g->sum_row = g->sum_panels * g->width;
    g->sum_point = winograd_odd(g->sum_rows * g->sum_row);
}

/* As many parts as `count` has of at most `most`, evened out: the size of one, in whole units. */
static int64_t even(int64_t count, int64_t most, int64_t unit) {
    return ct__round_up(ct__ceil_div(count, ct__max64(1, ct__ceil_div(count, most))), unit);
}

static void plan(const winograd_pass *p, gradient *g) {
    *g = (gradient){.kernel = ct__gemm_kernel(CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_F32)};
    winograd_frame *f = &g->frame;
    CT_ISA_FN(ct__winograd_take_phase)(f, p, (const int64_t[3]){0, 0, 0});
    g->width = ct__panel_width(g->kernel);
    g->panels = ct__ceil_div(p->out_channels, g->width);
    g->columns = ct__round_up(p->out_channels, LANES);
    g->v_tile = winograd_odd(ct__round_up(p->in_channels, LANES));
    const int64_t parities = winograd_parities(&f->x), planes = ct__max64(1, f->planes);
    g->sum_row = g->bias_row = g->panels * g->width;
    g->sum_point = winograd_odd(parities * p->kernel[0] * p->in_channels * g->sum_row);
    const int64_t v_bytes = WINOGRAD_POINTS * 4 * parities * g->v_tile, z_bytes = WINOGRAD_POINTS * 4 * g->sum_row;
    const int64_t threads =
        planes > 1 ? 1 : ct__threads(); /* planes of several groups would be summed in another order */
    const int64_t least = GROUP_LEAST * ct__max64(1, threads / GROUP_THREADS);
    const int64_t most = ct__min(GROUP_MOST, ct__max64(least, SUM_SHARE * WINOGRAD_POINTS * 4 * g->sum_point));
    const int64_t cols = ct__max64(1, f->tiles.cols), tiles = f->tiles.count;
    /* One plane of results, which sees one of x. */
    winograd_sources(f, 0, 1, &g->low, &g->high);
    bool flat = parities * p->kernel[0] * planes == 1 && tiles > 0 && g->high == g->low + 1;
    for (int a = 0; a < 3; a++) flat = flat && CT_ISA_FN(ct__winograd_phases)(p, a) == 1;
    const bool large = flat && p->in_channels >= LARGE_WEIGHT / ct__max64(1, p->out_channels);
    g->chunk = cols > CHUNK_TILES ? ct__ceil_div(cols, ct__ceil_div(cols, CHUNK_TILES)) : CHUNK_TILES / cols * cols;
    g->depth = (large ? LESS_DEPTH : DEPTH) / g->chunk * g->chunk;
    const int64_t blocks =
        ct__ceil_div(p->in_channels, SPLIT_CHANNELS) * ct__max64(1, ct__ceil_div(p->out_channels, SPLIT_CHANNELS));
    g->splits = flat ? ct__max64(1, ct__min(SPLITS / ct__max64(1, blocks), tiles / SPLIT_TILES)) : 1;
    const int64_t split = ct__ceil_div(ct__ceil_div(tiles, g->chunk), g->splits) * g->chunk; /* tiles of the largest */
    if (flat) g->depth = even(split, g->depth, g->chunk);
    g->section = ct__min(planes, 2 * p->kernel[0]);
    while (g->section < planes &&
           g->chunk * (v_bytes * winograd_slots(f, g->section + 1) + z_bytes * (g->section + 1)) <= most)
        g->section++;
    g->section = ct__ceil_div(planes, ct__ceil_div(planes, g->section));
    const int64_t slots = winograd_slots(f, g->section), bytes = v_bytes * slots + z_bytes * g->section;
    const int64_t group = most / bytes;
    if (planes == 1) g->group = even(split, ct__max64(1, group / g->depth) * g->depth, g->depth);
    else g->group = ct__max64(1, group / g->chunk) * g->chunk;
    g->group = ct__max64(1, ct__min(g->group, ct__round_up(f->tiles.count, g->chunk)));
    g->v_point = winograd_odd(parities * slots * g->group * g->v_tile);
    g->z_panel = g->section * g->group * g->width;
    g->z_point = winograd_odd(g->panels * g->z_panel);
    g->band =
        winograd_odd(winograd_span(&f->x, 0, 1) * winograd_span(&f->x, 1, ct__min(f->tiles.cols, g->chunk)) * LANES);
    g->panel_block = 4;
    g->panel_blocks = ct__ceil_div(g->panels, g->panel_block);
    g->at_once = flat && g->splits == 1 && tiles <= g->group;
    const int64_t rows = g->at_once ? BLOCK_SUMS / (WINOGRAD_POINTS * 4 * g->width) / g->kernel->rows : 5;
    g->row_blocks = ct__max64(1, ct__ceil_div(p->in_channels, ct__max64(1, rows) * g->kernel->rows));
    const int64_t products = g->at_once ? g->panels : WINOGRAD_POINTS * parities * p->kernel[0] * g->panel_blocks;
    while (products * g->row_blocks < 4 * ct__threads() && p->in_channels > 2 * g->row_blocks * g->kernel->rows)
        g->row_blocks++;
    g->row_block = ct__ceil_div(p->in_channels, g->row_blocks);
    g->row_blocks = ct__ceil_div(p->in_channels, g->row_block); /* none of them is empty */
    if (g->at_once) g->sum_point = winograd_odd(g->row_block * g->width);
    g->in_blocks = ct__ceil_div(p->in_channels, WEIGHT_BLOCK);
    /* Three chunks of transforms for each thread, if there are vectors enough: no result depends on it. */
    const int64_t parts = (slots + g->section) * ct__ceil_div(g->group, g->chunk),
                  vectors = ct__max64(p->in_channels, p->out_channels) / LANES;
    const int64_t wanted = ct__threads() > 1 ? ct__ceil_div(3 * ct__threads(), parts) : 1;
    g->shares = ct__max64(1, ct__min(wanted, vectors));
    if (flat && ct__threads() > FEW_THREADS) cut_channels(g);
    g->worker = g->band + (g->own ? WINOGRAD_POINTS * (g->v_point + g->z_point + g->sum_point) : 0);
}

/* ---- A pass ---- */

/* Floats that all workers share: transformed tiles and sums, gradients of splits, sums of the bias. */
static int64_t tiles_of(const gradient *g) { return g->own ? 0 : WINOGRAD_POINTS * (g->v_point + g->z_point); }
static int64_t sums_of(const gradient *g) {
    return g->own ? 0 : (g->at_once ? ct__threads() : 1) * WINOGRAD_POINTS * g->sum_point;
}
static int64_t partials_of(const gradient *g) {
    const winograd_pass *p = g->frame.pass;
    return g->splits > 1 ? g->splits * p->in_channels * p->kernel[1] * p->kernel[2] * g->columns : 0;
}
static int64_t bias_of(const gradient *g) {
    return g->frame.pass->bias_grad ? g->section * ct__ceil_div(g->group, g->chunk) * g->bias_row : 0;
}

size_t CT_ISA_FN(ct__winograd_weight_bytes)(const winograd_pass *pass) {
    gradient g;
    plan(pass, &g);
    return (size_t)(tiles_of(&g) + sums_of(&g) + ct__threads() * g.worker + partials_of(&g) + bias_of(&g)) *
           sizeof(float);
}

/* The bias's sums of chunks [first, first + count), those of tiles multiplied at a time by themselves: the sum of all has no
 * place for their last bits. */
static void add_bias(const gradient *g, int64_t first, int64_t count) {
    const winograd_pass *p = g->frame.pass;
    const int64_t each = g->depth / g->chunk;
    for (int64_t chunk = 0; p->bias_grad && chunk < count; chunk += each)
        for (int64_t o = 0; o < p->out_channels; o++) {
            const float *at = bias_part(g, first + chunk) + o;
            float sum = 0;
            for (int64_t i = 0; i < ct__min(each, count - chunk); i++) sum += at[i * g->bias_row];
            p->bias_grad[o] += sum;
        }
}

/* Adds tiles [first, end) of planes [d0, d1) to the sums. */
static void add_tiles(gradient *g, int64_t first, int64_t end) {
    const int64_t taps = winograd_parities(&g->frame.x) * g->frame.pass->kernel[0], planes = g->d1 - g->d0;
    winograd_sources(&g->frame, g->d0, g->d1, &g->low, &g->high);
    g->high = ct__max64(g->low, g->high);
    for (g->first = first; g->first < end; g->first = g->end, g->accumulate = true) {
        g->end = ct__min(g->first + g->group, end);
        const int64_t chunks = ct__ceil_div(g->end - g->first, g->chunk);
        ct__parallel((g->high - g->low + planes) * chunks * g->shares, transform_chunk, g);
        add_bias(g, 0, planes * chunks);
        if (g->at_once) ct__parallel(g->row_blocks * g->panels, finish_chunk, g);
        else ct__parallel(WINOGRAD_POINTS * taps * g->row_blocks * g->panel_blocks, multiply_chunk, g);
    }
}

/* Adds what a phase gives to the sums. */
static void add_phase(gradient *g) {
    for (g->d0 = 0; g->d0 < g->frame.planes; g->d0 = g->d1) {
        g->d1 = ct__min(g->d0 + g->section, g->frame.planes);
        add_tiles(g, 0, g->frame.tiles.count);
    }
}

static void transform_all_sums(gradient *g) {
    ct__parallel(g->columns / LANES * g->frame.pass->kernel[0] * g->in_blocks, transform_sums, g);
}

static void add_blocks(gradient *g) {
    ct__parallel(g->splits * g->row_blocks * g->panel_blocks, block_chunk, g);
    for (int64_t split = 0; split < g->splits; split++) {
        const int64_t begin = split_begin(g, split), end = split_begin(g, split + 1);
        add_bias(g, begin / g->chunk, ct__ceil_div(end - begin, g->chunk));
    }
}

static void add_each_split(gradient *g) {
    g->d0 = 0, g->d1 = 1;
    for (g->split = 0; g->split < g->splits; g->split++) {
        g->accumulate = false;
        add_tiles(g, split_begin(g, g->split), split_begin(g, g->split + 1));
        transform_all_sums(g);
    }
}

void CT_ISA_FN(ct__winograd_weight_pass)(const winograd_pass *p, float *weight, void *scratch) {
    gradient g;
    plan(p, &g);
    g.weight = weight;
    g.v = scratch;
    g.z = g.v + WINOGRAD_POINTS * g.v_point;
    g.sums = g.v + tiles_of(&g);
    g.bands = g.sums + sums_of(&g);
    g.partials = g.bands + ct__threads() * g.worker;
    if (p->bias_grad) {
        g.bias_parts = g.partials + partials_of(&g);
        memset(p->bias_grad, 0, (size_t)p->out_channels * sizeof *p->bias_grad);
    }
    if (g.own) add_blocks(&g);
    else if (g.splits > 1) add_each_split(&g);
    if (g.splits > 1) ct__parallel(g.columns / LANES * g.in_blocks, add_splits, &g);
    if (g.own || g.splits > 1) return;
    int64_t phase[3];
    for (phase[0] = 0; phase[0] < CT_ISA_FN(ct__winograd_phases)(p, 0); phase[0]++)
        for (phase[1] = 0; phase[1] < CT_ISA_FN(ct__winograd_phases)(p, 1); phase[1]++)
            for (phase[2] = 0; phase[2] < CT_ISA_FN(ct__winograd_phases)(p, 2); phase[2]++) {
                CT_ISA_FN(ct__winograd_take_phase)(&g.frame, p, phase);
                add_phase(&g);
            }
    if (g.at_once) return;
    if (!g.accumulate) memset(g.sums, 0, (size_t)(WINOGRAD_POINTS * g.sum_point) * sizeof *g.sums);
    transform_all_sums(&g);
}
