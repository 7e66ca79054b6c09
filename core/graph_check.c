/* Replays beside the function: it is run and recorded anew, its records are compared with those of the graph as they were before any pass,
 * and a replay from the same state has to leave the same bits. The first record that differs is named. */
#include <cotangent/graph.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"
#include "core/passes/passes.h"

/* ---- Records ---- */

/* A comparison on its way: `now` is the new recording, and slot i of the old one is slot to[i] of the new (-1: it was not met yet). */
typedef struct comparison {
    const ct_graph *graph, *now;
    const ct_graph_raw *was;
    int *to;
    int at; /* the record */
} comparison;

static const char *name_of(const ct_record *record) {
    return record->kind == CT__CALL     ? record->call.op->name
           : record->kind == CT__EFFECT ? "effect"
           : record->kind == CT__PUT    ? "put"
                                        : "fill";
}

CT_PRINTF(2, 3) static bool differs(const comparison *c, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const ct_record *record = c->at < c->was->n_records ? &c->was->records[c->at] : NULL;
    return ct_fail(CT_ERR_STATE, "replay", "record %d%s%s: %s", c->at, record ? ", " : "",
                   record ? name_of(record) : "", text);
}

/* The dtype in which slot is first used by a call: what the host puts there has none of its own. */
static ct_dtype dtype_of_slot(const comparison *c, int slot) {
    for (int i = 0; i < c->was->n_records; i++)
        for (int k = 0; k < c->was->records[i].n_views; k++)
            if (c->was->records[i].slots[k] == slot) return c->was->records[i].views[k].dtype;
    return CT_U8;
}

static bool compare_data(const comparison *c, const ct_record *a, const ct_record *b) {
    if (a->offset != b->offset || a->bytes != b->bytes)
        return differs(c, "the host writes %zu bytes in the graph and %zu in the function now", a->bytes, b->bytes);
    if (a->position || b->position || memcmp(a->data, b->data, a->bytes) == 0) return true;
    const ct_dtype dtype = dtype_of_slot(c, a->slot);
    const size_t size = ct__dtype_size(dtype);
    size_t i = 0;
    while (i + size < a->bytes && memcmp(a->data + i, b->data + i, size) == 0) i += size;
    return differs(c, "element %zu of what the host writes is %.9g in the graph and %.9g in the function now", i / size,
                   ct__dtype_get(dtype, a->data + i), ct__dtype_get(dtype, b->data + i));
}

static bool is_position(const ct_attr *attr, const ct_record *record) {
    const char *at = (const char *)record->call.attrs + attr->offset, *from = (const char *)record->position;
    return from && at >= from && at < from + 3 * sizeof(int64_t);
}

static bool compare_attributes(const comparison *c, const ct_record *a, const ct_record *b) {
    char was[512], is[512];
    if (!a->call.attrs || !b->call.attrs) return true;
    for (const ct_attr *attr = a->call.op->attrs; attr && attr->name; attr++) {
        if (is_position(attr, a) && is_position(attr, b)) continue;
        ct_attrs_text(attr, a->call.attrs, was, sizeof was);
        ct_attrs_text(attr, b->call.attrs, is, sizeof is);
        if (strcmp(was, is) != 0)
            return differs(c, "%s is %s in the graph and %s in the function now", attr->name, was, is);
    }
    return true;
}

static bool same_place(const ct_view *a, const ct_view *b) {
    bool same = a->dtype == b->dtype && a->offset == b->offset && ct__view_same_shape(a, b);
    for (int i = 0; same && i < a->ndim; i++) same = a->strides[i] == b->strides[i] || a->dims[i] < 2;
    return same;
}

/* Whether two slots are the same memory: from before, or made at the same place of the function. */
static bool same_slot(const comparison *c, int a, int b) {
    if (c->to[a] >= 0) return c->to[a] == b;
    const ct_graph_slot *x = &c->was->slots[a], *y = &c->now->slots[b];
    if (x->made != y->made || x->bytes != y->bytes) return false;
    if (!x->made && c->graph->slots[a].kept != y->kept) return false;
    c->to[a] = b;
    return true;
}

