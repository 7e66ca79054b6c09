/* The module: what it holds, how that is added and found, and when it dies. */
#include "nn/module.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Texts and paths ---- */

void ct__write(ct__writer *writer, const char *format, ...) {
    const size_t room = writer->length < writer->capacity ? writer->capacity - writer->length : 0;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(room ? writer->text + writer->length : NULL, room, format, args);
    va_end(args);
    if (n > 0) writer->length += (size_t)n;
}

void ct__write_axes(ct__writer *writer, const char *name, int64_t one, const ct_dims *each) {
    if (!each->n && !one) return;
    ct__write(writer, ", %s=%lld", name, (long long)(each->n ? each->d[0] : one));
    for (int i = 1; i < each->n; i++) ct__write(writer, "x%lld", (long long)each->d[i]);
}

static const char *const activation_names[] = {"none", "relu", "sigmoid", "tanh", "gelu", "silu"};

void ct__write_activation(ct__writer *writer, ct_activation activation) {
    if (activation != CT_ACT_NONE) ct__write(writer, ", %s", activation_names[activation]);
}

bool ct__path_push(ct__path *path, const char *name, size_t *before) {
    *before = path->length;
    const size_t needed = path->length + strlen(name) + 2; /* a dot and the end */
    if (needed > path->capacity) {
        char *text = ct_realloc(path->text, 2 * needed);
        if (!text) return ct_fail(CT_ERR_MEMORY, "module", "out of memory");
        path->text = text;
        path->capacity = 2 * needed;
    }
    if (path->length) path->text[path->length++] = '.';
    strcpy(path->text + path->length, name);
    path->length += strlen(name);
    return true;
}

void ct__path_pop(ct__path *path, size_t before) {
    path->length = before;
    if (path->text) path->text[before] = 0;
}

/* ---- Life ---- */

ct_module *ct_module_new(const ct_module_class *given) {
    ct_module_class own;
    const ct_module_class *type = given ? ct__take_class("ct_module_class", &own, sizeof own, given) : NULL;
    if (given && !type) return NULL;
    if (!type || !type->name) {
        ct_fail(CT_ERR_NULL, "module_new", type ? "the class has no name" : "argument type is NULL");
        return NULL;
    }
    if (!type->forward == !type->forward_n) {
        ct_fail(CT_ERR_VALUE, "module_new", "the class %s needs either forward or forward_n", type->name);
        return NULL;
    }
    ct_module *module = ct_calloc(1, sizeof *module + type->state);
    if (!module) {
        ct_fail(CT_ERR_MEMORY, "module_new", "out of memory for a %s", type->name);
        return NULL;
    }
    module->given = given;
    module->own = *type;
    module->type = type == given ? given : &module->own;
    module->refs = 1;
    module->training = true;
    return module;
}

ct_module *ct_module_keep(ct_module *module) {
    if (module) atomic_fetch_add_explicit(&module->refs, 1, memory_order_relaxed);
    return module;
}

static void free_slots(ct__slots *slots) {
    for (int i = 0; i < slots->count; i++) {
        ct_drop(slots->items[i].x);
        ct_module_free(slots->items[i].child);
        ct_free(slots->items[i].name);
    }
    ct_free(slots->items);
}

void ct_module_free(ct_module *module) {
    if (!module || atomic_fetch_sub_explicit(&module->refs, 1, memory_order_acq_rel) > 1) return;
    if (module->type->release) module->type->release(module);
    free_slots(&module->children);
    free_slots(&module->params);
    free_slots(&module->buffers);
    ct_free(module->name);
    ct_free(module);
}

void *ct_module_data(const ct_module *module) { return module ? (void *)module->data : NULL; }
const ct_module_class *ct_module_type(const ct_module *module) { return module ? module->given : NULL; }

/* ---- Adding ---- */

static int find_slot(const ct__slots *slots, const char *name, size_t length) {
    for (int i = 0; i < slots->count; i++)
        if (strncmp(slots->items[i].name, name, length) == 0 && slots->items[i].name[length] == 0) return i;
    return -1;
}

