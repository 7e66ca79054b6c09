/* The plan of a fused call: in which form each step takes its operands, which of them have to be gathered or converted before it, and which
 * buffer holds what. A buffer is free again behind the last step that reads it. */
#include <string.h>

#include "core/dtype.h"
#include "core/tensor.h"
#include "core/threads.h"
#include "ops/fused/cpu/once/tiles.h"

enum {
    SLOTS = 256,        /* buffers of a worker, at most */
    BUDGET = 40 * 1024, /* bytes of all of them, roughly: the first-level cache, and what is on its way to it */
    LEAST = 512,        /* elements of a tile, */
    MOST = 4096,        /* which are a multiple of a vector's */
    /* of a tile that is gone over twice, in so many tiles at least: what it reads was not in the caches, and its few steps gain more by long
     * reads than by small buffers */
    TWICE = 32768,
    TWICE_TILES = 16,
    STAGGER = 192,                   /* bytes between buffers: at the same place of two pages, loads wait for stores */
    LONGEST_ROW = 16384,             /* elements: longer ones would not stay in the caches */
    AHEAD_STEPS = 4,                 /* fewer are done before memory has answered */
    AHEAD_BYTES = 4 * 1024 * 1024,   /* of all inputs: less stays in the caches of a core */
    STREAM_BYTES = 16 * 1024 * 1024, /* as for elementwise kernels: a result this large goes past the caches */
};

/* ---- What can be done ---- */

static bool is_small(const ct_cpu_step *how, int i) { return how->small >> i & 1; }
static bool is_whole(const ct_cpu_step *how, int i) { return how->whole >> i & 1; }

/* A transposed operand: gathering it element by element, line after line is read for one of its elements. */
static bool is_transposed(const ct_view *view) {
    int last = view->ndim - 1;
    while (last >= 0 && view->dims[last] == 1) last--;
    if (last < 0 || view->strides[last] == 0 || view->strides[last] == 1) return false;
    for (int d = 0; d < last; d++)
        if (view->dims[d] >= 8 && view->strides[d] == 1) return true;
    return false;
}

/* Whether the step that makes a value makes it before all elements. */
static bool is_made_small(const ct_fused *fused, const ct_fused_value *value) {
    const ct_fused_step *maker = &fused->steps[value->made];
    const ct_cpu_step *how = ct__cpu_step(&maker->call);
    for (int i = maker->call.n_in; how && i < maker->call.n_in + maker->call.n_out; i++)
        if (maker->values[i] >= 0 && &fused->values[maker->values[i]] == value) return is_small(how, i);
    return false;
}

static const char *refuse_operand(const ct_fused *fused, const ct_fused_step *step, const ct_cpu_step *how, int i) {
    const ct_view *view = ct__tiles_operand(&step->call, i);
    const bool output = i >= step->call.n_in, dense = ct__view_is_dense(view);
    const int64_t count = ct__view_count(view);
    const ct_fused_value *value = step->values[i] >= 0 ? &fused->values[step->values[i]] : NULL;
    if (value && !output && value->made >= 0 && is_small(how, i) != is_made_small(fused, value))
        return "a few numbers are elements as well";
    if (is_small(how, i)) {
        if (count * (int64_t)ct__dtype_size(view->dtype) > CT_STEP_SMALL) return "a few numbers are too many";
        return view->ndim != 1 || (output && !dense) ? "a few numbers are no list" : NULL;
    }
    if (is_whole(how, i)) {
        if (!dense) return "what is taken whole is not dense";
        return value && (output ? value->last >= 0 : value->made >= 0) ? "what is taken whole is made meanwhile" : NULL;
    }
    if (count != fused->count) return "an operand is of another size";
    return value && is_transposed(view) ? "an operand is transposed" : NULL;
}

