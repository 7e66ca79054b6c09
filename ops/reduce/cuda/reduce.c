/* Reductions: how the work is divided, and which device code does it. */
#include "ops/reduce/cuda/reduce.h"

#include <string.h>

#include "ops/reduce/cuda/reduction.h"

#include "gen/reduce.attrs.h"

enum {
    ENOUGH = 1056, /* blocks that keep a large device busy; a constant, since the bits of sums hang on it, */
    ENOUGH_COLUMNS = ENOUGH / 2, /* and of columns, whose threads have more under way */
    SHORT = 8,                   /* packs that a thread takes at least before a result is made in parts */
};

extern const unsigned char ct_fatbin_reduce_sum[], ct_fatbin_reduce_extrema[], ct_fatbin_reduce_place[];
static ct_cuda_unit sum_unit = CT_CUDA_UNIT_FROM("reduce_sum", ct_fatbin_reduce_sum, true);
static ct_cuda_unit extrema_unit = CT_CUDA_UNIT_FROM("reduce_extrema", ct_fatbin_reduce_extrema, false);
static ct_cuda_unit place_unit = CT_CUDA_UNIT_FROM("reduce_place", ct_fatbin_reduce_place, false);

#define OF_DTYPES(unit, name) \
    { CT_REDUCTION_FLOATS(unit, name), CT_REDUCTION_INTEGERS(unit, name) }
