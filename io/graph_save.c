/* Saving a captured graph: its records as text, and the memory that was there before as tensors (io/graph_file.h has the form). */
#include "io/graph_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/safetensors.h"

/* A text that grows. After a failure nothing is added. */
typedef struct text {
    char *at;
    size_t used, room;
    bool failed;
} text;

CT_PRINTF(2, 3) static void add(text *t, const char *format, ...) {
    for (int tries = 0; tries < 2 && !t->failed; tries++) {
        va_list args;
        va_start(args, format);
        const size_t left = t->room - t->used;
        const int n = vsnprintf(t->at ? t->at + t->used : NULL, left, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < left) {
            t->used += (size_t)n;
            return;
        }
        const size_t room = 2 * t->room + (size_t)(n > 0 ? n : 0) + 256;
        char *larger = n < 0 ? NULL : ct_realloc(t->at, room);
        if (!larger) t->failed = true;
        else t->at = larger, t->room = room;
    }
}

typedef struct saving {
    const ct_graph *graph;
    ct_state *state;
    text text;
    ct_dtype *dtypes; /* of each part of memory; CT_DTYPE_COUNT: it has none yet */
    int n;            /* parts of memory */
} saving;

static bool refused(int64_t record, const char *name, const char *why) {
    return ct_fail(CT_ERR_UNSUPPORTED, "graph_save", "record %lld, %s: %s", (long long)record, name, why);
}

/* ---- Memory ---- */

static bool see(saving *s, int64_t record, const char *name, int memory, ct_dtype dtype) {
    if (s->dtypes[memory] == CT_DTYPE_COUNT) s->dtypes[memory] = dtype;
    return s->dtypes[memory] == dtype ||
           refused(record, name, "it sees memory as another dtype than the records before");
}

static bool is_backward(const ct_view *view) {
    for (int d = 0; d < view->ndim; d++)
        if (view->strides[d] < 0) return true;
    return false;
}

static bool see_call(saving *s, int64_t i, const ct_graph_record_info *r) {
    for (int k = 0; k < r->n_in + r->n_out; k++) {
        const ct_view *view = k < r->n_in ? r->in[k] : r->out[k - r->n_in];
        if (!view || r->memory[k] < 0) continue;
        if (!see(s, i, r->op->name, r->memory[k], view->dtype)) return false;
        if (is_backward(view)) return refused(i, r->op->name, "it sees memory backwards");
    }
    if (r->own_generator)
        return refused(i, r->op->name, "its random numbers come from a generator of the program's own");
    if (r->positioned) return refused(i, r->op->name, "its place in the random stream is part of its options");
    if (r->attrs && r->op->attr_size && !r->op->attrs)
        return refused(i, r->op->name, "its options have no names by which they could be written");
    if (r->op->flags & CT_OP_TRANSFERS) return refused(i, r->op->name, "it moves data between devices");
    return true;
}

/* What only the host writes has the dtype that its name sees. */
static bool see_names(saving *s) {
    ct_view view;
    int memory;
    const char *name;
    for (int i = 0; (name = ct_graph_name_at(s->graph, i)); i++) {
        if (!ct_graph_named(s->graph, name, &memory, &view)) return false;
        if (s->dtypes[memory] == CT_DTYPE_COUNT) s->dtypes[memory] = view.dtype;
        if (s->dtypes[memory] != view.dtype || is_backward(&view))
            return ct_fail(CT_ERR_UNSUPPORTED, "graph_save",
                           "%s sees memory backwards, or as another dtype than the records do", name);
    }
    return true;
}

/* The dtypes of all memory, and what cannot be saved. */
static bool look(saving *s) {
    ct_graph_record_info r = {.size = sizeof r};
    ct_graph_memory_info m = {.size = sizeof m};
    int64_t i = 0;
    for (; ct_graph_record(s->graph, i, &r); i++) {
        if (r.kind == CT_GRAPH_EFFECT) return refused(i, "effect", "what a program does on the host cannot be saved");
        if (r.kind == CT_GRAPH_CALL && !see_call(s, i, &r)) return false;
        if (r.kind != CT_GRAPH_PUT && r.kind != CT_GRAPH_FILL) continue;
        ct_graph_memory(s->graph, r.place, &m);
        if (r.positioned) return refused(i, "put", "a place in the random stream cannot be saved");
        if (r.kind == CT_GRAPH_PUT && r.bytes != m.bytes)
            return refused(i, "put", "the host writes to a part of the memory alone");
    }
    if (i > CT__GRAPH_MOST)
        return ct_fail(CT_ERR_UNSUPPORTED, "graph_save", "the graph has %lld records, and a file at most %d",
                       (long long)i, CT__GRAPH_MOST);
    return i > 0 || ct_fail(CT_ERR_STATE, "graph_save", "the graph was not captured with CT_CAPTURE_SAVE, or is empty");
}

static bool put_tensor(saving *s, const char *kind, int64_t number, ct_tensor *x) {
    char name[48];
    snprintf(name, sizeof name, "%s.%lld", kind, (long long)number);
    return x && ct_state_put(s->state, name, x);
}

static bool write_memory(saving *s) {
    ct_graph_memory_info m = {.size = sizeof m};
    add(&s->text, "cotangent-graph %d\nmemory %d\n", CT__GRAPH_VERSION, s->n);
    for (int i = 0; i < s->n; i++) {
        const ct_dtype dtype = s->dtypes[i] == CT_DTYPE_COUNT ? CT_U8 : s->dtypes[i];
        ct_graph_memory(s->graph, i, &m);
        add(&s->text, "m %d %s %zu %s\n", i, ct_dtype_name(dtype), m.bytes / ct_dtype_size(dtype),
            m.before ? "given" : "made");
        if (m.before && !put_tensor(s, "memory", i, ct_graph_memory_tensor(s->graph, i, dtype))) return false;
    }
    return true;
}

