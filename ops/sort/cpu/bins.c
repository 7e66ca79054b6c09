/* Kernels of unique_runs, bincount, histogram, histogram_places and searchsorted. Counts of chunks are added in their order. */
#include <stdatomic.h>

#include "ops/sort/cpu/values.h"

#include "gen/sort.attrs.h"

enum { CHUNK = 64 * 1024, MOST_BINS = 4096, MOST_CHUNKS = 64 };

/* The offset of element `index` in row-major order. */
static inline int64_t offset_of(const ct_view *v, int64_t index) {
    int64_t offset = 0;
    for (int i = v->ndim - 1; i >= 0; i--) {
        offset += index % v->dims[i] * v->strides[i];
        index /= v->dims[i];
    }
    return offset;
}

static int64_t count_of(const ct_view *v) {
    int64_t count = 1;
    for (int i = 0; i < v->ndim; i++) count *= v->dims[i];
    return count;
}

/* ---- unique_runs ---- */

typedef struct runs {
    int64_t *starts, *count, *run;
    int64_t n, step, starts_step, run_step;
} runs;

#define RUNS(D)                                                                                    \
    static void runs_##D(const runs *r, const void *from) {                                        \
        const D##_element *x = from;                                                               \
        int64_t count = 0;                                                                         \
        for (int64_t i = 0; i < r->n; i++) {                                                       \
            if (i == 0 || D##_value(x[i * r->step]) != D##_value(x[(i - 1) * r->step])) {          \
                if (r->starts) r->starts[count * r->starts_step] = i;                              \
                count++;                                                                           \
            }                                                                                      \
            if (r->run) r->run[i * r->run_step] = count - 1;                                       \
        }                                                                                          \
        if (r->count) *r->count = count;                                                           \
        for (int64_t i = count; r->starts && i <= r->n; i++) r->starts[i * r->starts_step] = r->n; \
    }
FOR_EACH_DTYPE(RUNS)

static bool unique_runs_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    static void (*const table[CT_DTYPE_COUNT])(const runs *, const void *) = TABLE(runs);
    const ct_view *x = call->in[0];
    runs r = {.n = x->dims[0], .step = x->strides[0]};
    if (call->out[0]) {
        r.starts = CT_AT(int64_t, call->out[0]);
        r.starts_step = call->out[0]->strides[0];
    }
    if (call->n_out > 1 && call->out[1]) r.count = CT_AT(int64_t, call->out[1]);
    if (call->n_out > 2 && call->out[2]) {
        r.run = CT_AT(int64_t, call->out[2]);
        r.run_step = call->out[2]->strides[0];
    }
    table[x->dtype](&r, ct__address(x, ct_dtype_size(x->dtype)));
    return true;
}

/* ---- Counting: bincount and histogram ---- */

typedef struct counting {
    const ct_call *call;
    int64_t n, chunk, chunks, bins;
    double *sums;    /* (chunks, bins): weights */
    int64_t *counts; /* (chunks, bins): without them */
    _Atomic bool failed;
} counting;

/* As many chunks as keep their counts small beside the work. */
static counting counting_of(const ct_call *call, int64_t bins) {
    counting c = {.call = call, .n = count_of(call->in[0]), .bins = bins};
    int64_t most = bins <= MOST_BINS ? MOST_CHUNKS : 1, grain = ct__max64(ct__grain(CHUNK), bins);
    c.chunks = ct__max64(1, ct__min64(most, (c.n + grain - 1) / grain));
    c.chunk = (c.n + c.chunks - 1) / c.chunks;
    c.sums = ct__scratch(call);
    c.counts = ct__scratch(call);
    return c;
}

static size_t counting_bytes(const counting *c) { return (size_t)(c->chunks * c->bins) * sizeof(int64_t); }

static void bincount_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    counting *c = ctx;
    const ct_view *x = c->call->in[0], *w = c->call->in[1];
    int64_t from = chunk * c->chunk, to = ct__min64(c->n, from + c->chunk);
    double *sums = c->sums + chunk * c->bins;
    int64_t *counts = c->counts + chunk * c->bins;
    if (c->bins) memset(counts, 0, (size_t)c->bins * sizeof *counts); /* also the bits of 0.0 */
    for (int64_t i = from; i < to; i++) {
        int64_t value = x->dtype == CT_I64 ? CT_AT(const int64_t, x)[i * x->strides[0]]
                                           : CT_AT(const int32_t, x)[i * x->strides[0]];
        if (value < 0 || value >= c->bins) {
            if (!atomic_exchange(&c->failed, true)) ct__wrong_index(c->call, 0, i, value, value < 0 ? -1 : c->bins);
            return;
        }
        if (!w) {
            counts[value]++;
            continue;
        }
        int64_t at = i * w->strides[0];
        switch (w->dtype) {
        case CT_F32: sums[value] += (double)CT_AT(const float, w)[at]; break;
        case CT_F64: sums[value] += CT_AT(const double, w)[at]; break;
        case CT_F16: sums[value] += (double)f16_value(CT_AT(const uint16_t, w)[at]); break;
        default: sums[value] += (double)bf16_value(CT_AT(const uint16_t, w)[at]); break;
        }
    }
}

