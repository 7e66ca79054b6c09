/* Where recipes come from: those that are built in, and files. */
#include "cli/train/recipe.h"

#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 20 };

/* "a/b/tiny.yaml" -> "tiny" */
static void base_name(const char *path, char *name, size_t capacity) {
    const char *slash = strrchr(path, '/');
    buffer clean = {0};
    buffer_clean(&clean, slash ? slash + 1 : path, "");
    const char *from = clean.failed ? "recipe" : clean.at;
    snprintf(name, capacity, "%.*s", (int)text_cut(from, capacity - 1), from);
    buffer_free(&clean);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
}

static bool fail_unknown(const char *name) {
    const char *names[256];
    char near[2048];
    int n = 0;
    for (; recipe_files[n].name && n < 256; n++) names[n] = recipe_files[n].name;
    return ct_fail(CT_ERR_IO, NULL, "there is no recipe '%s', nor a file of that name%s", name,
                   nearest_text(near, sizeof near, name, names, n));
}

static const recipe_file *find(const char *name) {
    for (const recipe_file *file = recipe_files; file->name; file++)
        if (strcmp(file->name, name) == 0) return file;
    return NULL;
}

bool recipe_exists(const char *name) { return find(name) || file_exists(name); }

recipe *recipe_open(const char *name, const char *const *sets, int n) {
    char source[512], base[256];
    const recipe_file *file = find(name);
    if (file) {
        snprintf(source, sizeof source, "recipes/%s.yaml", name);
        return recipe_parse(file->text, file->n, name, source, sets, n);
    }
    if (!file_exists(name)) {
        fail_unknown(name);
        return NULL;
    }
    size_t length = 0;
    char *text = file_read(name, LONGEST, &length);
    if (!text) return NULL;
    base_name(name, base, sizeof base);
    recipe *r = recipe_parse(text, length, base, name, sets, n);
    free(text);
    return r;
}

void recipe_list(void) {
    for (const recipe_file *file = recipe_files; file->name; file++) {
        tree *root = tree_parse(file->text, file->n, file->name);
        const tree *about = tree_get(root, "about");
        printf("%-22s %s\n", file->name, about && about->text ? about->text : "");
        tree_free(root);
    }
    if (!ct_ok()) {
        fprintf(stderr, "error: %s\n", ct_error());
        ct_error_clear();
    }
}
