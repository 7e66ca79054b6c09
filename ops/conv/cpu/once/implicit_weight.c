/* The weight gradient on the register tiles: rows of a tile are (tap, input channel), columns output channels, the sum goes
 * over the pixels of a block: some lines of an image, or several small images, so that a tile has long sums to form before it
 * adds them to those in memory. Blocks are dealt to a fixed number of parts, each with sums of its own, which are added in
 * order at the end; where parts are few, threads share one by panels of output channels. The bias gradient is summed from
 * the packed cotangent on its way. Half types compute in f32, or by pairs of outputs where the kernel has products of
 * pairs. */
#include <string.h>

#include "core/threads.h"
#include "ops/conv/cpu/implicit.h"

enum {
    BLOCK_BYTES = 256 << 10,  /* of a source block */
    IMAGES_BYTES = 512 << 10, /* of one with several images */
    BLOCK_PIXELS = 512,       /* whose cotangent, every channel of it, leaves L2 room for the block that follows */
    IMAGES_PIXELS = 256,      /* of several images, at least, if they fit */
    PARTS = 16,               /* of the sum, at most, */
    MORE_PARTS = 32,          /* or where they are a small part of the work */
    PART_BYTES = 16 << 20,    /* of the sums of all parts */
    FINISH_ROWS = 16,         /* a cache line of the weight where they lie side by side */
};

typedef struct pass {
    const ct_conv_problem *p;
    ct__source source;
    const ct__kernel *kernel;
    ct__sweep sweep; /* what the rows of a tile are */
    bool taps_first; /* rows of the sums are [tap][channel], not [channel][tap] */
    int64_t outs;    /* output channels of a group */
    int64_t images;  /* of a block; if several, all pixels of them */
    int64_t panels, panel_groups, per_group;
    int64_t blocks, parts;           /* of one group */
    int64_t weights, ld;             /* rows and row length of the sums of a part */
    bool borrowed;                   /* the cotangent is read where it lies: its channels are side by side already */
    int64_t line_bytes, pixel_bytes; /* of a line of the cotangent, packed or not */
    int64_t image_bytes;             /* from an image of the cotangent to the next in a block */
    int64_t part_bytes, worker_bytes, packed_bytes;
    int64_t slot_bytes;            /* of a worker's copy of an image's lines, ct__local and buffer */
    char *sums, *biases, *workers; /* [group][part][weights][ld], [group][part][ld] */
} pass;

/* Halves are multiplied as such where tiles take pairs of outputs, and a line has no odd one. */
static void pair_outputs(pass *s, ct_gemm_type type) {
    ct__source *from = &s->source;
    const ct__kernel *kernel = ct__gemm_kernel(type, type, type);
    const bool lies = from->last ? from->strides.c == 1 : from->strides.s[2] == 1;
    if (kernel->group != 2 || kernel->block || !lies || from->segment % 2 || from->axis[2].positions % 2) return;
    from->pairs = true;
    s->kernel = kernel;
}

/* Several images to a block where one has few pixels. */
static void join_images(pass *s) {
    const ct__source *from = &s->source;
    const int64_t batch = s->p->geometry.batch, pixels = from->lines * from->segment;
    s->images = 1;
    if (from->axis[0].positions * from->line_blocks * from->segments > 1) return;
    const int64_t fit = ct__min(IMAGES_BYTES / from->bytes, ct__min(IMAGES_PIXELS / pixels, batch));
    if (fit > 1) s->images = ct__ceil_div(batch, ct__ceil_div(batch, fit));
}

/* Times are in products of vectors, of which a copy of so many bytes takes one, and one is a byte of a part's sums on its way to
 * memory and back. Of a block and a panel: */
static double panel_time(const pass *s) {
    enum { ADDED = 4 }; /* products that a vector of a tile takes on its way to the sums */
    const int64_t pixels = s->images * s->source.lines * s->source.segment;
    return (double)(s->weights * s->kernel->vecs) * (double)(pixels + ADDED);
}

