/* How products are cut into tiles and parts. */
#include "backends/webgpu/tile.h"

extern const char ct_wgsl_backend_tile[], ct_wgsl_backend_tile_large[], ct_wgsl_backend_tile_direct[];

static const ct_wgpu_tile_text ways[] = {[CT_WGPU_TILED] = {ct_wgsl_backend_tile, "multiply", CT_WGPU_TILE_THREADS},
                                         [CT_WGPU_LARGE] = {ct_wgsl_backend_tile_large, "multiply_large", 128},
                                         [CT_WGPU_DIRECT] = {ct_wgsl_backend_tile_direct, "multiply_direct", 64},
                                         [CT_WGPU_INSIDE] = {ct_wgsl_backend_tile_direct, "multiply_inside", 64}};

/* A model of how long a division takes, in microseconds, for a device with 132 multiprocessors of 128 lanes, as an H100
 * has; others are as well served. A workgroup's tile is worked off at a share of the peak that its shape allows, two
 * workgroups or more at once hide each other's waiting, and sums of parts are written and read once. */
enum { PROCESSORS = 132 };
static const double rate = 218e3, /* products of a multiprocessor in a microsecond */
    start = 64,                   /* what begin and end of a tile take, counted in steps along k */
    alone = 0.6,                  /* of the rate, where a multiprocessor has one workgroup */
    traffic = 2e6,                /* bytes in a microsecond */
    dispatch = 3;

static double share(int row_quads, int column_quads) {
    const int quads = row_quads * column_quads;
    return quads == 4 ? 0.7 : quads == 2 ? 0.55 : 0.35;
}

static double time_of(double m, double n, double k, double batches, int row_quads, int column_quads, int parts) {
    const double rows = 64 * row_quads, columns = 64 * column_quads;
    const double tiles = (double)((int64_t)((m + rows - 1) / rows) * (int64_t)((n + columns - 1) / columns)) * batches;
    const double turns = (double)(int64_t)((tiles * parts + PROCESSORS - 1) / PROCESSORS);
    const double one = rows * columns * (k / parts + start) / (rate * share(row_quads, column_quads));
    const double sums = parts > 1 ? dispatch + 2 * parts * m * n * batches * 4 / traffic : 0;
    return (turns > 1 ? turns : 1 / alone) * one + sums;
}

ct_wgpu_tiles ct_wgpu_tiles_of(const ct_call *call, int64_t m, int64_t n, int64_t k, int64_t batches) {
    enum { LEAST_PART = 64, MOST_PARTS = 128 };
    static const int cuts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, MOST_PARTS};
    static const int shapes[][2] = {{2, 2}, {2, 1}, {1, 2}, {1, 1}};
    int best_shape = 3, best_parts = 1;
    double best = 1e300;
    /* the largest take all of the 16 KiB, and what such a call looks at first is in workgroup memory as well */
    for (int s = call->flags & CT_CALL_LASTING ? 1 : 0; s < 4; s++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts && (i == 0 || k >= (int64_t)cuts[i] * LEAST_PART); i++) {
            if ((double)cuts[i] * (double)m * (double)(n + 3) * (double)batches >= 0x1p29) break; /* bytes of scratch */
            const double time =
                time_of((double)m, (double)n, (double)k, (double)batches, shapes[s][0], shapes[s][1], cuts[i]);
            if (time < best) best = time, best_shape = s, best_parts = cuts[i];
        }
    const int64_t step = CT_WGPU_TILE_K;
    int64_t part = ct_wgpu_ceil_div(ct_wgpu_ceil_div(k, best_parts), step) * step;
    if (part < step) part = step;
    const int64_t parts = k > 0 ? ct_wgpu_ceil_div(k, part) : 1;
    ct_wgpu_tiles t = {.row_quads = (uint32_t)shapes[best_shape][0], .column_quads = (uint32_t)shapes[best_shape][1]};
    t.head = (ct_wgpu_tile_head){.m = (uint32_t)m,
                                 .n = (uint32_t)n,
                                 .k = (uint32_t)k,
                                 .part = (uint32_t)part,
                                 .tiles_m = (uint32_t)ct_wgpu_ceil_div(m, 64 * t.row_quads),
                                 .tiles_n = (uint32_t)ct_wgpu_ceil_div(n, 64 * t.column_quads),
                                 .batches = (uint32_t)batches,
                                 .parts = (uint32_t)parts};
    if (parts > 1) t.scratch = (size_t)(parts * batches * m * ((n + 3) / 4 * 4)) * 4;
    return t;
}

