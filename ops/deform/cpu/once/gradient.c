/* Gradients of deformable convolution, f32 and f64. A chunk is a slice of the channels of one image, so that dx is
 * its own, or a band of it, with a dx to be added to those of other bands. Block by block of pixels of the result,
 * it computes the gradient of the columns, g w, sweeps once over it (dx, the dots that the gradients of offset and
 * mask are made of, and the samples in its place), and adds g^T samples to its part of dw. */
#include "backends/cpu/gemm/block.h"
#include "core/threads.h"
#include "ops/deform/cpu/kernels.h"
#include "ops/op_impl.h"

#define POINT_T  double
#define POINT(x) f64_##x
#define POINT_LINKAGE
#include "ops/deform/cpu/points.h"

enum {
    CHANNELS = 64,             /* of a slice, at most */
    LEAST_CHANNELS = 16,       /* of a slice, when there are few images */
    MOST_BANDS = 8,            /* chunks of fewer slices are bands of rows of the result, until there are that many */
    BAND_ROWS = 8,             /* of a band, at least: neighbors share the rows of x that both look at */
    MOST_ROWS = 1 << 20,       /* of x in bands: the place of a tap is rounded by less than a row */
    LEAST_CHUNKS = 4,          /* fewer are cut into narrower slices */
    CHUNKS = 16,               /* images at a time are as many as give that number of chunks */
    COLUMNS_BYTES = 260 << 10, /* of a block, so that it stays in the second cache */
    MOST_PIXELS = 112,         /* of a block: whole register tiles and whole POINTS */
};

typedef struct ct__deform_gradient {
    lookup t;
    const ct__deform_isa *isa;
    const ct__kernel *kernel;
    const ct_view *g, *x, *w, *dx, *dw; /* dw NULL: not wanted */
    char *doffset, *dmask;              /* NULL: not wanted */
    ct_image_strides doffset_s, dmask_s;
    int64_t size;                       /* of an element */
    int64_t channels, of_group, slices; /* of a slice at most; slices of a group of offsets; of all */
    int64_t bands, band_rows;           /* of a slice; rows of the result */
    int64_t parts, first_image;         /* images at a time, and where they begin */
    int64_t pixels, row;                /* of a block; elements between its rows of columns */
    int64_t outs;                       /* output channels of the groups of a slice, at most */
    int64_t weight_bytes, moves_bytes;  /* of a slice */
    char *dws, *moves, *workers;        /* (parts, slices, bands), (parts, slices) */
    char *weights;                      /* (slices) */
    char *dxs;                          /* (parts, slices, bands), of several bands */
    int64_t (*rows)[2]; /* the same: the first row of x that a band looks at, and the one behind the last */
    size_t room;
} job;

static ct_deform geometry(const ct_call *call) {
    const deform_conv_grad_attrs *a = call->attrs;
    const ct_view *w = call->in[3];
    const ct_window_options options = {.strides = &a->strides, .pads = &a->pads, .dilations = &a->dilations};
    ct_deform d;
    ct__deform_resolve(NULL, &d, call->in[1], ct__deform_kernel(w, a->channels_last), &options,
                       w->dims[a->channels_last ? 3 : 0], a->groups, a->offset_groups, a->channels_last);
    return d;
}