/* What a cut into parts, each shared by panels, takes so many threads: the rounds of chunks, a part of one for what is uneven
 * about them, and the work of all, so that one thread does not pay for what many gain. */
static double time_of(const pass *s, int64_t parts, int64_t shares, int64_t threads) {
    enum { COPIED = 4 };
    const int64_t groups = s->p->geometry.groups;
    const double panel = panel_time(s), sums = (double)parts * (double)s->part_bytes,
                 copy = (double)(s->images * s->source.bytes) / COPIED;
    const double chunk =
        (double)ct__ceil_div(s->blocks, parts) * ((double)ct__ceil_div(s->panels, shares) * panel + copy);
    const double all = (double)s->blocks * ((double)s->panels * panel + (double)shares * copy) + sums;
    return ((double)ct__ceil_div(groups * parts * shares, threads) + 0.25) * chunk +
           (double)groups * (sums + all) / (double)threads;
}

/* How many chunks share the blocks of a part by panels: every one of them copies the source for itself. */
static int64_t shares_of(const pass *s, int64_t parts, int64_t threads) {
    int64_t best = 1;
    for (int64_t shares = 2; threads > 1 && shares <= s->panels; shares++)
        if (time_of(s, parts, shares, threads) < time_of(s, parts, best, threads)) best = shares;
    return ct__ceil_div(s->panels, ct__ceil_div(s->panels, best));
}

/* The number of parts is the same for any number of threads: the best for many. */
static int64_t parts_of(const pass *s) {
    enum { MANY = 16, SMALL = 50 };
    const double work = (double)(s->blocks * s->panels) * panel_time(s);
    int64_t most = PARTS;
    while (most < MORE_PARTS && (double)((most + 1) * s->part_bytes) * SMALL <= work) most++;
    most = ct__min(s->blocks, ct__min(most, PART_BYTES / (s->part_bytes + 1) + 1));
    int64_t best = 1;
    double least = 0;
    for (int64_t parts = 1; parts <= most; parts++) {
        const double time = time_of(s, parts, shares_of(s, parts, MANY), MANY);
        if (parts == 1 || time < least) least = time, best = parts;
    }
    return best;
}

