/* Kernels of sort, argsort, topk, kthvalue and median. Lines are turned into items (items.h); many lines are shared
 * out among the threads, few long ones are each sorted by all. */
#include "backends/cpu/kernel.h"
#include "ops/scan/cpu/lines.h"
#include "ops/sort/cpu/items.h"

#include "gen/sort.attrs.h"

enum {
    LONG_LINE = 64 * 1024,   /* from here on a line is worth all threads, */
    FEW_LINES = 16,          /* if there are not more lines than this */
    NEIGHBORS = 16,          /* lines that are brought together when they lie across rows, */
    PACKED_LINE = 16 * 1024, /* up to this length */
    BLOCK = 64,              /* elements that topk looks at together */
    WRITE_CHUNK = 32 * 1024,
};

/* What every kernel here works on: x, values and indices along one axis. */
typedef struct sorting {
    const ct_view *views[3]; /* x, values, indices; the latter two may be NULL */
    int axis;
    int64_t n, lines;
    ct_dtype dtype;
    size_t element, item;
    bool wide, descending, first_nan;
    int64_t k;     /* how many results a line has, or which one */
    bool across;   /* lines are columns: bundles of them are brought together first */
    char *scratch; /* for each worker: items, and behind them packed lines */
    size_t per_worker, item_bytes;
} sorting;

static sorting sorting_of(const ct_call *call, int64_t axis, bool indices_only) {
    const ct_view *x = call->in[0];
    sorting s = {
        .dtype = x->dtype, .element = ct_dtype_size(x->dtype), .scratch = ct__scratch(call), .n = 1, .lines = 1};
    s.axis = x->ndim ? (int)(axis < 0 ? axis + x->ndim : axis) : 0;
    for (int i = 0; i < x->ndim; i++) {
        if (i == s.axis) s.n = x->dims[i];
        else s.lines *= x->dims[i];
    }
    s.views[0] = x;
    s.views[indices_only ? 2 : 1] = call->out[0];
    if (call->n_out > 1) s.views[2] = call->out[1];
    s.wide = ct__items_wide(s.dtype, s.n);
    s.item = ct__item_size(s.dtype, s.n);
    s.across = x->ndim > 1 && x->strides[s.axis] != 1 && s.n > 1 && s.n <= PACKED_LINE && s.lines > 1;
    return s;
}

/* Room for x, values and indices of a bundle of packed lines. */
static size_t packed_bytes(const sorting *s) {
    return s->across ? NEIGHBORS * (size_t)s->n * (2 * s->element + sizeof(int64_t)) : 0;
}

static size_t worker_bytes(const sorting *s, size_t item_bytes) {
    return (item_bytes + packed_bytes(s) + 63) / 64 * 64;
}

static char *items_of(const sorting *s, const ct_bundle *b) { return s->scratch + (size_t)b->worker * s->per_worker; }

/* Lines of a view as rows of a buffer, or back; row by row of the view, which is how it lies in memory. */
static void move_lines(char *rows, char *view, int64_t step, int64_t line, int64_t n, int64_t width, size_t element,
                       bool back) {
#define MOVE(U)                                                                                                \
    case sizeof(U):                                                                                            \
        for (int64_t i = 0; i < n; i++)                                                                        \
            for (int64_t j = 0; j < width; j++) {                                                              \
                U *inside = (U *)(void *)rows + j * n + i, *outside = (U *)(void *)view + i * step + j * line; \
                if (back) *outside = *inside;                                                                  \
                else *inside = *outside;                                                                       \
            }                                                                                                  \
        break;
    switch (element) {
        MOVE(uint8_t)
        MOVE(uint16_t)
        MOVE(uint32_t)
        MOVE(uint64_t)
    }
#undef MOVE
}

/* The bundle with x packed behind the items. */
static ct_bundle with_packed_x(const sorting *s, const ct_bundle *b) {
    ct_bundle packed = *b;
    if (!s->across) return packed;
    packed.at[0] = items_of(s, b) + s->item_bytes;
    packed.step[0] = 1;
    packed.line[0] = s->n;
    move_lines(packed.at[0], b->at[0], b->step[0], b->line[0], s->n, b->width, s->element, false);
    return packed;
}

