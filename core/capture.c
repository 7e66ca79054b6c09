/* Capture: a function is run, and every call of a kernel that it leads to is noted with its memory. Storages are known by number (slots), so
 * that memory can be planned afterwards. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/passes/passes.h"

_Thread_local ct_graph *ct__capturing;

bool ct_is_capturing(void) { return ct__capturing != NULL; }

static _Thread_local ct_graph *suspended;

bool ct_capture_suspend(void) {
    if (!ct__capturing) return false;
    suspended = ct__capturing;
    ct__capturing = NULL;
    return true;
}

void ct_capture_resume(bool was_suspended) {
    if (!was_suspended || !suspended) return;
    ct__capturing = suspended;
    suspended = NULL;
}

bool ct__capture_refuse(const char *op, const char *what) {
    return ct_fail(CT_ERR_STATE, op, "%s cannot be captured: it would be the same in every replay", what);
}

static bool grow(void **array, int *room, int n, size_t size) {
    if (n < *room) return true;
    const int more = *room ? 2 * *room : 64;
    void *larger = ct__alloc((size_t)more * size);
    if (!larger) return ct__fail_memory("capture", (size_t)more * size);
    if (*array) memcpy(larger, *array, (size_t)*room * size);
    ct__free(*array, (size_t)*room * size);
    *array = larger;
    *room = more;
    return true;
}

/* ---- Slots ---- */

int ct__graph_slot(ct_graph *g, ct_device device, size_t bytes) {
    if (!grow((void **)&g->slots, &g->slots_room, g->n_slots, sizeof *g->slots)) return -1;
    g->slots[g->n_slots] = (ct_graph_slot){.device = device, .bytes = bytes, .first = INT32_MAX, .last = -1};
    return g->n_slots++;
}

/* That of a storage; of one that was there before, from its first use on, and the graph holds it. */
static int slot_of(ct_graph *g, ct_storage *storage) {
    void **found = ct__map_find(&g->by_storage, storage);
    if (found) return (int)(intptr_t)*found - 1;
    const int slot = ct__graph_slot(g, storage->device, storage->bytes);
    if (slot < 0) return -1;
    if (!ct__map_put(&g->by_storage, storage, (void *)(intptr_t)(slot + 1))) {
        ct__fail_memory("capture", sizeof(void *));
        return -1;
    }
    ct__storage_retain(storage);
    g->slots[slot].kept = storage;
    return slot;
}

void ct__capture_made(ct_storage *storage) {
    ct_graph *g = ct__capturing;
    const int slot = ct__graph_slot(g, storage->device, storage->bytes);
    if (slot < 0) return; /* the error is pending */
    g->slots[slot].made = true;
    if (!ct__map_put(&g->by_storage, storage, (void *)(intptr_t)(slot + 1))) ct__fail_memory("capture", sizeof(void *));
}

void ct__capture_ended(ct_storage *storage) { ct__map_take(&ct__capturing->by_storage, storage); }

static void touch(ct_graph *g, int slot) {
    ct_graph_slot *s = &g->slots[slot];
    if (g->n_records < s->first) s->first = g->n_records;
    s->last = g->n_records;
}

/* ---- Records ---- */

bool ct__graph_grow(ct_graph *g) {
    return grow((void **)&g->records, &g->records_room, g->n_records, sizeof *g->records);
}

static bool take_block(ct_record *record, ct_record_kind kind, size_t bytes) {
    memset(record, 0, sizeof *record);
    record->kind = kind;
    record->scratch = record->generator = record->slot = -1;
    record->block = bytes ? ct__alloc(bytes) : NULL;
    record->block_bytes = bytes;
    return !bytes || record->block || ct__fail_memory("capture", bytes);
}

