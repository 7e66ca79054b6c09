/* Reads .def files: enums and ordinary ops. Elementwise lines are handed to parse_line.c. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkops.h"

/* ---- Cursor ------------------------------------------------------------------------------------------ */

void skip_space(cursor *c) {
    while (*c->p && isspace((unsigned char)*c->p)) c->p++;
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

bool at_text(cursor *c, const char *s) {
    skip_space(c);
    size_t n = strlen(s);
    if (strncmp(c->p, s, n) != 0) return false;
    if (word_char(s[n - 1]) && word_char(c->p[n])) return false;
    c->p += n;
    return true;
}

void expect(cursor *c, const char *s) {
    if (!at_text(c, s)) fail_at(c->file, c->line, "expected `%s` at `%.30s`", s, c->p);
}

char *take_name(cursor *c, const char *what) {
    skip_space(c);
    const char *start = c->p;
    if (!isalpha((unsigned char)*start) && *start != '_')
        fail_at(c->file, c->line, "expected %s at `%.30s`", what, start);
    while (word_char(*c->p)) c->p++;
    return copy_n(start, (size_t)(c->p - start));
}

double take_number(cursor *c, const char *what) {
    skip_space(c);
    char *end;
    double x = strtod(c->p, &end);
    if (end == c->p || word_char(*end)) fail_at(c->file, c->line, "expected %s, a number, at `%.30s`", what, c->p);
    c->p = end;
    return x;
}

/* ---- Enums -------------------------------------------------------------------------------------------- */

static bool starts_with_word(const char *s, const char *w) {
    size_t n = strlen(w);
    return strncmp(s, w, n) == 0 && isspace((unsigned char)s[n]);
}

static void parse_enum(library *lib, cursor c) {
    enum_def *e = calloc(1, sizeof *e);
    if (!e) exit(1);
    expect(&c, "enum");
    e->name = take_name(&c, "the name of an enum");
    e->file = c.file;
    e->line = c.line;
    for (int i = 0; i < lib->n_enums; i++)
        if (strcmp(lib->enums[i]->name, e->name) == 0)
            fail_at(c.file, c.line, "enum %s is defined twice: also at %s:%d", e->name, lib->enums[i]->file,
                    lib->enums[i]->line);
    expect(&c, "{");
    do {
        if (at_text(&c, "}")) goto done; /* a comma after the last value */
        e->values = grow(e->values, e->n, sizeof *e->values);
        e->constants = grow(e->constants, e->n, sizeof *e->constants);
        e->values[e->n] = take_name(&c, "a value's name");
        expect(&c, "=");
        e->constants[e->n] = take_name(&c, "its C constant");
        if (strncmp(e->constants[e->n], "CT_", 3) != 0)
            fail_at(c.file, c.line, "the constant %s of enum %s must start with CT_", e->constants[e->n], e->name);
        e->n++;
    } while (at_text(&c, ","));
    expect(&c, "}");
done:
    if (e->n == 0) fail_at(c.file, c.line, "enum %s has no values", e->name);
    lib->enums = grow(lib->enums, lib->n_enums, sizeof *lib->enums);
    lib->enums[lib->n_enums++] = e;
}

void parse_enums(library *lib, const char *file, const char *source) {
    int line = 1;
    for (const char *p = source; *p; line++) {
        if (starts_with_word(p, "enum")) parse_enum(lib, (cursor){p, file, line});
        p += strcspn(p, "\n");
        p += *p == '\n';
    }
}

/* ---- Attributes ---------------------------------------------------------------------------------------- */

static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "bool"};

static int dtype_number(const char *name) {
    for (int i = 0; i < (int)(sizeof dtype_names / sizeof *dtype_names); i++)
        if (strcmp(name, dtype_names[i]) == 0) return i;
    return -1;
}

/* The kind of attribute that a type word names; false: no such type. */
static bool attr_type(const library *lib, const char *type, arg_def *arg) {
    static const struct {
        const char *word;
        arg_kind kind;
    } types[] = {{"int", ARG_INT},   {"double", ARG_DOUBLE}, {"bool", ARG_BOOL},
                 {"dims", ARG_DIMS}, {"dtype", ARG_DTYPE},   {"text", ARG_TEXT},
                 {"opt", ARG_OPT},   {"axes", ARG_AXES},     {"device", ARG_DEVICE}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].word) == 0) {
            arg->kind = types[i].kind;
            return true;
        }
    for (int i = 0; i < lib->n_enums; i++)
        if (strcmp(type, lib->enums[i]->name) == 0) {
            arg->kind = ARG_ENUM;
            arg->values = lib->enums[i];
            return true;
        }
    return false;
}

