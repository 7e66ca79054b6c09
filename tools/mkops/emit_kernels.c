/* CPU kernels of elementwise ops: inner functions over contiguous elements, vectors for floats and plain loops for
 * integers, bool and whatever reads or writes truth values; and the table that the driver finds them in. */
#include <string.h>

#include "mkops.h"

typedef struct element {
    const char *name, *type, *vector, *mask; /* vector, mask: NULL for a plain loop */
    const char *lanes, *number, *highest;
} element;

static const element f32 = {"f32", "float", "vf32", "mf32", "VF32_LANES", "vf32_set1((float)%s)", "vf32_set1(FLT_MAX)"};
static const element f64 = {"f64", "double", "vf64", "mf64", "VF64_LANES", "vf64_set1(%s)", "vf64_set1(DBL_MAX)"};
/* computed in f32 on converted blocks; of their own only where the range of the dtype matters */
static const element f16 = {
    "f16", "float", "vf32", "mf32", "VF32_LANES", "vf32_set1((float)%s)", "vf32_set1(65504.0f)"};
static const element bf16 = {
    "bf16", "float", "vf32", "mf32", "VF32_LANES", "vf32_set1((float)%s)", "vf32_set1(0x1.fep127f)"};
static const element integers[] = {{.name = "i8", .type = "int8_t"},   {.name = "i16", .type = "int16_t"},
                                   {.name = "i32", .type = "int32_t"}, {.name = "i64", .type = "int64_t"},
                                   {.name = "u8", .type = "uint8_t"},  {.name = "b8", .type = "uint8_t"}};
enum { N_INTEGERS = sizeof integers / sizeof *integers };

static bool has_mask(const op_def *op) {
    for (int i = 0; i < op->n_args; i++)
        if (op->args[i].is_mask) return true;
    return op->bool_result;
}

static bool takes_integers(const op_def *op) { return op->class != CLASS_FLOAT; }
static bool takes_floats(const op_def *op) { return op->class != CLASS_INT; }
static bool takes_bool(const op_def *op) { return op->class == CLASS_ALL || op->class == CLASS_INT; }

/* Constants made of attributes, in variables before the loop: a store through the output might change them otherwise. */
static void emit_attr_values(text *t, const op_def *op, const element *e) {
    const formula *f = &op->value;
    const op_def *names = owner(op);
    if (!has_attrs(op)) {
        put(t, "    (void)attrs;\n");
        return;
    }
    put(t, "    const %s_attrs *a = attrs;\n    (void)a;\n", attrs_of(op));
    for (int i = 0; i < names->n_args; i++) {
        const arg_def *arg = &names->args[i];
        const char *value = form("a->%s%s", arg->name, arg->kind == ARG_OPT && arg->unset ? ".value" : "");
        if (formula_uses(f, E_GIVEN, i)) {
            if (e->vector)
                put(t, "    const %s given_%s = %s_ne(%s_set1(a->%s.set), %s_set1(0));\n", e->mask, arg->name,
                    e->vector, e->vector, arg->name, e->vector);
            else put(t, "    const bool given_%s = a->%s.set;\n", arg->name, arg->name);
        }
        if (!formula_uses(f, E_ATTR, i)) continue;
        if (e->vector)
            put(t, "    const %s at_%s = %s_set1((%s)%s);\n    (void)at_%s;\n", e->vector, arg->name, e->vector,
                e->type, value, arg->name);
        else put(t, "    const %s at_%s = %s_from_double((double)%s);\n", e->type, arg->name, e->name, value);
    }
}

static void emit_head(text *t, const op_def *op, const element *e) {
    put(t, "static void %s_%s(int64_t n, char *const *ptr, const int64_t *step, const void *attrs) {\n", op->name,
        e->name);
    emit_attr_values(t, op, e);
}

/* One vector (or, with a count, its first elements): loads, expression, store. */
static void emit_step(text *t, const op_def *op, const formula *f, int case_number, const element *e,
                      const char *indent, int at, const char *count) {
    dialect d = {.value = form("%s_", e->vector),
                 .truth = form("%s_", e->mask),
                 .number = e->number,
                 .style = PREFIX,
                 .input = "x_",
                 .attr = "at_",
                 .given = "given_",
                 .highest = e->highest};
    put(t, "%s{\n", indent);
    for (int i = 0, k = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i])) continue;
        put(t, "%s    const %s x_%s = %s_load%s(p%d", indent, e->vector, op->args[i].name, e->vector, count ? "_n" : "",
            k);
        if (at) put(t, " + %d * s%d", at, k);
        if (count) put(t, ", %s", count);
        put(t, ");\n");
        k++;
    }
    emit_shared(t, owner(op), f->cases[case_number], &d, form("%s    ", indent), e->vector, e->mask);
    put(t, "%s    %s_store%s(out", indent, e->vector, count ? "_n" : "");
    if (at) put(t, " + %d * %s", at, e->lanes);
    put(t, ", ");
    emit_expr(t, owner(op), f->cases[case_number], &d);
    if (count) put(t, ", %s", count);
    put(t, ");\n%s}\n", indent);
}

