/* Elementwise lines: name(inputs, attributes) : class [-> bool] = value ; dx = gradient ; in domain ; "doc". */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "mkops.h"

/* The next part of a line up to a semicolon outside quotes; NULL at the end. */
static char *next_part(const char **p) {
    while (isspace((unsigned char)**p)) (*p)++;
    if (!**p) return NULL;
    const char *start = *p;
    bool quoted = false;
    for (; **p && (quoted || **p != ';'); (*p)++)
        if (**p == '"') quoted = !quoted;
    size_t n = (size_t)(*p - start);
    while (n && isspace((unsigned char)start[n - 1])) n--;
    *p += **p == ';';
    return copy_n(start, n);
}

static void parse_args(const library *lib, cursor *c, op_def *op) {
    expect(c, "(");
    do {
        arg_def arg = {.kind = ARG_INPUT};
        if (at_text(c, "mask")) {
            arg.name = take_name(c, "an input's name");
            arg.is_mask = true;
        } else if (!parse_attr(lib, c, &arg)) {
            arg = (arg_def){.kind = ARG_INPUT};
            arg.name = take_name(c, "an input's name");
        }
        skip_space(c);
        if (*c->p != ',' && *c->p != ')') fail_at(c->file, c->line, "unknown type `%s`", arg.name);
        if (strcmp(arg.name, "g") == 0 || strcmp(arg.name, "y") == 0)
            fail_at(c->file, c->line, "%s: g is the cotangent and y the result; rename the argument", op->name);
        bool scalar = arg.kind == ARG_INPUT || arg.kind == ARG_INT || arg.kind == ARG_DOUBLE || arg.kind == ARG_OPT ||
                      arg.kind == ARG_ENUM;
        if (!scalar)
            fail_at(c->file, c->line, "%s: an elementwise op takes no attribute of the type of %s", op->name, arg.name);
        add_arg(&op->args, &op->n_args, arg);
    } while (at_text(c, ","));
    expect(c, ")");
    int inputs = count_inputs(op);
    if (inputs < 1 || inputs > 5) fail_at(c->file, c->line, "%s has %d inputs; 1 to 5 are possible", op->name, inputs);
}

static void parse_class(cursor *c, op_def *op) {
    static const char *const names[] = {"float", "num", "all", "int"};
    char *name = take_name(c, "a class");
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            op->class = (class_def)i;
            return;
        }
    fail_at(c->file, c->line, "unknown class `%s`: float, num, all or int", name);
}

static void parse_domains(cursor *c, op_def *op) {
    static const char *const names[] = {"any", "pos", "nonneg", "unit", "open01", "ge1", "away0", "small"};
    int given = 0;
    char *domain = NULL;
    for (int i = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i]) || op->args[i].is_mask) continue;
        if (given == 0 || at_text(c, ",")) {
            domain = take_name(c, "a domain");
            bool known = false;
            for (size_t k = 0; k < sizeof names / sizeof *names; k++) known |= strcmp(domain, names[k]) == 0;
            if (!known) fail_at(c->file, c->line, "unknown domain `%s`", domain);
            given++;
        }
        op->args[i].domain = domain;
    }
    skip_space(c);
    if (*c->p) fail_at(c->file, c->line, "unknown text after the domain: `%.30s`", c->p);
}

static void parse_gradient(cursor *c, op_def *op, formula *gradients) {
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        cursor at = *c;
        if (is_attr(arg) || !at_text(&at, form("d%s", arg->name)) || !at_text(&at, "=")) continue;
        if (gradients[i].line) fail_at(c->file, c->line, "%s: d%s is given twice", op->name, arg->name);
        if (arg->is_mask) fail_at(c->file, c->line, "%s: the mask %s has no gradient", op->name, arg->name);
        gradients[i] = parse_formula(op, &at, true);
        gradients[i].line = c->line;
        return;
    }
    fail_at(c->file, c->line, "%s: unknown clause `%.30s`", op->name, c->p);
}

