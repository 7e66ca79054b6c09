/* Forward convolution and input gradient on the register tiles: rows of a tile are pixels, columns are result channels. The
 * weight is packed once for all, [group][panel][tap][channel][panel's columns]; the source comes in blocks (implicit.h). */
#include <string.h>

#include "backends/cpu/gemm/caches.h"
#include "core/threads.h"
#include "ops/conv/cpu/implicit.h"

enum {
    LINE_WEIGHTS = 128 << 10, /* bytes of weight to go over with every line of the result, at most */
    FEW_LINES = 8             /* of the next block, which are prefetched at once */
};

typedef struct pass {
    const ct_conv_problem *p;
    ct__source source;
    const ct__kernel *kernel;
    ct__sweep sweep;

    char *result;
    ct_image_strides to;
    int64_t channels;   /* of the result, one group */
    const char *weight; /* [group][source channel][result channel][tap], strides: */
    int64_t w_group, w_from, w_to, w_k[3];

    int64_t panels, panel_groups, per_group; /* panels, and how many chunks share a block */
    int64_t panel_bytes;                     /* all taps of a panel */
    char *packed, *workers;
    int64_t worker_bytes, sums_bytes, runs_bytes;
    bool panels_kept; /* chunks of the same panels follow one another, not those of the same block */
    bool direct;      /* tiles write the result itself */
    bool lines_first; /* all panels of a line, then the next: the result is what takes the time */
    ct_gemm finish;
    int64_t chunks;
} pass;

static int64_t *tables_of(void *scratch) { return scratch; }

/* ---- Set-up ---- */

static void set_tensors(pass *s, const ct_conv_problem *p) {
    const ct_conv_geometry *g = &p->geometry;
    const bool transposed = p->kind == CT_CONV_INPUT_GRAD;
    const int64_t ins = g->in_channels / g->groups, outs = g->out_channels / g->groups;
    s->source.data = transposed ? p->y : p->x;
    s->source.strides = transposed ? g->y : g->x;
    s->source.channels = transposed ? outs : ins;
    s->result = transposed ? p->x : p->y;
    s->to = transposed ? g->x : g->y;
    s->channels = transposed ? ins : outs;
    s->weight = p->w;
    s->w_group = outs * g->w.o;
    s->w_from = transposed ? g->w.o : g->w.i;
    s->w_to = transposed ? g->w.i : g->w.o;
    for (int a = 0; a < 3; a++) s->w_k[a] = g->w.k[a];
}

/* Some for every thread, of many four, since some may be slower than others. */
static int64_t least_chunks(void) {
    return ct__threads() > CT__FEW_THREADS ? ct__max(CT__LEAST_CHUNKS, 4 * ct__threads()) : CT__LEAST_CHUNKS;
}

static void set_source(pass *s, int64_t *tables) {
    const ct_conv_geometry *g = &s->p->geometry;
    const bool transposed = s->p->kind == CT_CONV_INPUT_GRAD;
    ct__source *from = &s->source;
    for (int a = 0; a < 3; a++) {
        ct__taps *t = &from->axis[a];
        ct__taps_make(t, &g->window, a, transposed, &tables);
        if (t->phases == 1 && t->count == 1 && t->offset[0] == 0 && t->step > 1) { /* only every step-th is looked at */
            from->strides.s[a] *= t->step;
            t->source = ct__ceil_div(t->source, t->step);
            t->step = 1;
        }
    }
    from->kernel = s->kernel;
    from->last = ct__source_channels_last(from);
    from->patches = ct__source_patches(from);
    ct__source_cut(from, CT__BLOCK_BYTES, g->batch * g->groups, least_chunks(), 0);
    const ct__taps *columns = &from->axis[2];
    s->sweep = OVER_CHANNELS;
    if (from->patches || (from->last && columns->spacing == 1)) s->sweep = OVER_ROW_CHANNELS;
    if (!from->last && s->kernel->group == 1 && from->channels < columns->count / columns->phases) s->sweep = OVER_TAPS;
}

