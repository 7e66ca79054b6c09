/* The pass "fuse": calls over the same elements that share a value become one (cotangent/fused.h), so that what lies between them is never
 * written to memory. Records are gathered by what they read and write, not by where they stand: a step of a gradient may join the step
 * whose result it reads. */
#include "core/passes/fuse.h"

#include <string.h>

#include "core/alloc.h"
#include "core/call.h"
#include "core/device.h"
#include "core/error.h"

#include "gen/ops_decl.h"

enum {
    SIBLINGS = 4, /* readers of the same operand that are looked at */
    ATTEMPTS = 8, /* to find groups that do not need more memory at once */
};

/* ---- Groups ---- */

static const ct_record *record_of(const fuse_state *s, int k) { return &s->graph->records[k]; }

static int list_members(const fuse_state *s, int a, int b, int *members) {
    int n = 0, i = s->groups[a].first, k = b >= 0 ? s->groups[b].first : -1;
    while (i >= 0 || k >= 0) {
        int *next = k < 0 || (i >= 0 && i < k) ? &i : &k;
        members[n++] = *next;
        *next = s->next[*next];
    }
    return n;
}

/* Whether a kernel takes members as one call; *ok is false after an error. */
static bool is_possible(fuse_state *s, const int *members, int n, int64_t count, bool *ok) {
    ct_record record;
    *ok = ct__fuse_build(s, members, n, count, &record);
    const bool possible = *ok && record.block;
    if (possible) ct__record_free(&record);
    return possible;
}

static bool is_candidate(const fuse_state *s, int k) {
    const ct_record *record = record_of(s, k);
    const ct_call *call = &record->call;
    if (record->kind != CT__CALL || record->once) return false;
    if (call->op == &ct__op_fused || (call->op->flags & (CT_OP_MUTATES | CT_OP_TRANSFERS))) return false;
    if (!call->n_out || !call->out[0] || ct__view_count(call->out[0]) == 0) return false;
    const ct_kernel *fused = ct__kernels_of(&ct__op_fused, call->device.type);
    return fused && fused->name;
}

/* One of itself, if a kernel takes it. False after an error. */
static bool begin_group(fuse_state *s, int k) {
    bool ok = true;
    s->group[k] = s->next[k] = -1;
    if (!is_candidate(s, k)) return true;
    const int64_t count = ct__view_count(record_of(s, k)->call.out[0]);
    if (!is_possible(s, &k, 1, count, &ok)) return ok;
    s->group[k] = k;
    s->groups[k] = (fuse_group){.first = k, .size = 1, .position = k, .count = count};
    return true;
}

/* What a device leaves undone after an error, and what it does all the same, are not one call. */
static bool is_like(const ct_call *a, const ct_call *b) {
    return ct__same_device(a->device, b->device) &&
           (a->device.type == CT_CPU || !((a->flags ^ b->flags) & CT_CALL_LASTING));
}

static bool join(fuse_state *s, int a, int b) {
    int members[CT__FUSE_STEPS], position;
    bool ok = true;
    fuse_group *into = &s->groups[a], *from = &s->groups[b];
    if (a == b || into->count != from->count || into->size + from->size > CT__FUSE_STEPS) return true;
    if (!is_like(&record_of(s, into->first)->call, &record_of(s, from->first)->call)) return true;
    if (!ct__fuse_agree(s, a, b) || !ct__fuse_may_join(s, a, b, &position)) return true;
    const int n = list_members(s, a, b, members);
    if (!is_possible(s, members, n, into->count, &ok)) return ok;
    *into = (fuse_group){.first = members[0], .size = n, .position = position, .count = into->count};
    for (int i = 0; i < n; i++) {
        s->group[members[i]] = a;
        s->next[members[i]] = i + 1 < n ? members[i + 1] : -1;
    }
    return true;
}

