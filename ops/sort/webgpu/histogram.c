/* histogram_places on a device that has no f64. */
#include "backends/webgpu/webgpu.h"

#include "gen/sort.attrs.h"

enum { THREADS = 256 };

CT_WGPU_UNIT(sort_histogram);

static const char real[] = "fn number_of(x: x_t) -> ct_f64 { return ct_f64_of_f32(x); }\n",
                  word[] = "fn number_of(x: x_t) -> ct_f64 { return ct_f64_of_i32(x); }\n",
                  wide[] = "fn number_of(x: x_t) -> ct_f64 { return ct_f64_of_i64(x); }\n";

/* As in the device code. */
typedef struct params {
    uint32_t total, bins, out_step, pad;
    double lo, hi, width, scale;
    uint32_t dims[CT_WGPU_DIMS], strides[CT_WGPU_DIMS];
} params;

static const char *can(const ct_call *call) {
    const histogram_places_attrs *a = call->attrs;
    if (call->in[0]->dtype > CT_BOOL) return "no arithmetic on this dtype";
    if (a->bins >= INT32_MAX) return "too many bins";
    return ct_wgpu_refuses(call);
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const histogram_places_attrs *a = call->attrs;
    const ct_view *x = call->in[0];
    const bool point = a->lo == a->hi;
    ct_wgpu_nest nest;
    ct_wgpu_nest_of(&nest, &x, 1);
    params p;
    memset(&p, 0, sizeof p);
    p.total = nest.total, p.bins = (uint32_t)a->bins, p.out_step = (uint32_t)call->out[0]->strides[0];
    p.lo = a->lo - 0.5 * point, p.hi = a->hi + 0.5 * point;
    p.width = p.hi - p.lo, p.scale = (double)a->bins / p.width;
    memcpy(p.dims, nest.dims, sizeof p.dims);
    memcpy(p.strides, nest.strides[0], sizeof p.strides);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "parts", THREADS);
    l.more = x->dtype <= CT_BF16 ? real : x->dtype == CT_I64 ? wide : word;
    ct_wgpu_in(&l, "x", x);
    ct_wgpu_out(&l, "out", call->out[0]);
    ct_wgpu_constant(&l, "RANK", nest.rank);
    return ct_wgpu_enqueue(call, &l, ct_wgpu_groups(p.total, THREADS), &p, sizeof p);
}

CT_WGPU_KERNELS(sort_histogram) = {
    CT_CANDIDATES(histogram_places, {"histogram_places", can, NULL, run}),
    {0},
};