/* row and chunk: of the steps before it, 0 if none has any. */
static const char *refuse_step(const ct_fused *fused, const ct_fused_step *step, int64_t *row, int64_t *chunk) {
    const ct_call *call = &step->call;
    const ct_cpu_step *how = ct__cpu_step(call);
    if (!how) return "a kernel cannot be done in parts";
    const ct_cpu_step_more *more = ct__tiles_more(how);
    if (call->n_in + call->n_out > CT_STEP_OPERANDS) return "a step has too many operands";
    if (!call->n_out || !call->out[0]) return "a step leaves out its first result";
    if (call->kernel->scratch && !more->chunk && !more->first) return "a step wants scratch";
    const int64_t mine = more->row ? more->row(call) : *row, rows = more->chunk ? more->chunk(call) : *chunk;
    if (more->row && (mine == 0 || mine > LONGEST_ROW)) return "a row cannot be done by itself";
    if ((*row && mine != *row) || (*chunk && rows != *chunk)) return "rows are of two lengths";
    *row = mine;
    *chunk = rows;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const char *reason = ct__tiles_operand(call, i) ? refuse_operand(fused, step, how, i) : NULL;
        if (reason) return reason;
    }
    return NULL;
}

/* ---- Two passes ---- */

static bool is_in(uint64_t steps, int s) { return steps >> s & 1; }

/* The steps, a bit each, that make what step s reads. */
static uint64_t makers_of(const ct_fused *fused, int s) {
    const ct_fused_step *step = &fused->steps[s];
    uint64_t makers = 0;
    for (int i = 0; i < step->call.n_in; i++) {
        const int made = step->values[i] >= 0 ? fused->values[step->values[i]].made : -1;
        if (made >= 0) makers |= 1ull << made;
    }
    return makers;
}

/* Whether elements that a step makes are wanted outside; *placed: and those are all that it makes, and are written where they lie, so
 * that later steps find them there. */
static bool is_wanted_outside(const ct_call *call, const ct_fused *fused, int s, bool *placed) {
    const ct_fused_step *step = &fused->steps[s];
    const ct_cpu_step *how = ct__cpu_step(&step->call);
    bool wanted = false;
    *placed = true;
    for (int i = step->call.n_in; i < step->call.n_in + step->call.n_out; i++) {
        if (step->values[i] < 0 || is_small(how, i) || is_whole(how, i)) continue;
        const ct_fused_value *value = &fused->values[step->values[i]];
        wanted |= value->output >= 0;
        *placed &= value->output >= 0 && ct__view_is_dense(call->out[value->output]) &&
                   !(how->elementwise && ct__tiles_is_half(value->dtype));
    }
    return wanted;
}

/* Whether a second pass finds what a step makes as the first has left it: the wide form of halves would have to be made again anyway. */
static bool is_kept(const ct_fused *fused, int s) {
    const ct_fused_step *step = &fused->steps[s];
    return !ct__cpu_step(&step->call)->elementwise || !ct__tiles_is_half(step->call.out[0]->dtype);
}

typedef struct passes {
    uint64_t firsts, early, late;
    uint64_t kept; /* early ones whose values the second pass reads from scratch */
} passes;

/* Which steps belong to which pass; the text: two passes do not do. Results of the first pass may lie where inputs do, so what it writes has to
 * be made before all that the second one does: nothing there reads what was overwritten. */