/* ---- Records ---- */

static void write_view(text *t, const char *what, int memory, const ct_view *view) {
    add(t, "%s%d %lld %d", what, memory, (long long)view->offset, view->ndim);
    for (int i = 0; i < view->ndim; i++) add(t, " %lld", (long long)view->dims[i]);
    for (int i = 0; i < view->ndim; i++) add(t, " %lld", (long long)view->strides[i]);
    add(t, "\n");
}

static void write_number(text *t, const ct_view *view) {
    const unsigned char *bytes = view->buffer;
    add(t, "n %s ", ct_dtype_name(view->dtype));
    for (size_t i = 0; i < ct_dtype_size(view->dtype); i++) add(t, "%02x", bytes[i]);
    add(t, "\n");
}

/* The device is that of the program which loads it. */
static bool write_options(saving *s, int64_t i, const ct_graph_record_info *r) {
    char value[1024];
    for (const ct_attr *attr = r->attrs ? r->op->attrs : NULL; attr && attr->name; attr++) {
        if (attr->type == CT_ATTR_DEVICE || !ct_attrs_text(attr, r->attrs, value, sizeof value)) continue;
        if (strchr(value, '\n')) return refused(i, r->op->name, "one of its options is a text of several lines");
        add(&s->text, "a %s %s\n", attr->plural ? attr->plural : attr->name, value);
    }
    return true;
}

static bool write_call(saving *s, int64_t i, const ct_graph_record_info *r) {
    add(&s->text, "call %s %d %d\n", r->op->name, r->n_in, r->n_out);
    for (int k = 0; k < r->n_in + r->n_out; k++) {
        const bool input = k < r->n_in;
        const ct_view *view = input ? r->in[k] : r->out[k - r->n_in];
        if (!view) add(&s->text, "-\n");
        else if (r->memory[k] < 0) write_number(&s->text, view);
        else write_view(&s->text, input ? "i " : "o ", r->memory[k], view);
    }
    if (!write_options(s, i, r)) return false;
    add(&s->text, "end\n");
    return true;
}

static bool write_data(saving *s, int64_t i, const ct_graph_record_info *r) {
    const ct_dtype dtype = s->dtypes[r->place];
    if (dtype == CT_DTYPE_COUNT) return true; /* nobody reads it */
    const bool fill = r->kind == CT_GRAPH_FILL;
    if (fill && r->bytes != ct_dtype_size(dtype)) return refused(i, "fill", "its element is of another size");
    add(&s->text, "%s %d data.%lld\n", fill ? "fill" : "copy", r->place, (long long)i);
    const int64_t count = (int64_t)(r->bytes / ct_dtype_size(dtype));
    return put_tensor(s, "data", i, ct_from_data(r->data, CT_DIMS(count), dtype));
}

static bool write_names(saving *s) {
    ct_view view;
    int memory;
    const char *name;
    for (int i = 0; (name = ct_graph_name_at(s->graph, i)); i++) {
        if (!ct_graph_named(s->graph, name, &memory, &view)) return false;
        add(&s->text, "name %s ", name);
        write_view(&s->text, "", memory, &view);
    }
    return true;
}

static bool write_all(saving *s) {
    ct_graph_record_info r = {.size = sizeof r};
    bool ok = look(s) && see_names(s) && write_memory(s) && write_names(s);
    for (int64_t i = 0; ok && ct_graph_record(s->graph, i, &r); i++)
        ok = r.kind == CT_GRAPH_CALL ? write_call(s, i, &r) : write_data(s, i, &r);
    if (ok && s->text.failed) return ct_fail(CT_ERR_MEMORY, "graph_save", "out of memory");
    return ok && ct_state_put_text(s->state, CT__GRAPH_TEXT, s->text.at);
}

bool ct__graph_to_state(const ct_graph *graph, ct_state *state) {
    ct_graph_memory_info m = {.size = sizeof m};
    saving s = {.graph = graph, .state = state};
    while (ct_graph_memory(graph, s.n, &m)) s.n++;
    if (s.n > CT__GRAPH_MOST)
        return ct_fail(CT_ERR_UNSUPPORTED, "graph_save", "the graph has %d parts of memory, and a file at most %d", s.n,
                       CT__GRAPH_MOST);
    s.dtypes = ct_malloc(((size_t)s.n + 1) * sizeof *s.dtypes);
    bool ok = s.dtypes || ct_fail(CT_ERR_MEMORY, "graph_save", "out of memory");
    for (int i = 0; ok && i < s.n; i++) s.dtypes[i] = CT_DTYPE_COUNT;
    ct_scope {
        ok = ok && write_all(&s);
    }
    ct_free(s.dtypes);
    ct_free(s.text.at);
    return ok;
}

bool ct_graph_save(const char *path, ct_graph *graph) {
    const char *me = "graph_save";
    if (!ct_ok()) return false;
    if (!path || !graph) return ct_fail(CT_ERR_NULL, me, "argument %s is NULL", path ? "graph" : "path");
    ct_state *state = ct_state_new();
    const bool ok = state && ct__graph_to_state(graph, state) && ct__safetensors_write(path, state, true, me);
    ct_state_free(state);
    return ok;
}
