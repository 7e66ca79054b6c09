/* From a call of max or average pooling, or of a gradient, to the way that suits it. */
#include "backends/cpu/cpu.h"
#include "ops/pool/cpu/ways.h"

#include "gen/pool.attrs.h"

/* ---- Ways ---- */

typedef struct way {
    bool (*suits)(const pool *p);
    size_t (*scratch)(const pool *p);
    void (*run)(const pool *p, void *scratch);
} way;

/* In order of preference; the last suits everything. */
static const way forward[] = {{ct__pool_pairs_suit, ct__pool_pairs_scratch, ct__pool_pairs_run},
                              {NULL, ct__pool_rows_scratch, ct__pool_rows_run}};
static const way backward[] = {{ct__pool_pair_grad_suit, ct__pool_pair_grad_scratch, ct__pool_pair_grad_run},
                               {ct__pool_bands_suit, ct__pool_bands_scratch, ct__pool_bands_run},
                               {NULL, ct__pool_row_grad_scratch, ct__pool_row_grad_run}};

static const way *way_of(const pool *p) {
    const way *found = p->backward ? backward : forward;
    while (found->suits && !found->suits(p)) found++;
    return found;
}

/* ---- From a call ---- */

static bool is_dense(const ct_view *view) {
    int64_t stride = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->dims[i] != 1 && view->strides[i] != stride) return false;
        stride *= view->dims[i];
    }
    return true;
}

static void set_winners(pool *p, const ct_view *winners) {
    if (!winners) return;
    p->with_winners = true;
    p->winner_dtype = winners->dtype;
    p->winner_size = (int64_t)ct_dtype_size(winners->dtype);
    p->winner_s = ct__image_strides(winners, p->channels_last);
}

/* What follows from the window and the tensors. */
static pool resolved(pool p, const ct_call *call, const pool_isa *isa) {
    const ct_view *from = call->in[0], *to = call->out[0];
    const bool wide = from->dtype == CT_F64;
    const int64_t *sizes = p.backward ? p.w.in : p.w.out;
    p.isa = isa;
    p.lines = &isa->lines[wide];
    p.pairs = &isa->pairs[wide];
    p.dtype = from->dtype;
    p.size = (int64_t)ct_dtype_size(from->dtype);
    p.native = p.size == (int64_t)p.lines->size;
    p.from_s = ct__image_strides(from, p.channels_last);
    p.to_s = ct__image_strides(to, p.channels_last);
    p.channels = from->dims[ct__image_channel(from->ndim, p.channels_last)];
    p.planes = p.channels_last ? from->dims[0] : from->dims[0] * p.channels;
    p.inner = p.channels_last ? p.channels : 1;
    p.rows = p.planes * sizes[0] * sizes[1];
    p.row = sizes[2] * p.inner;
    p.dense = is_dense(to);
    return p;
}

static pool max_pool(const ct_call *call) {
    const max_pool_nd_attrs *a = call->attrs;
    pool p = {.max = true, .channels_last = a->channels_last};
    p.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, &a->dilations, a->ceil_mode);
    set_winners(&p, call->n_out > 1 ? call->out[1] : NULL);
    return p;
}

static pool max_pool_gradient(const ct_call *call) {
    const max_pool_grad_attrs *a = call->attrs;
    pool p = {.max = true, .backward = true, .channels_last = a->channels_last};
    p.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, &a->dilations, a->ceil_mode);
    set_winners(&p, call->in[1]);
    return p;
}

static pool avg_pool(const ct_call *call) {
    const avg_pool_nd_attrs *a = call->attrs;
    pool p = {.channels_last = a->channels_last, .exclude_pad = a->exclude_pad, .divisor = (double)a->divisor_override};
    p.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, NULL, a->ceil_mode);
    return p;
}

static pool avg_pool_gradient(const ct_call *call) {
    const avg_pool_grad_attrs *a = call->attrs;
    pool p = {.channels_last = a->channels_last, .exclude_pad = a->exclude_pad, .divisor = (double)a->divisor_override};
    p.backward = true;
    p.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, NULL, a->ceil_mode);
    return p;
}

/* ---- For kernels ---- */

static pool pool_of(const ct_call *call, pool_kind kind, const pool_isa *isa) {
    pool p = {0};
    switch (kind) {
    case POOL_MAX: p = max_pool(call); break;
    case POOL_MAX_GRAD: p = max_pool_gradient(call); break;
    case POOL_MEAN: p = avg_pool(call); break;
    case POOL_MEAN_GRAD: p = avg_pool_gradient(call); break;
    }
    return resolved(p, call, isa);
}

size_t ct__pool_scratch(const ct_call *call, pool_kind kind, const pool_isa *isa) {
    const pool p = pool_of(call, kind, isa);
    return p.rows == 0 || p.row == 0 ? 0 : way_of(&p)->scratch(&p);
}

bool ct__pool_run(const ct_call *call, pool_kind kind, const pool_isa *isa) {
    pool p = pool_of(call, kind, isa);
    if (p.rows == 0 || p.row == 0) return true;
    p.from = ct__address(call->in[0], (size_t)p.size);
    p.to = ct__address(call->out[0], (size_t)p.size);
    if (p.with_winners) p.winners = ct__address(p.backward ? call->in[1] : call->out[1], (size_t)p.winner_size);
    way_of(&p)->run(&p, ct__scratch(call));
    return true;
}
