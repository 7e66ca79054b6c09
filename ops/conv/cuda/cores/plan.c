/* How gradients on Tensor Cores are divided among blocks and warps. By sizes alone: the bits of sums hang on it. */
#include <string.h>

#include "backends/cuda/cuda.h"
#include "ops/conv/cuda/cores.h"

/* Multiprocessors that are to have work, and how many packs a window may have (divided in cores.cu). */
enum { BLOCKS_WANTED = 132, ITEMS_MOST = 65535, PACK_MOST = 4, DOWN_TRIED = 4, ACROSS_TRIED = 16 };

static int over(int64_t n, int64_t by) { return (int)((n + by - 1) / by); }
static int least(int a, int b) { return a < b ? a : b; }
static uint32_t reciprocal(int n) {
    return n > 1 ? (uint32_t)((((uint64_t)1 << 32) + (unsigned)n - 1) / (unsigned)n) : 0;
}

/* The next number from n on that is `rest` modulo `by`. */
static int64_t next_of(int64_t n, int by, int rest) { return n + ((rest - n) % by + by) % by; }

/* ---- What both have ---- */

/* Elements from the first of an image to its last. */
static int64_t extent(const ct_view *v) {
    int64_t n = 0;
    for (int d = 1; d < 4; d++) n += (v->dims[d] - 1) * (v->strides[d] < 0 ? -v->strides[d] : v->strides[d]);
    return n;
}

static const char *begin(const ct_cores_problem *p, ct_cores_plan *plan) {
    enum { FAR = 1 << 15 };
    ct_cuda_cores *a = &plan->a;
    const ct_view *x = p->x, *w = p->w, *g = p->g;
    memset(plan, 0, sizeof *plan);
    if (x->ndim != 4) return "only images of two dimensions";
    if (x->dtype != CT_F32) return "its dtype";
    for (int d = 0; d < 4; d++)
        if (!x->dims[d] || !w->dims[d] || !g->dims[d]) return "nothing is to be computed";
    if (ct_cuda_count(x) > INT32_MAX || ct_cuda_count(g) > INT32_MAX || ct_cuda_count(w) > INT32_MAX / 8)
        return "it is too large";
    if (x->dims[1] % w->dims[1]) return "its groups";
    if (extent(x) > INT32_MAX || extent(g) > INT32_MAX) return "its images are far apart";
    a->batch = (int32_t)x->dims[0], a->in_each = (int32_t)w->dims[1], a->groups = (int32_t)(x->dims[1] / w->dims[1]);
    a->out_each = (int32_t)(g->dims[1] / a->groups);
    int64_t taps = 1;
    for (int d = 0; d < 2; d++) {
        const int64_t stride = g->dims[2 + d] > 1 ? p->stride[d] : 1,
                      dilation = w->dims[2 + d] > 1 ? p->dilation[d] : 1;
        if (stride > FAR || dilation > FAR || w->dims[2 + d] > FAR || p->before[d] < -FAR || p->before[d] > FAR ||
            x->dims[2 + d] > INT32_MAX / 4 || dilation * w->dims[2 + d] > FAR)
            return "its stride, dilation, kernel or padding is large";
        a->in[d] = (int32_t)x->dims[2 + d], a->out[d] = (int32_t)g->dims[2 + d];
        a->kernel[d] = (int32_t)w->dims[2 + d], a->stride[d] = (int32_t)stride, a->dilation[d] = (int32_t)dilation;
        a->before[d] = (int32_t)p->before[d];
        a->w_k[d] = w->strides[2 + d];
        taps *= w->dims[2 + d];
    }
    if (taps > 1024) return "its kernel is large";
    a->taps = (int32_t)taps;
    a->w_o = w->strides[0], a->w_i = w->strides[1];
    a->activation = p->active ? p->activation : CT_ACT_NONE;
    a->over_taps = reciprocal(a->taps), a->over_width = reciprocal(a->kernel[1]);
    return NULL;
}

static int rows_of(int channels) { return channels > 32 ? 64 : channels > 16 ? 32 : 16; }