static const char *find_passes(const ct_call *call, passes *p) {
    const ct_fused *fused = call->attrs;
    const int n = fused->n_steps;
    uint64_t waiting = 0, again = 0;
    bool placed;
    *p = (passes){.late = ~0ull};
    for (int s = 0; s < n && s < 64; s++)
        if (ct__tiles_more(ct__cpu_step(&fused->steps[s].call))->first) p->firsts |= 1ull << s;
    if (!p->firsts) return NULL;
    if (n > 64) return "there are too many steps for two passes";
    for (int s = 0; s < n; s++) {
        const bool waits = makers_of(fused, s) & (p->firsts | waiting);
        if (waits && is_in(p->firsts, s)) return "a step waits for all elements of another that does";
        waiting |= (uint64_t)waits << s;
    }
    for (int s = n - 1; s >= 0; s--)
        if (is_in(p->firsts | p->early, s)) p->early |= makers_of(fused, s);
    for (int s = n - 1; s >= 0; s--) {
        if (is_in(p->early & ~again, s)) continue; /* nothing of the second pass reads it, or it is in memory */
        for (uint64_t left = makers_of(fused, s) & p->early; left; left &= left - 1) {
            const int maker = __builtin_ctzll(left);
            if (is_wanted_outside(call, fused, maker, &placed)) continue;
            *(is_kept(fused, maker) ? &p->kept : &again) |= 1ull << maker;
        }
    }
    p->late = (n == 64 ? ~0ull : (1ull << n) - 1) & ~(p->early & ~again);
    for (uint64_t left = p->early; left; left &= left - 1) {
        const int s = __builtin_ctzll(left);
        if (!is_wanted_outside(call, fused, s, &placed)) continue;
        if (!placed || __builtin_ctzll(p->late) < s) return "what a first pass writes is no place for a second";
    }
    p->early |= p->firsts;
    return NULL;
}

const char *ct__tiles_can(const ct_call *call) {
    const ct_fused *fused = call->attrs;
    int numbers = 0;
    int64_t row = 0, chunk = 0;
    passes two;
    if (fused->count == 0) return "there are no elements";
    for (int i = 0; i < fused->n_steps; i++) {
        const char *reason = refuse_step(fused, &fused->steps[i], &row, &chunk);
        if (reason) return reason;
        numbers += __builtin_popcount(fused->steps[i].call.numbers);
    }
    const char *reason = find_passes(call, &two);
    if (reason) return reason;
    return 2 * fused->n_values + numbers > SLOTS ? "there are too many values" : NULL;
}

/* ---- Values ---- */

static bool is_splat(const ct_view *view) {
    for (int d = 0; d < view->ndim; d++)
        if (view->dims[d] != 1 && view->strides[d] != 0) return false;
    return true;
}

/* Dimensions of size 1 go, and neighbors that are walked as one become one. */
static void collapse(tile_value *value, const ct_view *view) {
    int n = 0;
    for (int d = 0; d < view->ndim; d++) {
        if (view->dims[d] == 1) continue;
        if (n > 0 && value->strides[n - 1] == view->strides[d] * view->dims[d]) {
            value->dims[n - 1] *= view->dims[d];
            value->strides[n - 1] = view->strides[d];
        } else {
            value->dims[n] = view->dims[d];
            value->strides[n++] = view->strides[d];
        }
    }
    value->ndim = (uint8_t)n;
}

/* early: a second pass reads it, so it does not go past the caches. */
static void plan_value(const ct_call *call, const ct_fused_value *is, bool early, tile_value *value) {
    const ct_view *from = is->input >= 0 ? call->in[is->input] : NULL,
                  *to = is->output >= 0 ? call->out[is->output] : NULL;
    const uint8_t size = (uint8_t)ct__dtype_size(is->dtype);
    *value = (tile_value){.raw.size = size, .wide.size = 4, .last_raw = -1, .last_wide = -1};
    value->half = ct__tiles_is_half(is->dtype);
    value->cell.size = value->half ? 4 : size;
    value->source = !from                     ? TILE_MADE
                    : ct__view_is_dense(from) ? TILE_DENSE
                    : is_splat(from)          ? TILE_SPLAT
                                              : TILE_STRIDED;
    if (value->source == TILE_DENSE) value->raw = (tile_ref){is->input, TILE_PLACE, size};
    if (value->source == TILE_STRIDED) collapse(value, from);
    if (!to) return;
    value->strided = !ct__view_is_dense(to);
    value->streamed = !value->strided && !value->half && !early && is->count * size >= STREAM_BYTES;
    if (value->strided) collapse(value, to);
    else if (!value->streamed) value->raw = (tile_ref){call->n_in + is->output, TILE_PLACE, size};
}

