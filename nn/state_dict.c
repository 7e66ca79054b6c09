/* A module's parameters and buffers as a state, and back: everything is compared, and converted, before anything changes. */
#include "nn/names.h"

#include <stdio.h>
#include <stdlib.h>

static bool given(const ct_module *module, const void *state, const char *prefix, const char *function) {
    if (!ct_ok()) return false;
    if (module && state && prefix) return true;
    return ct_fail(CT_ERR_NULL, function, "argument %s is NULL", !module ? "module" : !state ? "state" : "prefix");
}

/* prefix and name joined, in memory that the caller frees. */
static char *join(const char *prefix, const char *name, const char *function) {
    const size_t bytes = strlen(prefix) + strlen(name) + 1;
    char *text = ct_malloc(bytes);
    if (text) snprintf(text, bytes, "%s%s", prefix, name);
    else ct_fail(CT_ERR_MEMORY, function, "out of memory");
    return text;
}

/* ---- Layouts of convolutions ---- */

static const char layout_text[] = "channels_last";

/* Whether the parameter is a weight with channels, and if so which layout its module wants. */
static bool has_layout(const ct_parameter *p, bool *last) {
    const ct_module_class *type = p->owner->type;
    if (p->buffer || !type->channels_last || ct_ndim(ct_parameter_tensor(p)) < 3) return false;
    *last = type->channels_last(p->owner);
    return true;
}

/* The axes of a weight of n axes in the other layout: [k..., in, out] from [out, in, k...] (last), or back. */
static ct_dims other_layout(int n, bool last) {
    ct_dims axes = {.n = n};
    for (int i = 0; i < n; i++) axes.d[i] = last ? (i < n - 2 ? i + 2 : n - 1 - i) : (i < 2 ? n - 1 - i : i - 2);
    return axes;
}

static ct_dims permuted(ct_dims shape, ct_dims axes) {
    ct_dims result = {.n = shape.n};
    for (int i = 0; i < shape.n; i++) result.d[i] = shape.d[axes.d[i]];
    return result;
}

/* Whether a weight of that shape could be one of the other layout just as well. */
static bool fits_both(ct_dims shape, bool last) {
    return ct__same_shape(permuted(shape, other_layout(shape.n, !last)), shape);
}

/* Whether text has the line. */
static bool has_line(const char *text, const char *line) {
    const size_t length = strlen(line);
    while (text && *text) {
        const size_t n = strcspn(text, "\n");
        if (n == length && memcmp(text, line, n) == 0) return true;
        text += n + (text[n] == '\n');
    }
    return false;
}

/* Notes the weights whose shape does not tell that their channels are last, one per line. */
static bool put_layout(const ct_parameters *list, ct_state *state, const char *prefix) {
    size_t bytes = 1;
    bool last;
    for (int i = 0; i < ct_parameters_count(list); i++) bytes += strlen(ct_parameters_at(list, i)->name) + 1;
    char *lines = ct_malloc(bytes), *name = lines ? join(prefix, layout_text, "module_put_state") : NULL;
    bool ok = name || ct_fail(CT_ERR_MEMORY, "module_put_state", "out of memory");
    ct__writer w = {lines, bytes, 0};
    for (int i = 0; ok && i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        if (has_layout(p, &last) && last && fits_both(ct_shape(ct_parameter_tensor(p)), last))
            ct__write(&w, "%s%s", w.length ? "\n" : "", p->name);
    }
    if (ok && w.length) ok = ct_state_put_text(state, name, lines);
    ct_free(name);
    ct_free(lines);
    return ok;
}

bool ct_module_put_state(ct_module *module, ct_state *state, const char *prefix) {
    if (!given(module, state, prefix, "module_put_state")) return false;
    ct_parameters *list = ct_module_parameters(module);
    bool ok = list != NULL;
    for (int i = 0; ok && i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        char *name = join(prefix, p->name, "module_put_state");
        ok = name && ct_state_put(state, name, ct_parameter_tensor(p));
        ct_free(name);
    }
    ok = ok && put_layout(list, state, prefix);
    ct_parameters_free(list);
    return ok;
}

/* ---- Taking ---- */

typedef struct taking {
    const char *function;
    ct_module *module;
    const ct_state *state;
    const char *prefix;
    ct_load_options o;
    const ct_parameters *list;
    int count;
    struct {
        const char *source; /* the name in the state; NULL: none */
        ct_tensor *value;
    } * from;         /* what each parameter gets */
    ct_tensor **made; /* the same, converted and kept; NULL where it gets nothing */
    ct_load_report *report;
    bool refused; /* because of what the report says, which is then complete */
} taking;

/* The parameter at a path, -1 where there is none. One that is shared has several paths. */
static int parameter_at(const taking *t, const char *path) {
    const ct_tensor *x = ct_module_find(t->module, path);
    for (int i = 0; x && i < t->count; i++)
        if (ct_parameter_tensor(ct_parameters_at(t->list, i)) == x) return i;
    return -1;
}

