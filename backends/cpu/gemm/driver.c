/* Runs a plan: loops over stages, packs, hands chunks to the workers, calls tiles and epilogues.
 *
 * The blocking is that of GotoBLAS (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, ACM
 * TOMS 34(3), 2008) with the register tile as the only code per ISA, as in BLIS (Van Zee and van de Geijn, ACM TOMS
 * 41(3), 2015). From the outside in, with the names of those papers:
 *     stages of stage_cols columns and stage_rows rows    B and A packed by all workers together; their share of L3   (jc)
 *     chunks of chunk_rows by chunk_cols of C             the unit of parallel work, one worker each
 *     k blocks of `depth`                                 kc: a row panel of A, tile_rows by depth, near L1           (pc)
 *     column blocks of block_cols                         depth by block_cols of B stays in L2
 *     row panels of tile_rows                             mr                                                           (ir)
 *     panels of B, ct__panel_width columns                nr: depth by nr of B in L1 while a tile runs                 (jr)
 *     the tile (tile.h)                                   mr by nr sums in registers, over depth
 * What differs: an operand is packed only where that pays (ct__feed: read where it lies, packed by its worker,
 * packed by the first row panel while that computes, packed in stages, packed by the caller; many workers pack for
 * themselves what they need and keep it); the whole of a chunk's
 * k blocks is summed by one worker, in one order, whatever the number of threads; bias, residual, activation and
 * conversion happen to a row panel of C while it is in cache. */
#include "backends/cpu/gemm/run.h"

#include "core/threads.h"

static void pack_a_block(const ct__product *r, char *dst, int64_t row, int64_t rows, int64_t k0, int64_t depth) {
    const ct__plan *p = r->p;
    const ct__kernel *kernel = p->kernel;
    const int64_t size = ct__type_size(kernel->packed);
    if (p->g->pack_a) {
        p->g->pack_a(p->g->pack_a_ctx, r->batch, dst, p->a_ld, row, rows, k0, depth);
        if (depth % kernel->group)
            for (int64_t i = 0; i < rows; i++)
                __builtin_memset(dst + (i * p->a_ld + depth) * size, 0,
                                 (size_t)((kernel->group - depth % kernel->group) * size));
    } else {
        const ct__matrix src = {ct__element(&r->a, row, k0), r->a.type, r->a.row, r->a.col};
        ct__gemm_isa->pack_a(kernel, &src, dst, p->a_ld, p->a_panel_bytes, rows, depth);
    }
    if (!p->flip_a) return;
    const int64_t padded = ct__round_up(depth, kernel->group);
    if (p->a_by_k)
        for (int64_t i = 0; i < rows; i += p->tile_rows, dst += p->a_panel_bytes)
            ct__gemm_isa->flip(dst, p->a_ld * (padded / kernel->group));
    else
        for (int64_t i = 0; i < rows; i++) ct__gemm_isa->flip(dst + i * p->a_ld, padded);
}

static void pack_b_panels(const ct__product *r, char *dst, int32_t *offsets, int64_t k0, int64_t depth, int64_t col,
                          int64_t cols) {
    const ct__plan *p = r->p;
    const int64_t width = ct__panel_width(p->kernel), bytes = ct__panel_bytes(p->kernel, depth);
    if (!p->g->pack_b) {
        const ct__matrix src = {ct__element(&r->b, k0, col), r->b.type, r->b.row, r->b.col};
        ct__gemm_isa->pack_b(p->kernel, &src, dst, depth, cols);
        if (!offsets) return;
    }
    for (int64_t j = 0; j < cols; j += width, dst += bytes) {
        if (p->g->pack_b) p->g->pack_b(p->g->pack_b_ctx, r->batch, dst, k0, depth, col + j, ct__min(width, cols - j));
        if (offsets) ct__gemm_isa->offsets(p->kernel, dst, depth, offsets + j);
    }
}

enum {
    PANELS = 4,      /* packed together, at most: longer runs of B's rows than one panel is wide */
    LEAST_DEPTH = 96 /* of a part of panels that are too few for all workers */
};

