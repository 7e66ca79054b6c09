/* What is done to a whole tree of modules: walking it, listing its parameters, modes, freezing, and moving its tensors. */
#include "nn/module.h"

#include <stdlib.h>

/* ---- Walking ---- */

static bool walk_slots(ct_module *module, ct__path *path, ct__slot_fn fn, void *context) {
    for (int buffer = 0; buffer < 2; buffer++) {
        ct__slots *slots = buffer ? &module->buffers : &module->params;
        for (int i = 0; i < slots->count; i++) {
            size_t before;
            if (!ct__path_push(path, slots->items[i].name, &before)) return false;
            const bool ok = fn(context, path->text, module, &slots->items[i], buffer, i);
            ct__path_pop(path, before);
            if (!ok) return false;
        }
    }
    for (int i = 0; i < module->children.count; i++) {
        size_t before;
        if (!ct__path_push(path, module->children.items[i].name, &before)) return false;
        const bool ok = walk_slots(module->children.items[i].child, path, fn, context);
        ct__path_pop(path, before);
        if (!ok) return false;
    }
    return true;
}

bool ct__each_slot(const ct_module *module, ct__slot_fn fn, void *context) {
    ct__path path = {0};
    const bool ok = walk_slots((ct_module *)module, &path, fn, context);
    ct_free(path.text);
    return ok;
}

typedef bool (*module_fn)(void *context, const char *path, ct_module *module);

static bool walk_modules(ct_module *module, ct__path *path, module_fn fn, void *context) {
    if (!fn(context, path->text ? path->text : "", module)) return false;
    for (int i = 0; i < module->children.count; i++) {
        size_t before;
        if (!ct__path_push(path, module->children.items[i].name, &before)) return false;
        const bool ok = walk_modules(module->children.items[i].child, path, fn, context);
        ct__path_pop(path, before);
        if (!ok) return false;
    }
    return true;
}

static bool given(const ct_module *module, const char *function) {
    if (!ct_ok()) return false;
    return module || ct_fail(CT_ERR_NULL, function, "argument module is NULL");
}

bool ct_module_apply(ct_module *module, module_fn fn, void *context) {
    if (!given(module, "module_apply")) return false;
    if (!fn) return ct_fail(CT_ERR_NULL, "module_apply", "argument fn is NULL");
    ct__path path = {0};
    const bool ok = walk_modules(module, &path, fn, context);
    ct_free(path.text);
    return ok;
}

/* ---- The list of parameters ---- */

struct ct_parameters {
    ct_module *module;
    ct_parameter *items;
    int count, capacity;
};

static bool list_slot(void *context, const char *path, ct_module *owner, ct__slot *slot, bool buffer, int index) {
    ct_parameters *list = context;
    for (int i = 0; i < list->count; i++)
        if (ct_parameter_tensor(&list->items[i]) == slot->x) return true;
    if (list->count == list->capacity) {
        const int larger = list->capacity ? 2 * list->capacity : 32;
        ct_parameter *items = ct_realloc(list->items, (size_t)larger * sizeof *items);
        if (!items) return ct_fail(CT_ERR_MEMORY, "module_parameters", "out of memory");
        list->items = items;
        list->capacity = larger;
    }
    char *name = ct__text_copy(path, strlen(path));
    if (!name) return ct_fail(CT_ERR_MEMORY, "module_parameters", "out of memory");
    list->items[list->count++] = (ct_parameter){.name = name,
                                                .owner = owner,
                                                .index = index,
                                                .buffer = buffer,
                                                .frozen = !buffer && !ct_requires_grad(slot->x)};
    return true;
}

ct_parameters *ct_module_parameters(ct_module *module) {
    if (!given(module, "module_parameters")) return NULL;
    ct_parameters *list = ct_calloc(1, sizeof *list);
    if (!list) {
        ct_fail(CT_ERR_MEMORY, "module_parameters", "out of memory");
        return NULL;
    }
    list->module = ct_module_keep(module);
    if (ct__each_slot(module, list_slot, list)) return list;
    ct_parameters_free(list);
    return NULL;
}

void ct_parameters_free(ct_parameters *list) {
    if (!list) return;
    for (int i = 0; i < list->count; i++) ct_free((char *)list->items[i].name);
    ct_free(list->items);
    ct_module_free(list->module);
    ct_free(list);
}

int ct_parameters_count(const ct_parameters *list) { return list ? list->count : 0; }

const ct_parameter *ct_parameters_at(const ct_parameters *list, int i) {
    return list && i >= 0 && i < list->count ? &list->items[i] : NULL;
}

ct_tensor *ct_parameter_tensor(const ct_parameter *parameter) {
    if (!parameter) return NULL;
    return parameter->buffer ? ct_module_buffer(parameter->owner, parameter->index)
                             : ct_module_param(parameter->owner, parameter->index);
}

int64_t ct_module_size(const ct_module *module) {
    ct_parameters *list = ct_module_parameters((ct_module *)module);
    int64_t size = 0;
    for (int i = 0; i < ct_parameters_count(list); i++)
        if (!list->items[i].buffer && !list->items[i].frozen) size += ct_numel(ct_parameter_tensor(&list->items[i]));
    ct_parameters_free(list);
    return size;
}

