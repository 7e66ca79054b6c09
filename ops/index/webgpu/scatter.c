/* scatter, scatter_add, scatter_extreme, index_add and the gradients that are such sums: the host side. Elements are
 * folded in the order of index, as on the CPU: by a look through all indices for each element of the result where
 * these are few, else sorted by where they go. Nothing is written to a result that lasts before all indices were
 * looked at. */
#include "backends/webgpu/indices.h"

#include "gen/index.attrs.h"

enum { THREADS = 256, SUM = 0, PROD, MAX, MIN, LAST };

typedef struct plan {
    const ct_call *call;
    const ct_view *y, *x, *src; /* x NULL: zeros */
    ct_view index;
    int axis;
    bool rows;     /* one index stands for a whole row of src; its dimensions take the place of the axis there */
    int lead;      /* how many these are */
    int64_t place; /* of errors: from one index to the next */
    int64_t skip;  /* an index that is left out; -1: none */
    int fold;
    double alpha;
} plan;

/* ---- Calls ---- */

/* An index that is the same for whole rows, as expanding a vector gives it, with rows as long as those of y. */
static bool names_rows(const ct_view *index, const ct_view *y, int axis) {
    if (y->ndim == 0 || index->ndim != y->ndim) return false;
    for (int d = 0; d < y->ndim; d++)
        if (d != axis && (index->dims[d] != y->dims[d] || (index->dims[d] != 1 && index->strides[d] != 0)))
            return false;
    return true;
}

static plan scatter_plan(const ct_call *call, const ct_view *x, const ct_view *index, const ct_view *src, int64_t axis,
                         int fold) {
    const ct_view *y = call->out[0];
    plan s = {call, y, x, src, *index, ct_wgpu_axis(axis, y), false, 1, 1, -1, fold, 1};
    s.rows = names_rows(index, y, s.axis);
    if (!s.rows) return s;
    s.index.ndim = 1;
    s.index.dims[0] = index->dims[s.axis];
    s.index.strides[0] = index->strides[s.axis];
    for (int d = s.axis + 1; d < y->ndim; d++) s.place *= index->dims[d];
    return s;
}

static plan plan_scatter(const ct_call *call) {
    return scatter_plan(call, call->in[0], call->in[1], call->in[2], ((const scatter_attrs *)call->attrs)->axis, LAST);
}
static plan plan_scatter_add(const ct_call *call) {
    return scatter_plan(call, call->in[0], call->in[1], call->in[2], ((const scatter_add_attrs *)call->attrs)->axis,
                        SUM);
}
static plan plan_gather_grad(const ct_call *call) {
    return scatter_plan(call, NULL, call->in[1], call->in[0], ((const gather_grad_attrs *)call->attrs)->axis, SUM);
}
static plan plan_scatter_extreme(const ct_call *call) {
    const scatter_extreme_attrs *at = call->attrs;
    const int fold = at->reduce == CT_FOLD_PROD ? PROD : at->reduce == CT_FOLD_MAX ? MAX : MIN;
    return scatter_plan(call, call->in[0], call->in[1], call->in[2], at->axis, fold);
}

static plan rows_plan(const ct_call *call, const ct_view *x, const ct_view *src, int64_t axis) {
    const ct_view *y = call->out[0];
    plan s = {call, y, x, src, *call->in[1], ct_wgpu_axis(axis, y), true, 1, 1, -1, SUM, 1};
    s.lead = y->ndim ? src->ndim - (y->ndim - 1) : 0;
    return s;
}
static plan plan_index_add(const ct_call *call) {
    const index_add_attrs *at = call->attrs;
    plan s = rows_plan(call, call->in[0], call->in[2], at->axis);
    s.alpha = at->alpha;
    return s;
}
static plan plan_index_select_grad(const ct_call *call) {
    return rows_plan(call, NULL, call->in[0], ((const index_select_grad_attrs *)call->attrs)->axis);
}
static plan plan_embedding_grad(const ct_call *call) {
    const embedding_grad_attrs *at = call->attrs;
    plan s = rows_plan(call, NULL, call->in[0], 0);
    if (at->padding_idx.set) s.skip = (int64_t)at->padding_idx.value;
    return s;
}

static int64_t bound_of(const plan *s) { return s->y->ndim ? s->y->dims[s->axis] : 1; }
static size_t size_of(const plan *s) { return ct_wgpu_dtype_size(s->y->dtype); }