static void emit_advance(text *t, const op_def *op, const element *e, int vectors, const char *indent) {
    put(t, "%sout += %d * %s;\n", indent, vectors, e->lanes);
    for (int k = 0; k < count_inputs(op); k++) put(t, "%sp%d += %d * s%d;\n", indent, k, vectors, k);
}

/* Light expressions are unrolled. Costly ones have one copy of their code, whose loads and stores are cut short for
 * the tail, since speed is then in the arithmetic and size counts. */
static void emit_vector_loop(text *t, const op_def *op, const formula *f, int case_number, const element *e,
                             const char *indent) {
    const char *inner = form("%s    ", indent);
    if (formula_cost(f) > 8) {
        dialect d = {.value = form("%s_", e->vector),
                     .truth = form("%s_", e->mask),
                     .number = e->number,
                     .style = PREFIX,
                     .input = "x_",
                     .attr = "at_",
                     .given = "given_",
                     .highest = e->highest};
        put(t, "%sfor (; n > 0; n -= %s) {\n", indent, e->lanes);
        put(t, "%sconst int m = n < %s ? (int)n : %s;\n", inner, e->lanes, e->lanes);
        for (int i = 0, k = 0; i < op->n_args; i++) {
            if (is_attr(&op->args[i])) continue;
            put(t, "%sconst %s x_%s = CT_LOAD_SOME(%s, p%d, m);\n", inner, e->vector, op->args[i].name, e->vector, k);
            k++;
        }
        emit_shared(t, owner(op), f->cases[case_number], &d, inner, e->vector, e->mask);
        put(t, "%sconst %s result = ", inner, e->vector);
        emit_expr(t, owner(op), f->cases[case_number], &d);
        put(t, ";\n%sCT_STORE_SOME(%s, out, result, m);\n", inner, e->vector);
        emit_advance(t, op, e, 1, inner);
        put(t, "%s}\n", indent);
        return;
    }
    put(t, "%sfor (; CT_UNROLLS && n >= 4 * %s; n -= 4 * %s) {\n", indent, e->lanes, e->lanes);
    for (int at = 0; at < 4; at++) emit_step(t, op, f, case_number, e, inner, at, NULL);
    emit_advance(t, op, e, 4, inner);
    put(t, "%s}\n%sfor (; n >= %s; n -= %s) {\n", indent, indent, e->lanes, e->lanes);
    emit_step(t, op, f, case_number, e, inner, 0, NULL);
    emit_advance(t, op, e, 1, inner);
    put(t, "%s}\n%sif (n > 0)", indent, indent);
    emit_step(t, op, f, case_number, e, indent, 0, "(int)n");
}

static void emit_vector_kernel(text *t, const op_def *op, const element *e) {
    const formula *f = &op->value;
    emit_head(t, op, e);
    put(t, "    %s *out = (%s *)(void *)ptr[0];\n", e->type, e->type);
    for (int k = 0; k < count_inputs(op); k++) {
        put(t, "    const %s *p%d = (const %s *)(const void *)ptr[%d];\n", e->type, k, e->type, k + 1);
        put(t, "    const int64_t s%d = step[%d] * %s;\n", k, k + 1, e->lanes);
    }
    if (f->choice < 0) {
        emit_vector_loop(t, op, f, 0, e, "    ");
    } else {
        put(t, "    switch (a->%s) {\n", owner(op)->args[f->choice].name);
        for (int i = 0; i < f->n; i++) {
            put(t, i == f->n - 1 ? "    default:\n" : "    case %d:\n", i);
            emit_vector_loop(t, op, f, i, e, "        ");
            put(t, "        break;\n");
        }
        put(t, "    }\n");
    }
    put(t, "}\n\n");
}

/* A plain loop, which the compiler vectorises. All its inputs advance: the driver repeats single values. */
static void emit_plain_kernel(text *t, const op_def *op, const element *e) {
    const formula *f = &op->value;
    dialect d = {.value = form("%s_", e->name),
                 .truth = "truth_",
                 .number = form("%s_k(%%s)", e->name),
                 .style = PREFIX,
                 .input = "x_",
                 .attr = "at_",
                 .given = "given_",
                 .highest = ""};
    if (f->choice >= 0) fail_at(op->file, op->line, "%s: choose() is for ops on floats without truth values", op->name);
    emit_head(t, op, e);
    const char *result = op->bool_result ? "uint8_t" : e->type;
    put(t, "    (void)step;\n    %s *out = (%s *)(void *)ptr[0];\n", result, result);
    for (int i = 0, k = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i])) continue;
        const char *type = op->args[i].is_mask ? "uint8_t" : e->type;
        put(t, "    const %s *p%d = (const %s *)(const void *)ptr[%d];\n", type, k, type, k + 1);
        k++;
    }
    put(t, "    CT_IVDEP\n    for (int64_t i = 0; i < n; i++) {\n");
    for (int i = 0, k = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i])) continue;
        put(t, "        const %s x_%s = p%d[i];\n", op->args[i].is_mask ? "uint8_t" : e->type, op->args[i].name, k);
        k++;
    }
    put(t, "        out[i] = (%s)", result);
    emit_expr(t, owner(op), f->cases[0], &d);
    put(t, ";\n    }\n}\n\n");
}

