/* Samples, the inputs worth testing: checks the ones that ops bring, makes those of elementwise ops. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "mkops.h"

static const char *const domains[] = {"any",   "pos",   "nonneg",   "unit", "open01", "ge1",
                                      "away0", "small", "distinct", "bool", "i64",    NULL};

static void check_domain(const char *file, int line, const char *s, size_t n) {
    for (int i = 0; domains[i]; i++)
        if (strlen(domains[i]) == n && strncmp(s, domains[i], n) == 0) return;
    if (n > 4 && strncmp(s, "int<", 4) == 0 && strspn(s + 4, "0123456789") == n - 4) return;
    fail_at(file, line, "unknown domain `%.*s`", (int)n, s);
}

/* One shape with its domain, [2,3]:pos; returns what follows. */
static const char *check_shape(const char *file, int line, const char *s) {
    const char *start = s;
    if (*s != '[') fail_at(file, line, "expected a shape at `%.30s`", s);
    s += 1 + strspn(s + 1, "0123456789,");
    if (*s != ']') fail_at(file, line, "not a shape: `%.30s`", start);
    s++;
    if (*s == ':') {
        size_t n = strcspn(s + 1, ", ");
        check_domain(file, line, s + 1, n);
        s += 1 + n;
    }
    return s;
}

static bool known_attr(const op_def *op, const char *s, size_t n) {
    if (n == 7 && strncmp(s, "outputs", n) == 0) return true;
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        size_t m = strlen(arg->name);
        if (!is_attr(arg) || strncmp(arg->name, s, m) != 0) continue;
        if (n == m || (arg->kind == ARG_AXES && n == m + 1 && s[m] == 's')) return true;
    }
    return false;
}

void check_sample(const op_def *op, const char *file, int line, const char *s) {
    int inputs = 0, expected = count_inputs(op);
    bool attributes = false;
    const arg_def *list = list_input(op);
    while (*s) {
        size_t n = strcspn(s, " \t");
        if (*s == '[' || *s == '@' || (*s == '-' && n == 1)) {
            if (attributes) fail_at(file, line, "inputs go before attributes: `%.*s`", (int)n, s);
            if (*s == '@') {
                if (!list || inputs != expected - 1) fail_at(file, line, "no list is expected here: `%.*s`", (int)n, s);
                const char *p = s + 1;
                while (*p && *p != ' ' && *p != '\t') {
                    p = check_shape(file, line, p);
                    if (*p == ',') p++;
                }
            } else if (*s == '[') {
                if (check_shape(file, line, s) != s + n) fail_at(file, line, "not a shape: `%.*s`", (int)n, s);
            } else {
                int k = 0;
                for (int i = 0; i < op->n_args; i++)
                    if (!is_attr(&op->args[i]) && k++ == inputs && !op->args[i].optional)
                        fail_at(file, line, "input %s of %s is not optional", op->args[i].name, op->name);
            }
            inputs++;
        } else {
            const char *equals = memchr(s, '=', n);
            if (!equals) fail_at(file, line, "neither a shape nor name=value: `%.*s`", (int)n, s);
            if (!known_attr(op, s, (size_t)(equals - s)))
                fail_at(file, line, "op %s has no attribute `%.*s`", op->name, (int)(equals - s), s);
            attributes = true;
        }
        s += n + strspn(s + n, " \t");
    }
    if (inputs > expected) fail_at(file, line, "op %s has %d inputs; the sample has %d", op->name, expected, inputs);
    int k = 0;
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i]) && k++ >= inputs && !op->args[i].optional && !op->args[i].list)
            fail_at(file, line, "the sample has no input %s", op->args[i].name);
}

/* ---- Elementwise ops ---------------------------------------------------------------------------------------- */

/* Shapes of the 1st, 2nd, 3rd, ... input: sizes around the vector widths, broadcasts, empty ones, a scalar, and more
 * than one chunk for the threads. */
static const char *const shapes[][5] = {
    {"[1]", "[1]", "[1]", "[1]", "[1]"},
    {"[67]", "[67]", "[67]", "[67]", "[67]"},
    {"[16]", "[16]", "[16]", "[16]", "[16]"},
    {"[3,5,7]", "[5,1]", "[1,1,7]", "[7]", "[3,1,1]"},
    {"[5,1]", "[1,7]", "[]", "[5,7]", "[7]"},
    {"[]", "[3]", "[2,1]", "[]", "[]"},
    {"[0,3]", "[1,3]", "[3]", "[1,3]", "[3]"},
    {"[2,17,3]", "[2,17,3]", "[2,17,3]", "[2,17,3]", "[2,17,3]"},
    {"[2,20011]", "[2,20011]", "[2,1]", "[2,20011]", "[20011]"},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void put_sample(op_def *op, int row, bool integer, int turn) {
    int k = 0;
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (is_attr(arg)) continue;
        /* a fused gradient meets only inputs of one shape */
        const char *shape = shapes[row][op->of ? 0 : k % 5];
        const char *domain = arg->is_mask ? "bool" : integer ? "i64" : arg->domain;
        put(&op->samples, "%s%s", k ? " " : "", shape);
        if (strcmp(domain, "any") != 0) put(&op->samples, ":%s", domain);
        k++;
    }
    if (op->n_sample_attrs) put(&op->samples, " %s", op->sample_attrs[turn % op->n_sample_attrs]);
    put(&op->samples, "\n");
    op->n_samples++;
}

void make_samples(op_def *op) {
    int turn = 0;
    for (int row = 0; row < N_SHAPES; row++) put_sample(op, row, op->class == CLASS_INT, turn++);
    if (op->class == CLASS_NUM || op->class == CLASS_ALL) put_sample(op, 1, true, turn++);
    while (turn < op->n_sample_attrs) put_sample(op, 7, op->class == CLASS_INT, turn++);
}
