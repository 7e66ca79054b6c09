/* The table of layers, from the section "Layers" of cotangent/nn.h: each constructor that is given numbers, truths, choices and
 * lists alone, with its arguments and those of its options that it takes.
 *
 * The comment behind an option says so: `[for NAMES: | not for NAMES:] [DEFAULT;] what it is`. NAMES are patterns of names of
 * layers, separated by commas. A number at the beginning is the default where zero is not. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "header.h"

typedef struct kind {
    const char *type; /* CT_ATTR_INT */
    const enum_def *values;
} kind;

static bool kind_of(const library *lib, const char *type, kind *k) {
    static const struct {
        const char *c, *attr;
    } plain[] = {{"int64_t", "CT_ATTR_INT"},
                 {"double", "CT_ATTR_DOUBLE"},
                 {"bool", "CT_ATTR_BOOL"},
                 {"ct_dims", "CT_ATTR_DIMS"},
                 {"ct_opt", "CT_ATTR_OPT"}};
    *k = (kind){0};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(plain[i].c, type) == 0) k->type = plain[i].attr;
    for (int i = 0; i < lib->n_enums; i++)
        if (strncmp(type, "ct_", 3) == 0 && strcmp(lib->enums[i]->name, type + 3) == 0)
            *k = (kind){"CT_ATTR_ENUM", lib->enums[i]};
    return k->type != NULL;
}

static bool is_layer(const library *lib, const function_def *f) {
    if (strcmp(f->section, "Layers") != 0 || strcmp(f->type, "ct_module *") != 0 || strncmp(f->name, "nn_", 3) != 0)
        return false;
    kind k;
    for (int i = 0; i < f->n_params; i++)
        if (!kind_of(lib, f->params[i].type, &k)) return false;
    return true;
}

static const char *layer_name(const function_def *f) { return f->name + strlen("nn_"); }

/* Whether the pattern of that many characters is the name of one of the layers that take these options. */
static bool known_pattern(const library *lib, const header_def *h, const char *options, const char *pattern) {
    for (int i = 0; i < h->n_functions; i++) {
        const function_def *f = &h->functions[i];
        if (is_layer(lib, f) && f->options && strcmp(f->options, options) == 0 &&
            fnmatch(pattern, layer_name(f), 0) == 0)
            return true;
    }
    return false;
}

/* Whether the layer takes the option; *rest is what its comment says behind the names. */
static bool takes(const library *lib, const header_def *h, const function_def *f, const field_def *option,
                  const char **rest) {
    const char *p = option->comment;
    const bool without = strncmp(p, "not for ", 8) == 0;
    *rest = p;
    if (!without && strncmp(p, "for ", 4) != 0) return true;
    p += without ? 8 : 4;
    bool found = false;
    for (;;) {
        p += strspn(p, " ");
        const size_t n = strcspn(p, ",:");
        char *pattern = copy_n(p, n);
        if (!known_pattern(lib, h, f->options, pattern))
            fail_at(h->file, option->line, "%s: no layer with %s is called %s", option->name, f->options, pattern);
        found |= fnmatch(pattern, layer_name(f), 0) == 0;
        p += n;
        if (*p != ',') break;
        p++;
    }
    if (*p == ':') p++;
    *rest = p + strspn(p, " ");
    return found != without;
}

/* The number that a comment begins with, if it is by itself; *rest goes on behind it. */
static double take_default(const char **rest) {
    char *end;
    const double number = strtod(*rest, &end);
    if (end == *rest || (*end && !strchr(";,:", *end))) return 0;
    *rest = end + strspn(end, ";,: ");
    return number;
}

static void emit_argument(text *t, const library *lib, const field_def *a, const char *type, bool option,
                          const char *rest) {
    kind k;
    kind_of(lib, a->type, &k);
    /* a truth or a choice that is not given is its zero, also where C has to be told */
    const bool required = !option && strcmp(k.type, "CT_ATTR_BOOL") != 0 && strcmp(k.type, "CT_ATTR_ENUM") != 0;
    put(t, "    {.name = \"%s\", .type = %s, .required = %s, .offset = offsetof(%s, %s)", a->name, k.type,
        required ? "true" : "false", type, a->name);
    const double number = option ? take_default(&rest) : 0;
    if (number != 0) put(t, ", .number = %s", c_double(number));
    if (k.values) put(t, ", .values = %s_choices", k.values->name);
    put(t, ", .doc = %s},\n", c_string(rest));
}

/* "in_out_kernel": layers of the same parameters share a struct and a list. */
static char *signature(const function_def *f) {
    text t = {0};
    put(&t, "%s", "");
    for (int i = 0; i < f->n_params; i++) put(&t, "%s%s", i ? "_" : "", f->params[i].name);
    return t.s;
}

static bool same_params(const function_def *a, const function_def *b) {
    bool same = a->n_params == b->n_params;
    for (int i = 0; same && i < a->n_params; i++)
        same = strcmp(a->params[i].type, b->params[i].type) == 0 && strcmp(a->params[i].name, b->params[i].name) == 0;
    return same;
}

