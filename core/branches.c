/* Branches of captured work: records that a device may do beside each other, since neither needs what the other writes. In a graph of the
 * device's own they then fill it together, where each alone would leave a part of it idle.
 *
 * A record comes after those before it that it shares memory with, one of the two writing; what may raise an error and what lasts keep their
 * order (depends.c says why). The plan gives places of memory to others once their users are through, so that before it slots are compared, and
 * after it bytes. What is beside each other must not share a place: then the plan would put it into a row again. So lives are made longer by
 * those who are beside. To bound what that takes, only records near each other are branches, and only small ones: those that move much memory
 * have the device to themselves. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/passes/passes.h"
#include "core/stream.h"

enum { WINDOW = 16, LARGE = 32 << 20, ALLOWANCE = 16 << 20 }; /* records; bytes that one uses; bytes more at once */
enum { FAILS = 1, LASTS = 2, ALONE = 4 };

/* Bytes that a record uses, of some memory that its pointer stands for. */
typedef struct extent {
    const void *memory;
    size_t low, high;
    bool writes;
} extent;

typedef struct finder {
    const ct_graph *graph;
    bool planned;
    extent *extents;
    int n_extents, room;
    struct {
        int begin, end; /* of its extents */
        unsigned kind;
    } * of; /* each record */
} finder;

static extent extent_of(const finder *f, const ct_access *access) {
    const ct_graph *g = f->graph;
    const ct_graph_slot *s = &g->slots[access->slot];
    extent e = {.memory = s, .low = access->low, .high = access->high, .writes = access->writes};
    if (s->shared) { /* bytes tell nothing where several slots share them */
        e.memory = g, e.low = 0, e.high = SIZE_MAX;
    } else if (f->planned) {
        size_t offset;
        const ct_storage *storage = ct__graph_place(g, s, &offset);
        offset += storage->block->offset;
        e.memory = storage->buffer, e.low += offset, e.high += offset;
    }
    return e;
}

static bool is_recordable(const ct_graph *g, const ct_record *record) {
    if (record->kind == CT__EFFECT || record->once || record->gone) return false;
    if (record->kind == CT__CALL) return record->generator < 0 && ct__records_work(record->call.device);
    return ct__records_work(g->slots[record->slot].device);
}

static bool look_at(finder *f, int k) {
    const ct_graph *g = f->graph;
    const ct_record *record = &g->records[k];
    size_t bytes = 0;
    f->of[k].begin = f->n_extents;
    f->of[k].kind = ct__record_may_fail(record) ? FAILS : 0;
    if (is_recordable(g, record)) {
        ct_access access;
        for (int i = 0; ct__access_next(g, record, &i, &access);) {
            if (!ct__graph_grow_list((void **)&f->extents, &f->room, f->n_extents, sizeof *f->extents)) return false;
            f->extents[f->n_extents++] = extent_of(f, &access);
            bytes += access.high - access.low;
            if (access.writes && g->slots[access.slot].kept) f->of[k].kind |= LASTS;
        }
        if (record->kind == CT__CALL && (record->call.flags & CT_CALL_LASTING)) f->of[k].kind |= LASTS;
    } else {
        f->of[k].kind |= ALONE;
    }
    if (bytes > LARGE) f->of[k].kind |= ALONE;
    f->of[k].end = f->n_extents;
    return true;
}

/* Whether record k has to come after record j. */
static bool follows(const finder *f, int j, int k) {
    const unsigned one = f->of[j].kind, other = f->of[k].kind;
    if ((one | other) & ALONE) return true;
    if (((one & FAILS) && (other & LASTS)) || ((one & LASTS) && (other & FAILS))) return true;
    for (int a = f->of[j].begin; a < f->of[j].end; a++)
        for (int b = f->of[k].begin; b < f->of[k].end; b++) {
            const extent *x = &f->extents[a], *y = &f->extents[b];
            if (x->memory == y->memory && (x->writes || y->writes) && x->low < y->high && y->low < x->high) return true;
        }
    return false;
}

/* Record k comes at once after those in `after`, and so after all in `all`: bit i is record k - 1 - i. What is further away than the window comes
 * before it in any case, which the bits up to twice as far make sure of. */
static void find_record(const finder *f, int from, int k, int window, ct_branch *found) {
    ct_branch made = {0};
    for (int d = 1; d <= 2 * window + 1 && k - d >= from; d++) {
        if (made.all >> (d - 1) & 1) continue;
        if (d <= window && !follows(f, k - d, k)) continue;
        made.after |= (uint64_t)1 << (d - 1);
        made.all |= (uint64_t)1 << (d - 1) | found[k - d - from].all << d;
    }
    found[k - from] = made;
}