/* A new slot of that name with nothing in it; NULL, with an error, when it cannot be. */
static ct__slot *add_slot(ct_module *module, ct__slots *slots, const char *name, const char *function) {
    if (!name) {
        ct_fail(CT_ERR_NULL, function, "argument name is NULL");
        return NULL;
    }
    const size_t length = strlen(name);
    if (!length || strchr(name, '.')) {
        ct_fail(CT_ERR_VALUE, function, "\"%s\" is no name: it is empty or has a dot", name);
        return NULL;
    }
    if (find_slot(&module->params, name, length) >= 0 || find_slot(&module->buffers, name, length) >= 0 ||
        find_slot(&module->children, name, length) >= 0) {
        ct_fail(CT_ERR_VALUE, function, "the %s has a \"%s\" already", module->type->name, name);
        return NULL;
    }
    if (slots->count == slots->capacity) {
        const int larger = slots->capacity ? 2 * slots->capacity : 4;
        ct__slot *items = ct_realloc(slots->items, (size_t)larger * sizeof *items);
        if (!items) {
            ct_fail(CT_ERR_MEMORY, function, "out of memory");
            return NULL;
        }
        slots->items = items;
        slots->capacity = larger;
    }
    ct__slot *slot = &slots->items[slots->count];
    *slot = (ct__slot){.name = ct__text_copy(name, strlen(name))};
    if (!slot->name) {
        ct_fail(CT_ERR_MEMORY, function, "out of memory");
        return NULL;
    }
    slots->count++;
    return slot;
}

static bool add_tensor(ct_module *module, const char *name, ct_tensor *x, bool buffer) {
    const char *function = buffer ? "module_add_buffer" : "module_add_param";
    if (!ct_ok()) return false;
    if (!module) return ct_fail(CT_ERR_NULL, function, "argument module is NULL");
    if (!x) return ct_fail(CT_ERR_NULL, function, "\"%s\": argument x is NULL", name ? name : "");
    if (!buffer && !ct_is_leaf(x))
        return ct_fail(CT_ERR_GRAD, function, "\"%s\", %s, is computed from others; a parameter is a leaf (ct_detach)",
                       name ? name : "", ct_tensor_text(x));
    if (!ct_keep(x)) return false;
    if (!buffer && !ct_set_requires_grad(x, true)) {
        ct_drop(x);
        return false;
    }
    ct__slot *slot = add_slot(module, buffer ? &module->buffers : &module->params, name, function);
    if (!slot) {
        ct_drop(x);
        return false;
    }
    slot->x = x;
    return true;
}

bool ct_module_add_param(ct_module *module, const char *name, ct_tensor *x) {
    return add_tensor(module, name, x, false);
}

bool ct_module_set_param(ct_module *module, int i, ct_tensor *x) {
    if (!ct_ok()) return false;
    if (!module || !x) return ct_fail(CT_ERR_NULL, "module_set_param", "%s is NULL", module ? "x" : "module");
    if (i < 0 || i >= module->params.count)
        return ct_fail(CT_ERR_INDEX, "module_set_param", "parameter %d of %d", i, module->params.count);
    ct_tensor *before = module->params.items[i].x;
    module->params.items[i].x = ct_keep(x);
    ct_drop(before);
    return true;
}

bool ct_module_set_division(ct_module *module, const ct_division *division) {
    if (!ct_ok()) return false;
    if (!module) return ct_fail(CT_ERR_NULL, "module_set_division", "module is NULL");
    const ct_division given = division ? *division : (ct_division){.parts = 1};
    if (given.parts < 1 || given.part < 0 || given.part >= given.parts)
        return ct_fail(CT_ERR_VALUE, "module_set_division", "part %d of %d", given.part, given.parts);
    if (given.parts > 1 && !given.gather) return ct_fail(CT_ERR_NULL, "module_set_division", "gather is NULL");
    module->division = given.parts > 1 ? given : (ct_division){0};
    return true;
}

const ct_division *ct_module_division(const ct_module *module) {
    return module && module->division.parts > 1 ? &module->division : NULL;
}

void ct_division_range(const ct_division *division, int64_t n, int64_t *from, int64_t *count) {
    const bool whole = !division || division->part < 0 || division->part >= division->parts;
    const int64_t parts = whole ? 1 : division->parts, part = whole ? 0 : division->part;
    if (n < 0) n = 0;
    const int64_t most = n / parts + (n % parts != 0);
    const int64_t begin = most && part <= n / most ? part * most : n;
    if (from) *from = begin;
    if (count) *count = n - begin < most ? n - begin : most;
}

bool ct_module_add_buffer(ct_module *module, const char *name, ct_tensor *x) {
    return add_tensor(module, name, x, true);
}

/* Finds the height of every module from the top down, and whether one of them is `sought`. Each is visited once,
 * however often it is shared: what has the number of this walk is measured. */
static void measure(ct_module *top, const ct_module *sought, uint64_t walk, bool *found) {
    top->walk = walk;
    top->height = 0;
    if (top == sought) *found = true;
    for (int i = 0; i < top->children.count; i++) {
        ct_module *child = top->children.items[i].child;
        if (child->walk != walk) measure(child, sought, walk, found);
        if (child->height >= top->height) top->height = child->height + 1;
    }
}

