/* searchsorted. */
#include "backends/webgpu/lines.h"

#include "gen/sort.attrs.h"

enum { THREADS = 256 };

CT_WGPU_UNIT(sort_search);

static const char word[] = "fn key_of(x: values_t) -> u32 {\n"
                           "    return ct_key(ct_one_zero(bitcast<u32>(x), REAL == 1u), REAL == 1u);\n"
                           "}\n"
                           "fn below(a: u32, b: u32) -> bool { return a < b; }\n",
                  wide[] = "fn key_of(x: values_t) -> ct_i64 { return ct_rank_i64(x, true); }\n"
                           "fn below(a: ct_i64, b: ct_i64) -> bool { return ct_i64_below(a, b); }\n";

/* As in the device code. */
typedef struct params {
    uint32_t total, m, n, right;
    uint32_t step[4];
    uint32_t dims[CT_WGPU_DIMS], strides[3][CT_WGPU_DIMS];
} params;

static const char *can(const ct_call *call) {
    if (call->in[2]) return "a sorter is applied first";
    if (call->in[0]->dtype > CT_BOOL || call->in[0]->dtype != call->in[1]->dtype) return "no order on this dtype";
    return ct_wgpu_refuses(call);
}

/* With at least one dimension. */
static ct_view line_of(const ct_view *view) {
    ct_view v = *view;
    if (v.ndim == 0) v.ndim = 1, v.dims[0] = 1, v.strides[0] = 0;
    return v;
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view values = line_of(call->in[1]), out = line_of(call->out[0]), *given = call->in[0];
    const int last = values.ndim - 1;
    /* One sorted line is that of all. */
    ct_view sorted = *given;
    if (given->ndim == 1 && last > 0) {
        memset(sorted.strides, 0, sizeof sorted.strides);
        memcpy(sorted.dims, values.dims, sizeof sorted.dims);
        sorted.ndim = values.ndim;
        sorted.strides[last] = given->strides[0];
    }
    const ct_wgpu_lines lines = ct_wgpu_lines_of((const ct_view *const[]){&values, &sorted, &out}, 3, last);
    params p;
    memset(&p, 0, sizeof p);
    p.m = (uint32_t)values.dims[last], p.n = (uint32_t)given->dims[given->ndim - 1];
    p.total = (uint32_t)ct_wgpu_count(&values);
    p.right = ((const searchsorted_attrs *)call->attrs)->right;
    memcpy(p.dims, lines.nest.dims, sizeof p.dims);
    for (int i = 0; i < 3; i++) {
        p.step[i] = (uint32_t)lines.step[i];
        memcpy(p.strides[i], lines.nest.strides[i], sizeof p.strides[i]);
    }
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "search", THREADS);
    l.more = given->dtype == CT_I64 ? wide : word;
    ct_wgpu_in(&l, "values", call->in[1]);
    ct_wgpu_in(&l, "sorted", given);
    ct_wgpu_out(&l, "out", call->out[0]);
    ct_wgpu_constant(&l, "RANK", lines.nest.rank);
    ct_wgpu_constant(&l, "REAL", given->dtype <= CT_BF16);
    return ct_wgpu_enqueue(call, &l, ct_wgpu_groups(p.total, THREADS), &p, sizeof p);
}

CT_WGPU_KERNELS(sort_search) = {
    CT_CANDIDATES(searchsorted, {"binary_search", can, NULL, run}),
    {0},
};