static void parse_default(cursor *c, arg_def *arg) {
    skip_space(c);
    const char *start = c->p;
    switch (arg->kind) {
    case ARG_INT:
    case ARG_DOUBLE:
    case ARG_AXES:
        arg->number = take_number(c, "the default");
        if (arg->kind != ARG_DOUBLE && arg->number != (double)(long long)arg->number)
            fail_at(c->file, c->line, "the default of %s is not an integer", arg->name);
        break;
    case ARG_OPT:
        if (at_text(c, "none")) arg->unset = true;
        else arg->number = take_number(c, "the default");
        break;
    case ARG_BOOL:
        if (at_text(c, "true"))
            fail_at(c->file, c->line,
                    "%s = true: zero means default, so a bool must be false by default; turn its meaning round (no_%s)",
                    arg->name, arg->name);
        expect(c, "false");
        break;
    case ARG_DIMS:
        expect(c, "{");
        if (!at_text(c, "}")) fail_at(c->file, c->line, "%s: the only default of a list is {}", arg->name);
        break;
    case ARG_TEXT:
        if (!at_text(c, "\"\"")) fail_at(c->file, c->line, "%s: the only default of a text is \"\"", arg->name);
        break;
    case ARG_DEVICE: expect(c, "current"); break;
    case ARG_DTYPE: {
        char *name = take_name(c, "a dtype");
        arg->number = dtype_number(name);
        if (arg->number < 0) fail_at(c->file, c->line, "%s: unknown dtype %s", arg->name, name);
        break;
    }
    case ARG_ENUM: {
        char *name = take_name(c, "a value of the enum");
        arg->number = -1;
        for (int i = 0; i < arg->values->n; i++)
            if (strcmp(name, arg->values->values[i]) == 0) arg->number = i;
        if (arg->number < 0)
            fail_at(c->file, c->line, "%s: enum %s has no value %s", arg->name, arg->values->name, name);
        if (arg->number > 0)
            fail_at(c->file, c->line,
                    "%s = %s: zero means default, so the default must be the first value of enum %s (%s)", arg->name,
                    name, arg->values->name, arg->values->values[0]);
        break;
    }
    default: fail_at(c->file, c->line, "%s cannot have a default", arg->name);
    }
    arg->written = copy_n(start, (size_t)(c->p - start));
    arg->nonzero = at_text(c, "nonzero");
    bool can_be_nonzero = arg->kind == ARG_INT || arg->kind == ARG_DOUBLE || arg->kind == ARG_DTYPE;
    if (arg->nonzero && (!can_be_nonzero || arg->number == 0))
        fail_at(c->file, c->line, "%s: `nonzero` goes with a number other than zero", arg->name);
    if (!arg->nonzero && can_be_nonzero && arg->number != 0)
        fail_at(c->file, c->line,
                "%s = %s: zero means default. If zero is not a legal value, say `nonzero` after it; if it is, make it "
                "`opt %s = %s`, or positional",
                arg->name, arg->written, arg->name, arg->written);
}

bool parse_attr(const library *lib, cursor *c, arg_def *arg) {
    cursor start = *c;
    *arg = (arg_def){0};
    skip_space(c);
    if (!isalpha((unsigned char)*c->p) || !attr_type(lib, take_name(c, "a type"), arg)) {
        *c = start;
        return false;
    }
    skip_space(c);
    if (!isalpha((unsigned char)*c->p)) { /* `double` alone: an input of that name */
        *c = start;
        return false;
    }
    arg->name = take_name(c, "an attribute's name");
    if (at_text(c, "=")) parse_default(c, arg);
    else if (arg->kind == ARG_OPT) fail_at(c->file, c->line, "opt %s needs a default: a number or none", arg->name);
    else arg->positional = true;
    return true;
}

/* ---- Signature ------------------------------------------------------------------------------------------ */

static void parse_input(cursor *c, arg_def *arg) {
    *arg = (arg_def){.kind = ARG_INPUT};
    char *type = take_name(c, "the type of an argument");
    if (strcmp(type, "float") == 0) arg->is_float = true;
    else if (strcmp(type, "index") == 0) arg->is_index = true;
    else if (strcmp(type, "mask") == 0) arg->is_mask = true;
    else if (strcmp(type, "tensor") != 0) fail_at(c->file, c->line, "unknown type %s", type);
    arg->name = take_name(c, "an input's name");
    if (at_text(c, "?")) arg->optional = true;
    if (at_text(c, "[]")) arg->list = true;
    if (at_text(c, "~")) {
        if (at_text(c, "b")) arg->broadcast = true;
        else if (at_text(c, "p")) arg->promote = true;
        else arg->broadcast = arg->promote = true;
    }
    if (at_text(c, "!")) arg->mutated = true;
    if (arg->list && arg->optional) fail_at(c->file, c->line, "%s: a list cannot be optional", arg->name);
}

