/* multinomial: with replacement by inverting the cumulative sum; without, the n smallest of the keys -log(u) / weight, in
 * their order, which draws one after the other with the right probabilities (Efraimidis and Spirakis, 2006). */
#include <float.h>
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "core/dtype.h"
#include "ops/random/cpu/philox/philox.h"

#include "gen/random.attrs.h"

typedef struct choice {
    double key;
    int64_t index;
} choice;

typedef struct draw {
    const ct_call *call;
    int64_t rows, k, n;
    bool replacement;
    char *scratch; /* for each worker: max(k doubles, n choices) */
    size_t room;
    _Atomic bool failed;
} draw;

/* 53 bits in [0, 1), as rand in f64 has them. */
static double uniform(ct_random at, uint64_t i) {
    uint32_t words[4];
    ct__philox(at, i / 2, words);
    const uint32_t *w = words + 2 * (i % 2);
    return (double)(((uint64_t)w[1] << 32 | w[0]) >> 11) * 0x1p-53;
}

static size_t room_of(const ct_call *call) {
    const multinomial_attrs *a = call->attrs;
    const ct_view *w = call->in[0];
    size_t k = (size_t)w->dims[w->ndim - 1], n = (size_t)a->n;
    size_t bytes = a->replacement ? k * sizeof(double) : n * sizeof(choice);
    return (bytes + 63) & ~(size_t)63;
}

static size_t multinomial_scratch(const ct_call *call) { return room_of(call) * (size_t)ct__threads(); }

static int64_t row_offset(const ct_view *view, int64_t row) {
    int64_t at = 0;
    for (int d = view->ndim - 2; d >= 0; d--) {
        at += row % view->dims[d] * view->strides[d];
        row /= view->dims[d];
    }
    return at;
}

static bool weight_of(draw *d, int64_t row, const char *from, int64_t j, double *weight) {
    const ct_view *w = d->call->in[0];
    size_t size = ct_dtype_size(w->dtype);
    *weight = ct__dtype_get(w->dtype, from + j * w->strides[w->ndim - 1] * (int64_t)size);
    if (*weight >= 0 && *weight < INFINITY) return true;
    d->failed = true;
    return ct__wrong_real(d->call, 0, NULL, row * d->k + j, *weight, 0, DBL_MAX);
}

static bool before(choice a, choice b) { return a.key < b.key || (a.key == b.key && a.index < b.index); }

