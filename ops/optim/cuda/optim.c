/* The steps on NVIDIA devices: the host side. Items are sorted into lists of one kind and written into tables (optim.h), each of which goes
 * over in one launch. */
#include "ops/optim/cuda/optim.h"

#include <math.h>
#include <string.h>

#include "backends/cuda/cuda.h"

_Static_assert(sizeof(ct_cuda_optim) <= 4096, "more than a kernel's parameters");
_Static_assert((OPTIM_WIDTH + 2) * sizeof(uint64_t) + sizeof(ct_optim_strides) <= sizeof((ct_cuda_optim){0}.table),
               "an item with its strides fits");
_Static_assert(CT_BF16 < 1 << CT_OPTIM_DTYPE_BITS && OPTIM_WIDTH * CT_OPTIM_DTYPE_BITS <= 32, "all dtypes of an item");

/* What an item's tensors are. The device code has a function for all dense f32, one for halves where they are expected and f32 besides,
 * and one for anything, computed in f32 or in f64. */
typedef enum item_kind {
    ITEM_F32,
    ITEM_HALF,
    ITEM_MIXED,
    ITEM_MIXED64,
    ITEM_STRIDED,
    ITEM_STRIDED64,
    ITEM_KINDS
} item_kind;
static int function_for(item_kind kind, bool few) {
    const int functions_of[] = {0, 1, 2, 3, 2, 3};
    return few && kind <= ITEM_HALF ? 4 + (int)kind : functions_of[kind];
}

typedef ct_cuda_function functions[6];
#define FUNCTION(unit, name) CT_CUDA_FUNCTION_OF(&(unit), name)
#define FUNCTIONS(unit, name)                                                                                  \
    {                                                                                                          \
        FUNCTION(unit, name "_f32"), FUNCTION(unit, name "_half"), FUNCTION(unit, name "_mixed"),              \
            FUNCTION(unit, name "_mixed64"), FUNCTION(unit, name "_f32_few"), FUNCTION(unit, name "_half_few") \
    }
#define UNIT(name)                                       \
    extern const unsigned char ct_fatbin_optim_##name[]; \
    static ct_cuda_unit name##_unit = CT_CUDA_UNIT_FROM("optim_" #name, ct_fatbin_optim_##name, true)
UNIT(steps);
UNIT(lengths);
UNIT(gradients);

/* A call: where its list begins, and what its items are. */
typedef struct list {
    const ct_call *call;
    int first, width, items;
    bool master;
    unsigned halves;           /* which tensors, without the rounded parameter, are of a half type where it goes fast */
    uint32_t chunk;            /* elements */
    ct_cuda_function *does[2]; /* of each pass; the second may be NULL */
    bool by_chunk;             /* sums are by chunk, in pairs; otherwise by block */
    const ct_view *rates, *clock, *gate;
    size_t attrs_bytes;
} list;

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

static bool is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }

static item_kind kind_of(const list *l, const ct_view *const *item) {
    const ct_view *lead = item[l->master];
    const bool wide = lead->dtype == CT_F64;
    bool f32 = !l->master, halves = true;
    ct_dtype half = CT_F32;
    for (int i = 0; i < l->width; i++) {
        if (!same_strides(lead, item[i])) return wide ? ITEM_STRIDED64 : ITEM_STRIDED;
        const bool expected = i < l->master || l->halves >> (i - l->master) & 1;
        const bool aligned = (uintptr_t)ct_cuda_address(item[i]) % (4 * ct_cuda_dtype_size(item[i]->dtype)) == 0;
        f32 = f32 && aligned && item[i]->dtype == CT_F32;
        halves = halves && aligned && (expected ? is_half(item[i]->dtype) : item[i]->dtype == CT_F32);
        if (halves && expected && half == CT_F32) half = item[i]->dtype;
        halves = halves && (!expected || item[i]->dtype == half);
    }
    if (!is_packed(lead)) return wide ? ITEM_STRIDED64 : ITEM_STRIDED;
    return f32 ? ITEM_F32 : halves ? ITEM_HALF : wide ? ITEM_MIXED64 : ITEM_MIXED;
}

/* ---- Tables ---- */

static ct_optim_vector vector_of(const ct_view *view) {
    ct_optim_vector v = {0};
    if (!view) return v;
    v.at = ct_cuda_address(view);
    v.stride = view->ndim ? view->strides[0] : 0;
    v.dtype = view->dtype;
    return v;
}

/* A table that is being filled. */
typedef struct table {
    ct_cuda_optim a;
    item_kind kind;
    const ct_view *const *taken[CT_OPTIM_TABLE / 3];
} table;