#define REDUCTION(name, unit, places, most, byte, sum)                                                           \
    static ct_cuda_reduction name##_reduction = {                                                                \
        {OF_DTYPES(unit, #name "_rows_"), OF_DTYPES(unit, #name "_pieces_"), OF_DTYPES(unit, #name "_dense_"),   \
         OF_DTYPES(unit, #name "_columns_"), OF_DTYPES(unit, #name "_flat_"), OF_DTYPES(unit, #name "_parts_")}, \
        places,                                                                                                  \
        most,                                                                                                    \
        byte,                                                                                                    \
        sum}
REDUCTION(sum, sum_unit, false, 8, 8, 8);
REDUCTION(prod, sum_unit, false, 4, 4, 8);
REDUCTION(amax, extrema_unit, false, 8, 8, 8);
REDUCTION(amin, extrema_unit, false, 8, 8, 8);
REDUCTION(amax_place, place_unit, true, 4, 4, 16);
REDUCTION(amin_place, place_unit, true, 4, 4, 16);

/* As in the device code. */
static int pack_of(const ct_cuda_reduction *r, ct_dtype dtype) {
    const int size = (int)ct_cuda_dtype_size(dtype), fits = 16 / size;
    return size == 1 ? r->byte : fits < r->most ? fits : r->most;
}

static unsigned mask_of(const ct_dims *axes, int ndim) {
    unsigned mask = 0;
    for (int i = 0; i < axes->n; i++) mask |= 1u << (axes->d[i] < 0 ? axes->d[i] + (ndim ? ndim : 1) : axes->d[i]);
    return axes->n ? mask : (1u << ndim) - 1;
}

/* Greatest strides first; one of 0 is far away, since nothing is gained by going along it. */
static uint64_t distance(int64_t stride) {
    return stride == 0 ? UINT64_MAX : stride < 0 ? (uint64_t)-stride : (uint64_t)stride;
}

static void sort_by_stride(ct_cuda_view *views, int n) {
    for (int i = 1; i < views[0].ndim; i++)
        for (int j = i; j > 0 && distance(views[0].strides[j]) > distance(views[0].strides[j - 1]); j--)
            for (int k = 0; k < n; k++) {
                ct_cuda_view *v = &views[k];
                const int64_t size = v->dims[j], stride = v->strides[j];
                v->dims[j] = v->dims[j - 1];
                v->strides[j] = v->strides[j - 1];
                v->dims[j - 1] = size;
                v->strides[j - 1] = stride;
            }
}

static void append(ct_cuda_view *v, int64_t size, int64_t stride) {
    v->dims[v->ndim] = size;
    v->strides[v->ndim++] = stride;
}

/* Whether packs of v elements along the innermost dimension of `along` can be aligned, the addresses left aside. */
static bool packs_fit(const ct_cuda_nest *along, const ct_cuda_nest *other, int v) {
    const int last = along->ndim - 1;
    if (along->strides[0][last] != 1 || along->sizes[last] % v != 0) return false;
    for (int d = 0; d < last; d++)
        if (along->strides[0][d] % v != 0) return false;
    for (int d = 0; d < other->ndim; d++)
        if (other->sizes[d] > 1 && other->strides[0][d] % v != 0) return false;
    return true;
}

typedef struct plan {
    ct_cuda_reduce a;
    bool columns;
    int64_t blocks;
} plan;

static int64_t at_least_1(int64_t a) { return a < 1 ? 1 : a; }
static int power_of_two(int64_t n, int most) {
    int p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

/* It looks at shapes alone: parts, and so the bits, do not depend on addresses. There is at least one result. */
static plan plan_of(const ct_cuda_reduction *r, const ct_call *call, const ct_dims *axes) {
    const ct_view *x = call->in[0], *out = call->out[0];
    const unsigned mask = mask_of(axes, x->ndim);
    plan p;
    memset(&p, 0, sizeof p);
    ct_cuda_view kept[2], reduced;
    memset(kept, 0, sizeof kept);
    memset(&reduced, 0, sizeof reduced);
    for (int d = 0, to = 0; d < x->ndim; d++) {
        const bool is_reduced = mask >> d & 1;
        if (is_reduced) append(&reduced, x->dims[d], x->strides[d]);
        else {
            append(&kept[0], x->dims[d], x->strides[d]);
            append(&kept[1], x->dims[d], out->strides[to]);
        }
        to += !is_reduced || out->ndim == x->ndim;
    }
    sort_by_stride(kept, 2);
    if (!r->places) sort_by_stride(&reduced, 1);
    ct_cuda_reduce *a = &p.a;
    a->kept = ct_cuda_nest_of(kept, 2);
    a->reduced = ct_cuda_nest_of(&reduced, 1);

    const int v = pack_of(r, x->dtype), last = a->kept.ndim - 1, inner = a->reduced.ndim - 1;
    const int64_t results = a->kept.total, n = a->reduced.total;
    p.columns = n == 1 || (results > 1 && distance(a->kept.strides[0][last]) < distance(a->reduced.strides[0][inner]));
    int64_t work, each; /* blocks without parts; elements of a part at least */
    if (p.columns) {
        a->packed = packs_fit(&a->kept, &a->reduced, v);
        const int64_t columns = a->packed ? results / v : results;
        a->lanes = power_of_two(columns, n == 1 ? CT_REDUCE_THREADS : 32);
        work = ct_cuda_ceil_div(columns, a->lanes);
        each = SHORT * (CT_REDUCE_THREADS / a->lanes);
    } else {
        a->packed = packs_fit(&a->reduced, &a->kept, v);
        const bool dense = inner == 0 && a->reduced.strides[0][0] == 1;
        const int64_t packs = dense || a->packed ? ct_cuda_ceil_div(n, v) : n;
        a->lanes = power_of_two(ct_cuda_ceil_div(packs, 4), 32);
        /* a warp for each where there are warps enough: they wait for nobody */
        if (packs > (results < 4 * ENOUGH ? 512 : 4096) || (packs > 64 && results < 2 * ENOUGH))
            a->lanes = CT_REDUCE_THREADS;
        work = ct_cuda_ceil_div(results, CT_REDUCE_THREADS / a->lanes);
        each = SHORT * (int64_t)a->lanes * (packs < n ? v : 1);
    }
    a->parts = 1;
    const int64_t enough = p.columns ? ENOUGH_COLUMNS : ENOUGH;
    if (work < enough && (p.columns || a->lanes == CT_REDUCE_THREADS)) {
        const int64_t wanted = enough / work, most = at_least_1(n / each);
        a->parts = wanted < most ? wanted : most;
    }
    a->chunk = at_least_1(ct_cuda_ceil_div(ct_cuda_ceil_div(n, a->parts), v) * v);
    a->parts = at_least_1(ct_cuda_ceil_div(n, a->chunk));
    p.blocks = p.columns ? work * a->parts : ct_cuda_ceil_div(results * a->parts, CT_REDUCE_THREADS / a->lanes);
    return p;
}

size_t ct_cuda_reduction_scratch(const ct_cuda_reduction *r, const ct_call *call, const ct_dims *axes) {
    if (ct_cuda_count(call->out[0]) == 0) return 0;
    const plan p = plan_of(r, call, axes);
    return p.a.parts > 1 ? (size_t)(p.a.kept.total * p.a.parts) * r->sum : 0;
}

/* What lies as it mostly does has kernels of its own. */
static int way_of(const plan *p) {
    const ct_cuda_nest *kept = &p->a.kept, *reduced = &p->a.reduced;
    if (p->columns) return p->a.packed && kept->ndim == 1 && reduced->ndim == 1 ? CT_REDUCE_FLAT : CT_REDUCE_COLUMNS;
    if (kept->ndim > 1 || reduced->strides[0][reduced->ndim - 1] != 1) return CT_REDUCE_ROWS;
    if (reduced->ndim == 1) return CT_REDUCE_DENSE;
    return p->a.packed && reduced->ndim == 2 && reduced->small ? CT_REDUCE_PIECES : CT_REDUCE_ROWS;
}

bool ct_cuda_reduction_run(ct_cuda_reduction *r, const ct_call *call, const ct_dims *axes) {
    const ct_view *x = call->in[0];
    if (ct_cuda_count(call->out[0]) == 0) return true;
    plan p = plan_of(r, call, axes);
    ct_cuda_reduce *a = &p.a;
    a->x = ct_cuda_address(x);
    a->out = ct_cuda_address(call->out[0]);
    a->partial = a->parts > 1 ? ct_cuda_scratch(call) : NULL;
    const size_t pack = (size_t)pack_of(r, x->dtype) * ct_cuda_dtype_size(x->dtype);
    if (a->packed && (uintptr_t)a->x % pack != 0) {
        a->packed = 0;
        if (p.columns) p.blocks = ct_cuda_ceil_div(a->kept.total, a->lanes) * a->parts;
    }
    ct_cuda_shape shape = {.grid = ct_cuda_grid(p.blocks), .block = CT_REDUCE_THREADS};
    if (!ct_cuda_launch(call, &r->functions[way_of(&p)][x->dtype], shape, a)) return false;
    if (a->parts == 1) return true;
    a->lanes = a->parts > 64 ? CT_REDUCE_THREADS : power_of_two(a->parts, 32);
    shape.grid = ct_cuda_grid(ct_cuda_ceil_div(a->kept.total, CT_REDUCE_THREADS / a->lanes));
    return ct_cuda_launch(call, &r->functions[CT_REDUCE_PARTS][x->dtype], shape, a);
}

static const char *can(const ct_call *call) {
    return (int)call->in[0]->dtype < CT_REDUCTION_DTYPES ? NULL : "no arithmetic on this dtype";
}

#define KERNEL(name)                                                             \
    static size_t name##_scratch(const ct_call *call) {                          \
        const name##_attrs *attrs = call->attrs;                                 \
        return ct_cuda_reduction_scratch(&name##_reduction, call, &attrs->axes); \
    }                                                                            \
    static bool name##_run(const ct_call *call, ct_stream *stream) {             \
        (void)stream;                                                            \
        const name##_attrs *attrs = call->attrs;                                 \
        return ct_cuda_reduction_run(&name##_reduction, call, &attrs->axes);     \
    }
KERNEL(sum)
KERNEL(prod)
KERNEL(amax)
KERNEL(amin)
KERNEL(amax_place)
KERNEL(amin_place)

CT_CUDA_KERNELS(reduce_reduce) = {
    CT_CANDIDATES(sum, {"sum", can, sum_scratch, sum_run}),
    CT_CANDIDATES(prod, {"prod", can, prod_scratch, prod_run}),
    CT_CANDIDATES(amax, {"amax", can, amax_scratch, amax_run}),
    CT_CANDIDATES(amin, {"amin", can, amin_scratch, amin_run}),
    CT_CANDIDATES(amax_place, {"amax_place", can, amax_place_scratch, amax_place_run}),
    CT_CANDIDATES(amin_place, {"amin_place", can, amin_place_scratch, amin_place_run}),
    {0},
};