static void set_finish(pass *s, ct_gemm_activate activate, ct_gemm_type type) {
    const ct_conv_problem *p = s->p;
    s->finish = (ct_gemm){.a_type = type, .b_type = type, .c_type = type, .bias_type = type, .activate = activate};
    s->finish.c_row = s->to.s[2];
    s->finish.c_col = s->to.c;
    s->finish.residual_row = p->residual_strides.s[2];
    s->finish.residual_col = p->residual_strides.c;
    /* by the problem, not by activate: how much scratch is needed is asked without it */
    s->direct = s->kernel->acc == type && s->to.c == 1 && !p->bias && !p->residual && p->activation == CT_ACT_NONE;
}

/* Everything but the data; tables is room for ct__tables_bytes. Returns the scratch that is needed after the tables. */
static int64_t plan(pass *s, const ct_conv_problem *p, ct_gemm_activate activate, int64_t *tables) {
    ct_gemm_type type = CT_GEMM_F32;
    ct__conv_gemm_type(p->dtype, &type);
    ct__gemm_ready();
    *s = (pass){.p = p};
    s->kernel = ct__gemm_kernel(type, type, type);
    s->source.type = type;
    set_tensors(s, p);
    if (s->source.channels >= 16)
        s->kernel = ct__gemm_larger_kernel(s->kernel, ct__window_pixels_out(&p->geometry.window), s->channels,
                                           s->source.channels);
    set_source(s, tables);
    set_finish(s, activate, type);
    const ct__source *from = &s->source;
    const int64_t width = ct__panel_width(s->kernel), size = ct__type_size(s->kernel->packed),
                  acc = ct__type_size(s->kernel->acc), groups = p->geometry.groups;
    const int64_t taps = from->axis[0].count * from->axis[1].count * from->axis[2].count;
    s->panels = ct__ceil_div(s->channels, width);
    s->panel_bytes = ct__round_up(from->axis[0].count * from->axis[1].count * from->row_depth * width * size, 64);
    const int64_t blocks = p->geometry.batch * groups * from->axis[0].positions * from->line_blocks * from->segments;
    /* Many threads multiply by as many panels as stay in the L2 of each: the whole weight, which others have packed, would come from L3
     * again for every block. */
    const ct_caches *caches = ct__caches();
    const int64_t kept = ct__threads() > CT__FEW_THREADS ? caches->l2_ways * caches->l2_way / 2 : INT64_MAX;
    s->panels_kept = s->panels * s->panel_bytes > kept;
    const int64_t wanted = ct__max(ct__ceil_div(least_chunks(), ct__max(blocks, 1)),
                                   s->panels_kept ? ct__ceil_div(s->panels * s->panel_bytes, kept) : 1);
    s->panel_groups = ct__max(ct__min(s->panels, wanted), 1);
    s->per_group = ct__ceil_div(s->panels, s->panel_groups);
    s->panel_groups = ct__ceil_div(s->panels, s->per_group);
    s->chunks = blocks * s->panel_groups;
    s->lines_first = s->direct && s->kernel->prefetches && s->panels > 1 && s->panel_groups == 1 &&
                     s->to.s[2] == s->channels && s->channels > taps * from->padded && from->axis[2].by == 1 &&
                     s->panels * s->panel_bytes <= LINE_WEIGHTS;
    /* A worker has the source block, finished sums of a line, and the runs of a tile. */
    const int64_t runs = taps * (s->sweep == OVER_TAPS ? from->channels : 1);
    s->runs_bytes = ct__round_up(runs * (int64_t)sizeof(ct__run), 64);
    s->sums_bytes = s->direct ? 0 : ct__round_up(from->segment * from->axis[2].by * width * acc, 64);
    s->worker_bytes = 64 + from->bytes + s->sums_bytes + s->runs_bytes;
    /* bias, where it is not contiguous, after the packed weight */
    const int64_t bias = p->bias ? ct__round_up(s->channels * groups * ct__type_size(type), 64) : 0;
    return groups * s->panels * s->panel_bytes + bias + s->worker_bytes * ct__threads();
}

/* ---- The weight ---- */

static int64_t phase_of(const ct__taps *t, int64_t index) {
    int64_t r = 0;
    while (t->first[r + 1] <= index) r++;
    return r;
}

/* The taps of (pd, ph, pw) begin after this many others. */
static int64_t combination(const ct__source *s, int64_t pd, int64_t ph, int64_t pw) {
    const ct__taps *d = &s->axis[0], *h = &s->axis[1], *w = &s->axis[2];
    return d->first[pd] * h->count * w->count +
           ct__taps_of(d, pd) * (h->first[ph] * w->count + ct__taps_of(h, ph) * w->first[pw]);
}

