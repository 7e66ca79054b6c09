/* Expressions of elementwise lines: the vocabulary, the parser, questions about a formula, and its text in a dialect. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mkops.h"

/* name, arguments, truth result, truth arguments, op, infix, integers, bools, cost, commutes, operator */
static const word words[] = {
    {"add", 2, false, 0, "add", "+", true, true, 1, true, true},
    {"sub", 2, false, 0, "sub", "-", true, false, 1, false, true},
    {"mul", 2, false, 0, "mul", "*", true, true, 1, true, true},
    {"div", 2, false, 0, "div", "/", false, false, 2, false, true},
    {"neg", 1, false, 0, "neg", NULL, true, false, 1, false, true},
    {"abs", 1, false, 0, "abs", NULL, true, false, 1, false, false},
    {"sign", 1, false, 0, "sign", NULL, true, true, 3, false, false},
    {"sqrt", 1, false, 0, "sqrt", NULL, false, false, 3, false, false},
    {"rsqrt", 1, false, 0, "rsqrt", NULL, false, false, 4, false, false},
    {"cbrt", 1, false, 0, "cbrt", NULL, false, false, 30, false, false},
    {"recip", 1, false, 0, "recip", NULL, false, false, 2, false, false},
    {"square", 1, false, 0, "square", NULL, true, true, 1, false, false},
    {"exp", 1, false, 0, "exp", NULL, false, false, 15, false, false},
    {"exp2", 1, false, 0, "exp2", NULL, false, false, 15, false, false},
    {"expm1", 1, false, 0, "expm1", NULL, false, false, 25, false, false},
    {"log", 1, false, 0, "log", NULL, false, false, 20, false, false},
    {"log2", 1, false, 0, "log2", NULL, false, false, 20, false, false},
    {"log10", 1, false, 0, "log10", NULL, false, false, 20, false, false},
    {"log1p", 1, false, 0, "log1p", NULL, false, false, 25, false, false},
    {"sin", 1, false, 0, "sin", NULL, false, false, 25, false, false},
    {"cos", 1, false, 0, "cos", NULL, false, false, 25, false, false},
    {"tan", 1, false, 0, "tan", NULL, false, false, 30, false, false},
    {"asin", 1, false, 0, "asin", NULL, false, false, 25, false, false},
    {"acos", 1, false, 0, "acos", NULL, false, false, 25, false, false},
    {"atan", 1, false, 0, "atan", NULL, false, false, 25, false, false},
    {"sinh", 1, false, 0, "sinh", NULL, false, false, 30, false, false},
    {"cosh", 1, false, 0, "cosh", NULL, false, false, 30, false, false},
    {"tanh", 1, false, 0, "tanh", NULL, false, false, 20, false, false},
    {"asinh", 1, false, 0, "asinh", NULL, false, false, 40, false, false},
    {"acosh", 1, false, 0, "acosh", NULL, false, false, 40, false, false},
    {"atanh", 1, false, 0, "atanh", NULL, false, false, 40, false, false},
    {"erf", 1, false, 0, "erf", NULL, false, false, 40, false, false},
    {"erfc", 1, false, 0, "erfc", NULL, false, false, 40, false, false},
    {"ndtr", 1, false, 0, "ndtr", NULL, false, false, 40, false, false},
    {"erfinv", 1, false, 0, "erfinv", NULL, false, false, 40, false, false},
    {"lgamma", 1, false, 0, "lgamma", NULL, false, false, 100, false, false},
    {"digamma", 1, false, 0, "digamma", NULL, false, false, 100, false, false},
    {"polygamma", 2, false, 0, "polygamma", NULL, false, false, 100, false, false},
    {"floor", 1, false, 0, "floor", NULL, true, false, 1, false, false},
    {"ceil", 1, false, 0, "ceil", NULL, true, false, 1, false, false},
    {"round", 1, false, 0, "round", NULL, true, false, 1, false, false},
    {"trunc", 1, false, 0, "trunc", NULL, true, false, 1, false, false},
    {"sigmoid", 1, false, 0, "sigmoid", NULL, false, false, 20, false, false},
    {"max", 2, false, 0, "maximum", NULL, true, true, 3, true, false},
    {"min", 2, false, 0, "minimum", NULL, true, true, 3, true, false},
    {"fmax", 2, false, 0, "fmax", NULL, true, true, 3, true, false},
    {"fmin", 2, false, 0, "fmin", NULL, true, true, 3, true, false},
    {"pow", 2, false, 0, "pow", NULL, true, false, 60, false, false},
    {"atan2", 2, false, 0, "atan2", NULL, false, false, 40, false, false},
    {"hypot", 2, false, 0, "hypot", NULL, false, false, 20, true, false},
    {"copysign", 2, false, 0, "copysign", NULL, false, false, 2, false, false},
    {"fmod", 2, false, 0, "fmod", NULL, true, false, 40, false, false},
    {"remainder", 2, false, 0, "remainder", NULL, true, false, 40, false, false},
    {"floor_div", 2, false, 0, "floor_div", NULL, true, false, 40, false, false},
    {"eq", 2, true, 0, "eq", "==", true, true, 1, true, false},
    {"ne", 2, true, 0, "ne", "!=", true, true, 1, true, false},
    {"lt", 2, true, 0, "lt", "<", true, true, 1, false, false},
    {"le", 2, true, 0, "le", "<=", true, true, 1, false, false},
    {"gt", 2, true, 0, "gt", ">", true, true, 1, false, false},
    {"ge", 2, true, 0, "ge", ">=", true, true, 1, false, false},
    {"isnan", 1, true, 0, "isnan", NULL, true, true, 1, false, false},
    {"isinf", 1, true, 0, "isinf", NULL, true, true, 2, false, false},
    {"isfinite", 1, true, 0, "isfinite", NULL, true, true, 2, false, false},
    {"and", 2, true, 3, "logical_and", "&&", true, true, 1, true, false},
    {"or", 2, true, 3, "logical_or", "||", true, true, 1, true, false},
    {"xor", 2, true, 3, "logical_xor", "!=", true, true, 1, true, false},
    {"not", 1, true, 1, "logical_not", NULL, true, true, 1, false, false},
    {"select", 3, false, 1, "where", NULL, true, true, 1, false, false},
    {"fma", 3, false, 0, "fma", NULL, true, false, 1, false, false},
    {"band", 2, false, 0, "bitwise_and", "&", true, true, 1, true, false},
    {"bor", 2, false, 0, "bitwise_or", "|", true, true, 1, true, false},
    {"bxor", 2, false, 0, "bitwise_xor", "^", true, true, 1, true, false},
    {"bnot", 1, false, 0, "bitwise_not", NULL, true, true, 1, false, false},
    {"shl", 2, false, 0, "bitwise_left_shift", NULL, true, true, 2, false, false},
    {"shr", 2, false, 0, "bitwise_right_shift", NULL, true, true, 2, false, false},
};