/* ---- Modes ---- */

static void set_training(ct_module *module, bool training) {
    module->training = training;
    for (int i = 0; i < module->children.count; i++) set_training(module->children.items[i].child, training);
}

bool ct_train(ct_module *module) {
    if (!given(module, "train")) return false;
    set_training(module, true);
    return true;
}

bool ct_eval(ct_module *module) {
    if (!given(module, "eval")) return false;
    set_training(module, false);
    return true;
}

/* These two run often or on everything, so they go without paths. */
static bool freeze(ct_module *module, bool frozen) {
    for (int i = 0; i < module->params.count; i++) {
        ct_tensor *x = module->params.items[i].x;
        if (!ct_set_requires_grad(x, !frozen)) return false;
    }
    for (int i = 0; i < module->children.count; i++)
        if (!freeze(module->children.items[i].child, frozen)) return false;
    return true;
}

bool ct_module_freeze(ct_module *module, bool frozen) {
    return given(module, "module_freeze") && freeze(module, frozen);
}

static bool zero_grad(ct_module *module) {
    for (int i = 0; i < module->params.count; i++) {
        ct_tensor *x = module->params.items[i].x;
        if (ct_grad_of(x) && !ct_set_grad(x, NULL)) return false;
    }
    for (int i = 0; i < module->children.count; i++)
        if (!zero_grad(module->children.items[i].child)) return false;
    return true;
}

bool ct_module_zero_grad(ct_module *module) { return given(module, "module_zero_grad") && zero_grad(module); }

/* ---- Other tensors in place of those there: moves ---- */

typedef struct move {
    bool to_device;
    ct_dtype dtype;
    ct_device device;
    ct_tensor **from, **to; /* which becomes which; the new ones kept */
    int count, capacity;
} move;

static int moved_at(const move *m, const ct_tensor *x) {
    for (int i = 0; i < m->count; i++)
        if (m->from[i] == x) return i;
    return -1;
}

static ct_tensor *moved(const move *m, ct_tensor *x) {
    if (!m->to_device) {
        if (!ct_dtype_is_float(ct_dtype_of(x)) || ct_dtype_of(x) == m->dtype) return x;
        return ct_cast(x, m->dtype);
    }
    return ct_to(x, m->device);
}

static bool move_slot(void *context, const char *path, ct_module *owner, ct__slot *slot, bool buffer, int index) {
    (void)path, (void)owner, (void)index;
    move *m = context;
    if (moved_at(m, slot->x) >= 0) return true;
    if (m->count == m->capacity) {
        const int larger = m->capacity ? 2 * m->capacity : 32;
        ct_tensor **from = ct_realloc(m->from, (size_t)larger * sizeof *from);
        if (from) m->from = from;
        ct_tensor **to = ct_realloc(m->to, (size_t)larger * sizeof *to);
        if (to) m->to = to;
        if (!from || !to) return ct_fail(CT_ERR_MEMORY, "module_to", "out of memory");
        m->capacity = larger;
    }
    ct_scope {
        ct_tensor *y = NULL;
        ct_no_grad {
            y = moved(m, slot->x);
        }
        if (y && y != slot->x && !buffer && ct_requires_grad(slot->x)) y = ct_set_requires_grad(y, true);
        if (!ct_keep(y)) return false;
        m->from[m->count] = slot->x;
        m->to[m->count++] = y;
    }
    return true;
}

static bool commit_slot(void *context, const char *path, ct_module *owner, ct__slot *slot, bool buffer, int index) {
    (void)path, (void)owner, (void)buffer, (void)index;
    const move *m = context;
    const int at = moved_at(m, slot->x);
    if (at < 0) return true; /* a module that occurs twice: done already */
    ct_tensor *before = slot->x;
    slot->x = ct_keep(m->to[at]);
    ct_drop(before);
    return true;
}

/* All of the new tensors are made before the first one takes its place. */
static bool move_all(ct_module *module, move *m) {
    bool ok = ct__each_slot(module, move_slot, m);
    /* the old ones stay alive until the end, so that no new one can have the address of an old one */
    for (int i = 0; ok && i < m->count; i++) ct_keep(m->from[i]);
    const bool kept = ok;
    ok = ok && ct__each_slot(module, commit_slot, m);
    for (int i = 0; i < m->count; i++) {
        if (kept) ct_drop(m->from[i]);
        ct_drop(m->to[i]);
    }
    ct_free(m->from);
    ct_free(m->to);
    return ok;
}

bool ct_module_to_dtype(ct_module *module, ct_dtype dtype) {
    if (!given(module, "module_to_dtype")) return false;
    if ((unsigned)dtype >= CT_DTYPE_COUNT || !ct_dtype_is_float(dtype))
        return ct_fail(CT_ERR_DTYPE, "module_to_dtype", "%s is not a floating dtype",
                       (unsigned)dtype < CT_DTYPE_COUNT ? ct_dtype_name(dtype) : "this number");
    return move_all(module, &(move){.dtype = dtype});
}

bool ct_module_to_device(ct_module *module, ct_device device) {
    return given(module, "module_to_device") && move_all(module, &(move){.to_device = true, .device = device});
}
