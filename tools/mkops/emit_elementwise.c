/* What elementwise lines become besides their entry in the table: vjp, and lower of fused gradients, in ops. */
#include <stdlib.h>
#include <string.h>

#include "mkops.h"

/* ---- A formula in ops ---------------------------------------------------------------------------------------- */

typedef struct lowering {
    const library *lib;
    const op_def *op; /* whose arguments the formula names */
    text *t;
    const char *indent;
    char *(*name)(const struct lowering *l, const expr *e); /* of an input, the result or the cotangent */
    const op_def *fused;
    const char *reference; /* a tensor of the dtype that constants take */
    char **made, **names;  /* C text of each call so far, and the variable that holds it: equal calls are made once */
    int n;
} lowering;

static char *name_in_vjp(const lowering *l, const expr *e) {
    if (e->kind == E_COTANGENT) return "v->cot[0]";
    if (e->kind == E_RESULT) return "v->out[0]";
    return form("v->in[%d]", input_number(l->op, e->arg));
}

static char *name_in_lower(const lowering *l, const expr *e) {
    const char *name = e->kind == E_COTANGENT ? "g" : e->kind == E_RESULT ? "y" : l->op->args[e->arg].name;
    for (int i = 0; i < l->fused->n_args; i++)
        if (!is_attr(&l->fused->args[i]) && strcmp(l->fused->args[i].name, name) == 0)
            return form("l->in[%d]", input_number(l->fused, i));
    return "NULL";
}

/* The variable that holds this text, declared at its first use. */
static char *hold(lowering *l, char *made) {
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->made[i], made) == 0) return l->names[i];
    l->made = grow(l->made, l->n, sizeof *l->made);
    l->names = grow(l->names, l->n, sizeof *l->names);
    l->made[l->n] = made;
    l->names[l->n] = form("t%d", l->n);
    put(l->t, "%sct_tensor *t%d = %s;\n", l->indent, l->n, made);
    return l->names[l->n++];
}

static char *lower_expr(lowering *l, const expr *e) {
    const op_def *op = l->op;
    if (e->uniform) {
        text value = {0};
        emit_uniform(&value, op, e);
        return hold(l, form("ct__scalar_for(%s, %s, \"%s\")", l->reference, value.s, op->name));
    }
    if (e->kind == E_HIGHEST || e->kind == E_GIVEN)
        fail_at(op->file, op->line,
                "%s: a gradient can use given() only as the condition of select(), and highest() not at all", op->name);
    if (e->kind != E_CALL) return l->name(l, e);

    const word *w = e->word;
    if (e->a[0]->kind == E_GIVEN) { /* decided here, not in each element */
        if (strcmp(w->name, "select") != 0 || e->a[1]->uniform || e->a[2]->uniform)
            fail_at(op->file, op->line, "%s: given() goes with select(given(option), tensor, tensor)", op->name);
        char *yes = lower_expr(l, e->a[1]), *no = lower_expr(l, e->a[2]);
        return hold(l, form("a->%s.set ? %s : %s", op->args[e->a[0]->arg].name, yes, no));
    }
    if (!find_op(l->lib, w->op))
        fail_at(op->file, op->line, "%s: its gradient uses %s, but there is no op %s", op->name, w->name, w->op);
    if (strcmp(w->name, "polygamma") == 0) {
        text order = {0};
        emit_uniform(&order, op, e->a[0]);
        return hold(l, form("apply(&ct__op_polygamma, (ct_tensor *[]){%s}, 1, &(polygamma_attrs){.n = (int64_t)(%s)})",
                            lower_expr(l, e->a[1]), order.s));
    }
    char *args[3];
    for (int i = 0; i < w->n_args; i++) args[i] = lower_expr(l, e->a[i]);
    text t = {0};
    put(&t, "apply(&ct__op_%s, (ct_tensor *[]){", w->op);
    for (int i = 0; i < w->n_args; i++) put(&t, "%s%s", i ? ", " : "", args[i]);
    put(&t, "}, %d, NULL)", w->n_args);
    return hold(l, t.s);
}