/* Neighbours along a row that may be copied at once: all packs are aligned, and inside or outside of the image as a whole. */
static int pack_of(const ct_view *v, const char *address, const char *other) {
    if (v->strides[3] != 1) return 1;
    int64_t all = v->dims[3] | PACK_MOST;
    for (int d = 0; d < 3; d++)
        if (v->dims[d] > 1) all |= v->strides[d];
    all |= (int64_t)(((uintptr_t)address | (uintptr_t)other) / sizeof(float));
    return (int)(all & -all);
}

/* An axis of one element may have any stride. */
static int32_t step_of(const ct_view *v, int d) { return v->dims[d] > 1 ? (int32_t)v->strides[d] : 0; }

/* columns: of which the window needs so many, from any column on. rest, by: of the pitch. */
static ct_cores_window window_of(const ct_view *v, int pack, int channels, int rows, int columns, int by, int rest) {
    ct_cores_window o = {.n = v->strides[0]};
    o.c = step_of(v, 1), o.h = step_of(v, 2), o.w = step_of(v, 3);
    o.height = (int32_t)v->dims[2], o.width = (int32_t)v->dims[3];
    o.channels = channels, o.rows = rows, o.pack = pack;
    o.columns = over(columns, pack) * pack;
    o.pitch = (int32_t)next_of((int64_t)rows * o.columns, by, rest);
    o.items = channels * rows * (o.columns / pack);
    o.last = pack == 1 && v->strides[1] == 1 && v->dims[1] > 1;
    const int packs = o.packs = o.columns / pack;
    o.over_inner = reciprocal(o.last ? channels : packs), o.over_middle = reciprocal(o.last ? packs : rows);
    return o;
}

/* Elements of a window in shared memory, whatever its packs. */
static int64_t room(int channels, int64_t rows, int64_t columns, int by, int rest) {
    return channels * next_of(rows * (int64_t)over(columns, PACK_MOST) * PACK_MOST, by, rest);
}

/* ---- Weights ---- */

/* Pitches keep lanes of a warp in different banks: rows of cotangents for ldmatrix, channels of x for four neighbouring pixels of each. */
enum { G_BY = 8, G_REST = 4, X_BY = 8, X_REST = 4 };

typedef struct weight_room {
    int64_t elements; /* of shared memory */
    int x_rows, x_columns;
} weight_room;

static int padded_pixels(const ct_cuda_cores *a) { return over((int64_t)a->rows * a->columns, 8) * 8; }

static weight_room weight_room_of(const ct_cuda_cores *a, int rows, int channels, bool active, bool bias) {
    weight_room r;
    r.x_rows = (a->rows - 1) * a->stride[0] + (a->kernel[0] - 1) * a->dilation[0] + 1;
    r.x_columns = (a->columns - 1) * a->stride[1] + (a->kernel[1] - 1) * a->dilation[1] + 1;
    const int64_t g = (int64_t)rows * (padded_pixels(a) + G_REST),
                  x = room(channels, r.x_rows, r.x_columns + PACK_MOST - 1, X_BY, X_REST);
    r.elements = 2 * CT_CORES_PIXELS + (active ? 3 : 2) * g + 2 * x + (bias ? (int64_t)rows * a->rows * a->columns : 0);
    return r;
}

/* Of a block, and how its warps share its tiles: those of input channels, then the pixels of a chunk. */
static void share_tiles(ct_cuda_cores *a) {
    const int steps = padded_pixels(a) / 8;
    double best = 0;
    for (int each = 1; each <= CT_CORES_WEIGHT_TILES; each++) {
        const int n = over(a->tiles_each, each), k = n <= CT_CORES_WARPS ? CT_CORES_WARPS / n : 0;
        if (!k) continue;
        const double used = (double)a->tiles_each * steps / ((double)CT_CORES_WARPS * each * over(steps, k));
        if (used < best) continue;
        best = used, a->tiles_warp = each, a->warps_n = n, a->warps_k = least(k, steps);
    }
}

/* Something like clocks of a multiprocessor: products, copies, and the barrier. */
static double chunk_cost(double products, double copied) { return 2 * products + 0.15 * copied + 300; }

