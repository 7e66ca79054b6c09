/* Lists of items: those whose tensors lie in the same buffers, as most small ones do, go over in one dispatch, each buffer bound once. Every
 * tensor of an item is one operand, which begins where the first of the list does; a table says where those of the others begin. */
#include "ops/optim/webgpu/list.h"

CT_WGPU_UNIT(optim_list);

enum {
    THREADS = 256,
    TABLE = 144, /* words */
    MOST_ITEMS = TABLE / 3,
};

typedef struct params {
    uint32_t items, chunk, before, rank;
    float number;
    uint32_t partials, rate_stride, finish_at;
    uint32_t table[TABLE];
} params;

/* ---- What items are ---- */

static bool same_strides(const ct_view *a, const ct_view *b) {
    for (int d = 0; d < a->ndim; d++)
        if (a->dims[d] != 1 && a->strides[d] != b->strides[d]) return false;
    return true;
}

/* Its elements fill their memory, in whatever order of the dimensions. */
static bool is_packed(const ct_view *view) {
    int64_t expected = 1;
    unsigned left = 0;
    for (int d = 0; d < view->ndim; d++)
        if (view->dims[d] != 1) left |= 1u << d;
    while (left) {
        int found = -1;
        for (int d = 0; d < view->ndim; d++)
            if (left >> d & 1 && view->strides[d] == expected) found = d;
        if (found < 0) return false;
        left &= ~(1u << found);
        expected *= view->dims[found];
    }
    return true;
}

static bool is_half(const ct_view *view) { return view->dtype == CT_F16 || view->dtype == CT_BF16; }

/* In quads of elements, one by one, or by strides. */
typedef enum way { QUADS, SINGLES, STRIDED } way;

static way way_of(const optim_list *l, const ct_view *const *item) {
    bool fits = true;
    for (int i = 0; i < l->width; i++) {
        if (!same_strides(item[0], item[i])) return STRIDED;
        fits = fits && ct_wgpu_fits(item[i], 4);
        /* of narrow elements only the gradient, which is read, and the rounded parameter, which is written in words */
        const bool narrow = (l->master && i == 0) || i == 1 + l->master;
        fits = fits && (narrow ? is_half(item[i]) || (i && item[i]->dtype == CT_F32) : item[i]->dtype == CT_F32);
    }
    if (!is_packed(item[0])) return STRIDED;
    return fits ? QUADS : SINGLES;
}

/* ---- Those of one dispatch ---- */

typedef struct span {
    void *buffer;
    uint64_t low, high; /* bytes */
} span;

typedef struct table {
    way way;
    int n;
    const ct_view *const *items[MOST_ITEMS];
    span spans[OPTIM_WIDTH];
} table;

static uint64_t begin_of(const ct_view *view) {
    return view->origin + (uint64_t)view->offset * ct_wgpu_dtype_size(view->dtype);
}

/* What a packed tensor may touch: whole quads, since what lies beyond its end is loaded and stored again. */
static span span_of(const ct_view *view) {
    const uint64_t size = ct_wgpu_dtype_size(view->dtype), begin = begin_of(view);
    return (span){view->buffer, begin, begin + (uint64_t)(ct_wgpu_count(view) + 3) / 4 * 4 * size};
}

/* Takes an item in, if its tensors are of the table's dtypes and in its buffers, and no binding becomes too long. */
static bool take(const optim_list *l, table *t, way how, const ct_view *const *item) {
    if (t->n && (how != t->way || how == STRIDED || t->n == TABLE / (l->width + 2))) return false;
    span grown[OPTIM_WIDTH];
    for (int i = 0; i < l->width; i++) {
        grown[i] = span_of(item[i]);
        if (!t->n) continue;
        const span *s = &t->spans[i];
        if (s->buffer != grown[i].buffer || item[i]->dtype != t->items[0][i]->dtype) return false;
        if (s->low < grown[i].low) grown[i].low = s->low;
        if (s->high > grown[i].high) grown[i].high = s->high;
        if (grown[i].high - grown[i].low > ct_wgpu_limits_of(l->call)->binding / 2) return false;
    }
    memcpy(t->spans, grown, sizeof grown);
    t->way = how;
    t->items[t->n++] = item;
    return true;
}

static int64_t chunks_of(const optim_list *l, const ct_view *const *item) {
    return ct_wgpu_ceil_div(ct_wgpu_count(item[0]), l->chunk);
}

