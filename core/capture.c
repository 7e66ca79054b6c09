/* Capture: a function is run, and every call of a kernel that it leads to is noted with its memory. Storages are known by number (slots), so
 * that memory can be planned afterwards. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/arena.h"
#include "core/device.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/log.h"
#include "core/node.h"
#include "core/passes/passes.h"
#include "core/threads.h"

_Thread_local ct_graph *ct__capturing;
/* The one whose function runs, whether it records still, has been suspended or has given up; NULL: there is none. */
static _Thread_local ct_graph *recorded;

bool ct_is_capturing(void) { return ct__capturing != NULL; }

bool ct_capture_suspend(void) {
    if (!ct__capturing) return false;
    recorded->suspended = true;
    ct__capturing = NULL;
    return true;
}

void ct_capture_resume(bool was_suspended) {
    if (!was_suspended || !recorded || !recorded->suspended) return;
    recorded->suspended = false;
    ct__capturing = recorded;
}

void ct__capture_give_up(bool was_pending) {
    ct_graph *g = ct__capturing;
    ct__capturing = NULL;
    if (!was_pending) ct__error_take(&g->refusal);
}

void ct_capture_refuse(const char *op, const char *what, const char *why) {
    if (!ct__capturing) return;
    const bool was_pending = ct__pending();
    ct_fail(CT_ERR_STATE, op ? op : "capture", "%s cannot be captured: %s", what ? what : "this",
            why ? why : "it would be the same in every replay");
    ct__capture_give_up(was_pending);
}

bool ct__graph_grow_list(void **list, int *room, int n, size_t size) {
    if (n < *room) return true;
    const int more = *room ? 2 * *room : 64;
    void *larger = ct__grow(*list, (size_t)*room * size, (size_t)more * size);
    if (!larger) return ct__fail_memory("capture", (size_t)more * size);
    *list = larger;
    *room = more;
    return true;
}

/* ---- Slots ---- */

int ct__graph_slot(ct_graph *g, ct_device device, size_t bytes) {
    if (!ct__graph_grow_list((void **)&g->slots, &g->slots_room, g->n_slots, sizeof *g->slots)) return -1;
    g->slots[g->n_slots] = (ct_graph_slot){.device = device, .bytes = bytes, .first = INT32_MAX, .last = -1};
    return g->n_slots++;
}

/* A graph knows the memory that its function makes without holding it, so that it ends when the function lets go of it; another thread may
 * be the last to do so. Under this lock memory that a graph knows is alive: references to it are given up under it as well. */
static pthread_mutex_t knowing = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t watching = PTHREAD_ONCE_INIT;
static ct_graph *recordings; /* of all threads */

static void lock(void) { pthread_mutex_lock(&knowing); }
static void unlock(void) { pthread_mutex_unlock(&knowing); }
static void watch_forks(void) { pthread_atfork(lock, unlock, unlock); } /* a child never finds the lock taken */

static bool know(ct_graph *g, ct_storage *storage, int slot) {
    lock();
    const bool ok = ct__map_put(&g->by_storage, storage, (void *)(intptr_t)(slot + 1));
    unlock();
    return ok || ct__fail_memory("capture", sizeof(void *));
}

/* That of a storage; of one that was there before, from its first use on, and the graph holds it. */
static int slot_of(ct_graph *g, ct_storage *storage) {
    lock();
    void **found = ct__map_find(&g->by_storage, storage);
    const int known = found ? (int)(intptr_t)*found - 1 : -1;
    unlock();
    if (known >= 0) return known;
    const int slot = ct__graph_slot(g, storage->device, storage->bytes);
    if (slot < 0 || !know(g, storage, slot)) return -1;
    ct__storage_retain(storage);
    g->slots[slot].kept = storage;
    return slot;
}

bool ct_capture_is_outside(const ct_tensor *x) {
    ct_graph *g = ct__capturing;
    if (!g || !ct__valid(x, "capture_is_outside", "x")) return false;
    lock();
    void **found = ct__map_find(&g->by_storage, x->storage);
    const bool made = found && g->slots[(intptr_t)*found - 1].made;
    unlock();
    return !made;
}

