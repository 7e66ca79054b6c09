/* Walks one or two views of the same shape in row-major order, in runs along the innermost dimension. Dimensions that lie
 * dense behind each other are one, so dense views are a single run. Used by kernels that write elements by their index. */
#ifndef COTANGENT_OPS_CREATE_ROWS_H
#define COTANGENT_OPS_CREATE_ROWS_H

#include <cotangent/op.h>

typedef struct rows {
    int ndim; /* at least 1 */
    int64_t count;
    int64_t dims[CT_MAX_DIMS];
    int64_t strides[2][CT_MAX_DIMS]; /* of y and of x, in elements; 0 without x */
} rows;

/* A run: n elements from element `first` on; at[v] and step[v] are the place (in elements from the view's first) and
 * the distance of neighbors in y (v = 0) and x (v = 1). */
typedef struct rows_run {
    int64_t first, n, at[2], step[2];
} rows_run;

static inline rows rows_of(const ct_view *y, const ct_view *x) {
    rows r = {.ndim = 0, .count = 1};
    for (int d = 0; d < y->ndim; d++) {
        int64_t size = y->dims[d], ys = y->strides[d], xs = x ? x->strides[d] : 0;
        r.count *= size;
        if (size == 1) continue;
        int last = r.ndim - 1;
        bool joins = last >= 0 && r.strides[0][last] == size * ys && r.strides[1][last] == size * xs;
        if (joins) {
            r.dims[last] *= size;
        } else {
            last = r.ndim++;
            r.dims[last] = size;
        }
        r.strides[0][last] = ys;
        r.strides[1][last] = xs;
    }
    if (r.ndim == 0) {
        r.ndim = 1;
        r.dims[0] = r.count;
        r.strides[0][0] = r.strides[1][0] = 1;
    }
    return r;
}

/* The run that starts at element `first` and ends before `end` or with its row. */
static inline rows_run rows_at(const rows *r, int64_t first, int64_t end) {
    rows_run run = {.first = first};
    int last = r->ndim - 1;
    int64_t rest = first;
    for (int d = last; d >= 0; d--) {
        int64_t i = rest % r->dims[d];
        rest /= r->dims[d];
        run.at[0] += i * r->strides[0][d];
        run.at[1] += i * r->strides[1][d];
        if (d == last) run.n = r->dims[d] - i;
    }
    if (run.n > end - first) run.n = end - first;
    run.step[0] = r->strides[0][last];
    run.step[1] = r->strides[1][last];
    return run;
}

#endif