/* ---- Cutting ---- */

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static void cut(job *j) {
    const ct_deform *d = &j->t.d;
    const int64_t shared = d->channels / d->offset_groups, each = d->channels / d->groups;
    const int64_t images = max64(d->batch, 1), out = d->out_channels / d->groups;
    int64_t width = ct__grain(CHANNELS), chunks;
    for (;; width /= 2) {
        j->of_group = ct__ceil_div(shared, width);
        chunks = images * d->offset_groups * j->of_group;
        for (j->bands = 1; chunks * j->bands < MOST_BANDS && d->w.in[1] < MOST_ROWS; j->bands *= 2)
            if (d->w.out[1] / (2 * j->bands) < ct__grain(BAND_ROWS)) break;
        if (width <= LEAST_CHANNELS || chunks * j->bands >= LEAST_CHUNKS) break;
    }
    j->band_rows = max64(ct__ceil_div(d->w.out[1], j->bands), 1);
    j->bands = max64(ct__ceil_div(d->w.out[1], j->band_rows), 1); /* none is empty */
    j->channels = ct__ceil_div(shared, j->of_group);
    if (j->of_group > 1 && j->channels < width) j->channels = ct__min(width, ct__round_up(j->channels, LEAST_CHANNELS));
    j->of_group = ct__ceil_div(shared, j->channels);
    j->slices = d->offset_groups * j->of_group;
    const int64_t rounds = ct__ceil_div(images, ct__ceil_div(CHUNKS, j->slices));
    j->parts = ct__ceil_div(images, rounds);
    j->row = d->taps * j->channels;
    j->pixels = ct__min(MOST_PIXELS, COLUMNS_BYTES / (j->row * j->size) / POINTS * POINTS);
    j->pixels = max64(POINTS, j->pixels);
    j->outs = ct__min(d->groups, ct__ceil_div(j->channels, each) + 1) * out;
    j->weight_bytes = (int64_t)ct__room(out * j->row * j->size);
    j->moves_bytes = j->of_group > 1 && (j->doffset || j->dmask) ? 3 * d->taps * d->pixels * j->size : 0;
    j->moves_bytes = (int64_t)ct__room(j->moves_bytes);
}

static int64_t image_bytes(const job *j) { return j->t.d.w.in[1] * j->t.d.w.in[2] * j->channels * j->size; }

/* Whether slices of dx are summed where the result lies. */
static bool in_place(const job *j) { return j->bands == 1 && ct__deform_has_lines(j->dx, &j->t.d); }

static char *claim(char *base, int64_t *at, int64_t bytes) {
    char *p = base ? base + *at : NULL;
    *at += (int64_t)ct__room(bytes);
    return p;
}

/* Lays out what a slice needs from base on (NULL: only counts) and returns the bytes. */
static int64_t place(const job *j, ct__deform_slice *s, char *base) {
    const ct_deform *d = &j->t.d;
    const int64_t points = j->size == 8 ? sizeof(f64_points) : sizeof(f32_points);
    int64_t at = 0;
    s->columns = claim(base, &at, j->pixels * j->row * j->size);
    s->g_copy = claim(base, &at, j->outs * j->pixels * j->size);
    s->zeros = claim(base, &at, j->channels * j->size);
    s->sink = claim(base, &at, j->channels * j->size);
    s->points = claim(base, &at, d->taps * points);
    s->dots = claim(base, &at, d->taps * POINTS * 4 * j->size);
    s->x = ct__deform_has_lines(j->x, d) ? NULL : claim(base, &at, image_bytes(j));
    s->dx = in_place(j) || j->bands > 1 ? NULL : claim(base, &at, image_bytes(j));
    return at;
}

static job job_of(const ct_call *call) {
    const ct_deform d = geometry(call);
    job j = {
        .t = ct__deform_lookup(&d, call->in[2], call->in[4]), .g = call->in[0], .x = call->in[1], .w = call->in[3]};
    j.size = (int64_t)ct_dtype_size(j.t.dtype);
    j.dx = call->out[0];
    for (int k = 1; k < call->n_out; k++) {
        const ct_view *out = call->out[k];
        if (!out) continue;
        if (k == 3) {
            j.dw = out;
            continue;
        }
        *(k == 1 ? &j.doffset : &j.dmask) = ct__address(out, (size_t)j.size);
        *(k == 1 ? &j.doffset_s : &j.dmask_s) = ct__image_strides(out, d.channels_last);
    }
    ct__gemm_ready();
    const ct_gemm_type type = j.t.dtype == CT_F64 ? CT_GEMM_F64 : CT_GEMM_F32;
    j.kernel = ct__gemm_kernel(type, type, type);
    cut(&j);
    ct__deform_slice s;
    j.room = (size_t)place(&j, &s, NULL);
    return j;
}

/* ---- One slice ---- */

static ct__deform_slice slice_of(const job *j, int64_t number) {
    const ct_deform *d = &j->t.d;
    const int64_t shared = d->channels / d->offset_groups, skip = number % j->of_group * j->channels;
    ct__deform_slice s = {.j = j, .t = &j->t, .group = number / j->of_group, .each = d->channels / d->groups};
    s.first = s.group * shared + skip;
    s.n = ct__min(j->channels, shared - skip);
    s.row = j->row;
    return s;
}