static void check_name(const op_def *op, const cursor *c, const char *name) {
    for (int i = 0; i < op->n_args; i++)
        if (strcmp(op->args[i].name, name) == 0)
            fail_at(c->file, c->line, "op %s has two arguments named %s", op->name, name);
    if (strcmp(name, "size") == 0 && op->n_args == 0) return;
    if (strcmp(name, "rng") == 0) fail_at(c->file, c->line, "op %s: rng is the name of the generator", op->name);
}

static void parse_signature(const library *lib, cursor *c, op_def *op) {
    bool list = false;
    op->name = take_name(c, "the op's name");
    expect(c, "(");
    if (!at_text(c, ")")) {
        do {
            arg_def arg;
            if (!parse_attr(lib, c, &arg)) parse_input(c, &arg);
            check_name(op, c, arg.name);
            if (!is_attr(&arg) && list) fail_at(c->file, c->line, "op %s: the list must be the last input", op->name);
            if (strcmp(arg.name, "size") == 0 && is_option(&arg))
                fail_at(c->file, c->line, "op %s: an option cannot be named size", op->name);
            list |= arg.list;
            add_arg(&op->args, &op->n_args, arg);
        } while (at_text(c, ","));
        expect(c, ")");
    }
    expect(c, "->");
    do {
        arg_def out = {.kind = ARG_INPUT};
        out.name = take_name(c, "an output's name");
        if (at_text(c, "?")) out.optional = true;
        if (at_text(c, "[]")) out.list = true;
        add_arg(&op->outputs, &op->n_outputs, out);
    } while (at_text(c, ","));
    skip_space(c);
    if (*c->p) fail_at(c->file, c->line, "unknown text after the outputs: `%.30s`", c->p);
    for (int i = 0; i < op->n_outputs; i++)
        if (op->outputs[i].list && op->n_outputs > 1)
            fail_at(c->file, c->line, "op %s: a list must be the only output", op->name);
    op->saves_arg = calloc((size_t)op->n_args + 1, sizeof(bool));
    op->saves_output = calloc((size_t)op->n_outputs, sizeof(bool));
    op->reads_in = calloc((size_t)op->n_args + 1, sizeof *op->reads_in);
    op->reads_out = calloc((size_t)op->n_args + 1, sizeof *op->reads_out);
    if (!op->saves_arg || !op->saves_output || !op->reads_in || !op->reads_out) exit(1);
}

/* ---- Clauses -------------------------------------------------------------------------------------------- */

/* `saves x y`, or `saves x y for w`: what the gradient of w alone reads. */
static void parse_saves(cursor *c, op_def *op) {
    unsigned long long in = 0, out = 0;
    int only = -1;
    for (skip_space(c); *c->p; skip_space(c)) {
        if (at_text(c, "for")) {
            char *whose = take_name(c, "the name of an input");
            for (int i = 0; i < op->n_args; i++)
                if (!is_attr(&op->args[i]) && strcmp(whose, op->args[i].name) == 0) only = i;
            if (only < 0) fail_at(c->file, c->line, "op %s has no input named %s", op->name, whose);
            break;
        }
        char *name = take_name(c, "the name of an input or output");
        bool found = false;
        for (int i = 0; i < op->n_args; i++)
            if (!is_attr(&op->args[i]) && strcmp(name, op->args[i].name) == 0) {
                found = op->saves_arg[i] = true;
                in |= input_bits(op, i);
            }
        for (int i = 0; i < op->n_outputs; i++)
            if (strcmp(name, op->outputs[i].name) == 0) {
                found = op->saves_output[i] = true;
                out |= 1ull << i;
            }
        if (!found) fail_at(c->file, c->line, "op %s has no input or output named %s", op->name, name);
    }
    for (int i = 0; i < op->n_args; i++) {
        if (only >= 0 && i != only) continue;
        op->reads_in[i] |= in;
        op->reads_out[i] |= out;
    }
}

