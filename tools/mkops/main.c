/* mkops OPS_DIR OUT_DIR: reads ops/, checks it, and has every output written. See README.md. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "header.h"

/* ---- Questions about ops that several parts ask ----------------------------------------------------- */

bool is_attr(const arg_def *arg) { return arg->kind != ARG_INPUT; }

bool is_option(const arg_def *arg) { return is_attr(arg) ? !arg->positional : arg->optional; }

int count_inputs(const op_def *op) {
    int n = 0;
    for (int i = 0; i < op->n_args; i++) n += !is_attr(&op->args[i]);
    return n;
}

int input_number(const op_def *op, int arg) {
    int n = 0;
    for (int i = 0; i < arg; i++) n += !is_attr(&op->args[i]);
    return n;
}

unsigned long long input_bits(const op_def *op, int arg) {
    return (op->args[arg].list ? ~0ull : 1ull) << input_number(op, arg);
}

bool has_attrs(const op_def *op) {
    for (int i = 0; i < op->n_args; i++)
        if (is_attr(&op->args[i])) return true;
    return false;
}

bool has_options(const op_def *op) {
    for (int i = 0; i < op->n_args; i++)
        if (is_option(&op->args[i])) return true;
    return op->random || op->n_outputs > 1 || op->outputs[0].optional;
}

const arg_def *list_input(const op_def *op) {
    for (int i = 0; i < op->n_args; i++)
        if (op->args[i].list) return &op->args[i];
    return NULL;
}

const char *attrs_of(const op_def *op) { return op->of ? op->of->name : op->name; }

op_def *find_op(const library *lib, const char *name) {
    for (int i = 0; i < lib->n_ops; i++)
        if (strcmp(lib->ops[i]->name, name) == 0) return lib->ops[i];
    return NULL;
}

op_def *add_op(library *lib, op_def *op) {
    const op_def *other = find_op(lib, op->name);
    if (other) fail_at(op->file, op->line, "op %s is defined twice: also at %s:%d", op->name, other->file, other->line);
    lib->ops = grow(lib->ops, lib->n_ops, sizeof *lib->ops);
    return lib->ops[lib->n_ops++] = op;
}

arg_def *add_arg(arg_def **list, int *n, arg_def arg) {
    *list = grow(*list, *n, sizeof **list);
    (*list)[*n] = arg;
    return &(*list)[(*n)++];
}

/* ---- Directories ------------------------------------------------------------------------------------ */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

char **names_in(const char *directory, const char *end, int *n) {
    char **names = NULL;
    *n = 0;
    DIR *d = opendir(directory);
    if (!d) return NULL;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || (*end && !ends_with(e->d_name, end))) continue;
        names = grow(names, *n, sizeof *names);
        names[(*n)++] = copy_n(e->d_name, strlen(e->d_name));
    }
    closedir(d);
    if (*n) qsort(names, (size_t)*n, sizeof *names, by_text);
    return names;
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Whether a C source defines the function `name`: the name and a parenthesis in a line that starts in the first
 * column and is no prototype. A static one is refused, because the table could not refer to it. */
static bool defines(const char *file, const char *source, const char *name) {
    size_t n = strlen(name);
    for (const char *p = source; (p = strstr(p, name)); p += n) {
        if ((p > source && word_char(p[-1])) || p[n] != '(') continue;
        const char *start = p, *end = p;
        int line = 1;
        while (start > source && start[-1] != '\n') start--;
        for (const char *q = source; q < start; q++) line += *q == '\n';
        if (!isalpha((unsigned char)*start)) continue;
        while (*end && *end != ';' && *end != '{') end++;
        if (*end != '{') continue;
        if (strncmp(start, "static", 6) == 0)
            fail_at(file, line, "%s must not be static: the op table refers to it", name);
        return true;
    }
    return false;
}

/* Whether a source lists kernels of the op `name`: a line that starts with CT_KERNELS(name), or with a macro of the
 * family's own around that, which is named SOMETHING_KERNEL or SOMETHING_KERNELS and has the op as its first argument. */
static bool has_kernel_list(const char *source, const char *name) {
    size_t n = strlen(name);
    for (const char *line = source; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        if (line[length] != '(') continue;
        char *macro = copy_n(line, length);
        if (!ends_with(macro, "_KERNELS") && !ends_with(macro, "_KERNEL")) continue;
        const char *op = line + length + 1;
        if (strncmp(op, name, n) == 0 && !word_char(op[n])) return true;
    }
    return false;
}