/* The first input channel number `channel` of w or dw. */
static char *weight_at(const job *j, const ct_view *w, int64_t channel) {
    const ct_weight_strides s = ct__weight_strides(w, j->t.d.channels_last);
    const int64_t each = j->t.d.channels / j->t.d.groups, group = channel / each;
    const int64_t at = group * (j->t.d.out_channels / j->t.d.groups) * s.o + (channel - group * each) * s.i;
    return (char *)ct__address(w, (size_t)j->size) + at * j->size;
}

/* Between w or dw and the weight of a slice. */
static void move_weight(const job *j, const ct__deform_slice *s, const ct_view *w, char *dense, bool to_dense) {
    const int64_t out = j->t.d.out_channels / j->t.d.groups;
    for (int64_t at = 0, run; at < s->n; at += run) {
        run = run_of(s, at);
        ct__deform_turn_weight(j->isa, &j->t.d, weight_at(j, w, s->first + at),
                               ct__weight_strides(w, j->t.d.channels_last), dense + out * j->t.d.taps * at * j->size,
                               out, run, (size_t)j->size, to_dense);
    }
}

static void transpose_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const ct__deform_slice s = slice_of(j, chunk);
    (void)worker;
    move_weight(j, &s, j->w, j->weights + chunk * j->weight_bytes, true);
}

/* columns = g^T w (dw NULL), or dw += g columns, for n pixels. */
static void multiply(const job *j, const ct__deform_slice *s, int64_t n, char *dw, bool add) {
    const int64_t out = j->t.d.out_channels / j->t.d.groups, size = j->size;
    const int64_t first_group = s->first / s->each;
    for (int64_t at = 0, run; at < s->n; at += run) {
        run = run_of(s, at);
        const int64_t row = j->t.d.taps * run * size, weight = out * j->t.d.taps * at * size;
        char *columns = s->columns + j->t.d.taps * at * size;
        ct__block b = {.a = s->g + ((s->first + at) / s->each - first_group) * out * s->g_channel,
                       .n = j->t.d.taps * run,
                       .panel = ct__panel_width(j->kernel) * size,
                       .accumulate = add,
                       .far_c = true};
        if (dw) {
            b.a_row = s->g_channel, b.a_step = s->g_pixel;
            b.b = columns, b.b_step = j->row * size;
            b.c = dw + weight, b.c_row = row;
            b.m = out, b.k = n;
        } else {
            b.a_row = s->g_pixel, b.a_step = s->g_channel;
            b.b = s->weight + weight, b.b_step = row;
            b.c = columns, b.c_row = j->row * size;
            b.m = n, b.k = out;
        }
        ct__block_multiply(j->kernel, &b);
    }
}

/* n pixels of g from first on, the channels of the slice's groups: where it lies if one of its strides is 1, unless lines would
 * fall on the same sets of a cache. */
static void take_g(const job *j, ct__deform_slice *s, int64_t first, int64_t n) {
    const ct_deform *d = &j->t.d;
    const int64_t out = d->out_channels / d->groups, group = s->first / s->each;
    const int64_t groups = (s->first + s->n - 1) / s->each - group + 1;
    const ct_image_strides g = ct__image_strides(j->g, d->channels_last);
    const int64_t pixel = d->w.out[2] == 1 ? g.s[1] : g.s[2], apart = pixel == 1 ? g.c : pixel;
    const char *from = (const char *)ct__address(j->g, (size_t)j->size);
    from += (s->image * g.n + group * out * g.c + first * pixel) * j->size;
    if ((g.c == 1 || pixel == 1) && apart * j->size % 1024) {
        s->g = from, s->g_channel = g.c * j->size, s->g_pixel = pixel * j->size;
        /* the next block: runs of rows too short to be seen coming */
        for (int64_t i = 0; i < groups * out && pixel == 1; i++)
            for (int64_t k = n; k < ct__min(2 * n, d->pixels - first); k += 64 / j->size)
                __builtin_prefetch(from + i * s->g_channel + k * j->size, 0, 2);
        return;
    }
    const int64_t dims[2] = {groups * out, n}, strides[2] = {g.c, pixel}, to[2] = {j->pixels, 1};
    s->g = s->g_copy, s->g_channel = j->pixels * j->size, s->g_pixel = j->size;
    j->isa->copy(s->g_copy, to, from, strides, 2, dims, (size_t)j->size);
}