static void parse_clause(cursor *c, op_def *op) {
    struct {
        const char *word;
        bool *flag;
    } flags[] = {{"view", &op->view},           {"random", &op->random},       {"nograd", &op->nograd},
                 {"mutates", &op->mutates},     {"internal", &op->internal},   {"alias", &op->alias},
                 {"moves", &op->moves},         {"narrow", &op->narrow},       {"wide", &op->wide},
                 {"recompute", &op->recompute}, {"transfers", &op->transfers}, {"infer", &op->has_infer},
                 {"vjp", &op->has_vjp},         {"lower", &op->has_lower},     {"hand_on", &op->has_hand_on},
                 {"waits", &op->waits},         {"partial", &op->partial},     {"saves_less", &op->has_saves_less}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (at_text(c, flags[i].word)) {
            *flags[i].flag = true;
            skip_space(c);
            if (*c->p == ',') c->p++, skip_space(c);
            if (*c->p) parse_clause(c, op); /* several flags on a line */
            return;
        }
    if (at_text(c, "saves")) {
        parse_saves(c, op);
    } else if (at_text(c, "samples")) {
        op->enough = (int)take_number(c, "the number of samples");
        skip_space(c);
        if (*c->p) fail_at(c->file, c->line, "unknown text after `samples`: `%.30s`", c->p);
    } else if (at_text(c, "sample")) {
        skip_space(c);
        check_sample(op, c->file, c->line, c->p);
        put(&op->samples, "%s\n", c->p);
        op->n_samples++;
    } else {
        fail_at(c->file, c->line, "unknown clause `%.30s`", c->p);
    }
}

static void check_op(op_def *op) {
    if (op->outputs[0].optional && !(op->internal && op->mutates && op->n_outputs == 1))
        fail_at(op->file, op->line, "op %s: the first output cannot be optional", op->name);
    bool mutated = false;
    for (int i = 0; i < op->n_args; i++) mutated |= op->args[i].mutated;
    if (!op->doc)
        fail_at(op->file, op->line, "op %s has no documentation: a line starting with /// before it", op->name);
    if (mutated && !op->mutates) fail_at(op->file, op->line, "op %s changes an input (!): say `mutates`", op->name);
    if (!mutated && op->mutates)
        fail_at(op->file, op->line, "op %s says `mutates`, but no input is marked with !", op->name);
    if (op->waits)
        op->doc =
            form("%s\nIt waits for the device: the shape of the result depends on values, which are read.", op->doc);
}

/* ---- Files ------------------------------------------------------------------------------------------------ */

/* A line without its comment and trailing space. */
static char *clean_line(const char *p, size_t n) {
    while (n && isspace((unsigned char)p[n - 1])) n--;
    return copy_n(p, n);
}

typedef struct reader {
    const char *p;
    int line; /* of what next_line gave last */
} reader;

static char *next_line(reader *r) {
    if (!*r->p) return NULL;
    size_t n = strcspn(r->p, "\n");
    char *s = clean_line(r->p, n);
    r->p += n + (r->p[n] == '\n');
    r->line++;
    return s;
}

static bool complete_signature(const char *s) {
    const char *arrow = strstr(s, "->");
    return arrow && arrow[2 + strspn(arrow + 2, " \t")] && s[strlen(s) - 1] != ',';
}

void parse_def(library *lib, const char *file, const char *folder, const char *source) {
    reader r = {source, 0};
    op_def *op = NULL;
    text doc = {0};
    for (char *s; (s = next_line(&r));) {
        char *body = s + strspn(s, " \t");
        if (strncmp(body, "///", 3) == 0) {
            put(&doc, "%s%s", doc.n ? "\n" : "", body + 3 + (body[3] == ' '));
            continue;
        }
        if (!*body || *body == '#') continue;
        if (body != s) { /* indented: a clause */
            if (!op) fail_at(file, r.line, "a clause without an op: `%.30s`", body);
            cursor c = {body, file, r.line};
            parse_clause(&c, op);
            continue;
        }
        int line = r.line;
        if (op) check_op(op);
        op = NULL;
        if (starts_with_word(s, "enum")) {
            while (!strchr(s, '}')) {
                char *more = next_line(&r);
                if (!more) fail_at(file, line, "enum without a closing brace");
                s = form("%s %s", s, more);
            }
        } else if (starts_with_word(s, "op")) {
            while (!complete_signature(s)) {
                char *more = next_line(&r);
                if (!more) fail_at(file, line, "an op needs its outputs: op name(...) -> y");
                s = form("%s %s", s, more);
            }
            op = calloc(1, sizeof *op);
            if (!op) exit(1);
            *op = (op_def){.file = file, .folder = folder, .line = line, .enough = -1};
            op->doc = doc.s;
            doc = (text){0};
            cursor c = {s + 2, file, line};
            parse_signature(lib, &c, op);
            add_op(lib, op);
        } else {
            while (s[strlen(s) - 1] == '\\') {
                char *more = next_line(&r);
                if (!more) fail_at(file, line, "a line cannot end the file with \\");
                s = form("%.*s %s", (int)strlen(s) - 1, s, more + strspn(more, " \t"));
            }
            parse_line(lib, file, line, folder, s);
        }
    }
    if (op) check_op(op);
}