/* By their bytes: a NaN is not equal to itself, and still the same weight stored twice. False also with an error. */
static bool same_bytes(const taking *t, ct_tensor *a, ct_tensor *b) {
    if (ct_dtype_of(a) != ct_dtype_of(b) || !ct__same_shape(ct_shape(a), ct_shape(b))) return false;
    const size_t bytes = (size_t)ct_numel(a) * ct_dtype_size(ct_dtype_of(a));
    void *left = ct_malloc(bytes + 1), *right = ct_malloc(bytes + 1);
    const bool same = ((left && right) || ct_fail(CT_ERR_MEMORY, t->function, "out of memory")) &&
                      ct_read(a, left, bytes) && ct_read(b, right, bytes) && memcmp(left, right, bytes) == 0;
    ct_free(left);
    ct_free(right);
    return same;
}

/* Finds out what a tensor of the state is for. */
static bool place(taking *t, const char *source, ct_tensor *value) {
    const char *plain = source + strlen(t->prefix), *name = plain;
    char *asked = NULL, *own = NULL;
    ct__renamed renamed = ct__rename(t->o.renames, t->o.rename_count, plain, &asked, t->function);
    if (renamed == CT__NAME_CHANGED) name = asked;
    int at = renamed == CT__NAME_SAME || renamed == CT__NAME_CHANGED ? parameter_at(t, name) : -1;
    if (at < 0 && (renamed == CT__NAME_SAME || renamed == CT__NAME_CHANGED)) {
        renamed = ct__own_name(t->module, name, &own, t->function);
        if (renamed == CT__NAME_CHANGED) at = parameter_at(t, own);
    }
    bool ok = renamed != CT__NAME_FAILED;
    if (!ok) {
        /* the error is there */
    } else if (renamed == CT__NAME_LEFT_OUT) {
        ok = ct__report_add(t->report, CT_LOAD_IGNORED, NULL, source, "", t->function);
    } else if (at < 0) {
        ok = ct__report_add(t->report, CT_LOAD_UNUSED, NULL, source, ct_tensor_text(value), t->function);
    } else if (!t->from[at].value) {
        t->from[at].source = source;
        t->from[at].value = value;
    } else if (!same_bytes(t, t->from[at].value, value)) {
        ok = ct_ok() && ct_fail(CT_ERR_VALUE, t->function, "\"%s\" and \"%s\" are both for \"%s\", and differ",
                                t->from[at].source, source, ct_parameters_at(t->list, at)->name);
    } /* else the same again, under another name of a shared tensor */
    ct_free(asked);
    ct_free(own);
    return ok;
}

/* Whether parameter i gets a weight in the layout that its module does not want; then the permutation to the other. */
static bool is_other_layout(const taking *t, int i, ct_dims *axes) {
    bool last;
    const ct_parameter *p = ct_parameters_at(t->list, i);
    const ct_dims shape = ct_shape(t->from[i].value), own = ct_shape(ct_parameter_tensor(p));
    if (!has_layout(p, &last) || shape.n != own.n) return false;
    *axes = other_layout(shape.n, last);
    if (t->o.layout == CT_LAYOUT_CHANNELS_FIRST || t->o.layout == CT_LAYOUT_CHANNELS_LAST)
        return (t->o.layout == CT_LAYOUT_CHANNELS_LAST) != last;
    if (!ct__same_shape(shape, own)) return ct__same_shape(permuted(shape, *axes), own);
    if (!fits_both(own, last)) return false;
    char *name = join(t->prefix, layout_text, t->function);
    const bool is_last = name && has_line(ct_state_text(t->state, name), t->from[i].source + strlen(t->prefix));
    ct_free(name);
    return is_last != last;
}

static bool is_floating(ct_dtype dtype) { return ct_dtype_is_float(dtype) || dtype == CT_F8E4M3 || dtype == CT_F8E5M2; }

/* What parameter i gets, in its shape and dtype, into made; or what is wrong, into the report. */
static bool convert(taking *t, int i) {
    const ct_parameter *p = ct_parameters_at(t->list, i);
    ct_tensor *own = ct_parameter_tensor(p), *value = t->from[i].value;
    const char *source = t->from[i].source;
    char note[256] = "";
    if (!value) return ct__report_add(t->report, CT_LOAD_MISSING, p->name, NULL, ct_tensor_text(own), t->function);
    const ct_dims shape = ct_shape(value);
    ct_dims axes;
    const bool permute = is_other_layout(t, i, &axes);
    if (!ct_ok()) return false;
    const bool casts = t->o.cast && is_floating(ct_dtype_of(value)) && ct_dtype_is_float(ct_dtype_of(own)) &&
                       ct_dtype_of(value) != ct_dtype_of(own);
    if (!ct__same_shape(permute ? permuted(shape, axes) : shape, ct_shape(own)) ||
        (ct_dtype_of(value) != ct_dtype_of(own) && !casts) || (permute && t->o.layout == CT_LAYOUT_SAME)) {
        snprintf(note, sizeof note, "is %s%s, the module's is %s", ct_tensor_text(value),
                 permute ? " in the other layout" : "", ct_tensor_text(own));
        return ct__report_add(t->report, CT_LOAD_MISMATCH, p->name, source, note, t->function);
    }
    if (permute || casts) {
        snprintf(note, sizeof note, "converted from %s", ct_tensor_text(value));
        if (permute) value = ct_permute(value, axes);
        if (casts) value = ct_cast(value, ct_dtype_of(own));
    }
    t->made[i] = ct_keep(ct_to(value, ct_device_of(own)));
    return t->made[i] && ct__report_add(t->report, CT_LOAD_LOADED, p->name, source, note, t->function);
}

