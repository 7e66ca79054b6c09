/* Loading a saved graph. Nothing of it is trusted: the text is parsed and checked (places in memory, what is written when), and then its
 * records are called as a program would call them, under a capture. So shapes, dtypes and options are checked by the ops themselves,
 * and kernels are chosen for this machine and device. io/graph_file.h has the form. */
#include "io/graph_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/checked.h"
#include "io/safetensors.h"

enum { MOST_TENSORS = 4096, MOST_ELEMENTS = INT32_MAX };

typedef struct part {
    ct_dtype dtype;
    int64_t count;
    bool given;
    bool stays;    /* it is given, or named */
    bool changes;  /* some record writes to it */
    int last;      /* record that uses it */
    ct_tensor *at; /* kept, of one dimension; NULL: it is not made yet */
} part;

typedef struct place {
    enum { ABSENT, NUMBER, VIEW } kind;
    ct_dtype dtype;
    int memory;
    int64_t offset;
    ct_dims shape, strides;
    unsigned char number[16];
} place;

typedef struct record {
    const ct_op *op; /* NULL: a copy, or a fill */
    void *attrs;
    place *places; /* inputs, then outputs */
    int n_in, n_out;
    int memory; /* of a copy or fill, and its source: */
    ct_tensor *data;
    bool fill;
} record;

typedef struct name {
    char text[64];
    place at;
} name;

typedef struct loading {
    const ct_state *state;
    const char *path, *at; /* where the text is read */
    int line;
    ct_device device;
    part *parts;
    int n_parts;
    record *records;
    int n_records, records_room;
    name *names;
    int n_names;
} loading;

CT_PRINTF(2, 3) static bool refuse(const loading *l, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct_fail(CT_ERR_IO, "graph_load", "%s: line %d: %s", l->path, l->line, text);
}

static bool no_memory(void) { return ct_fail(CT_ERR_MEMORY, "graph_load", "out of memory"); }

/* ---- Words ---- */

/* The next word of the line, with a blank or the end of the line behind it; *n: its length. */
static const char *word(loading *l, size_t *n) {
    l->at += *l->at == ' ';
    const char *begin = l->at;
    *n = strcspn(begin, " \n");
    l->at += *n;
    return begin;
}

static bool text_word(loading *l, char *text, size_t room) {
    size_t n;
    const char *begin = word(l, &n);
    if (n == 0 || n >= room) return refuse(l, "a word is missing, or too long");
    memcpy(text, begin, n);
    text[n] = 0;
    return true;
}

static bool number(loading *l, int64_t least, int64_t most, int64_t *value) {
    char text[32];
    char *end;
    if (!text_word(l, text, sizeof text)) return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (*end || errno || *value < least || *value > most)
        return refuse(l, "%s is no number from %" PRId64 " to %" PRId64, text, least, most);
    return true;
}

static bool integer(loading *l, int64_t least, int64_t most, int *value) {
    int64_t wide;
    if (!number(l, least, most, &wide)) return false;
    *value = (int)wide;
    return true;
}

static bool end_of_line(loading *l) {
    if (*l->at != '\n') return refuse(l, "there is more in the line than there should be");
    l->at++;
    l->line++;
    return true;
}

static bool starts(const loading *l, const char *with) { return strncmp(l->at, with, strlen(with)) == 0; }

static bool dtype_word(loading *l, ct_dtype *dtype) {
    char text[32];
    return text_word(l, text, sizeof text) && (ct_dtype_parse(text, dtype) || refuse(l, "there is no dtype %s", text));
}

/* ---- Places ---- */

/* A view whose every element lies in its memory. */
static bool read_view(loading *l, place *p) {
    int ndim;
    int64_t elements = 1, last = 0;
    p->kind = VIEW;
    if (!integer(l, 0, l->n_parts - 1, &p->memory)) return false;
    const part *m = &l->parts[p->memory];
    p->dtype = m->dtype;
    if (!number(l, 0, m->count, &p->offset) || !integer(l, 0, CT_MAX_DIMS, &ndim)) return false;
    p->shape.n = p->strides.n = ndim;
    for (int i = 0; i < ndim; i++)
        if (!number(l, 0, MOST_ELEMENTS, &p->shape.d[i])) return false;
    for (int i = 0; i < ndim; i++)
        if (!number(l, 0, MOST_ELEMENTS, &p->strides.d[i])) return false;
    for (int i = 0; i < ndim; i++) {
        if (p->shape.d[i] && elements > MOST_ELEMENTS / p->shape.d[i]) return refuse(l, "a view has too many elements");
        elements *= p->shape.d[i];
    }
    for (int i = 0; elements && i < ndim;
         i++) { /* below 2^31 times 2^31 each, so that the sum of a few stays in 64 bits */
        last += (p->shape.d[i] - 1) * p->strides.d[i];
        if (last > m->count) break;
    }
    if (elements && p->offset + last >= m->count)
        return refuse(l, "a view reaches beyond its memory of %" PRId64 " elements", m->count);
    return true;
}

