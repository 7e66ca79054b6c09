/* The reference as manual pages: one of section 3 for each op, and cotangent-ops(7), which lists them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mkops.h"

/* Text as roff takes it: no line is a request, no backslash an escape. */
static void put_text(text *t, const char *s) {
    for (bool start = true; *s; start = *s++ == '\n') {
        if (start && (*s == '.' || *s == '\'')) put(t, "\\&");
        if (*s == '\\') put(t, "\\e");
        else if (*s == '-') put(t, "\\-");
        else if (*s == '^') put(t, "\\(ha");
        else if (*s == '~') put(t, "\\(ti");
        else put(t, "%c", *s);
    }
}

/* The first sentence, or what stands before its colon, on one line: what whatis and apropos show. */
static char *summary(const op_def *op) {
    text t = {0};
    int depth = 0;
    put(&t, "%s", "");
    for (const char *p = op->doc; *p; p++) {
        depth += (*p == '(' || *p == '[') - (*p == ')' || *p == ']');
        if (depth <= 0 && (*p == '.' || *p == ':' || *p == ';') && (p[1] == ' ' || p[1] == '\n' || !p[1]) && t.n > 12)
            break;
        put(&t, "%c", *p == '\n' ? ' ' : *p);
    }
    while (t.n && t.s[t.n - 1] == '.') t.s[--t.n] = 0;
    return t.s;
}

/* A call or a prototype: broken where it is too long, and indented there. */
static void emit_call(text *t, const char *font, const char *call) {
    put(t, ".HP\n\\f%s", font);
    put_text(t, call);
    put(t, "\\fR\n");
}

static void emit_synopsis(text *t, const op_def *op) {
    put(t, ".SH SYNOPSIS\n.ad l\n.nh\n.B #include <cotangent.h>\n");
    if (has_options(op)) emit_call(t, "B", form("%s;", call_form(op)));
    emit_call(t, has_options(op) ? "R" : "B", form("%s;", c_prototype(op)));
    if (has_scalar_form(op)) {
        emit_call(t, "B", form("ct_tensor *ct_%s_s(ct_tensor *%s, double value);", op->name, op->args[0].name));
        if (!op->commutes)
            emit_call(t, "B", form("ct_tensor *ct_r%s_s(ct_tensor *%s, double value);", op->name, op->args[1].name));
    }
    put(t, ".ad b\n.hy\n");
}

static void emit_description(text *t, const op_def *op) {
    put(t, ".SH DESCRIPTION\n");
    put_text(t, op->doc);
    put(t, "\n.PP\n%s\n", differentiable(op));
    if (op->elementwise) put(t, "%s\n", accepted_dtypes(op));
    if (op->view) put(t, "The result is a view.\n");
    if (has_scalar_form(op)) {
        put(t, "The forms that end in _s take a number for one of the two tensors%s.\n",
            op->commutes ? "" : ", and with an r before the name for the first");
    }
}

static void emit_option_list(text *t, const op_def *op) {
    option_row rows[MOST_OPTIONS];
    const int n = option_rows(op, rows);
    if (n == 0) return;
    put(t, ".SH OPTIONS\nThey go by name, in any order; what is left out, or zero, is the default.\n");
    for (int i = 0; i < n; i++) {
        put(t, ".TP\n\\fB.%s\\fR (", rows[i].name);
        put_text(t, rows[i].type);
        put(t, ")\n");
        if (rows[i].standard) put_text(t, form("Default: %s.\n", rows[i].standard));
        else put_text(t, form("%c%s.\n", toupper((unsigned char)rows[i].note[0]), rows[i].note + 1));
        for (int k = 0; rows[i].values && k < rows[i].values->n; k++)
            put(t, "%s\\fB%s\\fR%s", k ? "" : "One of ", rows[i].values->constants[k],
                k + 1 < rows[i].values->n ? ",\n" : ".\n");
    }
}

static void emit_see_also(text *t, const library *lib, const op_def *op) {
    put(t, ".SH SEE ALSO\n");
    int at = 0;
    while (lib->ops[at] != op) at++;
    for (int i = at < 6 ? 0 : at - 6; i < lib->n_ops && i <= at + 6; i++) { /* its neighbors in the file */
        const op_def *other = lib->ops[i];
        if (other == op || other->internal || strcmp(other->file, op->file) != 0) continue;
        put(t, ".BR ct_%s (3),\n", other->name);
    }
    put(t, ".BR cotangent-ops (7)\n");
}