static const word *find_word(const char *name, bool is_operator) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].is_operator == is_operator && strcmp(words[i].name, name) == 0) return &words[i];
    return NULL;
}

/* ---- Parser -------------------------------------------------------------------------------------------- */

typedef struct parser {
    cursor *c;
    const op_def *op;
    bool gradient;
} parser;

static expr *new_expr(expr_kind kind) {
    expr *e = calloc(1, sizeof *e);
    if (!e) exit(1);
    e->kind = kind;
    e->arg = -1;
    return e;
}

static expr *call(const word *w, expr *a, expr *b) {
    expr *e = new_expr(E_CALL);
    e->word = w;
    e->a[0] = a;
    e->a[1] = b;
    e->truth = w->truth;
    e->uniform = w->is_operator && a->uniform && (!b || b->uniform);
    return e;
}

static void check_truth(const parser *p, const expr *e, bool truth, const char *where) {
    if (e->truth != truth)
        fail_at(p->c->file, p->c->line, "%s: %s takes a %s here", p->op->name, where, truth ? "truth value" : "number");
}

static expr *parse_sum(parser *p);

static expr *parse_call(parser *p, const char *name) {
    cursor *c = p->c;
    if (strcmp(name, "K") == 0) {
        expr *e = new_expr(E_NUMBER);
        e->number = take_number(c, "a constant");
        e->uniform = true;
        expect(c, ")");
        return e;
    }
    if (strcmp(name, "highest") == 0) {
        expect(c, ")");
        return new_expr(E_HIGHEST);
    }
    if (strcmp(name, "given") == 0) {
        char *attr = take_name(c, "an option");
        expect(c, ")");
        for (int i = 0; i < p->op->n_args; i++)
            if (p->op->args[i].kind == ARG_OPT && p->op->args[i].unset && strcmp(p->op->args[i].name, attr) == 0) {
                expr *e = new_expr(E_GIVEN);
                e->arg = i;
                e->truth = true;
                return e;
            }
        fail_at(c->file, c->line, "given(%s): no option of that name can be unset", attr);
    }
    const word *w = find_word(name, false);
    if (!w) fail_at(c->file, c->line, "`%s` is not in the vocabulary", name);
    expr *e = new_expr(E_CALL);
    e->word = w;
    e->truth = w->truth;
    for (int i = 0; i < w->n_args; i++) {
        if (i) expect(c, ",");
        e->a[i] = parse_sum(p);
        check_truth(p, e->a[i], w->truths >> i & 1, name);
    }
    expect(c, ")");
    if (strcmp(name, "polygamma") == 0 && !e->a[0]->uniform)
        fail_at(c->file, c->line, "polygamma(n, x): n must be made of attributes and constants");
    return e;
}