/* Which functions and kernels of its ops a folder holds. */
static void look_into(library *lib, const char *ops_dir, const char *folder) {
    int n;
    char *directory = form("%s/%s", ops_dir, folder);
    char **names = names_in(directory, ".c", &n);
    for (int i = 0; i < n; i++) {
        char *file = form("%s/%s", directory, names[i]);
        char *source = read_whole(file);
        if (!source) fail_at(file, 1, "cannot be read");
        bool kernels = ends_with(names[i], ".cpu.c");
        for (int k = 0; k < lib->n_ops; k++) {
            op_def *op = lib->ops[k];
            if (strcmp(op->folder, folder) != 0) continue;
            if (kernels) {
                op->has_kernels |= has_kernel_list(source, op->name);
                continue;
            }
            if (op->elementwise) continue;
            op->has_infer |= defines(file, source, form("%s_infer", op->name));
            op->has_vjp |= defines(file, source, form("%s_vjp", op->name));
            op->has_lower |= defines(file, source, form("%s_lower", op->name));
        }
    }
}

static void check_ops(const library *lib) {
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (op->elementwise) continue;
        int enough = op->enough >= 0 ? op->enough : 6;
        if (!op->has_infer && !op->has_lower)
            fail_at(op->file, op->line, "op %s has neither %s_infer nor %s_lower in ops/%s/*.c", op->name, op->name,
                    op->name, op->folder);
        if (op->n_samples < enough)
            fail_at(op->file, op->line,
                    "op %s has %d samples; it needs %d (or a line `samples N` that says how many are enough)", op->name,
                    op->n_samples, enough);
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(op_def *const *)a)->name, (*(op_def *const *)b)->name);
}

/* What is written from a public header, named without its folder and its end. */
static void emit_header(const library *lib, const char *directory, const char *name, const char *out) {
    char *file = form("%s/%s.h", directory, name), *source = read_whole(file);
    if (!source) fail_at(file, 1, "cannot be read");
    header_def header = {0};
    parse_header(&header, file, source);
    emit_calls(&header, name, out);
    if (strcmp(name, "nn") == 0) emit_layers(lib, &header, out);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc == 4) {
        fputs("usage: mkops OPS_DIR OUT_DIR [HEADER_DIR HEADER...]\n", stderr);
        return 2;
    }
    const char *ops_dir = argv[1], *out = argv[2];
    library lib = {0};
    lib.folders = names_in(ops_dir, "", &lib.n_folders);
    if (!lib.folders) fail_at(ops_dir, 1, "no such directory, or nothing in it");

    for (int pass = 0; pass < 2; pass++) /* enums first: any op may use any of them */
        for (int i = 0; i < lib.n_folders; i++) {
            int n;
            char *directory = form("%s/%s", ops_dir, lib.folders[i]);
            char **names = names_in(directory, ".def", &n);
            for (int k = 0; k < n; k++) {
                char *file = form("%s/%s", directory, names[k]);
                char *source = read_whole(file);
                if (!source) fail_at(file, 1, "cannot be read");
                if (pass == 0) parse_enums(&lib, file, source);
                else parse_def(&lib, file, lib.folders[i], source);
            }
        }
    for (int i = 0, n = lib.n_ops; i < n; i++)
        if (lib.ops[i]->elementwise) make_fused_gradients(&lib, lib.ops[i]);
    for (int i = 0; i < lib.n_folders; i++) look_into(&lib, ops_dir, lib.folders[i]);
    check_ops(&lib);

    lib.sorted = malloc(sizeof *lib.sorted * (size_t)(lib.n_ops + 1));
    if (!lib.sorted) return 1;
    if (lib.n_ops) memcpy(lib.sorted, lib.ops, sizeof *lib.sorted * (size_t)lib.n_ops);
    if (lib.n_ops) qsort(lib.sorted, (size_t)lib.n_ops, sizeof *lib.sorted, by_name);

    const char *folders[] = {"", "/include", "/include/cotangent", "/gen", "/gen/dialects", "/docs", "/docs/man"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) mkdir(form("%s%s", out, folders[i]), 0777);
    emit_ops_h(&lib, out);
    emit_api(&lib, out);
    emit_short(&lib, out);
    emit_decl(&lib, out);
    emit_table(&lib, out);
    emit_kernel_list(&lib, out);
    emit_elementwise_ops(&lib, out);
    emit_elementwise_kernels(&lib, out);
    emit_dialects(&lib, out);
    emit_docs(&lib, out);
    emit_html(&lib, out);
    emit_man(&lib, out);
    for (int i = 4; i < argc; i++) emit_header(&lib, argv[3], argv[i], out);
    return 0;
}
