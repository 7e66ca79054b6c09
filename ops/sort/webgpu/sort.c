/* Sort along an axis: tiles in shared memory, then as many passes of merges as a long line needs. */
#include "ops/sort/webgpu/sort.h"

#include "backends/webgpu/lines.h"

#include "gen/sort.attrs.h"

enum { THREADS = 256, TILE = 4 * THREADS };

/* Items that are sorted at once, however many lines there are: it limits the scratch memory. */
static const int64_t most_items = (int64_t)1 << 24;

CT_WGPU_UNIT(sort_sort);
extern const char ct_wgsl_sort_narrow[], ct_wgsl_sort_wide[];

/* As in the device code. */
typedef struct params {
    uint32_t n, tiles, first_line, line_count, kept, room, run, last, descending, pad[3];
    uint32_t step[4];
    uint32_t dims[CT_WGPU_DIMS], strides[3][CT_WGPU_DIMS];
} params;

static int64_t length_of(const ct_view *x, int64_t axis) { return x->ndim ? x->dims[ct_wgpu_axis(x, axis)] : 1; }

/* Lines whose merges share the scratch memory. */
static int64_t lines_at_once(int64_t lines, int64_t n) {
    const int64_t fit = most_items / n;
    return fit < 1 ? 1 : fit < lines ? fit : lines;
}

static size_t half_of_scratch(const ct_view *x, int64_t axis) {
    const int64_t count = ct_wgpu_count(x), n = length_of(x, axis);
    if (count == 0 || n <= TILE) return 0;
    const size_t bytes = (size_t)(lines_at_once(count / n, n) * n) * (x->dtype == CT_I64 ? 16 : 8);
    return (bytes + CT_WGPU_ALIGNMENT - 1) / CT_WGPU_ALIGNMENT * CT_WGPU_ALIGNMENT;
}

size_t ct_wgpu_sort_scratch(const ct_view *x, int64_t axis) { return 2 * half_of_scratch(x, axis); }

bool ct_wgpu_sort(const ct_call *call, const ct_view *x, const ct_view *values, const ct_view *indices, int64_t axis,
                  bool descending, size_t scratch_offset) {
    if (ct_wgpu_count(x) == 0 || (!values && !indices)) return true;
    const ct_view *views[3] = {x, values, indices};
    const ct_wgpu_lines lines = ct_wgpu_lines_of(views, 3, axis);
    const int64_t count = lines.nest.total;
    params p;
    memset(&p, 0, sizeof p);
    p.n = (uint32_t)lines.n;
    p.kept = (uint32_t)length_of(values ? values : indices, axis);
    p.descending = descending;
    p.tiles = (uint32_t)ct_wgpu_ceil_div(p.n, TILE);
    for (p.room = 1; p.room < p.n && p.room < TILE;) p.room *= 2;
    memcpy(p.dims, lines.nest.dims, sizeof p.dims);
    for (int i = 0; i < 3; i++) {
        p.step[i] = (uint32_t)lines.step[i];
        memcpy(p.strides[i], lines.nest.strides[i], sizeof p.strides[i]);
    }

    const size_t half = half_of_scratch(x, axis);
    const int64_t at_once = p.tiles == 1 ? count : lines_at_once(count, p.n);
    for (int64_t first = 0; first < count; first += p.line_count) {
        p.first_line = (uint32_t)first;
        p.line_count = (uint32_t)(count - first < at_once ? count - first : at_once);
        const int64_t jobs = (int64_t)p.line_count * p.tiles;
        int at = 0; /* the half of the scratch that a pass reads from */
        for (int64_t run = 0; run < p.n; run = run ? 2 * run : TILE, at ^= 1) {
            const bool merges = run > 0;
            ct_wgpu_launch l = ct_wgpu_begin(&unit, merges ? "merge" : "tiles", THREADS);
            p.run = (uint32_t)run;
            p.last = merges ? 2 * run >= p.n : p.tiles == 1;
            l.more = x->dtype == CT_I64 ? ct_wgsl_sort_wide : ct_wgsl_sort_narrow;
            ct_wgpu_in(&l, "x", x);
            ct_wgpu_out_or(&l, "values", p.last ? values : NULL, x->dtype);
            ct_wgpu_out_or(&l, "indices", p.last ? indices : NULL, CT_I64);
            if (merges) ct_wgpu_scratch(&l, "source", call, CT_I64, scratch_offset + (size_t)(at ^ 1) * half, half, 0);
            else ct_wgpu_missing(&l, "source", CT_I64, 0);
            if (!p.last)
                ct_wgpu_scratch(&l, "sink", call, CT_I64, scratch_offset + (size_t)at * half, half, CT_WGPU_WRITTEN);
            else ct_wgpu_missing(&l, "sink", CT_I64, CT_WGPU_WRITTEN);
            ct_wgpu_constant(&l, "RANK", lines.nest.rank);
            ct_wgpu_constant(&l, "REAL", x->dtype <= CT_BF16);
            const int64_t groups = merges ? jobs : ct_wgpu_ceil_div(jobs, TILE / p.room);
            if (!ct_wgpu_enqueue(call, &l, groups, &p, sizeof p)) return false;
        }
    }
    return true;
}

static const char *can(const ct_call *call) {
    return call->in[0]->dtype <= CT_BOOL ? ct_wgpu_refuses(call) : "no order on this dtype";
}

static size_t sort_scratch(const ct_call *call) {
    return ct_wgpu_sort_scratch(call->in[0], ((const sort_attrs *)call->attrs)->axis);
}
static bool sort_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sort_attrs *a = call->attrs;
    return ct_wgpu_sort(call, call->in[0], call->out[0], ct_wgpu_output(call, 1), a->axis, a->descending, 0);
}

static size_t topk_scratch(const ct_call *call) {
    return ct_wgpu_sort_scratch(call->in[0], ((const topk_attrs *)call->attrs)->axis);
}
static bool topk_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const topk_attrs *a = call->attrs;
    if (a->k == 0) return true;
    return ct_wgpu_sort(call, call->in[0], call->out[0], ct_wgpu_output(call, 1), a->axis, !a->smallest, 0);
}

CT_WGPU_KERNELS(sort_sort) = {
    CT_CANDIDATES(sort, {"merge_sort", can, sort_scratch, sort_run}),
    CT_CANDIDATES(topk, {"merge_sort", can, topk_scratch, topk_run}),
    {0},
};