/* Everything but the data. Returns the scratch that is needed after the tables. */
static int64_t plan(pass *s, const ct_conv_problem *p, int64_t *tables) {
    const ct_conv_geometry *g = &p->geometry;
    ct_gemm_type type = CT_GEMM_F32;
    ct__conv_gemm_type(p->dtype, &type);
    ct__gemm_ready();
    *s = (pass){.p = p, .outs = g->out_channels / g->groups};
    const ct_gemm_type wide = type == CT_GEMM_F64 ? CT_GEMM_F64 : CT_GEMM_F32;
    ct__source *from = &s->source;
    from->kernel = s->kernel = ct__gemm_kernel(wide, wide, wide);
    from->data = p->x, from->type = type;
    from->strides = g->x, from->channels = g->in_channels / g->groups;
    for (int a = 0; a < 3; a++) {
        ct__taps *t = &from->axis[a];
        ct__taps_make(t, &g->window, a, false, &tables);
        if (t->count == 1 && t->offset[0] == 0 && t->step > 1) {
            from->strides.s[a] *= t->step;
            t->source = ct__ceil_div(t->source, t->step);
            t->step = 1;
        }
    }
    from->along_pixels = true;
    from->last = ct__source_channels_last(from);
    const ct__taps *columns = &from->axis[2];
    /* With a stride half of what a row of a tile fetches is not looked at: fewer pixels then, to stay in the first cache. */
    const int64_t pixels = from->last || columns->step == 1 || from->channels < s->kernel->rows
                               ? BLOCK_PIXELS
                               : BLOCK_PIXELS / columns->step;
    ct__source_cut(from, BLOCK_BYTES, g->batch, PARTS, pixels);
    pair_outputs(s, type);
    join_images(s);
    const bool rows = g->channels_last || from->channels <= CT__FEW_CHANNELS;
    s->sweep = from->last && rows && columns->spacing == 1                   ? OVER_ROW_CHANNELS
               : !from->last && from->channels < ct__min(columns->count, 14) ? OVER_TAPS
                                                                             : OVER_CHANNELS;
    s->taps_first = g->channels_last || s->sweep == OVER_ROW_CHANNELS;
    const int64_t width = ct__panel_width(s->kernel), acc = ct__type_size(s->kernel->acc);
    s->panels = ct__ceil_div(s->outs, width);
    s->weights = from->channels * ct__window_taps(&g->window);
    s->ld = s->panels * width;
    s->blocks = ct__ceil_div(g->batch, s->images) * from->axis[0].positions * from->line_blocks * from->segments;
    s->part_bytes = s->weights * s->ld * acc;
    s->parts = parts_of(s);
    s->panel_groups = shares_of(s, s->parts, ct__threads()); /* no sum depends on it */
    s->per_group = ct__ceil_div(s->panels, s->panel_groups);
    const int64_t pixel = g->y.s[2] * acc;
    s->borrowed = type == wide && g->y.c == 1 && !p->bias_grad && pixel % 2048 != 0;
    s->pixel_bytes = s->borrowed ? pixel : width * acc; /* or of a pair of them */
    s->line_bytes = s->borrowed ? g->y.s[1] * acc : from->segment * width * acc / s->kernel->group;
    s->image_bytes = s->borrowed ? g->y.n * acc : from->lines * s->line_bytes;
    s->packed_bytes = s->borrowed ? 0 : ct__round_up(s->images * s->image_bytes, 64);
    const int64_t runs = ct__round_up(s->images * from->lines * (int64_t)sizeof(ct__run), 64);
    s->slot_bytes = 64 + from->bytes;
    s->worker_bytes = s->images * s->slot_bytes + s->packed_bytes + runs;
    return g->groups * s->parts * (s->part_bytes + s->ld * acc) + 64 + s->worker_bytes * ct__threads();
}

/* Where tap (d, h, w) and channel c of the weight are among the sums: mostly the order of the weight in memory. */
static int64_t row_of(const pass *s, int64_t d, int64_t h, int64_t w, int64_t c) {
    const int64_t *kernel = s->p->geometry.window.kernel;
    const int64_t tap = (d * kernel[1] + h) * kernel[2] + w;
    return s->taps_first ? tap * s->source.channels + c : c * ct__window_taps(&s->p->geometry.window) + tap;
}

typedef struct place {
    int64_t n, group, d, h, w; /* as in implicit.c */
    int64_t images;            /* of this block, from n on, */
    int64_t lines, outputs;    /* lines of each, and outputs of a line */
    ct__ahead ahead[2];        /* the next block of the cotangent, then of the source, */
    int64_t rate;              /* so many lines with every tile */
} place;

enum { STRETCH = 128 }; /* outputs summed by themselves: the sum of all has no place for the last bits of one */

/* bias += the sums of a packed line. */
static void add_line(const pass *s, char *bias, const char *line, int64_t outputs, int64_t have) {
    const int64_t width = ct__panel_width(s->kernel);
    if (s->kernel->acc == CT_GEMM_F64) {
        for (int64_t q = 0; q < outputs; q++)
            for (int64_t j = 0; j < have; j++)
                ((double *)(void *)bias)[j] += ((const double *)(const void *)line)[q * width + j];
        return;
    }
    for (int64_t first = 0; first < outputs; first += STRETCH) {
        float sum[CT__TILE_WIDTH_MAX] = {0};
        for (int64_t q = first; q < ct__min(first + STRETCH, outputs); q++)
            for (int64_t j = 0; j < have; j++) {
                float value;
                if (s->kernel->group == 2) {
                    const uint32_t pair = ((const uint32_t *)(const void *)line)[q / 2 * width + j];
                    const uint32_t bits = q % 2 ? pair & 0xffff0000u : pair << 16;
                    memcpy(&value, &bits, 4);
                } else {
                    value = ((const float *)(const void *)line)[q * width + j];
                }
                sum[j] += value;
            }
        for (int64_t j = 0; j < have; j++) ((float *)(void *)bias)[j] += sum[j];
    }
}