static size_t bincount_sized_scratch(const ct_call *call) {
    counting c = counting_of(call, ((const bincount_sized_attrs *)call->attrs)->size);
    return counting_bytes(&c);
}

static bool bincount_sized_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    counting c = counting_of(call, ((const bincount_sized_attrs *)call->attrs)->size);
    ct_view *y = call->out[0];
    if (c.n == 0) c.chunks = 0;
    ct__parallel(c.chunks, bincount_task, &c);
    if (atomic_load(&c.failed)) return false;
    for (int64_t k = 0; k < c.bins; k++) {
        double sum = 0;
        int64_t count = 0, at = k * y->strides[0];
        for (int64_t i = 0; i < c.chunks; i++) {
            if (call->in[1]) sum += c.sums[i * c.bins + k];
            else count += c.counts[i * c.bins + k];
        }
        switch (y->dtype) {
        case CT_I64: CT_AT(int64_t, y)[at] = count; break;
        case CT_F32: CT_AT(float, y)[at] = (float)sum; break;
        case CT_F64: CT_AT(double, y)[at] = sum; break;
        case CT_F16: CT_AT(uint16_t, y)[at] = f16_round(sum); break;
        default: CT_AT(uint16_t, y)[at] = bf16_round(sum); break;
        }
    }
    return true;
}

typedef struct edges {
    double lo, hi, scale;
    int64_t bins;
} edges;

static edges edges_of(int64_t bins, double lo, double hi) {
    const bool point = lo == hi;
    edges e = {.lo = lo - 0.5 * point, .hi = hi + 0.5 * point, .bins = bins};
    e.scale = (double)e.bins / (e.hi - e.lo);
    return e;
}

/* The part that v falls into, `bins` for none. Division rounds: the part is corrected by its own edges. */
static inline int64_t part_of(const edges *e, double v) {
    if (!(v >= e->lo && v <= e->hi)) return e->bins;
    int64_t k = (int64_t)((v - e->lo) * e->scale);
    if (k >= e->bins) k = e->bins - 1;
    if (k > 0 && v < e->lo + (e->hi - e->lo) * ((double)k / (double)e->bins)) k--;
    else if (k < e->bins - 1 && v >= e->lo + (e->hi - e->lo) * ((double)(k + 1) / (double)e->bins)) k++;
    return k;
}

/* counts has room for bins + 1; with places, of elements from..to and apart by places_step, the parts themselves. */
#define HISTOGRAM(D)                                                                                           \
    static void histogram_##D(const ct_view *x, int64_t from, int64_t to, const edges *e, int64_t *counts,     \
                              int64_t *places, int64_t places_step) {                                          \
        const D##_element *at = CT_AT(const D##_element, x);                                                   \
        while (from < to) { /* runs along the last dimension */                                                \
            int64_t length = x->ndim ? x->dims[x->ndim - 1] : 1, step = x->ndim ? x->strides[x->ndim - 1] : 0; \
            int64_t run = ct__min64(length - from % length, to - from);                                        \
            const D##_element *row = at + offset_of(x, from);                                                  \
            if (places)                                                                                        \
                for (int64_t i = 0; i < run; i++, places += places_step)                                       \
                    *places = part_of(e, (double)D##_value(row[i * step]));                                    \
            else                                                                                               \
                for (int64_t i = 0; i < run; i++) counts[part_of(e, (double)D##_value(row[i * step]))]++;      \
            from += run;                                                                                       \
        }                                                                                                      \
    }
FOR_EACH_DTYPE(HISTOGRAM)

static void (*const histogram_table[CT_DTYPE_COUNT])(const ct_view *, int64_t, int64_t, const edges *, int64_t *,
                                                     int64_t *, int64_t) = TABLE(histogram);

static void histogram_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const counting *c = ctx;
    const histogram_attrs *attrs = c->call->attrs;
    const edges e = edges_of(attrs->bins, attrs->lo, attrs->hi);
    int64_t *counts = c->counts + chunk * c->bins;
    memset(counts, 0, (size_t)c->bins * sizeof *counts);
    histogram_table[c->call->in[0]->dtype](c->call->in[0], chunk * c->chunk, ct__min64(c->n, (chunk + 1) * c->chunk),
                                           &e, counts, NULL, 0);
}

/* One count more than there are parts: for what falls into none. */
static size_t histogram_scratch(const ct_call *call) {
    counting c = counting_of(call, ((const histogram_attrs *)call->attrs)->bins + 1);
    return counting_bytes(&c);
}

static const char *histogram_can(const ct_call *call) { return call->in[1] ? "weights are summed by index" : NULL; }

static bool histogram_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    counting c = counting_of(call, ((const histogram_attrs *)call->attrs)->bins + 1);
    const ct_view *y = call->out[0];
    if (c.n == 0) c.chunks = 0;
    ct__parallel(c.chunks, histogram_task, &c);
    for (int64_t k = 0; k < c.bins - 1; k++) {
        int64_t count = 0;
        for (int64_t i = 0; i < c.chunks; i++) count += c.counts[i * c.bins + k];
        CT_AT(int64_t, y)[k * y->strides[0]] = count;
    }
    return true;
}

static void places_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const counting *c = ctx;
    const histogram_places_attrs *attrs = c->call->attrs;
    const edges e = edges_of(attrs->bins, attrs->lo, attrs->hi);
    const int64_t from = chunk * c->chunk;
    const int64_t step = c->call->out[0]->strides[0];
    histogram_table[c->call->in[0]->dtype](c->call->in[0], from, ct__min64(c->n, from + c->chunk), &e, NULL,
                                           CT_AT(int64_t, c->call->out[0]) + from * step, step);
}