static expr *parse_primary(parser *p) {
    cursor *c = p->c;
    skip_space(c);
    if (at_text(c, "(")) {
        expr *e = parse_sum(p);
        expect(c, ")");
        return e;
    }
    if (isdigit((unsigned char)*c->p) || *c->p == '.')
        fail_at(c->file, c->line, "a bare number at `%.20s`: constants are written K(1.5)", c->p);
    char *name = take_name(c, "a value");
    if (at_text(c, "(")) return parse_call(p, name);
    for (int i = 0; i < p->op->n_lets; i++)
        if (strcmp(p->op->let_names[i], name) == 0) return p->op->lets[i];
    for (int i = 0; i < p->op->n_args; i++) {
        const arg_def *arg = &p->op->args[i];
        if (strcmp(arg->name, name) != 0) continue;
        expr *e = new_expr(is_attr(arg) ? E_ATTR : E_INPUT);
        if (arg->kind == ARG_ENUM) fail_at(c->file, c->line, "the enum %s can only choose between formulas", name);
        e->arg = i;
        e->truth = arg->is_mask;
        e->uniform = is_attr(arg);
        return e;
    }
    if (p->gradient && strcmp(name, "g") == 0) return new_expr(E_COTANGENT);
    if (p->gradient && strcmp(name, "y") == 0) return new_expr(E_RESULT);
    fail_at(c->file, c->line, "`%s` is neither an input nor an attribute of %s", name, p->op->name);
}

static expr *parse_unary(parser *p) {
    if (!at_text(p->c, "-")) return parse_primary(p);
    expr *e = parse_unary(p);
    check_truth(p, e, false, "-");
    if (e->kind == E_NUMBER) {
        e->number = -e->number;
        return e;
    }
    return call(find_word("neg", true), e, NULL);
}

static expr *parse_product(parser *p) {
    expr *e = parse_unary(p);
    for (;;) {
        const char *name = at_text(p->c, "*") ? "mul" : at_text(p->c, "/") ? "div" : NULL;
        if (!name) return e;
        expr *b = parse_unary(p);
        check_truth(p, e, false, name);
        check_truth(p, b, false, name);
        e = call(find_word(name, true), e, b);
    }
}

static expr *parse_sum(parser *p) {
    expr *e = parse_product(p);
    for (;;) {
        const char *name = at_text(p->c, "+") ? "add" : at_text(p->c, "-") ? "sub" : NULL;
        if (!name) return e;
        expr *b = parse_product(p);
        check_truth(p, e, false, name);
        check_truth(p, b, false, name);
        e = call(find_word(name, true), e, b);
    }
}

static void expect_end(cursor *c) {
    skip_space(c);
    if (*c->p) fail_at(c->file, c->line, "unknown text after the expression: `%.30s`", c->p);
}

expr *parse_let(const op_def *op, cursor *c) {
    parser p = {c, op, false};
    expr *e = parse_sum(&p);
    expect_end(c);
    return e;
}

formula parse_formula(const op_def *op, cursor *c, bool gradient) {
    formula f = {.choice = -1, .line = c->line};
    parser p = {c, op, gradient};
    skip_space(c);
    if (gradient && c->p[0] == '0' && !c->p[1 + strspn(c->p + 1, " \t")]) {
        c->p += strlen(c->p);
        f.zero = true;
        return f;
    }
    if (at_text(c, "choose")) {
        expect(c, "(");
        char *name = take_name(c, "an enum");
        for (int i = 0; i < op->n_args; i++)
            if (op->args[i].kind == ARG_ENUM && strcmp(op->args[i].name, name) == 0) f.choice = i;
        if (f.choice < 0) fail_at(c->file, c->line, "choose(%s, ...): no enum of that name among the attributes", name);
        while (at_text(c, ",")) {
            f.cases = grow(f.cases, f.n, sizeof *f.cases);
            f.cases[f.n++] = parse_sum(&p);
        }
        expect(c, ")");
        if (f.n != op->args[f.choice].values->n)
            fail_at(c->file, c->line, "choose(%s, ...) has %d formulas; the enum has %d values", name, f.n,
                    op->args[f.choice].values->n);
    } else {
        f.cases = grow(NULL, 0, sizeof *f.cases);
        f.cases[f.n++] = parse_sum(&p);
    }
    expect_end(c);
    bool truth = op->bool_result && !gradient;
    for (int i = 0; i < f.n; i++)
        if (f.cases[i]->truth != truth)
            fail_at(c->file, c->line, "%s: the expression is a %s; expected a %s", op->name,
                    truth ? "number" : "truth value", truth ? "truth value" : "number");
    return f;
}