/* The cotangent of the block's lines, one panel of channels, [image][line][output][channel]; and its sums. Returns where it
 * is. */
static const char *pack_panel(const pass *s, const place *at, char *packed, int64_t panel, char *bias) {
    const ct_conv_problem *p = s->p;
    const ct_image_strides *y = &p->geometry.y;
    const int64_t width = ct__panel_width(s->kernel), size = ct__type_size(s->source.type),
                  have = ct__min(width, s->outs - panel * width);
    if (s->borrowed)
        return (const char *)p->y + (at->n * y->n + at->group * s->outs + panel * width + at->d * y->s[0] +
                                     at->h * y->s[1] + at->w * y->s[2]) *
                                        size;
    for (int64_t i = 0; i < at->images * at->lines; i++) {
        const int64_t image = i / at->lines, line = i % at->lines;
        const int64_t from = (at->n + image) * y->n + (at->group * s->outs + panel * width) * y->c + at->d * y->s[0] +
                             (at->h + line) * y->s[1] + at->w * y->s[2];
        const ct__matrix src = {(const char *)p->y + from * size, s->source.type, y->s[2], y->c};
        char *to = packed + image * s->image_bytes + line * s->line_bytes;
        ct__gemm_isa->pack_b(s->kernel, &src, to, at->outputs, have);
        if (bias) add_line(s, bias, to, at->outputs, have);
    }
    return packed;
}

/* All rows of the weight's gradient that come from row (td, th) of the kernel. */
static void multiply_row(const pass *s, place *at, const ct__local *local, const char *packed, ct__run *runs,
                         char *sums, int64_t have, int64_t td, int64_t th, bool first) {
    const ct__source *from = &s->source;
    const ct__taps *rows = &from->axis[1], *columns = &from->axis[2];
    const ct__kernel *kernel = s->kernel;
    const int64_t acc = ct__type_size(kernel->acc), unit = from->unit, channel = from->channel_bytes,
                  vecs = ct__ceil_div(have, kernel->lanes);
    const ct__tile_fn *tiles = kernel->tiles[(vecs - 1) * 2 + (have % kernel->lanes != 0)];
    ct__tile t = {.b = packed, .b_step = s->pixel_bytes, .cols = (int)have, .runs = runs, .accumulate = !first};
    const int64_t image_bytes = from->borrowed ? from->strides.n * ct__type_size(from->type) : s->slot_bytes;
    for (int64_t i = 0; i < at->images * at->lines; i++) {
        const int64_t image = i / at->lines, line = i % at->lines;
        const int64_t row = (at->h + line) * rows->step + rows->offset[th];
        if (row < 0 || row >= rows->source) continue;
        runs[t.n_runs++] =
            (ct__run){image * image_bytes + (line * rows->step + rows->offset[th] - rows->low) * from->row_bytes,
                      image * s->image_bytes + line * s->line_bytes};
    }
    t.k = t.n_runs ? at->outputs / kernel->group : 0;
    if (!t.n_runs && !first) return;
    t.a_step = kernel->group * columns->step * unit;
    const char *base = local->data + td * from->slice_bytes;
    const int64_t outer = s->sweep == OVER_ROW_CHANNELS ? 1 : s->sweep == OVER_TAPS ? from->channels : columns->count;
    const int64_t count = s->sweep == OVER_ROW_CHANNELS ? columns->count * from->channels
                          : s->sweep == OVER_TAPS       ? columns->count
                                                        : from->channels;
    const int64_t high = ct__ceil_div(count, ct__ceil_div(count, kernel->rows));
    t.a_row = s->sweep == OVER_TAPS ? columns->spacing * unit : channel;
    const int64_t next = s->sweep == OVER_CHANNELS ? row_of(s, 0, 0, 0, 1) - row_of(s, 0, 0, 0, 0)
                         : s->sweep == OVER_TAPS   ? row_of(s, 0, 0, 1, 0) - row_of(s, 0, 0, 0, 0)
                                                   : 1;
    t.c_row = next * s->ld * acc;
    /* The taps of a row look at almost the same pixels: one after the other, while these are near. */
    for (int64_t i = 0; i < count; i += high)
        for (int64_t o = 0; o < outer; o++) {
            const int64_t tap = s->sweep == OVER_CHANNELS ? o : 0, c = s->sweep == OVER_TAPS ? o : 0;
            t.a = base + tap * columns->spacing * unit + c * channel + i * t.a_row;
            t.c = sums + row_of(s, td, th, tap, c) * s->ld * acc + i * t.c_row;
            ct__ahead_tile(&at->ahead[at->ahead[0].slice >= at->ahead[0].slices], at->rate, kernel, &t);
            tiles[ct__min(high, count - i) - 1](&t);
        }
}

