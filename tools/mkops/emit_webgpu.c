/* Elementwise ops on WebGPU: every formula as a WGSL function over T, in one table of texts. The words that it is made of
 * are functions ct_WORD of the backend's library, where T is what elements are computed in: f32, i32 (also for narrower
 * integers and bool) or a pair of words. backends/webgpu/elementwise.wgsl has the loops that call it, and `p`. */
#include <string.h>

#include "mkops.h"

enum {
    MASKS = 1,
    TYPED = 5,
    ATTRS = 4
}; /* inputs of either kind that the loops know; attributes that `p` has room for */

/* fn formula(m: bool, a: T, b: T, c: T, d: T, e: T): the mask, then the others, each by its own name where there is one. */
static void emit_signature(text *t, const op_def *op) {
    static const char *const unused[] = {"m", "a", "b", "c", "d", "e"};
    const char *names[MASKS + TYPED] = {0};
    int masks = 0, typed = 0;
    for (int i = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i])) continue;
        const bool is_mask = op->args[i].is_mask;
        if (is_mask ? masks == MASKS : typed == TYPED)
            fail_at(op->file, op->line, "%s: the loops of the WebGPU backend know %d mask and %d other inputs",
                    op->name, MASKS, TYPED);
        names[is_mask ? masks++ : MASKS + typed++] = op->args[i].name;
    }
    put(t, "fn formula(");
    for (int i = 0; i < MASKS + TYPED; i++)
        put(t, "%s%s%s: %s", i ? ", " : "", names[i] ? "x_" : "", names[i] ? names[i] : unused[i],
            i < MASKS ? "bool" : "T");
    put(t, ") -> %s {\n", op->bool_result ? "i32" : "T");
}

/* Attributes are pairs of words in `p`, made of the dtype's numbers by the host. An enum that chooses is the constant CHOICE. */
static void emit_attrs(text *t, const op_def *op) {
    const op_def *names = owner(op);
    const formula *f = &op->value;
    int n = 0;
    for (int i = 0; i < names->n_args; i++) {
        const arg_def *arg = &names->args[i];
        if (!is_attr(arg)) continue;
        if (n == ATTRS)
            fail_at(op->file, op->line, "%s: the WebGPU backend has room for %d attributes", op->name, ATTRS);
        const char *words = form("p.attrs[%d].%s", n / 2, n % 2 ? "zw" : "xy");
        if (formula_uses(f, E_ATTR, i)) put(t, "    let at_%s = ct_from_words(%s);\n", arg->name, words);
        if (formula_uses(f, E_GIVEN, i)) put(t, "    let given_%s = (p.given & %uu) != 0u;\n", arg->name, 1u << n);
        n++;
    }
}

static void emit_case(text *t, const op_def *op, const expr *e, const char *indent) {
    dialect d = {.value = "ct_",
                 .truth = "ct_",
                 .number = "ct_number(%s)",
                 .style = WGSL,
                 .input = "x_",
                 .attr = "at_",
                 .given = "given_",
                 .highest = "p.highest"};
    emit_shared(t, owner(op), e, &d, indent, "", "");
    put(t, op->bool_result ? "%sreturn select(0, 1, " : "%sreturn ", indent);
    emit_expr(t, owner(op), e, &d);
    put(t, op->bool_result ? ");\n" : ";\n");
}

static char *formula_text(const op_def *op) {
    text t = {0};
    const formula *f = &op->value;
    emit_signature(&t, op);
    emit_attrs(&t, op);
    for (int i = 0; i < f->n - 1; i++) {
        put(&t, "    if (CHOICE == %du) {\n", i);
        emit_case(&t, op, f->cases[i], "        ");
        put(&t, "    }\n");
    }
    emit_case(&t, op, f->cases[f->n - 1], "    ");
    put(&t, "}\n");
    return t.s;
}

void emit_webgpu(const library *lib, const char *out) {
    text list = {0};
    put(&list, "/* The elementwise ops: name, first input that is no mask, the mask (-1: none), classes (floats, "
               "integers, bool:\n"
               " * a bit each), cost in simple instructions, the attribute that chooses (-1: none), formula. Written "
               "by mkops. */\n");
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (!op->elementwise) continue;
        int typed = -1, mask = -1;
        for (int k = 0; k < op->n_args; k++) {
            if (is_attr(&op->args[k])) continue;
            int *first = op->args[k].is_mask ? &mask : &typed;
            if (*first < 0) *first = input_number(op, k);
        }
        if (mask > 0) fail_at(op->file, op->line, "%s: a mask comes before all other inputs", op->name);
        put(&list, "CT_WGPU_ELEMENTWISE(%s, %d, %d, %d, %d, %d, %s)\n", op->name, typed, mask,
            (op->class != CLASS_INT) + 2 * (op->class != CLASS_FLOAT) +
                4 * (op->class == CLASS_ALL || op->class == CLASS_INT),
            formula_cost(&op->value), attr_number(op, op->value.choice), c_string(formula_text(op)));
    }
    write_if_changed(out, "gen/webgpu/elementwise.inc", &list);
}
