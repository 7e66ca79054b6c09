/* Reductions: how the work is divided, and which formula does it. A reduction is either one of rows, whose invocations
 * go along what is reduced, or one of columns, whose invocations stand side by side at results. Where there are too few
 * results for the device each is made in parts, which a second dispatch merges. How the work is divided depends on sizes
 * alone, so the bits do as well. */
#include "ops/reduce/webgpu/reduction.h"

#include "backends/webgpu/lines.h"

#include "gen/reduce.attrs.h"

enum {
    THREADS = 256,
    ENOUGH = 2112, /* workgroups that keep a large device busy; a constant, since the bits of sums hang on it */
    SHORT = 8,     /* loads of an invocation at least before a result is made in parts */
    QUAD = 4,
    PART_BYTES = 16, /* of a part of a result */
};

CT_WGPU_UNIT(reduce_reduce);

extern const char ct_wgsl_reduce_sum_real[], ct_wgsl_reduce_sum_whole[], ct_wgsl_reduce_prod_real[],
    ct_wgsl_reduce_prod_whole[], ct_wgsl_reduce_extreme_word[], ct_wgsl_reduce_extreme_wide[],
    ct_wgsl_reduce_place_word[], ct_wgsl_reduce_place_wide[], ct_wgsl_reduce_moments[], ct_wgsl_reduce_truth[],
    ct_wgsl_reduce_count[];
#define REDUCTION(name, real, word, wide, places, option)                                            \
    static const ct_wgpu_reduction name##_reduction = {ct_wgsl_reduce_##real, ct_wgsl_reduce_##word, \
                                                       ct_wgsl_reduce_##wide, places, option}
REDUCTION(sum, sum_real, sum_whole, sum_whole, false, false);
REDUCTION(any, truth, truth, truth, false, false);
REDUCTION(all, truth, truth, truth, false, true);
REDUCTION(count_nonzero, count, count, count, false, false);
REDUCTION(prod, prod_real, prod_whole, prod_whole, false, false);
REDUCTION(amax, extreme_word, extreme_word, extreme_wide, false, true);
REDUCTION(amin, extreme_word, extreme_word, extreme_wide, false, false);
REDUCTION(amax_place, place_word, place_word, place_wide, true, true);
REDUCTION(amin_place, place_word, place_word, place_wide, true, false);

static const ct_wgpu_reduction mean_reduction = {ct_wgsl_reduce_sum_real, NULL, NULL, false, true};

/* As in the device code. */
typedef struct params {
    uint32_t results, n, parts, chunk, lanes, blocks, pad[2];
    uint32_t kept[CT_WGPU_DIMS], kept_x[CT_WGPU_DIMS], kept_out[CT_WGPU_DIMS];
    uint32_t reduced[CT_WGPU_DIMS], reduced_x[CT_WGPU_DIMS];
} params;

typedef struct division {
    params p;
    uint32_t kept_rank, reduced_rank;
    bool columns, quads;
    int64_t groups;
} division;

static unsigned mask_of(const ct_dims *axes, int ndim) {
    unsigned mask = 0;
    for (int i = 0; i < axes->n; i++) mask |= 1u << (axes->d[i] < 0 ? axes->d[i] + (ndim ? ndim : 1) : axes->d[i]);
    return axes->n ? mask : (1u << ndim) - 1;
}

/* Greatest strides first; one of 0 is far away, since nothing is gained by going along it. */
static uint64_t distance(int64_t stride) {
    return stride == 0 ? UINT64_MAX : stride < 0 ? (uint64_t)-stride : (uint64_t)stride;
}

static void swap(int64_t *a, int64_t *b) {
    const int64_t t = *a;
    *a = *b;
    *b = t;
}

static void sort_by_stride(ct_view *views, int n) {
    for (int i = 1; i < views[0].ndim; i++)
        for (int j = i; j > 0 && distance(views[0].strides[j]) > distance(views[0].strides[j - 1]); j--)
            for (int k = 0; k < n; k++) {
                swap(&views[k].dims[j], &views[k].dims[j - 1]);
                swap(&views[k].strides[j], &views[k].strides[j - 1]);
            }
}

static void append(ct_view *v, int64_t size, int64_t stride) {
    v->dims[v->ndim] = size;
    v->strides[v->ndim++] = stride;
}

static int64_t signed_stride(uint32_t stride) { return (int32_t)stride; }