/* The rows of x that n pixels from first on look at. */
static void find_rows(const job *j, const ct__deform_slice *s, int64_t first, int64_t n, int64_t *rows) {
    const ct_window *w = &j->t.d.w;
    const ct_image_strides *o = &j->t.offset_s;
    const int64_t top = first / w->out[2], bottom = (first + n - 1) / w->out[2];
    double least = (double)w->in[1], most = -least; /* of the moves, as far as they matter */
    for (int64_t k = 0; k < j->t.d.taps; k++) {
        const int64_t channel = 2 * (s->group * j->t.d.taps + k);
        const char *at = j->t.offset + (s->image * o->n + channel * o->c) * j->size;
        const int64_t together = o->s[1] == w->out[2] * o->s[2] ? bottom + 1 - top : 1;
        for (int64_t y = top; y <= bottom; y += together)
            j->isa->range[j->size == 8](at + y * o->s[1] * j->size, o->s[2], together * w->out[2], &least, &most);
    }
    const double low = (double)(top * w->stride[1] - w->before[1]) + least;
    const double high = (double)(bottom * w->stride[1] - w->before[1] + (w->kernel[1] - 1) * w->dilation[1]) + most;
    /* a row more on both sides, since places are rounded */
    rows[0] = low > 2 ? (low < (double)w->in[1] ? (int64_t)low - 1 : w->in[1]) : 0;
    rows[1] = high < (double)(w->in[1] - 3) ? (high > -2 ? (int64_t)(high + 3) : 0) : w->in[1];
    if (rows[1] < rows[0]) rows[1] = rows[0];
}

/* Rows of the slice of x, in scratch unless its lines lie one behind the other, and the place of that of dx, of zeros. */
static void open_images(const job *j, ct__deform_slice *s, const int64_t *rows) {
    const ct_deform *d = &j->t.d;
    const int64_t width = d->w.in[2], size = j->size, count = rows[1] - rows[0];
    const ct_image_strides x = ct__image_strides(j->x, d->channels_last),
                           dx = ct__image_strides(j->dx, d->channels_last);
    const char *from = (const char *)ct__address(j->x, (size_t)size) + (s->image * x.n + s->first * x.c) * size;
    s->x_step = s->dx_step = s->n;
    if (s->x) {
        const int64_t dims[3] = {count, width, s->n}, strides[3] = {x.s[1], x.s[2], x.c};
        j->isa->copy((char *)s->x + rows[0] * width * s->n * size, (int64_t[]){width * s->n, s->n, 1},
                     from + rows[0] * x.s[1] * size, strides, 3, dims, (size_t)size);
    } else s->x = from, s->x_step = x.s[2];
    if (!s->dx) {
        s->dx = (char *)ct__address(j->dx, (size_t)size) + (s->image * dx.n + s->first) * size;
        s->dx_step = dx.s[2];
    }
    const int64_t whole = s->dx_step == s->n ? count * width : 1; /* pixels one behind the other */
    for (int64_t i = 0; i < count * width; i += whole)
        memset(s->dx + (rows[0] * width + i) * s->dx_step * size, 0, (size_t)(whole * s->n * size));
}

/* Rows of a slice of dx to where they belong. */
static void close_dx(const job *j, const ct__deform_slice *s, int64_t first, int64_t end) {
    const int64_t width = j->t.d.w.in[2], dims[3] = {end - first, width, s->n}, from[3] = {width * s->n, s->n, 1};
    const ct_image_strides dx = ct__image_strides(j->dx, j->t.d.channels_last);
    char *to = (char *)ct__address(j->dx, (size_t)j->size);
    j->isa->copy(to + (s->image * dx.n + s->first * dx.c + first * dx.s[1]) * j->size,
                 (int64_t[]){dx.s[1], dx.s[2], dx.c}, s->dx + first * width * s->n * j->size, from, 3, dims,
                 (size_t)j->size);
}