/* Stage work: first A's row blocks, then B's panels, some at a time; where these are few, in parts of their depth. */
static void stage_chunk(void *ctx, int64_t chunk, int worker) {
    const ct__product *r = (const ct__product *)ctx;
    const ct__plan *p = r->p;
    (void)worker;
    if (chunk < r->a_blocks) {
        const int64_t block = chunk / r->a_parts, in_block = chunk % r->a_parts * r->a_rows;
        const int64_t row = r->i0 + block * p->chunk_rows + in_block,
                      end = ct__min(r->i0 + (block + 1) * p->chunk_rows, r->i1);
        const int64_t at = p->a_by_k ? in_block / p->tile_rows * p->a_panel_bytes
                                     : in_block * p->a_ld * ct__type_size(p->kernel->packed);
        if (in_block < p->chunk_rows && row < end)
            pack_a_block(r, r->packed_a + block * p->a_block_bytes + at, row, ct__min(r->a_rows, end - row), r->k0,
                         r->k1 - r->k0);
        return;
    }
    const int64_t width = ct__panel_width(p->kernel), deep = r->k1 - r->k0, bytes = ct__panel_bytes(p->kernel, deep);
    const int64_t block = chunk - r->a_blocks;
    if (r->b_parts == 1) {
        const int64_t panel = block * r->b_panels, col = r->j0 + panel * width;
        pack_b_panels(r, r->packed_b + panel * bytes, p->offset_b ? r->offsets + panel * width : NULL, r->k0, deep, col,
                      ct__min(r->b_panels * width, r->j1 - col));
        return;
    }
    const int64_t panel = block / r->b_parts, col = r->j0 + panel * width;
    const int64_t part = ct__round_up(ct__ceil_div(deep, r->b_parts), p->kernel->group), k = block % r->b_parts * part;
    if (k < deep)
        pack_b_panels(r, r->packed_b + panel * bytes + k * width * ct__type_size(p->kernel->packed), NULL, r->k0 + k,
                      ct__min(part, deep - k), col, ct__min(width, r->j1 - col));
}

/* How B's panels of the stage are packed: in blocks of several, of one, or in parts of one, so that there are some for every worker. */
static void cut_packing(ct__product *r) {
    const ct__plan *p = r->p;
    const int64_t panels = ct__ceil_div(r->j1 - r->j0, ct__panel_width(p->kernel)), workers = ct__threads();
    r->b_panels = PANELS;
    while (r->b_panels > 1 && ct__ceil_div(panels, r->b_panels) < 2 * workers) r->b_panels /= 2;
    r->b_parts = 1;
    r->b_blocks = ct__ceil_div(panels, r->b_panels);
    if (r->b_blocks >= workers || p->offset_b) return;
    r->b_parts = ct__min(ct__ceil_div(2 * workers, panels), ct__ceil_div(r->k1 - r->k0, LEAST_DEPTH));
    if (r->b_parts > 1) r->b_blocks = panels * r->b_parts;
    else r->b_parts = 1;
}

/* What a block of columns is multiplied from. */
typedef struct b_view {
    const char *data; /* of the first panel at the current k */
    int64_t panel, step;
    const int32_t *offsets;
    char *copy;       /* where the next row of tiles leaves packed panels */
    const char *bias; /* of the first column; NULL: none */
} b_view;