static void divide_pixels(ct_cuda_cores *a, int rows, int64_t blocks, int channels) {
    if (a->out[1] > CT_CORES_PIXELS) {
        a->rows = 1;
        a->columns = over(over(a->out[1], over(a->out[1], CT_CORES_PIXELS)), 8) * 8;
    } else {
        const int most = least(a->out[0], CT_CORES_PIXELS / a->out[1]), down = over(a->out[0], most);
        double best = 0;
        int chosen = most;
        a->columns = a->out[1];
        for (int d = down; d < down + DOWN_TRIED && d <= a->out[0]; d++) {
            a->rows = over(a->out[0], d);
            const weight_room r = weight_room_of(a, rows, channels, false, false);
            const int64_t chunks = (int64_t)a->batch * over(a->out[0], a->rows),
                          slots = blocks < BLOCKS_WANTED ? BLOCKS_WANTED / blocks : 1;
            const double cost =
                over(chunks, slots) *
                chunk_cost((double)padded_pixels(a) / 8 * a->tiles_each * rows / 16,
                           (double)r.x_rows * r.x_columns * channels + 2.0 * a->rows * a->columns * rows);
            if (best == 0 || cost < best) best = cost, chosen = a->rows;
        }
        a->rows = chosen;
    }
    a->chunks_down = over(a->out[0], a->rows), a->chunks_across = over(a->out[1], a->columns);
    a->chunks = a->batch * a->chunks_down * a->chunks_across;
    a->over_columns = reciprocal(a->columns);
}

const char *ct_cores_plan_weight(const ct_cores_problem *p, unsigned shared_limit, ct_cores_plan *plan) {
    enum { CAPACITY = CT_CORES_WARPS * CT_CORES_WEIGHT_TILES };
    ct_cuda_cores *a = &plan->a;
    const char *why = begin(p, plan);
    if (why) return why;
    const int rows = plan->rows = rows_of(a->out_each), tiled = over(a->in_each, 8);
    a->tiles = a->taps * tiled;
    a->row_blocks = over(a->out_each, rows);
    const bool whole = a->taps <= CAPACITY; /* all taps of a channel are in one block */
    int channels = 0;
    weight_room r = {0};
    for (int most = whole ? least(tiled, CAPACITY / a->taps) : 1;; most--) {
        if (most < 1) return "it does not fit in shared memory";
        if (whole) {
            const int each = over(tiled, over(tiled, most));
            a->tiles_each = each * a->taps, channels = 8 * each;
        } else {
            a->tiles_each = over(a->tiles, over(a->tiles, CAPACITY)), channels = 8 * least(tiled, 2);
        }
        a->column_blocks = over(a->tiles, a->tiles_each);
        divide_pixels(a, rows, (int64_t)a->groups * a->row_blocks * a->column_blocks, channels);
        r = weight_room_of(a, rows, channels, true, true);
        if (r.elements * (int64_t)sizeof(float) <= shared_limit &&
            (int64_t)channels * r.x_rows * (r.x_columns + PACK_MOST) <= ITEMS_MOST)
            break;
    }
    share_tiles(a);
    const int64_t blocks = (int64_t)a->groups * a->row_blocks * a->column_blocks,
                  slots = blocks < BLOCKS_WANTED ? BLOCKS_WANTED / blocks : 1;
    a->each = over(a->chunks, slots);
    a->parts = over(a->chunks, a->each);
    const int64_t lines = (int64_t)a->groups * a->row_blocks, sums = lines * a->tiles * (rows / 16) * 128;
    if (blocks * a->parts > INT32_MAX || sums > INT32_MAX) return "it is too large";
    plan->partial = (size_t)(sums * a->parts * a->warps_k) * sizeof(float);
    plan->scratch = plan->partial + (size_t)(lines * rows * a->parts) * sizeof(float);
    if (plan->scratch > (size_t)128 << 20) return "the sums of its parts are large";

    a->x = (const float *)(void *)ct_cuda_address(p->x), a->g = (const float *)(void *)ct_cuda_address(p->g);
    a->active = p->active ? (const float *)(void *)ct_cuda_address(p->active) : NULL;
    a->w = (float *)(void *)ct_cuda_address(p->w);
    if (p->bias) a->dbias = (float *)(void *)ct_cuda_address(p->bias), a->dbias_stride = p->bias->strides[0];
    const int x_pack = pack_of(p->x, (const char *)a->x, NULL);
    int g_pack = pack_of(p->g, (const char *)a->g, (const char *)a->active);
    while (a->columns % g_pack) g_pack /= 2;
    a->xs = window_of(p->x, x_pack, channels, r.x_rows, r.x_columns + x_pack - 1, X_BY, X_REST);
    a->gs = window_of(p->g, g_pack, rows, a->rows, a->columns, G_BY, G_REST);
    a->gs.pitch = padded_pixels(a) + G_REST;
    plan->shared = (unsigned)(2 * CT_CORES_PIXELS + (a->active ? 3 : 2) * a->gs.channels * a->gs.pitch +
                              2 * a->xs.channels * a->xs.pitch + (a->dbias ? a->gs.items : 0)) *
                   (unsigned)sizeof(float);
    plan->blocks = (unsigned)(blocks * a->parts);
    plan->sum_blocks = (unsigned)(sums / 128 + (a->dbias ? lines : 0));
    return NULL;
}