static void slice_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const ct_deform *d = &j->t.d;
    const int64_t slot = chunk / j->bands, skip = chunk % j->bands * j->band_rows * d->w.out[2];
    const int64_t end = ct__min(skip + j->band_rows * d->w.out[2], d->pixels);
    int64_t rows[2] = {0, d->w.in[1]};
    ct__deform_slice s = slice_of(j, slot % j->slices);
    place(j, &s, j->workers + (size_t)worker * j->room);
    s.image = j->first_image + slot / j->slices;
    if (j->moves_bytes) s.moves = j->moves + slot * j->moves_bytes;
    memset(s.zeros, 0, (size_t)(s.n * j->size));
    s.weight = j->weights + slot % j->slices * j->weight_bytes;
    if (j->bands > 1) {
        find_rows(j, &s, skip, end - skip, rows);
        s.dx = j->dxs + chunk * image_bytes(j);
        memcpy(j->rows[chunk], rows, sizeof rows);
    }
    open_images(j, &s, rows);
    for (int64_t first = skip; first < end; first += j->pixels) {
        const int64_t n = ct__min(j->pixels, end - first);
        take_g(j, &s, first, n);
        multiply(j, &s, n, NULL, false);
        j->isa->sweep[j->size == 8](&s, first, n);
        if (j->dw) multiply(j, &s, n, j->dws + chunk * j->weight_bytes, first > skip || j->first_image > 0);
    }
    if (j->bands == 1 && !in_place(j)) close_dx(j, &s, 0, d->w.in[1]);
}

/* A band of rows of a slice of dx, with what other bands have for them in their order. */
static void band_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const int64_t height = j->t.d.w.in[1], slot = chunk / j->bands, band = chunk % j->bands;
    const int64_t first = height * band / j->bands, end = height * (band + 1) / j->bands;
    ct__deform_slice s = slice_of(j, slot % j->slices);
    const int64_t line = j->t.d.w.in[2] * s.n, bytes = line * j->size;
    (void)worker;
    s.image = j->first_image + slot / j->slices;
    s.dx = j->dxs + chunk * image_bytes(j);
    for (int64_t row = first; row < end; row++) {
        if (row < j->rows[chunk][0] || row >= j->rows[chunk][1]) memset(s.dx + row * bytes, 0, (size_t)bytes);
        for (int64_t i = slot * j->bands; i < (slot + 1) * j->bands; i++)
            if (i != chunk && row >= j->rows[i][0] && row < j->rows[i][1])
                j->isa->add[j->size == 8](s.dx + row * bytes, j->dxs + i * image_bytes(j) + row * bytes, line);
    }
    close_dx(j, &s, first, end);
}

/* ---- Gradients of offset and mask ---- */

/* To where gradient `which` of tap k of all groups belongs, n pixels from first on. */
static void put_line(const job *j, int64_t image, int64_t k, int which, int64_t first, int64_t n, const char *from) {
    const bool mask = which == 2;
    const ct_image_strides *s = mask ? &j->dmask_s : &j->doffset_s;
    const int64_t width = j->t.d.w.out[2], size = j->size;
    char *to = mask ? j->dmask : j->doffset;
    if (!to) return;
    to += (image * s->n + (mask ? k : 2 * k + which) * s->c) * size;
    const int64_t step = s->s[2] * size;
    for (int64_t run = n; n > 0; n -= run, first += run) {
        char *line = to + first * step;
        if (s->s[1] != width * s->s[2]) { /* row by row */
            const int64_t oy = first / width, ox = first % width;
            line = to + oy * s->s[1] * size + ox * step;
            run = ct__min(n, width - ox);
        }
        j->isa->copy_run(line, s->s[2], from, 1, run, (size_t)size);
        /* lines of more channels than the processor follows: those of the next pixels but some are prefetched */
        __builtin_prefetch(line + 3 * POINTS * step, 1, 2);
        from += run * size;
    }
}

void ct__deform_put_moves(const ct__deform_slice *s, int64_t tap, int64_t first, int64_t n, const void *moves) {
    const job *j = s->j;
    const int64_t pixels = j->t.d.pixels, taps = j->t.d.taps;
    for (int a = 0; a < 3; a++) {
        const char *from = (const char *)moves + a * POINTS * j->size;
        if (!s->moves) put_line(j, s->image, s->group * taps + tap, a, first, n, from);
        else j->isa->copy_run(s->moves + ((tap * 3 + a) * pixels + first) * j->size, 1, from, 1, n, (size_t)j->size);
    }
}