/* Joins record k with the groups of what made its operands, then with those that read them too. */
static bool join_neighbors(fuse_state *s, int k) {
    bool ok = true;
    for (int i = s->begin[k]; ok && i < s->begin[k + 1]; i++) {
        const fuse_access *a = &s->accesses[i];
        const int made = a->is.reads ? a->write_before : a->before;
        const int group = made >= 0 ? s->group[s->accesses[made].record] : -1;
        if (group >= 0) ok = join(s, group, s->group[k]);
    }
    for (int i = s->begin[k]; ok && i < s->begin[k + 1]; i++) {
        const fuse_access *a = &s->accesses[i];
        if (!a->is.reads || !a->is.view || ct__view_count(a->is.view) != s->groups[s->group[k]].count) continue;
        int other = a->before;
        for (int n = 0; ok && other >= 0 && n < SIBLINGS; n++, other = s->accesses[other].before) {
            const fuse_access *b = &s->accesses[other];
            const int group = s->group[b->record];
            if (b->is.writes) break;
            if (group >= 0 && b->is.view && a->is.slot == b->is.slot && ct__fuse_same_elements(a->is.view, b->is.view))
                ok = join(s, group, s->group[k]);
        }
    }
    return ok;
}

static bool find_groups(fuse_state *s) {
    bool ok = true;
    for (int k = 0; ok && k < s->n_records; k++) ok = begin_group(s, k);
    if (ok) ct__fuse_find_failing(s);
    for (int k = 0; ok && k < s->n_records; k++)
        if (s->group[k] >= 0) ok = join_neighbors(s, k);
    return ok;
}

/* ---- Memory ---- */

static bool reaches(const fuse_state *s, int k, int where) {
    const int position = s->groups[s->group[k]].position, low = k < position ? k : position,
              high = k < position ? position : k;
    return position == where || (low < high && low <= where && where <= high);
}

/* Keeps records at their places that have been moved past this one, so that what they read or write is in use for longer, or sooner; and those
 * of the group that is there itself, which may want scratch. */
static bool fix(fuse_state *s, int where) {
    bool any = false;
    for (int k = 0; k < s->n_records; k++) {
        if (s->group[k] < 0 || s->groups[s->group[k]].size == 1 || s->fixed[k] || !reaches(s, k, where)) continue;
        any = s->fixed[k] = true;
    }
    return any;
}

static bool measure_scratch(fuse_state *s) {
    int members[CT__FUSE_STEPS];
    for (int k = 0; k < s->n_records; k++) {
        fuse_group *group = s->group[k] == k ? &s->groups[k] : NULL;
        ct_record record;
        if (!group || group->size == 1) continue;
        if (!ct__fuse_build(s, members, list_members(s, k, -1, members), group->count, &record)) return false;
        group->scratch = record.block ? (int64_t)ct__fuse_scratch(&record.call) : 0;
        ct__record_free(&record);
    }
    return true;
}

/* Groups that need no more memory at once than the graph did without them. */
static bool find_frugal_groups(fuse_state *s, int64_t before) {
    for (int i = 0;; i++) {
        int where = 0;
        if (!find_groups(s) || !measure_scratch(s)) return false;
        const int64_t now = ct__fuse_usage(s, &where);
        if (now < 0) return false;
        if (now <= before) return true;
        if (i >= ATTEMPTS || !fix(s, where)) memset(s->fixed, 1, (size_t)s->n_records * sizeof *s->fixed);
        if (i > ATTEMPTS) return true; /* nothing has been moved */
    }
}

/* ---- The graph with them ---- */

/* A group and the call that it becomes. */
typedef struct fused_group {
    int group;
    ct_record record;
    bool ready;
} fused_group;

static bool is_to_become_one(const fuse_state *s, int k) {
    return s->group[k] >= 0 && s->groups[s->group[k]].position == k && s->groups[s->group[k]].size > 1;
}

static bool make_call(fuse_state *s, int group, fused_group *made) {
    int members[CT__FUSE_STEPS];
    const int n = list_members(s, group, -1, members);
    *made = (fused_group){.group = group, .ready = true};
    if (!ct__fuse_build(s, members, n, s->groups[group].count, &made->record)) return false;
    if (ct__record_choose(s->graph, &made->record)) return true;
    ct__record_free(&made->record);
    made->record.block = NULL;
    return ct_ok() ? ct_fail(CT_ERR_STATE, "capture", "no kernel takes a fused call that one took before") : false;
}

