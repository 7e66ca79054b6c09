/* Modules of modules: sequential, residual, and a function as a module. */
#include <stdio.h>
#include <stdlib.h>

#include "nn/module.h"

/* ---- sequential ---- */

static ct_tensor *sequential_forward(ct_module *self, ct_tensor *x) {
    const ct__slots *children = &self->children;
    ct__chain chain = {.x = x};
    for (int i = 0; chain.x && i < children->count; i++) {
        ct_module *child = children->items[i].child;
        ct_activation then = CT_ACT_NONE;
        if (child->type->forward_then && i + 1 < children->count) then = children->items[i + 1].child->type->activation;
        if (then != CT_ACT_NONE) i++;
        ct__chain_open(&chain, i + 1 == children->count);
        ct__chain_close(&chain, ct__forward_then(child, chain.x, then));
    }
    return ct__chain_end(&chain);
}

/* The kinds that are a sequential under a name of their own. */
#define SEQUENTIALS(X) X(sequential) X(separable_conv2d) X(mlp) X(lenet) X(resnet) X(vgg) X(mobilenet_v2)
#define CLASS(id)      {.size = sizeof(ct_module_class), .name = #id, .forward = sequential_forward},
static const ct_module_class sequentials[] = {SEQUENTIALS(CLASS)};
#undef CLASS

ct_module *ct__sequential_new(const char *name) {
    if (!ct_ok()) return NULL;
    for (size_t i = 0; i < sizeof sequentials / sizeof *sequentials; i++)
        if (strcmp(sequentials[i].name, name) == 0) return ct_module_new(&sequentials[i]);
    return NULL;
}

bool ct_nn_append(ct_module *sequential, ct_module *module) {
    if (ct_ok() && !sequential) ct_fail(CT_ERR_NULL, "nn_append", "argument sequential is NULL");
    if (!sequential) {
        ct_module_free(module);
        return false;
    }
    char name[16];
    snprintf(name, sizeof name, "%d", sequential->children.count);
    return ct_module_add(sequential, name, module);
}

ct_module *ct_nn_sequential_n(ct_module *const *modules, int n) {
    ct_module *module = ct__sequential_new("sequential");
    bool ok = module != NULL;
    if (n > 0 && !modules) ok = ct_fail(CT_ERR_NULL, "nn_sequential", "argument modules is NULL");
    for (int i = 0; modules && i < n; i++) {
        if (ok && !modules[i] && ct_ok()) ct_fail(CT_ERR_NULL, "nn_sequential", "module %d is NULL", i);
        if (ok && modules[i]) ok = ct_nn_append(module, modules[i]);
        else {
            ct_module_free(modules[i]);
            ok = false;
        }
    }
    return ct__finish(module, ok);
}

/* ---- residual ---- */

static ct_tensor *residual_forward(ct_module *self, ct_tensor *x) {
    ct_tensor *y = ct_forward(self->children.items[0].child, x);
    if (self->children.count > 1) x = ct_forward(self->children.items[1].child, x);
    return ct__activate(ct_add(y, x), *(const ct_activation *)ct_module_data(self));
}

static void residual_describe(const ct_module *self, char *text, size_t capacity) {
    char all[32] = "";
    ct__write_activation(&(ct__writer){all, sizeof all, 0}, *(const ct_activation *)ct_module_data(self));
    if (all[0]) ct__write(&(ct__writer){text, capacity, 0}, "%s", all + 2);
}

static const ct_module_class residual_class = {.size = sizeof(ct_module_class),
                                               .name = "residual",
                                               .state = sizeof(ct_activation),
                                               .forward = residual_forward,
                                               .describe = residual_describe};

ct_module *ct_nn_residual(ct_module *body, ct_module *shortcut, ct_activation activation) {
    ct_module *module = NULL;
    if (ct_ok() && !body) ct_fail(CT_ERR_NULL, "nn_residual", "argument body is NULL");
    if (ct_ok() && ct__is_activation("nn_residual", activation)) module = ct_module_new(&residual_class);
    if (!module) {
        ct_module_free(body);
        ct_module_free(shortcut);
        return NULL;
    }
    *(ct_activation *)ct_module_data(module) = activation;
    if (!ct_module_add(module, "body", body)) {
        ct_module_free(shortcut);
        return ct__finish(module, false);
    }
    return ct__finish(module, !shortcut || ct_module_add(module, "shortcut", shortcut));
}

/* ---- A function ---- */

/* Its class lives with it, since the name is its own; shared by copies, which are counted. */
typedef struct function {
    ct_module_class type;
    _Atomic int refs;
    ct_nn_function fn;
    void *context;
    void (*release)(void *context);
    char name[];
} function;

static ct_tensor *lambda_forward(ct_module *self, ct_tensor *x) {
    const function *f = *(function **)ct_module_data(self);
    return f->fn(f->context, x);
}

static bool lambda_copy(const ct_module *from, ct_module *to) {
    (void)to; /* the bytes are there: the pointer */
    atomic_fetch_add_explicit(&(*(function **)ct_module_data(from))->refs, 1, memory_order_relaxed);
    return true;
}

static void lambda_release(ct_module *self) {
    function *f = *(function **)ct_module_data(self);
    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) > 1) return;
    if (f->release) f->release(f->context);
    ct_free(f);
}

ct_module *ct_nn_lambda(const char *name, ct_nn_function fn, void *context, void (*release)(void *context)) {
    const bool given =
        ct_ok() && ((name && fn) || ct_fail(CT_ERR_NULL, "nn_lambda", "argument %s is NULL", name ? "fn" : "name"));
    const size_t length = name ? strlen(name) : 0;
    function *f = given ? ct_calloc(1, sizeof *f + length + 1) : NULL;
    if (given && !f) ct_fail(CT_ERR_MEMORY, "nn_lambda", "out of memory");
    if (f) {
        memcpy(f->name, name, length);
        f->type = (ct_module_class){.size = sizeof(ct_module_class),
                                    .name = f->name,
                                    .state = sizeof f,
                                    .forward = lambda_forward,
                                    .copy = lambda_copy,
                                    .release = lambda_release};
        f->refs = 1;
        f->fn = fn;
        f->context = context;
        f->release = release;
    }
    ct_module *module = f ? ct_module_new(&f->type) : NULL;
    if (!module) {
        ct_free(f);
        if (release) release(context);
        return NULL;
    }
    *(function **)ct_module_data(module) = f;
    return module;
}
