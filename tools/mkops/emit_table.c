/* The op table: attribute structs and declarations, the constant ct_op of every op, and the list of CPU kernels. */
#include <string.h>

#include "mkops.h"

/* ---- FOLDER.attrs.h and ops_decl.h ------------------------------------------------------------------------ */

static void emit_attr_struct(text *t, const op_def *op) {
    if (!op->elementwise) put(t, "\n#define CT_OP_NAME_%s \"%s\"\n", op->name, op->name);
    if (!has_attrs(op) || op->of) return;
    put(t, "\ntypedef struct %s_attrs {\n", op->name);
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        const char *type = "";
        switch (arg->kind) {
        case ARG_INPUT: continue;
        case ARG_INT: type = "int64_t"; break;
        case ARG_DOUBLE: type = "double"; break;
        case ARG_BOOL: type = "bool"; break;
        case ARG_DIMS:
        case ARG_AXES: type = "ct_dims"; break;
        case ARG_DTYPE: type = "ct_dtype"; break;
        case ARG_TEXT: type = "ct_text"; break;
        case ARG_ENUM: type = "int"; break;
        case ARG_OPT: type = arg->unset ? "ct_opt" : "double"; break;
        case ARG_DEVICE: type = "ct_device"; break;
        }
        put(t, "    %s %s%s;", type, arg->name, arg->kind == ARG_AXES ? "s" : "");
        if (arg->kind == ARG_ENUM) put(t, " /* ct_%s */", arg->values->name);
        put(t, "\n");
    }
    put(t, "} %s_attrs;\n", op->name);
}

static bool has_ops(const library *lib, const char *folder) {
    for (int i = 0; i < lib->n_ops; i++)
        if (strcmp(lib->ops[i]->folder, folder) == 0) return true;
    return false;
}

/* Kernels see the attributes of their own folder only: an op that is added or changed elsewhere does not recompile them. */
static void emit_attrs(const library *lib, const char *folder, const char *out) {
    text t = {0};
    put(&t,
        "/* What the kernels of ops/%s know of their options. Written by mkops. */\n#pragma once\n\n"
        "#include <cotangent/enums.h>\n#include <cotangent/op.h>\n",
        folder);
    for (int i = 0; i < lib->n_ops; i++)
        if (strcmp(lib->ops[i]->folder, folder) == 0) emit_attr_struct(&t, lib->ops[i]);
    write_if_changed(out, form("gen/%s.attrs.h", folder), &t);
}

void emit_decl(const library *lib, const char *out) {
    text t = {0};
    put(&t, "/* Attribute structs, the ops themselves, their functions, and the C interface of internal ops. Written "
            "by mkops. */\n"
            "#ifndef COTANGENT_OPS_DECL_H\n#define COTANGENT_OPS_DECL_H\n\n#include <cotangent/op.h>\n\n");
    for (int i = 0; i < lib->n_folders; i++) {
        if (!has_ops(lib, lib->folders[i])) continue;
        emit_attrs(lib, lib->folders[i], out);
        put(&t, "#include \"gen/%s.attrs.h\"\n", lib->folders[i]);
    }
    put(&t,
        "\nextern const ct_op *const ct__ops[]; /* by name */\nextern const int ct__op_total;\n"
        "enum { CT__OP_TOTAL = %d };\n\n"
        "/* ct_apply of an op of ours with one result, whose number of inputs is right. */\n"
        "ct_tensor *ct__apply_one(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs);\n"
        "/* The same where no attribute could be wrong as such: numbers, and lists that were counted. */\n"
        "ct_tensor *ct__apply_plain(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs);\n"
        "/* A number of x's dtype; NULL for a fraction where x is of integers (an error) and where "
        "x is NULL. */\n"
        "ct_tensor *ct__scalar_for(const ct_tensor *x, double value, const char *op);\n",
        lib->n_ops);
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        put(&t, "\nextern const ct_op ct__op_%s;\n", op->name);
        if (op->has_infer && !op->elementwise) put(&t, "bool %s_infer(ct_infer *infer);\n", op->name);
        if (op->has_vjp) put(&t, "void %s_vjp(ct_vjp *v);\n", op->name);
        if (op->has_lower) put(&t, "void %s_lower(ct_lower *l);\n", op->name);
        if (op->has_hand_on) put(&t, "bool %s_hand_on(ct_handing *h);\n", op->name);
        if (op->has_saves_less) put(&t, "void %s_saves_less(ct_saving *s);\n", op->name);
        if (op->internal && !op->of) {
            emit_options(&t, op);
            put(&t, "%s;\n", c_prototype(op));
        }
    }
    emit_internal_macros(&t, lib);
    put(&t, "\n#endif\n");
    write_if_changed(out, "gen/ops_decl.h", &t);
}

/* ---- ops_table.c ------------------------------------------------------------------------------------------ */