static ct__local *slot_of(const pass *s, int64_t worker, int64_t image) {
    return (ct__local *)(void *)(s->workers + worker * s->worker_bytes + image * s->slot_bytes);
}

static void add_block(const pass *s, place *at, ct__local *local, int64_t part, int64_t share, bool first) {
    const ct__source *from = &s->source;
    const ct__taps *slices = &from->axis[0];
    const int64_t width = ct__panel_width(s->kernel), acc = ct__type_size(s->kernel->acc);
    char *packed = (char *)local + s->images * s->slot_bytes;
    ct__run *runs = (ct__run *)(void *)(packed + s->packed_bytes);
    char *sums = s->sums + (at->group * s->parts + part) * s->part_bytes;
    char *biases = s->biases + (at->group * s->parts + part) * s->ld * acc;
    const int64_t last = ct__min((share + 1) * s->per_group, s->panels);
    for (int64_t panel = share * s->per_group; panel < last; panel++) {
        const int64_t have = ct__min(width, s->outs - panel * width);
        char *bias = s->p->bias_grad ? biases + panel * width * acc : NULL;
        if (bias && first) memset(bias, 0, (size_t)(width * acc));
        const char *cotangent = pack_panel(s, at, packed, panel, bias);
        if (!s->p->w) continue;
        for (int64_t td = 0; td < slices->count; td++) {
            const int64_t slice = at->d * slices->step + slices->offset[td];
            const bool outside = slice < 0 || slice >= slices->source;
            if (outside && !first) continue;
            const int64_t lines = at->lines;
            if (outside) at->lines = 0;
            for (int64_t th = 0; th < from->axis[1].count; th++)
                multiply_row(s, at, local, cotangent, runs, sums + panel * width * acc, have, td, th, first);
            at->lines = lines;
        }
    }
}

static place place_of(const pass *s, int64_t group, int64_t block) {
    const ct__source *from = &s->source;
    place at = {.group = group};
    at.w = block % from->segments * from->segment, block /= from->segments;
    at.h = block % from->line_blocks * from->lines, block /= from->line_blocks;
    at.d = block % from->axis[0].positions;
    at.n = block / from->axis[0].positions * s->images;
    at.images = ct__min(s->images, s->p->geometry.batch - at.n);
    at.lines = ct__min(from->lines, from->axis[1].positions - at.h);
    at.outputs = ct__min(from->segment, from->axis[2].positions - at.w);
    return at;
}

