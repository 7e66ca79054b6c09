/* Looking into a captured graph: what was recorded before any pass changed it, and tensors by name. */
#include <cotangent/graph.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"
#include "core/passes/passes.h"
#include "core/sized.h"

/* ---- What was recorded ---- */

void ct__graph_raw_free(ct_graph_raw *raw) {
    if (!raw) return;
    for (int i = 0; i < raw->n_records; i++) ct__free(raw->records[i].block, raw->records[i].block_bytes);
    ct__free(raw->records, ((size_t)raw->n_records + 1) * sizeof *raw->records);
    ct__free(raw->slots, ((size_t)raw->n_slots + 1) * sizeof *raw->slots);
    ct__free(raw, sizeof *raw);
}

bool ct__graph_keep_raw(ct_graph *g) {
    const size_t record_bytes = ((size_t)g->n_records + 1) * sizeof(ct_record),
                 slot_bytes = ((size_t)g->n_slots + 1) * sizeof(ct_graph_slot);
    ct_graph_raw *raw = ct__alloc(sizeof *raw);
    ct_record *records = ct__alloc(record_bytes);
    ct_graph_slot *slots = ct__alloc(slot_bytes);
    bool ok = raw && records && slots;
    if (!ok) ct__fail_memory("capture", sizeof *raw + record_bytes + slot_bytes);
    int n = 0;
    while (ok && n < g->n_records && (ok = ct__record_clone(&g->records[n], &records[n]))) n++;
    if (!ok) {
        for (int i = 0; i < n; i++) ct__free(records[i].block, records[i].block_bytes);
        ct__free(raw, sizeof *raw);
        ct__free(records, record_bytes);
        ct__free(slots, slot_bytes);
        return false;
    }
    if (g->n_slots) memcpy(slots, g->slots, (size_t)g->n_slots * sizeof *slots);
    *raw = (ct_graph_raw){.records = records, .n_records = g->n_records, .slots = slots, .n_slots = g->n_slots};
    g->raw = raw;
    return true;
}

bool ct_graph_record(const ct_graph *g, int64_t i, ct_graph_record_info *info) {
    if (!g || !info) return ct__fail_null("graph_record", g ? "info" : "graph");
    if (!g->raw || i < 0 || i >= g->raw->n_records) return false;
    const ct_record *r = &g->raw->records[i];
    const ct_rng *rng = r->generator >= 0 ? g->generators[r->generator].rng : NULL;
    const ct_graph_record_info all = {.size = sizeof all,
                                      .kind = r->kind == CT__CALL   ? CT_GRAPH_CALL
                                              : r->kind == CT__PUT  ? CT_GRAPH_PUT
                                              : r->kind == CT__FILL ? CT_GRAPH_FILL
                                                                    : CT_GRAPH_EFFECT,
                                      .op = r->call.op,
                                      .attrs = r->call.attrs,
                                      .n_in = r->call.n_in,
                                      .n_out = r->call.n_out,
                                      .in = r->call.in,
                                      .out = (const ct_view *const *)r->call.out,
                                      .memory = r->slots,
                                      .random = r->generator >= 0,
                                      .own_generator = rng != NULL,
                                      .positioned = r->position != NULL,
                                      .place = r->slot,
                                      .offset = r->offset,
                                      .bytes = r->bytes,
                                      .data = r->data};
    const uint32_t size = info->size;
    ct__sized_fill(info, size, &all, sizeof all);
    info->size = size;
    return true;
}

bool ct_graph_memory(const ct_graph *g, int memory, ct_graph_memory_info *info) {
    if (!g || !info) return ct__fail_null("graph_memory", g ? "info" : "graph");
    if (!g->raw || memory < 0 || memory >= g->raw->n_slots) return false;
    const ct_graph_slot *s = &g->raw->slots[memory];
    const ct_graph_memory_info all = {.size = sizeof all,
                                      .bytes = s->bytes,
                                      .device = s->device,
                                      .before = s->kept && !s->made,
                                      .stays = s->kept != NULL,
                                      .written = s->written};
    const uint32_t size = info->size;
    ct__sized_fill(info, size, &all, sizeof all);
    info->size = size;
    return true;
}

ct_tensor *ct_graph_memory_tensor(const ct_graph *g, int memory, ct_dtype dtype) {
    const char *me = "graph_memory_tensor";
    if (!g) return ct__fail_null(me, "graph"), NULL;
    if (!g->raw || memory < 0 || memory >= g->raw->n_slots || !g->slots[memory].kept)
        return ct_fail(CT_ERR_VALUE, me, "the graph has no memory %d that stays", memory), NULL;
    if ((int)dtype < 0 || dtype >= CT_DTYPE_COUNT) return ct_fail(CT_ERR_DTYPE, me, "%d is no dtype", (int)dtype), NULL;
    ct_view view = {
        .dtype = dtype, .ndim = 1, .dims = {(int64_t)(g->slots[memory].bytes / ct__dtype_size(dtype))}, .strides = {1}};
    ct_tensor *x = ct__tensor_new(&view, g->slots[memory].kept);
    return x ? ct__scope_adopt(x) : NULL;
}