/* ---- What is folded, in text ---- */

#define FOLD_REAL                                                    \
    "fn fold(a: V, b: V) -> V { return ct_fold_f32(FOLD, a, b); }\n" \
    "fn scaled(v: V) -> V { return bitcast<f32>(p.alpha.x) * v; }\n"
#define FOLD_WHOLE                                                   \
    "fn fold(a: V, b: V) -> V { return ct_fold_i32(FOLD, a, b); }\n" \
    "fn scaled(v: V) -> V { return bitcast<i32>(p.alpha.x) * v; }\n"
#define FOLD_PAIR                                                    \
    "fn fold(a: V, b: V) -> V { return ct_fold_i64(FOLD, a, b); }\n" \
    "fn scaled(v: V) -> V { return ct_i64_mul(p.alpha, v); }\n"
#define FOLD_BITS                              \
    "fn fold(a: V, b: V) -> V { return b; }\n" \
    "fn scaled(v: V) -> V { return v; }\n"

/* For scan.wgsl: the loop over elements, or over words of them. */
#define ONE                                                                             \
    "alias V = y_t;\n"                                                                  \
    "fn scan(group: u32, local: u32, groups: u32) {\n"                                  \
    "    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {\n" \
    "        let found = found_at(e);\n"                                                \
    "        y_store(found.to, found.value);\n"                                         \
    "    }\n"                                                                           \
    "}\n"
#define WORDS                                                                                                       \
    "alias V = y_t;\n"                                                                                              \
    "fn scan(group: u32, local: u32, groups: u32) {\n"                                                              \
    "    let words = (p.total + y_pack - 1u) / y_pack;\n"                                                           \
    "    let width = 32u / y_pack;\n"                                                                               \
    "    for (var w = group * THREADS + local; w < words; w += groups * THREADS) {\n"                               \
    "        let count = min(y_pack, p.total - w * y_pack);\n"                                                      \
    "        var bits = 0u;\n"                                                                                      \
    "        for (var k = 0u; k < count; k++) { bits |= y_bits(found_at(w * y_pack + k).value) << (k * width); }\n" \
    "        if (count < y_pack) { bits |= y_word(w) & (0xffffffffu << (count * width)); }\n"                       \
    "        y_put(w, bits);\n"                                                                                     \
    "    }\n"                                                                                                       \
    "}\n"
static const char real_one[] = ONE FOLD_REAL, whole_one[] = ONE FOLD_WHOLE, pair_one[] = ONE FOLD_PAIR,
                  bits_one[] = ONE FOLD_BITS;
static const char real_words[] = WORDS FOLD_REAL, whole_words[] = WORDS FOLD_WHOLE, bits_words[] = WORDS FOLD_BITS;

/* For sums.wgsl, which has lanes of one element or of four. */
#define LANE                                             \
    "alias V = y_t;\n"                                   \
    "fn src_at(i: u32) -> V { return src_load(i); }\n"   \
    "fn y_at(i: u32) -> V { return y_load(i); }\n"       \
    "fn put_y(i: u32, v: V) { y_store(i, v); }\n"        \
    "fn part_at(i: u32) -> V { return part_load(i); }\n" \
    "fn put_part(i: u32, v: V) { part_store(i, v); }\n"
static const char real_lane[] = LANE FOLD_REAL, whole_lane[] = LANE FOLD_WHOLE, pair_lane[] = LANE FOLD_PAIR,
                  bits_lane[] = LANE FOLD_BITS;
static const char real_quad[] = "alias V = vec4<f32>;\n"
                                "fn src_at(i: u32) -> V { return src_load4(4u * i); }\n"
                                "fn y_at(i: u32) -> V { return y_load4(4u * i); }\n"
                                "fn put_y(i: u32, v: V) { y_store4(4u * i, v); }\n"
                                "fn part_at(i: u32) -> V { return part_load4(4u * i); }\n"
                                "fn put_part(i: u32, v: V) { part_store4(4u * i, v); }\n"
                                "fn fold(a: V, b: V) -> V { return a + b; }\n"
                                "fn scaled(v: V) -> V { return bitcast<f32>(p.alpha.x) * v; }\n";

static bool is_real(const plan *s) { return s->y->dtype <= CT_BF16; }