/* Returns the number of chunks. */
static int64_t write_table(const optim_list *l, const table *t, params *p) {
    int64_t chunks = 0;
    uint32_t *to = p->table;
    p->items = (uint32_t)t->n;
    for (int i = 0; i < t->n; i++) {
        const ct_view *const *item = t->items[i];
        *to++ = (uint32_t)chunks;
        *to++ = (uint32_t)ct_wgpu_count(item[0]);
        chunks += chunks_of(l, item);
        for (int k = 0; k < l->width && t->way != STRIDED; k++)
            *to++ = (uint32_t)((begin_of(item[k]) - t->spans[k].low) / ct_wgpu_dtype_size(item[k]->dtype));
    }
    if (t->way != STRIDED) return chunks;
    const ct_view *const *item = t->items[0];
    p->rank = (uint32_t)item[0]->ndim;
    for (int d = 0; d < item[0]->ndim; d++) {
        to[d] = (uint32_t)item[0]->dims[d];
        for (int k = 0; k < l->width; k++) to[CT_WGPU_DIMS * (k + 1) + d] = (uint32_t)item[k]->strides[d];
    }
    return chunks;
}

/* ---- Launches ---- */

#define LOAD(x)       "fn " x "_load4(i: u32) -> vec4<f32> { return vec4<f32>(" x "_load(i), 0.0, 0.0, 0.0); }\n"
#define BOTH(x)       LOAD(x) "fn " x "_store4(i: u32, v: vec4<f32>) { " x "_store(i, v.x); }\n"
#define ROUNDED(body) "fn put_rounded(i: u32, v: vec4<f32>, n: u32) { " body "}\n"
static const char singles[] = BOTH("x0") LOAD("x1") BOTH("x2") BOTH("x3") BOTH("x4") ROUNDED("r_store(i, v.x); ");
static const char quads[] = ROUNDED("");
static const char rounded_quads[] = ROUNDED("\n    var x = v;\n"
                                            "    for (var k = n; k < 4u; k++) { x[k] = r_load(i + k); }\n"
                                            "    r_put(i / 2u, r_bits(x.x) | (r_bits(x.y) << 16u));\n"
                                            "    r_put(i / 2u + 1u, r_bits(x.z) | (r_bits(x.w) << 16u));\n");

static void add_tensor(ct_wgpu_launch *l, const char *name, const ct_view *view, const span *where, unsigned mode) {
    ct_wgpu_operand_of(l, name, view, mode);
    ct_wgpu_operand *o = &l->operands[l->n - 1];
    if (view && where) o->begin = o->low = where->low, o->high = where->high;
}

static ct_wgpu_launch new_launch(const optim_list *l, const table *t, const char *function) {
    static const char *const names[] = {"x0", "x1", "x2", "x3", "x4"};
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, function, THREADS);
    const bool whole = t && t->way == QUADS, strided = t && t->way == STRIDED;
    const ct_view *const *item = t ? t->items[0] : NULL;
    const ct_view *rounded = item && l->master ? item[0] : NULL;
    add_tensor(&launch, "r", rounded, rounded && !strided ? &t->spans[0] : NULL,
               CT_WGPU_WRITTEN | (whole ? CT_WGPU_WORDS : 0));
    for (int k = 0; k < OPTIM_WIDTH - 1; k++) {
        const int at = k + l->master;
        const bool given = item && at < l->width;
        const bool words = !given || item[at]->dtype == CT_F32;
        add_tensor(&launch, names[k], given ? item[at] : NULL, given && !strided ? &t->spans[at] : NULL,
                   (k == 1 ? 0 : CT_WGPU_WRITTEN) | (whole ? CT_WGPU_QUADS | (words ? CT_WGPU_QUADS_ONLY : 0) : 0));
    }
    /* What is not written but in quads, or read alone, leaves its buffer one of quads. */
    const unsigned only = CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY;
    const size_t sums = l->sums ? ct_wgpu_optim_scratch(l) - OPTIM_NUMBERS_BYTES : 0;
    if (l->scratch)
        ct_wgpu_scratch(&launch, "numbers", l->call, CT_F32, 0, OPTIM_NUMBERS_BYTES, item ? only : CT_WGPU_WRITTEN);
    else add_tensor(&launch, "numbers", NULL, NULL, only);
    if (sums) ct_wgpu_scratch(&launch, "sums", l->call, CT_F32, OPTIM_NUMBERS_BYTES, sums, CT_WGPU_WRITTEN | only);
    else add_tensor(&launch, "sums", NULL, NULL, CT_WGPU_WRITTEN | only);
    add_tensor(&launch, "rate", l->rate, NULL, item && l->rate && l->rate->dtype == CT_F32 ? only : 0);
    add_tensor(&launch, "y", item ? NULL : l->call->out[0], NULL, CT_WGPU_WRITTEN);
    ct_wgpu_constant(&launch, "KIND", l->kind);
    ct_wgpu_constant(&launch, "LANES", whole ? 4 : 1);
    ct_wgpu_constant(&launch, "STRIDED", strided);
    ct_wgpu_constant(&launch, "ROW", (uint32_t)l->width + 2);
    ct_wgpu_constant(&launch, "X0", l->master);
    ct_wgpu_constant(&launch, "NESTEROV", l->nesterov);
    ct_wgpu_constant(&launch, "CENTERED", l->centered);
    ct_wgpu_constant(&launch, "LATE", l->late);
    launch.more = !whole ? singles : rounded ? rounded_quads : quads;
    return launch;
}