/* The lists of parameters and of options that are not there yet. */
static void emit_lists(text *t, const library *lib, const header_def *h, int at) {
    const function_def *f = &h->functions[at];
    bool params = f->n_params == 0, options = !f->options;
    for (int i = 0; i < at; i++) {
        const function_def *before = &h->functions[i];
        if (!is_layer(lib, before)) continue;
        const bool same = same_params(f, before);
        if (!same && f->n_params && strcmp(signature(f), signature(before)) == 0)
            fail_at(h->file, f->line, "ct_%s has the parameters of ct_%s, with other types", f->name, before->name);
        params |= same;
        options |= f->options && before->options && strcmp(f->options, before->options) == 0;
    }
    if (!params) {
        const char *name = signature(f);
        put(t, "\ntypedef struct %s_params {\n", name);
        for (int i = 0; i < f->n_params; i++) put(t, "    %s %s;\n", f->params[i].type, f->params[i].name);
        put(t, "} %s_params;\nstatic const ct_attr %s_list[] = {\n", name, name);
        for (int i = 0; i < f->n_params; i++) emit_argument(t, lib, &f->params[i], form("%s_params", name), false, "");
        put(t, "    {.name = NULL},\n};\n");
    }
    if (!options) {
        const struct_def *s = find_struct(h, f->options);
        if (!s) fail_at(h->file, f->line, "struct %s is not in this header", f->options);
        put(t, "\nstatic const ct_attr %s_list[] = {\n", s->name);
        for (int i = 1; i < s->n_fields; i++) { /* the first is the size */
            kind k;
            const char *rest;
            if (!kind_of(lib, s->fields[i].type, &k))
                fail_at(h->file, s->fields[i].line, "%s is a %s, which no text can give: a layer in the table has none",
                        s->fields[i].name, s->fields[i].type);
            takes(lib, h, f, &s->fields[i], &rest);
            emit_argument(t, lib, &s->fields[i], s->name, true, rest);
        }
        put(t, "    {.name = NULL},\n};\n");
    }
}

static void emit_build(text *t, const function_def *f) {
    const char *params = signature(f);
    put(t, "static ct_module *%s_build(const void *params, const void *options) {\n", layer_name(f));
    if (f->n_params) put(t, "    const %s_params *v = params;\n", params);
    else put(t, "    (void)params;\n");
    if (!f->options) put(t, "    (void)options;\n");
    put(t, "    return ct_%s%s(", f->name, f->options ? "_p" : "");
    for (int i = 0; i < f->n_params; i++) put(t, "%sv->%s", i ? ", " : "", f->params[i].name);
    if (f->options) put(t, "%soptions", f->n_params ? ", " : "");
    put(t, ");\n}\n");
}

/* Which of its options it takes, a bit each. */
static unsigned long long option_bits(const library *lib, const header_def *h, const function_def *f) {
    const struct_def *s = f->options ? find_struct(h, f->options) : NULL;
    unsigned long long bits = 0;
    const char *rest;
    if (s && s->n_fields > 65) fail_at(h->file, f->line, "%s has more than 64 options", f->options);
    for (int i = 1; s && i < s->n_fields; i++)
        if (takes(lib, h, f, &s->fields[i], &rest)) bits |= 1ull << (i - 1);
    return bits;
}

void emit_layers(const library *lib, const header_def *h, const char *out) {
    text t = {0}, list = {0};
    int count = 0;
    put(&t, "/* The layers by name. Written by mkops from cotangent/nn.h. */\n#include \"nn/layer_table.h\"\n\n");
    for (int i = 0; i < lib->n_enums; i++) {
        const enum_def *e = lib->enums[i];
        put(&t, "__attribute__((unused)) static const char *const %s_choices[] = {", e->name);
        for (int k = 0; k < e->n; k++) put(&t, "\"%s\", ", e->values[k]);
        put(&t, "NULL};\n");
    }
    put(&t, "static const ct_attr no_list[] = {{.name = NULL}};\n");
    for (int i = 0; i < h->n_functions; i++) {
        const function_def *f = &h->functions[i];
        if (!is_layer(lib, f)) continue;
        if (!*f->doc) fail_at(h->file, f->line, "ct_%s is a layer without a comment above it", f->name);
        const char *name = layer_name(f), *params = signature(f);
        emit_lists(&t, lib, h, i);
        emit_build(&t, f);
        put(&list, "    {{\"%s\", %s}, %s_list, %s_list, 0x%llx, %s, %s, %s_build},\n", name, c_string(f->doc),
            f->n_params ? params : "no", f->options ? f->options : "no", option_bits(lib, h, f),
            f->n_params ? form("sizeof(%s_params)", params) : "0", f->options ? form("sizeof(%s)", f->options) : "0",
            name);
        count++;
    }
    if (!count) fail_at(h->file, 1, "it has no layers in a section of that name");
    put(&t, "\nconst ct__layer ct__layers[] = {\n%s};\nconst int ct__layer_count = %d;\n", list.s, count);
    write_if_changed(form("%s/gen", out), "layers_table.c", &t);
}