/* Whether quads along the innermost dimension of `along` can be aligned, where x begins left aside. */
static bool quads_fit(const ct_wgpu_nest *along, const ct_wgpu_nest *other) {
    const uint32_t last = along->rank - 1;
    if (along->rank == 0 || along->strides[0][last] != 1 || along->dims[last] % QUAD != 0) return false;
    for (uint32_t d = 0; d < last; d++)
        if (along->strides[0][d] % QUAD != 0) return false;
    for (uint32_t d = 0; d < other->rank; d++)
        if (other->strides[0][d] % QUAD != 0) return false;
    return true;
}

static int64_t at_least_1(int64_t a) { return a < 1 ? 1 : a; }
static int64_t power_of_two(int64_t n, int64_t most) {
    int64_t p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}
static uint64_t inner_distance(const ct_wgpu_nest *nest) {
    return nest->rank ? distance(signed_stride(nest->strides[0][nest->rank - 1])) : UINT64_MAX;
}

/* By shapes and strides, and whether x begins at a multiple of four elements. There is at least one result. */
static division plan_of(const ct_wgpu_reduce *r, bool aligned) {
    const ct_view *x = r->x, *out = r->out;
    const unsigned mask = r->mask;
    ct_view kept[2], reduced;
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
    ct_wgpu_nest of_kept, of_reduced;
    ct_wgpu_nest_of(&of_kept, (const ct_view *const[]){&kept[0], &kept[1]}, 2);
    ct_wgpu_nest_of(&of_reduced, (const ct_view *const[]){&reduced}, 1);

    division plan;
    memset(&plan, 0, sizeof plan);
    params *p = &plan.p;
    const int64_t results = of_kept.total, n = of_reduced.total;
    p->results = (uint32_t)results, p->n = (uint32_t)n;
    memcpy(p->kept, of_kept.dims, sizeof p->kept);
    memcpy(p->kept_x, of_kept.strides[0], sizeof p->kept_x);
    memcpy(p->kept_out, of_kept.strides[1], sizeof p->kept_out);
    memcpy(p->reduced, of_reduced.dims, sizeof p->reduced);
    memcpy(p->reduced_x, of_reduced.strides[0], sizeof p->reduced_x);
    plan.kept_rank = (uint32_t)at_least_1(of_kept.rank), plan.reduced_rank = (uint32_t)at_least_1(of_reduced.rank);

    const bool can_quads = aligned && ct_wgpu_dtype_size(x->dtype) <= 4;
    plan.columns = n == 1 || (results > 1 && inner_distance(&of_kept) < inner_distance(&of_reduced));
    int64_t work, each; /* workgroups without parts; elements of a part at least */
    if (plan.columns) {
        plan.quads = can_quads && quads_fit(&of_kept, &of_reduced);
        const int64_t columns = plan.quads ? results / QUAD : results;
        p->lanes = (uint32_t)power_of_two(columns, n == 1 ? THREADS : 32);
        work = p->blocks = (uint32_t)ct_wgpu_ceil_div(columns, p->lanes);
        each = SHORT * (THREADS / p->lanes);
    } else {
        plan.quads = can_quads && quads_fit(&of_reduced, &of_kept);
        const int64_t loads = plan.quads ? n / QUAD : n;
        p->lanes = (uint32_t)power_of_two(ct_wgpu_ceil_div(loads, 4), 32);
        if (loads > 512 || (loads > 64 && results < ENOUGH)) p->lanes = THREADS;
        work = ct_wgpu_ceil_div(results, THREADS / p->lanes);
        each = SHORT * (int64_t)p->lanes * (plan.quads ? QUAD : 1);
    }
    int64_t parts = 1;
    if (work < ENOUGH && (plan.columns || p->lanes == THREADS)) {
        const int64_t wanted = ENOUGH / work, most = at_least_1(n / each);
        parts = wanted < most ? wanted : most;
    }
    p->chunk = (uint32_t)at_least_1(ct_wgpu_ceil_div(ct_wgpu_ceil_div(n, parts), QUAD) * QUAD);
    p->parts = (uint32_t)at_least_1(ct_wgpu_ceil_div(n, p->chunk));
    plan.groups = plan.columns ? work * p->parts : ct_wgpu_ceil_div(results * p->parts, THREADS / p->lanes);
    return plan;
}

static size_t scratch_of(const params *p) { return p->parts > 1 ? (size_t)p->results * p->parts * PART_BYTES : 0; }

