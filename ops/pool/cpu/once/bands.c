/* Gradients of planes without depth, channels first, a band of rows at a time as single long lines: a row of g in scratch has
 * `pitch` elements, with room for what lies beside the windows, so that every tap lies a constant distance from its place. One
 * such line is made for each phase, the place modulo the two strides, and the rows of dx are interleaved from them. */
#include <string.h>

#include "ops/pool/cpu/ways.h"

typedef struct bands {
    const pool *p;
    bool stream;
    int64_t down, across; /* windows that the last tap lies beyond the first, along the two axes */
    int64_t pitch;        /* elements of a row in scratch */
    int64_t height, area; /* rows of a band, each of which has the phases' rows of dx; elements of a band in scratch */
    int64_t count;        /* bands of a plane */
    int64_t chunk;        /* bands */
    void *counts;         /* (out) how many elements a window of the last axis counts */
    char *memory;
    size_t worker_bytes;
} bands;

/* Scratch of one thread. */
typedef struct band_worker {
    char *g, *codes;     /* (area) rows of g, and of the winners */
    char *dx;            /* (phases, area) */
    const char **made;   /* (phases) where the line of each is: in dx, or g itself */
    const void **phases; /* (stride) those of one row */
    char *line;          /* (in) a row of dx */
    tap *taps;           /* of all phases */
    int32_t *lists;      /* (phases + 1) where the taps of each begin */
    plane_start plane;
} band_worker;

bool ct__pool_bands_suit(const pool *p) { return !p->channels_last && flat(&p->w); }

static int64_t phases_of(const ct_window *w) { return w->stride[1] * w->stride[2]; }

/* Bytes to what lies `row` rows and `column` elements on in scratch. */
static int64_t pitch_at(const bands *b, int64_t row, int64_t column) {
    return (row * b->pitch + column) * (int64_t)b->p->lines->size;
}

static void lay_out(const bands *b, band_worker *k, arena *a) {
    const ct_window *w = &b->p->w;
    const size_t size = b->p->lines->size;
    k->g = arena_take(a, b->area, size);
    k->codes = arena_take(a, b->p->max ? b->area : 0, size);
    k->dx = arena_take(a, b->area * phases_of(w), size);
    k->made = arena_take(a, phases_of(w), sizeof(char *));
    k->phases = arena_take(a, w->stride[2], sizeof(void *));
    k->line = arena_take(a, w->in[2], size);
    k->taps = arena_take(a, ct__window_taps(w), sizeof(tap));
    k->lists = arena_take(a, phases_of(w) + 1, 4);
}

static size_t plan(bands *b, const pool *p, arena *a) {
    const ct_window *w = &p->w;
    const int64_t rows = (w->before[1] + w->in[1] - 1) / w->stride[1] - w->before[1] / w->stride[1] + 1;
    const int64_t columns = (w->before[2] + w->in[2] - 1) / w->stride[2] + 1;
    band_worker k;
    arena worker = {0};
    *b = (bands){.p = p, .stream = streams_rows(p, p->native && p->to_s.s[2] == 1)};
    b->down = (w->kernel[1] - 1) * w->dilation[1] / w->stride[1];
    b->across = (w->kernel[2] - 1) * w->dilation[2] / w->stride[2];
    b->pitch = (b->across + most(w->out[2], columns) + 15) / 16 * 16;
    b->height = least(rows, most(1, 8192 / b->pitch));
    b->count = (rows + b->height - 1) / b->height;
    b->area = (b->height + b->down + 1) * b->pitch + 64;
    b->chunk = ct__grain(most(1, (32 << 10) / (b->height * b->pitch * phases_of(w))));
    b->counts = arena_take(a, p->max ? 0 : w->out[2], p->lines->size);
    lay_out(b, &k, &worker);
    b->worker_bytes = worker.used;
    if (a->memory) {
        if (!p->max) set_counts(p, b->counts);
        b->memory = a->memory + a->used;
    }
    return a->used + (size_t)ct__threads() * worker.used;
}

/* Zeros around the rows of g, and the taps of each phase, one list after the other from lists[phase] on. */
static void prepare(const bands *b, band_worker *k) {
    const ct_window *w = &b->p->w;
    int64_t count = 0;
    b->p->lines->fill(k->g, b->area, 0);
    if (b->p->max) memset(k->codes, 0, (size_t)b->area * b->p->lines->size);
    for (int64_t p = 0; p < w->stride[1]; p++)
        for (int64_t q = 0; q < w->stride[2]; q++) {
            k->lists[p * w->stride[2] + q] = (int32_t)count;
            for (int64_t i = 0; i < w->kernel[1]; i++)
                for (int64_t c = 0; c < w->kernel[2]; c++) {
                    const int64_t y = i * w->dilation[1] - p, x = c * w->dilation[2] - q;
                    if (y % w->stride[1] || x % w->stride[2]) continue;
                    const int64_t at = pitch_at(b, b->down - y / w->stride[1], b->across - x / w->stride[2]);
                    k->taps[count++] = (tap){k->g + at, k->codes + at, i * w->kernel[2] + c};
                }
        }
    k->lists[phases_of(w)] = (int32_t)count;
}

