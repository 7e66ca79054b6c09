/* Products of small blocks: the loops over register tiles. They are the same at every level; the tiles are the kernel's. */
#include "backends/cpu/gemm/block.h"

/* A tile's share: of its panel's list as many rows as it has itself. */
static inline __attribute__((always_inline)) void block_ask(const ct__kernel *kernel, const ct__block *p, int64_t panel,
                                                            int64_t i, int64_t rows, ct__tile *t) {
    t->ahead = NULL;
    if (panel >= p->lists) return;
    const ct__spans *all = &p->ahead[panel];
    const int64_t first = all->count * i / p->m, end = all->count * ct__min(i + rows, p->m) / p->m;
    const ct__spans share = {all->at + first * all->stride, end - first, all->stride, all->bytes};
    ct__prefetch_by(&share, kernel, t);
    if (i > 0 || (panel + 1) * ct__panel_width(kernel) < p->n) return;
    for (int64_t l = panel + 1; l < p->lists; l++) ct__prefetch_now(&p->ahead[l]);
}

void ct__block_multiply(const ct__kernel *kernel, const ct__block *p) {
    const int64_t size = ct__type_size(kernel->acc), width = ct__panel_width(kernel);
    if (p->m <= 0 || p->n <= 0) return;
    const int64_t rows = ct__even_rows(kernel, p->m);
    ct__tile t = {.a_row = p->a_row,
                  .a_step = p->a_step,
                  .b = p->b,
                  .b_step = p->b_step,
                  .c_row = p->c_row,
                  .k = p->k,
                  .runs = p->runs,
                  .n_runs = p->n_runs,
                  .accumulate = p->accumulate,
                  .far_c = p->far_c};
    for (int64_t j = 0; j < p->n; j += width, t.b = (const char *)t.b + p->panel) {
        const int64_t cols = ct__min(width, p->n - j), vecs = ct__ceil_div(cols, kernel->lanes);
        const ct__tile_fn *fn = kernel->block ? NULL : kernel->tiles[(vecs - 1) * 2 + (cols != vecs * kernel->lanes)];
        t.cols = (int)cols;
        for (int64_t i = 0; i < p->m; i += rows) {
            t.a = p->a + i * t.a_row;
            t.c = p->c + i * t.c_row + j * size;
            t.rows = (int)ct__min(rows, p->m - i);
            if (p->ahead) block_ask(kernel, p, j / width, i, rows, &t);
            if (fn) fn[t.rows - 1](&t);
            else kernel->block(&t);
        }
    }
}
