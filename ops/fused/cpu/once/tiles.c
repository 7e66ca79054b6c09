/* The run of a fused call: chunks of tiles on all threads, and all steps for each tile (see tiles.h). */
#include "ops/fused/cpu/once/tiles.h"

#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/strided.h"
#include "core/dtype.h"
#include "core/hot.h"
#include "core/threads.h"

typedef struct tile_run {
    const ct_call *call;
    const ct_fused *fused;
    const tile_plan *plan;
    const ct_elementwise_isa *isa;
    char *cells, *workers; /* workers NULL: their buffers lie on their stacks */
    char **bases;          /* of the call's views */
    bool streams;
    bool first; /* this is the first of two passes */
} tile_run;

static char *address(const tile_run *r, const tile_ref *ref, char *buffers, int64_t start) {
    switch (ref->where) {
    case TILE_BUFFER: return buffers + ref->at;
    case TILE_PLACE: return r->bases[ref->at] + start * ref->size;
    case TILE_WHOLE: return r->bases[ref->at];
    case TILE_CELL: return r->cells + ref->at;
    default: return NULL;
    }
}

static void widen(const tile_run *r, ct_dtype half, char *to, const char *from, int64_t n) {
    (half == CT_F16 ? r->isa->load_f16 : r->isa->load_bf16)((float *)(void *)to, (const void *)from, n);
}

static void narrow(const tile_run *r, ct_dtype half, char *to, const char *from, int64_t n) {
    (half == CT_F16 ? r->isa->store_f16 : r->isa->store_bf16)((void *)to, (const float *)(const void *)from, n);
}

/* ---- A tile ---- */

static void move(const tile_run *r, const tile_value *value, int view, int64_t start, int64_t n, char *buffer,
                 bool out) {
    int64_t index[CT_MAX_DIMS];
    ct_strided at = {.base = r->bases[view], .size = value->raw.size};
    memcpy(at.strides, value->strides, sizeof at.strides);
    ct__strided_index(value->ndim, value->dims, start, index);
    ct__strided_move(value->ndim, value->dims, &at, index, n, buffer, out);
}

/* Inputs that have to be gathered, or made wide. */
static void fetch(const tile_run *r, int s, char *buffers, int64_t start, int64_t n) {
    const tile_step *step = &r->plan->steps[s];
    const int *values = r->fused->steps[s].values;
    for (unsigned left = step->load | step->widen; left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        const ct_fused_value *is = &r->fused->values[values[i]];
        char *raw = address(r, &step->raw[i], buffers, start);
        if (step->load >> i & 1) move(r, &r->plan->values[values[i]], is->input, start, n, raw, false);
        if (step->widen >> i & 1) widen(r, is->dtype, address(r, &step->operands[i], buffers, start), raw, n);
    }
}

/* Outputs that are rounded, or go on to their place. */
static void finish(const tile_run *r, int s, char *buffers, int64_t start, int64_t n) {
    const tile_step *step = &r->plan->steps[s];
    const ct_fused_step *is = &r->fused->steps[s];
    const int first = is->call.n_in;
    if (step->narrow) {
        const ct_dtype half = is->call.out[0]->dtype;
        char *raw = address(r, &step->raw[first], buffers, start);
        char *wide = address(r, &step->operands[first], buffers, start);
        narrow(r, half, raw, wide, n);
        if (step->again) widen(r, half, wide, raw, n);
    }
    for (unsigned left = step->store; left; left &= left - 1) {
        const int i = __builtin_ctz(left), v = is->values[i];
        const tile_value *value = &r->plan->values[v];
        const int view = r->call->n_in + r->fused->values[v].output;
        char *raw = address(r, &step->raw[i], buffers, start), *to = r->bases[view] + start * value->raw.size;
        if (value->strided) move(r, value, view, start, n, raw, true);
        else if (r->streams && (uintptr_t)to % 64 == 0) r->isa->stream(to, raw, n * value->raw.size);
        else memcpy(to, raw, (size_t)(n * value->raw.size));
    }
}

/* Step s asks for its share of what the next tile, from start on, reads: tiles jump from array to array too often for the hardware to see
 * that coming, and the time to fetch it would be added to that of the steps. Always inlined: gcc takes a function that only prefetches
 * for one without effects, and drops its calls. */
static inline __attribute__((always_inline)) void prefetch(const tile_run *r, int s, int64_t start, int64_t n) {
    const tile_plan *p = r->plan;
    const int64_t from = n * s / r->fused->n_steps, to = n * (s + 1) / r->fused->n_steps;
    for (int i = 0; i < p->n_ahead; i++) {
        const int size = p->ahead[i].size;
        const char *at = r->bases[p->ahead[i].view] + (start + from) * size, *end = at + (to - from) * size;
        for (; at < end; at += 64) __builtin_prefetch(at, 0, 3);
    }
}

