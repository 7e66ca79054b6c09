/* A module as text: the tree with options on the left, its tensors with shapes in the middle, counts on the right. */
#include "nn/module.h"

#include <stdio.h>
#include <stdlib.h>

/* 1234567 as 1,234,567 */
static const char *grouped(int64_t n, char text[32]) {
    char plain[24];
    const int length = snprintf(plain, sizeof plain, "%lld", (long long)n);
    int used = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = plain[i];
    }
    text[used] = 0;
    return text;
}

static void write_left(ct__writer *w, const ct_module *module, const char *name, int depth) {
    char options[512] = "";
    if (module->type->describe) module->type->describe(module, options, sizeof options);
    ct__write(w, "%*s%s%s%s", 2 * depth, "", name ? name : "", name ? ": " : "", module->type->name);
    if (options[0]) ct__write(w, "(%s)", options);
}

static void write_tensors(ct__writer *w, const ct_module *module) {
    const char *separator = "";
    for (int buffer = 0; buffer < 2; buffer++) {
        const ct__slots *slots = buffer ? &module->buffers : &module->params;
        for (int i = 0; i < slots->count; i++, separator = ", ")
            ct__write(w, "%s%s %s%s", separator, slots->items[i].name, ct_tensor_text(slots->items[i].x),
                      !buffer && !ct_requires_grad(slots->items[i].x) ? " frozen" : "");
    }
}

static void measure(const ct_module *module, const char *name, int depth, size_t *left, size_t *middle) {
    ct__writer w = {0};
    write_left(&w, module, name, depth);
    if (w.length > *left) *left = w.length;
    w.length = 0;
    write_tensors(&w, module);
    if (w.length > *middle) *middle = w.length;
    for (int i = 0; i < module->children.count; i++)
        measure(module->children.items[i].child, module->children.items[i].name, depth + 1, left, middle);
}

static void write_lines(ct__writer *w, const ct_module *module, const char *name, int depth, size_t left,
                        size_t middle) {
    size_t start = w->length;
    write_left(w, module, name, depth);
    if (module->params.count + module->buffers.count > 0) {
        ct__write(w, "%*s", (int)(left - (w->length - start) + 2), "");
        start = w->length;
        write_tensors(w, module);
        int64_t count = 0;
        char text[32];
        for (int i = 0; i < module->params.count; i++) count += ct_numel(module->params.items[i].x);
        if (module->params.count)
            ct__write(w, "%*s%12s", (int)(middle - (w->length - start)), "", grouped(count, text));
    }
    ct__write(w, "\n");
    for (int i = 0; i < module->children.count; i++)
        write_lines(w, module->children.items[i].child, module->children.items[i].name, depth + 1, left, middle);
}

typedef struct totals {
    int64_t learned, frozen, buffers, bytes;
} totals;

static totals count(const ct_module *module) {
    totals t = {0};
    ct_parameters *list = ct_module_parameters((ct_module *)module);
    for (int i = 0; i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        const int64_t n = ct_numel(ct_parameter_tensor(p));
        *(p->buffer ? &t.buffers : p->frozen ? &t.frozen : &t.learned) += n;
        t.bytes += n * (int64_t)ct_dtype_size(ct_dtype_of(ct_parameter_tensor(p)));
    }
    ct_parameters_free(list);
    return t;
}

size_t ct_module_to_string(const ct_module *module, char *text, size_t capacity) {
    if (text && capacity) text[0] = 0;
    if (!module) {
        if (ct_ok()) ct_fail(CT_ERR_NULL, "module_to_string", "argument module is NULL");
        return 0;
    }
    size_t left = 0, middle = 0;
    measure(module, NULL, 0, &left, &middle);
    ct__writer w = {text, text ? capacity : 0, 0};
    write_lines(&w, module, NULL, 0, left, middle);
    const totals t = count(module);
    char n[32];
    ct__write(&w, "%s parameters", grouped(t.learned + t.frozen, n));
    if (t.frozen) ct__write(&w, ", %s of them frozen", grouped(t.frozen, n));
    if (t.buffers) ct__write(&w, ", %s numbers in buffers", grouped(t.buffers, n));
    const double kilobytes = (double)t.bytes / 1024;
    ct__write(&w, ", %.1f %s\n", kilobytes < 1000 ? kilobytes : kilobytes / 1024, kilobytes < 1000 ? "KB" : "MB");
    return w.length;
}

bool ct_module_print(const ct_module *module) {
    const size_t length = ct_module_to_string(module, NULL, 0);
    if (!length) return false;
    char *text = ct_malloc(length + 1);
    if (!text) return ct_fail(CT_ERR_MEMORY, "module_print", "out of memory");
    ct_module_to_string(module, text, length + 1);
    const bool ok = fputs(text, stdout) >= 0;
    ct_free(text);
    return ok || ct_fail(CT_ERR_IO, "module_print", "standard output cannot be written");
}