/* fresh: not packed yet, where workers pack it. */
static b_view view_b(const ct__product *r, char *private_b, int64_t col, int64_t cols, int64_t k0, int64_t depth,
                     bool fresh) {
    const ct__plan *p = r->p;
    const ct__kernel *kernel = p->kernel;
    const int64_t size = ct__type_size(kernel->packed), width = ct__panel_width(kernel);
    b_view v = {.step = width * kernel->group * size};
    const int64_t in_panel = k0 * width * size;
    if (!fresh) {
        v.panel = ct__panel_bytes(kernel, depth);
        v.data = private_b;
        return v;
    }
    switch (p->b_feed) {
    case CT__FEED_COPIED:
        v.copy = private_b;
        /* fall through */
    case CT__FEED_DIRECT:
        v.data = ct__element(&r->b, k0, col);
        v.panel = width * r->b.col * size;
        v.step = r->b.row * size;
        break;
    case CT__FEED_PACKED: {
        v.panel = ct__panel_bytes(kernel, p->k);
        v.data = (const char *)p->g->packed_b + col / width * v.panel + in_panel;
        const char *end = (const char *)p->g->packed_b + ct__ceil_div(p->n, width) * v.panel;
        if (p->offset_b && k0 == 0) v.offsets = (const int32_t *)(const void *)end + col;
        break;
    }
    case CT__FEED_STAGED:
        v.panel = ct__panel_bytes(kernel, r->k1 - r->k0);
        v.data = r->packed_b + (col - r->j0) / width * v.panel + (k0 - r->k0) * width * size;
        if (p->offset_b && k0 == r->k0) v.offsets = r->offsets + (col - r->j0);
        break;
    case CT__FEED_PRIVATE: {
        v.panel = ct__panel_bytes(kernel, depth);
        int32_t *offsets = NULL;
        if (p->offset_b)
            offsets = (int32_t *)(void *)(private_b + ct__ceil_div(p->block_cols, width) *
                                                          ct__panel_bytes(kernel, p->private_depth));
        pack_b_panels(r, private_b, offsets, k0, depth, col, cols);
        v.data = private_b;
        v.offsets = offsets;
        break;
    }
    }
    return v;
}

static void prefetch_part(ct__next *next, ct__tile *t) {
    enum { ROWS = 3 }; /* at a time, or little would be left of a tile's share */
    const int64_t most = (next->slowly ? t->k / CT__SLOWLY - t->rows : t->k) - CT__PREFETCHES_LESS;
    t->ahead = NULL;
    t->ahead_slowly = next->slowly;
    if (next->lines == 0 || next->rows == 0 || most < ROWS) return;
    const int64_t wide = ct__ceil_div(next->lines, ct__ceil_div(next->lines, ct__max(most / ROWS, 1)));
    if (next->row >= next->rows) next->line += wide, next->row = 0;
    if (next->line >= next->lines) return;
    const int64_t lines = ct__min(wide, next->lines - next->line), rows = most / lines;
    /* the last one prefetches some again rather than what lies behind the block */
    const int64_t row = next->row + rows > next->rows && rows < next->rows ? next->rows - rows : next->row;
    t->ahead = next->at + row * next->row_bytes + 64 * next->line;
    t->ahead_step = 64;
    t->ahead_span = lines;
    t->ahead_jump = next->row_bytes - 64 * lines;
    next->row += rows;
}

enum { LATER = 2 }; /* columns of B and rows of A that will be packed */

/* A row panel of A against a block of columns, for one k block. Tiles prefetch what comes next and, when they are done with that,
 * what comes later. */
static void multiply_row_panel(const ct__plan *p, ct__tile *t, const b_view *b, int64_t rows, int64_t cols,
                               ct__next *next, ct__next later[LATER]) {
    const ct__kernel *kernel = p->kernel;
    const int64_t width = ct__panel_width(kernel), acc = ct__type_size(kernel->acc);
    const ct__tile_fn full = kernel->block ? kernel->block : kernel->tiles[(kernel->vecs - 1) * 2][rows - 1];
    char *c = (char *)t->c;
    t->b_step = b->step;
    t->b = b->data;
    t->rows = (int)rows;
    for (int64_t j = 0; j < cols; j += width, t->b = (const char *)t->b + b->panel) {
        const int64_t have = ct__min(width, cols - j);
        t->c = c + j * acc;
        t->start = b->offsets ? b->offsets + j : NULL;
        t->bias = b->bias ? b->bias + j * acc : NULL;
        t->cols = (int)have;
        if (have == width || kernel->block) {
            prefetch_part(next, t);
            for (int i = 0; i < LATER && !t->ahead; i++)
                if (later[i].lines > 0) prefetch_part(&later[i], t);
            full(t);
        } else {
            const int64_t vecs = ct__ceil_div(have, kernel->lanes);
            kernel->tiles[(vecs - 1) * 2 + (have % kernel->lanes != 0)][rows - 1](t);
        }
    }
}