static void set_alpha(const plan *s, uint32_t alpha[2]) {
    const float real = (float)s->alpha;
    const uint64_t whole = (uint64_t)(int64_t)s->alpha;
    alpha[0] = (uint32_t)whole, alpha[1] = (uint32_t)(whole >> 32);
    if (is_real(s)) memcpy(alpha, &real, sizeof real);
}

/* y, x and src are bits where only one of them is chosen. */
static void value_operand(const plan *s, ct_wgpu_launch *launch, const char *name, const ct_view *view, unsigned mode) {
    if (view && s->fold == LAST) ct_wgpu_bits_operand(launch, name, view, size_of(s), mode);
    else ct_wgpu_operand_of(launch, name, view, mode);
    if (!view) launch->operands[launch->n - 1].dtype = (uint8_t)s->y->dtype;
}

/* ---- By a look through all indices ---- */

typedef struct scan_params {
    uint32_t total, rank, length, bound;
    uint32_t dims[CT_WGPU_DIMS], limits[CT_WGPU_DIMS], strides[6][CT_WGPU_DIMS];
    uint32_t index_axis, src_axis, place_axis, skip;
    uint32_t alpha[2], pad[2];
} scan_params;

/* The dimensions of index as one: its stride, and that of src with it. False: there is none. */
static bool one_stride(const plan *s, int64_t *index, int64_t *src) {
    ct_wgpu_walk walk = ct_wgpu_walk_begin(2);
    for (int d = 0; d < s->index.ndim; d++)
        ct_wgpu_walk_add(&walk, s->index.dims[d],
                         (const int64_t[]){s->index.strides[d], d < s->lead ? s->src->strides[s->axis + d] : 0});
    *index = walk.ndim ? walk.strides[0][0] : 0, *src = walk.ndim ? walk.strides[1][0] : 0;
    return walk.ndim <= 1;
}

static int64_t length_of(const plan *s) {
    if (s->rows) return ct_wgpu_count(&s->index);
    return s->index.ndim ? s->index.dims[s->axis] : 1;
}

static bool scans(const plan *s) {
    int64_t index, src;
    const int64_t length = length_of(s), results = ct_wgpu_count(s->y);
    if (s->rows && !one_stride(s, &index, &src)) return false;
    return length <= 16 || (length <= 512 && results * length <= 1 << 22);
}

static bool scan(const plan *s) {
    CT_WGPU_UNIT(index_scan);
    scan_params p = {.total = (uint32_t)ct_wgpu_count(s->y),
                     .length = (uint32_t)length_of(s),
                     .bound = (uint32_t)bound_of(s),
                     .skip = (uint32_t)s->skip};
    int64_t places[CT_WGPU_DIMS] = {0}, index_axis = 0, src_axis = 0, place_axis = s->place;
    const int64_t words = ct_wgpu_index_words(&s->index);
    ct_wgpu_row_major(&s->index, places);
    if (s->rows) one_stride(s, &index_axis, &src_axis);
    for (int d = 0; d < s->y->ndim; d++) {
        const bool axis = d == s->axis, lane = !s->rows && !axis;
        const int from = !s->rows || d < s->axis ? d : d + s->lead - 1;
        if (axis && !s->rows) index_axis = s->index.strides[d], src_axis = s->src->strides[d], place_axis = places[d];
        p.dims[p.rank] = (uint32_t)s->y->dims[d];
        p.limits[p.rank] = lane ? (uint32_t)s->index.dims[d] : UINT32_MAX;
        p.strides[0][p.rank] = (uint32_t)s->y->strides[d];
        p.strides[1][p.rank] = s->x ? (uint32_t)s->x->strides[d] : 0;
        p.strides[2][p.rank] = lane ? (uint32_t)(s->index.strides[d] * words) : 0;
        p.strides[3][p.rank] = axis ? 0 : (uint32_t)s->src->strides[from];
        p.strides[4][p.rank] = lane ? (uint32_t)places[d] : 0;
        p.strides[5][p.rank] = axis;
        p.rank++;
    }
    p.index_axis = (uint32_t)(index_axis * words), p.src_axis = (uint32_t)src_axis, p.place_axis = (uint32_t)place_axis;
    set_alpha(s, p.alpha);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "scan", THREADS);
    const int64_t pack = size_of(s) < 4 ? (int64_t)(4 / size_of(s)) : 1;
    const bool packed = pack > 1 && ct_wgpu_is_dense(s->y) && ct_wgpu_fits(s->y, pack);
    value_operand(s, &launch, "y", s->y, CT_WGPU_WRITTEN | (packed ? CT_WGPU_WORDS : 0));
    value_operand(s, &launch, "x", s->x, 0);
    value_operand(s, &launch, "src", s->src, 0);
    ct_wgpu_index_operand(&launch, &s->index);
    ct_wgpu_constant(&launch, "FOLD", (uint32_t)s->fold);
    launch.more = s->fold == LAST         ? (packed ? bits_words : bits_one)
                  : is_real(s)            ? (packed ? real_words : real_one)
                  : s->y->dtype == CT_I64 ? pair_one
                                          : (packed ? whole_words : whole_one);
    const int64_t items = packed ? ct_wgpu_ceil_div(p.total, pack) : p.total;
    return ct_wgpu_enqueue(s->call, &launch, ct_wgpu_groups(items, THREADS), &p, sizeof p);
}