/* Steps of another pass are left out, but for what they fetch: steps behind them may read it. */
CT__HOT static void run_tile(const tile_run *r, char *buffers, int64_t start, int64_t n) {
    char *ptr[CT_STEP_OPERANDS];
    const bool first = r->first, ahead = r->plan->n_ahead && !first && start + 2 * n <= r->fused->count;
    const int n_steps = first ? r->plan->n_first : r->fused->n_steps;
    const uint64_t which = first ? r->plan->early : r->plan->late;
    for (int s = 0; s < n_steps; s++) {
        const tile_step *step = &r->plan->steps[s];
        const ct_call *call = &r->fused->steps[s].call;
        if (ahead) prefetch(r, s, start + n, n);
        if (step->load | step->widen) fetch(r, s, buffers, start, n);
        if (r->plan->n_first && !(which >> s & 1)) continue;
        if (step->fn) {
            ptr[0] = address(r, &step->operands[call->n_in], buffers, start);
            for (int i = 0; i < call->n_in; i++) ptr[i + 1] = address(r, &step->operands[i], buffers, start);
            step->fn(n, ptr, step->step, call->attrs);
        } else {
            for (int i = 0; i < call->n_in + call->n_out; i++) ptr[i] = address(r, &step->operands[i], buffers, start);
            const bool sums = first && ct__tiles_more(step->how)->first;
            (sums ? step->how->more->first : step->how->part)(call, start, n, ptr);
            if (sums) continue;
        }
        if (step->narrow | step->store) finish(r, s, buffers, start, n);
    }
}

/* ---- Values that are the same for all elements ---- */

/* One of them over a vector, in the form that inner functions take. */
static void fill_cell(const tile_run *r, ct_dtype dtype, const char *value, char *cell) {
    float wide;
    const bool half = ct__tiles_is_half(dtype);
    if (half) widen(r, dtype, (char *)&wide, value, 1);
    ct__splat(cell, half ? (const char *)&wide : value, half ? 4 : (int)ct__dtype_size(dtype));
}

static void spread(const char *cell, char *to, int64_t bytes) {
    for (; bytes >= CT_ELEMENTWISE_SPLAT; bytes -= CT_ELEMENTWISE_SPLAT, to += CT_ELEMENTWISE_SPLAT)
        memcpy(to, cell, CT_ELEMENTWISE_SPLAT);
    memcpy(to, cell, (size_t)bytes);
}

/* Over a buffer, for those who read element by element. */
static void spread_value(const tile_run *r, ct_dtype dtype, const char *value, bool raw, char *to) {
    _Alignas(64) char cell[CT_ELEMENTWISE_SPLAT];
    const int size = raw || !ct__tiles_is_half(dtype) ? (int)ct__dtype_size(dtype) : 4;
    if (raw) ct__splat(cell, value, size);
    else fill_cell(r, dtype, value, cell);
    spread(cell, to, r->plan->tile * size);
}

static void fill_cells(const tile_run *r) {
    for (int v = 0; v < r->fused->n_values; v++) {
        const tile_value *value = &r->plan->values[v];
        const ct_fused_value *is = &r->fused->values[v];
        if (value->cell.where != TILE_CELL || is->input < 0) continue;
        char *cell = r->cells + value->cell.at;
        if (value->source == TILE_SPLAT) {
            fill_cell(r, is->dtype, r->bases[is->input], cell);
        } else { /* a few numbers */
            const ct_view *view = r->call->in[is->input];
            int64_t index[CT_MAX_DIMS] = {0};
            ct_strided at = {.base = r->bases[is->input], .size = value->raw.size};
            memcpy(at.strides, view->strides, sizeof at.strides);
            ct__strided_move(view->ndim, view->dims, &at, index, is->count, cell, false);
        }
    }
    for (int s = 0; s < r->fused->n_steps; s++) {
        const ct_call *call = &r->fused->steps[s].call;
        for (uint32_t left = call->numbers; left; left &= left - 1) {
            const int i = __builtin_ctz(left);
            const tile_ref *ref = &r->plan->steps[s].operands[i];
            if (ref->where == TILE_CELL) fill_cell(r, call->in[i]->dtype, call->in[i]->buffer, r->cells + ref->at);
        }
    }
}

typedef enum { BEFORE, BETWEEN, BEHIND } moment;

/* What steps do before and behind all parts, and between two passes over them: with operands that are not cut into parts. */
static void around(const tile_run *r, moment when) {
    for (int s = 0; s < r->fused->n_steps; s++) {
        const tile_step *step = &r->plan->steps[s];
        const ct_call *call = &r->fused->steps[s].call;
        const unsigned uncut = step->how->small | step->how->whole;
        char *ptr[CT_STEP_OPERANDS];
        const ct_cpu_step_more *more = ct__tiles_more(step->how);
        void (*run)(const ct_call *, char *const *) = when == BEFORE    ? more->begin
                                                      : when == BETWEEN ? more->settle
                                                                        : more->end;
        if (!run) continue;
        for (int i = 0; i < call->n_in + call->n_out; i++)
            ptr[i] = uncut >> i & 1 ? address(r, &step->operands[i], NULL, 0) : NULL;
        run(call, ptr);
    }
}

