/* cotangent ops: the op table as text or JSON. What is printed here is what `cotangent apply` takes. */
#include "cli/cli.h"

#include <cotangent/backend.h>
#include <cotangent/graph.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Attributes ---- */

const char *cli_attr_type(const ct_attr *attr, char *text, size_t capacity) {
    static const char *const names[] = {
        [CT_ATTR_INT] = "integer",  [CT_ATTR_DOUBLE] = "number", [CT_ATTR_BOOL] = "bool", [CT_ATTR_DIMS] = "list",
        [CT_ATTR_OPT] = "number",   [CT_ATTR_DTYPE] = "dtype",   [CT_ATTR_ENUM] = "enum", [CT_ATTR_TEXT] = "text",
        [CT_ATTR_AXES] = "integer", [CT_ATTR_DEVICE] = "device",
    };
    if (attr->type != CT_ATTR_ENUM || !attr->values) return names[attr->type];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; attr->values[i] && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? "|" : "", attr->values[i]);
    return text;
}

/* Read out of a struct of defaults, so that there is no second place that knows them. */
void cli_attr_default(const ct_op *op, const ct_attr *attr, char *text, size_t capacity) {
    text[0] = 0;
    if (attr->required) return;
    char *attrs = calloc(1, op->attr_size ? op->attr_size : 1);
    if (!attrs) return;
    ct_attrs_default(op, attrs);
    if (!ct_attrs_text(attr, attrs, text, capacity) && attr->type == CT_ATTR_DEVICE)
        snprintf(text, capacity, "the current one");
    free(attrs);
}

/* ---- Text ---- */

static void print_arguments(FILE *file, const ct_arg *arguments) {
    static const struct {
        unsigned flag;
        const char *text;
    } words[] = {
        {CT_ARG_OPTIONAL, "optional"}, {CT_ARG_LIST, "list"},       {CT_ARG_BROADCAST, "broadcasts"},
        {CT_ARG_PROMOTE, "promotes"},  {CT_ARG_FLOAT, "float"},     {CT_ARG_INDEX, "i32 or i64"},
        {CT_ARG_BOOL, "bool"},         {CT_ARG_MUTATED, "changed"},
    };
    for (int i = 0; arguments && arguments[i].name; i++) {
        const char *between = " ";
        fprintf(file, arguments[i].flags ? "  %-16s" : "  %s", arguments[i].name);
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (arguments[i].flags & words[w].flag) {
                fprintf(file, "%s%s", between, words[w].text);
                between = ", ";
            }
        fputc('\n', file);
    }
}

static void print_options(FILE *file, const ct_op *op) {
    if (!op->attrs || !op->attrs[0].name) return;
    fprintf(file, "options\n");
    for (const ct_attr *attr = op->attrs; attr->name; attr++) {
        char type[256], value[256], name[128];
        cli_attr_default(op, attr, value, sizeof value);
        snprintf(name, sizeof name, "--%s%s%s", attr->name, attr->plural ? ", --" : "",
                 attr->plural ? attr->plural : "");
        fprintf(file, "  %-24s %s", name, cli_attr_type(attr, type, sizeof type));
        if (attr->required) fprintf(file, ", required");
        else if (value[0]) fprintf(file, ", default %s", value);
        if (attr->doc && attr->doc[0]) fprintf(file, ": %s", attr->doc);
        fputc('\n', file);
    }
}

/* Without simpler ops to run it in: what a backend has to have kernels for. */
static bool is_primitive(const ct_op *op) { return !op->lower && !(op->flags & CT_OP_VIEW); }

static void print_kernels(FILE *file, const ct_op *op) {
    for (int type = CT_CPU; ct_backend_name((ct_device_type)type); type++) {
        const ct_kernel *kernel = ct_op_kernel(op, (ct_device_type)type, 0);
        if (type != CT_CPU && !kernel) continue;
        fprintf(file, "%-8s", ct_backend_name((ct_device_type)type));
        int count = 0;
        for (; (kernel = ct_op_kernel(op, (ct_device_type)type, count)); count++) fprintf(file, " %s", kernel->name);
        if (count == 0)
            fprintf(file, op->flags & CT_OP_VIEW ? " a view: no kernel" : op->lower ? " in simpler ops" : " none");
        fputc('\n', file);
    }
}