static void emit_op_kernels(text *t, const op_def *op) {
    bool plain = has_mask(op), own_halves = formula_uses(&op->value, E_HIGHEST, -1);
    if (plain && formula_cost(&op->value) > 14)
        fail_at(op->file, op->line, "%s: an op on truth values becomes a plain loop, and may only use cheap words",
                op->name);
    put(t, "/* ---- %s ---- */\n\n", op->name);
    if (takes_floats(op)) {
        const element *floats[] = {&f32, &f64, &f16, &bf16};
        for (int i = 0; i < (own_halves ? 4 : 2); i++) {
            if (plain) emit_plain_kernel(t, op, floats[i]);
            else emit_vector_kernel(t, op, floats[i]);
        }
    }
    if (takes_integers(op))
        for (int i = 0; i < N_INTEGERS - !takes_bool(op); i++) emit_plain_kernel(t, op, &integers[i]);

    put(t, "static const ct_elementwise %s_table = {\n    .fn = {", op->name);
    if (takes_floats(op)) {
        const char *half = own_halves ? "f16" : "f32", *brain = own_halves ? "bf16" : "f32";
        put(t, "[CT_F32] = %s_f32, [CT_F64] = %s_f64, [CT_F16] = %s_%s, [CT_BF16] = %s_%s, ", op->name, op->name,
            op->name, half, op->name, brain);
    }
    if (takes_integers(op))
        for (int i = 0; i < N_INTEGERS - !takes_bool(op); i++)
            put(t, "[CT_%s] = %s_%s, ", i == N_INTEGERS - 1 ? "BOOL" : upper_case(integers[i].name), op->name,
                integers[i].name);
    unsigned masks = 0;
    int first = -1;
    for (int i = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i])) continue;
        if (op->args[i].is_mask) masks |= 1u << input_number(op, i);
        else if (first < 0) first = input_number(op, i);
    }
    put(t,
        "},\n    .isa = &CT_ISA_FN(ct__elementwise_isa),\n    .n_in = %d,\n    .typed = %d,\n    .masks = %u,\n    "
        ".to_bool = %s,\n    .plain = %s,\n"
        "    .cost = %d,\n};\n",
        count_inputs(op), first, masks, op->bool_result ? "true" : "false", plain ? "true" : "false",
        formula_cost(&op->value));
    put(t,
        "static bool %s_run(const ct_call *call, ct_stream *stream) {\n    (void)stream;\n"
        "    return ct__elementwise_run(call, &%s_table);\n}\n",
        op->name, op->name);
    put(t, "\n");
}

/* By name and not by place, so that a new op does not move the others to other files. */
unsigned elementwise_part(const char *name) {
    unsigned hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash >> 8) % ELEMENTWISE_PARTS;
}

static bool has_elementwise_attrs(const library *lib, const char *folder) {
    for (int i = 0; i < lib->n_ops; i++)
        if (lib->ops[i]->elementwise && has_attrs(lib->ops[i]) && strcmp(lib->ops[i]->folder, folder) == 0) return true;
    return false;
}

void emit_elementwise_kernels(const library *lib, const char *out) {
    for (unsigned part = 0; part < ELEMENTWISE_PARTS; part++) {
        text t = {0};
        put(&t, "/* Elementwise kernels, part %u of %d; compiled once per ISA. Written by mkops. */\n", part + 1,
            ELEMENTWISE_PARTS);
        put(&t, "#include \"backends/cpu/elementwise_kernel.h\"\n\n");
        for (int i = 0; i < lib->n_folders; i++)
            if (has_elementwise_attrs(lib, lib->folders[i])) put(&t, "#include \"gen/%s.attrs.h\"\n", lib->folders[i]);
        put(&t, "\n");
        if (part == 0) put(&t, "CT_ELEMENTWISE_ISA_TABLE\n\n");
        for (int i = 0; i < lib->n_ops; i++)
            if (lib->ops[i]->elementwise && elementwise_part(lib->ops[i]->name) == part)
                emit_op_kernels(&t, lib->ops[i]);
        put(&t, "CT_KERNELS(elementwise_%u) = {\n", part);
        for (int i = 0; i < lib->n_ops; i++)
            if (lib->ops[i]->elementwise && elementwise_part(lib->ops[i]->name) == part)
                put(&t, "    CT_ELEMENTWISE_ROW(%s)\n", lib->ops[i]->name);
        put(&t, "    {0},\n};\n");
        write_if_changed(out, form("gen/cpu/elementwise_%u.c", part), &t);
    }
}