static void put_flag(text *t, bool set, const char *name, bool *any) {
    if (!set) return;
    put(t, "%s%s", *any ? " | " : "", name);
    *any = true;
}

static void emit_arg(text *t, const arg_def *arg) {
    bool any = false;
    put(t, "{\"%s\", ", arg->name);
    put_flag(t, arg->optional, "CT_ARG_OPTIONAL", &any);
    put_flag(t, arg->list, "CT_ARG_LIST", &any);
    put_flag(t, arg->broadcast, "CT_ARG_BROADCAST", &any);
    put_flag(t, arg->promote, "CT_ARG_PROMOTE", &any);
    put_flag(t, arg->is_float, "CT_ARG_FLOAT", &any);
    put_flag(t, arg->is_index, "CT_ARG_INDEX", &any);
    put_flag(t, arg->is_mask, "CT_ARG_BOOL", &any);
    put_flag(t, arg->mutated, "CT_ARG_MUTATED", &any);
    put(t, "%s}, ", any ? "" : "0");
}

static void emit_schema(text *t, const op_def *op) {
    static const char *const types[] = {
        [ARG_INT] = "INT",     [ARG_DOUBLE] = "DOUBLE", [ARG_BOOL] = "BOOL", [ARG_DIMS] = "DIMS",
        [ARG_DTYPE] = "DTYPE", [ARG_TEXT] = "TEXT",     [ARG_ENUM] = "ENUM", [ARG_OPT] = "OPT",
        [ARG_AXES] = "AXES",   [ARG_DEVICE] = "DEVICE"};
    put(t, "static const ct_attr %s_schema[] = {\n", op->name);
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (!is_attr(arg)) continue;
        const char *type = arg->kind == ARG_OPT && !arg->unset ? "DOUBLE" : types[arg->kind];
        bool axes = arg->kind == ARG_AXES;
        put(t, "    {.name = \"%s\", .type = CT_ATTR_%s, .required = %s, .offset = offsetof(%s_attrs, %s%s)", arg->name,
            type, arg->positional ? "true" : "false", op->name, arg->name, axes ? "s" : "");
        if (axes) put(t, ", .plural = \"%ss\"", arg->name);
        if (arg->number != 0) put(t, ", .number = %s", c_double(arg->number));
        if (arg->kind == ARG_ENUM) put(t, ", .values = ct__%s_values", arg->values->name);
        put(t, "},\n");
    }
    put(t, "    {.name = NULL},\n};\n");
}

static const char *elementwise_infer(const op_def *op) {
    static const char *const classes[] = {"float", "num", "all", "int"};
    return form("ct__infer_%s%s", classes[op->class], op->bool_result ? "_to_bool" : "");
}

static unsigned long long saved_bits(const op_def *op) {
    unsigned long long bits = 0;
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i]) && op->saves_arg[i]) bits |= input_bits(op, i);
    return bits;
}

/* What each input's gradient reads, where that differs from all that is saved. */
static void emit_saves_for(text *t, const op_def *op, unsigned long long outputs) {
    bool differs = false;
    for (int i = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i])) continue;
        if (op->args[i].list || !op->reads_in) return;
        differs |= op->reads_in[i] != saved_bits(op) || op->reads_out[i] != outputs;
    }
    if (!differs) return;
    put(t, "    .saves_for = (const ct_saves[]){");
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i])) put(t, "{0x%llxu, 0x%llxu}, ", op->reads_in[i], op->reads_out[i]);
    put(t, "},\n");
}

/* The lists of arguments that are there already: most ops take and give what others do, and share their list. */
typedef struct arg_lists {
    char **list; /* list[i] is what args_i holds */
    int n;
} arg_lists;

static int emit_args(text *t, arg_lists *known, const char *list) {
    for (int i = 0; i < known->n; i++)
        if (strcmp(known->list[i], list) == 0) return i;
    put(t, "static const ct_arg args_%d[] = {%s{NULL, 0}};\n", known->n, list);
    known->list = grow(known->list, known->n, sizeof *known->list);
    known->list[known->n] = copy_n(list, strlen(list));
    return known->n++;
}

