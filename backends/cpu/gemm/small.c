/* Small products, alone or by the thousand: register tiles straight from memory, no plan, no
 * scratch. Only a B that lies along k is first transposed, into the stack. */
#include "backends/cpu/gemm/block.h"

#include "core/threads.h"

enum { LARGEST = 64 * 64 * 64, STACK = 64 * 64 * 8 };

bool ct__gemm_is_small(const ct_gemm *g) {
    if (g->m <= 0 || g->n <= 0 || g->k <= 0 || g->m > LARGEST || g->n > LARGEST || g->k > LARGEST) return false;
    if (g->m * g->n > LARGEST || g->m * g->n * g->k > LARGEST) return false;
    if (g->a_type > CT_GEMM_F64 || g->b_type != g->a_type || g->c_type != g->a_type) return false;
    if (g->bias_row || g->bias_col || g->residual || g->activate || g->store) return false;
    if (g->pack_a || g->pack_b || g->packed_b || g->c_col != 1) return false;
    if (g->b_col == 1) return true;
    /* Rounded up to whole panels of at most 32 columns. */
    return (g->n + 31) * g->k * ct__type_size(g->b_type) <= STACK && g->m > 1;
}

/* A matrix as lines that lie side by side. */
static ct__spans lines_of(const char *at, int64_t rows, int64_t row, int64_t cols, int64_t col, int64_t size) {
    return col == 1 ? (ct__spans){at, rows, row * size, cols * size} : (ct__spans){at, cols, col * size, rows * size};
}

/* next: the operands of the product after this one, prefetched while this one is computed; NULL: not wanted. */
static inline __attribute__((always_inline)) void multiply(const ct_gemm *g, const ct__kernel *kernel, const char *a,
                                                           const char *b, char *c, const ct__spans *next) {
    const int64_t size = ct__type_size(kernel->acc), width = ct__panel_width(kernel);
    const int64_t count = ct__ceil_div(g->m, kernel->rows), rows = ct__ceil_div(g->m, count);
    char stack[STACK] __attribute__((aligned(64)));
    int64_t panel = width * size;
    ct__tile t;
    t.a_row = g->a_row * size, t.a_step = g->a_col * size;
    t.b_step = g->b_row * size;
    t.c_row = g->c_row * size;
    t.k = g->k;
    t.start = t.bias = NULL;
    t.runs = NULL;
    t.n_runs = 0;
    t.alpha = g->alpha;
    t.accumulate = g->accumulate;
    t.scale = g->scale;
    t.far_c = false;
    t.ahead = NULL;
    t.ahead_slowly = false;
    t.ahead_step = t.ahead_span = t.ahead_jump = 0;
    if (g->b_col != 1) {
        const ct__matrix src = {b, g->b_type, g->b_row, g->b_col};
        ct__gemm_isa->pack_b(kernel, &src, stack, g->k, g->n);
        b = stack;
        t.b_step = panel;
        panel *= g->k;
    }
    const int64_t half = next ? count * ct__ceil_div(g->n, width) / 2 : 0;
    int64_t tile = 0;
    for (int64_t j = 0; j < g->n; j += width, b += panel) {
        const int64_t cols = ct__min(width, g->n - j);
        const int64_t vecs = (cols + kernel->lanes - 1) / kernel->lanes;
        const ct__tile_fn *fn = kernel->tiles[(vecs - 1) * 2 + (cols != vecs * kernel->lanes)];
        t.b = b;
        t.cols = (int)cols;
        for (int64_t i = 0; i < g->m; i += rows) {
            t.a = a + i * t.a_row;
            t.c = c + i * t.c_row + j * size;
            if (next && tile < 2 * half) { /* A's share of the first half of the tiles, B's of the second */
                ct__spans share = next[tile >= half];
                const int64_t at = tile % half, first = share.count * at / half;
                share.at += first * share.stride;
                share.count = share.count * (at + 1) / half - first;
                ct__prefetch_by(&share, kernel, &t);
            } else if (next) {
                t.ahead = NULL;
            }
            tile++;
            fn[ct__min(rows, g->m - i) - 1](&t);
        }
    }
}

/* Apart, since the smallest products notice every instruction. */
static __attribute__((noinline)) void multiply_alone(const ct_gemm *g, const ct__kernel *kernel, const char *a,
                                                     const char *b, char *c) {
    multiply(g, kernel, a, b, c, NULL);
}
static __attribute__((noinline)) void multiply_and_ask(const ct_gemm *g, const ct__kernel *kernel, const char *a,
                                                       const char *b, char *c, const ct__spans *next) {
    multiply(g, kernel, a, b, c, next);
}