static int digit_of(char c) {
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool read_number(loading *l, place *p) {
    char text[40];
    p->kind = NUMBER;
    if (!dtype_word(l, &p->dtype) || !text_word(l, text, sizeof text)) return false;
    const size_t size = ct_dtype_size(p->dtype);
    if (strlen(text) != 2 * size) return refuse(l, "a number has %zu bytes", size);
    for (size_t i = 0; i < size; i++) {
        const int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return refuse(l, "%s are no bytes", text);
        p->number[i] = (unsigned char)(16 * high + low);
    }
    return true;
}

static bool read_place(loading *l, place *p, bool output, int user) {
    if (starts(l, "-")) {
        l->at++;
        p->kind = ABSENT;
    } else if (!output && starts(l, "n ")) {
        l->at++;
        if (!read_number(l, p)) return false;
    } else if (starts(l, output ? "o " : "i ")) {
        l->at++;
        if (!read_view(l, p)) return false;
        l->parts[p->memory].last = user;
        l->parts[p->memory].changes |= output || (l->records[user].op->flags & CT_OP_MUTATES);
    } else {
        return refuse(l, "an %s is missing", output ? "output" : "input");
    }
    return end_of_line(l);
}

/* ---- Records ---- */

static bool add_record(loading *l, record **added) {
    if (l->n_records == CT__GRAPH_MOST) return refuse(l, "there are more than %d records", CT__GRAPH_MOST);
    if (l->n_records == l->records_room) {
        const int room = 2 * l->records_room + 64;
        record *larger = ct_realloc(l->records, (size_t)room * sizeof *larger);
        if (!larger) return no_memory();
        l->records = larger;
        l->records_room = room;
    }
    *added = &l->records[l->n_records++];
    memset(*added, 0, sizeof **added);
    return true;
}

static bool read_option(loading *l, const record *r) {
    char key[64], value[1024];
    l->at += 1;
    if (!text_word(l, key, sizeof key)) return false;
    l->at += *l->at == ' ';
    const size_t n = strcspn(l->at, "\n");
    if (n >= sizeof value) return refuse(l, "the value of %s is too long", key);
    memcpy(value, l->at, n);
    value[n] = 0;
    l->at += n;
    for (const ct_attr *attr = r->op->attrs; attr && attr->name; attr++)
        if (attr->type == CT_ATTR_DEVICE && strcmp(attr->name, key) == 0)
            return refuse(l, "%s of %s: the device is the loader's to say", key, r->op->name);
    if (!ct_attrs_set(r->op, r->attrs, key, value)) {
        char why[512];
        snprintf(why, sizeof why, "%s", ct_error());
        ct_error_clear();
        return refuse(l, "%s", why);
    }
    return end_of_line(l);
}

static bool read_call(loading *l) {
    record *r;
    char op[128];
    l->at += strlen("call");
    if (!add_record(l, &r) || !text_word(l, op, sizeof op)) return false;
    r->op = ct_op_find(op);
    if (!r->op) return refuse(l, "there is no op named %s", op);
    if (r->op->flags & (CT_OP_VIEW | CT_OP_TRANSFERS | CT_OP_WAITS)) return refuse(l, "%s is no op of a graph", op);
    if (!integer(l, 0, MOST_TENSORS, &r->n_in) || !integer(l, 0, MOST_TENSORS, &r->n_out) || !end_of_line(l))
        return false;
    r->attrs = ct_calloc(1, r->op->attr_size + 1);
    r->places = ct_calloc((size_t)(r->n_in + r->n_out) + 1, sizeof *r->places);
    if (!r->attrs || !r->places) return no_memory();
    ct_attrs_default(r->op, r->attrs);
    for (int i = 0; i < r->n_in + r->n_out; i++)
        if (!read_place(l, &r->places[i], i >= r->n_in, l->n_records - 1)) return false;
    while (starts(l, "a "))
        if (!read_option(l, r)) return false;
    if (!starts(l, "end\n")) return refuse(l, "the call of %s has no end", op);
    l->at += strlen("end");
    return end_of_line(l);
}

static bool read_data(loading *l, bool fill) {
    record *r;
    char source[64];
    l->at += strlen("copy"); /* and fill */
    if (!add_record(l, &r) || !integer(l, 0, l->n_parts - 1, &r->memory) || !text_word(l, source, sizeof source))
        return false;
    part *m = &l->parts[r->memory];
    r->fill = fill;
    r->data = ct_state_get(l->state, source);
    m->last = l->n_records - 1;
    if (!r->data) return refuse(l, "the file has no tensor %s", source);
    if (m->given || ct_dtype_of(r->data) != m->dtype || ct_ndim(r->data) != 1 ||
        ct_dim(r->data, 0) != (fill ? 1 : m->count))
        return refuse(l, "%s, %s, does not fit memory %d", source, ct_tensor_text(r->data), r->memory);
    return end_of_line(l);
}

/* ---- Memory and names ---- */

static bool read_part(loading *l, int i) {
    part *m = &l->parts[i];
    char kind[16], source[32];
    int which;
    if (!starts(l, "m ")) return refuse(l, "memory %d is missing", i);
    l->at += 1;
    if (!integer(l, i, i, &which) || !dtype_word(l, &m->dtype) || !number(l, 0, MOST_ELEMENTS, &m->count) ||
        !text_word(l, kind, sizeof kind))
        return false;
    m->given = m->stays = strcmp(kind, "given") == 0;
    m->last = -1;
    if (!m->given && strcmp(kind, "made") != 0) return refuse(l, "memory is given or made, not %s", kind);
    if (!m->given) return end_of_line(l);
    snprintf(source, sizeof source, "memory.%d", i);
    ct_tensor *x = ct_state_get(l->state, source);
    if (!x) return refuse(l, "the file has no tensor %s", source);
    if (ct_dtype_of(x) != m->dtype || ct_ndim(x) != 1 || ct_dim(x, 0) != m->count)
        return refuse(l, "%s is %s, and is said to be %s[%" PRId64 "]", source, ct_tensor_text(x),
                      ct_dtype_name(m->dtype), m->count);
    ct_scope {
        ct_tensor *moved = ct_to(x, l->device);
        if (moved) m->at = ct_keep(moved);
    }
    return m->at && end_of_line(l);
}

static bool read_names(loading *l) {
    enum { MOST_NAMES = 256 };
    l->names = ct_calloc(MOST_NAMES, sizeof *l->names);
    if (!l->names) return no_memory();
    while (starts(l, "name ")) {
        name *n = &l->names[l->n_names];
        if (l->n_names == MOST_NAMES) return refuse(l, "there are more than %d names", MOST_NAMES);
        l->at += strlen("name");
        if (!text_word(l, n->text, sizeof n->text) || !read_view(l, &n->at) || !end_of_line(l)) return false;
        l->parts[n->at.memory].stays = true;
        l->n_names++;
    }
    return true;
}

static bool read_text(loading *l) {
    char word_of[32];
    int version;
    if (!text_word(l, word_of, sizeof word_of) || strcmp(word_of, "cotangent-graph") != 0)
        return ct_ok() ? refuse(l, "this describes no graph") : false;
    if (!integer(l, 1, INT32_MAX, &version)) return false;
    if (version != CT__GRAPH_VERSION)
        return refuse(l, "the form of the file is %d, and this version knows %d", version, CT__GRAPH_VERSION);
    if (!end_of_line(l) || !starts(l, "memory ")) return ct_ok() ? refuse(l, "memory is missing") : false;
    l->at += strlen("memory");
    int n;
    if (!integer(l, 0, CT__GRAPH_MOST, &n) || !end_of_line(l)) return false;
    if (!(l->parts = ct_calloc((size_t)n + 1, sizeof *l->parts))) return no_memory();
    l->n_parts = n;
    for (int i = 0; i < n; i++)
        if (!read_part(l, i)) return false;
    if (!read_names(l)) return false;
    while (*l->at) {
        if (starts(l, "call ") ? !read_call(l)
                               : !((starts(l, "copy ") || starts(l, "fill ")) && read_data(l, *l->at == 'f')))
            return ct_ok() ? refuse(l, "this is no record") : false;
    }
    return l->n_records > 0 || refuse(l, "there is no record");
}

/* ---- Running it ---- */

/* What an op said of a record that does not fit: the file is wrong. */
static bool refuse_record(const loading *l, int i, const char *what) {
    char why[600] = "";
    if (ct_error_code() == CT_ERR_MEMORY) return false;
    if (!ct_ok()) snprintf(why, sizeof why, "%s", ct__error_text());
    ct_error_clear();
    return ct_fail(CT_ERR_IO, "graph_load", "%s: record %d: %s%s%s", l->path, i, what, why[0] ? ": " : "", why);
}

static ct_tensor *tensor_of(const loading *l, const place *p) {
    if (p->kind == NUMBER) return ct_to(ct_from_data(p->number, CT_DIMS0, p->dtype), l->device);
    ct_tensor *memory = l->parts[p->memory].at;
    return memory ? ct_as_strided(memory, p->shape, p->strides, p->offset) : NULL;
}

static bool is_whole(const loading *l, const place *p) {
    int64_t step = 1;
    for (int i = p->shape.n - 1; i >= 0; i--) {
        if (p->shape.d[i] > 1 && p->strides.d[i] != step) return false;
        step *= p->shape.d[i];
    }
    return p->offset == 0 && step == l->parts[p->memory].count;
}

/* Results that make memory become it; that of the first may also go to memory that is there. */
static bool check_outputs(const loading *l, const record *r, bool *want, ct_tensor **into) {
    for (int i = 0; i < r->n_out; i++) {
        const place *p = &r->places[r->n_in + i];
        want[i] = p->kind == VIEW;
        if (!want[i]) continue;
        if (!l->parts[p->memory].at && is_whole(l, p)) continue;
        if (i > 0 || !l->parts[p->memory].at) return ct_fail(CT_ERR_IO, r->op->name, "result %d has no place", i);
        if (!(*into = tensor_of(l, p))) return false;
    }
    return true;
}

static bool take_outputs(loading *l, const record *r, ct_tensor *const *out) {
    for (int i = 0; i < r->n_out; i++) {
        const place *p = &r->places[r->n_in + i];
        if (p->kind != VIEW) continue;
        const ct_dims shape = out[i] ? ct_shape(out[i]) : CT_DIMS0;
        bool same = out[i] && ct_dtype_of(out[i]) == p->dtype && shape.n == p->shape.n;
        for (int d = 0; same && d < shape.n; d++) same = shape.d[d] == p->shape.d[d];
        if (!same)
            return ct_fail(CT_ERR_IO, r->op->name, "result %d is %s, and is said to be %s%s", i,
                           out[i] ? ct_tensor_text(out[i]) : "missing", ct_dtype_name(p->dtype),
                           ct_dims_text(p->shape));
        part *m = &l->parts[p->memory];
        if (m->at) continue;
        ct_tensor *flat = ct_reshape(ct_contiguous(out[i]), CT_DIMS(m->count));
        if (!flat) return false;
        m->at = ct_keep(flat);
    }
    return true;
}

static bool run_call(loading *l, const record *r, ct_tensor **tensors, bool *want) {
    ct_tensor **out = tensors + r->n_in, *into = NULL;
    for (int i = 0; i < r->n_in; i++) {
        const place *p = &r->places[i];
        tensors[i] = p->kind == ABSENT ? NULL : tensor_of(l, p);
        if (p->kind != ABSENT && !tensors[i])
            return ct_ok() ? ct_fail(CT_ERR_IO, r->op->name, "input %d is read before it is written", i) : false;
    }
    if (!check_outputs(l, r, want, &into)) return false;
    if (into && !ct_into(into)) return false;
    return ct_apply_with(r->op, tensors, r->n_in, r->attrs, out, r->n_out, want, NULL) && take_outputs(l, r, out);
}

static bool run_record(loading *l, int i) {
    const record *r = &l->records[i];
    bool ok = false;
    ct_scope {
        if (r->op) {
            const size_t n = (size_t)(r->n_in + r->n_out) + 1;
            ct_tensor **tensors = ct_calloc(n, sizeof *tensors);
            bool *want = ct_calloc(n, sizeof *want);
            ok = (tensors && want) || no_memory();
            ok = ok && run_call(l, r, tensors, want);
            ct_free(tensors);
            ct_free(want);
        } else if (!l->parts[r->memory].at) {
            ct_tensor *x = ct_to(r->data, l->device);
            const int64_t count = l->parts[r->memory].count;
            x = r->fill && count != 1 ? ct_contiguous(ct_expand(x, CT_DIMS(count))) : ct_clone(x);
            if ((ok = x != NULL)) l->parts[r->memory].at = ct_keep(x);
        } else {
            ok = ct_fail(CT_ERR_IO, "copy", "memory %d is there already", r->memory);
        }
    }
    return ok || refuse_record(l, i, r->op ? r->op->name : "data");
}

static bool run(void *context) {
    loading *l = context;
    bool ok = true;
    for (int i = 0; i < l->n_parts; i++)
        if (!l->parts[i].given && l->parts[i].at) ct_drop(l->parts[i].at), l->parts[i].at = NULL;
    for (int i = 0; ok && i < l->n_records; i++) {
        const record *r = &l->records[i];
        ok = run_record(l, i);
        for (int k = 0; ok && r->op && k < r->n_in + r->n_out; k++) {
            part *m = r->places[k].kind == VIEW ? &l->parts[r->places[k].memory] : NULL;
            if (!m || m->stays || m->last != i || !m->at) continue;
            ct_drop(m->at); /* nobody reads it any more */
            m->at = NULL;
        }
    }
    return ok;
}

/* What records change has memory of its own, so that what was saved is still there after the run of the capture, */
static bool take_over(loading *l) {
    bool ok = true;
    for (int i = 0; ok && i < l->n_parts; i++)
        ct_scope {
            ct_tensor *saved = l->parts[i].given && l->parts[i].changes ? l->parts[i].at : NULL,
                      *own = saved ? ct_clone(saved) : NULL;
            ok = !saved || own;
            if (own) ct_drop(saved), l->parts[i].at = ct_keep(own);
        }
    return ok;
}

/* and comes back: that run is none that the program has asked for. */
static bool put_back(const loading *l) {
    bool ok = true;
    for (int i = 0; ok && i < l->n_parts; i++) {
        char source[32];
        if (!l->parts[i].given || !l->parts[i].changes) continue;
        snprintf(source, sizeof source, "memory.%d", i);
        ct_scope {
            ok = ct_assign(l->parts[i].at, ct_to(ct_state_get(l->state, source), l->device)) != NULL;
        }
    }
    return ok;
}

static bool give_names(loading *l, ct_graph *graph) {
    bool ok = true;
    for (int i = 0; ok && i < l->n_names; i++)
        ct_scope {
            const place *p = &l->names[i].at;
            ct_tensor *x = tensor_of(l, p);
            ok = x && ct_graph_name(graph, l->names[i].text, x);
            if (!ok) {
                char why[600];
                snprintf(why, sizeof why, "%s", ct_ok() ? "it is not made by any record" : ct_error());
                const bool memory = ct_error_code() == CT_ERR_MEMORY;
                ct_error_clear();
                ct_fail(memory ? CT_ERR_MEMORY : CT_ERR_IO, "graph_load", "%s: the name %s: %s", l->path,
                        l->names[i].text, why);
            }
        }
    return ok;
}

ct_graph *ct__graph_of_state(const ct_state *state, const char *path, ct_device device) {
    loading l = {.state = state, .path = path, .at = ct_state_text(state, CT__GRAPH_TEXT), .line = 1, .device = device};
    ct_graph *graph = NULL;
    if (!l.at) return ct_fail(CT_ERR_IO, "graph_load", "%s: this holds no graph", path), NULL;
    const ct_device current = ct_get_device();
    if (device.type == CT_CURRENT) l.device = current;
    bool ok = ct_set_device(l.device);
    ct_scope {
        ct_no_grad {
            ok = ok && read_text(&l) && take_over(&l);
            graph = ok ? ct_capture(run, &l, CT_CAPTURE_WARM | CT_CAPTURE_UNCHECKED) : NULL;
            if (ok && !graph && ct_error_code() != CT_ERR_IO) refuse_record(&l, l.n_records, "the graph");
            if (graph && !(put_back(&l) && give_names(&l, graph))) ct_graph_free(graph), graph = NULL;
        }
    }
    for (int i = 0; i < l.n_parts; i++) ct_drop(l.parts[i].at);
    for (int i = 0; i < l.n_records; i++) {
        ct_free(l.records[i].attrs);
        ct_free(l.records[i].places);
    }
    ct_free(l.parts);
    ct_free(l.records);
    ct_free(l.names);
    ct_set_device(current);
    return graph;
}

ct_graph *ct_graph_load(const char *path, ct_device device) {
    bool has_checksum;
    if (!ct_ok()) return NULL;
    if (!path) return ct_fail(CT_ERR_NULL, "graph_load", "argument path is NULL"), NULL;
    ct_state *state = ct__open_checked(path, true, "graph_load", &has_checksum);
    ct_graph *graph = state ? ct__graph_of_state(state, path, device) : NULL;
    ct_state_free(state);
    return graph;
}
