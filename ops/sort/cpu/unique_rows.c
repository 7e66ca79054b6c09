/* unique_rows: a stable merge sort of row numbers, then the runs of equal rows. NaN is the greatest and equals nothing. */
#include "ops/sort/cpu/values.h"

#include "gen/sort.attrs.h"

typedef struct rows {
    const void *x;
    int64_t n, m, line, step; /* rows, their elements, and what lies between them in memory */
} rows;

/* 1: a comes after b; 0: it comes before or is equal, and *equal says which. */
typedef bool (*after_fn)(const rows *r, int64_t a, int64_t b, bool *equal);

#define AFTER(D)                                                                                     \
    static bool after_##D(const rows *r, int64_t a, int64_t b, bool *equal) {                        \
        const D##_element *p = (const D##_element *)r->x + a * r->line;                              \
        const D##_element *q = (const D##_element *)r->x + b * r->line;                              \
        *equal = true;                                                                               \
        for (int64_t i = 0; i < r->m; i++) {                                                         \
            __typeof__(D##_value(*p)) v = D##_value(p[i * r->step]), w = D##_value(q[i * r->step]);  \
            if (v == w) continue;                                                                    \
            *equal = false;                                                                          \
            if (v != v && w != w) continue; /* two NaN: the elements behind them decide the order */ \
            return v != v || v > w;                                                                  \
        }                                                                                            \
        return false;                                                                                \
    }
FOR_EACH_DTYPE(AFTER)

static void merge(const rows *r, after_fn after, int64_t *to, const int64_t *from, int64_t middle, int64_t end) {
    int64_t i = 0, j = middle;
    bool equal;
    for (int64_t k = 0; k < end; k++)
        to[k] = j == end || (i < middle && !after(r, from[i], from[j], &equal)) ? from[i++] : from[j++];
}

static size_t scratch(const ct_call *call) { return 2 * (size_t)call->in[0]->dims[0] * sizeof(int64_t); }

static bool run(const ct_call *call, ct_stream *stream) {
    static const after_fn table[CT_DTYPE_COUNT] = TABLE(after);
    (void)stream;
    const ct_view *x = call->in[0], *outs[4] = {NULL};
    for (int i = 0; i < call->n_out; i++) outs[i] = call->out[i];
    const rows r = {ct__address(x, ct_dtype_size(x->dtype)), x->dims[0], x->dims[1], x->strides[0], x->strides[1]};
    const after_fn after = table[x->dtype];
    int64_t *order = ct__scratch(call), *other = order + r.n;
    for (int64_t i = 0; i < r.n; i++) order[i] = i;
    for (int64_t width = 1; width < r.n; width *= 2) {
        for (int64_t at = 0; at < r.n; at += 2 * width)
            merge(&r, after, other + at, order + at, ct__min64(width, r.n - at), ct__min64(2 * width, r.n - at));
        int64_t *swap = order;
        order = other, other = swap;
    }
    int64_t count = 0;
    for (int64_t i = 0; i < r.n; i++) {
        bool equal = false;
        if (i > 0) after(&r, order[i - 1], order[i], &equal);
        if (!equal) {
            if (outs[1]) CT_AT(int64_t, outs[1])[count * outs[1]->strides[0]] = i;
            count++;
        }
        if (outs[0]) CT_AT(int64_t, outs[0])[i * outs[0]->strides[0]] = order[i];
        if (outs[3]) CT_AT(int64_t, outs[3])[i * outs[3]->strides[0]] = count - 1;
    }
    for (int64_t i = count; outs[1] && i <= r.n; i++) CT_AT(int64_t, outs[1])[i * outs[1]->strides[0]] = r.n;
    if (outs[2]) *CT_AT(int64_t, outs[2]) = count;
    return true;
}

CT_KERNELS(sort_unique_rows) = {
    CT_CANDIDATES(unique_rows, {"merge_rows", NULL, scratch, run}),
    {0},
};