/* Rows o to o + n - 1 of g, divided where it was a mean, and the winners; zeros beyond. */
static void stage_cotangents(const bands *b, const band_worker *k, int64_t plane, int64_t o, int64_t n) {
    const pool *p = b->p;
    const ct_window *w = &p->w;
    const line_ops *ops = p->lines;
    for (int64_t i = 0; i < n; i++) {
        const row_place at = {plane, 0, o + i};
        char *g = k->g + pitch_at(b, i, b->across);
        if (o + i < 0 || o + i >= w->out[1]) {
            ops->fill(k->g + pitch_at(b, i, 0), b->pitch, 0);
            continue;
        }
        ops->load(g, p->from + (k->plane.from + row_at(&p->from_s, at)) * p->size, p->from_s.s[2], w->out[2], p->dtype);
        if (p->max) {
            ops->load_codes(k->codes + pitch_at(b, i, b->across),
                            p->winners + (k->plane.winners + row_at(&p->winner_s, at)) * p->winner_size,
                            p->winner_s.s[2], w->out[2], p->winner_dtype);
        } else {
            const tap itself = {g, NULL, 0};
            ops->sum(&itself, 1, 0, w->out[2], g, p->divisor ? NULL : b->counts, count_of(p, at));
        }
    }
}

/* Row i of phase p of the band, which is row h of dx. */
static void write_row(const bands *b, const band_worker *k, int64_t i, int64_t p, row_place at) {
    const pool *call = b->p;
    const ct_window *w = &call->w;
    const char *const *made = k->made + p * w->stride[2], *dx = made[0] + pitch_at(b, i, w->before[2]);
    char *to = call->to + (k->plane.to + row_at(&call->to_s, at)) * call->size;
    if (w->stride[2] > 1) {
        int64_t r = w->before[2] % w->stride[2], column = w->before[2] / w->stride[2];
        for (int64_t q = 0; q < least(w->stride[2], w->in[2]); q++) {
            k->phases[q] = made[r] + pitch_at(b, i, column);
            if (++r == w->stride[2]) r = 0, column++;
        }
        call->lines->interleave(k->line, k->phases, w->stride[2], w->in[2]);
        dx = k->line;
    }
    if (b->stream) call->isa->stream(to, dx, w->in[2], call->lines->size);
    else call->lines->store(to, call->to_s.s[2], dx, w->in[2], call->dtype);
}

static void backward_band(const bands *b, const band_worker *k, int64_t plane, int64_t band) {
    const ct_window *w = &b->p->w;
    const int64_t first = w->before[1] / w->stride[1] + band * b->height;
    const int64_t end = (w->before[1] + w->in[1] - 1) / w->stride[1] + 1, n = least(b->height, end - first);
    const int64_t length = (n - 1) * b->pitch + (w->before[2] + w->in[2] - 1) / w->stride[2] + 1;
    stage_cotangents(b, k, plane, first - b->down, n + b->down);
    for (int64_t p = 0; p < phases_of(w); p++) { /* a single tap of a mean is the line itself */
        const tap *taps = k->taps + k->lists[p];
        const int64_t count = k->lists[p + 1] - k->lists[p];
        char *dx = k->dx + p * b->area * (int64_t)b->p->lines->size;
        const bool itself = count == 1 && !b->p->max;
        k->made[p] = itself ? taps->value : dx;
        if (!itself) gather_line(b->p, taps, count, 0, length, dx);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < w->stride[1]; p++) {
            const row_place at = {plane, 0, (first + i) * w->stride[1] + p - w->before[1]};
            if (at.height >= 0 && at.height < w->in[1]) write_row(b, k, i, p, at);
        }
}

static void band_chunk(void *context, int64_t chunk, int worker) {
    const bands *b = context;
    band_worker k = {.plane.plane = -1};
    arena a = {.memory = b->memory + (size_t)worker * b->worker_bytes};
    lay_out(b, &k, &a);
    prepare(b, &k);
    for (int64_t u = chunk * b->chunk; u < least((chunk + 1) * b->chunk, b->p->planes * b->count); u++) {
        set_plane(b->p, &k.plane, u / b->count);
        backward_band(b, &k, u / b->count, u % b->count);
    }
    if (b->stream) b->p->isa->stream_end();
}

size_t ct__pool_bands_scratch(const pool *p) {
    bands b;
    return plan(&b, p, &(arena){0});
}

void ct__pool_bands_run(const pool *p, void *scratch) {
    bands b;
    plan(&b, p, &(arena){.memory = scratch});
    ct__parallel((p->planes * b.count + b.chunk - 1) / b.chunk, band_chunk, &b);
}
