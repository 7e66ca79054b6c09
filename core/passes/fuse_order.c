/* Where records of a graph may go: what each does to slots, and what of it conflicts. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/passes/fuse.h"

/* ---- The state ---- */

static int count_accesses(const ct_graph *g) {
    ct_access access;
    int n = 0;
    for (int k = 0; k < g->n_records; k++)
        for (int i = 0; ct__access_next(g, &g->records[k], &i, &access);) n++;
    return n;
}

static void *part(char **at, size_t count, size_t size) {
    void *begin = *at;
    *at += (count * size + 63) & ~(size_t)63;
    return begin;
}

/* Divides a block; returns its bytes. */
static size_t lay_out(fuse_state *s, char *block, size_t n, size_t n_accesses, size_t n_slots) {
    char *at = block;
    s->accesses = part(&at, n_accesses, sizeof *s->accesses);
    s->groups = part(&at, n, sizeof *s->groups);
    s->begin = part(&at, n + 1, sizeof *s->begin);
    s->slot_first = part(&at, n_slots, sizeof *s->slot_first);
    s->group = part(&at, n, sizeof *s->group);
    s->next = part(&at, n, sizeof *s->next);
    s->effect_before = part(&at, n, sizeof *s->effect_before);
    s->effect_after = part(&at, n, sizeof *s->effect_after);
    s->fail_before = part(&at, n, sizeof *s->fail_before);
    s->fail_after = part(&at, n, sizeof *s->fail_after);
    s->uses_kept = part(&at, n, sizeof *s->uses_kept);
    s->writes_kept = part(&at, n, sizeof *s->writes_kept);
    s->fixed = part(&at, n, sizeof *s->fixed);
    s->stamp = part(&at, n, sizeof *s->stamp);
    return (size_t)(at - block);
}

/* Chains the accesses to the same memory; last and last_write are room for a number for each slot. */
static void chain(fuse_state *s, int *last, int *last_write) {
    ct_graph *g = s->graph;
    int n = 0;
    for (int i = 0; i < g->n_slots; i++) s->slot_first[i] = last[i] = last_write[i] = -1;
    for (int k = 0; k < s->n_records; k++) {
        s->begin[k] = n;
        s->uses_kept[k] = s->writes_kept[k] = false;
        for (int i = 0; ct__access_next(g, &g->records[k], &i, &s->accesses[n].is); n++) {
            fuse_access *a = &s->accesses[n];
            const int slot = ct__slot_memory(g, a->is.slot);
            a->record = k;
            a->before = last[slot];
            a->write_before = last_write[slot];
            a->after = a->write_after = -1;
            if (a->before >= 0) s->accesses[a->before].after = n;
            else s->slot_first[slot] = n;
            if (a->is.writes) {
                for (int b = a->before; b >= 0 && s->accesses[b].write_after < 0; b = s->accesses[b].before) {
                    s->accesses[b].write_after = n;
                    if (s->accesses[b].is.writes) break;
                }
                last_write[slot] = n;
            }
            last[slot] = n;
            if (!g->slots[slot].kept) continue;
            s->uses_kept[k] = true;
            s->writes_kept[k] |= a->is.writes;
        }
    }
    s->begin[s->n_records] = n;
}

/* For each record the nearest ones of a kind. */
static void find_nearest(const fuse_state *s, bool (*is)(const fuse_state *s, int record), int *before, int *after) {
    for (int k = 0, last = -1; k < s->n_records; k++) {
        before[k] = last;
        if (is(s, k)) last = k;
    }
    for (int k = s->n_records - 1, next = s->n_records; k >= 0; k--) {
        after[k] = next;
        if (is(s, k)) next = k;
    }
}

static bool is_effect(const fuse_state *s, int k) { return s->graph->records[k].kind == CT__EFFECT; }
static bool may_fail(const fuse_state *s, int k) {
    return s->group[k] < 0 && ct__record_may_fail(&s->graph->records[k]);
}

void ct__fuse_find_failing(fuse_state *s) { find_nearest(s, may_fail, s->fail_before, s->fail_after); }