/* Values that lie in scratch from the first pass to the second. */
static void keep_values(const ct_call *call, const ct_fused *fused, tile_plan *p, uint64_t kept) {
    for (int v = 0; v < fused->n_values; v++) {
        const ct_fused_value *is = &fused->values[v];
        if (is->made < 0 || is->made >= p->n_first || !is_in(kept, is->made) || is->count != fused->count) continue;
        const uint8_t size = p->values[v].raw.size;
        p->values[v].raw = (tile_ref){call->n_in + call->n_out + p->n_kept++, TILE_PLACE, size};
        p->values[v].kept = true;
        p->values[v].kept_at = p->kept_bytes;
        p->kept_bytes += ((size_t)(fused->count * size) + STAGGER + 63) & ~(size_t)63;
    }
}

/* ---- Steps ---- */

typedef enum { AS_RAW, AS_WIDE, AS_CELL, AS_SMALL, AS_WHOLE } form;

/* How an input is taken: by inner functions wide, and one value for all elements as such where they can. */
static form form_of(const tile_plan *p, const ct_fused_step *is, const ct_cpu_step *how, int i) {
    const ct_elementwise *op = how->elementwise;
    const ct_view *view = ct__tiles_operand(&is->call, i);
    const int v = is->values[i];
    if (is_small(how, i)) return AS_SMALL;
    if (is_whole(how, i)) return AS_WHOLE;
    if (!op) return AS_RAW;
    const bool output = i >= is->call.n_in, mask = output ? op->to_bool : op->masks >> i & 1;
    if (mask) return AS_RAW;
    const bool one = !output && (v < 0 || p->values[v].source == TILE_SPLAT);
    if (one && view->dtype <= CT_BF16 && !op->plain) return AS_CELL;
    return ct__tiles_is_half(view->dtype) ? AS_WIDE : AS_RAW;
}

typedef struct slots {
    bool used[SLOTS];
    int most, widest;
    int cells; /* bytes */
} slots;

static tile_ref take_slot(slots *s, int size) {
    int slot = 0;
    while (s->used[slot]) slot++;
    s->used[slot] = true;
    if (slot >= s->most) s->most = slot + 1;
    if (size > s->widest) s->widest = size;
    return (tile_ref){slot, TILE_BUFFER, (uint8_t)size};
}

static tile_ref take_cell(slots *s, int size) {
    const int at = s->cells;
    s->cells += CT_ELEMENTWISE_SPLAT;
    return (tile_ref){at, TILE_CELL, (uint8_t)size};
}

/* Which forms of a value are wanted, and until when. */
static void note_uses(const ct_fused *fused, tile_plan *p) {
    for (int s = 0; s < fused->n_steps; s++) {
        const ct_fused_step *is = &fused->steps[s];
        for (int i = 0; i < is->call.n_in; i++) {
            if (is->values[i] < 0) continue;
            tile_value *value = &p->values[is->values[i]];
            const int made = fused->values[is->values[i]].made;
            const bool made_wide = made >= 0 && p->steps[made].how->elementwise;
            const form as = form_of(p, is, p->steps[s].how, i);
            /* the wide form is made of the raw one, where it is first wanted */
            if (as == AS_RAW || (as == AS_WIDE && value->last_wide < 0 && !made_wide)) value->last_raw = (int16_t)s;
            if (as == AS_WIDE) value->last_wide = (int16_t)s;
        }
    }
}

/* Buffers that hold one value in all elements, for those who read element by element: they are filled before the first step, and stay. */
static void plan_spreads(const ct_fused *fused, tile_plan *p, slots *free) {
    for (int s = 0; s < fused->n_steps; s++) {
        const ct_fused_step *is = &fused->steps[s];
        for (int i = 0; i < is->call.n_in; i++) {
            const ct_view *view = is->call.in[i];
            const form as = view ? form_of(p, is, p->steps[s].how, i) : AS_CELL;
            const int v = is->values[i];
            if ((as != AS_RAW && as != AS_WIDE) || (v >= 0 && p->values[v].source != TILE_SPLAT)) continue;
            tile_ref *ref = v < 0 ? &p->steps[s].operands[i] : as == AS_RAW ? &p->values[v].raw : &p->values[v].wide;
            if (ref->where == TILE_NOWHERE) *ref = take_slot(free, as == AS_RAW ? (int)ct__dtype_size(view->dtype) : 4);
            p->spreads = true;
        }
    }
}