static uint32_t chunks_of(const list *l, const ct_view *const *item) {
    return (uint32_t)((ct_cuda_count(item[0]) + l->chunk - 1) / l->chunk);
}

static void write_table(const list *l, table *t) {
    ct_cuda_optim *a = &t->a;
    uint64_t *counts = a->table + a->items * a->width, *starts = counts + a->items;
    a->chunks = 0;
    for (int i = 0; i < a->items; i++) {
        const ct_view *const *item = t->taken[i];
        uint64_t dtypes = 0;
        for (int k = 0; k < a->width; k++) {
            a->table[i * a->width + k] = (uint64_t)(uintptr_t)ct_cuda_address(item[k]);
            dtypes |= (uint64_t)item[k]->dtype << (CT_OPTIM_DTYPE_BITS * k);
        }
        counts[i] = (uint64_t)ct_cuda_count(item[0]);
        starts[i] = a->chunks | dtypes << 32;
        a->chunks += chunks_of(l, item);
    }
    a->strided = t->kind >= ITEM_STRIDED;
    if (!a->strided) return;
    ct_optim_strides s;
    const ct_view *const *item = t->taken[0];
    memset(&s, 0, sizeof s);
    s.ndim = item[0]->ndim;
    memcpy(s.dims, item[0]->dims, sizeof s.dims);
    for (int k = 0; k < a->width; k++) memcpy(s.strides[k], item[k]->strides, sizeof s.strides[k]);
    memcpy(a->table + a->width + 2, &s, sizeof s);
}

static bool launch_table(const list *l, table *t, bool last) {
    enum {
        EIGHTH = 8
    }; /* of what keeps the device busy: 4 blocks per multiprocessor, which go on from chunk to chunk */
    ct_cuda_optim *a = &t->a;
    write_table(l, t);
    unsigned most = ct_cuda_blocks(l->call, INT64_MAX / 2, CT_OPTIM_THREADS) / EIGHTH;
    if (most > CT_OPTIM_BLOCKS) most = CT_OPTIM_BLOCKS;
    const unsigned grid = a->chunks < 1 ? 1 : a->chunks < most ? a->chunks : most;
    const bool few = a->items * (a->width + 2) <= CT_OPTIM_FEW;
    for (int pass = 0; pass < 2 && l->does[pass]; pass++) {
        a->last = last && (pass == 1 || !l->does[1]);
        if (!ct_cuda_launch(l->call, &l->does[pass][function_for(t->kind, few)],
                            (ct_cuda_shape){.grid = grid, .block = CT_OPTIM_THREADS}, a))
            return false;
    }
    a->before += l->by_chunk ? a->chunks : grid;
    a->items = 0;
    return true;
}

/* All items that hold anything, kind by kind. A launch always comes last, which ends the call. */
static bool run_list(const list *l) {
    static _Atomic unsigned turn;
    table t;
    memset(&t.a, 0, offsetof(ct_cuda_optim, table));
    t.kind = ITEM_F32;
    t.a.rates = vector_of(l->rates);
    t.a.clock = vector_of(l->clock);
    t.a.gate = vector_of(l->gate);
    t.a.out = vector_of(l->call->out[0]);
    memcpy(t.a.attrs.bytes, l->call->attrs, l->attrs_bytes);
    t.a.sums = (double *)(void *)ct_cuda_scratch(l->call);
    t.a.width = l->width;
    t.a.all = l->items;
    t.a.chunk = l->chunk;
    t.a.master = l->master;
    t.a.counter = atomic_fetch_add(&turn, 1) % CT_OPTIM_COUNTERS;
    const int room = CT_OPTIM_TABLE / (l->width + 2);
    unsigned kinds = 0; /* which there are */
    for (int i = 0; i < l->items; i++) kinds |= 1u << kind_of(l, l->call->in + l->first + i * l->width);
    for (item_kind kind = ITEM_F32; kind < ITEM_KINDS; kind++) {
        if (!(kinds >> kind & 1)) continue;
        for (int i = 0; i < l->items; i++) {
            const ct_view *const *item = l->call->in + l->first + i * l->width;
            if (ct_cuda_count(item[0]) == 0 || (kinds != 1u << kind && kind_of(l, item) != kind)) continue;
            const bool full = t.a.items == room || (t.a.items && (t.kind != kind || kind >= ITEM_STRIDED));
            if (full && !launch_table(l, &t, false)) return false;
            t.kind = kind;
            t.taken[t.a.items++] = item;
        }
    }
    return launch_table(l, &t, true);
}

/* ---- The ops ---- */

static int64_t elements_of(const list *l) {
    int64_t n = 0;
    for (int i = 0; i < l->items; i++) n += ct_cuda_count(l->call->in[l->first + i * l->width]);
    return n;
}