static void check_gradients(op_def *op) {
    bool differentiable = op->class != CLASS_INT && !op->bool_result;
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (is_attr(arg) || arg->is_mask) continue;
        bool given = op->gradients[i].line > 0;
        if (differentiable && !given)
            fail_at(op->file, op->line, "%s has no d%s; if it is zero, say d%s = 0", op->name, arg->name, arg->name);
        if (!differentiable && given)
            fail_at(op->file, op->line, "%s cannot have a gradient: its class or result is not float", op->name);
    }
    op->nograd = !differentiable;
    op->has_vjp = differentiable;
    for (int i = 0; i < op->n_args; i++)
        for (int k = 0; k < op->n_args; k++)
            if (!is_attr(&op->args[i]) && formula_uses(&op->gradients[k], E_INPUT, i)) {
                op->saves_arg[i] = true;
                op->reads_in[k] |= input_bits(op, i);
            }
    for (int k = 0; k < op->n_args; k++)
        if (formula_uses(&op->gradients[k], E_RESULT, -1)) {
            op->saves_output[0] = true;
            op->reads_out[k] = 1;
        }
}

/* `let t = ...` names an expression for all formulas of the line. */
static void parse_lets(op_def *op, const char *rest) {
    for (char *part; (part = next_part(&rest));) {
        cursor c = {part, op->file, op->line};
        if (*part == '"' || !at_text(&c, "let")) continue;
        char *name = take_name(&c, "a name");
        expect(&c, "=");
        expr *e = parse_let(op, &c);
        op->let_names = grow(op->let_names, op->n_lets, sizeof *op->let_names);
        op->lets = grow(op->lets, op->n_lets, sizeof *op->lets);
        op->let_names[op->n_lets] = name;
        op->lets[op->n_lets++] = e;
    }
}

static void *zeroed(size_t n, size_t size) {
    void *p = calloc(n + 1, size);
    if (!p) exit(1);
    return p;
}

void parse_line(library *lib, const char *file, int line, const char *folder, const char *source) {
    op_def *op = zeroed(1, sizeof *op);
    *op = (op_def){.file = file, .folder = folder, .line = line, .enough = -1, .elementwise = true, .alias = true};
    const char *rest = source;
    char *part = next_part(&rest);
    cursor c = {part, file, line};
    op->name = take_name(&c, "an op, an enum or an elementwise line");
    skip_space(&c);
    if (*c.p != '(') fail_at(file, line, "unknown word `%s`", op->name);
    parse_args(lib, &c, op);
    op->gradients = zeroed((size_t)op->n_args, sizeof *op->gradients);
    op->fused = zeroed((size_t)op->n_args, sizeof *op->fused);
    op->half_gradients = zeroed((size_t)op->n_args, sizeof *op->half_gradients);
    op->half_fused = zeroed((size_t)op->n_args, sizeof *op->half_fused);
    op->saves_arg = zeroed((size_t)op->n_args, sizeof(bool));
    op->saves_output = zeroed(1, sizeof(bool));
    op->reads_in = zeroed((size_t)op->n_args, sizeof *op->reads_in);
    op->reads_out = zeroed((size_t)op->n_args, sizeof *op->reads_out);
    add_arg(&op->outputs, &op->n_outputs, (arg_def){.kind = ARG_INPUT, .name = "y"});
    expect(&c, ":");
    parse_class(&c, op);
    if (at_text(&c, "->")) {
        expect(&c, "bool");
        op->bool_result = true;
    }
    expect(&c, "=");
    parse_lets(op, rest);
    op->value = parse_formula(op, &c, false);
    check_class(op, &op->value);

    int values = 0;
    for (int i = 0; i < op->n_args; i++) {
        op->args[i].domain = "any";
        values += !is_attr(&op->args[i]) && !op->args[i].is_mask;
    }
    while ((part = next_part(&rest))) {
        c.p = part;
        if (*part == '"') {
            size_t n = strlen(part);
            if (n < 3 || part[n - 1] != '"')
                fail_at(file, line, "%s: the documentation must be one quoted text", op->name);
            op->doc = copy_n(part + 1, n - 2);
        } else if (at_text(&c, "let")) {
            continue; /* read before the value */
        } else if (at_text(&c, "internal")) {
            op->internal = true;
        } else if (at_text(&c, "half")) {
            parse_gradient(&c, op, op->half_gradients);
            op->recompute = true;
        } else if (at_text(&c, "in")) {
            parse_domains(&c, op);
        } else if (at_text(&c, "with")) {
            skip_space(&c);
            op->sample_attrs = grow(op->sample_attrs, op->n_sample_attrs, sizeof *op->sample_attrs);
            op->sample_attrs[op->n_sample_attrs++] = copy_n(c.p, strlen(c.p));
        } else {
            parse_gradient(&c, op, op->gradients);
        }
    }
    if (!op->doc) fail_at(file, line, "%s has no documentation: end the line with ; \"text\"", op->name);
    for (int i = 0; i < op->n_args; i++) {
        arg_def *arg = &op->args[i];
        if (is_attr(arg)) {
            if (arg->positional && !op->n_sample_attrs)
                fail_at(file, line, "%s: the samples need a value of %s: ; with %s=...", op->name, arg->name,
                        arg->name);
            continue;
        }
        arg->broadcast = count_inputs(op) > 1;
        arg->promote = !arg->is_mask && values > 1;
        arg->is_float = op->class == CLASS_FLOAT && !arg->is_mask;
    }
    check_gradients(op);
    if (op->n_args == 2 && count_inputs(op) == 2) op->commutes = formula_commutes(&op->value, 0, 1);
    make_samples(op);
    for (char *s = op->samples.s, *end; *s; s = end + 1) { /* `with` clauses are the author's text */
        end = strchr(s, '\n');
        check_sample(op, file, line, copy_n(s, (size_t)(end - s)));
    }
    add_op(lib, op);
}