/* Whether the module is the top, or below it. Sets top->height. */
static bool contains(ct_module *top, const ct_module *module) {
    static _Atomic uint64_t walks;
    bool found = false;
    measure(top, module, atomic_fetch_add_explicit(&walks, 1, memory_order_relaxed) + 1, &found);
    return found;
}

static void set_depth(ct_module *module, int depth) {
    if (module->depth >= depth) return;
    module->depth = depth;
    for (int i = 0; i < module->children.count; i++) set_depth(module->children.items[i].child, depth + 1);
}

/* Whether child may be put below module; else an error. */
static bool fits_below(const ct_module *module, const char *name, ct_module *child, const char *function) {
    if (!ct_ok()) return false; /* what failed before is the error to read */
    if (!module) return ct_fail(CT_ERR_NULL, function, "argument module is NULL");
    if (!child) return ct_fail(CT_ERR_NULL, function, "\"%s\": argument child is NULL", name ? name : "");
    if (contains(child, module))
        return ct_fail(CT_ERR_VALUE, function, "\"%s\": a %s cannot be below itself", name ? name : "",
                       module->type->name);
    return module->depth + 1 + child->height <= CT__MOST_DEPTH ||
           ct_fail(CT_ERR_VALUE, function, "\"%s\": more than %d modules within one another", name ? name : "",
                   CT__MOST_DEPTH);
}

static void put_below(const ct_module *module, ct__slot *slot, ct_module *child) {
    slot->child = child;
    set_depth(child, module->depth + 1);
    if (!child->name)
        child->name = ct__text_copy(slot->name, strlen(slot->name)); /* without memory for it errors say less */
}

bool ct_module_add(ct_module *module, const char *name, ct_module *child) {
    ct__slot *slot =
        fits_below(module, name, child, "module_add") ? add_slot(module, &module->children, name, "module_add") : NULL;
    if (slot) put_below(module, slot, child);
    else ct_module_free(child);
    return slot != NULL;
}

bool ct_module_replace(ct_module *module, const char *name, ct_module *child) {
    ct__slot *slot = NULL;
    if (fits_below(module, name, child, "module_replace")) {
        for (int i = 0; name && i < module->children.count; i++)
            if (strcmp(module->children.items[i].name, name) == 0) slot = &module->children.items[i];
        if (!slot)
            ct_fail(CT_ERR_VALUE, "module_replace", "a %s has no child \"%s\" here", module->type->name,
                    name ? name : "");
    }
    ct_module *before = slot ? slot->child : child;
    if (slot) put_below(module, slot, child);
    ct_module_free(before);
    return slot != NULL;
}

/* ---- Looking ---- */

static const ct__slot *slot_at(const ct__slots *slots, int i) {
    return i >= 0 && i < slots->count ? &slots->items[i] : NULL;
}

#define SLOT_ACCESS(kind, list, type, field)                              \
    type ct_module_##kind(const ct_module *module, int i) {               \
        const ct__slot *slot = module ? slot_at(&module->list, i) : NULL; \
        return slot ? slot->field : NULL;                                 \
    }
SLOT_ACCESS(param, params, ct_tensor *, x)
SLOT_ACCESS(buffer, buffers, ct_tensor *, x)
SLOT_ACCESS(child, children, ct_module *, child)
SLOT_ACCESS(param_name, params, const char *, name)
SLOT_ACCESS(buffer_name, buffers, const char *, name)
SLOT_ACCESS(child_name, children, const char *, name)

int ct_module_param_count(const ct_module *module) { return module ? module->params.count : 0; }
int ct_module_buffer_count(const ct_module *module) { return module ? module->buffers.count : 0; }
int ct_module_child_count(const ct_module *module) { return module ? module->children.count : 0; }
bool ct_module_training(const ct_module *module) { return module && module->training; }

/* Follows the names before the last one; that one is left in *last. NULL where the path leads nowhere. */
static const ct_module *follow(const ct_module *module, const char *path, const char **last) {
    while (module && path) {
        const char *dot = strchr(path, '.');
        if (!dot) break;
        const int i = find_slot(&module->children, path, (size_t)(dot - path));
        module = i < 0 ? NULL : module->children.items[i].child;
        path = dot + 1;
    }
    *last = path;
    return path ? module : NULL;
}

static ct__slot *find_param(const ct_module *module, const char *path) {
    const char *last;
    module = follow(module, path, &last);
    const int i = module ? find_slot(&module->params, last, strlen(last)) : -1;
    return i < 0 ? NULL : &module->params.items[i];
}