ct_branch *ct__branches_find(const ct_graph *g, int from, int n, int window, bool planned) {
    finder f = {.graph = g, .planned = planned};
    const size_t bytes = ((size_t)n + 1) * sizeof(ct_branch), of_bytes = ((size_t)g->n_records + 1) * sizeof *f.of;
    ct_branch *found = ct__alloc(bytes);
    f.of = ct__alloc(of_bytes);
    bool ok = found && f.of;
    if (!ok) ct__fail_memory("capture", bytes + of_bytes);
    for (int k = from; ok && k < from + n; k++) {
        ok = look_at(&f, k);
        if (ok) find_record(&f, from, k, window, found);
    }
    ct__free(f.of, of_bytes);
    ct__free(f.extents, (size_t)f.room * sizeof *f.extents);
    if (ok) return found;
    ct__branches_free(found, n);
    return NULL;
}

void ct__branches_free(ct_branch *branches, int n) { ct__free(branches, ((size_t)n + 1) * sizeof *branches); }

/* ---- Lives ---- */

typedef struct span {
    int first, last;
} span;

/* The records that record k may be beside, itself among them. */
static void find_spans(const ct_branch *branches, int n, int window, span *beside) {
    for (int k = 0; k < n; k++) {
        beside[k] = (span){k, k};
        for (int d = 1; d <= window && d <= k; d++) {
            if (branches[k].all >> (d - 1) & 1) continue;
            beside[k].first = k - d;
            beside[k - d].last = k;
        }
    }
}

/* The most bytes in use at once of slots that live so long. */
static int64_t most_in_use(const ct_graph *g, const span *lives, int64_t *change) {
    int64_t now = 0, most = 0;
    memset(change, 0, ((size_t)g->n_records + 1) * sizeof *change);
    for (int i = 0; i < g->n_slots; i++) {
        const ct_graph_slot *s = &g->slots[i];
        if (s->kept || s->data || lives[i].first > lives[i].last) continue;
        change[lives[i].first] += (int64_t)s->bytes;
        change[lives[i].last + 1] -= (int64_t)s->bytes;
    }
    for (int i = 0; i < g->n_records; i++)
        if ((now += change[i]) > most) most = now;
    return most;
}

static bool may_branch(const ct_graph *g) {
    const char *text = getenv("CT_BRANCHES");
    if (text && text[0] == '0') return false;
    for (int i = 0; i < g->n_slots; i++) {
        const ct_device device = g->slots[i].device;
        if (ct__records_work(device) && ct__backend(device.type)->record_from) return true;
    }
    return false;
}

/* Lives with so wide a window; *fits: the peak of memory hardly rises. False after an error. */
static bool try_window(ct_graph *g, int window, span *beside, span *lives, int64_t *change, bool *fits) {
    ct_branch *branches = ct__branches_find(g, 0, g->n_records, window, false);
    if (!branches) return false;
    for (int i = 0; i < g->n_slots; i++) lives[i] = (span){g->slots[i].first, g->slots[i].last};
    const int64_t before = most_in_use(g, lives, change);
    find_spans(branches, g->n_records, window, beside);
    for (int k = 0; k < g->n_records; k++)
        for (int i = 0, slot; (slot = ct__slot_next(&g->records[k], &i)) >= 0;) {
            if (beside[k].first < lives[slot].first) lives[slot].first = beside[k].first;
            if (beside[k].last > lives[slot].last) lives[slot].last = beside[k].last;
        }
    *fits = most_in_use(g, lives, change) <= before + ALLOWANCE;
    ct__branches_free(branches, g->n_records);
    return true;
}

bool ct__branches_plan(ct_graph *g) {
    g->window = 0;
    if (!may_branch(g)) return true;
    const size_t n = (size_t)g->n_records + 1, slots = (size_t)g->n_slots + 1;
    const size_t bytes = n * sizeof(span) + slots * sizeof(span) + n * sizeof(int64_t);
    int64_t *change = ct__alloc(bytes);
    if (!change) return ct__fail_memory("capture", bytes);
    span *beside = (span *)(void *)(change + n), *lives = beside + n;
    bool ok = true, fits = false;
    int window = WINDOW;
    for (; ok && window >= 2; window /= 2)
        if (!(ok = try_window(g, window, beside, lives, change, &fits)) || fits) break;
    if (ok && fits) {
        g->window = window;
        for (int i = 0; i < g->n_slots; i++)
            if (lives[i].first <= lives[i].last) g->slots[i].first = lives[i].first, g->slots[i].last = lives[i].last;
    }
    ct__free(change, bytes);
    return ok;
}