/* Of all items, with room for one more in each launch: there are no more launches than items and one. */
static size_t sums_bytes(const list *l) {
    size_t chunks = (size_t)l->items + 1;
    for (int i = 0; i < l->items; i++) chunks += chunks_of(l, l->call->in + l->first + i * l->width);
    return chunks * (l->by_chunk ? 2 : 1) * sizeof(double);
}

/* Of few elements there are as many chunks as blocks that run at one time, so that all of them have about the same to do; large ones keep the
 * search for a chunk's item and its sums rare. */
static list new_list(const ct_call *call, int first, int width, size_t attrs_bytes) {
    enum { CHUNKS = 480, CHUNK_UNIT = 512 }; /* fewer than blocks: those at the ends of items are not full */
    list l = {.call = call,
              .first = first,
              .width = width,
              .items = (call->n_in - first) / width,
              .attrs_bytes = attrs_bytes};
    const int64_t n = elements_of(&l);
    const int64_t share = ct_cuda_ceil_div(n, CHUNKS * CHUNK_UNIT) * CHUNK_UNIT;
    l.chunk = (uint32_t)(share < 1024 ? 1024 : share < 4096 ? share : 4096);
    return l;
}

static list step_list(const ct_call *call, int width, bool master, size_t attrs_bytes) {
    list l = new_list(call, OPTIM_ITEMS_AT, width, attrs_bytes);
    l.master = master;
    l.halves = 2;
    l.rates = call->in[OPTIM_RATES_AT];
    l.clock = call->in[OPTIM_CLOCK_AT];
    l.gate = call->in[OPTIM_GATE_AT];
    return l;
}

/* Without a clock: the first input, then the list. */
static list plain_list(const ct_call *call, int width, unsigned halves, size_t attrs_bytes) {
    list l = new_list(call, 1, width, attrs_bytes);
    l.halves = halves;
    l.rates = call->in[0];
    return l;
}

#define STEP(name, FUNCTION)                                                     \
    static bool name##_run(const ct_call *call, ct_stream *stream) {             \
        const optim_##name##_attrs *a = call->attrs;                             \
        (void)stream;                                                            \
        list l = step_list(call, optim_##name##_width(a), a->master, sizeof *a); \
        const int tensors = l.width - a->master;                                 \
        (void)tensors;                                                           \
        l.does[0] = (FUNCTION);                                                  \
        return run_list(&l);                                                     \
    }
static functions sgd_2 = FUNCTIONS(steps_unit, "sgd_2"), sgd_3 = FUNCTIONS(steps_unit, "sgd_3"),
                 adam_4 = FUNCTIONS(steps_unit, "adam_4"), adam_5 = FUNCTIONS(steps_unit, "adam_5"),
                 rmsprop_3 = FUNCTIONS(steps_unit, "rmsprop_3"), rmsprop_4 = FUNCTIONS(steps_unit, "rmsprop_4"),
                 rmsprop_5 = FUNCTIONS(steps_unit, "rmsprop_5"), adagrad_3 = FUNCTIONS(steps_unit, "adagrad_3"),
                 adadelta_4 = FUNCTIONS(steps_unit, "adadelta_4"), lion_3 = FUNCTIONS(steps_unit, "lion_3"),
                 average_2 = FUNCTIONS(steps_unit, "average_2");
STEP(sgd, tensors == 2 ? sgd_2 : sgd_3)
STEP(adam, tensors == 4 ? adam_4 : adam_5)
STEP(rmsprop, tensors == 3 ? rmsprop_3 : tensors == 4 ? rmsprop_4 : rmsprop_5)
STEP(adagrad, adagrad_3)
STEP(adadelta, adadelta_4)
STEP(lion, lion_3)

/* Items of many chunks would have every block of the second pass sum them all: fewer, larger ones. */
static list lengths_list(const ct_call *call, int width, bool master, size_t attrs_bytes) {
    list l = step_list(call, width, master, attrs_bytes);
    l.by_chunk = true;
    if (l.chunk == 4096) l.chunk = 1 << 14;
    return l;
}