/* What takes long is done for all calls of a device at once; what it then cannot do stays as it was. */
static bool prepare(fused_group *made, int n) {
    const size_t bytes = (size_t)n * (sizeof(ct_call *) + sizeof(int) + sizeof(bool));
    const ct_call **calls = ct__alloc(bytes);
    if (!calls) return ct__fail_memory("capture", bytes);
    int *which = (int *)(void *)(calls + n);
    bool *ready = (bool *)(which + n);
    for (int type = 0; type < CT_DEVICE_TYPES; type++) {
        int count = 0;
        for (int i = 0; i < n; i++) {
            if (made[i].record.call.device.type != (ct_device_type)type) continue;
            which[count] = i;
            ready[count] = true;
            calls[count++] = &made[i].record.call;
        }
        const ct_backend *backend = count ? ct__backend((ct_device_type)type) : NULL;
        if (backend && backend->prepare) backend->prepare(backend->self, calls, count, ready);
        for (int i = 0; i < count; i++) made[which[i]].ready = ready[i];
    }
    ct__free(calls, bytes);
    return true;
}

/* The call takes the place of the member that stays. */
static int replace(fuse_state *s, fused_group *made) {
    ct_graph *g = s->graph;
    int members[CT__FUSE_STEPS];
    const int n = list_members(s, made->group, -1, members), position = s->groups[made->group].position;
    for (int i = 0; i < n; i++) ct__record_drop(&g->records[members[i]]);
    ct__record_free(&g->records[position]);
    g->records[position] = made->record;
    return n;
}

/* Groups that cannot be one call go to their positions all the same, one call after the other: others have gone to theirs. */
static bool gather_others(fuse_state *s) {
    const size_t bytes = (size_t)s->n_records * sizeof(int);
    int *order = ct__alloc(bytes), n = 0;
    if (!order) return ct__fail_memory("capture", bytes);
    for (int k = 0; k < s->n_records; k++) {
        const fuse_group *group = s->group[k] >= 0 ? &s->groups[s->group[k]] : NULL;
        if (!group || !group->apart) order[n++] = k;
        else if (group->position == k) n += list_members(s, s->group[k], -1, order + n);
    }
    ct__graph_reorder(s->graph, order);
    ct__free(order, bytes);
    return true;
}

static bool make_calls(fuse_state *s) {
    int count = 0, n = 0, n_groups = 0, n_steps = 0;
    for (int k = 0; k < s->n_records; k++) count += is_to_become_one(s, k);
    if (!count) return true;
    const size_t bytes = (size_t)count * sizeof(fused_group);
    fused_group *made = ct__alloc(bytes);
    if (!made) return ct__fail_memory("capture", bytes);
    bool ok = true;
    for (int k = 0; ok && k < s->n_records; k++)
        if (is_to_become_one(s, k)) ok = make_call(s, s->group[k], &made[n++]);
    ok = ok && prepare(made, n);
    bool all = true;
    for (int i = 0; i < n; i++) {
        if (ok && made[i].ready) n_steps += replace(s, &made[i]), n_groups++;
        else if (made[i].record.block) ct__record_free(&made[i].record);
        all &= made[i].ready;
        s->groups[made[i].group].apart = !made[i].ready;
    }
    if (ok && !all) ok = gather_others(s);
    ct__free(made, bytes);
    if (n_groups) ct__pass_note(s->graph, "%d calls became %d", n_steps, n_groups);
    return ok;
}

bool ct__pass_fuse(ct_graph *g) {
    fuse_state s;
    ct__graph_lifetimes(g);
    const int64_t before = ct__graph_usage(g, NULL);
    if (before < 0) return false;
    const bool ok = ct__fuse_state_make(&s, g) && find_frugal_groups(&s, before) && make_calls(&s);
    ct__fuse_state_free(&s);
    ct__graph_compact(g);
    return ok;
}