/* The same for the first row panel over a far-away B: full panels are packed by the tiles as they go, the
 * ragged one beforehand. Afterwards the view is that of the packed copy. */
static void multiply_and_copy(const ct__product *r, ct__tile *t, b_view *b, int64_t rows, int64_t cols, int64_t col,
                              int64_t k0, int64_t depth) {
    const ct__kernel *kernel = r->p->kernel;
    const int64_t width = ct__panel_width(kernel), acc = ct__type_size(kernel->acc);
    const int64_t panel = ct__panel_bytes(kernel, depth), whole = cols / width * width;
    char *c = (char *)t->c;
    t->b_step = b->step;
    t->start = NULL;
    t->cols = (int)width;
    for (int64_t j = 0; j < whole; j += width) {
        t->b = b->data + j / width * b->panel;
        t->copy = b->copy + j / width * panel;
        t->c = c + j * acc;
        t->bias = b->bias ? b->bias + j * acc : NULL;
        kernel->copying_tiles[rows - 1](t);
    }
    *b = (b_view){b->copy, panel, width * ct__type_size(kernel->packed), NULL, NULL, b->bias};
    if (whole == cols) return;
    const b_view rest = {b->data + whole / width * panel,       panel, b->step, NULL, NULL,
                         b->bias ? b->bias + whole * acc : NULL};
    pack_b_panels(r, (char *)b->data + whole / width * panel, NULL, k0, depth, col + whole, cols - whole);
    t->c = c + whole * acc;
    ct__next none[1 + LATER] = {0};
    multiply_row_panel(r->p, t, &rest, rows, cols - whole, none, none + 1);
}

static void prefetch_next(ct__product *r) {
    for (int x = 0; x < 2; x++) {
        const int64_t lines = ct__min(r->ahead[x].step, r->ahead[x].lines);
        if (lines == 0) continue;
        for (int64_t i = 0; i < lines; i++) __builtin_prefetch(r->ahead[x].at + 64 * i, 0, 2);
        r->ahead[x].at += 64 * lines;
        r->ahead[x].lines -= lines;
    }
}

enum { LONG_SUM = 192 }; /* k groups: tiles prefetch A on the way */

/* Rows of A that lie apart are too short for the hardware to see coming. */
static void prefetch_rows(const char *a, int64_t row, int64_t rows, int64_t bytes) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(a + i * row + at, 0, 2);
}