static bool note_made(ct_graph *g, ct_storage *storage) {
    const int slot = ct__graph_slot(g, storage->device, storage->bytes);
    if (slot < 0 || !know(g, storage, slot)) return false;
    g->slots[slot].made = true;
    atomic_store_explicit(&storage->known, true, memory_order_relaxed); /* nobody else has it yet */
    return true;
}

void ct__capture_made(ct_storage *storage) {
    const bool was_pending = ct__pending();
    if (!note_made(ct__capturing, storage)) ct__capture_give_up(was_pending);
}

bool ct__capture_let_go(ct_storage *storage) {
    lock();
    const bool last = atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) == 1;
    for (ct_graph *g = recordings; g && last; g = g->next_recording) ct__map_take(&g->by_storage, storage);
    unlock();
    return last;
}

static void touch(ct_graph *g, int slot) {
    ct_graph_slot *s = &g->slots[slot];
    if (g->n_records < s->first) s->first = g->n_records;
    s->last = g->n_records;
}

/* ---- Records ---- */

bool ct__graph_grow(ct_graph *g) {
    return ct__graph_grow_list((void **)&g->records, &g->records_room, g->n_records, sizeof *g->records);
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

/* ---- Random positions ---- */

void ct__capture_random_lowering(int change) {
    if (ct__capturing) ct__capturing->random_lowerings += change;
}

static bool note_draw(ct_graph *g, ct_rng *rng, ct_random at) {
    int generator = 0;
    while (generator < g->n_generators && g->generators[generator].rng != rng) generator++;
    if (generator == CT__GRAPH_GENERATORS)
        return ct_fail(CT_ERR_STATE, "capture", "more than %d generators of random numbers are used",
                       CT__GRAPH_GENERATORS);
    if (generator == g->n_generators) {
        ct__rng_retain(rng);
        g->generators[g->n_generators].rng = rng;
        g->generators[g->n_generators++].begin = at.call;
    }
    if (!ct__graph_grow_list((void **)&g->draws, &g->draws_room, g->n_draws, sizeof *g->draws)) return false;
    g->draws[g->n_draws].at = at;
    g->draws[g->n_draws++].generator = generator;
    return true;
}

void ct__capture_drew(ct_rng *rng, ct_random at) {
    const bool was_pending = ct__pending();
    if (!note_draw(ct__capturing, rng, at)) ct__capture_give_up(was_pending);
}

/* A function that makes a generator in each step and frees it has the same numbers in each, which replays would not have. */
void ct__capture_rng_freed(ct_rng *rng) {
    for (int i = 0; rng && ct__capturing && i < ct__capturing->n_generators; i++)
        if (ct__capturing->generators[i].rng == rng)
            ct_capture_refuse("rng_free", "a generator of random numbers that the function frees",
                              "replays go on where generators stand");
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

static bool is_parameter(const ct_tensor *x) { return x->node && !x->node->op; }

static bool note_call(ct_graph *g, const ct_call *call, const ct_request *r) {
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
        if (i < call->n_in && i < 32 && call->numbers >> i & 1) {
            unsigned char *number = memcpy(record->numbers[record->n_numbers++], view->buffer, CT_NUMBER_BYTES);
            record->views[i].buffer = number;
            continue;
        }
        const int slot = record->slots[i] = slot_of(g, x->storage);
        if (!(ok = slot >= 0)) break;
        touch(g, slot);
        g->slots[slot].written |= i >= call->n_in || ct__input_is_mutated(call->op, i);
        g->slots[slot].frozen |= is_parameter(x) || (x->base && is_parameter(x->base));
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

void ct__capture_call(const ct_call *call, const ct_request *r) {
    const bool was_pending = ct__pending();
    if (!note_call(ct__capturing, call, r)) ct__capture_give_up(was_pending);
}

static bool note_put(ct_graph *g, ct_storage *storage, ct_record_kind kind, size_t offset, const void *data,
                     size_t bytes) {
    const int slot = slot_of(g, storage);
    if (slot < 0) return false;
    if (!g->slots[slot].made)
        return ct_fail(CT_ERR_STATE, "capture",
                       "a write of the host's to a tensor from before cannot be captured: it would be the same in "
                       "every replay");
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

static void host_writes(ct_storage *storage, ct_record_kind kind, size_t offset, const void *data, size_t bytes) {
    const bool was_pending = ct__pending();
    if (!note_put(ct__capturing, storage, kind, offset, data, bytes)) ct__capture_give_up(was_pending);
}

void ct__capture_put(ct_storage *storage, size_t offset, const void *data, size_t bytes) {
    host_writes(storage, CT__PUT, offset, data, bytes);
}
void ct__capture_fill(ct_storage *storage, const void *pattern, size_t size) {
    host_writes(storage, CT__FILL, 0, pattern, size);
}

static bool add_effect(bool (*effect)(void *context), void *context, bool early, const char *me) {
    ct_graph *g = ct__capturing;
    if (!effect) return ct__fail_null(me, "effect");
    if (!g) return true;
    for (int i = 0; early && i < g->n_records; i++) /* a second time it has to stay behind what follows the first */
        early =
            !(g->records[i].kind == CT__EFFECT && g->records[i].effect == effect && g->records[i].context == context);
    const bool was_pending = ct__pending();
    ct_record *record = add_record(g, CT__EFFECT, 0);
    if (!record) {
        ct__capture_give_up(was_pending);
        return true;
    }
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

/* ---- Guards ---- */

static bool note_guard(ct_graph *g, const int64_t *version, const char *why) {
    for (int i = 0; i < g->n_guards; i++)
        if (g->guards[i].version == version) return true;
    if (!ct__graph_grow_list((void **)&g->guards, &g->guards_room, g->n_guards, sizeof *g->guards)) return false;
    g->guards[g->n_guards++] = (struct ct_guard){.version = version, .why = why};
    return true;
}

bool ct_capture_guard(const int64_t *version, const char *why) {
    if (!version || !why) return ct__fail_null("capture_guard", version ? "why" : "version");
    if (!ct__capturing) return true;
    const bool was_pending = ct__pending();
    if (!note_guard(ct__capturing, version, why)) ct__capture_give_up(was_pending);
    return true;
}

const char *ct__graph_fault(const ct_graph *g) {
    if (g->tuning != atomic_load_explicit(&ct__tuning, memory_order_relaxed))
        return "the size of chunks or the level of instructions has been set since the capture";
    for (int i = 0; i < g->n_guards; i++)
        if (*g->guards[i].version != g->guards[i].value) return g->guards[i].why;
    return NULL;
}

bool ct_graph_is_good(const ct_graph *g) { return g && !ct__graph_fault(g); }

/* ---- The whole ---- */

static void begin_recording(ct_graph *g) {
    pthread_once(&watching, watch_forks);
    lock();
    g->next_recording = recordings;
    recordings = g;
    unlock();
    g->around = recorded;
    ct__capturing = recorded = g;
}

/* What the function has left behind is kept as it is, if the graph is to stay. */
static void end_recording(ct_graph *g, bool stays) {
    lock();
    for (size_t i = 0; i < g->by_storage.capacity && stays; i++) {
        ct_storage *storage = (ct_storage *)(uintptr_t)g->by_storage.entries[i].key;
        if (!storage) continue;
        ct_graph_slot *slot = &g->slots[(int)(intptr_t)g->by_storage.entries[i].value - 1];
        if (slot->kept) continue;
        ct__storage_retain(storage);
        slot->kept = storage;
        atomic_store_explicit(&storage->known, false, memory_order_relaxed); /* it is held from here on */
    }
    ct_graph **link = &recordings;
    while (*link != g) link = &(*link)->next_recording;
    *link = g->next_recording;
    unlock();
    ct__map_free(&g->by_storage);
}

/* Where kept memory begins; its end is that many bytes behind. */
static uintptr_t address_of(const ct_storage *storage) {
    return (uintptr_t)storage->buffer + (storage->block ? storage->block->offset : 0);
}

static bool overlap(const ct_storage *a, const ct_storage *b) {
    const uintptr_t x = address_of(a), y = address_of(b);
    return ct__same_device(a->device, b->device) && x < y + b->bytes && y < x + a->bytes;
}

/* Memory that a program has wrapped may be that of another slot: wrapped twice, or a tensor's own that it was given. */
static void mark_shared(ct_graph *g) {
    for (int i = 0; i < g->n_slots; i++) {
        const ct_storage *wrapped = g->slots[i].kept;
        if (!wrapped || !wrapped->wrapped) continue;
        g->slots[i].shared = true;
        for (int k = 0; k < g->n_slots; k++)
            g->slots[k].shared |= g->slots[k].kept && overlap(g->slots[k].kept, wrapped);
    }
}

/* An elementwise call that writes only into memory of the graph's own, as one that adds to a gradient on its way, changes nothing that lasts.
 * Kernels of other ops may divide their work, and need scratch, by it: such calls stay as they were chosen. */
static void note_what_lasts(ct_graph *g) {
    ct_access access;
    for (int i = 0; i < g->n_records; i++) {
        ct_record *record = &g->records[i];
        bool lasts = false;
        if (record->kind != CT__CALL || !(record->call.op->flags & CT_OP_ELEMENTWISE)) continue;
        for (int k = 0; !lasts && ct__access_next(g, record, &k, &access);)
            lasts = access.writes && g->slots[access.slot].kept;
        if (!lasts) record->call.flags &= ~(unsigned)CT_CALL_LASTING;
    }
}

/* On a device that does work as one, effects that may come early do, so that they do not come between calls, but stay behind effects that came
 * before them; elsewhere they stay, so that one is not done where a call before it fails. */
static void move_early_effects(ct_graph *g) {
    int n = 0;
    bool together = false;
    for (int i = 0; i < g->n_records; i++)
        together |= g->records[i].kind == CT__CALL && ct__records_work(g->records[i].call.device);
    for (int i = 0; together && i < g->n_records; i++) {
        if (g->records[i].kind != CT__EFFECT) continue;
        if (!g->records[i].early) {
            n = i + 1;
            continue;
        }
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

static const unsigned KNOWN_FLAGS = CT_CAPTURE_WARM | CT_CAPTURE_FROZEN | CT_CAPTURE_RECOMPUTE | CT_CAPTURE_LAYOUT |
                                    CT_CAPTURE_CHECK | CT_CAPTURE_SAVE | CT_CAPTURE_UNCHECKED;

/* Runs the function to its end, whatever comes between. */
static bool run_whole(bool (*function)(void *context), void *context) {
    bool ok = false;
    ct_scope {
        ok = function(context) && ct_ok();
    }
    if (!ok && ct_ok()) ct_fail(CT_ERR_STATE, "capture", "the function failed without an error");
    return ok;
}

bool ct__graph_record(ct_graph *g, bool (*function)(void *context), void *context) {
    g->tuning = atomic_load_explicit(&ct__tuning, memory_order_relaxed);
    begin_recording(g);
    const bool ok = run_whole(function, context);
    for (int i = 0; i < g->n_generators; i++)
        g->generators[i].drawn = ct_rng_position(g->generators[i].rng) - g->generators[i].begin;
    for (int i = 0; i < g->n_guards; i++) g->guards[i].value = *g->guards[i].version;
    ct__capturing = NULL;
    recorded = g->around;
    if (ok && g->refusal.code != CT_OK) ct__error_put(&g->refusal);
    else if (ok && g->suspended)
        ct_fail(CT_ERR_STATE, "capture", "the function has suspended its recording and not resumed it");
    const bool stays = ok && ct_ok();
    end_recording(g, stays);
    if (!stays) return false;
    mark_shared(g);
    note_what_lasts(g);
    move_early_effects(g);
    return true;
}

ct_graph *ct__graph_new(void) {
    ct_graph *g = ct__alloc(sizeof *g);
    if (g) memset(g, 0, sizeof *g);
    else ct__fail_memory("capture", sizeof *g);
    return g;
}

/* Those of the caller, and what CT_CAPTURE says. */
static bool read_flags(unsigned *flags) {
    const char *text = getenv("CT_CAPTURE");
    if (*flags & ~KNOWN_FLAGS)
        return ct_fail(CT_ERR_VALUE, "capture", "flags are %#x; of these %#x are not known", *flags,
                       *flags & ~KNOWN_FLAGS);
    if (text && *text && strcmp(text, "check") != 0)
        return ct_fail(CT_ERR_VALUE, "capture", "CT_CAPTURE is \"%s\"; \"check\" is all there is", text);
    if ((*flags & CT_CAPTURE_CHECK) && (*flags & CT_CAPTURE_UNCHECKED))
        return ct_fail(CT_ERR_VALUE, "capture", "flags are both CT_CAPTURE_CHECK and CT_CAPTURE_UNCHECKED");
    if (text && *text && !(*flags & CT_CAPTURE_UNCHECKED)) *flags |= CT_CAPTURE_CHECK;
    if (*flags & CT_CAPTURE_CHECK) *flags &= ~(unsigned)CT_CAPTURE_LAYOUT; /* other bits would be all that is found */
    return true;
}

ct_graph *ct_capture(bool (*function)(void *context), void *context, unsigned flags) {
    const char *me = "capture";
    if (ct__pending()) return NULL;
    if (!function) return ct__fail_null(me, "function"), NULL;
    if (!read_flags(&flags)) return NULL;
    if (recorded) return ct_fail(CT_ERR_STATE, me, "a capture cannot be part of another"), NULL;
    ct_graph *g = ct__graph_new();
    if (!g) return NULL;
    g->flags = flags;
    g->function = function;
    g->context = context;
    bool ok = (flags & CT_CAPTURE_WARM) || run_whole(function, context);
    if (ok && (ok = ct__graph_record(g, function, context))) {
        mark_constants(g);
        ok = (!(flags & (CT_CAPTURE_CHECK | CT_CAPTURE_SAVE)) || ct__graph_keep_raw(g)) && ct__passes_run(g) &&
             ct__graph_plan(g);
    }
    if (ok) return g;
    if (ct__log_on(CT__LOG_CAPTURE)) {
        char line[1200];
        snprintf(line, sizeof line, "capture: there is no graph: %s", ct_error());
        ct__log_put(line);
    }
    ct_graph_free(g);
    return NULL;
}

void ct_graph_free(ct_graph *g) {
    if (!g) return;
    ct__replay_times_log(g);
    ct__graph_forget(g);
    ct__variables_free(g->variables);
    ct__graph_names_free(g->names);
    ct__graph_raw_free(g->raw);
    for (int i = 0; i < g->n_records; i++) ct__free(g->records[i].block, g->records[i].block_bytes);
    for (int i = 0; i < g->n_slots; i++) ct__storage_release(g->slots[i].kept);
    for (int i = 0; i < g->n_blocks; i++) ct__storage_release(g->blocks[i]);
    for (int i = 0; i < g->n_generators; i++) ct__rng_release(g->generators[i].rng);
    ct__graph_data_free(g);
    if (g->changed) ct__free(g->changed, ((size_t)g->n_slots + 1) * sizeof *g->changed);
    ct__free(g->guards, (size_t)g->guards_room * sizeof *g->guards);
    ct__free(g->draws, (size_t)g->draws_room * sizeof *g->draws);
    ct__free(g->records, (size_t)g->records_room * sizeof *g->records);
    ct__free(g->slots, (size_t)g->slots_room * sizeof *g->slots);
    ct__free(g, sizeof *g);
}
