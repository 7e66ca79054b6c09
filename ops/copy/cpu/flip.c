/* flip and roll are strided copies of x or of its parts; triangles go row by row. */
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"

#include "gen/copy.attrs.h"

static bool run_flip(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_dims axes = ((const flip_attrs *)call->attrs)->axes;
    ct_view x = *call->in[0];
    for (int i = 0; i < axes.n; i++) {
        const int axis = (int)(axes.d[i] < 0 ? axes.d[i] + x.ndim : axes.d[i]);
        if (x.ndim == 0 || x.dims[axis] == 0) continue;
        x.offset += (x.dims[axis] - 1) * x.strides[axis];
        x.strides[axis] = -x.strides[axis];
    }
    ct__copy_view(call->out[0], &x);
    return true;
}

/* Each shifted axis cuts what is left into two boxes. */
static void roll_box(ct_view y, ct_view x, const ct_dims *shifts, int axis) {
    while (axis < x.ndim && (shifts->d[axis] == 0 || shifts->d[axis] == x.dims[axis])) axis++;
    if (axis == x.ndim) {
        ct__copy_view(&y, &x);
        return;
    }
    const int64_t shift = shifts->d[axis], stays = x.dims[axis] - shift;
    ct_view to = y, from = x;
    to.dims[axis] = from.dims[axis] = stays;
    to.offset += shift * y.strides[axis];
    roll_box(to, from, shifts, axis + 1);
    to = y, from = x;
    to.dims[axis] = from.dims[axis] = shift;
    from.offset += stays * x.strides[axis];
    roll_box(to, from, shifts, axis + 1);
}

static bool run_roll(const ct_call *call, ct_stream *stream) {
    (void)stream;
    roll_box(*call->out[0], *call->in[0], &((const roll_axes_attrs *)call->attrs)->shifts, 0);
    return true;
}

/* ---- Triangles ---- */

typedef struct triangle {
    const ct_view *y, *x;
    size_t size;
    int64_t diagonal, rows, chunk;
    bool upper, stream;
} triangle;

static void triangle_chunk(void *context, int64_t chunk, int worker) {
    static const uint64_t zero;
    const triangle *t = context;
    const ct_view *y = t->y, *x = t->x;
    const int last = y->ndim - 1;
    const int64_t width = y->dims[last], size = (int64_t)t->size, step = y->strides[last];
    (void)worker;
    const int64_t end = ct__min64((chunk + 1) * t->chunk, t->rows);
    for (int64_t row = chunk * t->chunk; row < end; row++) {
        int64_t rest = row, to = 0, from = 0;
        for (int d = last - 1; d >= 0; d--) {
            const int64_t i = rest % y->dims[d];
            rest /= y->dims[d];
            to += i * y->strides[d];
            from += i * x->strides[d];
        }
        /* the first column of the row that is above the diagonals of tril, or inside those of triu */
        const int64_t edge = ct__max64(0, ct__min64(width, row % y->dims[last - 1] + t->diagonal + !t->upper));
        const int64_t begin = t->upper ? edge : 0, stop = t->upper ? width : edge;
        char *dst = (char *)ct__address(y, t->size) + to * size;
        const char *src = (const char *)ct__address(x, t->size) + (from + begin * x->strides[last]) * size;
        if (t->stream) {
            ct__stream_fill_run(dst, begin, &zero, t->size);
            ct__stream_run(dst + begin * size, src, stop - begin, t->size);
            ct__stream_fill_run(dst + stop * size, width - stop, &zero, t->size);
            continue;
        }
        ct__fill_run(dst, step, begin, &zero, t->size);
        if (stop > begin) ct__copy_run(dst + begin * step * size, step, src, x->strides[last], stop - begin, t->size);
        ct__fill_run(dst + stop * step * size, step, width - stop, &zero, t->size);
    }
    if (t->stream) ct__stream_end();
}

static bool run_triangle(const ct_call *call, int64_t diagonal, bool upper) {
    const ct_view *y = call->out[0];
    const int64_t limit = (int64_t)1 << 40; /* diagonals further out are all the same */
    triangle t = {.y = y,
                  .x = call->in[0],
                  .size = ct_dtype_size(y->dtype),
                  .diagonal = ct__max64(-limit, ct__min64(limit, diagonal)),
                  .rows = 1,
                  .upper = upper};
    for (int d = 0; d < y->ndim - 1; d++) t.rows *= y->dims[d];
    const int64_t bytes = y->dims[y->ndim - 1] * (int64_t)t.size;
    if (t.rows == 0 || bytes == 0) return true;
    t.stream = bytes >= 2048 && y->strides[y->ndim - 1] == 1 && t.x->strides[y->ndim - 1] == 1 &&
               ct__stream_worth(t.rows * bytes);
    t.chunk = ct__grain(1 + (128 << 10) / bytes);
    ct__parallel((t.rows + t.chunk - 1) / t.chunk, triangle_chunk, &t);
    return true;
}

static bool run_tril(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return run_triangle(call, ((const tril_attrs *)call->attrs)->diagonal, false);
}
static bool run_triu(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return run_triangle(call, ((const triu_attrs *)call->attrs)->diagonal, true);
}

CT_KERNELS(copy_flip) = {
    CT_CANDIDATES(flip, {"flip_copy", NULL, NULL, run_flip}),
    CT_CANDIDATES(roll_axes, {"roll_copy", NULL, NULL, run_roll}),
    CT_CANDIDATES(tril, {"tril_rows", NULL, NULL, run_tril}),
    CT_CANDIDATES(triu, {"triu_rows", NULL, NULL, run_triu}),
    {0},
};