static void emit_fused_call(text *t, const op_def *op, const op_def *fused, int input) {
    put(t, "        v->grad[%d] = apply(&ct__op_%s, (ct_tensor *[]){", input, fused->name);
    for (int j = 0, n = 0; j < fused->n_args; j++) {
        const char *name = fused->args[j].name;
        if (is_attr(&fused->args[j])) continue;
        put(t, "%s", n++ ? ", " : "");
        if (strcmp(name, "g") == 0) put(t, "v->cot[0]");
        else if (strcmp(name, "y") == 0) put(t, "v->out[0]");
        else
            for (int m = 0; m < op->n_args; m++)
                if (strcmp(op->args[m].name, name) == 0) put(t, "v->in[%d]", input_number(op, m));
    }
    put(t, "}, %d, %s);\n", count_inputs(fused), has_attrs(op) ? "v->attrs" : "NULL");
}

static void emit_vjp(text *t, const library *lib, const op_def *op) {
    put(t, "void %s_vjp(ct_vjp *v) {\n", op->name);
    bool any = false;
    for (int i = 0; i < op->n_args; i++) {
        const formula *f = &op->gradients[i];
        int k = input_number(op, i);
        if (f->n == 0) continue;
        any = true;
        put(t, "    if (v->need[%d]) {\n", k);
        if (op->fused[i]) {
            if (op->half_fused[i]) {
                /* changed in place the argument is gone, and the result has to do */
                put(t, "        if (ct__dtype_is_half(ct_dtype_of(v->cot[0])) && v->in[%d])\n    ", k);
                emit_fused_call(t, op, op->half_fused[i], k);
                put(t, "        else\n    ");
            }
            emit_fused_call(t, op, op->fused[i], k);
        } else {
            if (has_attrs(op)) put(t, "        const %s_attrs *a = v->attrs;\n        (void)a;\n", op->name);
            lowering l = {
                .lib = lib, .op = op, .t = t, .indent = "        ", .name = name_in_vjp, .reference = "v->cot[0]"};
            char *result = lower_expr(&l, f->cases[0]);
            put(t, "        v->grad[%d] = %s;\n", k, result);
        }
        put(t, "    }\n");
    }
    if (!any) put(t, "    (void)v; /* zero everywhere */\n");
    put(t, "}\n\n");
}

static void emit_lower(text *t, const library *lib, const op_def *op) {
    const formula *f = &op->value;
    const op_def *names = owner(op);
    int reference = 0; /* any input that is no mask */
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i]) && !op->args[i].is_mask) reference = input_number(op, i);
    put(t, "void %s_lower(ct_lower *l) {\n", op->name);
    if (has_attrs(op)) put(t, "    const %s_attrs *a = l->attrs;\n    (void)a;\n", attrs_of(op));
    for (int i = 0; i < f->n; i++) {
        bool block = f->n > 1;
        if (block)
            put(t, "    %s%s{\n", i ? "else " : "",
                i == f->n - 1 ? "" : form("if (a->%s == %d) ", names->args[f->choice].name, i));
        lowering l = {.lib = lib,
                      .op = names,
                      .fused = op,
                      .t = t,
                      .indent = block ? "        " : "    ",
                      .name = name_in_lower,
                      .reference = form("l->in[%d]", reference)};
        char *result = lower_expr(&l, f->cases[i]);
        put(t, "%sl->out[0] = %s;\n", l.indent, result);
        if (block) put(t, "    }\n");
    }
    put(t, "}\n\n");
}

void emit_elementwise_ops(const library *lib, const char *out) {
    text t = {0};
    put(&t,
        "/* Derivatives of the elementwise ops, and fused gradients in simpler ops. Written by mkops. */\n"
        "#include <math.h>\n\n#include <cotangent/op.h>\n\n#include \"core/dtype.h\"\n#include \"gen/ops_decl.h\"\n\n"
        "__attribute__((unused)) static ct_tensor *apply(const ct_op *op, ct_tensor *const *in, int n, const void "
        "*attrs) {\n"
        "    return ct__apply_one(op, in, n, attrs);\n}\n\n");
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (!op->elementwise) continue;
        if (op->has_vjp) emit_vjp(&t, lib, op);
        if (op->has_lower) emit_lower(&t, lib, op);
    }
    write_if_changed(out, "gen/elementwise.c", &t);
}