/* A row of the kernel in the order of patches; what fills up the last group is zero. */
static void pack_patches(const pass *s, const char *weight, char *dst, int64_t cols) {
    const ct__source *from = &s->source;
    const int64_t taps = from->axis[2].count, channels = from->channels, group = s->kernel->group,
                  size = ct__type_size(from->type), width = ct__panel_width(s->kernel);
    for (int64_t p = 0; p < from->row_depth; p++) {
        const int64_t tap = from->last ? p / channels : p % taps, c = from->last ? p % channels : p / taps;
        const char *src = weight + (from->axis[2].k[tap < taps ? tap : 0] * s->w_k[2] + c * s->w_from) * size;
        char *to = dst + (p / group * width * group + p % group) * size;
        for (int64_t j = 0; j < cols; j++, to += group * size, src += s->w_to * size)
            if (p < taps * channels) memcpy(to, src, (size_t)size);
            else memset(to, 0, (size_t)size);
    }
}

/* The taps of one row of the kernel, in one panel. */
static void pack_weight(void *ctx, int64_t chunk, int worker) {
    const pass *s = ctx;
    const ct__source *from = &s->source;
    const ct__taps *d = &from->axis[0], *h = &from->axis[1], *w = &from->axis[2];
    const ct__kernel *kernel = s->kernel;
    (void)worker;
    const int64_t hi = chunk % h->count, di = chunk / h->count % d->count, at = chunk / h->count / d->count;
    const int64_t panel = at % s->panels, group = at / s->panels;
    const int64_t pd = phase_of(d, di), ph = phase_of(h, hi), td = di - d->first[pd], th = hi - h->first[ph];
    const int64_t width = ct__panel_width(kernel), size = ct__type_size(from->type),
                  row = width * ct__type_size(kernel->packed), cols = ct__min(width, s->channels - panel * width);
    const char *weight =
        s->weight + (group * s->w_group + panel * width * s->w_to + d->k[di] * s->w_k[0] + h->k[hi] * s->w_k[1]) * size;
    char *to = s->packed + (group * s->panels + panel) * s->panel_bytes;
    if (from->patches) {
        pack_patches(s, weight, to + (di * h->count + hi) * from->row_depth * row, cols);
        return;
    }
    for (int64_t pw = 0; pw < w->phases; pw++) {
        const int64_t taps = ct__taps_of(w, pw), first = w->first[pw];
        char *dst = to + (combination(from, pd, ph, pw) + (td * ct__taps_of(h, ph) + th) * taps) * from->padded * row;
        if (s->sweep == OVER_TAPS) {
            const int64_t step = taps > 1 ? (w->k[first + 1] - w->k[first]) * s->w_k[2] : 0;
            for (int64_t c = 0; c < from->channels && taps; c++) {
                const ct__matrix src = {weight + (w->k[first] * s->w_k[2] + c * s->w_from) * size, from->type, step,
                                        s->w_to};
                ct__gemm_isa->pack_b(kernel, &src, dst + c * taps * row, taps, cols);
            }
            continue;
        }
        for (int64_t t = 0; t < taps; t++) {
            const ct__matrix src = {weight + w->k[first + t] * s->w_k[2] * size, from->type, s->w_from, s->w_to};
            ct__gemm_isa->pack_b(kernel, &src, dst + t * from->padded * row, from->channels, cols);
        }
    }
}

/* ---- The product ---- */

/* The runs of a line (q, phase in axes 0 and 1; h is where the block begins) for one phase of columns. Taps that look above
 * or below the source are left out. */