/* The same with room for the results, which are copied to the output afterwards. */
static ct_bundle with_packed_results(const sorting *s, const ct_bundle *b) {
    ct_bundle packed = with_packed_x(s, b);
    if (!s->across) return packed;
    char *room = packed.at[0] + NEIGHBORS * (size_t)s->n * s->element;
    for (int k = 2; k >= 1; k--) { /* indices first: they need the stricter alignment */
        if (!b->at[k]) continue;
        packed.at[k] = room;
        packed.step[k] = 1;
        packed.line[k] = s->n;
        room += NEIGHBORS * (size_t)s->n * sizeof(int64_t);
    }
    return packed;
}

static void copy_results_out(const sorting *s, const ct_bundle *packed, const ct_bundle *b) {
    for (int k = 1; k <= 2 && s->across; k++)
        if (b->at[k])
            move_lines(packed->at[k], b->at[k], b->step[k], b->line[k], s->n, b->width,
                       k == 1 ? s->element : sizeof(int64_t), true);
}

static const char *x_of(const ct_bundle *b, const sorting *s, int64_t line) {
    return b->at[0] + line * b->line[0] * (int64_t)s->element;
}

/* Results [from, to) of a line, from its items in order. */
static void write_line(const sorting *s, const ct_bundle *b, int64_t line, const char *items, int64_t from,
                       int64_t to) {
    const char *some = items + (size_t)from * s->item;
    int64_t element = (int64_t)s->element;
    if (b->at[1])
        ct__items_values(some, s->wide, to - from, x_of(b, s, line), b->step[0],
                         b->at[1] + (line * b->line[1] + from * b->step[1]) * element, b->step[1], s->element);
    if (b->at[2])
        ct__items_places(some, s->wide, to - from, (int64_t *)(void *)b->at[2] + line * b->line[2] + from * b->step[2],
                         b->step[2]);
}

/* ---- Sorts ---- */

static bool by_long_lines(const sorting *s) { return s->n >= LONG_LINE && s->n < UINT32_MAX && s->lines < FEW_LINES; }

static void sort_bundle(void *ctx, const ct_bundle *b) {
    const sorting *s = ctx;
    char *items = items_of(s, b), *spare = items + (size_t)s->n * s->item;
    ct_bundle packed = with_packed_results(s, b);
    for (int64_t j = 0; j < b->width; j++) {
        ct__items_make(items, s->wide, s->dtype, x_of(&packed, s, j), packed.step[0], s->n, 0, s->descending);
        write_line(s, &packed, j, ct__sort_items(items, spare, s->wide, ct__key_bits(s->dtype), s->n), 0, s->n);
    }
    copy_results_out(s, &packed, b);
}

typedef struct long_line {
    const sorting *s;
    const ct_bundle *b;
    char *items;
} long_line;

static void make_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const long_line *l = ctx;
    const sorting *s = l->s;
    int64_t from = chunk * WRITE_CHUNK, n = ct__min64(s->n - from, WRITE_CHUNK);
    ct__items_make(l->items + (size_t)from * s->item, s->wide, s->dtype,
                   l->b->at[0] + from * l->b->step[0] * (int64_t)s->element, l->b->step[0], n, from, s->descending);
}

static void write_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const long_line *l = ctx;
    write_line(l->s, l->b, 0, l->items, chunk * WRITE_CHUNK, ct__min64(l->s->n, (chunk + 1) * WRITE_CHUNK));
}

/* Called for one line at a time, by the caller's thread alone, so that the pool is free for the line. */
static void sort_long_line(const sorting *s, const ct_bundle *b) {
    long_line l = {s, b, s->scratch};
    char *spare = s->scratch + (size_t)s->n * s->item, *counts = spare + (size_t)s->n * s->item;
    int64_t chunks = (s->n + WRITE_CHUNK - 1) / WRITE_CHUNK;
    ct__parallel(chunks, make_task, &l);
    l.items = ct__sort_items_parallel(l.items, spare, counts, s->wide, ct__key_bits(s->dtype), s->n);
    ct__parallel(chunks, write_task, &l);
}