/* ---- Names ---- */

enum { NAME_BYTES = 64, MOST_NAMES = 256 };
struct ct_graph_names {
    struct {
        char name[NAME_BYTES];
        ct_tensor *x;
        int memory;
    } of[MOST_NAMES];
    int n;
};

void ct__graph_names_free(struct ct_graph_names *names) {
    if (!names) return;
    for (int i = 0; i < names->n; i++) ct__tensor_release(names->of[i].x);
    ct__free(names, sizeof *names);
}

static int find(const ct_graph *g, const char *name) {
    for (int i = 0; g->names && i < g->names->n; i++)
        if (strcmp(g->names->of[i].name, name) == 0) return i;
    return -1;
}

static int memory_of(const ct_graph *g, const ct_tensor *x) {
    for (int i = 0; i < g->n_slots; i++)
        if (g->slots[i].kept && g->slots[i].kept == x->storage) return i;
    return -1;
}

static bool is_name(const char *name) {
    size_t n = 0;
    for (; name[n]; n++)
        if (!isalnum((unsigned char)name[n]) && name[n] != '.' && name[n] != '_') return false;
    return n > 0 && n < NAME_BYTES;
}

bool ct_graph_name(ct_graph *g, const char *name, ct_tensor *x) {
    const char *me = "graph_name";
    if (ct__pending()) return false;
    if (!g || !name) return ct__fail_null(me, g ? "name" : "graph");
    if (!ct__valid(x, me, "x")) return false;
    if (!is_name(name))
        return ct_fail(CT_ERR_VALUE, me, "\"%.80s\" is no name: letters, digits, dots and underscores, at most %d",
                       name, NAME_BYTES - 1);
    if (find(g, name) >= 0) return ct_fail(CT_ERR_VALUE, me, "there is a tensor named %s already", name);
    const int memory = memory_of(g, x);
    if (memory < 0)
        return ct_fail(CT_ERR_VALUE, me, "%s, %s, is not read or written by the graph, or does not stay", name,
                       ct_view_text(&x->view));
    if (!g->names) {
        if (!(g->names = ct__alloc(sizeof *g->names))) return ct__fail_memory(me, sizeof *g->names);
        g->names->n = 0;
    }
    if (g->names->n == MOST_NAMES) return ct_fail(CT_ERR_STATE, me, "a graph has at most %d names", MOST_NAMES);
    snprintf(g->names->of[g->names->n].name, NAME_BYTES, "%s", name);
    g->names->of[g->names->n].memory = memory;
    g->names->of[g->names->n++].x = ct__tensor_retain(x);
    return true;
}

bool ct__graph_names_follow(ct_graph *g) {
    bool ok = true;
    for (int i = 0; g->names && ok && i < g->names->n; i++) {
        ct_storage *named = g->names->of[i].x->storage;
        const ct_storage *now = g->slots[g->names->of[i].memory].kept;
        char *bytes = now == named ? NULL : ct__alloc(now->bytes);
        if (now == named) continue;
        ok = bytes ? ct__storage_get(now, 0, bytes, now->bytes) && ct__storage_put(named, 0, bytes, now->bytes)
                   : ct__fail_memory("replay", now->bytes);
        atomic_fetch_add(&named->version, 1);
        ct__free(bytes, now->bytes);
    }
    return ok;
}

const char *ct_graph_name_at(const ct_graph *g, int i) {
    return g && g->names && i >= 0 && i < g->names->n ? g->names->of[i].name : NULL;
}

ct_tensor *ct_graph_tensor(const ct_graph *g, const char *name) {
    const char *me = "graph_tensor";
    if (!g || !name) return ct__fail_null(me, g ? "name" : "graph"), NULL;
    const int at = find(g, name);
    if (at >= 0) return g->names->of[at].x;
    char all[512] = "none";
    size_t used = 0;
    for (int i = 0; g->names && i < g->names->n && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", g->names->of[i].name);
    ct_fail(CT_ERR_VALUE, me, "the graph has no tensor named %.80s; there are: %s", name, all);
    return NULL;
}

bool ct_graph_named(const ct_graph *g, const char *name, int *memory, ct_view *view) {
    if (!g || !name || !memory || !view)
        return ct__fail_null("graph_named", !g ? "graph" : !name ? "name" : !memory ? "memory" : "view");
    const int at = find(g, name);
    if (at < 0) return false;
    *memory = g->names->of[at].memory;
    *view = g->names->of[at].x->view;
    return true;
}