static int64_t list_runs(const pass *s, ct__run *runs, int64_t d, int64_t z, int64_t h, int64_t pw) {
    const ct__source *from = &s->source;
    const ct__taps *slices = &from->axis[0], *rows = &from->axis[1], *columns = &from->axis[2];
    const int64_t pd = d % slices->by, qd = d / slices->by, ph = z % rows->by, qh = z / rows->by;
    const int64_t nh = ct__taps_of(rows, ph), nw = ct__taps_of(columns, pw), first = columns->first[pw];
    const int64_t unit = from->unit, row_bytes = from->row_bytes,
                  b_row = ct__panel_width(s->kernel) * ct__type_size(s->kernel->packed);
    int64_t n = 0;
    if (nw == 0) return 0;
    for (int64_t td = 0; td < ct__taps_of(slices, pd); td++) {
        const int64_t slice = qd * slices->step + slices->offset[slices->first[pd] + td];
        if (slice < 0 || slice >= slices->source) continue;
        for (int64_t th = 0; th < nh; th++) {
            const int64_t offset = rows->offset[rows->first[ph] + th], row = qh * rows->step + offset;
            if (row < 0 || row >= rows->source) continue;
            const int64_t a = td * from->slice_bytes + ((qh - h) * rows->step + offset - rows->low) * row_bytes;
            const int64_t b =
                from->patches
                    ? ((slices->first[pd] + td) * rows->count + rows->first[ph] + th) * from->row_depth * b_row
                    : (combination(from, pd, ph, pw) + (td * nh + th) * nw) * from->padded * b_row;
            switch (s->sweep) {
            case OVER_ROW_CHANNELS: runs[n++] = (ct__run){a + (columns->offset[first] - columns->low) * unit, b}; break;
            case OVER_CHANNELS:
                for (int64_t t = 0; t < nw; t++)
                    runs[n++] =
                        (ct__run){a + (columns->offset[first + t] - columns->low) * unit, b + t * from->padded * b_row};
                break;
            case OVER_TAPS:
                for (int64_t c = 0; c < from->channels; c++)
                    runs[n++] = (ct__run){a + (columns->offset[first] - columns->low) * unit + c * from->channel_bytes,
                                          b + c * nw * b_row};
                break;
            }
        }
    }
    return n;
}

/* A place in the work: image, group, position of axis 0, outputs of axes 1 and 2 where the block begins. */
typedef struct place {
    int64_t n, group, d, h, w;
    int64_t first, end; /* lines of the result */
    ct__ahead ahead;    /* the block after this one, */
    int64_t lines;      /* so many lines of it with each tile */
} place;

/* The part of the result that a tile's sums will go to, prefetched while they are formed, where its lines lie apart. Always
 * inlined: compilers take a function that only prefetches for one without effect, and drop its calls. */
static inline __attribute__((always_inline)) void prefetch_result(const pass *s, char *to, int64_t positions,
                                                                  int64_t columns) {
    const int64_t size = ct__type_size(s->finish.c_type), row = s->to.s[2] * size, col = s->to.c * size;
    if (s->to.c == 1)
        for (int64_t i = 0; i < positions; i++) __builtin_prefetch(to + i * row, 1, 2);
    if (s->to.c == 1 || col % 4096 == 0) return; /* lines of channels, or all on one set of the cache */
    for (int64_t j = 0; j < columns; j++)
        for (int64_t at = 0; at < positions * row; at += 64) __builtin_prefetch(to + j * col + at, 1, 2);
}

/* The same evenly during a tile's sum, a line of each column, if its runs are short and the sum is long enough: all of them at once would keep
 * the tile's own loads waiting. The tile prefetches a line again until it is time for the next. */
static bool spread_result(const pass *s, ct__tile *t, const char *to, int64_t positions) {
    const int64_t size = ct__type_size(s->finish.c_type), col = s->to.c * size, steps = t->k * t->n_runs;
    int64_t times = 1;
    while (times < 64 && steps >= 2 * times * t->cols) times *= 2;
    if (!s->kernel->prefetches || t->cols != ct__panel_width(s->kernel) || t->k >= 4 * s->kernel->rows) return false;
    if (s->to.c == 1 || col % 4096 == 0 || positions * s->to.s[2] * size > 64) return false;
    if (steps < t->cols || 2 * steps > 3 * times * t->cols) return false; /* or it would go far beyond the columns */
    t->ahead = to;
    t->ahead_step = 64 / times;
    t->ahead_span = times;
    t->ahead_jump = col - 64;
    return true;
}