/* One tap of all groups of an image, from those of several slices in their order. */
static void moves_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const int64_t taps = j->t.d.taps, all = j->t.d.offset_groups * taps, part = chunk / all, k = chunk % all;
    char *sum = j->moves + (part * j->slices + k / taps * j->of_group) * j->moves_bytes;
    (void)worker;
    sum += k % taps * 3 * j->t.d.pixels * j->size;
    for (int64_t i = 1; i < j->of_group; i++)
        j->isa->add[j->size == 8](sum, sum + i * j->moves_bytes, 3 * j->t.d.pixels);
    for (int a = 0; a < 3; a++)
        put_line(j, j->first_image + part, k, a, 0, j->t.d.pixels, sum + a * j->t.d.pixels * j->size);
}

/* ---- The weight's gradient, from those of several images ---- */

static void weight_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const ct__deform_slice s = slice_of(j, chunk);
    char *sum = j->dws + chunk * j->bands * j->weight_bytes;
    (void)worker;
    if (j->t.d.batch * j->t.d.pixels == 0) memset(sum, 0, (size_t)j->weight_bytes);
    else
        for (int64_t i = 1; i < j->parts * j->bands; i++) {
            const int64_t slot = i / j->bands * j->slices * j->bands + i % j->bands;
            j->isa->add[j->size == 8](sum, sum + slot * j->weight_bytes, j->weight_bytes / j->size);
        }
    move_weight(j, &s, j->dw, sum, false);
}

/* ---- The kernel ---- */

const char *ct__deform_gradient_can(const ct_call *call) {
    const ct_deform d = geometry(call);
    if (!call->out[0]) return "dx is not asked for";
    return ct__deform_can(call->in[1], call->in[0], &d);
}

/* Bytes of what lies beside the workers' own, in the order of the run. */
enum { SHARED = 5 };
static int64_t shared_bytes(const job *j, int64_t *bytes) {
    const int64_t slots = j->parts * j->slices, chunks = slots * j->bands;
    bytes[0] = j->dw ? chunks * j->weight_bytes : 0;
    bytes[1] = slots * j->moves_bytes;
    bytes[2] = j->bands > 1 ? chunks * image_bytes(j) : 0;
    bytes[3] = j->bands > 1 ? chunks * (int64_t)sizeof *j->rows : 0;
    bytes[4] = j->slices * j->weight_bytes;
    int64_t sum = 0;
    for (int i = 0; i < SHARED; i++) sum += (int64_t)ct__room(bytes[i]);
    return sum;
}

size_t ct__deform_gradient_scratch(const ct_call *call) {
    const job j = job_of(call);
    int64_t bytes[SHARED];
    return (size_t)shared_bytes(&j, bytes) + j.room * (size_t)ct__threads();
}

bool ct__deform_gradient_run(const ct_call *call, const ct__deform_isa *isa) {
    job j = job_of(call);
    const int64_t all = j.t.d.offset_groups * j.t.d.taps;
    int64_t bytes[SHARED];
    char *at = ct__scratch(call);
    j.isa = isa;
    shared_bytes(&j, bytes);
    j.dws = ct__claim(&at, bytes[0]);
    j.moves = ct__claim(&at, bytes[1]);
    j.dxs = ct__claim(&at, bytes[2]);
    j.rows = (void *)ct__claim(&at, bytes[3]);
    j.weights = ct__claim(&at, bytes[4]);
    j.workers = at;
    ct__parallel(j.slices, transpose_chunk, &j);
    for (; j.first_image < j.t.d.batch; j.first_image += j.parts) {
        const int64_t images = ct__min(j.parts, j.t.d.batch - j.first_image), chunks = images * j.slices * j.bands;
        ct__parallel(chunks, slice_chunk, &j);
        if (j.bands > 1) ct__parallel(chunks, band_chunk, &j);
        if (j.moves_bytes) ct__parallel(images * all, moves_chunk, &j);
    }
    if (j.dw) ct__parallel(j.slices, weight_chunk, &j);
    return true;
}