/* ---- Sorted ---- */

typedef struct keys_params {
    uint32_t total, rank, bound, none;
    uint32_t dims[CT_WGPU_DIMS], strides[2][CT_WGPU_DIMS];
    uint32_t along, skip, place, pad;
} keys_params;

typedef struct sums_params {
    uint32_t n, lanes, many, none;
    uint32_t lane_rank, row_rank, sent_rank, pad;
    uint32_t lane_dims[CT_WGPU_DIMS], lane_strides[2][CT_WGPU_DIMS];
    uint32_t row_dims[CT_WGPU_DIMS], row_strides[CT_WGPU_DIMS];
    uint32_t sent_dims[CT_WGPU_DIMS], sent_strides[CT_WGPU_DIMS];
    uint32_t alpha[2], pads[2];
} sums_params;

/* Of a lane: its elements in y and src. */
static ct_wgpu_walk lanes_of(const plan *s) {
    ct_wgpu_walk walk = ct_wgpu_walk_begin(2);
    for (int d = 0; s->rows && d < s->y->ndim; d++)
        if (d != s->axis)
            ct_wgpu_walk_add(&walk, s->y->dims[d],
                             (const int64_t[]){s->y->strides[d], s->src->strides[d < s->axis ? d : d + s->lead - 1]});
    return walk;
}

static int64_t keys_of(const plan *s) { return s->rows ? bound_of(s) : ct_wgpu_count(s->y); }

static int64_t many_of(int64_t n) {
    int64_t many = 64;
    while (4 * many * many < n) many *= 2;
    return many;
}

static size_t parts_bytes(const plan *s, int64_t n, int64_t lanes) {
    const size_t size = s->y->dtype == CT_I64 ? 8 : 4;
    const int64_t chunks = ct_wgpu_ceil_div(n, many_of(n));
    return (size_t)(2 * chunks * lanes) * size;
}

static size_t scratch_of(const plan *s) {
    const int64_t n = ct_wgpu_count(&s->index);
    if (n == 0 || ct_wgpu_count(s->y) == 0 || scans(s)) return 0;
    const ct_wgpu_walk lanes = lanes_of(s);
    return ct_wgpu_order_bytes(n) + parts_bytes(s, n, lanes.total);
}

static bool find_keys(const plan *s, const ct_wgpu_ordered *order, int64_t none) {
    CT_WGPU_UNIT(index_keys);
    int64_t dense[CT_WGPU_DIMS] = {0};
    ct_wgpu_row_major(s->y, dense);
    ct_wgpu_walk walk = ct_wgpu_walk_begin(2);
    for (int d = 0; d < s->index.ndim; d++)
        ct_wgpu_walk_add(&walk, s->index.dims[d],
                         (const int64_t[]){s->rows || d == s->axis ? 0 : dense[d],
                                           s->index.strides[d] * ct_wgpu_index_words(&s->index)});
    keys_params p = {.total = (uint32_t)walk.total,
                     .rank = (uint32_t)walk.ndim,
                     .bound = (uint32_t)bound_of(s),
                     .none = (uint32_t)none,
                     .along = s->rows || s->y->ndim == 0 ? 1 : (uint32_t)dense[s->axis],
                     .skip = (uint32_t)s->skip,
                     .place = (uint32_t)s->place};
    ct_wgpu_walk_dims(&walk, p.dims);
    for (int k = 0; k < 2; k++) ct_wgpu_walk_strides(&walk, k, p.strides[k]);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "find_keys", THREADS);
    ct_wgpu_index_operand(&launch, &s->index);
    ct_wgpu_scratch(&launch, "keys", s->call, CT_I32, order->keys, (size_t)order->n * 4, CT_WGPU_WRITTEN);
    ct_wgpu_scratch(&launch, "places", s->call, CT_I32, order->places, (size_t)order->n * 4, CT_WGPU_WRITTEN);
    return ct_wgpu_enqueue(s->call, &launch, ct_wgpu_groups(walk.total, THREADS), &p, sizeof p);
}

