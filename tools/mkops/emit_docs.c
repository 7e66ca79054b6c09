/* The reference page of the ops, docs/ops.md. */
#include <string.h>

#include "mkops.h"

int option_rows(const op_def *op, option_row *rows) {
    static const char *const types[] = {
        [ARG_INPUT] = "tensor", [ARG_INT] = "int64_t",    [ARG_DOUBLE] = "double",   [ARG_BOOL] = "bool",
        [ARG_DIMS] = "ct_dims", [ARG_DTYPE] = "ct_dtype", [ARG_TEXT] = "text",       [ARG_ENUM] = "",
        [ARG_OPT] = "ct_opt",   [ARG_AXES] = "int64_t",   [ARG_DEVICE] = "ct_device"};
    int n = 0;
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (!is_option(arg)) continue;
        const char *type = arg->kind == ARG_ENUM ? form("ct_%s", arg->values->name) : types[arg->kind];
        rows[n++] = (option_row){arg->name, type, is_attr(arg) ? arg->written : "none", NULL, arg->values};
        if (arg->kind == ARG_AXES)
            rows[n++] =
                (option_row){form("%ss", arg->name), "ct_dims", NULL, form("by axis; wins over .%s", arg->name), NULL};
    }
    for (int i = 1; i < op->n_outputs; i++)
        rows[n++] = (option_row){op->outputs[i].name, "ct_tensor **", NULL, "a result, computed when asked for", NULL};
    if (op->random) rows[n++] = (option_row){"rng", "ct_rng *", "the generator of the process", NULL, NULL};
    return n;
}

const char *differentiable(const op_def *op) {
    if (op->nograd) return "Not differentiable.";
    if (!op->elementwise) return op->has_vjp || op->has_lower || op->view ? "Differentiable." : "Not differentiable.";
    bool zero = true;
    for (int i = 0; i < op->n_args; i++) zero &= op->gradients[i].n == 0;
    return zero ? "Its gradient is zero." : "Differentiable.";
}

const char *accepted_dtypes(const op_def *op) {
    static const char *const classes[] = {"Integers and bool become f32.", "Floats and integers, not bool.",
                                          "All dtypes.", "Integers and bool only."};
    return op->elementwise ? classes[op->class] : "";
}

static void emit_options_table(text *t, const op_def *op) {
    option_row rows[MOST_OPTIONS];
    const int n = option_rows(op, rows);
    if (n) put(t, "\n| option | type | default |\n|---|---|---|\n");
    for (int i = 0; i < n; i++)
        put(t, "| `.%s` | %s | %s |\n", rows[i].name, rows[i].type, rows[i].standard ? rows[i].standard : rows[i].note);
}

static void emit_op(text *t, const op_def *op) {
    put(t, "### %s\n\n    %s\n", op->name, call_form(op));
    if (has_scalar_form(op)) {
        put(t, "    ct_%s_s(%s, number)\n", op->name, op->args[0].name);
        if (!op->commutes) put(t, "    ct_r%s_s(%s, number)\n", op->name, op->args[1].name);
    }
    put(t, "\n%s %s", op->doc, differentiable(op));
    if (op->elementwise) put(t, " %s", accepted_dtypes(op));
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