bool ct__record_arrays(ct_record *record, int n_in, int n_out, int n_numbers, size_t attr_bytes) {
    const int n = n_in + n_out;
    const size_t views = (size_t)n * sizeof(ct_view), pointers = (size_t)n * sizeof(ct_view *),
                 slots = ((size_t)n * sizeof(int) + 15) & ~(size_t)15, attrs = (attr_bytes + 15) & ~(size_t)15,
                 numbers = (size_t)n_numbers * CT_NUMBER_BYTES;
    if (!take_block(record, CT__CALL, views + pointers + slots + attrs + numbers + 16)) return false;
    char *at = record->block;
    record->numbers = (void *)at, at += numbers; /* first, since it is aligned */
    record->call.attrs = attr_bytes ? at : NULL, at += attrs;
    record->views = (void *)at, at += views;
    const ct_view **pointer = (void *)at;
    at += pointers;
    record->slots = (void *)at;
    record->n_views = n;
    record->call.n_in = n_in;
    record->call.n_out = n_out;
    record->call.in = pointer;
    record->call.out = (ct_view *const *)(pointer + n_in);
    for (int i = 0; i < n; i++) {
        pointer[i] = NULL;
        record->slots[i] = -1;
    }
    return true;
}

/* It counts when all of it is there. */
static ct_record *add_record(ct_graph *g, ct_record_kind kind, size_t block_bytes) {
    if (!ct__graph_grow(g)) return NULL;
    ct_record *record = &g->records[g->n_records];
    return take_block(record, kind, block_bytes) ? record : NULL;
}

static bool is_mutated(const ct_op *op, int i) {
    int last = 0;
    return (op->flags & CT_OP_MUTATES) && (ct__input_arg(op, i, &last)->flags & CT_ARG_MUTATED);
}

/* ---- Random positions ---- */

void ct__capture_random_lowering(int change) { ct__capturing->random_lowerings += change; }

bool ct__capture_drew(ct_rng *rng, ct_random at) {
    ct_graph *g = ct__capturing;
    int generator = 0;
    while (generator < g->n_generators && g->generators[generator].rng != rng) generator++;
    if (generator == CT__GRAPH_GENERATORS)
        return ct_fail(CT_ERR_STATE, "capture", "more than %d generators of random numbers are used",
                       CT__GRAPH_GENERATORS);
    if (generator == g->n_generators) {
        g->generators[g->n_generators].rng = rng;
        g->generators[g->n_generators++].begin = at.call;
    }
    if (!grow((void **)&g->draws, &g->draws_room, g->n_draws, sizeof *g->draws)) return false;
    g->draws[g->n_draws].at = at;
    g->draws[g->n_draws++].generator = generator;
    return true;
}

/* Notes that a record has this position, if it was drawn in this capture. */
static bool note_position(ct_graph *g, ct_record *record, uint64_t seed, uint64_t stream, uint64_t call) {
    for (int i = g->n_draws - 1; i >= 0; i--) {
        const struct ct_drawn *d = &g->draws[i];
        if (d->at.call != call || d->at.seed != seed || d->at.stream != stream) continue;
        record->generator = d->generator;
        record->draw = call - g->generators[d->generator].begin;
        return true;
    }
    return false;
}

/* Of an op that has its position as numbers: the first of its attributes seed, stream and call, one after the other. Otherwise NULL. */
static const ct_attr *position_of(const ct_op *op) {
    const ct_attr *attr = op->attrs;
    while (attr && attr->name && strcmp(attr->name, "seed") != 0) attr++;
    if (!attr || !attr->name || attr->type != CT_ATTR_INT || !attr[1].name || strcmp(attr[1].name, "stream") != 0 ||
        !attr[2].name || strcmp(attr[2].name, "call") != 0 || attr[2].offset != attr->offset + 2 * sizeof(int64_t))
        return NULL;
    return attr;
}

bool ct__capture_lowers(const ct_op *op, ct_device device) {
    return op->lower && ct__records_work(device) && position_of(op);
}

static void note_attributes(ct_graph *g, ct_record *record) {
    const ct_attr *attr = position_of(record->call.op);
    if (!attr) return;
    int64_t *at = (int64_t *)(void *)((char *)(uintptr_t)record->call.attrs + attr->offset);
    if (note_position(g, record, (uint64_t)at[0], (uint64_t)at[1], (uint64_t)at[2])) record->position = at;
}

/* ---- Calls ---- */