void cli_print_op(FILE *file, const ct_op *op) {
    fprintf(file, "%s\n", op->name);
    for (const char *line = op->doc ? op->doc : ""; *line;) {
        const size_t length = strcspn(line, "\n");
        fprintf(file, "  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    if (op->inputs && op->inputs[0].name) fprintf(file, "inputs\n");
    print_arguments(file, op->inputs);
    fprintf(file, "outputs\n");
    print_arguments(file, op->outputs);
    print_options(file, op);
    if (op->flags & CT_OP_RANDOM) fprintf(file, "random   --seed N fixes it\n");
    if (op->flags & CT_OP_WAITS) fprintf(file, "waits    for the device of its inputs, whose values it reads\n");
    fprintf(file, "gradient %s\n", ct_op_differentiable(op) ? "yes, to any order" : "no: not differentiable");
    if (is_primitive(op)) fprintf(file, "primitive: a backend needs a kernel for it\n");
    print_kernels(file, op);
}

/* ---- JSON ---- */

static const char *truth(bool value) { return value ? "true" : "false"; }

static void json_arguments(const char *key, const ct_arg *arguments) {
    printf(",\"%s\":[", key);
    for (int i = 0; arguments && arguments[i].name; i++) {
        const unsigned flags = arguments[i].flags;
        printf("%s{", i ? "," : "");
        cli_json_key("name", arguments[i].name);
        printf(",\"optional\":%s,\"list\":%s,\"broadcast\":%s,\"promote\":%s,\"float\":%s,\"index\":%s,\"bool\":%s,"
               "\"mutated\":%s}",
               truth(flags & CT_ARG_OPTIONAL), truth(flags & CT_ARG_LIST), truth(flags & CT_ARG_BROADCAST),
               truth(flags & CT_ARG_PROMOTE), truth(flags & CT_ARG_FLOAT), truth(flags & CT_ARG_INDEX),
               truth(flags & CT_ARG_BOOL), truth(flags & CT_ARG_MUTATED));
    }
    printf("]");
}

static void json_options(const ct_op *op) {
    printf(",\"options\":[");
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++) {
        char value[256];
        cli_attr_default(op, attr, value, sizeof value);
        if (attr != op->attrs) putchar(',');
        cli_json_attr(attr, attr->required ? NULL : value);
    }
    printf("]");
}

static void json_op(const ct_op *op) {
    printf("{");
    cli_json_key("name", op->name);
    printf(","), cli_json_key("doc", op->doc);
    json_arguments("inputs", op->inputs);
    json_arguments("outputs", op->outputs);
    json_options(op);
    printf(",\"differentiable\":%s,\"elementwise\":%s,\"view\":%s,\"random\":%s,\"internal\":%s,\"lower\":%s,"
           "\"primitive\":%s,\"waits\":%s,\"kernels\":{",
           truth(ct_op_differentiable(op)), truth(op->flags & CT_OP_ELEMENTWISE), truth(op->flags & CT_OP_VIEW),
           truth(op->flags & CT_OP_RANDOM), truth(op->flags & CT_OP_INTERNAL), truth(op->lower),
           truth(is_primitive(op)), truth(op->flags & CT_OP_WAITS));
    for (int type = CT_CPU; ct_backend_name((ct_device_type)type); type++) {
        printf("%s\"%s\":[", type > CT_CPU ? "," : "", ct_backend_name((ct_device_type)type));
        const ct_kernel *kernel;
        for (int i = 0; (kernel = ct_op_kernel(op, (ct_device_type)type, i)); i++)
            printf("%s", i ? "," : ""), cli_json_string(kernel->name);
        printf("]");
    }
    printf("}}");
}

/* ---- The command ---- */

/* Which ops are listed. Of the primitives the elementwise ones are left out of the text: they are made of one line each. */
enum { LIST_PUBLIC, LIST_ALL, LIST_PRIMITIVES };

static bool is_listed(const ct_op *op, int which) {
    return which == LIST_PRIMITIVES ? is_primitive(op) : which == LIST_ALL || !(op->flags & CT_OP_INTERNAL);
}

static void list_ops(int which) {
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        if (!is_listed(op, which) || (which == LIST_PRIMITIVES && (op->flags & CT_OP_ELEMENTWISE))) continue;
        const char *doc = op->doc ? op->doc : "";
        printf("%-28s %.*s\n", op->name, (int)strcspn(doc, "\n"), doc);
    }
}

