/* Running a module: a scope around the class's own function, and where an error happened added to its text. */
#include "nn/module.h"

#include <stdio.h>

/* The modules that are running on this thread, innermost first. */
typedef struct frame {
    const ct_module *module;
    const struct frame *up;
} frame;
static _Thread_local const frame *innermost;
static _Thread_local bool located; /* the pending error says where already */

static bool has_child(const ct_module *module, const ct_module *child) {
    for (int i = 0; i < module->children.count; i++)
        if (module->children.items[i].child == child) return true;
    return false;
}

static void write_path(const frame *f, ct__writer *writer) {
    if (!f->up) return; /* where the path begins */
    write_path(f->up, writer);
    /* a module may run its grandchildren itself, as a stack of layers does */
    const ct__slots *between = &f->up->module->children;
    for (int i = 0; !has_child(f->up->module, f->module) && i < between->count; i++)
        if (has_child(between->items[i].child, f->module))
            ct__write(writer, "%s%s", writer->length ? "." : "", between->items[i].name);
    if (f->module->name) ct__write(writer, "%s%s", writer->length ? "." : "", f->module->name);
}

/* Raises the pending error again with "; in layers.3 (conv2d)" at its end. */
static void locate(const frame *f) {
    if (located) return;
    located = true;
    char op[64], text[900], path[400] = "";
    const ct_code code = ct_error_code();
    snprintf(op, sizeof op, "%s", ct_error_op());
    const size_t prefix = strlen(op);
    const char *given = ct_error();
    if (prefix && strncmp(given, op, prefix) == 0 && strncmp(given + prefix, ": ", 2) == 0) given += prefix + 2;
    snprintf(text, sizeof text, "%s", given);
    write_path(f, &(ct__writer){path, sizeof path, 0});
    ct_error_clear();
    if (path[0]) ct_fail(code, op, "%s; in %s (%s)", text, path, f->module->type->name);
    else ct_fail(code, op, "%s; in %s", text, f->module->type->name);
}

static bool ready(const ct_module *module, const void *in, const char *what) {
    if (module && in) return true;
    if (ct_ok()) ct_fail(CT_ERR_NULL, "forward", "argument %s is NULL", module ? what : "module");
    return false;
}

ct_tensor *ct__activate(ct_tensor *x, ct_activation activation) {
    switch (activation) {
    case CT_ACT_NONE: return x;
    case CT_ACT_RELU: return ct_relu(x);
    case CT_ACT_SIGMOID: return ct_sigmoid(x);
    case CT_ACT_TANH: return ct_tanh(x);
    case CT_ACT_GELU: return ct_gelu(x);
    case CT_ACT_SILU: return ct_silu(x);
    }
    ct_fail(CT_ERR_VALUE, "activation", "%d is not an activation", (int)activation);
    return NULL;
}

ct_tensor *ct__forward_then(ct_module *module, ct_tensor *x, ct_activation activation) {
    if (!ready(module, x, "x")) return NULL;
    const ct_module_class *type = module->type;
    const bool clean = ct_ok();
    if (clean) located = false;
    const frame f = {module, innermost};
    innermost = &f;
    const ct_scope_mark mark = ct_scope_begin();
    ct_tensor *y = NULL;
    if (activation != CT_ACT_NONE && type->forward_then) y = type->forward_then(module, x, activation);
    else if (type->forward) y = ct__activate(type->forward(module, x), activation);
    else if (type->forward_n(module, &x, 1, &y, 1)) y = ct__activate(y, activation);
    if (y) {
        ct_pass(y);
    } else if (clean) {
        if (ct_ok()) ct_fail(CT_ERR_STATE, "forward", "%s gave no result", type->name);
        locate(&f);
    }
    ct_scope_end(mark);
    innermost = f.up;
    return y;
}

ct_tensor *ct_forward(ct_module *module, ct_tensor *x) { return ct__forward_then(module, x, CT_ACT_NONE); }

bool ct_forward_n(ct_module *module, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    if (!ready(module, in, "in")) return false;
    const ct_module_class *type = module->type;
    if (n < 1 || m < 1 || !out)
        return ct_fail(CT_ERR_VALUE, "forward", "%s: %d tensors in and %d out, expected at least 1 of each", type->name,
                       n, out ? m : 0);
    for (int i = 0; i < m; i++) out[i] = NULL;
    if (type->forward) {
        if (n != 1 || m != 1)
            return ct_fail(CT_ERR_VALUE, "forward", "%s takes 1 tensor and gives 1, not %d and %d", type->name, n, m);
        return (out[0] = ct_forward(module, in[0])) != NULL;
    }
    if (!ready(module, in[0], "in[0]")) return false;
    const bool clean = ct_ok();
    if (clean) located = false;
    const frame f = {module, innermost};
    innermost = &f;
    const ct_scope_mark mark = ct_scope_begin();
    const bool ok = type->forward_n(module, in, n, out, m);
    for (int i = 0; i < m; i++) {
        if (!ok) out[i] = NULL;
        else if (out[i]) ct_pass(out[i]);
    }
    if (!ok && clean) {
        if (ct_ok()) ct_fail(CT_ERR_STATE, "forward", "%s gave no result", type->name);
        locate(&f);
    }
    ct_scope_end(mark);
    innermost = f.up;
    return ok;
}

/* ---- Chains ---- */

void ct__chain_open(ct__chain *chain, bool last) {
    chain->inside = !last;
    if (!last) chain->mark = ct_scope_begin();
}

void ct__chain_close(ct__chain *chain, ct_tensor *y) {
    if (chain->inside) {
        ct_tensor *kept = y ? ct_keep(y) : NULL;
        ct_scope_end(chain->mark);
        ct_drop(chain->held);
        chain->held = kept;
    }
    chain->x = y;
}

ct_tensor *ct__chain_end(ct__chain *chain) {
    /* a last step that gave back what it got: no scope has that, so another view of it goes on */
    if (chain->held && chain->x == chain->held) chain->x = ct_reshape(chain->held, ct_shape(chain->held));
    ct_drop(chain->held);
    return chain->x;
}