typedef struct batch {
    const ct_gemm *g;
    const ct__kernel *kernel;
    int64_t items, in_chunk;
    bool far; /* the operands are too large for caches near */
} batch;

static inline void find_item(const ct_gemm *g, int64_t item, const char **a, const char **b, char **c) {
    const int64_t size = ct__type_size(g->a_type);
    *a = (const char *)g->a, *b = (const char *)g->b, *c = (char *)g->c;
    for (int d = g->batch_dims - 1; d >= 0; d--) {
        const int64_t at = d ? item % g->batch[d] : item;
        if (d) item /= g->batch[d];
        *a += at * g->a_batch[d] * size, *b += at * g->b_batch[d] * size, *c += at * g->c_batch[d] * size;
    }
}

/* Items of one tile each, of which B lies along its rows: what does not change from one to the next is set once. */
static void tiles_of_items(const batch *all, int64_t item, int64_t end) {
    const ct_gemm *g = all->g;
    const ct__kernel *kernel = all->kernel;
    const int64_t size = ct__type_size(kernel->acc), vecs = ct__ceil_div(g->n, kernel->lanes);
    const ct__tile_fn fn = kernel->tiles[(vecs - 1) * 2 + (g->n != vecs * kernel->lanes)][g->m - 1];
    ct__tile t = {.a_row = g->a_row * size,
                  .a_step = g->a_col * size,
                  .b_step = g->b_row * size,
                  .c_row = g->c_row * size,
                  .k = g->k,
                  .alpha = g->alpha,
                  .accumulate = g->accumulate,
                  .scale = g->scale,
                  .cols = (int)g->n};
    for (; item < end; item++) {
        const char *a, *b;
        char *c;
        find_item(g, item, &a, &b, &c);
        t.a = a, t.b = b, t.c = c;
        fn(&t);
    }
}

static void chunk_of_items(void *ctx, int64_t chunk, int worker) {
    const batch *all = (const batch *)ctx;
    const ct_gemm *g = all->g;
    const int64_t size = ct__type_size(g->a_type), end = ct__min((chunk + 1) * all->in_chunk, all->items);
    (void)worker;
    const char *a, *b, *a_next, *b_next;
    char *c, *c_next;
    if (!all->far && g->b_col == 1 && g->m <= all->kernel->rows && g->n <= ct__panel_width(all->kernel)) {
        tiles_of_items(all, chunk * all->in_chunk, end);
        return;
    }
    if (!all->far) {
        for (int64_t item = chunk * all->in_chunk; item < end; item++) {
            find_item(g, item, &a, &b, &c);
            multiply_alone(g, all->kernel, a, b, c);
        }
        return;
    }
    find_item(g, chunk * all->in_chunk, &a, &b, &c);
    for (int64_t item = chunk * all->in_chunk; item < end; item++) {
        find_item(g, ct__min(item + 1, all->items - 1), &a_next, &b_next, &c_next);
        const ct__spans next[2] = {lines_of(a_next, a_next == a ? 0 : g->m, g->a_row, g->k, g->a_col, size),
                                   lines_of(b_next, b_next == b ? 0 : g->k, g->b_row, g->n, g->b_col, size)};
        multiply_and_ask(g, all->kernel, a, b, c, next);
        a = a_next, b = b_next, c = c_next;
    }
}

void ct__gemm_small(const ct_gemm *g) {
    const ct__kernel *kernel = ct__gemm_isa->kernels[g->a_type == CT_GEMM_F32 ? CT__KIND_F32 : CT__KIND_F64];
    if (g->batch_dims == 0) {
        multiply_alone(g, kernel, (const char *)g->a, (const char *)g->b, (char *)g->c);
        return;
    }
    batch all = {g, kernel, 1, 1, false};
    for (int d = 0; d < g->batch_dims; d++) all.items *= g->batch[d];
    /* A chunk is worth some microseconds, whatever the number of threads. */
    const int64_t work = g->m * g->n * g->k + 500;
    all.in_chunk = ct__min(all.items, 50000 / work + 1);
    if (all.items > 0) all.in_chunk = ct__ceil_div(all.items, ct__ceil_div(all.items, all.in_chunk)); /* evenly */
    all.far = g->m * g->n > 1024 && all.items * (g->m + g->n) * g->k > 1 << 18;
    if (all.items > 0) ct__parallel(ct__ceil_div(all.items, all.in_chunk), chunk_of_items, &all);
}