/* How an op is run on a backend. */
static const char *coverage(const ct_op *op, ct_device_type type) {
    if (ct_op_kernel(op, type, 0)) return "kernel";
    return op->flags & CT_OP_VIEW ? "view" : op->lower ? "lowered" : "none";
}

/* A column for each backend that is there, or for one alone (0: all), and the sums below. */
static void list_coverage(int which, int only) {
    static const char *const kinds[] = {"kernel", "lowered", "view", "none"};
    int sums[4][CT_DEVICE_TYPES] = {{0}};
    bool shown[CT_DEVICE_TYPES] = {false};
    printf("%-28s", "op");
    for (int type = CT_CPU; ct_backend_name((ct_device_type)type); type++) {
        shown[type] = only ? type == only : !ct_backend_missing((ct_device_type)type)[0];
        if (shown[type]) printf(" %-8s", ct_backend_name((ct_device_type)type));
    }
    printf("\n");
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        if (!is_listed(op, which)) continue;
        printf("%-28s", op->name);
        for (int type = CT_CPU; type < CT_DEVICE_TYPES; type++) {
            if (!shown[type]) continue;
            const char *kind = coverage(op, (ct_device_type)type);
            for (int k = 0; k < 4; k++) sums[k][type] += strcmp(kinds[k], kind) == 0;
            printf(" %-8s", kind);
        }
        printf("\n");
    }
    for (int k = 0; k < 4; k++) {
        printf("%-28s", kinds[k]);
        for (int type = CT_CPU; type < CT_DEVICE_TYPES; type++)
            if (shown[type]) printf(" %-8d", sums[k][type]);
        printf("\n");
    }
}

static void list_json(int which) {
    printf("[");
    const char *between = "\n";
    for (int i = 0; i < ct_op_count(); i++) {
        if (!is_listed(ct_op_at(i), which)) continue;
        printf("%s", between);
        json_op(ct_op_at(i));
        between = ",\n";
    }
    printf("\n]\n");
}

int cli_ops(int argc, char **argv) {
    if (cli_wants_help(argc, argv)) {
        printf("usage: cotangent ops [NAME] [--json] [--internal] [--primitives] [--coverage] [--backend NAME]\n\n"
               "Lists the ops, or describes one: inputs in the order in which 'cotangent apply' takes them, outputs,\n"
               "options with types and defaults, whether it can be differentiated, and its kernels on each backend.\n"
               "  --json        the same for programs\n"
               "  --internal    also the helpers of other ops (fused gradients)\n"
               "  --primitives  only those that a backend needs kernels for, beside the elementwise ones\n"
               "  --coverage    a table: whether each backend that is there has a kernel for an op, or runs it in "
               "simpler\n"
               "                ops (lowered); with --primitives the elementwise ones too\n"
               "  --backend     the same for this one alone, such as cuda\n");
        return CLI_DONE;
    }
    const char *name = NULL;
    bool json = false, covers = false;
    int which = LIST_PUBLIC, only = 0;
    cli_message message;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) json = true;
        else if (strcmp(argv[i], "--coverage") == 0) covers = true;
        else if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) {
            ct_device device;
            if (!ct_device_parse(argv[++i], &device)) {
                fprintf(stderr, "error: %s\n", ct_error());
                return CLI_FAILED;
            }
            covers = true;
            only = (int)device.type;
        } else if (strcmp(argv[i], "--internal") == 0) which = LIST_ALL;
        else if (strcmp(argv[i], "--primitives") == 0) which = LIST_PRIMITIVES;
        else if (argv[i][0] == '-' || name) {
            fprintf(stderr, "error: unexpected argument '%s'; see 'cotangent ops --help'\n", argv[i]);
            return CLI_USAGE;
        } else name = argv[i];
    }
    ct_isa(); /* the kernel tables are filled on first use */
    if (covers && (name || json)) {
        fprintf(stderr,
                "error: --coverage and --backend go with neither a name nor --json; that tells of kernels too\n");
        return CLI_USAGE;
    }
    if (!name) {
        if (covers) list_coverage(which, only);
        else if (json) list_json(which);
        else list_ops(which);
        return CLI_DONE;
    }
    const ct_op *op = cli_find_op(name, &message);
    if (!op) {
        fprintf(stderr, "error: %s\n", message.text);
        return CLI_USAGE;
    }
    if (json) json_op(op), printf("\n");
    else cli_print_op(stdout, op);
    return CLI_DONE;
}
