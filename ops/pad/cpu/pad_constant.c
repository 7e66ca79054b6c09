/* pad_constant, row by row: fill, copy, fill. */
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"
#include "core/dtype.h"

#include "gen/pad.attrs.h"

enum { CHUNK = 128 << 10 }; /* bytes */

typedef struct job {
    int ndim;
    int64_t dims[CT_MAX_DIMS], before[CT_MAX_DIMS], size[CT_MAX_DIMS]; /* of the result; where x starts in it; x */
    int64_t ds[CT_MAX_DIMS], ss[CT_MAX_DIMS];
    char *dst;
    const char *src;
    size_t element;
    char value[8];
    int64_t rows, rows_a_chunk;
    bool stream;
} job;

/* Neighboring axes become one where the inner one is not padded and both sides lie evenly in memory. */
static void merge(job *j) {
    int n = 0;
    for (int i = 0; i < j->ndim; i++) {
        const bool whole = j->before[i] == 0 && j->dims[i] == j->size[i];
        const int p = n - 1;
        if (n && whole && j->ds[p] == j->ds[i] * j->dims[i] && j->ss[p] == j->ss[i] * j->dims[i]) {
            j->dims[p] *= j->dims[i], j->before[p] *= j->dims[i], j->size[p] *= j->dims[i];
            j->ds[p] = j->ds[i], j->ss[p] = j->ss[i];
        } else {
            j->dims[n] = j->dims[i], j->before[n] = j->before[i], j->size[n] = j->size[i];
            j->ds[n] = j->ds[i], j->ss[n] = j->ss[i];
            n++;
        }
    }
    j->ndim = n;
}

static void pad_row(const job *j, char *dst, const char *src, bool inside) {
    const int last = j->ndim - 1;
    const int64_t width = j->dims[last], ds = j->ds[last], size = (int64_t)j->element;
    int64_t from = ct__max64(j->before[last], 0), to = ct__min64(j->before[last] + j->size[last], width);
    if (!inside || to <= from) from = to = width;
    if (j->stream) {
        ct__stream_fill_run(dst, from, j->value, j->element);
        if (to > from) ct__stream_run(dst + from * size, src + (from - j->before[last]) * size, to - from, j->element);
        ct__stream_fill_run(dst + to * size, width - to, j->value, j->element);
        return;
    }
    ct__fill_run(dst, ds, from, j->value, j->element);
    if (to > from)
        ct__copy_run(dst + from * ds * size, ds, src + (from - j->before[last]) * j->ss[last] * size, j->ss[last],
                     to - from, j->element);
    ct__fill_run(dst + to * ds * size, ds, width - to, j->value, j->element);
}

static void pad_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    const int64_t end = ct__min64((chunk + 1) * j->rows_a_chunk, j->rows);
    for (int64_t row = chunk * j->rows_a_chunk; row < end; row++) {
        int64_t rest = row, to = 0, from = 0;
        bool inside = true;
        for (int d = j->ndim - 2; d >= 0; d--) {
            const int64_t i = rest % j->dims[d], k = i - j->before[d];
            rest /= j->dims[d];
            to += i * j->ds[d];
            from += k * j->ss[d];
            inside &= k >= 0 && k < j->size[d];
        }
        pad_row(j, j->dst + to * (int64_t)j->element, inside ? j->src + from * (int64_t)j->element : j->src, inside);
    }
    if (j->stream) ct__stream_end();
}

static bool run(const ct_call *call, ct_stream *stream) {
    const pad_constant_attrs *at = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    (void)stream;
    job j = {.ndim = y->ndim, .element = ct_dtype_size(y->dtype), .rows = 1};
    j.dst = ct__address(y, j.element);
    j.src = ct__address(x, j.element);
    ct__dtype_put(y->dtype, j.value, at->value);
    int64_t count = 1;
    for (int i = 0; i < y->ndim; i++) {
        j.dims[i] = y->dims[i], j.size[i] = x->dims[i], j.before[i] = at->pads.d[2 * i];
        j.ds[i] = y->strides[i], j.ss[i] = x->strides[i];
        count *= y->dims[i];
    }
    if (count == 0) return true;
    merge(&j);
    if (j.ndim == 0) {
        memcpy(j.dst, j.src, j.element);
        return true;
    }
    for (int i = 0; i < j.ndim - 1; i++) j.rows *= j.dims[i];
    j.stream = j.dims[j.ndim - 1] * (int64_t)j.element >= 2048 && j.ds[j.ndim - 1] == 1 && j.ss[j.ndim - 1] == 1 &&
               ct__stream_worth(count * (int64_t)j.element);
    j.rows_a_chunk = ct__grain(1 + CHUNK / (j.dims[j.ndim - 1] * (int64_t)j.element));
    ct__parallel((j.rows + j.rows_a_chunk - 1) / j.rows_a_chunk, pad_chunk, &j);
    return true;
}

CT_KERNELS(pad_pad_constant) = {
    CT_CANDIDATES(pad_constant, {"pad_constant_rows", NULL, NULL, run}),
    {0},
};
