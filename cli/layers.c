/* cotangent layers: the table of layers as text or JSON; and a layer made from arguments, as a binding would make it. */
#include "cli/cli.h"

#include <cotangent/nn.h>

#include <string.h>

enum { MOST_GIVEN = 64 };

/* As it would be typed; "" where nothing, zero or false is the default. */
static const char *default_text(const ct_attr *a, char *text, size_t capacity) {
    if (a->type == CT_ATTR_ENUM) snprintf(text, capacity, "%s", a->values[0]);
    else if (a->type == CT_ATTR_BOOL) snprintf(text, capacity, "false");
    else if (a->number != 0) snprintf(text, capacity, "%.10g", a->number);
    else text[0] = 0;
    return text;
}

static void print_layer(const ct_layer_info *info) {
    printf("%s\n", info->name);
    for (const char *line = info->doc; *line;) {
        const size_t length = strcspn(line, "\n");
        printf("  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    if (ct_layer_argument(info, 0)) printf("arguments\n");
    const ct_attr *a;
    for (int i = 0; (a = ct_layer_argument(info, i)); i++) {
        char type[256], value[64];
        printf("  %-18s %s", a->name, cli_attr_type(a, type, sizeof type));
        if (a->required) printf(", required");
        else if (default_text(a, value, sizeof value)[0]) printf(", default %s", value);
        if (a->doc && a->doc[0]) printf(": %s", a->doc);
        putchar('\n');
    }
}

static void json_layer(const ct_layer_info *info) {
    printf("{");
    cli_json_key("name", info->name);
    printf(","), cli_json_key("doc", info->doc);
    printf(",\"arguments\":[");
    const ct_attr *a;
    for (int i = 0; (a = ct_layer_argument(info, i)); i++) {
        char value[64];
        if (i) putchar(',');
        cli_json_attr(a, a->required ? NULL : default_text(a, value, sizeof value));
    }
    printf("]}");
}

/* How long the first sentence of a text is, or what stands before its colon. */
static int sentence(const char *text) {
    int n = (int)strcspn(text, "\n"), depth = 0;
    for (int i = 0; i + 1 < n; i++) {
        depth += (text[i] == '(' || text[i] == '[') - (text[i] == ')' || text[i] == ']');
        if (!depth && (text[i] == '.' || text[i] == ':' || text[i] == ';') && text[i + 1] == ' ') return i;
    }
    return n && text[n - 1] == '.' ? n - 1 : n;
}

static void list_layers(bool json) {
    const ct_layer_info *info;
    if (json) printf("[");
    for (int i = 0; (info = ct_layer_at(i)); i++) {
        if (json) printf("%s", i ? ",\n" : "\n"), json_layer(info);
        else printf("%-28s %.*s\n", info->name, sentence(info->doc), info->doc);
    }
    if (json) printf("\n]\n");
}

static int find_layer(const char *name, const ct_layer_info **info) {
    *info = ct_layer_find(name);
    if (*info) return CLI_DONE;
    cli_list names = {0};
    for (int i = 0; ct_layer_at(i) && cli_list_add(&names, ct_layer_at(i)->name);) i++;
    const char *near = cli_nearest(name, names.at, names.n);
    if (near) fprintf(stderr, "error: there is no layer '%s'; did you mean '%s'?\n", name, near);
    else fprintf(stderr, "error: there is no layer '%s'; 'cotangent layers' lists them\n", name);
    cli_list_free(&names);
    return CLI_USAGE;
}

/* With its arguments in the table's words: in=3 out=16 kernel=5. */
static int build_layer(const ct_layer_info *info, const ct_named_text *given, int n) {
    ct_module *module = ct_layer_build(info, given, n);
    const bool printed = module && ct_module_print(module);
    ct_module_free(module);
    if (printed) return CLI_DONE;
    fprintf(stderr, "error: %s\n", ct_error());
    return CLI_FAILED;
}

int cli_layers(int argc, char **argv) {
    if (cli_wants_help(argc, argv)) {
        printf("usage: cotangent layers [NAME [ARGUMENT=VALUE...]] [--json]\n\n"
               "Lists the layers of ct_nn_NAME, or describes one: its arguments with types and defaults. With "
               "arguments it\n"
               "makes the layer and prints it, with shapes and the number of parameters:\n"
               "  cotangent layers conv2d in=3 out=16 kernel=5 pad=2 activation=relu\n"
               "  --json  the same for programs\n");
        return CLI_DONE;
    }
    const char *name = NULL;
    bool json = false;
    ct_named_text given[MOST_GIVEN];
    int n = 0;
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (!name && argv[i][0] != '-') {
            name = argv[i];
        } else if (equals && argv[i][0] != '-' && n < MOST_GIVEN) {
            *equals = 0;
            given[n++] = (ct_named_text){argv[i], equals + 1};
        } else {
            fprintf(stderr, "error: unexpected argument '%s'; see 'cotangent layers --help'\n", argv[i]);
            return CLI_USAGE;
        }
    }
    if (!name) {
        list_layers(json);
        return CLI_DONE;
    }
    const ct_layer_info *info;
    const int status = find_layer(name, &info);
    if (status != CLI_DONE) return status;
    if (n) return build_layer(info, given, n);
    if (json) json_layer(info), putchar('\n');
    else print_layer(info);
    return CLI_DONE;
}