size_t ct_wgpu_reduce_scratch(const ct_wgpu_reduce *r) {
    if (ct_wgpu_count(r->out) == 0) return 0;
    /* either way: where x begins is not known yet */
    const division plans[] = {plan_of(r, false), plan_of(r, true)};
    const size_t one = scratch_of(&plans[0].p), other = scratch_of(&plans[1].p);
    return one > other ? one : other;
}

static void begin(ct_wgpu_launch *l, const ct_wgpu_reduce *r, const ct_call *call, const division *plan,
                  const char *function) {
    *l = ct_wgpu_begin(&unit, function, THREADS);
    l->more = r->formula;
    const unsigned only = ct_wgpu_dtype_size(r->x->dtype) == 4 ? CT_WGPU_QUADS_ONLY : 0;
    ct_wgpu_operand_of(l, "x", r->x, plan->quads ? CT_WGPU_QUADS | only : 0);
    ct_wgpu_out(l, "out", r->out);
    if (plan->p.parts > 1)
        ct_wgpu_scratch(l, "partial", call, CT_I64, r->scratch_offset, scratch_of(&plan->p), CT_WGPU_WRITTEN);
    else ct_wgpu_missing(l, "partial", CT_I64, CT_WGPU_WRITTEN);
    ct_wgpu_constant(l, "KEPT_RANK", plan->kept_rank);
    ct_wgpu_constant(l, "REDUCED_RANK", plan->reduced_rank);
    if (r->with) r->with(l, r->context);
}

bool ct_wgpu_reduce_run(const ct_call *call, const ct_wgpu_reduce *r) {
    if (ct_wgpu_count(r->out) == 0) return true;
    division plan = plan_of(r, ct_wgpu_fits(r->x, QUAD));
    ct_wgpu_launch l;
    const char *function = plan.columns ? (plan.quads ? "quad_columns" : "columns") : plan.quads ? "quad_rows" : "rows";
    begin(&l, r, call, &plan, function);
    if (!ct_wgpu_enqueue(call, &l, plan.groups, &plan.p, sizeof plan.p)) return false;
    if (plan.p.parts == 1) return true;
    plan.quads = false;
    plan.p.lanes = plan.p.parts > 64 ? THREADS : (uint32_t)power_of_two(plan.p.parts, 32);
    begin(&l, r, call, &plan, "parts");
    return ct_wgpu_enqueue(call, &l, ct_wgpu_ceil_div(plan.p.results, THREADS / plan.p.lanes), &plan.p, sizeof plan.p);
}

/* ---- As the only thing that a call does ---- */

const char *ct_wgpu_reduction_can(const ct_wgpu_reduction *r, const ct_call *call) {
    const ct_dtype dtype = call->in[0]->dtype;
    if (dtype > CT_BOOL || (dtype > CT_BF16 && !r->word)) return "no such arithmetic on this dtype";
    return ct_wgpu_refuses(call);
}

typedef struct dtype_of_x {
    bool real, wide, option;
} dtype_of_x;
static void with_dtype(ct_wgpu_launch *l, const void *context) {
    const dtype_of_x *of = context;
    ct_wgpu_constant(l, "REAL", of->real);
    ct_wgpu_constant(l, "WIDE", of->wide);
    ct_wgpu_constant(l, "GREATEST", of->option); /* a formula has one of these options at most */
    ct_wgpu_constant(l, "MEAN", of->option);
    ct_wgpu_constant(l, "ALL", of->option);
}

static ct_wgpu_reduce reduce_of(const ct_wgpu_reduction *r, const ct_call *call, const ct_dims *axes, dtype_of_x *of) {
    const ct_view *x = call->in[0];
    *of = (dtype_of_x){.real = x->dtype <= CT_BF16, .wide = x->dtype == CT_I64, .option = r->option};
    return (ct_wgpu_reduce){.x = x,
                            .out = call->out[0],
                            .mask = mask_of(axes, x->ndim),
                            .places = r->places,
                            .formula = of->real   ? r->real
                                       : of->wide ? r->wide
                                                  : r->word,
                            .with = with_dtype,
                            .context = of};
}

size_t ct_wgpu_reduction_scratch(const ct_wgpu_reduction *r, const ct_call *call, const ct_dims *axes) {
    dtype_of_x of;
    const ct_wgpu_reduce reduce = reduce_of(r, call, axes, &of);
    return ct_wgpu_reduce_scratch(&reduce);
}