bool ct__fuse_state_make(fuse_state *s, ct_graph *g) {
    *s = (fuse_state){.graph = g, .n_records = g->n_records};
    const size_t n = (size_t)g->n_records, n_accesses = (size_t)count_accesses(g), n_slots = (size_t)g->n_slots;
    const size_t lasts = n_slots * sizeof(int);
    s->block_bytes = lay_out(s, NULL, n, n_accesses, n_slots) + 64;
    s->block = ct__alloc(s->block_bytes);
    int *last = ct__alloc(2 * lasts + 1);
    bool ok = s->block && last;
    if (ok) {
        lay_out(s, s->block, n, n_accesses, n_slots);
        chain(s, last, last + n_slots);
        find_nearest(s, is_effect, s->effect_before, s->effect_after);
        memset(s->fixed, 0, n * sizeof *s->fixed);
        memset(s->stamp, 0, n * sizeof *s->stamp);
    } else {
        ct__fail_memory("capture", s->block_bytes + 2 * lasts);
    }
    ct__free(last, 2 * lasts + 1);
    return ok;
}

void ct__fuse_state_free(fuse_state *s) { ct__free(s->block, s->block_bytes); }

/* ---- Conflicts ---- */

static int position_of(const fuse_state *s, int record) {
    return s->group[record] >= 0 ? s->groups[s->group[record]].position : record;
}

static bool conflicts(const ct_access *a, const ct_access *b) {
    return (a->writes || b->writes) && (a->slot != b->slot || (a->low < b->high && b->low < a->high));
}

/* The highest position of what has to come before a record, but for groups a and b. */
static int last_before(const fuse_state *s, int record, int a, int b) {
    int last = s->uses_kept[record] ? s->effect_before[record] : -1;
    if (s->writes_kept[record] && s->fail_before[record] > last) last = s->fail_before[record];
    for (int i = s->begin[record]; i < s->begin[record + 1]; i++) {
        const fuse_access *mine = &s->accesses[i];
        for (int k = mine->is.writes ? mine->before : mine->write_before; k >= 0;) {
            const fuse_access *other = &s->accesses[k];
            k = mine->is.writes ? other->before : other->write_before;
            if (other->record == record || !conflicts(&mine->is, &other->is)) continue;
            const int group = s->group[other->record], position = position_of(s, other->record);
            if (group < 0 || (group != a && group != b)) last = position > last ? position : last;
            if (other->is.whole && other->is.slot == mine->is.slot)
                break; /* what came before it has a lower position */
        }
    }
    return last;
}

/* The lowest position of what has to come behind a record. */
static int first_behind(const fuse_state *s, int record, int a, int b) {
    int first = s->uses_kept[record] ? s->effect_after[record] : s->n_records;
    if (s->writes_kept[record] && s->fail_after[record] < first) first = s->fail_after[record];
    for (int i = s->begin[record]; i < s->begin[record + 1]; i++) {
        const fuse_access *mine = &s->accesses[i];
        for (int k = mine->is.writes ? mine->after : mine->write_after; k >= 0;) {
            const fuse_access *other = &s->accesses[k];
            k = mine->is.writes ? other->after : other->write_after;
            if (other->record == record || !conflicts(&mine->is, &other->is)) continue;
            const int group = s->group[other->record], position = position_of(s, other->record);
            if (group < 0 || (group != a && group != b)) first = position < first ? position : first;
            if (other->is.whole && other->is.slot == mine->is.slot) break;
        }
    }
    return first;
}

static bool may_move(const fuse_state *s, int group, int other, bool up) {
    const int to = s->groups[other].position;
    for (int k = s->groups[group].first; k >= 0; k = s->next[k]) {
        if (s->fixed[k]) return false;
        if (up ? last_before(s, k, group, other) >= to : first_behind(s, k, group, other) <= to) return false;
    }
    return true;
}

bool ct__fuse_may_join(const fuse_state *s, int a, int b, int *position) {
    const bool a_first = s->groups[a].position < s->groups[b].position;
    const int early = a_first ? a : b, late = a_first ? b : a;
    if (may_move(s, late, early, true)) return *position = s->groups[early].position, true;
    if (may_move(s, early, late, false)) return *position = s->groups[late].position, true;
    return false;
}

