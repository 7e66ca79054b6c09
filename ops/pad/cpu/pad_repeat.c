/* pad_repeat and its gradient, row by row along the last axis. Forward, an element looks up where it comes from;
 * backward, an element of x looks up all that came from it, so that threads never meet. */
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"
#include "ops/index/cpu/half_rows.h"

#include "gen/pad.attrs.h"

enum { CHUNK = 32 << 10 };

/* Which element of an axis of `size` elements stands at place o - before of its padded form. */
static int64_t source(int mode, int64_t place, int64_t size) {
    if (place >= 0 && place < size) return place;
    switch (mode) {
    case CT_PAD_REFLECT: return place < 0 ? -place : 2 * (size - 1) - place;
    case CT_PAD_REPLICATE: return place < 0 ? 0 : size - 1;
    default: return place < 0 ? place + size : place - size;
    }
}

typedef struct job {
    int ndim, mode;
    const ct_view *small, *large; /* x or its gradient; the padded one */
    int64_t before[CT_MAX_DIMS];
    int64_t rows, chunk;
    size_t size;
    char *scratch; /* a row of sums for each worker */
} job;

static int64_t rows_of(const ct_view *view) {
    int64_t rows = 1;
    for (int d = 0; d < view->ndim - 1; d++) rows *= view->dims[d];
    return rows;
}

/* ---- Forward ---- */

static void pad_row(const job *j, char *dst, const char *src) {
    const int last = j->ndim - 1;
    const int64_t width = j->large->dims[last], size = j->small->dims[last], before = j->before[last],
                  bytes = (int64_t)j->size;
    const int64_t ds = j->large->strides[last], ss = j->small->strides[last];
    ct__copy_run(dst + before * ds * bytes, ds, src, ss, size, j->size);
    for (int64_t o = 0; o < width; o++) {
        if (o == before) o += size;
        if (o < width) memcpy(dst + o * ds * bytes, src + source(j->mode, o - before, size) * ss * bytes, j->size);
    }
}

static void pad_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    const int64_t end = ct__min64((chunk + 1) * j->chunk, j->rows);
    for (int64_t row = chunk * j->chunk; row < end; row++) {
        int64_t rest = row, to = 0, from = 0;
        for (int d = j->ndim - 2; d >= 0; d--) {
            const int64_t o = rest % j->large->dims[d];
            rest /= j->large->dims[d];
            to += o * j->large->strides[d];
            from += source(j->mode, o - j->before[d], j->small->dims[d]) * j->small->strides[d];
        }
        pad_row(j, (char *)ct__address(j->large, j->size) + to * (int64_t)j->size,
                (const char *)ct__address(j->small, j->size) + from * (int64_t)j->size);
    }
}

static job plan(const ct_view *small, const ct_view *large, const ct_dims *pads, int mode, const ct_view *rows) {
    job j = {.ndim = small->ndim,
             .mode = mode,
             .small = small,
             .large = large,
             .rows = rows_of(rows),
             .size = ct_dtype_size(small->dtype)};
    for (int d = 0; d < j.ndim; d++) j.before[d] = pads->d[2 * d];
    j.chunk = ct__grain(1 + CHUNK / ct__max64(1, large->dims[j.ndim - 1]));
    return j;
}

static bool run_pad(const ct_call *call, ct_stream *stream) {
    const pad_repeat_attrs *at = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    (void)stream;
    if (y->ndim == 0) {
        ct__copy_view(y, x);
        return true;
    }
    job j = plan(x, y, &at->pads, at->mode, y);
    if (y->dims[y->ndim - 1]) ct__parallel((j.rows + j.chunk - 1) / j.chunk, pad_chunk, &j);
    return true;
}

/* ---- Backward: an element of x is the sum of those that show it. Half types are summed in f32. ---- */

typedef void (*add_fn)(const job *j, void *sums, const char *row);
typedef void (*store_fn)(char *dst, int64_t stride, const void *sums, int64_t n);

#define LOAD_PLAIN(p) (*(p))
#define STORE_PLAIN(to, stride, sum, n) \
    for (int64_t i = 0; i < (n); i++) (to)[i * (stride)] = (sum)[i]