/* The op that computes formula f, a gradient of op by its argument i, in one pass. Its inputs are the inputs and the
 * result that the formula reads, then the cotangent; its attributes are those of the op. */
static op_def *make_fused(library *lib, op_def *op, int i, const formula *f, char *name, char *doc) {
    op_def *fused = zeroed(1, sizeof *fused);
    *fused = (op_def){.file = op->file,
                      .folder = op->folder,
                      .line = op->line,
                      .enough = -1,
                      .elementwise = true,
                      .alias = true,
                      .internal = true,
                      .of = op,
                      .class = CLASS_FLOAT,
                      .value = *f,
                      .has_lower = true};
    fused->name = name;
    fused->doc = doc;
    for (int k = 0; k < op->n_args; k++) {
        arg_def arg = op->args[k];
        if (is_attr(&arg)) continue;
        if (!formula_uses(f, E_INPUT, k)) continue;
        arg.broadcast = true;
        arg.is_float = arg.promote = !arg.is_mask;
        add_arg(&fused->args, &fused->n_args, arg);
    }
    arg_def value = {
        .kind = ARG_INPUT, .broadcast = true, .promote = true, .is_float = true, .domain = "pos", .name = "y"};
    if (formula_uses(f, E_RESULT, -1)) add_arg(&fused->args, &fused->n_args, value);
    value.name = "g";
    value.domain = "any";
    if (formula_uses(f, E_COTANGENT, -1)) add_arg(&fused->args, &fused->n_args, value);
    if (fused->n_args == 0)
        fail_at(op->file, op->line, "%s: d%s depends on nothing; write it with g", op->name, op->args[i].name);
    for (int k = 0; k < op->n_args; k++)
        if (is_attr(&op->args[k])) add_arg(&fused->args, &fused->n_args, op->args[k]);
    fused->saves_arg =
        zeroed((size_t)fused->n_args, sizeof(bool)); /* differentiated through lower: it needs them all */
    for (int k = 0; k < fused->n_args; k++) fused->saves_arg[k] = !is_attr(&fused->args[k]);
    fused->saves_output = zeroed(1, sizeof(bool));
    add_arg(&fused->outputs, &fused->n_outputs, (arg_def){.kind = ARG_INPUT, .name = "dx"});
    fused->sample_attrs = op->sample_attrs;
    fused->n_sample_attrs = op->n_sample_attrs;
    make_samples(fused);
    return add_op(lib, fused);
}

/* A gradient of more than one call becomes an op of its own. */
void make_fused_gradients(library *lib, op_def *op) {
    for (int i = 0; i < op->n_args; i++) {
        const formula *f = &op->gradients[i], *half = &op->half_gradients[i];
        const char *by = op->args[i].name;
        if (f->n && formula_calls(f) > 1)
            op->fused[i] = make_fused(lib, op, i, f, form("%s_grad_%s", op->name, by),
                                      form("The gradient of %s with respect to %s, in one pass.", op->name, by));
        if (!half->n) continue;
        if (!op->fused[i] || formula_calls(half) <= 1 || formula_uses(half, E_RESULT, -1))
            fail_at(op->file, op->line, "%s: `half d%s` takes the place of a fused gradient and cannot read y",
                    op->name, by);
        op->half_fused[i] =
            make_fused(lib, op, i, half, form("%s_half_grad_%s", op->name, by),
                       form("The gradient of %s with respect to %s from its inputs, for half types.", op->name, by));
    }
}