static void walk_long_lines(const sorting *s) {
    const ct_view *x = s->views[0];
    for (int64_t line = 0; line < s->lines; line++) {
        ct_bundle b = {.width = 1};
        int64_t rest = line, offset[3] = {0};
        for (int i = x->ndim - 1; i >= 0; i--) {
            if (i == s->axis) continue;
            for (int k = 0; k < 3; k++)
                if (s->views[k]) offset[k] += rest % x->dims[i] * s->views[k]->strides[i];
            rest /= x->dims[i];
        }
        for (int k = 0; k < 3; k++) {
            if (!s->views[k]) continue;
            int64_t size = (int64_t)ct_dtype_size(s->views[k]->dtype);
            b.at[k] = (char *)s->views[k]->buffer + (s->views[k]->offset + offset[k]) * size;
            b.step[k] = s->views[k]->strides[s->axis];
        }
        sort_long_line(s, &b);
    }
}

static size_t sort_bytes(const sorting *s) { return 2 * (size_t)s->n * s->item; }

static size_t sort_scratch_of(const sorting *s) {
    if (s->n == 0 || s->lines == 0) return 0;
    return by_long_lines(s) ? sort_bytes(s) + ct__sort_counts(s->n)
                            : worker_bytes(s, sort_bytes(s)) * (size_t)ct__threads();
}

static bool sort_run_of(sorting *s) {
    s->item_bytes = sort_bytes(s);
    s->per_worker = worker_bytes(s, s->item_bytes);
    if (s->n == 0 || s->lines == 0) return true;
    if (by_long_lines(s)) walk_long_lines(s);
    else ct__lines(s->views, 3, s->axis, -1, 1, NEIGHBORS, 16 * s->n, sort_bundle, s);
    return true;
}

#define SORT_FUNCTIONS(op, indices_only)                                                     \
    static size_t op##_scratch(const ct_call *call) {                                        \
        sorting s = sorting_of(call, ((const op##_attrs *)call->attrs)->axis, indices_only); \
        return sort_scratch_of(&s);                                                          \
    }                                                                                        \
    static bool op##_run(const ct_call *call, ct_stream *stream) {                           \
        (void)stream;                                                                        \
        const op##_attrs *attrs = call->attrs;                                               \
        sorting s = sorting_of(call, attrs->axis, indices_only);                             \
        s.descending = attrs->descending;                                                    \
        return sort_run_of(&s);                                                              \
    }
SORT_FUNCTIONS(sort, false)
SORT_FUNCTIONS(argsort, true)

/* ---- topk: the best k so far and some candidates; what is worse than the k-th is not looked at ---- */

static int64_t candidates_of(int64_t k) { return ct__max64(2 * k, BLOCK) + BLOCK; }

static void topk_bundle(void *ctx, const ct_bundle *bundle) {
    const sorting *s = ctx;
    char *kept = items_of(s, bundle), *block = kept + (size_t)candidates_of(s->k) * s->item;
    int64_t room = candidates_of(s->k);
    const ct_bundle packed = with_packed_x(s, bundle), *b = &packed;
    for (int64_t j = 0; j < b->width; j++) {
        int64_t count = 0;
        bool full = false; /* then the k-th is the bar */
        for (int64_t from = 0; from < s->n; from += BLOCK) {
            int64_t n = ct__min64(s->n - from, BLOCK);
            ct__items_make(block, s->wide, s->dtype, x_of(b, s, j) + from * b->step[0] * (int64_t)s->element,
                           b->step[0], n, from, s->descending);
            count = ct__items_keep(kept, count, block, n, s->wide, full ? s->k - 1 : -1);
            if (count + BLOCK <= room && from + n < s->n) continue;
            if (count > s->k) ct__select_items(kept, s->wide, count, s->k);
            if (count >= s->k) {
                count = s->k;
                full = true;
            }
        }
        ct__order_items(kept, block, s->wide, s->k);
        write_line(s, b, j, kept, 0, s->k);
    }
}

static size_t topk_bytes(const sorting *s) { return (size_t)(candidates_of(s->k) + ct__max64(BLOCK, s->k)) * s->item; }

static size_t topk_scratch(const ct_call *call) {
    const topk_attrs *attrs = call->attrs;
    sorting s = sorting_of(call, attrs->axis, false);
    s.k = attrs->k;
    return worker_bytes(&s, topk_bytes(&s)) * (size_t)ct__threads();
}

static bool topk_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const topk_attrs *attrs = call->attrs;
    sorting s = sorting_of(call, attrs->axis, false);
    s.k = attrs->k;
    s.descending = !attrs->smallest;
    s.item_bytes = topk_bytes(&s);
    s.per_worker = worker_bytes(&s, s.item_bytes);
    if (s.k > 0 && s.lines > 0) ct__lines(s.views, 3, s.axis, -1, 1, NEIGHBORS, 4 * s.n, topk_bundle, &s);
    return true;
}