#define D         f32
#define T         float
#define SUM       float
#define LOAD      LOAD_PLAIN
#define STORE_ROW STORE_PLAIN
#include "ops/pad/cpu/pad_grad_row.h"
#define D         f64
#define T         double
#define SUM       double
#define LOAD      LOAD_PLAIN
#define STORE_ROW STORE_PLAIN
#include "ops/pad/cpu/pad_grad_row.h"
#define D         f16
#define T         uint16_t
#define SUM       float
#define LOAD      from_f16
#define STORE_ROW store_f16
#include "ops/pad/cpu/pad_grad_row.h"
#define D         bf16
#define T         uint16_t
#define SUM       float
#define LOAD      from_bf16
#define STORE_ROW store_bf16
#include "ops/pad/cpu/pad_grad_row.h"

static const struct rows_of_type {
    add_fn add;
    store_fn store;
    size_t sum;
} row_types[] = {
    [CT_F32] = {sum_f32, put_f32, sizeof(float)},
    [CT_F64] = {sum_f64, put_f64, sizeof(double)},
    [CT_F16] = {sum_f16, put_f16, sizeof(float)},
    [CT_BF16] = {sum_bf16, put_bf16, sizeof(float)},
};

/* The places of the padded axis d that show element i are, in order, where source() gives i. There are at most three,
 * but for the borders under replicate. Calls itself for the axes after d; at the last one, adds the row. */
static void add_shown(const job *j, int d, const int64_t *at, int64_t offset, void *sums) {
    const int last = j->ndim - 1;
    if (d == last) {
        row_types[j->large->dtype].add(j, sums,
                                       (const char *)ct__address(j->large, j->size) + offset * (int64_t)j->size);
        return;
    }
    const int64_t width = j->large->dims[d], size = j->small->dims[d], before = j->before[d], i = at[d],
                  step = j->large->strides[d];
    if (j->mode == CT_PAD_REPLICATE) {
        const int64_t first = i == 0 ? 0 : before + i, end = i == size - 1 ? width : before + i + 1;
        for (int64_t o = first; o < end; o++) add_shown(j, d + 1, at, offset + o * step, sums);
        return;
    }
    const bool mirror = j->mode == CT_PAD_REFLECT;
    const int64_t left = before + (mirror ? -i : i - size), right = before + (mirror ? 2 * (size - 1) - i : i + size);
    if (left >= 0 && left < before) add_shown(j, d + 1, at, offset + left * step, sums);
    add_shown(j, d + 1, at, offset + (before + i) * step, sums);
    if (right < width && right >= before + size) add_shown(j, d + 1, at, offset + right * step, sums);
}

static void grad_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const int last = j->ndim - 1;
    const int64_t width = j->small->dims[last], end = ct__min64((chunk + 1) * j->chunk, j->rows);
    const size_t bytes = (size_t)width * row_types[j->small->dtype].sum;
    char *sums = j->scratch + (size_t)worker * ((bytes + 63) / 64 * 64);
    for (int64_t row = chunk * j->chunk; row < end; row++) {
        int64_t rest = row, to = 0, at[CT_MAX_DIMS];
        for (int d = last - 1; d >= 0; d--) {
            at[d] = rest % j->small->dims[d];
            rest /= j->small->dims[d];
            to += at[d] * j->small->strides[d];
        }
        memset(sums, 0, bytes);
        add_shown(j, 0, at, 0, sums);
        row_types[j->small->dtype].store((char *)ct__address(j->small, j->size) + to * (int64_t)j->size,
                                         j->small->strides[last], sums, width);
    }
}

static size_t grad_scratch(const ct_call *call) {
    const ct_view *y = call->out[0];
    const size_t width = y->ndim ? (size_t)y->dims[y->ndim - 1] : 1;
    return (width * row_types[y->dtype].sum + 63) / 64 * 64 * (size_t)ct__threads();
}

static bool run_grad(const ct_call *call, ct_stream *stream) {
    const pad_repeat_grad_attrs *at = call->attrs;
    const ct_view *g = call->in[0], *y = call->out[0];
    (void)stream;
    if (y->ndim == 0) {
        ct__copy_view(y, g);
        return true;
    }
    job j = plan(y, g, &at->pads, at->mode, y);
    j.scratch = ct__scratch(call);
    if (y->dims[y->ndim - 1]) ct__parallel((j.rows + j.chunk - 1) / j.chunk, grad_chunk, &j);
    return true;
}

CT_KERNELS(pad_pad_repeat) = {
    CT_CANDIDATES(pad_repeat, {"pad_repeat_rows", NULL, NULL, run_pad}),
    CT_CANDIDATES(pad_repeat_grad, {"pad_repeat_grad_rows", NULL, grad_scratch, run_grad}),
    {0},
};