/* ---- Elements ---- */

/* Dimensions of size 1 go, and neighbors that are walked as one become one. */
static int canonical(const ct_view *view, int64_t *dims, int64_t *strides) {
    int n = 0;
    for (int d = 0; d < view->ndim; d++) {
        if (view->dims[d] == 1) continue;
        if (n > 0 && strides[n - 1] == view->strides[d] * view->dims[d]) {
            dims[n - 1] *= view->dims[d];
            strides[n - 1] = view->strides[d];
        } else {
            dims[n] = view->dims[d];
            strides[n++] = view->strides[d];
        }
    }
    return n;
}

bool ct__fuse_same_elements(const ct_view *a, const ct_view *b) {
    if (a->offset != b->offset || a->dtype != b->dtype) return false;
    int64_t a_dims[CT_MAX_DIMS], b_dims[CT_MAX_DIMS], a_strides[CT_MAX_DIMS], b_strides[CT_MAX_DIMS];
    const int n = canonical(a, a_dims, a_strides);
    if (n != canonical(b, b_dims, b_strides)) return false;
    for (int d = 0; d < n; d++)
        if (a_dims[d] != b_dims[d] || a_strides[d] != b_strides[d]) return false;
    return true;
}

static bool access_agrees(const fuse_state *s, const fuse_access *mine, int group, bool forward) {
    const bool all = mine->is.writes;
    int k = forward ? (all ? mine->after : mine->write_after) : (all ? mine->before : mine->write_before);
    while (k >= 0) {
        const fuse_access *other = &s->accesses[k];
        k = forward ? (all ? other->after : other->write_after) : (all ? other->before : other->write_before);
        if (s->group[other->record] != group || !conflicts(&mine->is, &other->is)) continue;
        if (mine->is.slot != other->is.slot || !mine->is.view || !other->is.view ||
            !ct__fuse_same_elements(mine->is.view, other->is.view))
            return false;
    }
    return true;
}

bool ct__fuse_agree(const fuse_state *s, int a, int b) {
    if (s->groups[a].size > s->groups[b].size) return ct__fuse_agree(s, b, a);
    for (int k = s->groups[a].first; k >= 0; k = s->next[k])
        for (int i = s->begin[k]; i < s->begin[k + 1]; i++)
            if (!access_agrees(s, &s->accesses[i], b, true) || !access_agrees(s, &s->accesses[i], b, false))
                return false;
    return true;
}

/* ---- Memory ---- */

int64_t ct__fuse_usage(const fuse_state *s, int *where) {
    const ct_graph *g = s->graph;
    const size_t bytes = ((size_t)s->n_records + 1) * sizeof(int64_t);
    int64_t *change = ct__alloc(bytes), now = 0, most = 0;
    if (!change) return ct__fail_memory("capture", bytes), -1;
    memset(change, 0, bytes);
    *where = 0;
    for (int i = 0; i < g->n_slots; i++) {
        int first = s->n_records, last = -1, only = -1;
        bool inside = true, constant = false;
        if (g->slots[i].kept) continue;
        for (int k = s->slot_first[i]; k >= 0; k = s->accesses[k].after) {
            const int record = s->accesses[k].record, position = position_of(s, record), group = s->group[record];
            first = position < first ? position : first;
            last = position > last ? position : last;
            inside &= group >= 0 && (only < 0 || only == group);
            only = group;
            constant |= g->records[record].once;
        }
        if (last < 0 || (inside && s->groups[only].size > 1)) continue;
        change[first] += (int64_t)g->slots[i].bytes;
        change[constant ? s->n_records : last + 1] -= (int64_t)g->slots[i].bytes;
    }
    for (int k = 0; k < s->n_records; k++) {
        const fuse_group *group = s->group[k] >= 0 ? &s->groups[s->group[k]] : NULL;
        const int64_t scratch = group && group->size > 1 && group->position == k ? group->scratch : 0;
        now += change[k];
        if (now + scratch > most) most = now + scratch, *where = k;
    }
    ct__free(change, bytes);
    return most;
}
