/* strided_grad: zeros, then a copy where the places are distinct, else sums in a fixed order. */
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"

#include "gen/view.attrs.h"

typedef struct job {
    int ndim, free; /* the first `free` dimensions lead each to places of its own: threads share them out */
    int64_t dims[CT_MAX_DIMS], to[CT_MAX_DIMS], from[CT_MAX_DIMS]; /* by falling stride in the result */
    char *dst;
    const char *src;
    ct_dtype dtype;
    int64_t parts, parts_a_chunk;
} job;

static int64_t plan(const ct_call *call, job *j) {
    const strided_grad_attrs *at = call->attrs;
    const ct_view *g = call->in[0];
    int64_t count = 1;
    memset(j, 0, sizeof *j);
    j->dtype = g->dtype;
    for (int i = 0; i < g->ndim; i++) {
        count *= g->dims[i];
        if (g->dims[i] == 1) continue;
        int k = j->ndim++;
        for (; k > 0 && j->to[k - 1] < at->strides.d[i]; k--) {
            j->dims[k] = j->dims[k - 1];
            j->to[k] = j->to[k - 1];
            j->from[k] = j->from[k - 1];
        }
        j->dims[k] = g->dims[i], j->to[k] = at->strides.d[i], j->from[k] = g->strides[i];
    }
    if (count == 0) return 0; /* the strides of nothing may be anything */
    int64_t reach = 0;        /* how far the dimensions after i go */
    for (int i = j->ndim - 1; i >= 0; i--) {
        j->free = j->to[i] > reach ? j->free + 1 : 0;
        reach += (j->dims[i] - 1) * j->to[i];
    }
    return count;
}

static const char *can(const ct_call *call) {
    job j;
    const ct_dtype dtype = call->in[0]->dtype;
    plan(call, &j);
    if (j.free == j.ndim) return NULL;
    return dtype == CT_F16 || dtype == CT_BF16 ? "sums of half types are made in f32" : NULL;
}

#define ADD_ROW(name, T)                                                        \
    static void name(T *to, int64_t ts, const T *from, int64_t fs, int64_t n) { \
        if (ts == 1 && fs == 1)                                                 \
            for (int64_t i = 0; i < n; i++) to[i] += from[i];                   \
        else                                                                    \
            for (int64_t i = 0; i < n; i++) to[i * ts] += from[i * fs];         \
    }
ADD_ROW(add_f32, float)
ADD_ROW(add_f64, double)

static void add_row(const job *j, int64_t to, int64_t from) {
    const int last = j->ndim - 1;
    const int64_t n = j->dims[last], ts = j->to[last], fs = j->from[last];
    void *dst = j->dst + to * (int64_t)ct_dtype_size(j->dtype);
    const void *src = j->src + from * (int64_t)ct_dtype_size(j->dtype);
    if (j->dtype == CT_F32) add_f32(dst, ts, src, fs, n);
    else add_f64(dst, ts, src, fs, n);
}

static void add_from(const job *j, int d, int64_t to, int64_t from) {
    if (d == j->ndim - 1) {
        add_row(j, to, from);
        return;
    }
    for (int64_t i = 0; i < j->dims[d]; i++) add_from(j, d + 1, to + i * j->to[d], from + i * j->from[d]);
}

static void add_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    const int64_t end = ct__min64((chunk + 1) * j->parts_a_chunk, j->parts);
    for (int64_t part = chunk * j->parts_a_chunk; part < end; part++) {
        int64_t rest = part, to = 0, from = 0;
        for (int d = j->free - 1; d >= 0; d--) {
            to += rest % j->dims[d] * j->to[d];
            from += rest % j->dims[d] * j->from[d];
            rest /= j->dims[d];
        }
        add_from(j, j->free, to, from);
    }
}

static bool run(const ct_call *call, ct_stream *stream) {
    const strided_grad_attrs *at = call->attrs;
    const ct_view *g = call->in[0], *y = call->out[0];
    const size_t size = ct_dtype_size(y->dtype);
    const uint64_t zero = 0;
    (void)stream;
    job j;
    const int64_t count = plan(call, &j);
    ct__fill(ct__address(y, size), y->strides, y->ndim, y->dims, &zero, size);
    if (count == 0) return true;
    j.dst = (char *)ct__address(y, size) + at->offset * (int64_t)size;
    j.src = ct__address(g, size);
    if (j.free == j.ndim) {
        ct__copy(j.dst, j.to, j.src, j.from, j.ndim, j.dims, size);
        return true;
    }
    j.parts = 1;
    for (int i = 0; i < j.free; i++) j.parts *= j.dims[i];
    j.parts_a_chunk = ct__grain(1 + (32 << 10) / (count / j.parts));
    ct__parallel((j.parts + j.parts_a_chunk - 1) / j.parts_a_chunk, add_chunk, &j);
    return true;
}

/* The result's places are counted in a dense result. */
static const char *can_run(const ct_call *call) {
    const ct_view *y = call->out[0];
    int64_t stride = 1;
    for (int i = y->ndim - 1; i >= 0; i--) {
        if (y->dims[i] != 1 && y->strides[i] != stride) return "the destination is not dense";
        stride *= y->dims[i];
    }
    return can(call);
}

CT_KERNELS(view_strided) = {
    CT_CANDIDATES(strided_grad, {"strided_grad", can_run, NULL, run}),
    {0},
};
