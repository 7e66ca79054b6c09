/* One call of several: which values its steps share, what of them comes from outside and goes there, and the record with all of it. */
#include <string.h>

#include "core/alloc.h"
#include "core/call.h"
#include "core/device.h"
#include "core/error.h"
#include "core/passes/fuse.h"
#include "core/threads.h"

#include "gen/ops_decl.h"

/* ---- Values ---- */

/* What lies in memory now, as the steps see it. */
typedef struct place {
    int slot, value;
    const ct_view *view;
} place;

typedef struct values {
    ct_fused_value all[CT__FUSE_OPERANDS];
    int operand[CT__FUSE_OPERANDS]; /* value of each operand of each step; -1: none */
    place now[CT__FUSE_OPERANDS];
    place in[CT__FUSE_OPERANDS], out[CT__FUSE_OPERANDS];
    int n, n_operands, n_now, n_in, n_out;
} values;

static place *find(values *v, int slot, const ct_view *view) {
    for (int i = 0; i < v->n_now; i++)
        if (v->now[i].slot == slot && ct__fuse_same_elements(v->now[i].view, view)) return &v->now[i];
    return NULL;
}

static int add_value(values *v, const ct_view *view, int input, int made) {
    v->all[v->n] = (ct_fused_value){
        .dtype = view->dtype, .count = ct__view_count(view), .input = input, .output = -1, .made = made, .last = -1};
    return v->n++;
}

static int read_value(values *v, int slot, const ct_view *view, int step) {
    const place *known = find(v, slot, view);
    int value = known ? known->value : -1;
    if (!known) {
        value = add_value(v, view, v->n_in, -1);
        v->in[v->n_in++] = v->now[v->n_now++] = (place){slot, value, view};
    }
    v->all[value].last = step;
    return value;
}

static int write_value(values *v, int slot, const ct_view *view, int step) {
    place *before = find(v, slot, view);
    const int value = add_value(v, view, -1, step);
    if (before) *before = (place){slot, value, view}; /* what was there is gone */
    else v->now[v->n_now++] = (place){slot, value, view};
    return value;
}

/* Whether what a record writes into a slot is read by others: by records behind it, since those before it read what was there then. */
static bool is_read_outside(const fuse_state *s, int slot, int record) {
    if (s->graph->slots[slot].kept) return true;
    for (int k = s->slot_first[slot]; k >= 0; k = s->accesses[k].after) {
        const int other = s->accesses[k].record;
        if (other > record && s->accesses[k].is.reads && s->stamp[other] != s->now) return true;
    }
    return false;
}

/* False: there are too many. */
static bool find_values(const fuse_state *s, const int *members, int n, values *v) {
    const ct_record *records = s->graph->records;
    v->n = v->n_operands = v->n_now = v->n_in = v->n_out = 0;
    for (int k = 0; k < n; k++) {
        const ct_record *record = &records[members[k]];
        if (v->n_operands + record->n_views > CT__FUSE_OPERANDS) return false;
        for (int i = 0; i < record->n_views; i++) {
            const int slot = record->slots[i];
            const ct_view *view = &record->views[i];
            v->operand[v->n_operands++] = slot < 0                ? -1
                                          : i < record->call.n_in ? read_value(v, slot, view, k)
                                                                  : write_value(v, slot, view, k);
        }
    }
    for (int i = 0; i < v->n_now; i++) {
        const place *p = &v->now[i];
        if (v->all[p->value].made < 0 || !is_read_outside(s, p->slot, members[v->all[p->value].made])) continue;
        v->all[p->value].output = v->n_out;
        v->out[v->n_out++] = *p;
    }
    return true;
}

/* ---- The record ---- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) hash = mix(hash, at[i]);
    return hash;
}

static uint64_t hash_view(uint64_t hash, const ct_view *view) {
    hash = mix(hash, (uint64_t)view->dtype << 8 | (uint64_t)view->ndim);
    hash = hash_bytes(hash, view->dims, (size_t)view->ndim * sizeof *view->dims);
    return hash_bytes(hash, view->strides, (size_t)view->ndim * sizeof *view->strides);
}

/* Attributes as far as the op describes them, so that what lies between them does not count; position: three integers to leave out. */
static uint64_t hash_attrs(uint64_t hash, const ct_op *op, const char *attrs, const void *position) {
    for (const ct_attr *attr = op->attrs; attrs && attr && attr->name; attr++) {
        const char *at = attrs + attr->offset;
        if (position && at >= (const char *)position && at < (const char *)position + 3 * sizeof(int64_t)) continue;
        switch (attr->type) {
        case CT_ATTR_BOOL: hash = hash_bytes(hash, at, sizeof(bool)); break;
        case CT_ATTR_DTYPE:
        case CT_ATTR_ENUM: hash = hash_bytes(hash, at, sizeof(int)); break;
        case CT_ATTR_TEXT: hash = hash_bytes(hash, at, strnlen(at, sizeof(ct_text))); break;
        case CT_ATTR_OPT:
            hash = mix(hash, ((const ct_opt *)(const void *)at)->set);
            hash = hash_bytes(hash, &((const ct_opt *)(const void *)at)->value, sizeof(double));
            break;
        case CT_ATTR_DIMS:
        case CT_ATTR_AXES: {
            const ct_dims *dims = (const ct_dims *)(const void *)at;
            hash = hash_bytes(mix(hash, (uint64_t)dims->n), dims->d, (size_t)dims->n * sizeof *dims->d);
            break;
        }
        default: hash = hash_bytes(hash, at, 8);
        }
    }
    return hash;
}