/* Whether lanes can be four neighbours in y and src, all else in fours: then they are. rows, sent: their other
 * strides. */
static bool in_quads(const plan *s, ct_wgpu_walk *lanes, ct_wgpu_walk *rows, ct_wgpu_walk *sent) {
    const int last = lanes->ndim - 1;
    if (!is_real(s) || s->fold != SUM || last < 0 || lanes->dims[last] % 4) return false;
    if (!ct_wgpu_fits(s->y, 4) || !ct_wgpu_fits(s->src, 4)) return false;
    if (lanes->strides[0][last] != 1 || lanes->strides[1][last] != 1) return false;
    for (int d = 0; d < last; d++)
        if (lanes->strides[0][d] % 4 || lanes->strides[1][d] % 4) return false;
    for (int d = 0; d < rows->ndim; d++)
        if (rows->strides[0][d] % 4) return false;
    for (int d = 0; d < sent->ndim; d++)
        if (sent->strides[0][d] % 4) return false;
    for (int d = 0; d < last; d++) lanes->strides[0][d] /= 4, lanes->strides[1][d] /= 4;
    for (int d = 0; d < rows->ndim; d++) rows->strides[0][d] /= 4;
    for (int d = 0; d < sent->ndim; d++) sent->strides[0][d] /= 4;
    lanes->dims[last] /= 4, lanes->total /= 4;
    return true;
}

static bool fold_sorted(const plan *s, const ct_wgpu_ordered *order, int64_t none) {
    CT_WGPU_UNIT(index_sums);
    ct_wgpu_walk lanes = lanes_of(s), rows = ct_wgpu_walk_begin(1), sent = ct_wgpu_walk_begin(1);
    const size_t parts = parts_bytes(s, order->n, lanes.total), begin = ct_wgpu_order_bytes(order->n);
    for (int d = 0; d < s->y->ndim; d++)
        if (!s->rows || d == s->axis) ct_wgpu_walk_add(&rows, s->y->dims[d], &s->y->strides[d]);
    for (int d = 0; d < s->index.ndim; d++)
        ct_wgpu_walk_add(&sent, s->index.dims[d],
                         !s->rows  ? &s->src->strides[d]
                         : s->lead ? &s->src->strides[s->axis + d]
                                   : &(const int64_t){0});
    const bool quads = in_quads(s, &lanes, &rows, &sent);
    sums_params p = {.n = (uint32_t)order->n,
                     .lanes = (uint32_t)lanes.total,
                     .many = (uint32_t)many_of(order->n),
                     .none = (uint32_t)none,
                     .lane_rank = (uint32_t)lanes.ndim,
                     .row_rank = (uint32_t)rows.ndim,
                     .sent_rank = (uint32_t)sent.ndim};
    ct_wgpu_walk_dims(&lanes, p.lane_dims);
    for (int k = 0; k < 2; k++) ct_wgpu_walk_strides(&lanes, k, p.lane_strides[k]);
    ct_wgpu_walk_dims(&rows, p.row_dims);
    ct_wgpu_walk_strides(&rows, 0, p.row_strides);
    ct_wgpu_walk_dims(&sent, p.sent_dims);
    ct_wgpu_walk_strides(&sent, 0, p.sent_strides);
    set_alpha(s, p.alpha);
    const unsigned mode = quads ? CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY : 0, only = quads ? CT_WGPU_QUADS_ONLY : 0;
    for (int pass = s->fold != LAST && order->n > p.many ? 0 : 1; pass < 2; pass++) {
        ct_wgpu_launch launch = ct_wgpu_begin(&unit, pass ? "fold_runs" : "fold_parts", THREADS);
        ct_wgpu_scratch(&launch, "keys", s->call, CT_I32, order->keys, (size_t)order->n * 4, only);
        ct_wgpu_scratch(&launch, "places", s->call, CT_I32, order->places, (size_t)order->n * 4, only);
        value_operand(s, &launch, "y", s->y, CT_WGPU_WRITTEN | mode);
        value_operand(s, &launch, "src", s->src, mode);
        ct_wgpu_scratch(&launch, "part", s->call,
                        is_real(s)              ? CT_F32
                        : s->y->dtype == CT_I64 ? CT_I64
                                                : CT_I32,
                        begin, parts, CT_WGPU_WRITTEN | mode);
        if (s->fold == LAST) launch.operands[launch.n - 1].dtype = (uint8_t)(size_of(s) == 8 ? CT_I64 : CT_I32);
        ct_wgpu_constant(&launch, "FOLD", (uint32_t)s->fold);
        launch.more = s->fold == LAST         ? bits_lane
                      : quads                 ? real_quad
                      : is_real(s)            ? real_lane
                      : s->y->dtype == CT_I64 ? pair_lane
                                              : whole_lane;
        const int64_t items = (pass ? order->n : ct_wgpu_ceil_div(order->n, p.many)) * lanes.total;
        if (!ct_wgpu_enqueue(s->call, &launch, ct_wgpu_groups(items, THREADS), &p, sizeof p)) return false;
    }
    return true;
}

