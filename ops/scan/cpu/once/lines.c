/* The lines of several views along one axis, in bundles of neighbors and fixed chunks. */
#include "ops/scan/cpu/lines.h"

#include <string.h>

#include "core/tensor.h"
#include "core/threads.h"

enum { GRAIN = 16 * 1024 };

typedef struct walk {
    int n, views;
    int64_t dims[CT_MAX_DIMS], strides[CT_LINES_VIEWS][CT_MAX_DIMS];
    int64_t inner, bundles; /* lines of the innermost dimension, and bundles that cut it */
    int64_t widest, chunk, tasks, total;
    int64_t element[CT_LINES_VIEWS];
    ct_bundle start;
    ct_bundle_fn fn;
    void *ctx;
} walk;

static int64_t magnitude(int64_t a) { return a < 0 ? -a : a; }

/* Dimension i of the views as the one at place `at` of the walk. */
static void put_dim(walk *w, int at, const ct_view *const *views, int axis, int i) {
    const ct_view *x = views[0];
    w->dims[at] = x->dims[i];
    for (int k = 0; k < w->views; k++) {
        if (!views[k]) continue;
        bool lacks_axis = views[k]->ndim < x->ndim;
        w->strides[k][at] = views[k]->strides[lacks_axis && i > axis ? i - 1 : i];
    }
}

/* All dimensions but the axis, the longest steps of the first view outermost, but for `inner`, which is innermost if it is one of them. */
static void take_dims(walk *w, const ct_view *const *views, int axis, int inner) {
    const ct_view *x = views[0];
    for (int i = 0; i < x->ndim; i++) {
        if (i == axis || i == inner) continue;
        int at = w->n++;
        while (at > 0 && magnitude(w->strides[0][at - 1]) < magnitude(x->strides[i])) {
            w->dims[at] = w->dims[at - 1];
            for (int k = 0; k < w->views; k++) w->strides[k][at] = w->strides[k][at - 1];
            at--;
        }
        put_dim(w, at, views, axis, i);
    }
    if (inner >= 0) put_dim(w, w->n++, views, axis, inner);
}

static void join_dims(walk *w) {
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->dims[i] == 1) continue;
        bool joins = n > 0;
        for (int k = 0; k < w->views; k++) joins = joins && w->strides[k][n - 1] == w->strides[k][i] * w->dims[i];
        n -= joins;
        w->dims[n] = joins ? w->dims[n] * w->dims[i] : w->dims[i];
        for (int k = 0; k < w->views; k++) w->strides[k][n] = w->strides[k][i];
        n++;
    }
    w->n = n;
}

static void run_bundle(const walk *w, int64_t number, int worker) {
    ct_bundle b = w->start;
    int64_t within = number % w->bundles * w->widest, outer = number / w->bundles;
    b.width = w->inner - within < w->widest ? w->inner - within : w->widest;
    b.first = outer * w->inner + within;
    b.worker = worker;
    int64_t offset[CT_LINES_VIEWS];
    for (int k = 0; k < w->views; k++) offset[k] = within * b.line[k];
    for (int i = w->n - 2; i >= 0; i--) {
        int64_t at = outer % w->dims[i];
        outer /= w->dims[i];
        for (int k = 0; k < w->views; k++) offset[k] += at * w->strides[k][i];
    }
    for (int k = 0; k < w->views; k++)
        if (b.at[k]) b.at[k] += offset[k] * w->element[k];
    w->fn(w->ctx, &b);
}

static void task(void *ctx, int64_t chunk, int worker) {
    const walk *w = ctx;
    int64_t end = (chunk + 1) * w->chunk < w->total ? (chunk + 1) * w->chunk : w->total;
    for (int64_t i = chunk * w->chunk; i < end; i++) run_bundle(w, i, worker);
}

void ct__lines(const ct_view *const *views, int n, int axis, int inner, int64_t narrowest, int64_t widest, int64_t cost,
               ct_bundle_fn fn, void *ctx) {
    walk w = {.views = n, .fn = fn, .ctx = ctx};
    for (int k = 0; k < n; k++) {
        if (!views[k]) continue;
        w.element[k] = (int64_t)ct_dtype_size(views[k]->dtype);
        w.start.at[k] = (char *)views[k]->buffer + views[k]->offset * w.element[k];
        w.start.step[k] = views[k]->ndim == views[0]->ndim && views[k]->ndim ? views[k]->strides[axis] : 0;
    }
    take_dims(&w, views, axis, inner);
    join_dims(&w);
    w.inner = w.n ? w.dims[w.n - 1] : 1;
    for (int k = 0; k < n; k++) w.start.line[k] = w.n ? w.strides[k][w.n - 1] : 0;
    int64_t lines = 1;
    for (int i = 0; i < w.n; i++) lines *= w.dims[i];
    bool any = false; /* lines without an element can be more than could ever be walked */
    for (int k = 0; k < n; k++) any |= views[k] && ct__view_count(views[k]) != 0;
    if (lines == 0 || !any) return;
    /* no wider than keeps a dozen bundles for the threads */
    w.widest = widest < 1 ? 1 : widest;
    while (w.widest / 2 >= narrowest && w.widest > 1 && lines / w.widest < 16 && w.widest * cost > ct__grain(GRAIN))
        w.widest /= 2;
    w.bundles = (w.inner + w.widest - 1) / w.widest;
    w.total = lines / w.inner * w.bundles;
    int64_t work = (cost > 0 ? cost : 1) * (w.widest < w.inner ? w.widest : w.inner), grain = ct__grain(GRAIN);
    w.chunk = grain > work ? grain / work : 1;
    ct__parallel((w.total + w.chunk - 1) / w.chunk, task, &w);
}