static size_t whole(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* Where the parts of a ct_fused lie, from 0 on. */
typedef struct layout {
    size_t steps, values, operands, views, pointers, numbers, attrs, draws, prepared, bytes;
    size_t prepared_bytes;
} layout;

static layout lay_out(const fuse_state *s, const int *members, int n, const values *v) {
    size_t numbers = 0, attrs = 0, draws = 0;
    for (int k = 0; k < n; k++) {
        const ct_record *record = &s->graph->records[members[k]];
        numbers += (size_t)record->n_numbers;
        attrs += record->call.attrs ? whole(record->call.op->attr_size) : 0;
        draws += record->generator >= 0;
    }
    layout at;
    const size_t operands = (size_t)v->n_operands;
    at.steps = whole(sizeof(ct_fused));
    at.values = at.steps + whole((size_t)n * sizeof(ct_fused_step));
    at.operands = at.values + whole((size_t)v->n * sizeof(ct_fused_value));
    at.views = at.operands + whole(operands * sizeof(int));
    at.pointers = at.views + whole(operands * sizeof(ct_view));
    at.numbers = at.pointers + whole(operands * sizeof(ct_view *));
    at.attrs = at.numbers + whole(numbers * CT_NUMBER_BYTES);
    at.draws = at.attrs + attrs;
    at.prepared = at.draws + whole(draws * sizeof(ct_drawn_at));
    at.prepared_bytes = ((size_t)n + (size_t)v->n + 1) * CT_FUSED_PREPARED;
    at.bytes = at.prepared + at.prepared_bytes + 64;
    return at;
}

/* Where the next of each kind goes. */
typedef struct cursor {
    ct_view *views;
    const ct_view **pointers;
    int *operands;
    unsigned char *numbers;
    char *attrs;
    ct_drawn_at *draws;
} cursor;

static void copy_views(const ct_record *from, ct_fused_step *step, cursor *at, uint64_t *hash) {
    int number = 0;
    step->call.in = at->pointers;
    step->call.out = (ct_view *const *)(at->pointers + step->call.n_in);
    for (int i = 0; i < from->n_views; i++) {
        const ct_view *view = i < from->call.n_in ? from->call.in[i] : from->call.out[i - from->call.n_in];
        *at->pointers++ = view ? at->views : NULL;
        *hash = mix(*hash, view != NULL);
        if (!view) continue;
        *at->views = *view;
        at->views->buffer = NULL;
        at->views->origin = 0;
        at->views->offset = 0;
        if (from->slots[i] < 0) {
            at->views->buffer = memcpy(at->numbers, from->numbers[number++], CT_NUMBER_BYTES);
            at->numbers += CT_NUMBER_BYTES;
            *hash = hash_bytes(*hash, at->views->buffer, ct_dtype_size(view->dtype));
        }
        *hash = hash_view(*hash, at->views++);
    }
}

static void copy_step(const ct_record *from, ct_fused_step *step, cursor *at, ct_record *record, uint64_t *hash) {
    const ct_op *op = from->call.op;
    step->call = from->call;
    step->call.stream = NULL;
    step->call.scratch = (ct_memory_part){0};
    step->values = at->operands;
    *hash = hash_bytes(*hash, op->name, strlen(op->name));
    *hash = hash_attrs(*hash, op, from->call.attrs, from->position);
    const char *attrs = from->call.attrs;
    if (attrs) {
        step->call.attrs = memcpy(at->attrs, attrs, op->attr_size);
        at->attrs += whole(op->attr_size);
    }
    copy_views(from, step, at, hash);
    for (int i = 0; i < from->n_views; i++) *hash = mix(*hash, (uint64_t)(int64_t)*at->operands++);
    if (from->generator < 0) return;
    char *position = from->position ? (char *)(uintptr_t)step->call.attrs + ((char *)from->position - attrs) : NULL;
    *at->draws++ = (ct_drawn_at){from->generator, from->draw, (int64_t *)(void *)position, &step->call.random};
    record->generator = from->generator;
    record->n_draws++;
}

static void copy_places(ct_record *record, const values *v) {
    const ct_view **pointer = (const ct_view **)(uintptr_t)record->call.in;
    for (int i = 0; i < v->n_in + v->n_out; i++) {
        const place *p = i < v->n_in ? &v->in[i] : &v->out[i - v->n_in];
        record->views[i] = *p->view;
        record->slots[i] = p->slot;
        pointer[i] = &record->views[i];
    }
}

static void fill(const fuse_state *s, const int *members, int n, int64_t count, const values *v, const layout *at,
                 ct_record *record) {
    const ct_call *first = &s->graph->records[members[0]].call;
    char *block = (char *)(((uintptr_t)record->call.attrs + 63) & ~(uintptr_t)63);
    ct_fused *fused = (ct_fused *)(void *)block;
    memset(block, 0, at->prepared + at->prepared_bytes);
    *fused = (ct_fused){.count = count,
                        .n_steps = n,
                        .n_values = v->n,
                        .steps = (void *)(block + at->steps),
                        .values = memcpy(block + at->values, v->all, (size_t)v->n * sizeof *v->all),
                        .prepared = block + at->prepared,
                        .prepared_bytes = at->prepared_bytes};
    memcpy(block + at->operands, v->operand, (size_t)v->n_operands * sizeof *v->operand);
    cursor next = {.views = (void *)(block + at->views),
                   .pointers = (void *)(block + at->pointers),
                   .operands = (void *)(block + at->operands),
                   .numbers = (void *)(block + at->numbers),
                   .attrs = block + at->attrs,
                   .draws = record->draws = (void *)(block + at->draws)};
    uint64_t hash = mix((uint64_t)n, (uint64_t)v->n);
    for (int i = 0; i < v->n; i++) {
        hash = mix(hash, (uint64_t)v->all[i].dtype << 32 | (uint64_t)(v->all[i].count == fused->count));
        hash = mix(hash, (uint64_t)(v->all[i].input + 1) << 32 | (uint64_t)(v->all[i].output + 1));
    }
    for (int k = 0; k < n; k++) copy_step(&s->graph->records[members[k]], &fused->steps[k], &next, record, &hash);
    if (!record->n_draws) record->draws = NULL;
    copy_places(record, v);
    for (int i = 0; i < v->n_in + v->n_out; i++) hash = hash_view(hash, &record->views[i]);
    fused->hash = hash;
    record->call.op = &ct__op_fused;
    record->call.attrs = fused;
    record->call.device = first->device;
    record->call.called = first->called;
    record->call.flags = first->flags & (CT_CALL_LASTING | CT_CALL_GRADIENT);
    for (int k = 0; k < n; k++) record->call.flags |= s->graph->records[members[k]].call.flags & CT_CALL_LASTING;
}

static const ct_kernel *kernel_for(const ct_call *call) {
    const ct_kernel *kernel = ct__kernels_of(call->op, call->device.type);
    for (; kernel && kernel->name; kernel++)
        if (!kernel->can || !kernel->can(call)) return kernel;
    return NULL;
}

size_t ct__fuse_scratch(ct_call *call) {
    const ct_kernel *kernel = kernel_for(call);
    if (!kernel || !kernel->scratch) return 0;
    call->workers = ct__threads();
    ct__threads_hold(call->workers);
    const size_t bytes = kernel->scratch(call);
    ct__threads_hold(0);
    return bytes;
}

bool ct__fuse_build(fuse_state *s, const int *members, int n, int64_t count, ct_record *record) {
    memset(record, 0, sizeof *record);
    s->now++;
    for (int k = 0; k < n; k++) s->stamp[members[k]] = s->now;
    values *v = ct__alloc(sizeof *v);
    if (!v) return ct__fail_memory("capture", sizeof *v);
    bool ok = true;
    if (find_values(s, members, n, v)) {
        const layout at = lay_out(s, members, n, v);
        ok = ct__record_arrays(record, v->n_in, v->n_out, 0, at.bytes);
        if (ok) fill(s, members, n, count, v, &at, record);
    }
    ct__free(v, sizeof *v);
    if (ok && record->block && !kernel_for(&record->call)) {
        ct__free(record->block, record->block_bytes);
        memset(record, 0, sizeof *record);
    }
    return ok;
}