bool ct_wgpu_reduction_run(const ct_wgpu_reduction *r, const ct_call *call, const ct_dims *axes) {
    dtype_of_x of;
    const ct_wgpu_reduce reduce = reduce_of(r, call, axes, &of);
    return ct_wgpu_reduce_run(call, &reduce);
}

#define KERNEL(name)                                                                                              \
    static const char *name##_can(const ct_call *call) { return ct_wgpu_reduction_can(&name##_reduction, call); } \
    static size_t name##_scratch(const ct_call *call) {                                                           \
        return ct_wgpu_reduction_scratch(&name##_reduction, call, &((const name##_attrs *)call->attrs)->axes);    \
    }                                                                                                             \
    static bool name##_run(const ct_call *call, ct_stream *stream) {                                              \
        (void)stream;                                                                                             \
        return ct_wgpu_reduction_run(&name##_reduction, call, &((const name##_attrs *)call->attrs)->axes);        \
    }
KERNEL(sum)
KERNEL(mean)
KERNEL(any)
KERNEL(all)
KERNEL(count_nonzero)
KERNEL(prod)
KERNEL(amax)
KERNEL(amin)
KERNEL(amax_place)
KERNEL(amin_place)

/* ---- Variances ---- */

typedef struct spread {
    uint32_t kind, correction; /* as in the device code */
} spread;
static void with_spread(ct_wgpu_launch *l, const void *context) {
    const spread *of = context;
    ct_wgpu_missing(l, "second", CT_F32, CT_WGPU_WRITTEN);
    ct_wgpu_constant(l, "KIND", of->kind);
    ct_wgpu_constant(l, "CORRECTION", of->correction);
}

static ct_wgpu_reduce spread_of(const ct_call *call, const ct_dims *axes, double correction, bool root, spread *of) {
    const ct_view *x = call->in[0];
    const float less = (float)correction;
    of->kind = root ? 2 : 1;
    memcpy(&of->correction, &less, sizeof less);
    return (ct_wgpu_reduce){.x = x,
                            .out = call->out[0],
                            .mask = mask_of(axes, x->ndim),
                            .formula = ct_wgsl_reduce_moments,
                            .with = with_spread,
                            .context = of};
}

static const char *spread_can(const ct_call *call) { return ct_wgpu_reduction_can(&mean_reduction, call); }
#define SPREAD(name, root)                                                                 \
    static size_t name##_scratch(const ct_call *call) {                                    \
        const name##_attrs *a = call->attrs;                                               \
        spread of;                                                                         \
        const ct_wgpu_reduce reduce = spread_of(call, &a->axes, a->correction, root, &of); \
        return ct_wgpu_reduce_scratch(&reduce);                                            \
    }                                                                                      \
    static bool name##_run(const ct_call *call, ct_stream *stream) {                       \
        (void)stream;                                                                      \
        const name##_attrs *a = call->attrs;                                               \
        spread of;                                                                         \
        const ct_wgpu_reduce reduce = spread_of(call, &a->axes, a->correction, root, &of); \
        return ct_wgpu_reduce_run(call, &reduce);                                          \
    }
SPREAD(var, false)
SPREAD(std, true)

CT_WGPU_KERNELS(reduce_reduce) = {
    CT_CANDIDATES(sum, {"sum", sum_can, sum_scratch, sum_run}),
    CT_CANDIDATES(mean, {"mean", mean_can, mean_scratch, mean_run}),
    CT_CANDIDATES(any, {"any", any_can, any_scratch, any_run}),
    CT_CANDIDATES(all, {"all", all_can, all_scratch, all_run}),
    CT_CANDIDATES(count_nonzero, {"count_nonzero", count_nonzero_can, count_nonzero_scratch, count_nonzero_run}),
    CT_CANDIDATES(var, {"var", spread_can, var_scratch, var_run}),
    CT_CANDIDATES(std, {"std", spread_can, std_scratch, std_run}),
    CT_CANDIDATES(prod, {"prod", prod_can, prod_scratch, prod_run}),
    CT_CANDIDATES(amax, {"amax", amax_can, amax_scratch, amax_run}),
    CT_CANDIDATES(amin, {"amin", amin_can, amin_scratch, amin_run}),
    CT_CANDIDATES(amax_place, {"amax_place", amax_place_can, amax_place_scratch, amax_place_run}),
    CT_CANDIDATES(amin_place, {"amin_place", amin_place_can, amin_place_scratch, amin_place_run}),
    {0},
};