static void give_scratch(const tile_run *r, char *at) {
    for (int s = 0; s < r->fused->n_steps; s++) {
        ct_call *call = &r->fused->steps[s].call;
        const size_t bytes = ct__tiles_step_scratch(call);
        call->scratch = (ct_memory_part){.buffer = at, .bytes = bytes};
        at += bytes;
    }
}

static void spread_all(const tile_run *r, char *buffers) {
    for (int v = 0; v < r->fused->n_values; v++) {
        const tile_value *value = &r->plan->values[v];
        const ct_fused_value *is = &r->fused->values[v];
        if (value->source != TILE_SPLAT) continue;
        const char *from = r->bases[is->input];
        if (value->raw.where == TILE_BUFFER) spread_value(r, is->dtype, from, true, buffers + value->raw.at);
        if (value->wide.where == TILE_BUFFER) spread_value(r, is->dtype, from, false, buffers + value->wide.at);
    }
    for (int s = 0; s < r->fused->n_steps; s++) {
        const ct_call *call = &r->fused->steps[s].call;
        for (uint32_t left = call->numbers; left; left &= left - 1) {
            const int i = __builtin_ctz(left);
            const tile_ref *ref = &r->plan->steps[s].operands[i];
            const ct_dtype dtype = call->in[i]->dtype;
            if (ref->where == TILE_BUFFER)
                spread_value(r, dtype, call->in[i]->buffer, ref->size == (int)ct__dtype_size(dtype), buffers + ref->at);
        }
    }
}

/* ---- All tiles ---- */

static void run_range(const tile_run *r, int64_t chunk, char *buffers) {
    const tile_plan *p = r->plan;
    int64_t start = chunk * p->chunk, end = start + p->chunk;
    if (end > r->fused->count) end = r->fused->count;
    if (p->spreads) spread_all(r, buffers);
    for (; start < end; start += p->tile) run_tile(r, buffers, start, end - start < p->tile ? end - start : p->tile);
    if (r->streams) r->isa->fence();
}

static void run_near(const tile_run *r, int64_t chunk) {
    _Alignas(64) char buffers[TILE_STACK];
    run_range(r, chunk, buffers);
}

static int64_t chunks_of(const tile_run *r) { return (r->fused->count + r->plan->chunk - 1) / r->plan->chunk; }

static void run_chunk(void *context, int64_t i, int worker) {
    const tile_run *r = context;
    /* a second pass begins with what the first one has read last, which is still in the caches */
    const int64_t chunk = r->plan->n_first && !r->first ? chunks_of(r) - 1 - i : i;
    if (r->workers) run_range(r, chunk, r->workers + (size_t)worker * r->plan->worker_bytes);
    else run_near(r, chunk);
}

static void run_chunks(tile_run *r) {
    const int64_t chunks = chunks_of(r);
    if (chunks == 1) run_chunk(r, 0, 0);
    else ct__parallel(chunks, run_chunk, r);
}

/* In place, cache lines are in the cache already. */
static bool is_in_place(const tile_run *r) {
    for (int i = 0; i < r->call->n_out; i++)
        for (int k = 0; k < r->call->n_in; k++)
            if (r->bases[r->call->n_in + i] == r->bases[k]) return true;
    return false;
}

/* With the memory that workers share, that of their own, and that of values between two passes. */
static bool run_with(const ct_call *call, const ct_elementwise_isa *isa, char *shared, char *workers, char *kept) {
    tile_run r = {.call = call,
                  .fused = call->attrs,
                  .isa = isa,
                  .plan = ct__tiles_plan(call),
                  .cells = shared,
                  .workers = workers};
    r.bases = (char **)(void *)(r.cells + r.plan->cell_bytes + r.plan->step_bytes);
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = ct__tiles_operand(call, i);
        r.bases[i] = ct__address(view, ct__dtype_size(view->dtype));
    }
    for (int v = 0; v < r.fused->n_values && r.plan->n_kept; v++) {
        const tile_value *value = &r.plan->values[v];
        if (value->kept) r.bases[value->raw.at] = kept + value->kept_at;
    }
    r.streams = r.plan->streams && !is_in_place(&r);
    if (r.plan->cell_bytes) fill_cells(&r);
    if (r.plan->step_bytes) give_scratch(&r, r.cells + r.plan->cell_bytes);
    if (r.plan->begins) around(&r, BEFORE);
    if (r.plan->n_first) {
        r.first = true;
        run_chunks(&r);
        around(&r, BETWEEN);
        r.first = false;
    }
    run_chunks(&r);
    if (r.plan->ends) around(&r, BEHIND);
    return true;
}

bool ct__tiles_run(const ct_call *call, const ct_elementwise_isa *isa) {
    _Alignas(64) char near[TILE_SHARED_STACK];
    const tile_plan *p = ct__tiles_plan(call);
    const bool is_near = p->shared_bytes <= TILE_SHARED_STACK;
    char *kept = ct__scratch(call), *scratch = kept ? kept + p->kept_bytes : NULL;
    return run_with(call, isa, is_near ? near : scratch,
                    p->worker_bytes <= TILE_STACK ? NULL : scratch + (is_near ? 0 : p->shared_bytes), kept);
}