/* "x" of several: how many more there are like it. */
static const char *more(int64_t count, char text[32]) {
    text[0] = 0;
    if (count > 1) snprintf(text, 32, " (and %lld more)", (long long)count - 1);
    return text;
}

/* An error unless the report is what was asked for. */
static bool judge(const taking *t) {
    char missing_more[32], unused_more[32];
    const ct_load_report *r = t->report;
    const int64_t missing = ct_load_report_count(r, CT_LOAD_MISSING), unused = ct_load_report_count(r, CT_LOAD_UNUSED),
                  different = ct_load_report_count(r, CT_LOAD_MISMATCH);
    const ct_load_entry *first = ct_load_report_at(r, CT_LOAD_MISMATCH, 0),
                        *lacks = ct_load_report_at(r, CT_LOAD_MISSING, 0),
                        *extra = ct_load_report_at(r, CT_LOAD_UNUSED, 0);
    if (t->o.lenient) {
        if (ct_load_report_count(r, CT_LOAD_LOADED) > 0 || t->count == 0) return true;
        const char *me = t->function, *own = ct_parameters_at(t->list, 0)->name;
        if (different)
            return ct_fail(CT_ERR_SHAPE, me, "nothing in the state fits: \"%s\" %s%s", first->source, first->note,
                           more(different, missing_more));
        if (unused)
            return ct_fail(CT_ERR_VALUE, me, "nothing in the state fits: it has \"%s\", the module has \"%s\"",
                           extra->source, own);
        return ct_fail(CT_ERR_VALUE, me, "nothing in the state fits: it has no tensor, the module has \"%s\"", own);
    }
    if (different)
        return ct_fail(CT_ERR_SHAPE, t->function, "\"%s\" %s%s", first->source, first->note,
                       more(different, missing_more));
    more(missing, missing_more), more(unused, unused_more);
    if (missing && unused)
        return ct_fail(CT_ERR_VALUE, t->function, "the state has no \"%s%s\"%s, but a \"%s\"%s that the module lacks",
                       t->prefix, lacks->name, missing_more, extra->source, unused_more);
    if (missing)
        return ct_fail(CT_ERR_VALUE, t->function, "the state has no \"%s%s\"%s", t->prefix, lacks->name, missing_more);
    if (unused)
        return ct_fail(CT_ERR_VALUE, t->function, "the state has a \"%s\"%s that the module lacks", extra->source,
                       unused_more);
    return true;
}

static bool take(taking *t) {
    const size_t length = strlen(t->prefix);
    for (int64_t i = 0; i < ct_state_count(t->state); i++) {
        const char *name = ct_state_name(t->state, i);
        if (strncmp(name, t->prefix, length) == 0 && !place(t, name, ct_state_at(t->state, i))) return false;
    }
    for (int i = 0; i < t->count; i++)
        if (!convert(t, i)) return false;
    if (!judge(t)) {
        t->refused = true;
        return false;
    }
    for (int i = 0; i < t->count; i++) {
        ct_tensor *x = ct_parameter_tensor(ct_parameters_at(t->list, i));
        if (t->made[i] && t->made[i] != x && !ct_assign(x, t->made[i])) return false;
    }
    return true;
}

bool ct_module_take_state_p(ct_module *module, const ct_state *state, const char *prefix,
                            const ct_load_options *options) {
    taking t = {.function = "module_take_state", .module = module, .state = state, .prefix = prefix};
    ct__take_options("ct_load_options", &t.o, sizeof t.o, options);
    if (t.o.report) *t.o.report = NULL;
    if (!given(module, state, prefix, t.function) || !ct__renames_valid(t.o.renames, t.o.rename_count, t.function))
        return false;
    if ((unsigned)t.o.layout > CT_LAYOUT_SAME)
        return ct_fail(CT_ERR_VALUE, t.function, "layout: %d is not a value of its enum", (int)t.o.layout);
    ct_parameters *list = ct_module_parameters(module);
    if (!list) return false;
    t.list = list;
    t.count = ct_parameters_count(list);
    t.from = ct_calloc((size_t)t.count + 1, sizeof *t.from);
    t.made = ct_calloc((size_t)t.count + 1, sizeof *t.made);
    t.report = ct__report_new(t.function);
    bool ok = t.report && ((t.from && t.made) || ct_fail(CT_ERR_MEMORY, t.function, "out of memory"));
    ct_scope {
        ct_no_grad {
            ok = ok && take(&t);
        }
    }
    for (int i = 0; t.made && i < t.count; i++) ct_drop(t.made[i]);
    if (t.o.report && (ok || t.refused)) *t.o.report = t.report;
    else ct_load_report_free(t.report);
    ct_free(t.from);
    ct_free(t.made);
    ct_parameters_free(list);
    return ok;
}