static bool compare_view(const comparison *c, const ct_record *a, const ct_record *b, int i) {
    const bool output = i >= a->call.n_in;
    const char *what = output ? "output" : "input";
    const int number = output ? i - a->call.n_in : i;
    const ct_view *x = output ? a->call.out[number] : a->call.in[number],
                  *y = output ? b->call.out[number] : b->call.in[number];
    if (!x || !y)
        return x == y ||
               differs(c, "%s %d is there %s", what, number, x ? "in the graph alone" : "in the function now");
    if (!same_place(x, y)) {
        char was[160]; /* the text of a view lies in one place */
        snprintf(was, sizeof was, "%s", ct_view_text(x));
        return differs(c, "%s %d is %s in the graph and %s in the function now%s", what, number, was, ct_view_text(y),
                       strcmp(was, ct_view_text(y)) == 0 ? ", elsewhere in memory" : "");
    }
    if (a->slots[i] >= 0 && b->slots[i] >= 0)
        return same_slot(c, a->slots[i], b->slots[i]) ||
               differs(c, "%s %d, %s, is another tensor in the function now", what, number, ct_view_text(x));
    if (a->slots[i] < 0 && b->slots[i] < 0) {
        if (memcmp(x->buffer, y->buffer, ct__dtype_size(x->dtype)) == 0) return true;
        return differs(c,
                       "%s %d is the number %.9g in the graph and %.9g in the function now (ct_capture_variable is for "
                       "numbers that change)",
                       what, number, ct__dtype_get(x->dtype, x->buffer), ct__dtype_get(y->dtype, y->buffer));
    }
    return differs(c, "%s %d is a number in one of graph and function", what, number);
}

static bool compare_calls(const comparison *c, const ct_record *a, const ct_record *b) {
    if (a->call.op != b->call.op || a->call.n_in != b->call.n_in || a->call.n_out != b->call.n_out)
        return differs(c, "the function now calls %s here", name_of(b));
    for (int i = 0; i < a->n_views; i++)
        if (!compare_view(c, a, b, i)) return false;
    return compare_attributes(c, a, b);
}

static bool compare_random(const comparison *c, const ct_record *a, const ct_record *b) {
    const bool same =
        (a->generator < 0) == (b->generator < 0) && a->draw == b->draw &&
        (a->generator < 0 || c->graph->generators[a->generator].rng == c->now->generators[b->generator].rng);
    return same || differs(c, "its random numbers come from another place in the function now");
}

static bool compare_records(comparison *c) {
    const int n = c->was->n_records, m = c->now->n_records;
    for (c->at = 0; c->at < n && c->at < m; c->at++) {
        const ct_record *a = &c->was->records[c->at], *b = &c->now->records[c->at];
        if (a->kind != b->kind) return differs(c, "the function now has %s here", name_of(b));
        if (a->kind == CT__CALL && !(compare_calls(c, a, b) && compare_random(c, a, b))) return false;
        if (a->kind == CT__EFFECT && (a->effect != b->effect || a->context != b->context))
            return differs(c, "the function now has another effect here");
        if (a->kind != CT__PUT && a->kind != CT__FILL) continue;
        if (!same_slot(c, a->slot, b->slot)) return differs(c, "the host writes to another tensor in the function now");
        if (!compare_data(c, a, b) || !compare_random(c, a, b)) return false;
    }
    return n == m || differs(c, "the function now ends after %d records, and the graph has %d", m, n);
}

/* ---- What they leave ---- */

/* The bytes of the slots that are kept and written, one after the other. */
typedef struct kept_bytes {
    char *at;
    size_t bytes;
} kept_bytes;

static bool counts(const ct_graph_raw *was, int slot) { return was->slots[slot].kept && was->slots[slot].written; }

static bool take_kept(const comparison *c, bool now, kept_bytes *all) {
    size_t used = 0;
    for (int i = 0; i < c->was->n_slots; i++)
        if (counts(c->was, i)) all->bytes += c->was->slots[i].bytes;
    if (!(all->at = ct__alloc(all->bytes + 1))) return ct__fail_memory("replay", all->bytes);
    for (int i = 0; i < c->was->n_slots; i++) {
        if (!counts(c->was, i)) continue;
        const ct_storage *from = now && c->to[i] >= 0 ? c->now->slots[c->to[i]].kept : c->graph->slots[i].kept;
        if (from && !ct__storage_get(from, 0, all->at + used, c->was->slots[i].bytes)) return false;
        used += c->was->slots[i].bytes;
    }
    return true;
}

static bool put_kept(const comparison *c, const kept_bytes *all) {
    size_t used = 0;
    for (int i = 0; i < c->was->n_slots; i++) {
        if (!counts(c->was, i)) continue;
        if (!ct__storage_put(c->graph->slots[i].kept, 0, all->at + used, c->was->slots[i].bytes)) return false;
        used += c->was->slots[i].bytes;
    }
    return true;
}

static void free_kept(kept_bytes *all) {
    if (all->at) ct__free(all->at, all->bytes + 1);
}