static bool begin_result(const plan *s) {
    return s->x ? ct_wgpu_copy_view(s->call, s->y, s->x) : ct_wgpu_fill_view(s->call, s->y, (const uint32_t[]){0, 0});
}

static bool run(const plan *s) {
    const int64_t n = ct_wgpu_count(&s->index), none = keys_of(s);
    bool sends = n > 0 && ct_wgpu_count(s->y) > 0;
    if (!sends) /* indices that send nothing have to be in range all the same */
        return (n == 0 || ct_wgpu_look(s->call, &s->index, bound_of(s), s->place)) && begin_result(s);
    if (scans(s)) {
        if (s->call->flags & CT_CALL_LASTING && !ct_wgpu_look(s->call, &s->index, bound_of(s), s->place)) return false;
        return scan(s);
    }
    ct_wgpu_ordered order = ct_wgpu_order_begin(n, none, 0);
    return find_keys(s, &order, none) && ct_wgpu_order(s->call, &order) && begin_result(s) &&
           fold_sorted(s, &order, none);
}

/* ---- The ops ---- */

#define FUNCTIONS(op)                                              \
    static size_t op##_scratch(const ct_call *call) {              \
        const plan s = plan_##op(call);                            \
        return scratch_of(&s);                                     \
    }                                                              \
    static bool op##_run(const ct_call *call, ct_stream *stream) { \
        const plan s = plan_##op(call);                            \
        (void)stream;                                              \
        return run(&s);                                            \
    }
FUNCTIONS(scatter)
FUNCTIONS(scatter_add)
FUNCTIONS(scatter_extreme)
FUNCTIONS(gather_grad)
FUNCTIONS(index_add)
FUNCTIONS(index_select_grad)
FUNCTIONS(embedding_grad)

CT_WGPU_KERNELS(index_scatter) = {
    CT_CANDIDATES(scatter, {"scatter_last", ct_wgpu_refuses, scatter_scratch, scatter_run}),
    CT_CANDIDATES(scatter_add, {"scatter_add_ordered", ct_wgpu_refuses, scatter_add_scratch, scatter_add_run}),
    CT_CANDIDATES(scatter_extreme,
                  {"scatter_extreme_ordered", ct_wgpu_refuses, scatter_extreme_scratch, scatter_extreme_run}),
    CT_CANDIDATES(gather_grad, {"gather_grad_ordered", ct_wgpu_refuses, gather_grad_scratch, gather_grad_run}),
    CT_CANDIDATES(index_add, {"index_add_ordered", ct_wgpu_refuses, index_add_scratch, index_add_run}),
    CT_CANDIDATES(index_select_grad,
                  {"index_sum_ordered", ct_wgpu_refuses, index_select_grad_scratch, index_select_grad_run}),
    CT_CANDIDATES(embedding_grad,
                  {"embedding_sum_ordered", ct_wgpu_refuses, embedding_grad_scratch, embedding_grad_run}),
    {0},
};
