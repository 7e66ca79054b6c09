/* Deep copies of modules. Tensors and modules that occur more than once are copied once, so what is tied stays tied. */
#include "nn/module.h"

#include <stdlib.h>

/* What has been copied, as pairs of addresses. */
typedef struct pairs {
    struct {
        const void *from;
        void *to;
    } * items;
    int count, capacity;
} pairs;

typedef struct copying {
    pairs modules, tensors;
} copying;

static void *find_pair(const pairs *p, const void *from) {
    for (int i = 0; i < p->count; i++)
        if (p->items[i].from == from) return p->items[i].to;
    return NULL;
}

static bool add_pair(pairs *p, const void *from, void *to) {
    if (p->count == p->capacity) {
        const int larger = p->capacity ? 2 * p->capacity : 32;
        void *items = ct_realloc(p->items, (size_t)larger * sizeof *p->items);
        if (!items) return ct_fail(CT_ERR_MEMORY, "module_copy", "out of memory");
        p->items = items;
        p->capacity = larger;
    }
    p->items[p->count].from = from;
    p->items[p->count++].to = to;
    return true;
}

/* In a scope around the whole copy: what is made lives until it ends, and longer where a module keeps it. */
static ct_tensor *copy_tensor(copying *c, ct_tensor *x) {
    ct_tensor *copy = find_pair(&c->tensors, x);
    if (copy) return copy;
    ct_no_grad {
        copy = ct_clone(x);
    }
    return copy && add_pair(&c->tensors, x, copy) ? copy : NULL;
}

static ct_module *copy_module(copying *c, ct_module *from) {
    ct_module *to = find_pair(&c->modules, from);
    if (to) return ct_module_keep(to);
    const ct_module_class *type = from->type;
    if (type->release && !type->copy) {
        ct_fail(CT_ERR_UNSUPPORTED, "module_copy", "a %s cannot be copied: its class has release but no copy",
                type->name);
        return NULL;
    }
    to = ct_module_new(from->given);
    if (!to) return NULL;
    to->training = from->training;
    memcpy(to->data, from->data, type->state);
    if (type->copy && !type->copy(from, to)) {
        /* its data are not its own, so its class must not release them */
        ct_fail(CT_ERR_STATE, "module_copy", "%s could not be copied", type->name);
        ct_free(to);
        return NULL;
    }
    bool ok = add_pair(&c->modules, from, to);
    for (int i = 0; ok && i < from->params.count; i++) {
        const ct__slot *slot = &from->params.items[i];
        ct_tensor *x = copy_tensor(c, slot->x);
        ok = x && ct_module_add_param(to, slot->name, x) &&
             (ct_requires_grad(slot->x) || ct_set_requires_grad(x, false));
    }
    for (int i = 0; ok && i < from->buffers.count; i++) {
        ct_tensor *x = copy_tensor(c, from->buffers.items[i].x);
        ok = x && ct_module_add_buffer(to, from->buffers.items[i].name, x);
    }
    for (int i = 0; ok && i < from->children.count; i++) {
        ct_module *child = copy_module(c, from->children.items[i].child);
        ok = child && ct_module_add(to, from->children.items[i].name, child);
    }
    return ct__finish(to, ok);
}

ct_module *ct_module_copy(ct_module *module) {
    if (!ct_ok()) return NULL;
    if (!module) {
        ct_fail(CT_ERR_NULL, "module_copy", "argument module is NULL");
        return NULL;
    }
    copying c = {0};
    ct_module *copy = NULL;
    ct_scope {
        copy = copy_module(&c, module);
    }
    ct_free(c.modules.items);
    ct_free(c.tensors.items);
    return copy;
}