/* ---- Inputs ---- */

/* Lanes read eight pixels of four channels: in different banks if pixels are different modulo 8 and channels 8 apart. So that pixels are, which
 * are neighbours or the end of one row and the beginning of the next, rows of a chunk and of the window are the same modulo 8. */
enum { INPUT_BY = 32, INPUT_REST = 8, ROW_BY = 8, COLUMNS_BY = 4, RAW_PAD = 4 };

typedef struct input_room {
    int g_rows, g_columns;
    int64_t elements;
} input_room;

/* Of one output channel's weights as they are copied, all taps of a channel behind one another. Lanes read eight channels of four of them, which
 * with taps that are odd are in different banks. */
static int64_t raw_row(const ct_cuda_cores *a, int rows) {
    return next_of((int64_t)a->taps * rows, 32, a->taps % 2 ? 8 * a->taps % 32 : RAW_PAD);
}

/* As weights lie: by output channels, or else by taps with output channels last. */
static void plan_raw(const ct_cores_problem *p, ct_cuda_cores *a, int rows) {
    const int64_t row = raw_row(a, rows);
    const bool by_tap = a->w_o == 1, dense = (a->in_each == 1 || a->w_i == a->taps) &&
                                             (a->kernel[1] == 1 || a->w_k[1] == 1) &&
                                             (a->kernel[0] == 1 || a->w_k[0] == a->kernel[1]);
    int64_t all = (int64_t)((uintptr_t)ct_cuda_address(p->w) / sizeof(float));
    if (by_tap) {
        a->raw_o = 1, a->raw_c = a->depth + RAW_PAD, a->raw_tap = rows * a->raw_c, a->raw_size = a->taps * a->raw_tap;
        all |= a->out_each | a->w_i | a->w_k[0] | a->w_k[1];
    } else {
        a->raw_o = (int32_t)row, a->raw_c = a->taps, a->raw_tap = 1, a->raw_size = a->depth * a->raw_o;
        all |= dense ? (int64_t)a->in_each * a->taps | a->w_o : 1;
    }
    a->w_pack = all % PACK_MOST ? 1 : PACK_MOST;
    a->over_row = reciprocal(a->taps * rows / a->w_pack);
}

static input_room input_room_of(const ct_cuda_cores *a, int rows, bool active) {
    input_room r;
    r.g_rows = a->rows + (a->kernel[0] - 1) * a->dilation[0],
    r.g_columns = a->columns + (a->kernel[1] - 1) * a->dilation[1];
    r.g_columns = (int)next_of(r.g_columns + PACK_MOST - 1, ROW_BY, a->columns);
    const int64_t weights = (int64_t)a->taps * a->depth * rows, by_o = a->depth * raw_row(a, rows),
                  by_tap = (int64_t)a->taps * rows * (a->depth + RAW_PAD);
    r.elements = weights + (by_o > by_tap ? by_o : by_tap) +
                 (active ? 3 : 2) * room(a->depth, r.g_rows, r.g_columns, INPUT_BY, INPUT_REST);
    return r;
}