static void compute_chunk(void *ctx, int64_t chunk, int worker) {
    ct__product *r = (ct__product *)ctx; /* written only when one worker has it alone (prefetch_next) */
    const ct__plan *p = r->p;
    const ct__kernel *kernel = p->kernel;
    const int64_t size = ct__type_size(kernel->packed), acc = ct__type_size(kernel->acc);
    const int64_t width = ct__panel_width(kernel);
    const int64_t i0 = ct__chunk_row(r, chunk), j0 = ct__chunk_column(r, chunk);
    const int64_t i1 = ct__min(i0 + p->chunk_rows, r->i1), j1 = ct__min(j0 + p->chunk_cols, r->j1);

    char *c_panel = r->workers + worker * p->worker_bytes, *private_a = c_panel;
    const int64_t panel_ld = ct__round_up(p->chunk_cols, width);
    if (!p->c_direct && !p->sums_bytes) private_a += (p->sums ? p->chunk_rows : p->tile_rows) * panel_ld * acc;
    char *private_b = private_a + (p->a_feed == CT__FEED_PRIVATE ? p->a_block_bytes : 0);
    const int64_t sums_ld = ct__round_up(ct__min(p->n, p->stage_cols), width);
    const bool panels = p->a_by_k && p->a_feed != CT__FEED_DIRECT;
    const bool keeps = p->own_copies && p->b_feed != CT__FEED_DIRECT;
    int64_t *const kept = (int64_t *)(void *)(r->kept + worker * CT__KEPT_LINE),
                   columns = (r->k0 * p->items + r->batch) * p->n + j0;
    const bool fresh = !keeps || *kept != columns;
    if (kernel->enter) kernel->enter();

    for (int64_t k0 = r->k0;; k0 += p->depth) {
        const int64_t k1 = ct__min(k0 + p->depth, r->k1), depth = k1 - k0;
        const bool first = k0 == 0, last = k1 == p->k;
        ct__tile t = {.k = ct__ceil_div(depth, kernel->group)};
        const char *a = NULL;
        t.a_row = p->a_by_k ? kernel->group * size : p->a_ld * size;
        t.a_step = p->a_by_k ? p->a_ld * size : kernel->group * size;
        if (p->a_feed == CT__FEED_DIRECT) {
            a = ct__element(&r->a, i0, k0);
            t.a_row = r->a.row * size, t.a_step = r->a.col * kernel->group * size;
        } else if (p->a_feed == CT__FEED_STAGED) {
            a = r->packed_a + (i0 - r->i0) / p->chunk_rows * p->a_block_bytes + (k0 - r->k0) / kernel->group * t.a_step;
        } else {
            pack_a_block(r, private_a, i0, i1 - i0, k0, depth);
            a = private_a;
        }
        t.scale = p->g->scale && kernel->acc <= CT_GEMM_F64;
        t.alpha = p->g->alpha;
        t.far_c = p->c_direct || p->sums;
        t.accumulate = !first || (p->g->accumulate && p->c_direct);

        for (int64_t j = j0; j < j1; j += p->block_cols) {
            const int64_t cols = ct__min(p->block_cols, j1 - j);
            b_view b = view_b(r, private_b + (keeps ? (k0 - r->k0) * panel_ld * size : 0), j, cols, k0, depth, fresh);
            ct__next next = ct__block_after(r, chunk, j, j1);
            ct__next later[LATER] = {ct__columns_after(r, chunk, j, j1, k0, k1, fresh),
                                     ct__rows_after(r, chunk, k0, k1)};
            b.bias = last && p->tile_bias ? (p->swapped ? r->finish.bias_row : r->finish.bias_col) + j * acc : NULL;
            for (int64_t i = i0; i < i1; i += p->tile_rows) {
                const int64_t rows = ct__min(p->tile_rows, i1 - i);
                char *out;
                int64_t ld;
                if (p->c_direct) {
                    ld = p->c_row;
                    out = r->c + (i * ld + j) * acc;
                } else if (p->sums && p->own_copies) {
                    ld = panel_ld;
                    out = c_panel + ((i - i0) * ld + j - j0) * acc;
                } else if (p->sums) {
                    ld = sums_ld;
                    out = r->sums + ((i - r->i0) * ld + j - r->j0) * acc;
                } else {
                    ld = panel_ld;
                    out = c_panel;
                }
                t.a = a + (panels ? (i - i0) / p->tile_rows * p->a_panel_bytes : (i - i0) * t.a_row);
                t.c = out;
                t.c_row = ld * acc;
                ct__next next_a = ct__next_panel(r, &t, a, i, i0, i1, k0, k1, j + p->block_cols < j1);
                next_a.slowly = kernel->prefetches && t.k >= LONG_SUM && !next.lines && !b.copy && !p->a_by_lines;
                if (!next_a.slowly && !p->a_by_lines && !panels)
                    prefetch_rows(next_a.at, t.a_row, next_a.rows, depth * size);
                if (r->ahead[0].lines | r->ahead[1].lines) prefetch_next(r);
                if (b.copy) multiply_and_copy(r, &t, &b, rows, cols, j, k0, depth);
                else multiply_row_panel(p, &t, &b, rows, cols, next_a.slowly || p->a_by_lines ? &next_a : &next, later);
                if (last && p->finish) ct__gemm_isa->finish(&r->finish, out, ld, i, rows, j, cols);
            }
        }
        if (k1 == r->k1) break;
    }
    if (keeps) *kept = columns;
    if (kernel->leave) kernel->leave();
}