/* A heap whose root is the last of those kept. */
static void sift(choice *heap, int64_t n, int64_t i) {
    choice moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
        if (!before(moved, heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

enum { BLOCK = 128 };

static bool load_weights(draw *d, int64_t row, const char *values, int64_t first, int n, double *weights) {
    const ct_view *w = d->call->in[0];
    int64_t step = w->strides[w->ndim - 1];
    bool bad = false;
    if (w->dtype == CT_F32) {
        const float *from = (const float *)(const void *)values + first * step;
        for (int i = 0; i < n; i++) {
            weights[i] = (double)from[i * step];
            bad |= !(weights[i] >= 0 && weights[i] < INFINITY);
        }
        if (!bad) return true;
    }
    for (int i = 0; i < n; i++) /* also finds the one to name */
        if (!weight_of(d, row, values, first + i, &weights[i])) return false;
    return true;
}

/* keys[i] = -log(1 - u) / weight for categories first to first + n - 1; 1 - u is exact and never zero. */
static void make_keys(const draw *d, int64_t row, int64_t first, int n, const double *weights, double *keys) {
    uint32_t words[4 * BLOCK];
    double rest[BLOCK];
    uint64_t element = (uint64_t)(row * d->k + first), before_it = element % 2; /* a block of words has two elements */
    CT_ISA_FN(ct__philox_fill)(d->call->random, 2 * (element - before_it), 2 * (n + (int)before_it), words);
    for (int i = 0; i < n; i++) {
        const uint32_t *w = words + 2 * ((uint64_t)i + before_it);
        rest[i] = 1 - (double)(int64_t)(((uint64_t)w[1] << 32 | w[0]) >> 11) * 0x1p-53;
    }
    for (int i = 0; i < n; i += VF64_LANES) {
        int m = n - i < VF64_LANES ? n - i : VF64_LANES;
        vf64 key = vf64_div(vf64_neg(vf64_log(vf64_load_n(rest + i, m))), vf64_load_n(weights + i, m));
        vf64_store_n(keys + i, key, m);
    }
}

static void without_replacement(draw *d, int64_t row, const char *from, choice *heap, int64_t *y, int64_t step) {
    int64_t kept = 0, positive = 0;
    for (int64_t first = 0; first < d->k; first += BLOCK) {
        double weights[BLOCK], keys[BLOCK];
        int n = (int)ct__min64(BLOCK, d->k - first);
        if (!load_weights(d, row, from, first, n, weights)) return;
        make_keys(d, row, first, n, weights, keys);
        for (int i = 0; i < n; i++) {
            if (weights[i] == 0) continue;
            positive++;
            choice c = {keys[i], first + i};
            if (kept < d->n) {
                heap[kept++] = c;
                if (kept == d->n)
                    for (int64_t k = d->n / 2 - 1; k >= 0; k--) sift(heap, d->n, k);
            } else if (before(c, heap[0])) {
                heap[0] = c;
                sift(heap, d->n, 0);
            }
        }
    }
    if (positive < d->n) {
        d->failed = true;
        ct__wrong_count(d->call, 0, "the number of weights above 0 in row", row, positive, d->n, CT_NO_BOUND);
        return;
    }
    for (int64_t left = d->n; left > 0; left--) {
        y[(left - 1) * step] = heap[0].index;
        heap[0] = heap[left - 1];
        sift(heap, left - 1, 0);
    }
}

static void with_replacement(draw *d, int64_t row, const char *weights, double *sums, int64_t *y, int64_t step) {
    double total = 0;
    int64_t last = -1; /* the last category that can be drawn */
    for (int64_t j = 0; j < d->k; j++) {
        double w;
        if (!weight_of(d, row, weights, j, &w)) return;
        if (w > 0) last = j;
        sums[j] = total += w;
    }
    if (last < 0 || total == INFINITY) {
        d->failed = true;
        ct__wrong_real(d->call, 0, "the sum of the weights in row", row, total, DBL_MIN, DBL_MAX);
        return;
    }
    for (int64_t i = 0; i < d->n; i++) {
        double target = uniform(d->call->random, (uint64_t)(row * d->n + i)) * total;
        int64_t low = 0, high = last; /* the first category whose sum exceeds target */
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (sums[middle] > target) high = middle;
            else low = middle + 1;
        }
        y[i * step] = low;
    }
}

static void draw_row(void *context, int64_t row, int worker) {
    draw *d = context;
    const ct_view *w = d->call->in[0], *out = d->call->out[0];
    if (d->failed) return;
    const char *weights =
        (const char *)ct__address(w, ct_dtype_size(w->dtype)) + row_offset(w, row) * (int64_t)ct_dtype_size(w->dtype);
    int64_t *y = CT_AT(int64_t, out) + row_offset(out, row), step = out->strides[out->ndim - 1];
    void *scratch = d->scratch + (size_t)worker * d->room;
    if (d->replacement) with_replacement(d, row, weights, scratch, y, step);
    else without_replacement(d, row, weights, scratch, y, step);
}

static bool run_multinomial(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const multinomial_attrs *a = call->attrs;
    const ct_view *w = call->in[0];
    draw d = {.call = call,
              .rows = 1,
              .k = w->dims[w->ndim - 1],
              .n = a->n,
              .replacement = a->replacement,
              .scratch = ct__scratch(call),
              .room = room_of(call)};
    for (int i = 0; i < w->ndim - 1; i++) d.rows *= w->dims[i];
    if (d.n == 0) return true;
    ct__parallel(d.rows, draw_row, &d);
    return !d.failed;
}

CT_KERNELS(random_multinomial) = {
    CT_CANDIDATES(multinomial, {"rows", NULL, multinomial_scratch, run_multinomial}),
    {0},
};