ct_tensor *ct_module_find(const ct_module *module, const char *path) {
    const ct__slot *param = find_param(module, path);
    if (param) return param->x;
    const char *last;
    module = follow(module, path, &last);
    const int i = module ? find_slot(&module->buffers, last, strlen(last)) : -1;
    return i < 0 ? NULL : module->buffers.items[i].x;
}

ct_module *ct_module_find_child(const ct_module *module, const char *path) {
    const char *last;
    module = follow(module, path, &last);
    const int i = module ? find_slot(&module->children, last, strlen(last)) : -1;
    return i < 0 ? NULL : module->children.items[i].child;
}

bool ct_module_tie(ct_module *module, const char *path, const char *other) {
    if (!ct_ok()) return false;
    if (!module || !path || !other) return ct_fail(CT_ERR_NULL, "module_tie", "an argument is NULL");
    ct__slot *to = find_param(module, path), *from = find_param(module, other);
    if (!to || !from)
        return ct_fail(CT_ERR_VALUE, "module_tie", "the %s has no parameter \"%s\"", module->type->name,
                       to ? other : path);
    const ct_dims a = ct_shape(to->x), b = ct_shape(from->x);
    if (!ct__same_shape(a, b) || ct_dtype_of(to->x) != ct_dtype_of(from->x))
        return ct_fail(CT_ERR_SHAPE, "module_tie", "\"%s\" is %s, \"%s\" is %s", path, ct_tensor_text(to->x), other,
                       ct_tensor_text(from->x));
    if (!ct_keep(from->x)) return false;
    ct_drop(to->x);
    to->x = from->x;
    return true;
}

/* ---- Helpers of layers ---- */

static bool add_made(ct_module *module, const char *name, ct_tensor *x, bool buffer) {
    return x && (buffer ? ct_module_add_buffer(module, name, x) : ct_module_add_param(module, name, x));
}

bool ct__add_uniform(ct_module *module, const char *name, ct_dims shape, double bound) {
    if (!module) return false;
    ct_scope {
        return add_made(module, name, ct_uniform(shape, -bound, bound), false);
    }
    return false;
}

bool ct__add_constant(ct_module *module, const char *name, ct_dims shape, double value, bool buffer) {
    if (!module) return false;
    ct_scope {
        return add_made(module, name, ct_full(shape, value), buffer);
    }
    return false;
}

bool ct__is_activation(const char *function, ct_activation activation) {
    return (unsigned)activation < sizeof activation_names / sizeof *activation_names ||
           ct_fail(CT_ERR_VALUE, function, "activation: %d is not a value of its enum", (int)activation);
}

ct_module *ct__finish(ct_module *module, bool ok) {
    if (ok) return module;
    ct_module_free(module);
    return NULL;
}

bool ct__positive(const char *function, const char *what, int64_t value) {
    if (value < 1) return ct_fail(CT_ERR_VALUE, function, "%s is %lld, expected at least 1", what, (long long)value);
    return value <= INT32_MAX ||
           ct_fail(CT_ERR_VALUE, function, "%s is %lld, expected below 2^31", what, (long long)value);
}

bool ct__is_probability(const char *function, const char *what, double value) {
    return (value >= 0 && value < 1) || ct_fail(CT_ERR_VALUE, function, "%s is %g, expected 0 to below 1", what, value);
}

bool ct__is_list(const char *function, const char *what, ct_dims list) {
    return (list.n >= 0 && list.n <= CT_MAX_LIST) ||
           ct_fail(CT_ERR_VALUE, function, "%s: a list holds 0 to %d numbers", what, CT_MAX_LIST);
}

static bool count_module(void *context, const char *path, ct_module *module) {
    (void)path;
    (void)module;
    ++*(int64_t *)context;
    return true;
}

bool ct__affordable(const char *function, const char *what, int64_t count, ct_module *one) {
    enum { MODULE_BYTES = 512 }; /* about what a module takes with its names and the handles of its parameters */
    int64_t modules = 0;
    if (!ct_module_apply(one, count_module, &modules)) return false;
    const double bytes = (double)count * ((double)ct_module_size(one) * sizeof(float) + (double)modules * MODULE_BYTES);
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const double there = pages > 0 && page > 0 ? (double)pages * (double)page : 0x1p48;
    return bytes <= there || ct_fail(CT_ERR_MEMORY, function, "%lld %s need %.3g bytes, and the machine has %.3g",
                                     (long long)count, what, bytes, there);
}