static void open_run(ct__product *r, const ct__plan *p, int64_t item, char *scratch) {
    const ct_gemm *g = p->g;
    int64_t a = 0, b = 0, c = 0, bias = 0, residual = 0, rest = item;
    for (int d = g->batch_dims - 1; d >= 0; d--) {
        const int64_t at = rest % g->batch[d];
        rest /= g->batch[d];
        a += at * (p->swapped ? g->b_batch : g->a_batch)[d];
        b += at * (p->swapped ? g->a_batch : g->b_batch)[d];
        c += at * g->c_batch[d];
        bias += at * g->bias_batch[d];
        residual += at * g->residual_batch[d];
    }
    const int64_t c_size = ct__type_size(g->c_type), bias_size = ct__type_size(g->bias_type);
    r->p = p;
    r->batch = item;
    r->a = p->a, r->b = p->b;
    if (r->a.data) r->a.data = (const char *)p->a.data + a * ct__type_size(p->a.type);
    if (r->b.data) r->b.data = (const char *)p->b.data + b * ct__type_size(p->b.type);
    r->c = g->c ? (char *)g->c + c * c_size : NULL;
    r->finish = (ct__finish){
        .g = g,
        .acc = p->kernel->acc,
        .swapped = p->swapped,
        .in_place = p->c_direct,
        .batch = item,
        .c = r->c,
        .bias_row = g->bias_row ? (const char *)g->bias_row + bias * bias_size : NULL,
        .bias_col = g->bias_col ? (const char *)g->bias_col + bias * bias_size : NULL,
        .residual = g->residual ? (const char *)g->residual + residual * c_size : NULL,
    };
    for (int x = 0; x < 2; x++) r->ahead[x].at = NULL, r->ahead[x].lines = r->ahead[x].step = 0;
    r->packed_a = scratch;
    r->packed_b = r->packed_a + p->a_bytes;
    r->offsets = (int32_t *)(void *)(r->packed_b + p->b_bytes);
    r->sums = r->packed_b + p->b_bytes + p->offsets_bytes;
    r->kept = r->sums + p->sums_bytes;
    r->workers = r->kept + p->kept_bytes;
    r->next_b = NULL;
}

/* A chunk of one of all products. */
static void joint_chunk(void *ctx, int64_t chunk, int worker) {
    const ct__product *stage = (const ct__product *)ctx;
    const ct__plan *p = stage->p;
    const int64_t chunks = stage->row_chunks * stage->col_chunks, item = chunk / chunks;
    ct__product r = *stage, next;
    open_run(&r, p, item, stage->packed_a);
    if (item + 1 < p->items) {
        open_run(&next, p, item + 1, stage->packed_a);
        r.next_b = next.b.data;
    }
    compute_chunk(&r, chunk % chunks, worker);
}

static void each_chunk(bool alone, int64_t chunks, ct_task fn, ct__product *r) {
    if (!alone && chunks > 1) {
        ct__parallel(chunks, fn, r);
        return;
    }
    for (int64_t chunk = 0; chunk < chunks; chunk++) fn(r, chunk, 0);
}