/* An input in the form that the step takes, which may have to be made before it. */
static tile_ref plan_input(const ct_fused *fused, tile_plan *p, slots *free, int s, int i) {
    const ct_fused_step *is = &fused->steps[s];
    tile_step *step = &p->steps[s];
    const form as = form_of(p, is, step->how, i);
    const int v = is->values[i];
    if (v < 0) { /* a number, or not there */
        const ct_view *view = is->call.in[i];
        return view && as == AS_CELL ? take_cell(free, view->dtype == CT_F64 ? 8 : 4) : step->operands[i];
    }
    tile_value *value = &p->values[v];
    if (as == AS_WHOLE) return (tile_ref){fused->values[v].input, TILE_WHOLE, value->raw.size};
    if (as == AS_SMALL) {
        if (value->cell.where == TILE_NOWHERE) value->cell = take_cell(free, value->raw.size);
        value->source = value->source == TILE_MADE ? TILE_MADE : TILE_SMALL;
        return value->cell;
    }
    if (as == AS_CELL) {
        if (value->cell.where == TILE_NOWHERE) value->cell = take_cell(free, value->cell.size);
        return value->cell;
    }
    if (value->source == TILE_SPLAT) return as == AS_RAW ? value->raw : value->wide;
    const bool makes_wide = as == AS_WIDE && value->wide.where == TILE_NOWHERE;
    if (value->source == TILE_STRIDED && value->raw.where == TILE_NOWHERE && (as == AS_RAW || makes_wide)) {
        value->raw = take_slot(free, value->raw.size);
        step->load |= (uint16_t)(1 << i);
    }
    step->raw[i] = value->raw;
    if (as == AS_RAW) return value->raw;
    if (makes_wide) {
        value->wide = take_slot(free, 4);
        step->widen |= (uint16_t)(1 << i);
    }
    return value->wide;
}

/* The buffer of an input that no later step reads becomes that of the output: inner functions may write where they read. */
static bool inherit(const ct_fused_step *is, const tile_plan *p, tile_value *made, tile_ref *ref, int s) {
    for (int i = 0; i < is->call.n_in; i++) {
        if (is->values[i] < 0) continue;
        tile_value *value = &p->values[is->values[i]];
        if (value == made || value->source == TILE_SPLAT) continue;
        tile_ref *forms[] = {&value->raw, &value->wide};
        const int last[] = {value->last_raw, value->last_wide};
        const tile_ref taken = p->steps[s].operands[i];
        for (int k = 0; k < 2; k++) {
            if (forms[k]->where != TILE_BUFFER || last[k] > s || forms[k]->size != ref->size) continue;
            if (taken.where != TILE_BUFFER || taken.at != forms[k]->at) continue;
            *ref = *forms[k];
            forms[k]->where = TILE_NOWHERE;
            return true;
        }
    }
    return false;
}

static void plan_output(const ct_fused *fused, tile_plan *p, slots *free, int s, int i) {
    const ct_fused_step *is = &fused->steps[s];
    tile_step *step = &p->steps[s];
    const int v = is->values[i];
    if (v < 0) return;
    tile_value *value = &p->values[v];
    const form as = form_of(p, is, step->how, i);
    if (as == AS_WHOLE) { /* made at the end, so no step reads it: somebody else does, or nobody */
        if (value->raw.where == TILE_PLACE) step->operands[i] = (tile_ref){value->raw.at, TILE_WHOLE, value->raw.size};
        return;
    }
    if (as == AS_SMALL) {
        if (value->raw.where == TILE_PLACE) value->cell = (tile_ref){value->raw.at, TILE_WHOLE, value->raw.size};
        else value->cell = take_cell(free, value->raw.size);
        step->operands[i] = value->cell;
        return;
    }
    if (as == AS_WIDE) {
        if (!inherit(is, p, value, &value->wide, s)) value->wide = take_slot(free, 4);
        step->narrow = true;
        step->again = value->last_wide >= 0;
    }
    if (value->raw.where == TILE_NOWHERE &&
        (as == AS_WIDE || !step->how->elementwise || !inherit(is, p, value, &value->raw, s)))
        value->raw = take_slot(free, value->raw.size);
    step->operands[i] = as == AS_WIDE ? value->wide : value->raw;
    step->raw[i] = value->raw;
    if (value->strided || value->streamed) step->store |= (uint16_t)(1 << i);
}

