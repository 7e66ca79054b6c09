/* Which way round, what is packed by whom, and in which blocks: the decisions of the engine. The sizes of the blocks follow the
 * caches as in GotoBLAS (driver.c); they come with the kernel (ct__kernel) and are evened out over the matrix. */
#include "backends/cpu/gemm/plan.h"

#include "backends/cpu/gemm/caches.h"
#include "core/threads.h"

#include <math.h>

static bool is_float(ct_gemm_type t) { return t == CT_GEMM_F32 || t == CT_GEMM_BF16 || t == CT_GEMM_F16; }
static bool is_integer(ct_gemm_type t) { return t >= CT_GEMM_I8 && t < CT_GEMM_TYPES; }

const ct__kernel *ct__gemm_kernel(ct_gemm_type a, ct_gemm_type b, ct_gemm_type c) {
    const ct__kernel *const *kernels = ct__gemm_isa->kernels;
    if (is_float(a) && is_float(b) && is_float(c)) {
        const bool pairs = a == CT_GEMM_BF16 && b == CT_GEMM_BF16 && kernels[CT__KIND_BF16];
        return kernels[pairs ? CT__KIND_BF16 : CT__KIND_F32];
    }
    if (a == CT_GEMM_F64 && b == CT_GEMM_F64 && c == CT_GEMM_F64) return kernels[CT__KIND_F64];
    if (is_integer(a) && is_integer(b) && is_integer(c)) {
        if (a == CT_GEMM_I64 || b == CT_GEMM_I64 || c == CT_GEMM_I64) return kernels[CT__KIND_I64];
        const bool bytes = (a == CT_GEMM_I8 || a == CT_GEMM_U8) && b == CT_GEMM_I8;
        return kernels[bytes && kernels[CT__KIND_I8] ? CT__KIND_I8 : CT__KIND_I32];
    }
    return NULL;
}