static void emit_op(text *t, arg_lists *known, const op_def *op) {
    bool any = false;
    const char *name = op->name;
    unsigned long long outputs = 0;
    text in = {0}, out = {0};
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i])) emit_arg(&in, &op->args[i]);
    for (int i = 0; i < op->n_outputs; i++) {
        emit_arg(&out, &op->outputs[i]);
        if (op->saves_output[i]) outputs |= 1ull << i;
    }
    const int inputs = emit_args(t, known, in.s ? in.s : ""), results = emit_args(t, known, out.s ? out.s : "");
    if (has_attrs(op) && !op->of) emit_schema(t, op);
    put(t, "static ct_op_slot %s_slot;\n", name);
    put(t, "const ct_op ct__op_%s = {\n    .size = sizeof(ct_op),\n    .name = \"%s\",\n    .doc = %s,\n", name, name,
        c_string(op->doc));
    put(t, "    .inputs = args_%d,\n    .outputs = args_%d,\n", inputs, results);
    if (has_attrs(op))
        put(t, "    .attrs = %s_schema,\n    .attr_size = sizeof(%s_attrs),\n", attrs_of(op), attrs_of(op));
    put(t, "    .flags = ");
    put_flag(t, op->elementwise, "CT_OP_ELEMENTWISE", &any);
    put_flag(t, op->view, "CT_OP_VIEW", &any);
    put_flag(t, op->random, "CT_OP_RANDOM", &any);
    put_flag(t, op->nograd, "CT_OP_NO_GRAD", &any);
    put_flag(t, op->mutates, "CT_OP_MUTATES", &any);
    put_flag(t, op->internal, "CT_OP_INTERNAL", &any);
    put_flag(t, op->alias, "CT_OP_ALIAS_OK", &any);
    put_flag(t, op->moves, "CT_OP_MOVES", &any);
    put_flag(t, op->transfers, "CT_OP_TRANSFERS", &any);
    put_flag(t, op->narrow, "CT_OP_NARROW", &any);
    put_flag(t, op->wide, "CT_OP_WIDE", &any);
    put_flag(t, op->recompute, "CT_OP_RECOMPUTE", &any);
    put_flag(t, op->waits, "CT_OP_WAITS", &any);
    put_flag(t, op->partial, "CT_OP_PARTIAL", &any);
    put(t, "%s,\n", any ? "" : "0");
    if (saved_bits(op)) put(t, "    .saves_in = 0x%llxu,\n", saved_bits(op));
    if (outputs) put(t, "    .saves_out = 0x%llxu,\n", outputs);
    emit_saves_for(t, op, outputs);
    if (op->elementwise) put(t, "    .infer = %s,\n", elementwise_infer(op));
    else if (op->has_infer) put(t, "    .infer = %s_infer,\n", name);
    if (op->has_vjp) put(t, "    .vjp = %s_vjp,\n", name);
    if (op->has_lower) put(t, "    .lower = %s_lower,\n", name);
    if (op->has_hand_on) put(t, "    .hand_on = %s_hand_on,\n", name);
    if (op->has_saves_less) put(t, "    .saves_less = %s_saves_less,\n", name);
    put(t, "    .samples =");
    for (const char *s = op->samples.s ? op->samples.s : ""; *s;) {
        size_t n = strcspn(s, "\n");
        put(t, "\n        %s", c_string(form("%.*s\n", (int)n, s)));
        s += n + 1;
    }
    put(t, "%s,\n    .slot = &%s_slot,\n};\n\n", op->n_samples ? "" : " \"\"", name);
}

void emit_table(const library *lib, const char *out) {
    text t = {0};
    put(&t, "/* Every op: what the library knows of it, and the list in order of name. Written by mkops. */\n"
            "#include <math.h>\n#include <stddef.h>\n\n#include <cotangent/op.h>\n\n#include \"gen/ops_decl.h\"\n"
            "#include \"ops/elementwise/elementwise.h\"\n\n");
    for (int i = 0; i < lib->n_enums; i++) {
        put(&t, "__attribute__((unused)) static const char *const ct__%s_values[] = {", lib->enums[i]->name);
        for (int k = 0; k < lib->enums[i]->n; k++) put(&t, "\"%s\", ", lib->enums[i]->values[k]);
        put(&t, "NULL};\n");
    }
    put(&t, "\n");
    arg_lists known = {0};
    for (int i = 0; i < lib->n_ops; i++) emit_op(&t, &known, lib->ops[i]);
    put(&t, "const ct_op *const ct__ops[] = {\n");
    for (int i = 0; i < lib->n_ops; i++) put(&t, "    &ct__op_%s,\n", lib->sorted[i]->name);
    put(&t, "    NULL,\n};\nconst int ct__op_total = CT__OP_TOTAL;\n");
    write_if_changed(out, "gen/ops_table.c", &t);
}

/* ---- kernels_BACKEND.inc ------------------------------------------------------------------------------------ */

void emit_kernel_lists(const library *lib, const char *out) {
    for (int i = 0; i < lib->n_backends; i++) {
        const backend_def *backend = &lib->backends[i];
        text t = {0};
        put(&t, "/* The files that list kernels of this backend, by place: ops/FOLDER/%s/FILE. Written by mkops. */\n",
            backend->name);
        for (int k = 0; k < backend->n_files; k++) put(&t, "CT_KERNEL_FILE(%s)\n", backend->files[k]);
        if (strcmp(backend->name, "cpu") == 0)
            for (int part = 0; part < ELEMENTWISE_PARTS; part++) put(&t, "CT_KERNEL_FILE(elementwise_%d)\n", part);
        write_if_changed(out, form("gen/kernels_%s.inc", backend->name), &t);
    }
}