/* One line of the result, `outputs` of each phase from at->w on, for the columns of one panel. */
static void compute_line(const pass *s, place *at, const ct__local *local, char *sums, ct__run *runs, int64_t z,
                         int64_t panel) {
    const ct__source *from = &s->source;
    const ct__taps *columns = &from->axis[2];
    const ct__kernel *kernel = s->kernel;
    const int64_t width = ct__panel_width(kernel), acc = ct__type_size(kernel->acc), groups = kernel->group,
                  size = ct__type_size(s->finish.c_type);
    const int64_t have = ct__min(width, s->channels - panel * width), vecs = ct__ceil_div(have, kernel->lanes);
    const ct__tile_fn *tiles = kernel->block ? NULL : kernel->tiles[(vecs - 1) * 2 + (have % kernel->lanes != 0)];
    const int64_t unit = from->unit, z0 = at->w * columns->by;
    const int64_t positions = ct__min(from->segment * columns->by, columns->positions - z0);
    const int64_t line = at->n * s->to.n + at->group * s->channels * s->to.c + at->d * s->to.s[0] + z * s->to.s[1];
    char *c = s->direct ? s->result + (line + z0 * s->to.s[2] + panel * width) * size : sums;
    const int64_t c_position = s->direct ? s->to.s[2] * acc : width * acc;
    const char *b = s->packed + (at->group * s->panels + panel) * s->panel_bytes;
    ct__tile t = {.b = b, .b_step = width * groups * ct__type_size(kernel->packed), .cols = (int)have, .runs = runs};
    t.a_row = (from->patches ? 1 : columns->step) * unit;
    t.c_row = columns->by * c_position;
    t.far_c = s->direct && !(s->lines_first && z > at->first);
    char *result = s->result + (line + z0 * s->to.s[2] + panel * width * s->to.c) * size;
    for (int64_t pw = 0; pw < columns->phases && pw < positions; pw++) {
        const int64_t outputs = (positions - pw + columns->by - 1) / columns->by, taps = ct__taps_of(columns, pw);
        t.n_runs = list_runs(s, runs, at->d, z, at->h, pw);
        t.a_step = s->sweep == OVER_TAPS ? columns->spacing * unit : from->channel_bytes;
        t.k = (s->sweep == OVER_TAPS           ? taps
               : from->patches                 ? from->row_depth
               : s->sweep == OVER_ROW_CHANNELS ? taps * from->padded
                                               : from->padded) /
              groups;
        if (t.n_runs == 0) t.k = 0; /* no window comes here */
        const int64_t rows = ct__even_rows(kernel, outputs);
        for (int64_t q = 0; q < outputs; q += rows) {
            t.a = local->data + q * t.a_row;
            t.c = c + (pw + q * columns->by) * c_position;
            const int64_t high = ct__min(rows, outputs - q);
            char *const to = result + q * columns->by * s->to.s[2] * size;
            if (s->lines_first && z + 1 < at->end) { /* the share of this tile in the next line */
                const int64_t bytes = high * s->channels * size / s->panels;
                t.ahead = s->result + (line + s->to.s[1] + (z0 + q) * s->channels) * size + panel * bytes;
                t.ahead_step = t.k ? bytes / (t.k * t.n_runs) : 0;
                ct__ahead_lines(&at->ahead, at->lines);
            } else if (!s->direct && pw == 0 && at->lines <= FEW_LINES &&
                       spread_result(s, &t, to, high * columns->by)) {
                ct__ahead_lines(&at->ahead, at->lines);
            } else {
                ct__ahead_tile(&at->ahead, at->lines, kernel, &t);
                if (!s->direct && pw == 0) prefetch_result(s, to, high * columns->by, have);
            }
            t.rows = (int)high;
            (tiles ? tiles[high - 1] : kernel->block)(&t);
        }
    }
    if (s->direct) return;
    const ct_conv_problem *p = s->p;
    const int64_t channel = at->group * s->channels;
    const ct_image_strides *r = &p->residual_strides;
    const ct__finish finish = {
        .g = &s->finish,
        .acc = kernel->acc,
        .batch = at->n,
        .c = s->result + (line + z0 * s->to.s[2]) * size,
        .bias_col = s->finish.bias_col ? (const char *)s->finish.bias_col + channel * size : NULL,
        .residual = p->residual
                        ? (const char *)p->residual +
                              (at->n * r->n + channel * r->c + at->d * r->s[0] + z * r->s[1] + z0 * r->s[2]) * size
                        : NULL,
    };
    ct__gemm_isa->finish(&finish, sums, width, 0, positions, panel * width, have);
}