/* ---- Questions ------------------------------------------------------------------------------------------- */

static bool uses(const expr *e, expr_kind kind, int arg) {
    if (!e) return false;
    if (e->kind == kind && (arg < 0 || e->arg == arg)) return true;
    for (int i = 0; i < 4; i++)
        if (uses(e->a[i], kind, arg)) return true;
    return false;
}

bool formula_uses(const formula *f, expr_kind kind, int arg) {
    for (int i = 0; i < f->n; i++)
        if (uses(f->cases[i], kind, arg)) return true;
    return false;
}

static int cost(const expr *e) {
    int sum = e->kind == E_CALL ? e->word->cost : 0;
    for (int i = 0; i < 4; i++)
        if (e->a[i]) sum += cost(e->a[i]);
    return sum;
}

int formula_cost(const formula *f) {
    int most = 0;
    for (int i = 0; i < f->n; i++)
        if (cost(f->cases[i]) > most) most = cost(f->cases[i]);
    return most;
}

static int calls(const expr *e) {
    if (!e || e->uniform) return 0;
    int sum = e->kind == E_CALL;
    for (int i = 0; i < 4; i++) sum += calls(e->a[i]);
    return sum;
}

int formula_calls(const formula *f) {
    if (f->choice >= 0) return 1000;
    return f->n ? calls(f->cases[0]) : 0;
}

/* Whether e is f with the inputs a and b exchanged. */
static bool mirrored(const expr *e, const expr *f, int a, int b) {
    if (!e || !f) return e == f;
    if (e->kind != f->kind || e->word != f->word || e->number != f->number) return false;
    if (e->kind == E_INPUT) return e->arg == (f->arg == a ? b : f->arg == b ? a : f->arg);
    if (e->arg != f->arg) return false;
    if (e->kind == E_CALL && e->word->commutes && mirrored(e->a[0], f->a[1], a, b) && mirrored(e->a[1], f->a[0], a, b))
        return true;
    for (int i = 0; i < 4; i++)
        if (!mirrored(e->a[i], f->a[i], a, b)) return false;
    return true;
}

bool formula_commutes(const formula *f, int a, int b) {
    for (int i = 0; i < f->n; i++)
        if (!mirrored(f->cases[i], f->cases[i], a, b)) return false;
    return true;
}

static void check_words(const op_def *op, const expr *e, int line) {
    if (!e) return;
    if (op->class != CLASS_FLOAT) {
        if (e->kind == E_NUMBER && e->number != (double)(long long)e->number)
            fail_at(op->file, line, "%s takes integers, where K(%g) has no meaning", op->name, e->number);
        if (e->kind == E_HIGHEST) fail_at(op->file, line, "%s takes integers: highest() is for floats", op->name);
        if (e->kind == E_CALL && !e->word->on_int)
            fail_at(op->file, line, "%s takes integers, where %s has no meaning", op->name, e->word->name);
    }
    if ((op->class == CLASS_ALL || op->class == CLASS_INT) && e->kind == E_CALL && !e->word->on_bool)
        fail_at(op->file, line, "%s takes bool, where %s has no meaning", op->name, e->word->name);
    bool bits = e->kind == E_CALL && (strncmp(e->word->op, "bitwise", 7) == 0);
    if (bits && op->class != CLASS_INT)
        fail_at(op->file, line, "%s takes floats, where %s has no meaning", op->name, e->word->name);
    for (int i = 0; i < 4; i++) check_words(op, e->a[i], line);
}

void check_class(const op_def *op, const formula *f) {
    for (int i = 0; i < f->n; i++) check_words(op, f->cases[i], f->line);
}

/* ---- Text in a dialect -------------------------------------------------------------------------------------- */

static const char *name_of(const op_def *op, const expr *e) {
    return e->kind == E_COTANGENT ? "g" : e->kind == E_RESULT ? "y" : op->args[e->arg].name;
}