ct_wgpu_tiles ct_wgpu_product_tiles_of(const ct_call *call, int64_t m, int64_t n, int64_t k, int64_t batches) {
    if (ct_wgpu_limits_of(call)->software) {
        const int64_t tile = 64; /* of 8 by 8 invocations */
        return (ct_wgpu_tiles){.head = {.m = (uint32_t)m,
                                        .n = (uint32_t)n,
                                        .k = (uint32_t)k,
                                        .part = (uint32_t)k,
                                        .tiles_m = (uint32_t)ct_wgpu_ceil_div(m, tile),
                                        .tiles_n = (uint32_t)ct_wgpu_ceil_div(n, tile),
                                        .batches = (uint32_t)batches,
                                        .parts = 1},
                               .way = CT_WGPU_DIRECT,
                               .row_quads = 2,
                               .column_quads = 2};
    }
    ct_wgpu_tiles t = ct_wgpu_tiles_of(call, m, n, k, batches);
    if (t.row_quads == 2 && t.column_quads == 2) t.way = CT_WGPU_LARGE;
    return t;
}

bool ct_wgpu_has_quads(const ct_view *view, const int64_t *strides, int n) {
    if (!ct_wgpu_fits(view, 4)) return false;
    for (int i = 0; i < n; i++)
        if (strides[i] % 4) return false;
    return true;
}

/* The launch without the operands from first to end. */
static ct_wgpu_launch without(const ct_wgpu_launch *launch, int first, int end) {
    ct_wgpu_launch some = *launch;
    for (int i = first; i < end; i++) some.operands[i].buffer = NULL;
    return some;
}

bool ct_wgpu_tiles_run(const ct_call *call, ct_wgpu_launch *launch, const ct_wgpu_tiles *tiles, int n_read,
                       bool a_along_k, bool b_along_k, const void *params, size_t params_bytes, ct_dtype sum_dtype,
                       size_t offset) {
    const ct_wgpu_tile_head *h = &tiles->head;
    const bool divided = h->parts > 1;
    const int64_t groups = (int64_t)h->tiles_m * h->tiles_n * h->batches * h->parts;
    const int n = launch->n;
    if (groups == 0) return true;
    ct_wgpu_constant(launch, "ROW_QUADS", tiles->row_quads);
    ct_wgpu_constant(launch, "COLUMN_QUADS", tiles->column_quads);
    ct_wgpu_constant(launch, "A_ALONG_K", a_along_k);
    ct_wgpu_constant(launch, "B_ALONG_K", b_along_k);
    ct_wgpu_constant(launch, "PARTS", divided);
    ct_wgpu_scratch(launch, "parts", call, sum_dtype, offset, tiles->scratch, CT_WGPU_TILE_WRITE_QUADS);
    const ct_wgpu_tile_text *way = tiles->own ? tiles->own : &ways[tiles->way];
    launch->threads = way->threads;
    launch->words = CT_WGPU_F32;
    launch->more = way->text;
    launch->function = way->function;
    /* What a dispatch does not touch is not bound: it might force ways of access on its neighbors in the same buffer.
     * */
    ct_wgpu_launch sums = divided ? without(launch, n_read, n) : without(launch, n, n + 1);
    if (!ct_wgpu_enqueue(call, &sums, groups, params, params_bytes)) return false;
    if (!divided) return true;
    const int64_t quads = (int64_t)h->batches * h->m * ((h->n + 3) / 4);
    ct_wgpu_launch results = without(launch, 0, n_read);
    results.function = "finish";
    results.more = ct_wgsl_backend_tile;
    results.threads = CT_WGPU_TILE_THREADS;
    return ct_wgpu_enqueue(call, &results, ct_wgpu_groups(quads, CT_WGPU_TILE_THREADS), params, params_bytes);
}
