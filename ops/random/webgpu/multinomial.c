/* multinomial on a device that has no f64. */
#include "backends/webgpu/lines.h"
#include "ops/sort/webgpu/sort.h"

#include "gen/random.attrs.h"

enum { THREADS = 256 };

CT_WGPU_UNIT(random_multinomial);

/* As in the device code. */
typedef struct params {
    uint32_t rows, k, n, room;
    uint32_t step[4];
    uint64_t seed, stream, call, pad;
    uint32_t dims[CT_WGPU_DIMS], strides[3][CT_WGPU_DIMS];
} params;

static int64_t categories(const ct_view *weights) { return weights->dims[weights->ndim - 1]; }

static size_t kept_bytes(const ct_view *weights) {
    const size_t bytes = (size_t)ct_wgpu_count(weights) * sizeof(uint64_t);
    return (bytes + CT_WGPU_ALIGNMENT - 1) / CT_WGPU_ALIGNMENT * CT_WGPU_ALIGNMENT;
}

/* The keys of all categories, as they lie in the scratch. */
static ct_view keys_of(const ct_call *call) {
    const ct_view *weights = call->in[0];
    ct_view keys = *weights;
    keys.buffer = call->scratch.buffer, keys.origin = call->scratch.offset;
    keys.offset = 0, keys.dtype = CT_I64;
    int64_t stride = 1;
    for (int d = keys.ndim - 1; d >= 0; d--) {
        keys.strides[d] = stride;
        stride *= keys.dims[d];
    }
    return keys;
}

static const char *can(const ct_call *call) {
    return call->in[0]->dtype <= CT_BF16 ? ct_wgpu_refuses(call) : "it takes floats";
}

static size_t scratch(const ct_call *call) {
    const multinomial_attrs *a = call->attrs;
    const ct_view keys = keys_of(call);
    return kept_bytes(call->in[0]) + (a->replacement ? 0 : ct_wgpu_sort_scratch(&keys, -1));
}

static bool launch(const ct_call *call, const char *function, const char *what, const params *p, uint32_t rank,
                   int64_t groups) {
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, THREADS);
    ct_wgpu_in(&l, "weights", call->in[0]);
    ct_wgpu_out(&l, "y", call->out[0]);
    ct_wgpu_scratch(&l, "kept", call, CT_I64, 0, kept_bytes(call->in[0]), CT_WGPU_WRITTEN);
    ct_wgpu_constant(&l, "RANK", rank);
    l.whats[0] = what;
    return ct_wgpu_enqueue(call, &l, groups, p, sizeof *p);
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const multinomial_attrs *a = call->attrs;
    const ct_view *weights = call->in[0], *y = call->out[0];
    if (ct_wgpu_count(y) == 0) return true;
    const ct_wgpu_lines lines = ct_wgpu_lines_of((const ct_view *const[]){weights, y}, 2, -1);
    params p;
    memset(&p, 0, sizeof p);
    p.rows = lines.nest.total, p.k = (uint32_t)categories(weights), p.n = (uint32_t)a->n;
    int bits = 0; /* of k */
    while (p.k >> bits) bits++;
    p.room = (uint32_t)(62 - bits);
    p.seed = call->random.seed, p.stream = call->random.stream, p.call = call->random.call;
    memcpy(p.dims, lines.nest.dims, sizeof p.dims);
    for (int i = 0; i < 2; i++) {
        p.step[i] = (uint32_t)lines.step[i];
        memcpy(p.strides[i], lines.nest.strides[i], sizeof p.strides[i]);
    }
    const uint32_t rank = lines.nest.rank;
    if (a->replacement)
        return launch(call, "sum_weights", "the sum of the weights in row", &p, rank, p.rows) &&
               launch(call, "draw", NULL, &p, rank, ct_wgpu_groups((int64_t)p.rows * p.n, THREADS));
    const ct_view keys = keys_of(call);
    return launch(call, "count_weights", "the number of weights above 0 in row", &p, rank, p.rows) &&
           launch(call, "make_keys", NULL, &p, rank, ct_wgpu_groups((int64_t)p.rows * p.k, THREADS)) &&
           ct_wgpu_sort(call, &keys, NULL, y, -1, false, kept_bytes(weights));
}

CT_WGPU_KERNELS(random_multinomial) = {
    CT_CANDIDATES(multinomial, {"rows", can, scratch, run}),
    {0},
};
