/* The reference page of the ops, docs/ops.md. */
#include <string.h>

#include "mkops.h"

static void emit_options_table(text *t, const op_def *op) {
    if (!has_options(op)) return;
    put(t, "\n| option | type | default |\n|---|---|---|\n");
    for (int i = 0; i < op->n_args; i++) {
        static const char *const types[] = {
            [ARG_INPUT] = "tensor", [ARG_INT] = "int64_t",    [ARG_DOUBLE] = "double",   [ARG_BOOL] = "bool",
            [ARG_DIMS] = "ct_dims", [ARG_DTYPE] = "ct_dtype", [ARG_TEXT] = "text",       [ARG_ENUM] = "",
            [ARG_OPT] = "ct_opt",   [ARG_AXES] = "int64_t",   [ARG_DEVICE] = "ct_device"};
        const arg_def *arg = &op->args[i];
        if (!is_option(arg)) continue;
        const char *type = arg->kind == ARG_ENUM ? form("ct_%s", arg->values->name) : types[arg->kind];
        put(t, "| `.%s` | %s | %s |\n", arg->name, type, is_attr(arg) ? arg->written : "none");
        if (arg->kind == ARG_AXES) put(t, "| `.%ss` | ct_dims | by axis; wins over `.%s` |\n", arg->name, arg->name);
    }
    for (int i = 1; i < op->n_outputs; i++)
        put(t, "| `.%s` | ct_tensor ** | a result, computed when asked for |\n", op->outputs[i].name);
    if (op->random) put(t, "| `.rng` | ct_rng * | the generator of the process |\n");
}

static const char *differentiable(const op_def *op) {
    if (op->nograd) return "Not differentiable.";
    if (!op->elementwise) return op->has_vjp || op->has_lower || op->view ? "Differentiable." : "Not differentiable.";
    bool zero = true;
    for (int i = 0; i < op->n_args; i++) zero &= op->gradients[i].n == 0;
    return zero ? "Its gradient is zero." : "Differentiable.";
}

static void emit_op(text *t, const op_def *op) {
    static const char *const classes[] = {"Integers and bool become f32.", "Floats and integers, not bool.",
                                          "All dtypes.", "Integers and bool only."};
    put(t, "### %s\n\n    %s\n", op->name, call_form(op));
    if (op->elementwise && op->n_args == 2 && count_inputs(op) == 2) {
        put(t, "    ct_%s_s(%s, number)\n", op->name, op->args[0].name);
        if (!op->commutes) put(t, "    ct_r%s_s(%s, number)\n", op->name, op->args[1].name);
    }
    put(t, "\n%s %s", op->doc, differentiable(op));
    if (op->elementwise) put(t, " %s", classes[op->class]);
    if (op->view) put(t, " The result is a view.");
    put(t, "\n");
    emit_options_table(t, op);
    for (int i = 0; i < op->n_args; i++) {
        const enum_def *e = op->args[i].values;
        if (!e) continue;
        put(t, "\n`%s`:", op->args[i].name);
        for (int k = 0; k < e->n; k++) put(t, "%s `%s`", k ? "," : "", e->constants[k]);
        put(t, "\n");
    }
    put(t, "\n");
}

void emit_docs(const library *lib, const char *out) {
    text t = {0};
    int count = 0;
    for (int i = 0; i < lib->n_ops; i++) count += !lib->ops[i]->internal;
    put(&t, "# The ops\n\nWritten by mkops from ops/: %d ops. Options go by name; zero means the default.\n\n", count);
    for (int i = 0; i < lib->n_folders; i++) {
        bool headed = false;
        for (int k = 0; k < lib->n_ops; k++) {
            const op_def *op = lib->ops[k];
            if (op->internal || strcmp(op->folder, lib->folders[i]) != 0) continue;
            if (!headed) put(&t, "## %s\n\n", lib->folders[i]);
            headed = true;
            emit_op(&t, op);
        }
    }
    write_if_changed(out, "docs/ops.md", &t);
}