bool ct__capture_call(const ct_call *call, const ct_request *r) {
    ct_graph *g = ct__capturing;
    const int n = call->n_in + call->n_out;
    if (!ct__graph_grow(g)) return false;
    ct_record *record = &g->records[g->n_records];
    const size_t attr_bytes = call->attrs ? call->op->attr_size : 0;
    if (!ct__record_arrays(record, call->n_in, call->n_out, __builtin_popcount(call->numbers), attr_bytes))
        return false;
    const ct_call arrays = record->call;
    record->call = *call;
    record->call.attrs = arrays.attrs;
    record->call.in = arrays.in;
    record->call.out = arrays.out;
    record->call.stream = NULL;
    if (attr_bytes) memcpy((void *)(uintptr_t)arrays.attrs, call->attrs, attr_bytes);
    const ct_view **pointer = (const ct_view **)(uintptr_t)arrays.in;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        ct_tensor *x = i < call->n_in ? r->in[i] : r->out[i - call->n_in];
        pointer[i] = view ? &record->views[i] : NULL;
        if (!view) continue;
        record->views[i] = *view;
        if (i < call->n_in && call->numbers >> i & 1) {
            unsigned char *number = memcpy(record->numbers[record->n_numbers++], view->buffer, CT_NUMBER_BYTES);
            record->views[i].buffer = number;
            continue;
        }
        const int slot = record->slots[i] = slot_of(g, x->storage);
        if (!(ok = slot >= 0)) break;
        touch(g, slot);
        g->slots[slot].written |= i >= call->n_in || is_mutated(call->op, i);
    }
    if (ok && call->scratch.bytes) {
        ok = (record->scratch = ct__graph_slot(g, call->device, call->scratch.bytes)) >= 0;
        if (ok) touch(g, record->scratch);
    }
    if (ok && (call->op->flags & CT_OP_RANDOM))
        note_position(g, record, call->random.seed, call->random.stream, call->random.call);
    else if (ok && record->call.attrs) note_attributes(g, record);
    if (!ok) ct__free(record->block, record->block_bytes);
    else g->n_records++;
    return ok;
}

static bool host_writes(ct_storage *storage, ct_record_kind kind, size_t offset, const void *data, size_t bytes) {
    ct_graph *g = ct__capturing;
    const int slot = slot_of(g, storage);
    if (slot < 0) return false;
    if (!g->slots[slot].made) return ct__capture_refuse("capture", "a write of the host's to a tensor from before");
    ct_record *record = add_record(g, kind, bytes ? bytes : 1);
    if (!record) return false;
    record->data = memcpy(record->block, data, bytes);
    record->slot = slot;
    record->offset = offset;
    record->bytes = bytes;
    int64_t at[3];
    if (g->random_lowerings && kind == CT__PUT && bytes == sizeof at) {
        memcpy(at, data, sizeof at);
        if (note_position(g, record, (uint64_t)at[0], (uint64_t)at[1], (uint64_t)at[2])) {
            record->position = (int64_t *)(void *)record->data;
            g->slots[slot].puts++; /* no constant */
        }
    }
    touch(g, slot);
    g->slots[slot].written |= g->slots[slot].puts++ > 0; /* what is written once may be a constant */
    g->n_records++;
    return true;
}

bool ct__capture_put(ct_storage *storage, size_t offset, const void *data, size_t bytes) {
    return host_writes(storage, CT__PUT, offset, data, bytes);
}
bool ct__capture_fill(ct_storage *storage, const void *pattern, size_t size) {
    return host_writes(storage, CT__FILL, 0, pattern, size);
}

static bool add_effect(bool (*effect)(void *context), void *context, bool early, const char *me) {
    ct_graph *g = ct__capturing;
    if (!g) return true;
    if (!effect) return ct__fail_null(me, "effect");
    for (int i = 0; early && i < g->n_records; i++) /* a second time it has to stay behind what follows the first */
        early =
            !(g->records[i].kind == CT__EFFECT && g->records[i].effect == effect && g->records[i].context == context);
    ct_record *record = add_record(g, CT__EFFECT, 0);
    if (!record) return false;
    record->effect = effect;
    record->context = context;
    record->early = early;
    g->n_records++;
    return true;
}
bool ct_capture_effect(bool (*effect)(void *context), void *context) {
    return add_effect(effect, context, false, "capture_effect");
}
bool ct_capture_effect_early(bool (*effect)(void *context), void *context) {
    return add_effect(effect, context, true, "capture_effect_early");
}