/* ---- kthvalue, median ---- */

static void kth_bundle(void *ctx, const ct_bundle *bundle) {
    const sorting *s = ctx;
    char *items = items_of(s, bundle);
    const ct_bundle packed = with_packed_x(s, bundle), *b = &packed;
    for (int64_t j = 0; j < b->width; j++) {
        ct__items_make(items, s->wide, s->dtype, x_of(b, s, j), b->step[0], s->n, 0, false);
        int64_t nan = s->first_nan ? ct__items_first_nan(items, s->wide, s->dtype, s->n) : -1, at = s->k - 1;
        if (nan >= 0) at = nan;
        else ct__select_items(items, s->wide, s->n, s->k);
        write_line(s, b, j, items + (size_t)at * s->item, 0, 1);
    }
}

static size_t kth_scratch(const ct_call *call, int64_t axis) {
    sorting s = sorting_of(call, axis, false);
    return s.n > 0 && s.lines > 0 ? worker_bytes(&s, (size_t)s.n * s.item) * (size_t)ct__threads() : 0;
}

static bool kth_run(sorting *s) {
    s->item_bytes = (size_t)s->n * s->item;
    s->per_worker = worker_bytes(s, s->item_bytes);
    if (s->n > 0 && s->lines > 0) ct__lines(s->views, 3, s->axis, -1, 1, NEIGHBORS, 8 * s->n, kth_bundle, s);
    return true;
}

static size_t kthvalue_scratch(const ct_call *call) {
    return kth_scratch(call, ((const kthvalue_attrs *)call->attrs)->axis);
}
static size_t median_scratch(const ct_call *call) {
    return kth_scratch(call, ((const median_attrs *)call->attrs)->axis);
}

static bool kthvalue_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const kthvalue_attrs *attrs = call->attrs;
    sorting s = sorting_of(call, attrs->axis, false);
    s.k = attrs->k;
    return kth_run(&s);
}

static bool median_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    sorting s = sorting_of(call, ((const median_attrs *)call->attrs)->axis, false);
    s.k = (s.n - 1) / 2 + 1;
    s.first_nan = ct_dtype_is_float(s.dtype);
    return kth_run(&s);
}

CT_KERNELS(sort_sort) = {
    CT_CANDIDATES(topk, {"topk_candidates", NULL, topk_scratch, topk_run}),
    CT_CANDIDATES(kthvalue, {"quickselect", NULL, kthvalue_scratch, kthvalue_run}),
    CT_CANDIDATES(median, {"quickselect", NULL, median_scratch, median_run}),
    CT_CANDIDATES(sort, {"radix_sort", NULL, sort_scratch, sort_run}),
    CT_CANDIDATES(argsort, {"radix_sort", NULL, argsort_scratch, argsort_run}),
    {0},
};