static void release(slots *free, tile_ref *ref, int last, int s) {
    if (ref->where != TILE_BUFFER || last > s) return;
    free->used[ref->at] = false;
    ref->where = TILE_NOWHERE;
}

static void plan_step(const ct_fused *fused, tile_plan *p, slots *free, int s) {
    const ct_fused_step *is = &fused->steps[s];
    const ct_elementwise *op = p->steps[s].how->elementwise;
    tile_step *step = &p->steps[s];
    const int n_in = is->call.n_in, n = n_in + is->call.n_out;
    for (int i = 0; i < n_in; i++) step->operands[i] = plan_input(fused, p, free, s, i);
    for (int i = n_in; i < n; i++) plan_output(fused, p, free, s, i);
    if (op) {
        step->fn = op->fn[is->call.in[op->typed]->dtype];
        step->step[0] = 1;
        for (int i = 0; i < n_in; i++) step->step[i + 1] = step->operands[i].where != TILE_CELL;
    }
    for (int i = 0; i < n; i++) {
        tile_value *value = is->values[i] >= 0 ? &p->values[is->values[i]] : NULL;
        if (!value || value->source == TILE_SPLAT) continue;
        release(free, &value->raw, value->last_raw, s);
        release(free, &value->wide, value->last_wide, s);
    }
}

/* Slots become bytes. */
static void place(tile_plan *p, tile_ref *ref) {
    if (ref->where == TILE_BUFFER) ref->at *= (int32_t)p->slot_bytes;
}

/* How many operands are read or written where they lie, and which of them are prefetched: inputs that do not stay in the caches, where there
 * are steps enough to do so between them. */
static int find_dense(const ct_call *call, const ct_fused *fused, tile_plan *p) {
    int count = 0;
    int64_t bytes = 0;
    p->n_ahead = 0;
    for (int i = 0; i < call->n_out; i++) count += ct__view_count(call->out[i]) == fused->count;
    for (int v = 0; v < fused->n_values; v++) {
        const tile_value *value = &p->values[v];
        if (value->source != TILE_DENSE || fused->values[v].count != fused->count) continue;
        bytes += fused->count * value->raw.size;
        count++;
        if (p->n_ahead >= TILE_AHEAD) continue;
        p->ahead[p->n_ahead].view = (int16_t)fused->values[v].input;
        p->ahead[p->n_ahead++].size = value->raw.size;
    }
    if (fused->n_steps < AHEAD_STEPS || bytes < AHEAD_BYTES) p->n_ahead = 0;
    return count;
}