static bool same(const expr *e, const expr *f) {
    if (e == f) return true;
    if (!e || !f || e->kind != f->kind || e->word != f->word || e->number != f->number || e->arg != f->arg)
        return false;
    for (int i = 0; i < 4; i++)
        if (!same(e->a[i], f->a[i])) return false;
    return true;
}

static int occurrences(const expr *in, const expr *e) {
    if (!in) return 0;
    int n = same(in, e);
    for (int i = 0; i < 4; i++) n += occurrences(in->a[i], e);
    return n;
}

static int shared_number(const dialect *d, const expr *e) {
    for (int i = 0; i < d->n_shared; i++)
        if (same(d->shared[i], e)) return i;
    return -1;
}

static void share(text *t, const op_def *op, const expr *whole, const expr *e, dialect *d, const char *indent,
                  const char *type, const char *truth) {
    if (!e || e->kind != E_CALL || shared_number(d, e) >= 0) return;
    for (int i = 0; i < 4; i++) share(t, op, whole, e->a[i], d, indent, type, truth); /* inner ones first */
    if (e == whole || d->n_shared == 64 || occurrences(whole, e) < 2) return;
    if (d->style == WGSL) put(t, "%slet c%d = ", indent, d->n_shared);
    else put(t, "%sconst %s c%d = ", indent, e->truth ? truth : type, d->n_shared);
    emit_expr(t, op, e, d);
    put(t, ";\n");
    d->shared[d->n_shared++] = e;
}

void emit_shared(text *t, const op_def *op, const expr *e, dialect *d, const char *indent, const char *type,
                 const char *truth) {
    d->n_shared = 0;
    share(t, op, e, e, d, indent, type, truth);
}

void emit_expr(text *t, const op_def *op, const expr *e, const dialect *d) {
    const word *w = e->word;
    if (e->kind == E_CALL && shared_number(d, e) >= 0) {
        put(t, "c%d", shared_number(d, e));
        return;
    }
    switch (e->kind) {
    case E_NUMBER:
        if (d->style == WGSL && isinf(e->number)) put(t, e->number < 0 ? "-ct_inf()" : "ct_inf()");
        else put(t, d->number, c_double(e->number));
        return;
    case E_HIGHEST: put(t, "%s", d->highest); return;
    case E_ATTR: put(t, "%s%s", d->attr, name_of(op, e)); return;
    case E_GIVEN: put(t, "%s%s", d->given, name_of(op, e)); return;
    case E_CALL: break;
    default: put(t, "%s%s", d->input, name_of(op, e)); return;
    }
    if (d->style == INFIX && w->infix) {
        put(t, "(");
        emit_expr(t, op, e->a[0], d);
        put(t, " %s ", w->infix);
        emit_expr(t, op, e->a[1], d);
        put(t, ")");
        return;
    }
    if (d->style == INFIX && w->is_operator) { /* neg */
        put(t, "(-");
        emit_expr(t, op, e->a[0], d);
        put(t, ")");
        return;
    }
    if (d->style == INFIX && strcmp(w->name, "not") == 0) {
        put(t, "(!");
        emit_expr(t, op, e->a[0], d);
        put(t, ")");
        return;
    }
    bool stored = false;
    for (const char *const *name = d->stored; name && *name; name++) stored |= strcmp(*name, w->name) == 0;
    put(t, "%s%s%s(", w->truths & 1 && w->truth ? d->truth : d->value, w->name, stored ? "_for<S>" : "");
    for (int i = 0; i < w->n_args; i++) {
        if (i) put(t, ", ");
        if (i == 0 && d->style == PREFIX &&
            strcmp(w->name, "polygamma") == 0) { /* its order is one int for all lanes */
            put(t, "(int)");
            emit_uniform(t, op, e->a[0]);
            continue;
        }
        emit_expr(t, op, e->a[i], d);
    }
    put(t, ")");
}

void emit_uniform(text *t, const op_def *op, const expr *e) {
    if (e->kind == E_NUMBER) {
        put(t, "%s", c_double(e->number));
    } else if (e->kind == E_ATTR) {
        const arg_def *arg = &op->args[e->arg];
        put(t, "(double)a->%s%s", arg->name, arg->kind == ARG_OPT && arg->unset ? ".value" : "");
    } else if (!e->word->infix) {
        put(t, "(-");
        emit_uniform(t, op, e->a[0]);
        put(t, ")");
    } else {
        put(t, "(");
        emit_uniform(t, op, e->a[0]);
        put(t, " %s ", e->word->infix);
        emit_uniform(t, op, e->a[1]);
        put(t, ")");
    }
}