/* Prefetches the block after this one while this one is multiplied. */
static void look_ahead(const pass *s, place *at, const place *next, int64_t share) {
    const ct__source *from = &s->source;
    const ct_image_strides *y = &s->p->geometry.y;
    const int64_t size = ct__type_size(from->type), panels = ct__min(s->per_group, s->panels - share * s->per_group);
    const int64_t first = share * s->per_group * ct__panel_width(s->kernel),
                  outs = ct__min(panels * ct__panel_width(s->kernel), s->outs - first);
    ct__source_ahead(from, &at->ahead[!from->last], next->n, next->group, next->d, next->h, next->w);
    const bool planes = y->s[2] == 1;
    ct__ahead *other = &at->ahead[from->last];
    *other = (ct__ahead){
        .data = (const char *)s->p->y + (next->n * y->n + (next->group * s->outs + first) * y->c + next->d * y->s[0] +
                                         next->h * y->s[1] + next->w * y->s[2]) *
                                            size,
        .channels = planes ? outs : 1,
        .slices = 1,
        .channel_bytes = y->c * size,
        .span_bytes = ((next->lines - 1) * y->s[1] + next->outputs * y->s[2]) * size,
    };
    ct__ahead_limit(other, 16 * from->bytes);
    const int64_t tiles = panels * ct__ceil_div(s->weights, s->kernel->rows);
    at->rate = ct__ceil_div((ct__ahead_total(&at->ahead[0]) + ct__ahead_total(&at->ahead[1])) * 4, tiles * 3);
}

static void sum_part(void *ctx, int64_t chunk, int worker) {
    const pass *s = ctx;
    const int64_t share = chunk % s->panel_groups, part = chunk / s->panel_groups % s->parts,
                  group = chunk / s->panel_groups / s->parts;
    const int64_t begin = s->blocks * part / s->parts, end = s->blocks * (part + 1) / s->parts;
    for (int64_t block = begin; block < end; block++) {
        place at = place_of(s, group, block);
        const place next = place_of(s, group, block + 1);
        if (block + 1 < end) look_ahead(s, &at, &next, share);
        for (int64_t image = 0; s->p->w && image < at.images; image++)
            ct__source_load(&s->source, slot_of(s, worker, image), at.n + image, at.group, at.d, at.h, at.w);
        add_block(s, &at, slot_of(s, worker, 0), part, share, block == begin);
    }
}

/* ---- Adding the parts ---- */

/* sums[from, from + count) += those of the other parts, in order. By lines: those of all parts are on their way at once. */
static void add_parts(const pass *s, char *sums, int64_t from, int64_t count, int64_t step) {
    enum { LINE = 16 };
    if (ct__type_size(s->kernel->acc) == 8) {
        for (int64_t part = 1; part < s->parts; part++)
            for (int64_t i = from; i < from + count; i++)
                ((double *)(void *)sums)[i] += ((const double *)(const void *)(sums + part * step))[i];
        return;
    }
    for (int64_t i = from; i < from + count; i += LINE) {
        const int64_t have = ct__min(LINE, from + count - i);
        float sum[LINE] = {0};
        memcpy(sum, sums + i * 4, (size_t)have * 4);
        for (int64_t part = 1; part < s->parts; part++) {
            const float *more = (const float *)(const void *)(sums + part * step) + i;
            if (have == LINE)
                for (int j = 0; j < LINE; j++) sum[j] += more[j];
            else
                for (int64_t j = 0; j < have; j++) sum[j] += more[j];
        }
        memcpy(sums + i * 4, sum, (size_t)have * 4);
    }
}