/* The first record that writes to slot, and the view by which it does. */
static int writer_of(const comparison *c, int slot, const ct_view **view) {
    ct_access access;
    for (int k = 0; k < c->was->n_records; k++)
        for (int i = 0; ct__access_next(c->graph, &c->was->records[k], &i, &access);)
            if (access.slot == slot && access.writes) {
                *view = access.view;
                return k;
            }
    return c->was->n_records;
}

/* The slot with other bytes that is written first; -1: none has. */
static bool compare_kept(comparison *c, const kept_bytes *function, const kept_bytes *replay) {
    size_t used = 0, first_used = 0;
    int first = -1;
    const ct_view *first_view = NULL;
    c->at = c->was->n_records;
    for (int i = 0; i < c->was->n_slots; i++) {
        if (!counts(c->was, i)) continue;
        const ct_view *view = NULL;
        const size_t bytes = c->was->slots[i].bytes;
        const bool same = memcmp(function->at + used, replay->at + used, bytes) == 0;
        const int writer = same ? INT32_MAX : writer_of(c, i, &view);
        if (writer < c->at) c->at = writer, first = i, first_used = used, first_view = view;
        used += bytes;
    }
    if (first < 0) return true;
    const ct_dtype dtype = first_view ? first_view->dtype : dtype_of_slot(c, first);
    const size_t size = ct__dtype_size(dtype), bytes = c->was->slots[first].bytes;
    const char *a = replay->at + first_used, *b = function->at + first_used;
    size_t i = 0;
    while (i + size < bytes && memcmp(a + i, b + i, size) == 0) i += size;
    return differs(c, "element %zu of what it writes, %s, is %.9g after the replay and %.9g after the function",
                   i / size, first_view ? ct_view_text(first_view) : "the host's data", ct__dtype_get(dtype, a + i),
                   ct__dtype_get(dtype, b + i));
}

/* ---- The whole ---- */

/* What the function has left behind now is what the program holds from here on: later replays write there. */
static void adopt(const comparison *c, ct_graph *g) {
    bool any = false;
    for (int i = 0; i < c->was->n_slots; i++) {
        ct_graph_slot *slot = &g->slots[i];
        ct_storage *left = c->to[i] >= 0 ? c->now->slots[c->to[i]].kept : NULL;
        if (!slot->kept || !left || left == slot->kept) continue;
        ct__storage_retain(left);
        ct__storage_release(slot->kept);
        slot->kept = left;
        any = true;
    }
    if (!any) return;
    ct__graph_forget(g);
    ct__graph_bind(g);
}

static bool check(ct_graph *g, ct_graph *now, int *to) {
    comparison c = {.graph = g, .now = now, .was = g->raw, .to = to};
    kept_bytes before = {0}, function = {0}, replay = {0};
    uint64_t begin[CT__GRAPH_GENERATORS], end[CT__GRAPH_GENERATORS];
    for (int i = 0; i < c.was->n_slots; i++) to[i] = -1;
    for (int i = 0; i < g->n_generators; i++) begin[i] = ct_rng_position(g->generators[i].rng);
    now->checked = g;
    bool ok = take_kept(&c, false, &before) && ct__graph_record(now, g->function, g->context) && compare_records(&c) &&
              take_kept(&c, true, &function);
    if (ok) {
        for (int i = 0; i < g->n_generators; i++) {
            end[i] = ct_rng_position(g->generators[i].rng);
            ct_rng_set_position(g->generators[i].rng, begin[i]);
        }
        ok = put_kept(&c, &before) && ct__graph_replay(g, false) && take_kept(&c, false, &replay) &&
             compare_kept(&c, &function, &replay);
        ct_error_record error = {.code = CT_OK};
        if (!ok) ct__error_take(&error);
        if (!ok) put_kept(&c, &function);
        for (int i = 0; i < g->n_generators; i++) ct_rng_set_position(g->generators[i].rng, end[i]);
        adopt(&c, g);
        if (!ok) ct__error_put(&error);
        ok = ct__graph_names_follow(g) && ok;
    }
    free_kept(&before);
    free_kept(&function);
    free_kept(&replay);
    return ok;
}

bool ct__graph_check_replay(ct_graph *g) {
    const size_t bytes = ((size_t)g->raw->n_slots + 1) * sizeof(int);
    ct_graph *now = ct__graph_new();
    int *to = now ? ct__alloc(bytes) : NULL;
    if (now && !to) ct__fail_memory("replay", bytes);
    const bool ok = to && check(g, now, to);
    if (to) ct__free(to, bytes);
    ct_graph_free(now);
    return ok;
}