static double input_cost(const ct_cuda_cores *a, int rows, const input_room *r) {
    const int64_t blocks =
        (int64_t)a->batch * over(a->in[0], a->rows) * over(a->in[1], a->columns) * a->row_blocks * a->groups;
    const int steps = over(a->out_each, a->depth),
              tiles = over(over((int64_t)a->rows * a->columns, 8), CT_CORES_WARPS) * CT_CORES_WARPS;
    const double products = (double)tiles * (rows / 16) * a->taps * (a->depth / 8);
    const double copied = a->depth * (2.0 * r->g_rows * r->g_columns + 2.0 * a->taps * rows);
    return over(blocks, BLOCKS_WANTED) * (steps * chunk_cost(products, copied) + 1000);
}

const char *ct_cores_plan_input(const ct_cores_problem *p, unsigned shared_limit, ct_cores_plan *plan) {
    enum { PIXELS = CT_CORES_WARPS * CT_CORES_INPUT_TILES * 8 };
    ct_cuda_cores *a = &plan->a;
    const char *why = begin(p, plan);
    if (why) return why;
    if (a->stride[0] != 1 || a->stride[1] != 1) return "it has a stride";
    const int rows = plan->rows = rows_of(a->in_each);
    a->row_blocks = over(a->in_each, rows);
    double best = 0;
    int chosen[3] = {0};
    for (a->depth = a->out_each > 8 ? 16 : 8; a->depth >= 8; a->depth /= 2) {
        if ((int64_t)a->taps * a->depth * rows > ITEMS_MOST) continue;
        const int across = over(a->in[1], PIXELS);
        for (int s = across; s < across + ACROSS_TRIED && s <= a->in[1]; s++) {
            a->columns = over(a->in[1], s);
            if (a->in[1] >= COLUMNS_BY) a->columns = over(a->columns, COLUMNS_BY) * COLUMNS_BY;
            const int most = least(a->in[0], PIXELS / a->columns), down = over(a->in[0], most);
            for (int d = down; d < down + DOWN_TRIED && d <= a->in[0]; d++) {
                a->rows = over(a->in[0], d);
                const input_room r = input_room_of(a, rows, true);
                if (r.elements * (int64_t)sizeof(float) > shared_limit ||
                    (int64_t)a->depth * r.g_rows * (r.g_columns + PACK_MOST) > ITEMS_MOST)
                    continue;
                const double cost = input_cost(a, rows, &r);
                if (best == 0 || cost < best)
                    best = cost, chosen[0] = a->rows, chosen[1] = a->columns, chosen[2] = a->depth;
            }
        }
    }
    if (best == 0) return "it does not fit in shared memory";
    a->rows = chosen[0], a->columns = chosen[1], a->depth = chosen[2];
    a->tiles_warp = over(over((int64_t)a->rows * a->columns, 8), CT_CORES_WARPS);
    a->chunks_down = over(a->in[0], a->rows), a->chunks_across = over(a->in[1], a->columns);
    const int64_t chunks = (int64_t)a->batch * a->chunks_down * a->chunks_across,
                  blocks = chunks * a->row_blocks * a->groups;
    if (blocks > INT32_MAX) return "it is too large";
    a->chunks = (int32_t)chunks;
    a->over_columns = reciprocal(a->columns);

    a->dx = (float *)(void *)ct_cuda_address(p->x), a->g = (const float *)(void *)ct_cuda_address(p->g);
    a->active = p->active ? (const float *)(void *)ct_cuda_address(p->active) : NULL;
    a->w = (float *)(void *)ct_cuda_address(p->w);
    if (p->bias) a->bias = (const float *)(void *)ct_cuda_address(p->bias), a->bias_stride = p->bias->strides[0];
    const int pack = pack_of(p->g, (const char *)a->g, (const char *)a->active);
    const input_room r = input_room_of(a, rows, a->active != NULL);
    a->xs = window_of(p->x, 1, 1, 1, 1, 1, 0);
    a->gs = window_of(p->g, pack, a->depth, r.g_rows, r.g_columns, INPUT_BY, INPUT_REST);
    plan_raw(p, a, rows);
    plan->shared =
        (unsigned)(a->taps * a->depth * rows + a->raw_size + (a->active ? 3 : 2) * a->gs.channels * a->gs.pitch) *
        (unsigned)sizeof(float);
    plan->blocks = (unsigned)blocks;
    return NULL;
}