/* Which block and which group of panels a chunk is of. */
static int64_t block_of(const pass *s, int64_t chunk) {
    return s->panels_kept ? chunk % (s->chunks / s->panel_groups) : chunk / s->panel_groups;
}
static int64_t share_of(const pass *s, int64_t chunk) {
    return s->panels_kept ? chunk / (s->chunks / s->panel_groups) : chunk % s->panel_groups;
}

static place place_of(const pass *s, int64_t block) {
    const ct__source *from = &s->source;
    place at = {0};
    at.w = block % from->segments * from->segment, block /= from->segments;
    at.h = block % from->line_blocks * from->lines, block /= from->line_blocks;
    at.d = block % from->axis[0].positions, block /= from->axis[0].positions;
    at.group = block % s->p->geometry.groups;
    at.n = block / s->p->geometry.groups;
    return at;
}

static void compute_block(void *ctx, int64_t chunk, int worker) {
    const pass *s = ctx;
    const ct__source *from = &s->source;
    const ct__taps *rows = &from->axis[1];
    const int64_t share = share_of(s, chunk), later = block_of(s, chunk) + 1;
    place at = place_of(s, block_of(s, chunk));
    ct__local *local = (ct__local *)(void *)(s->workers + worker * s->worker_bytes);
    char *sums = local->buffer + from->bytes;
    ct__run *runs = (ct__run *)(void *)(sums + s->sums_bytes);
    ct__source_load(from, local, at.n, at.group, at.d, at.h, at.w);
    const int64_t panel0 = share * s->per_group, panels = ct__min(s->per_group, s->panels - panel0);
    at.first = at.h * rows->by, at.end = ct__min((at.h + from->lines) * rows->by, rows->positions);
    const int64_t lines = at.end - at.first;
    if (later < s->chunks / s->panel_groups) { /* what this worker will probably have next */
        const place next = place_of(s, later);
        const ct__taps *columns = &from->axis[2];
        const int64_t outputs = ct__min(from->segment, ct__taps_outputs(columns, 0) - at.w);
        const int64_t tiles = lines * columns->phases * ct__ceil_div(outputs, s->kernel->rows) * panels;
        ct__source_ahead(from, &at.ahead, next.n, next.group, next.d, next.h, next.w);
        at.lines = ct__ceil_div(ct__ahead_total(&at.ahead), tiles);
    }
    if (s->kernel->enter) s->kernel->enter();
    for (int64_t i = 0; i < panels * lines; i++) {
        const int64_t panel = s->lines_first ? i % panels : i / lines, line = s->lines_first ? i / panels : i % lines;
        compute_line(s, &at, local, sums, runs, at.first + line, panel0 + panel);
    }
    if (s->kernel->leave) s->kernel->leave();
}

size_t ct__conv_implicit_scratch(const ct_conv_problem *p) {
    /* Large tables are possible, if unlikely; the common ones fit here. */
    int64_t numbers[4096];
    const int64_t bytes = ct__tables_bytes(p);
    if (bytes > (int64_t)sizeof numbers) return 0;
    pass s;
    return (size_t)(bytes + plan(&s, p, NULL, numbers));
}

bool ct__conv_implicit(const ct_conv_problem *p, ct_gemm_activate activate, void *scratch) {
    pass s;
    char *at = scratch;
    plan(&s, p, activate, tables_of(scratch));
    at += ct__tables_bytes(p);
    s.packed = at;
    at += p->geometry.groups * s.panels * s.panel_bytes;
    if (p->bias) {
        const int64_t size = ct__type_size(s.finish.c_type), n = p->geometry.groups * s.channels;
        for (int64_t i = 0; i < n; i++)
            memcpy(at + i * size, (const char *)p->bias + i * p->bias_stride * size, (size_t)size);
        s.finish.bias_col = at;
        at += ct__round_up(n * size, 64);
    }
    s.workers = at;
    for (int64_t worker = 0; worker < ct__threads(); worker++) {
        ct__local *local = (ct__local *)(void *)(at + worker * s.worker_bytes);
        *local = (ct__local){-1, -1, (char *)local + 64, NULL};
    }
    const int64_t rows = s.source.axis[0].count * s.source.axis[1].count;
    ct__parallel(p->geometry.groups * s.panels * rows, pack_weight, &s);
    ct__parallel(s.chunks, compute_block, &s);
    return true;
}