const ct__kernel *ct__gemm_larger_kernel(const ct__kernel *kernel, int64_t m, int64_t n, int64_t k) {
    if (m < 8 || n < 8 || k < 8 * kernel->group) return kernel;
    for (int kind = 0; kind < CT__KINDS; kind++)
        if (ct__gemm_isa->kernels[kind] == kernel && ct__gemm_isa->blocks[kind]) return ct__gemm_isa->blocks[kind];
    return kernel;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* How many of `count` lines, `stride` bytes apart, fall on one set of a cache whose ways hold
 * `way` bytes each. */
static int64_t lines_on_a_set(int64_t stride, int64_t count, int64_t way) {
    int64_t power = stride & -stride; /* largest power of two dividing the stride */
    if (stride == 0) return 1;
    if (power > way) power = way;
    if (power < 64) power = 64;
    return ct__ceil_div(count, way / power);
}

/* Tiles of so few rows, evened out over m, that their lines fit one set of L1 even when rows are a multiple of 4 KiB apart: seven or
 * eleven, which still keep the multipliers busy. */
static int64_t rows_of_a_set(void) { return ct__caches()->l1_ways - 1; }
static void lower_tiles(ct__plan *p) {
    /* Few rows over a large B: high tiles read it less often. */
    if (p->m <= p->kernel->block_rows && p->n > p->m) return;
    if (p->kernel->block) return;
    const int64_t most = rows_of_a_set();
    if (p->tile_rows > most && ct__panel_width(p->kernel) >= 16)
        p->tile_rows = ct__ceil_div(p->m, ct__ceil_div(p->m, most));
}

/* Whether tiles can read A where it lies: the type fits, and k groups are whole. */
static bool a_type_fits(const ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    if (p->g->pack_a || p->flip_a || p->a.type != kernel->packed) return false;
    return kernel->group == 1 || (p->a.col == 1 && p->k % kernel->group == 0);
}

/* Whether row tiles may: a tile's rows do not fight over a few cache sets: of L1 they leave four ways to B and C, of L2 they
 * take half. May lower the tiles to that end. */
static bool a_readable_by_rows(ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const ct_caches *caches = ct__caches();
    const int64_t row = magnitude(p->a.row) * ct__type_size(p->a.type);
    if (!a_type_fits(p) || magnitude(p->a.col) != 1) return false;
    /* Matrix registers take lines of A from L2, once for every panel of B, packed or not. */
    if (kernel->block)
        return row % 64 == 0 && lines_on_a_set(row, kernel->block_rows, caches->l2_way) <= caches->l2_ways / 2;
    if (lines_on_a_set(row, p->tile_rows, caches->l1_way) > caches->l1_ways - 4) lower_tiles(p);
    return p->tile_rows <= rows_of_a_set() || lines_on_a_set(row, p->tile_rows, caches->l1_way) <= caches->l1_ways - 4;
}

/* Tiles that take but a part of a line from each k group of a k-major A: read where it lies, more of it goes through L1 than tiles
 * multiply, and again for each panel of B, unless all of its lines fit. */
static bool low_tiles(const ct__kernel *kernel) { return kernel->rows <= 8 && kernel->group == 1; }

/* Whether they should, of any A: a copy pays when very many columns share it. */
static bool a_readable(ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const int64_t size = ct__type_size(p->a.type), width = ct__panel_width(kernel), b_bytes = p->n * p->k * size;
    const ct_caches *caches = ct__caches();
    if (!a_type_fits(p)) return false;
    if (magnitude(p->a.col) == 1) return (p->n <= 4 * width || b_bytes <= 1 << 22) && a_readable_by_rows(p);
    if (p->n <= width) return true; /* read once: nothing to keep in cache */
    if (p->n > 4 * width && b_bytes > 1 << 20) return false;
    const int64_t row = magnitude(p->a.row) * size, col = magnitude(p->a.col) * size;
    if (p->n > 3 * width && low_tiles(kernel) &&
        2 * lines_on_a_set(col, ct__min(p->k, kernel->depth), caches->l1_way) >= caches->l1_ways)
        return false;
    return row <= 8 && lines_on_a_set(col, ct__min(p->k, kernel->depth), caches->l2_way) <= caches->l2_ways / 2;
}

/* Even k blocks: 800 is 2 x 400, not 384 + 384 + 32. */
static int64_t even_depth(const ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const int64_t blocks = ct__ceil_div(p->k, kernel->depth + kernel->depth / 8);
    return ct__round_up(blocks ? ct__ceil_div(p->k, blocks) : 1, (kernel->block ? 16 : 4) * kernel->group);
}

/* The same for B, whose columns must be contiguous. */
static bool b_readable(const ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const int64_t size = ct__type_size(p->b.type);
    if (p->g->pack_b || p->g->packed_b || p->b.type != kernel->packed || kernel->group > 1) return false;
    if (p->b.col != 1) return p->n == 1 && p->m <= kernel->rows;
    if (p->m <= kernel->rows) return true;
    const int64_t row = magnitude(p->b.row) * size;
    const int64_t together = p->a_by_lines ? even_depth(p) : p->k; /* k in L2 at a time */
    /* Few rows: the next block of B is prefetched while this one is multiplied. */
    const bool prefetched = kernel->prefetches && p->m <= kernel->block_rows && p->k <= kernel->depth &&
                            p->k * ct__min(p->n, kernel->block_cols) * size <= 1 << 18;
    const ct_caches *caches = ct__caches();
    return (prefetched || together * p->n * size <= 1 << 20) &&
           lines_on_a_set(row, ct__min(p->k, kernel->depth), caches->l2_way) <= caches->l2_ways / 2;
}

/* Whether tiles can read a k-major A where it lies although it is large (the gradient of a weight): of each k group a tile takes a line
 * or two from L2, where the tiles before it had them prefetched, so that a copy would only cost. */
static bool a_readable_by_lines(const ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const ct_caches *caches = ct__caches();
    const int64_t size = ct__type_size(kernel->packed);
    if (!p->a_by_k || p->items != 1 || kernel->group > 1 || !kernel->prefetches || kernel->rows <= 8) return false;
    if (p->a.type != kernel->packed || p->b.type != kernel->packed || p->b.col != 1 || p->g->pack_b || p->g->packed_b)
        return false;
    if (p->g->c_type != kernel->acc || p->c_col != 1 || p->g->store) return false;
    return p->n > ct__panel_width(kernel) && p->k >= kernel->depth / 2 &&
           lines_on_a_set(p->a.col * size, even_depth(p), caches->l2_way) <= caches->l2_ways - 2;
}

/* Whether the lines of a k-major A lie on so many sets of the caches that reading them where they lie beats packing: a small one, which
 * its worker packs, on eight sets of L1 at least, a large one on as many of L2 as leave half of its ways. */
static bool a_spread_over_sets(const ct__plan *p, bool small) {
    const ct_caches *caches = ct__caches();
    const int64_t stride = magnitude(p->a.col) * ct__type_size(p->a.type);
    return small ? lines_on_a_set(stride, 8, caches->l1_way) == 1
                 : lines_on_a_set(stride, even_depth(p), caches->l2_way) <= caches->l2_ways / 2;
}

/* Whether few threads should: all columns of C are one block and k blocks the outermost loop, so that what a k block needs of B stays in
 * L2 for all rows. Of many each keeps its own strip of B there. */
static bool a_read_by_lines(const ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const ct_caches *caches = ct__caches();
    return ct__threads() <= CT__FEW_THREADS && a_readable_by_lines(p) && p->m >= 8 * kernel->block_rows &&
           p->n <= 4 * kernel->block_cols &&
           even_depth(p) * p->n * ct__type_size(kernel->packed) <= caches->l2_way * caches->l2_ways * 5 / 8;
}

static bool is_small(const ct__plan *p) {
    return !p->kernel->block && (double)p->m * (double)p->n * (double)p->k <= 64e6;
}

static bool b_copyable(const ct__plan *p) {
    return p->kernel->copying_tiles && !p->g->pack_b && p->b.type == p->kernel->packed && p->b.col == 1;
}

/* A transposed B whose next block tiles prefetch while they multiply this one, so that its worker packs it from the cache; for low tiles, which
 * have less time for each line, one that is not far away. */
static bool b_packable_ahead(const ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const bool near = low_tiles(kernel) && p->k * p->n * ct__type_size(kernel->packed) <= 1 << 21;
    return kernel->prefetches && (kernel->rows > 8 || near) && !p->g->pack_b && p->b.type == kernel->packed &&
           p->b.row == 1 && (p->a.col == 1 || (near && p->a_by_k)) && p->m >= 4 * kernel->block_rows &&
           p->k >= kernel->depth / 2;
}

/* Cycles, roughly, to compute as given and transposed: lanes wasted on a narrow n, packing B (a
 * transpose when its columns are not contiguous), storing C against its grain. */
static double cost(const ct__kernel *kernel, int64_t m, int64_t n, int64_t k, bool b_contiguous, bool c_contiguous) {
    const double wide = (double)ct__round_up(n, kernel->lanes) / kernel->lanes;
    const double pack = b_contiguous ? (m <= kernel->rows ? 0.0 : 0.1) : 0.4;
    return (double)m * wide * (double)ct__ceil_div(k, kernel->group) + pack * (double)n * (double)k / kernel->group +
           (c_contiguous ? 0.0 : 0.5) * (double)m * (double)n;
}

/* Whether an L2 holds a panel of B of so many k, and as much again. */
static bool keeps_panel(const ct__kernel *kernel, int64_t k) {
    const ct_caches *caches = ct__caches();
    return k <= caches->l2_ways * caches->l2_way / 2 / (ct__panel_width(kernel) * ct__type_size(kernel->packed));
}

/* Both operands transposed, for many threads: as C^T = B^T A^T no worker has to transpose what it packs, and A, which all of them
 * read, needs no copy; only C is transposed, once, on its way out, which is why a worker keeps its B for all of k. Not with an old C,
 * which would be added after the sums instead of before them. */
static bool transposes_c_alone(const ct_gemm *g, const ct__kernel *kernel) {
    const double least = 128.0 * 128.0 * 128.0;
    return keeps_panel(kernel, g->k) && ct__threads() > CT__FEW_THREADS && g->a_row == 1 && g->a_col != 1 &&
           g->b_row == 1 && g->b_col != 1 && g->c_col == 1 && !g->accumulate && !(g->bias_row && g->bias_col) &&
           (double)g->m * (double)g->n * (double)g->k >= least;
}

static bool better_swapped(const ct_gemm *g, const ct__kernel *kernel) {
    if (g->pack_a || g->pack_b || g->packed_b || g->store) return false;
    /* The i8 tile is not symmetric in its operands. */
    if (kernel->unsigned_a) return false;
    if (transposes_c_alone(g, kernel)) return true;
    const double plain = cost(kernel, g->m, g->n, g->k, g->b_col == 1, g->c_col == 1);
    const double swapped = cost(kernel, g->n, g->m, g->k, g->a_row == 1, g->c_row == 1);
    return swapped < 0.97 * plain;
}

static void orient(ct__plan *p) {
    const ct_gemm *g = p->g;
    p->swapped = better_swapped(g, p->kernel);
    p->k = g->k;
    if (p->swapped) {
        p->m = g->n, p->n = g->m;
        p->a = (ct__matrix){g->b, g->b_type, g->b_col, g->b_row};
        p->b = (ct__matrix){g->a, g->a_type, g->a_col, g->a_row};
        p->c_row = g->c_col, p->c_col = g->c_row;
    } else {
        p->m = g->m, p->n = g->n;
        p->a = (ct__matrix){g->a, g->a_type, g->a_row, g->a_col};
        p->b = (ct__matrix){g->b, g->b_type, g->b_row, g->b_col};
        p->c_row = g->c_row, p->c_col = g->c_col;
    }
    if (g->pack_a) p->a.row = 0, p->a.col = 1;
    p->flip_a = p->kernel->unsigned_a && g->a_type == CT_GEMM_I8;
    p->offset_b = p->flip_a;
}

static void choose_items(ct__plan *p) {
    const double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    p->items = 1;
    for (int d = 0; d < p->g->batch_dims; d++) p->items *= p->g->batch[d];
    p->items_apart = p->items > 1 && (flops < 4e6 || (p->items >= 32 && flops < 64e6));
    p->items_in_chunk = 1;
    if (p->items_apart) { /* a chunk is worth some microseconds */
        const double many = 5e5 / (flops + 2000.0);
        p->items_in_chunk = many < 1.0 ? 1 : (int64_t)many;
    }
}

/* Whether chunks of all products may run at once: nothing is packed for one product alone. */
static bool joinable(const ct__plan *p) {
    if (p->items <= 1 || p->items_apart || p->sums || p->b_feed == CT__FEED_STAGED) return false;
    if (p->a_feed != CT__FEED_STAGED) return true;
    if (p->m > p->stage_rows || p->k > p->stage_depth || p->g->pack_a) return false;
    for (int d = 0; d < p->g->batch_dims; d++)
        if (p->g->batch[d] > 1 && (p->swapped ? p->g->b_batch : p->g->a_batch)[d] != 0) return false;
    return true;
}

/* A product so small that each thread has but a few chunks: cut so that the one with the most of them has the least to do. */
static void even_out(ct__plan *p, int64_t threads) {
    enum { MOST = 8 }; /* chunks for each: more of them would be even anyhow, and take long to try */
    const int64_t width = ct__panel_width(p->kernel), most = MOST * threads;
    int64_t best = INT64_MAX, best_rows = p->chunk_rows, best_cols = p->chunk_cols, best_tile = p->tile_rows;
    for (int64_t r = 1; r <= ct__min(ct__ceil_div(p->m, p->tile_rows), most); r++)
        for (int64_t c = 1; c <= ct__min(ct__ceil_div(p->n, width), most / r); c++) {
            const int64_t share = ct__ceil_div(p->m, r), tile = ct__ceil_div(share, ct__ceil_div(share, p->tile_rows));
            const int64_t rows = ct__round_up(share, tile), cols = ct__round_up(ct__ceil_div(p->n, c), width);
            const int64_t rounds = ct__ceil_div(ct__ceil_div(p->m, rows) * ct__ceil_div(p->n, cols), threads);
            /* What a chunk reads counts as well: so many rows and columns of A and B. */
            const int64_t cost = rounds * (rows * cols + 8 * (rows + cols));
            if (cost < best) best = cost, best_rows = rows, best_cols = cols, best_tile = tile;
        }
    p->chunk_rows = best_rows, p->chunk_cols = best_cols, p->tile_rows = best_tile;
}

/* Columns of C, and k, that a worker multiplies with the B that it has packed: half of L2. */
static int64_t columns_kept(const ct__plan *p, int64_t depth) {
    const ct_caches *caches = ct__caches();
    const int64_t column = ct__min(ct__round_up(p->k, p->kernel->group), depth) * ct__type_size(p->kernel->packed);
    return caches->l2_ways * caches->l2_way / 2 / column;
}

/* The next one to try: 1, 2, 3, 4, 6, 8, 12, ... */
static int64_t next_size(int64_t n) { return n < 3 ? n + 1 : (n & (n - 1)) == 0 ? n + n / 2 : n / 3 * 4; }

/* Where workers pack for themselves: strips of columns, of all k or, with a wait for one another in between, of some, such that a worker can
 * keep its B; and in them chunks of few rows. Of those tried, the ones that leave the thread with the most chunks the least to do. It
 * counts, for each k and in products: those of a chunk, to read or to pack its rows of A, and to begin it; the columns of B, of the
 * strips that a thread has and of another one, where it helps a slower thread; and to wait. Against a strip of few columns an A that comes from
 * L3 is multiplied faster than it comes. The costs are what differences between
 * cuts amounted to on Sapphire and Emerald Rapids; matrix registers multiply many times as fast as they are fed. */
static void cut_strips(ct__plan *p, int64_t threads) {
    const ct__kernel *kernel = p->kernel;
    const bool fast = kernel->block, packs_a = p->a_feed == CT__FEED_PRIVATE;
    const double a_cost = packs_a ? (fast ? 64 : 28) : (fast ? 32 : 4), b_cost = fast ? 64 : 24;
    const double begin = fast ? 640000 : 80000, wait = 20 * begin;
    const int64_t width = ct__panel_width(kernel), items = p->joint ? p->items : 1;
    const int64_t blocks = ct__ceil_div(p->k, p->depth), row_tiles = ct__ceil_div(p->m, p->tile_rows);
    enum { NARROW = 48 }; /* columns */
    const ct_caches *caches = ct__caches();
    const bool far = p->m * p->k * ct__type_size(kernel->packed) > caches->l2_ways * caches->l2_way / 2;
    const double least_wide = far && !fast ? NARROW : 0;
    /* Rows of A that lie side by side are read in runs of a chunk's height: short ones waste lines and pages. */
    const int64_t least_tiles = ct__min((packs_a && p->a.row == 1) || p->a_by_lines ? 4 : fast ? 2 : 1, row_tiles);
    const int64_t most_stages = p->sums ? 1 : blocks; /* which are tried in any case: there is always one that fits */
    double best = INFINITY;
    for (int64_t stages = 1, next; stages <= most_stages; stages = next) {
        next = stages < most_stages ? ct__min(next_size(stages), most_stages) : stages + 1;
        const int64_t deep = ct__ceil_div(blocks, stages) * p->depth, most = columns_kept(p, deep) / width;
        if (stages < most_stages && !keeps_panel(kernel, deep)) continue;
        const double k = (double)ct__min(deep, p->k);
        for (int64_t panels = 1; panels == 1 || panels <= most; panels = next_size(panels)) {
            const int64_t cols = ct__min(panels * width, ct__round_up(p->n, width));
            const int64_t strips = ct__ceil_div(p->n, cols) * items;
            const bool even = strips % threads == 0 || threads % strips == 0;
            const double seen = (double)ct__ceil_div(strips, threads) + (even ? 1 : 2);
            for (int64_t tiles = least_tiles;; tiles = ct__min(next_size(tiles), row_tiles)) {
                const int64_t rows = tiles * p->tile_rows, chunks = ct__ceil_div(p->m, rows) * strips;
                const double rounds = (double)ct__ceil_div(chunks, threads) + 0.5, high = (double)rows,
                             wide = (double)cols;
                const double cost = rounds * (high * fmax(wide, least_wide) + a_cost * high + begin / k) +
                                    b_cost * wide * seen + wait / k;
                if (cost < best) best = cost, p->chunk_rows = rows, p->chunk_cols = cols, p->stage_depth = deep;
                if (chunks <= threads || tiles == row_tiles) break;
            }
            if (cols >= p->n) break;
        }
    }
    p->block_cols = p->chunk_cols;
    /* A is packed for as many rows at a time as some of L3 holds: workers keep their B meanwhile. */
    enum { STAGE = 16 << 20 };
    if (p->a_feed == CT__FEED_STAGED)
        p->stage_rows = ct__max(STAGE / (ct__min(p->k, p->stage_depth) * ct__type_size(kernel->packed)), p->chunk_rows);
}

enum { LARGE_L2 = 2 << 20 }; /* twice what the sizes of the kernels are for */

/* Chunks small enough that a dozen threads have something to do, large enough to be worth it. */
static void cut(ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    if (p->own_copies) {
        cut_strips(p, ct__threads());
        return;
    }
    const int64_t width = ct__panel_width(kernel);
    const int64_t most_rows = ct__min(p->m, p->stage_rows), most_cols = ct__min(p->n, p->stage_cols);
    /* A is read again for every block of columns, from L3 where it is large: a larger L2 holds more columns. Not of an A that is
     * packed across its rows, whose panels take their part of it. */
    const ct_caches *caches = ct__caches();
    const bool roomy = caches->l2_ways * caches->l2_way >= LARGE_L2 && !p->a_by_k && !kernel->block;
    p->block_cols = ct__min(ct__round_up(p->n, width), ct__round_up((roomy ? 2 : 1) * kernel->block_cols, width));
    /* Many rows: a few panels more, so that the tiles of a row panel are enough to prefetch the next one; not for a small rest. */
    const int64_t wider = ct__round_up(kernel->block_cols * 3 / 2, width), rest = p->n % wider;
    if (!roomy && !p->a_by_k && p->m >= 4 * kernel->block_rows && kernel->prefetches &&
        kernel->block_cols <= 4 * width && p->n >= wider && (rest == 0 || 2 * rest >= wider))
        p->block_cols = wider;
    const bool alone = ct__threads() == 1; /* nobody to share with: few blocks, of even width */
    if (alone) p->block_cols = ct__round_up(ct__ceil_div(p->n, ct__ceil_div(p->n, p->block_cols)), width);
    if (p->a_by_lines) p->block_cols = ct__round_up(p->n, width);
    const bool private_a = p->a_feed == CT__FEED_PRIVATE || p->a_by_lines;
    const bool private_b = p->b_feed == CT__FEED_PRIVATE || p->b_feed == CT__FEED_COPIED;
    p->chunk_rows = private_b ? most_rows : ct__min(most_rows, ct__round_up(kernel->block_rows, p->tile_rows));
    p->chunk_cols = private_a ? ct__round_up(most_cols, width) : p->block_cols;
    if (p->items_apart) return;
    /* Many for every thread, since some may be slower than others, or a few that they share evenly. An element of C is a sum by
     * itself, so its bits do not depend on the cut. */
    const int64_t threads = ct__threads(), each = kernel->block ? 4 : 16;
    const int64_t enough = threads > 6 ? each * threads : alone ? 1 : 24;
    const int64_t least_cols = private_b && threads <= 8 ? 2 * width : width; /* short runs of B take longer to read */
    for (;;) {
        const int64_t chunks =
            ct__ceil_div(most_rows, p->chunk_rows) * ct__ceil_div(most_cols, p->chunk_cols) * (p->joint ? p->items : 1);
        const double flops =
            2.0 * (double)p->chunk_rows * (double)p->chunk_cols * (double)ct__min(p->k, p->stage_depth);
        /* Rows of A side by side are read in runs of a chunk's height: short ones waste lines and pages. */
        const int64_t least_rows = (p->a_feed == CT__FEED_PRIVATE && p->a_by_k && chunks >= 12 ? 4 : 1) * p->tile_rows;
        const bool rows = !private_b && p->chunk_rows > least_rows;
        const bool cols = !private_a && p->chunk_cols > least_cols;
        const int64_t last_rows = most_rows % p->chunk_rows, last_cols = most_cols % p->chunk_cols;
        const bool whole =
            2 * last_rows >= p->chunk_rows * (last_rows != 0) &&
            2 * last_cols >= p->chunk_cols * (last_cols != 0); /* no chunk is much smaller than the others */
        const bool even = (!p->a_by_k || p->a_by_lines) && chunks >= 4 * threads && chunks % threads == 0 && whole;
        if (chunks >= enough || even || flops < 2e6 || (!rows && !cols)) break;
        /* Rows that share a block of B are worth more than columns that share a panel of A. */
        if (cols && (!rows || p->chunk_cols > 2 * width || p->chunk_rows <= 4 * p->tile_rows))
            p->chunk_cols = ct__round_up(p->chunk_cols / 2, width);
        else p->chunk_rows = ct__round_up(p->chunk_rows / 2, p->tile_rows);
    }
    const bool few = ct__ceil_div(p->m, p->chunk_rows) * ct__ceil_div(p->n, p->chunk_cols) < 4 * threads;
    if (few && threads > 6 && is_small(p) && p->items == 1 && !private_a && !private_b &&
        p->a_feed == CT__FEED_DIRECT && !kernel->row_step && p->m <= p->stage_rows && p->n <= p->stage_cols)
        even_out(p, threads);
    p->block_cols = ct__min(p->block_cols, p->chunk_cols);
}

/* Whether workers pack for themselves what they would otherwise pack for one another: a small transposed B, and anything where there are
 * many. To wait for one another and to fetch what others have packed takes time; and a processor that writes where many others have
 * read, as in scratch that is packed anew for each stage, waits for all of them to let go: some 100 ns for every line, on servers of
 * sixteen processors ten times what it takes to read and pack the operand itself. */
static bool packs_alone(const ct__plan *p) {
    const ct_gemm *g = p->g;
    const bool gathers = g->pack_a || g->pack_b;
    if (p->items_apart || (gathers && p->kernel->group > 1) || g->packed_b || p->offset_b || p->k == 0) return false;
    const bool small = !gathers && is_small(p) && p->items == 1 && p->b.type == p->kernel->packed && p->b.col != 1;
    /* sums that are not C's own wait for the last k, and so would a worker's B */
    if (!p->c_direct && p->k > even_depth(p) && !keeps_panel(p->kernel, p->k)) return false;
    return small ? ct__threads() > 1
                 : ct__threads() > CT__FEW_THREADS && (p->a_feed == CT__FEED_STAGED || p->b_feed == CT__FEED_STAGED);
}

static void choose_feeds(ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    p->a_by_k = !kernel->block && !p->g->pack_a && p->a.row == 1 && p->a.col != 1;
    /* Enough columns for few threads: each packs its share of B while its first row panel computes, for all rows, rather than to L3 and
     * back. Many threads would each read all of A for few columns. */
    const bool wide = (b_copyable(p) || b_packable_ahead(p)) && !kernel->block && ct__threads() <= CT__FEW_THREADS &&
                      p->n >= 6 * ct__threads() * ct__panel_width(kernel);
    const bool small_m = p->m <= kernel->block_rows || wide;
    /* A high A that is packed anyway, for few blocks of columns: from memory into the cache of its worker, rather than to L3 and back. */
    const bool high = p->m >= (kernel->group > 1 ? 4 : 8) * kernel->block_rows;
    const bool small_n = p->n <= kernel->block_cols ||
                         (p->a_by_k && low_tiles(kernel) && p->n <= 2 * kernel->block_cols) ||
                         (p->a_by_k && high && p->n <= 4 * kernel->block_cols);
    p->a_by_lines = a_read_by_lines(p);
    p->a_feed = p->a_by_lines || a_readable(p) ? CT__FEED_DIRECT : (small_n ? CT__FEED_PRIVATE : CT__FEED_STAGED);
    p->b_feed = p->g->packed_b              ? CT__FEED_PACKED
                : b_readable(p)             ? CT__FEED_DIRECT
                : small_m && !p->a_by_lines ? (b_copyable(p) ? CT__FEED_COPIED : CT__FEED_PRIVATE)
                                            : CT__FEED_STAGED;
    /* Both private leaves one chunk: fine for a product that stays on one worker. */
    const bool private_b = p->b_feed == CT__FEED_PRIVATE || p->b_feed == CT__FEED_COPIED;
    if (p->a_feed == CT__FEED_PRIVATE && private_b && !p->items_apart) {
        if (p->m < p->n) p->a_feed = CT__FEED_STAGED;
        else p->b_feed = CT__FEED_STAGED;
    }
    p->own_copies = packs_alone(p);
    if (!p->own_copies) return;
    /* A that tiles cannot read is packed once for all strips of columns, in spite of that, unless it is small and need not be gathered. */
    enum { SMALL_A = 2 << 20 };
    if (p->a_feed != CT__FEED_DIRECT) {
        const bool small = p->m * p->k * ct__type_size(kernel->packed) <= SMALL_A;
        p->a_by_lines = a_spread_over_sets(p, small) && a_readable_by_lines(p);
        p->a_feed = p->a_by_lines || a_readable_by_rows(p) ? CT__FEED_DIRECT
                    : small && !p->g->pack_a               ? CT__FEED_PRIVATE
                                                           : CT__FEED_STAGED;
    }
    if (p->b_feed != CT__FEED_DIRECT) p->b_feed = b_copyable(p) ? CT__FEED_COPIED : CT__FEED_PRIVATE;
}

static void choose_depth(ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const bool staged = p->a_feed == CT__FEED_STAGED || p->b_feed == CT__FEED_STAGED;
    p->depth = even_depth(p);
    /* A stage packs whole blocks, as many as its share of L3 holds. */
    const int64_t lines = (p->a_feed == CT__FEED_STAGED ? ct__min(p->m, 4096) : 0) +
                          (p->b_feed == CT__FEED_STAGED ? ct__min(p->n, kernel->stage_cols) : 0);
    int64_t per_stage = kernel->stage_bytes / (lines * p->depth * ct__type_size(kernel->packed) + 1);
    if (per_stage < 1) per_stage = 1;
    p->stage_depth = staged ? p->depth * per_stage : ct__round_up(p->k ? p->k : 1, p->depth);
    if (p->a_by_lines && !p->own_copies) p->stage_depth = p->depth;
}

static void measure(ct__plan *p) {
    const ct__kernel *kernel = p->kernel;
    const int64_t size = ct__type_size(kernel->packed), acc = ct__type_size(kernel->acc);
    const int64_t width = ct__panel_width(kernel);
    const int64_t rows = ct__min(p->m, p->stage_rows), cols = ct__min(p->n, p->stage_cols);
    const int64_t deep = ct__min(ct__round_up(p->k, kernel->group), p->stage_depth);
    p->private_depth = ct__min(ct__round_up(p->k, kernel->group), p->depth);
    const bool staged_a = p->a_feed == CT__FEED_STAGED, staged_b = p->b_feed == CT__FEED_STAGED;

    /* An odd number of lines, more than the depth: rows of packed A then start on different cache sets. */
    const int64_t a_depth = staged_a ? deep : p->private_depth;
    p->a_ld = p->a_by_k ? p->tile_rows * kernel->group : ((ct__ceil_div(a_depth * size, 64) + 1) | 1) * (64 / size);
    p->a_panel_bytes = p->a_by_k ? ct__round_up(p->a_ld * ct__ceil_div(a_depth, kernel->group) * size, 64) + 64 : 0;
    p->a_block_bytes = p->a_by_k ? p->a_panel_bytes * ct__ceil_div(p->chunk_rows, p->tile_rows)
                                 : ct__round_up(p->a_ld * p->chunk_rows * size, 64);
    p->a_bytes = staged_a ? p->a_block_bytes * ct__ceil_div(rows, p->chunk_rows) : 0;
    p->b_bytes = staged_b ? ct__panel_bytes(kernel, deep) * ct__ceil_div(cols, width) : 0;
    p->offsets_bytes = p->offset_b && staged_b ? ct__round_up(cols, width) * 4 : 0;

    p->sums_bytes = p->sums && !p->own_copies ? rows * ct__round_up(cols, width) * acc : 0;
    p->worker_bytes = 0;
    if (!p->c_direct && !p->sums_bytes)
        p->worker_bytes += (p->sums ? p->chunk_rows : p->tile_rows) * ct__round_up(p->chunk_cols, width) * acc;
    if (p->a_feed == CT__FEED_PRIVATE) p->worker_bytes += p->a_block_bytes;
    if (p->b_feed == CT__FEED_PRIVATE || p->b_feed == CT__FEED_COPIED) {
        p->worker_bytes +=
            ct__panel_bytes(kernel, p->own_copies ? deep : p->private_depth) * ct__ceil_div(p->block_cols, width);
        if (p->offset_b) p->worker_bytes += ct__round_up(p->block_cols, width) * 4;
    }
    p->a_bytes = ct__round_up(p->a_bytes, 64), p->b_bytes = ct__round_up(p->b_bytes, 64);
    p->offsets_bytes = ct__round_up(p->offsets_bytes, 64);
    p->sums_bytes = ct__round_up(p->sums_bytes, 64);
    p->worker_bytes = ct__round_up(p->worker_bytes, 64);
    const int64_t workers = ct__threads();
    p->kept_bytes = p->own_copies ? CT__KEPT_LINE * workers : 0;
    const int64_t shared = p->a_bytes + p->b_bytes + p->offsets_bytes + p->sums_bytes + p->kept_bytes;
    p->total_bytes = p->items_apart ? (shared + p->worker_bytes) * workers : shared + p->worker_bytes * workers;
}

bool ct__gemm_plan(const ct_gemm *g, ct__plan *p) {
    const ct__kernel *kernel = ct__gemm_kernel(g->a_type, g->b_type, g->c_type);
    if (!kernel) return false;
    kernel = ct__gemm_larger_kernel(kernel, g->m, g->n, g->k);
    p->g = g;
    p->kernel = kernel;
    orient(p);
    p->tile_rows = ct__even_rows(kernel, p->m);
    /* Rows of C that are that far apart fight as well. */
    const int64_t c_row = magnitude(p->c_row) * ct__type_size(g->c_type);
    if (p->c_col == 1 && lines_on_a_set(c_row, p->tile_rows, ct__caches()->l1_way) > rows_of_a_set()) lower_tiles(p);
    choose_items(p);
    if (p->m <= 0 || p->n <= 0 || p->items <= 0) { /* nothing to write */
        p->items = p->total_bytes = 0;
        return true;
    }
    p->c_direct = g->c_type == kernel->acc && p->c_col == 1 && !g->store;
    choose_feeds(p);
    p->stage_rows = 4096 / p->tile_rows * p->tile_rows;
    p->stage_cols = kernel->stage_cols;
    choose_depth(p);
    const void *along = p->swapped ? g->bias_row : g->bias_col, *across = p->swapped ? g->bias_col : g->bias_row;
    p->tile_bias = kernel->biases && p->c_direct && along && g->bias_type == kernel->acc && !across && !g->residual &&
                   !g->activate;
    p->finish = !p->tile_bias && (!p->c_direct || g->bias_row || g->bias_col || g->residual || g->activate);
    p->sums = !p->c_direct && p->k > p->depth;
    if (p->own_copies || (p->a_feed != CT__FEED_STAGED && p->b_feed != CT__FEED_STAGED && !p->sums))
        p->stage_rows = p->m, p->stage_cols = p->n;
    p->joint = joinable(p);
    if (p->joint) p->stage_cols = p->n;
    cut(p);
    /* Stages are whole numbers of chunks, so that packed blocks and chunks coincide. */
    p->stage_rows = p->m > p->stage_rows ? ct__round_up(p->stage_rows, p->chunk_rows) : p->m;
    p->stage_cols = p->n > p->stage_cols ? ct__round_up(p->stage_cols, p->chunk_cols) : p->n;
    measure(p);
    return true;
}