static void measure(const ct_call *call, const ct_fused *fused, tile_plan *p, const slots *used) {
    const int widest = used->widest ? used->widest : 1;
    int cost = 0;
    for (int s = 0; s < fused->n_steps; s++)
        cost += p->steps[s].fn ? p->steps[s].how->elementwise->cost : p->steps[s].how->cost;
    int64_t row = 1, rows = 0;
    for (int s = 0; s < fused->n_steps; s++) {
        const ct_cpu_step_more *more = ct__tiles_more(p->steps[s].how);
        if (more->row) row = more->row(&fused->steps[s].call);
        if (more->chunk) rows = more->chunk(&fused->steps[s].call);
    }
    const int lines = used->most + find_dense(call, fused, p);
    int64_t tile = BUDGET / (widest * (lines ? lines : 1));
    tile = tile < LEAST ? LEAST : tile > MOST ? MOST : tile;
    if (p->n_first) tile = fused->count / TWICE_TILES < TWICE ? fused->count / TWICE_TILES : TWICE;
    if (tile < LEAST) tile = LEAST;
    if (tile > fused->count) tile = fused->count;
    tile = row > 1 ? (tile > row ? tile / row : 1) * row : (tile + 63) / 64 * 64;
    /* work of some ten microseconds, as elementwise kernels have it */
    int64_t chunk = 262144 / (cost > 8 ? cost : 8) / tile * tile;
    chunk = ct__grain(chunk > tile ? chunk : tile);
    p->tile = tile;
    p->chunk = rows ? rows * row : chunk > row ? chunk / row * row : row;
    p->n_slots = used->most;
    p->slot_bytes = (size_t)(tile * widest) + STAGGER;
    p->cell_bytes = (size_t)used->cells;
    p->step_bytes = 0;
    for (int s = 0; s < fused->n_steps; s++) p->step_bytes += ct__tiles_step_scratch(&fused->steps[s].call);
    p->shared_bytes = p->cell_bytes + p->step_bytes +
                      (((size_t)(call->n_in + call->n_out + p->n_kept) * sizeof(char *) + 63) & ~(size_t)63);
    p->worker_bytes = (size_t)used->most * p->slot_bytes;
    for (int s = 0; s < fused->n_steps; s++) {
        for (int i = 0; i < CT_STEP_OPERANDS; i++) place(p, &p->steps[s].operands[i]);
        for (int i = 0; i < CT_STEP_OPERANDS; i++) place(p, &p->steps[s].raw[i]);
    }
    for (int v = 0; v < fused->n_values; v++)
        if (p->values[v].source == TILE_SPLAT) place(p, &p->values[v].raw), place(p, &p->values[v].wide);
}

const tile_plan *ct__tiles_plan(const ct_call *call) {
    const ct_fused *fused = call->attrs;
    tile_plan *p = fused->prepared;
    if (p->ready) return p;
    slots free = {.most = 0};
    passes two;
    find_passes(call, &two);
    p->early = two.early;
    p->late = two.late;
    p->n_first = two.firsts ? 64 - __builtin_clzll(two.firsts) : 0;
    p->values = (tile_value *)(void *)((char *)fused->prepared + CT_FUSED_PREPARED);
    p->steps = (tile_step *)(void *)((char *)fused->prepared + (size_t)(1 + fused->n_values) * CT_FUSED_PREPARED);
    for (int v = 0; v < fused->n_values; v++) {
        const int made = fused->values[v].made;
        plan_value(call, &fused->values[v], made >= 0 && made < p->n_first && is_in(p->early, made), &p->values[v]);
    }
    keep_values(call, fused, p, two.kept);
    for (int s = 0; s < fused->n_steps; s++) p->steps[s].how = ct__cpu_step(&fused->steps[s].call);
    note_uses(fused, p);
    plan_spreads(fused, p, &free);
    for (int s = 0; s < fused->n_steps; s++) plan_step(fused, p, &free, s);
    measure(call, fused, p, &free);
    for (int v = 0; v < fused->n_values; v++) p->streams |= p->values[v].streamed;
    for (int s = 0; s < fused->n_steps; s++) {
        p->begins |= ct__tiles_more(p->steps[s].how)->begin != NULL;
        p->ends |= ct__tiles_more(p->steps[s].how)->end != NULL;
    }
    p->ready = true;
    return p;
}

size_t ct__tiles_scratch(const ct_call *call) {
    const tile_plan *p = ct__tiles_plan(call);
    const int64_t workers = ((const ct_fused *)call->attrs)->count > p->chunk ? call->workers : 1;
    return p->kept_bytes + (p->shared_bytes <= TILE_SHARED_STACK ? 0 : p->shared_bytes) +
           (p->worker_bytes <= TILE_STACK ? 0 : (size_t)workers * p->worker_bytes);
}