#define BY_LENGTHS(name)                                                                  \
    static size_t name##_scratch(const ct_call *call) {                                   \
        const optim_##name##_attrs *a = call->attrs;                                      \
        const list l = lengths_list(call, optim_##name##_width(a), a->master, sizeof *a); \
        return sums_bytes(&l);                                                            \
    }                                                                                     \
    static bool name##_run(const ct_call *call, ct_stream *stream) {                      \
        static functions first = FUNCTIONS(lengths_unit, #name "_first"),                 \
                         second = FUNCTIONS(lengths_unit, #name "_second");               \
        const optim_##name##_attrs *a = call->attrs;                                      \
        (void)stream;                                                                     \
        list l = lengths_list(call, optim_##name##_width(a), a->master, sizeof *a);       \
        l.does[0] = first;                                                                \
        l.does[1] = second;                                                               \
        return run_list(&l);                                                              \
    }
BY_LENGTHS(lamb)
BY_LENGTHS(lars)

/* The second pass reads what the first has stored. */
static const char *lamb_can(const ct_call *call) {
    const optim_lamb_attrs *a = call->attrs;
    const int width = optim_lamb_width(a);
    for (int i = OPTIM_ITEMS_AT; i < call->n_in; i++)
        if ((i - OPTIM_ITEMS_AT) % width >= 2 + a->master && is_half(call->in[i]->dtype))
            return "the moments are of a half type";
    return NULL;
}

static bool average_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    list l = plain_list(call, 2, 2, 0);
    l.does[0] = average_2;
    return run_list(&l);
}

static size_t plain_scratch(const ct_call *call) {
    const list l = plain_list(call, 1, 1, 0);
    return sums_bytes(&l);
}

static bool unscale_run(const ct_call *call, ct_stream *stream) {
    static functions unscale = FUNCTIONS(gradients_unit, "unscale_1");
    (void)stream;
    list l = plain_list(call, 1, 1, sizeof(optim_unscale_attrs));
    l.does[0] = unscale;
    return run_list(&l);
}

static bool clip_run(const ct_call *call, ct_stream *stream) {
    static functions clip = FUNCTIONS(gradients_unit, "clip_1");
    (void)stream;
    list l = plain_list(call, 1, 1, sizeof(optim_clip_attrs));
    if (!call->out[0] && isinf(((const optim_clip_attrs *)call->attrs)->max_norm)) return true;
    l.does[0] = clip;
    return run_list(&l);
}

static list norm_list(const ct_call *call) {
    list l = new_list(call, 0, 1, sizeof(optim_norm_attrs));
    l.halves = 1;
    return l;
}
static size_t norm_scratch(const ct_call *call) {
    const list l = norm_list(call);
    return sums_bytes(&l);
}
static bool norm_run(const ct_call *call, ct_stream *stream) {
    static functions norm = FUNCTIONS(gradients_unit, "norm_1");
    (void)stream;
    list l = norm_list(call);
    l.does[0] = norm;
    return run_list(&l);
}

/* ---- Single numbers: scale, good and clean, or gate and count ---- */

static bool run_numbers(const ct_call *call, ct_cuda_function *function, const ct_view *rates, const ct_view *clock,
                        const ct_view *gate, size_t attrs_bytes) {
    ct_cuda_optim a;
    memset(&a, 0, sizeof a);
    a.rates = vector_of(rates);
    a.clock = vector_of(clock);
    a.gate = vector_of(gate);
    a.out = vector_of(call->out[0]);
    if (attrs_bytes) memcpy(a.attrs.bytes, call->attrs, attrs_bytes);
    a.all = a.last = 1;
    return ct_cuda_launch(call, function, (ct_cuda_shape){.grid = 1, .block = 1}, &a);
}
static bool rescale_run(const ct_call *call, ct_stream *stream) {
    static ct_cuda_function rescale = FUNCTION(gradients_unit, "rescale");
    (void)stream;
    return run_numbers(call, &rescale, call->in[0], call->in[1], call->in[2], sizeof(optim_rescale_attrs));
}
static bool left_out_run(const ct_call *call, ct_stream *stream) {
    static ct_cuda_function left_out = FUNCTION(gradients_unit, "left_out");
    (void)stream;
    return run_numbers(call, &left_out, NULL, call->in[1], call->in[0], 0);
}

#define LISTS(name, can, scratch) CT_CANDIDATES(optim_##name, {"optim_" #name "_list", can, scratch, name##_run})

_Static_assert(sizeof(optim_rescale_attrs) <= sizeof((ct_cuda_optim){0}.attrs), "the largest attributes");

CT_CUDA_KERNELS(optim_optim) = {
    LISTS(sgd, NULL, NULL),
    LISTS(adam, NULL, NULL),
    LISTS(rmsprop, NULL, NULL),
    LISTS(adagrad, NULL, NULL),
    LISTS(adadelta, NULL, NULL),
    LISTS(lion, NULL, NULL),
    LISTS(lamb, lamb_can, lamb_scratch),
    LISTS(lars, NULL, lars_scratch),
    LISTS(average, NULL, NULL),
    LISTS(unscale, NULL, plain_scratch),
    LISTS(clip, NULL, NULL),
    LISTS(norm, NULL, norm_scratch),
    LISTS(rescale, NULL, NULL),
    LISTS(left_out, NULL, NULL),
    {0},
};