/* ---- The whole ---- */

/* What the function has left behind is kept as it is. */
static void keep_what_is_left(ct_graph *g) {
    for (size_t i = 0; i < g->by_storage.capacity; i++) {
        ct_storage *storage = (ct_storage *)(uintptr_t)g->by_storage.entries[i].key;
        if (!storage) continue;
        ct_graph_slot *slot = &g->slots[(int)(intptr_t)g->by_storage.entries[i].value - 1];
        if (slot->kept) continue;
        ct__storage_retain(storage);
        slot->kept = storage;
    }
    ct__map_free(&g->by_storage);
}

/* On a device that does work as one, effects that may come early do, so that they do not come between; elsewhere they stay, so that one is not
 * done where a call before it fails. */
static void move_early_effects(ct_graph *g) {
    int n = 0;
    bool together = false;
    for (int i = 0; i < g->n_records; i++)
        together |= g->records[i].kind == CT__CALL && ct__records_work(g->records[i].call.device);
    for (int i = 0; together && i < g->n_records; i++) {
        if (!g->records[i].early) continue;
        const ct_record record = g->records[i];
        memmove(&g->records[n + 1], &g->records[n], (size_t)(i - n) * sizeof record);
        g->records[n++] = record;
    }
}

/* What the host writes once, and no kernel changes, is written when the graph is made. */
static void mark_constants(ct_graph *g) {
    for (int i = 0; i < g->n_records; i++) {
        ct_record *record = &g->records[i];
        const ct_graph_slot *s = record->slot >= 0 ? &g->slots[record->slot] : NULL;
        record->once = s && !s->written && !s->kept;
    }
}

ct_graph *ct_capture(bool (*function)(void *context), void *context, unsigned flags) {
    const char *me = "capture";
    if (ct__pending()) return NULL;
    if (!function) return ct__fail_null(me, "function"), NULL;
    if (flags & ~(unsigned)CT_CAPTURE_WARM)
        return ct_fail(CT_ERR_VALUE, me, "flags are %#x; CT_CAPTURE_WARM is all there is", flags), NULL;
    if (ct__capturing || suspended) return ct_fail(CT_ERR_STATE, me, "a capture cannot be part of another"), NULL;
    bool ok = true;
    if (!(flags & CT_CAPTURE_WARM))
        ct_scope {
            ok = function(context) && ct_ok();
        }
    ct_graph *g = ok ? ct__alloc(sizeof *g) : NULL;
    if (!g) {
        if (ok) ct__fail_memory(me, sizeof *g);
        else if (ct_ok()) ct_fail(CT_ERR_STATE, me, "the function failed without an error");
        return NULL;
    }
    memset(g, 0, sizeof *g);
    g->flags = flags;
    ct__capturing = g;
    ct_scope {
        ok = function(context) && ct_ok();
    }
    for (int i = 0; i < g->n_generators; i++)
        g->generators[i].drawn = ct_rng_position(g->generators[i].rng) - g->generators[i].begin;
    ct__capturing = suspended = NULL;
    if (!ok && ct_ok()) ct_fail(CT_ERR_STATE, me, "the function failed without an error");
    ok = ok && ct_ok();
    if (ok) {
        keep_what_is_left(g);
        move_early_effects(g);
        mark_constants(g);
        ok = ct__passes_run(g) && ct__graph_plan(g);
    }
    if (ok) return g;
    ct_graph_free(g);
    return NULL;
}

void ct_graph_free(ct_graph *g) {
    if (!g) return;
    ct__graph_forget(g);
    for (int i = 0; i < g->n_records; i++) ct__free(g->records[i].block, g->records[i].block_bytes);
    for (int i = 0; i < g->n_slots; i++) ct__storage_release(g->slots[i].kept);
    for (int i = 0; i < g->n_blocks; i++) ct__storage_release(g->blocks[i]);
    ct__graph_data_free(g);
    ct__map_free(&g->by_storage);
    ct__free(g->draws, (size_t)g->draws_room * sizeof *g->draws);
    ct__free(g->records, (size_t)g->records_room * sizeof *g->records);
    ct__free(g->slots, (size_t)g->slots_room * sizeof *g->slots);
    ct__free(g, sizeof *g);
}