static void emit_page(const library *lib, const op_def *op, const char *out) {
    text t = {0};
    put(&t, ".\\\" Written by mkops from ops/%s.\n.TH CT_%s 3 \"\" Cotangent \"Cotangent ops\"\n.SH NAME\nct_%s",
        op->folder, upper_case(op->name), op->name);
    if (has_scalar_form(op)) put(&t, ", ct_%s_s", op->name);
    if (has_scalar_form(op) && !op->commutes) put(&t, ", ct_r%s_s", op->name);
    put(&t, " \\- ");
    put_text(&t, summary(op));
    put(&t, "\n");
    emit_synopsis(&t, op);
    emit_description(&t, op);
    emit_option_list(&t, op);
    put(&t, ".SH RETURN VALUE\n");
    if (op->outputs[0].list) put(&t, "True; the results belong to the current scope. False on failure");
    else put(&t, "A tensor of the current scope. NULL on failure");
    put(&t, ", and when a tensor that is required is NULL;\n.B ct_error()\nthen says why.\n");
    emit_see_also(&t, lib, op);
    write_if_changed(out, form("docs/man/ct_%s.3", op->name), &t);
    for (int reversed = 0; has_scalar_form(op) && reversed <= !op->commutes; reversed++) {
        text link = {0};
        put(&link, ".so man3/ct_%s.3\n", op->name);
        write_if_changed(out, form("docs/man/ct_%s%s_s.3", reversed ? "r" : "", op->name), &link);
    }
}

static void emit_list(const library *lib, const char *out) {
    text t = {0};
    put(&t, ".\\\" Written by mkops from ops/.\n.TH COTANGENT-OPS 7 \"\" Cotangent \"Cotangent ops\"\n.SH NAME\n"
            "cotangent-ops \\- the ops of the Cotangent library\n.SH DESCRIPTION\n"
            "Every op is a function of\n.IR <cotangent.h> ,\nwith a manual page of its own. Required arguments come "
            "first, options "
            "go by name.\nThe same as a page to search in is\n.I share/doc/cotangent/ops.html\nunder the prefix of the "
            "installation.\n");
    for (int i = 0; i < lib->n_folders; i++) {
        bool headed = false;
        for (int k = 0; k < lib->n_ops; k++) {
            const op_def *op = lib->ops[k];
            if (op->internal || strcmp(op->folder, lib->folders[i]) != 0) continue;
            if (!headed) put(&t, ".SS %s\n", lib->folders[i]);
            headed = true;
            put(&t, ".TP\n.BR ct_%s (3)\n", op->name);
            put_text(&t, summary(op));
            put(&t, "\n");
        }
    }
    put(&t, ".SH SEE ALSO\n.BR cotangent (1)\n");
    write_if_changed(out, "docs/man/cotangent-ops.7", &t);
}

static bool is_page(const library *lib, const char *file) {
    const size_t length = strlen(file) - strlen(".3");
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        const char *name = copy_n(file, length);
        if (op->internal) continue;
        if (strcmp(name, form("ct_%s", op->name)) == 0) return true;
        if (!has_scalar_form(op)) continue;
        if (strcmp(name, form("ct_%s_s", op->name)) == 0) return true;
        if (!op->commutes && strcmp(name, form("ct_r%s_s", op->name)) == 0) return true;
    }
    return false;
}

/* The page of an op that has been renamed must not be installed. */
static void remove_others(const library *lib, const char *out) {
    int n;
    char *directory = form("%s/docs/man", out);
    char **names = names_in(directory, ".3", &n);
    for (int i = 0; i < n; i++)
        if (!is_page(lib, names[i])) remove(form("%s/%s", directory, names[i]));
}

void emit_man(const library *lib, const char *out) {
    remove_others(lib, out);
    for (int i = 0; i < lib->n_ops; i++)
        if (!lib->ops[i]->internal) emit_page(lib, lib->ops[i], out);
    emit_list(lib, out);
}