static bool histogram_places_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    counting c = {.call = call, .n = count_of(call->in[0]), .chunk = ct__grain(CHUNK)};
    ct__parallel((c.n + c.chunk - 1) / c.chunk, places_task, &c);
    return true;
}

/* ---- searchsorted ---- */

typedef struct searching {
    const ct_view *sorted, *values, *out;
    bool right;
    int64_t count, chunk;
} searching;

/* The first place whose element is not before the value: a < v, or a <= v on the right; NaN is the greatest and
 * equals NaN. */
#define SEARCH_LINE(D)                                                                                         \
    static inline int64_t search_line_##D(const D##_element *line, int64_t n, int64_t step, D##_element value, \
                                          bool right) {                                                        \
        const __typeof__(D##_value(value)) v = D##_value(value);                                               \
        int64_t lo = 0, hi = n;                                                                                \
        while (lo < hi) {                                                                                      \
            const int64_t middle = lo + (hi - lo) / 2;                                                         \
            const __typeof__(D##_value(value)) a = D##_value(line[middle * step]);                             \
            if (right ? a <= v || v != v : a < v || (v != v && a == a)) lo = middle + 1;                       \
            else hi = middle;                                                                                  \
        }                                                                                                      \
        return lo;                                                                                             \
    }
FOR_EACH_DTYPE(SEARCH_LINE)

#define SEARCH(D)                                                                                          \
    static void search_##D(const searching *s, int64_t from, int64_t to) {                                 \
        int64_t n = s->sorted->dims[s->sorted->ndim - 1], step = s->sorted->strides[s->sorted->ndim - 1];  \
        int64_t m = s->values->ndim ? s->values->dims[s->values->ndim - 1] : 1;                            \
        for (int64_t i = from; i < to; i++) {                                                              \
            const D##_element *line = CT_AT(const D##_element, s->sorted);                                 \
            if (s->sorted->ndim > 1 && n) line += offset_of(s->sorted, i / m * n); /* its first element */ \
            const D##_element *at = CT_AT(const D##_element, s->values) + offset_of(s->values, i);         \
            CT_AT(int64_t, s->out)[offset_of(s->out, i)] = search_line_##D(line, n, step, *at, s->right);  \
        }                                                                                                  \
    }
FOR_EACH_DTYPE(SEARCH)

static void search_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    static void (*const table[CT_DTYPE_COUNT])(const searching *, int64_t, int64_t) = TABLE(search);
    const searching *s = ctx;
    table[s->values->dtype](s, chunk * s->chunk, ct__min64(s->count, (chunk + 1) * s->chunk));
}

static bool searchsorted_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    searching s = {.sorted = call->in[0],
                   .values = call->in[1],
                   .out = call->out[0],
                   .right = ((const searchsorted_attrs *)call->attrs)->right};
    s.count = count_of(s.values);
    s.chunk = ct__grain(2048);
    ct__parallel((s.count + s.chunk - 1) / s.chunk, search_task, &s);
    return true;
}
static const char *searchsorted_can(const ct_call *call) { return call->in[2] ? "a sorter is applied first" : NULL; }

CT_KERNELS(sort_bins) = {
    CT_CANDIDATES(unique_runs, {"unique_runs", NULL, NULL, unique_runs_run}),
    CT_CANDIDATES(bincount_sized, {"bincount", NULL, bincount_sized_scratch, bincount_sized_run}),
    CT_CANDIDATES(histogram, {"histogram", histogram_can, histogram_scratch, histogram_run}),
    CT_CANDIDATES(histogram_places, {"histogram_places", NULL, NULL, histogram_places_run}),
    CT_CANDIDATES(searchsorted, {"binary_search", searchsorted_can, NULL, searchsorted_run}),
    {0},
};
