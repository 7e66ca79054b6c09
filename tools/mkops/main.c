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

const op_def *owner(const op_def *op) { return op->of ? op->of : op; }

int attr_number(const op_def *op, int arg) {
    int n = -1;
    for (int i = 0; i <= arg; i++) n += is_attr(&owner(op)->args[i]);
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
    return op->random || op->n_outputs > 1;
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

/* ---- Kernels ------------------------------------------------------------------------------------------ */

static backend_def *backend_named(library *lib, const char *name) {
    for (int i = 0; i < lib->n_backends; i++)
        if (strcmp(lib->backends[i].name, name) == 0) return &lib->backends[i];
    lib->backends = grow(lib->backends, lib->n_backends, sizeof *lib->backends);
    lib->backends[lib->n_backends] = (backend_def){.name = name};
    return &lib->backends[lib->n_backends++];
}

/* Every folder in a folder of ops is a backend's, and every source right in it lists kernels. */
static void find_kernels(library *lib, const char *ops_dir, const char *folder) {
    int n, n_files;
    char **names = names_in(form("%s/%s", ops_dir, folder), "", &n);
    for (int i = 0; i < n; i++) {
        char **files = names_in(form("%s/%s/%s", ops_dir, folder, names[i]), "", &n_files);
        for (int k = 0; k < n_files; k++) {
            if (!ends_with(files[k], ".c")) continue; /* a .cu beside it is device code */
            backend_def *backend = backend_named(lib, names[i]);
            backend->files = grow(backend->files, backend->n_files, sizeof *backend->files);
            backend->files[backend->n_files++] = form("%s_%.*s", folder, (int)strcspn(files[k], "."), files[k]);
        }
    }
}

static void check_ops(const library *lib) {
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (op->elementwise) continue;
        int enough = op->enough >= 0 ? op->enough : 6;
        if (op->has_hand_on && !op->has_lower)
            fail_at(op->file, op->line, "%s: hand_on without lower, for the calls that it does not take", op->name);
        if (op->has_saves_less && !op->has_vjp)
            fail_at(op->file, op->line, "%s: saves_less without vjp, for which alone something is saved", op->name);
        if (!op->has_infer && !op->has_lower)
            fail_at(op->file, op->line,
                    "op %s has neither infer nor lower: say which of infer, vjp and lower ops/%s/ defines for it",
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
    backend_named(&lib, "cpu"); /* their elementwise kernels are always there */
    backend_named(&lib, "cuda");
    backend_named(&lib, "webgpu");
    for (int i = 0; i < lib.n_folders; i++) find_kernels(&lib, ops_dir, lib.folders[i]);
    check_ops(&lib);

    lib.sorted = malloc(sizeof *lib.sorted * (size_t)(lib.n_ops + 1));
    if (!lib.sorted) return 1;
    if (lib.n_ops) memcpy(lib.sorted, lib.ops, sizeof *lib.sorted * (size_t)lib.n_ops);
    if (lib.n_ops) qsort(lib.sorted, (size_t)lib.n_ops, sizeof *lib.sorted, by_name);

    const char *folders[] = {"",          "/include",    "/include/cotangent", "/gen",  "/gen/cpu",
                             "/gen/cuda", "/gen/webgpu", "/gen/dialects",      "/docs", "/docs/man"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) mkdir(form("%s%s", out, folders[i]), 0777);
    emit_ops_h(&lib, out);
    emit_ops_hpp(&lib, out);
    emit_api(&lib, out);
    emit_short(&lib, out);
    emit_decl(&lib, out);
    emit_table(&lib, out);
    emit_kernel_lists(&lib, out);
    emit_elementwise_ops(&lib, out);
    emit_elementwise_kernels(&lib, out);
    emit_dialects(&lib, out);
    emit_cuda_kernels(&lib, out);
    emit_webgpu(&lib, out);
    emit_docs(&lib, out);
    emit_html(&lib, out);
    emit_man(&lib, out);
    for (int i = 4; i < argc; i++) emit_header(&lib, argv[3], argv[i], out);
    return 0;
}