static void set_rate(const optim_list *l, params *p) {
    p->number = l->number;
    p->rate_stride = l->rate && l->rate->ndim ? (uint32_t)l->rate->strides[0] : 0;
}

static bool launch_table(const optim_list *l, const table *t, uint32_t *before) {
    params p = {.chunk = l->chunk, .before = *before};
    const ct_wgpu_launch launch = new_launch(l, t, l->function);
    set_rate(l, &p);
    const int64_t chunks = write_table(l, t, &p);
    *before += (uint32_t)chunks;
    return ct_wgpu_enqueue(l->call, &launch, chunks, &p, sizeof p);
}

bool ct_wgpu_optim_run(const optim_list *l) {
    const size_t bytes = (size_t)l->items;
    if (!bytes) return true;
    uint8_t *ways = ct_wgpu_host->allocate(bytes); /* 255: taken */
    if (!ways) return ct_wgpu_host->fail(CT_ERR_MEMORY, l->call->op->name, "out of memory");
    for (int i = 0; i < l->items; i++) {
        const ct_view *const *item = l->call->in + l->first + i * l->width;
        ways[i] = ct_wgpu_count(item[0]) == 0 ? 255 : (uint8_t)way_of(l, item);
    }
    bool ok = true;
    uint32_t before = 0;
    for (int i = 0; i < l->items && ok; i++) {
        if (ways[i] == 255) continue;
        table t = {.n = 0};
        for (int k = i; k < l->items && (k == i || ways[i] != STRIDED); k++)
            if (ways[k] != 255 && take(l, &t, (way)ways[k], l->call->in + l->first + k * l->width) && k > i)
                ways[k] = 255;
        ok = launch_table(l, &t, &before);
    }
    ct_wgpu_host->release(ways, bytes);
    return ok;
}

bool ct_wgpu_optim_finish(const optim_list *l) {
    const ct_view *y = l->call->out[0];
    params p = {.partials = (uint32_t)ct_wgpu_optim_chunks(l), .finish_at = y && y->ndim ? (uint32_t)y->strides[0] : 0};
    const ct_wgpu_launch launch = new_launch(l, NULL, "finish");
    set_rate(l, &p);
    return ct_wgpu_enqueue(l->call, &launch, 1, &p, sizeof p);
}

/* ---- Sizes ---- */

int64_t ct_wgpu_optim_chunks(const optim_list *l) {
    int64_t chunks = 0;
    for (int i = 0; i < l->items; i++) chunks += chunks_of(l, l->call->in + l->first + i * l->width);
    return chunks;
}

size_t ct_wgpu_optim_scratch(const optim_list *l) {
    const size_t chunks = l->sums ? (size_t)ct_wgpu_optim_chunks(l) + 1 : 0;
    return OPTIM_NUMBERS_BYTES + chunks * (size_t)l->sums * OPTIM_SUM_BYTES;
}

/* Small ones let the whole device take part, large ones keep the search for a chunk's item and its sums rare. */
optim_list ct_wgpu_optim_list(const ct_call *call, optim_kind kind, int first, int width) {
    optim_list l = {.call = call, .kind = kind, .first = first, .width = width, .items = (call->n_in - first) / width};
    int64_t n = 0;
    for (int i = 0; i < l.items; i++) n += ct_wgpu_count(call->in[first + i * width]);
    l.chunk = n <= 1 << 20 ? 1024 : n <= 1 << 24 ? 4096 : 8192;
    return l;
}