static void run_product(ct__product *r, bool alone) {
    const ct__plan *p = r->p;
    for (int64_t at = 0; at < p->kept_bytes; at += CT__KEPT_LINE) *(int64_t *)(void *)(r->kept + at) = -1;
    for (r->j0 = 0; r->j0 < p->n; r->j0 += p->stage_cols) {
        r->j1 = ct__min(r->j0 + p->stage_cols, p->n);
        for (r->i0 = 0; r->i0 < p->m; r->i0 += p->stage_rows) {
            r->i1 = ct__min(r->i0 + p->stage_rows, p->m);
            for (r->k0 = 0;; r->k0 += p->stage_depth) {
                r->k1 = ct__min(r->k0 + p->stage_depth, p->k);
                r->row_chunks = ct__ceil_div(r->i1 - r->i0, p->chunk_rows);
                r->col_chunks = ct__ceil_div(r->j1 - r->j0, p->chunk_cols);
                r->a_blocks = 0;
                if (p->a_feed == CT__FEED_STAGED) { /* some for every worker */
                    const int64_t step = p->a_by_k ? p->tile_rows : 1;
                    r->a_parts = ct__min(ct__ceil_div(ct__threads(), r->row_chunks), ct__ceil_div(p->chunk_rows, step));
                    r->a_rows = ct__round_up(ct__ceil_div(p->chunk_rows, r->a_parts), step);
                    r->a_blocks = r->row_chunks * r->a_parts;
                }
                /* B is still there when all of k is one stage. */
                const bool fresh = r->i0 == 0 || p->k > p->stage_depth;
                r->b_blocks = 0;
                if (p->b_feed == CT__FEED_STAGED && fresh) cut_packing(r);
                each_chunk(alone, r->a_blocks + r->b_blocks, stage_chunk, r);
                if (p->joint) each_chunk(alone, p->items * r->row_chunks * r->col_chunks, joint_chunk, r);
                else each_chunk(alone, r->row_chunks * r->col_chunks, compute_chunk, r);
                if (r->k1 == p->k) break;
            }
        }
    }
}

typedef struct batch_run {
    const ct__plan *p;
    char *scratch;
} batch_run;

/* Matrices that lie in one run; row panels are steps of equal size. */
static void look_ahead(ct__product *r, const ct__product *next) {
    const ct__plan *p = r->p;
    const int64_t row_panels = ct__ceil_div(p->m, p->tile_rows);
    const ct__matrix *now[2] = {&r->a, &r->b}, *then[2] = {&next->a, &next->b};
    const int64_t count[2] = {p->m * p->k, p->k * p->n};
    for (int x = 0; x < 2; x++) {
        const int64_t bytes = count[x] * ct__type_size(now[x]->type);
        const bool dense = now[x]->row > 0 && now[x]->col > 0 && (now[x]->row == 1 || now[x]->col == 1);
        if (!dense || bytes > 1 << 17 || now[x]->data == then[x]->data) continue;
        r->ahead[x].at = then[x]->data;
        r->ahead[x].lines = bytes / 64;
        r->ahead[x].step = ct__ceil_div(bytes / 64, row_panels);
    }
}

static void item_chunk(void *ctx, int64_t chunk, int worker) {
    const batch_run *all = (const batch_run *)ctx;
    const ct__plan *p = all->p;
    const int64_t bytes = p->a_bytes + p->b_bytes + p->offsets_bytes + p->sums_bytes + p->worker_bytes;
    const int64_t end = ct__min((chunk + 1) * p->items_in_chunk, p->items);
    ct__product r, next;
    open_run(&r, p, chunk * p->items_in_chunk, all->scratch + worker * bytes);
    for (int64_t item = chunk * p->items_in_chunk; item < end; item++) {
        if (item + 1 < p->items) {
            open_run(&next, p, item + 1, all->scratch + worker * bytes);
            look_ahead(&r, &next);
        }
        run_product(&r, true);
        r = next;
    }
}

void ct__gemm_run(const ct__plan *p, void *scratch) {
    if (p->items == 0) return;
    if (p->items_apart) {
        batch_run all = {p, (char *)scratch};
        ct__parallel(ct__ceil_div(p->items, p->items_in_chunk), item_chunk, &all);
        return;
    }
    /* Below some microseconds of work a fork costs more than it brings. */
    const bool alone = 2.0 * (double)p->m * (double)p->n * (double)p->k < 5e5;
    for (int64_t item = 0; item < (p->joint ? 1 : p->items); item++) {
        ct__product r;
        open_run(&r, p, item, (char *)scratch);
        run_product(&r, alone);
    }
}
