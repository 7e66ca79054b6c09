/* Every elementwise formula as text in scalar C and CUDA (the vector dialect is in the kernels, WGSL in emit_webgpu.c). The scalar
 * file stands alone: it is the reference that tests compare kernels with. CUDA's names its helpers ct_WORD. */
#include <string.h>

#include "mkops.h"

/* The body of a function in either: it returns the formula, or that of the chosen case. */
static void emit_body(text *t, const op_def *op, const dialect *d) {
    const formula *f = &op->value;
    for (int i = 0; i < f->n; i++) {
        bool last = i == f->n - 1;
        put(t, "    ");
        if (!last) put(t, "if (at_%s == %d) { ", owner(op)->args[f->choice].name, i);
        put(t, "return ");
        emit_expr(t, owner(op), f->cases[i], d);
        put(t, last ? ";\n}\n" : "; }\n");
    }
}

static void emit_scalar(text *t, const op_def *op) {
    dialect d = {.value = "s_",
                 .truth = "s_",
                 .number = "%s",
                 .style = PREFIX,
                 .input = "x_",
                 .attr = "at_",
                 .given = "given_",
                 .highest = "DBL_MAX"};
    const op_def *names = owner(op);
    put(t,
        "static double %s(const double *in, const double *attr, const int *given) {\n    (void)in, (void)attr, "
        "(void)given;\n",
        form("op_%s", op->name));
    int n_in = 0, n_attr = 0;
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i])) put(t, "    const double x_%s = in[%d];\n", op->args[i].name, n_in++);
    if (has_attrs(op)) put(t, "    struct {\n");
    for (int i = 0; i < names->n_args; i++)
        if (is_attr(&names->args[i])) {
            const arg_def *arg = &names->args[i];
            put(t,
                arg->kind == ARG_OPT && arg->unset ? "        struct { int set; double value; } %s;\n"
                                                   : "        double %s;\n",
                arg->name);
        }
    if (has_attrs(op)) put(t, "    } attrs, *const a = &attrs;\n    (void)a;\n");
    for (int i = 0; i < names->n_args; i++) {
        const arg_def *arg = &names->args[i];
        if (!is_attr(arg)) continue;
        put(t,
            "    const double at_%s = attr[%d];\n    const int given_%s = given[%d];\n    (void)at_%s, "
            "(void)given_%s;\n",
            arg->name, n_attr, arg->name, n_attr, arg->name, arg->name);
        if (arg->kind == ARG_OPT && arg->unset)
            put(t, "    a->%s.value = attr[%d], a->%s.set = given[%d];\n", arg->name, n_attr, arg->name, n_attr);
        else put(t, "    a->%s = attr[%d];\n", arg->name, n_attr);
        n_attr++;
    }
    emit_body(t, op, &d);
}

void emit_cuda_formula(text *t, const op_def *op) {
    static const char *const stored[] = {"exp", "sigmoid", "ndtr", NULL};
    dialect d = {.value = "ct_",
                 .stored = stored,
                 .truth = "ct_",
                 .number = "T(%s)",
                 .style = INFIX,
                 .input = "x_",
                 .attr = "at_",
                 .given = "given_",
                 .highest = "T(ct_highest<S>())"};
    const op_def *names = owner(op);
    int n = 0;
    put(t, "template <typename T, typename S = T> __device__ inline %s ct_op_%s(", op->bool_result ? "bool" : "T",
        op->name);
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i]))
            put(t, "%s%s x_%s", n++ ? ", " : "", op->args[i].is_mask ? "bool" : "T", op->args[i].name);
    for (int i = 0; i < names->n_args; i++) {
        const arg_def *arg = &names->args[i];
        if (!is_attr(arg)) continue;
        put(t, ", %s at_%s", arg->kind == ARG_ENUM || arg->kind == ARG_INT ? "int" : "T", arg->name);
        if (arg->kind == ARG_OPT && arg->unset) put(t, ", bool given_%s", arg->name);
    }
    put(t, ") {\n");
    emit_body(t, op, &d);
}

void emit_dialects(const library *lib, const char *out) {
    text scalar = {0}, cuda = {0};
    put(&scalar, "/* Every elementwise formula in scalar C, as doubles. Written by mkops. */\n#include "
                 "\"tools/mkops/scalar_words.h\"\n\n");
    put(&cuda, "// Every elementwise formula as a CUDA device function over T, which elements of S in memory are "
               "computed in. Written by mkops.\n");
    for (int i = 0; i < lib->n_ops; i++) {
        if (!lib->ops[i]->elementwise) continue;
        emit_scalar(&scalar, lib->ops[i]);
        emit_cuda_formula(&cuda, lib->ops[i]);
    }
    put(&scalar, "\nconst ct_scalar_op ct_scalar_ops[] = {\n");
    for (int i = 0; i < lib->n_ops; i++)
        if (lib->ops[i]->elementwise) put(&scalar, "    {\"%s\", op_%s},\n", lib->ops[i]->name, lib->ops[i]->name);
    put(&scalar, "    {NULL, NULL},\n};\n");
    write_if_changed(out, "gen/dialects/scalar.c", &scalar);
    write_if_changed(out, "gen/dialects/cuda.cu", &cuda);
}