static void finish_rows(void *ctx, int64_t chunk, int worker) {
    const pass *s = ctx;
    const ct_conv_problem *p = s->p;
    const ct_conv_geometry *g = &p->geometry;
    (void)worker;
    const int64_t per = ct__ceil_div(s->weights, FINISH_ROWS), group = chunk / per, row = chunk % per * FINISH_ROWS;
    const int64_t rows = ct__min(FINISH_ROWS, s->weights - row), size = ct__type_size(s->source.type),
                  acc = ct__type_size(s->kernel->acc);
    char *sums = s->sums + group * s->parts * s->part_bytes;
    add_parts(s, sums, row * s->ld, rows * s->ld, s->part_bytes);
    const int64_t *kernel = g->window.kernel, taps = ct__window_taps(&g->window);
    char *w = (char *)p->w + group * s->outs * g->w.o * size;
    ct_gemm how = {.c_type = s->source.type, .c_col = g->w.o};
    ct__finish finish = {.g = &how, .acc = s->kernel->acc, .c = w};
    /* In one run if rows follow each other in the weight as they do in the sums. */
    const bool first_last = s->taps_first;
    how.c_row = first_last ? g->w.i : g->w.k[2];
    int64_t step = how.c_row, size_of[4] = {kernel[0], kernel[1], kernel[2], s->source.channels},
            stride_of[4] = {g->w.k[0], g->w.k[1], g->w.k[2], g->w.i};
    bool even = true;
    for (int i = 0; i < 4; i++) {
        const int axis = first_last ? 3 - i : i < 3 ? 2 - i : 3;
        if (size_of[axis] == 1) continue;
        even &= stride_of[axis] == step;
        step *= size_of[axis];
    }
    if (even) {
        ct__gemm_isa->finish(&finish, sums + row * s->ld * acc, s->ld, row, rows, 0, s->outs);
        return;
    }
    for (int64_t i = row; i < row + rows; i++) {
        const int64_t c = first_last ? i % s->source.channels : i / taps,
                      tap = first_last ? i / s->source.channels : i % taps;
        finish.c = w + (c * g->w.i + tap / kernel[2] / kernel[1] * g->w.k[0] + tap / kernel[2] % kernel[1] * g->w.k[1] +
                        tap % kernel[2] * g->w.k[2]) *
                           size;
        ct__gemm_isa->finish(&finish, sums + i * s->ld * acc, s->ld, 0, 1, 0, s->outs);
    }
}

static void finish_bias(const pass *s) {
    const int64_t acc = ct__type_size(s->kernel->acc), size = ct__type_size(s->source.type);
    const ct_gemm how = {.c_type = s->source.type, .c_row = 0, .c_col = 1};
    for (int64_t group = 0; group < s->p->geometry.groups; group++) {
        char *sums = s->biases + group * s->parts * s->ld * acc;
        add_parts(s, sums, 0, s->outs, s->ld * acc);
        const ct__finish finish = {
            .g = &how, .acc = s->kernel->acc, .c = (char *)s->p->bias_grad + group * s->outs * size};
        ct__gemm_isa->finish(&finish, sums, s->ld, 0, 1, 0, s->outs);
    }
}

size_t ct__conv_weight_scratch(const ct_conv_problem *problem) {
    const ct_conv_problem flat = ct__conv_flat(problem), *p = &flat;
    int64_t numbers[4096];
    const int64_t bytes = ct__tables_bytes(p);
    if (bytes > (int64_t)sizeof numbers) return 0;
    pass s;
    return (size_t)(bytes + plan(&s, p, numbers));
}

bool ct__conv_weight(const ct_conv_problem *problem, void *scratch) {
    const ct_conv_problem flat = ct__conv_flat(problem), *p = &flat;
    pass s;
    char *at = scratch;
    plan(&s, p, scratch);
    at += ct__tables_bytes(p);
    const int64_t groups = p->geometry.groups;
    s.sums = at;
    s.biases = at + groups * s.parts * s.part_bytes;
    at = s.biases + groups * s.parts * s.ld * ct__type_size(s.kernel->acc);
    s.workers = (char *)scratch + ct__round_up(at - (char *)scratch, 64);
    for (int64_t i = 0; i < ct__threads() * s.images; i++) {
        ct__local *local = slot_of(&s, i / s.images, i % s.images);
        *local = (ct__local){-1, -1, (char *)local + 64, NULL};
    }
    ct__parallel(groups * s.parts * s.panel_groups, sum_part, &s);
    if (p->w) ct__parallel(groups * ct__ceil_div(s.weights, FINISH_ROWS), finish_rows, &s);
    if (p->bias_grad) finish_bias(&s);
    return true;
}
