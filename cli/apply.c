/* cotangent apply: reads what is asked for, from the command line or from lines on standard input. */
#include "cli/apply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void print_help(void) {
    printf("usage: cotangent apply OP A.npy B.npy ... [--option value ...] -o Y.npy [-o ...]\n"
           "       cotangent apply OP --help      what this op takes\n"
           "       cotangent apply -              a request a line from standard input\n\n"
           "Inputs come in the order that 'cotangent ops OP' prints; '-' skips an optional one, and --NAME FILE gives "
           "one\n"
           "by name. @A.npy,B.npy is a list. Options are named as in C: --axis 1 --keepdim true --strides 2,1 --pads "
           "1,1,0,2.\n\n"
           "  -o FILE             an output; '-' skips one. As many as are wanted, in order\n"
           "  --mutated FILE      an input that the op changes, afterwards; in order\n"
           "  --cotangent FILE    a cotangent an output, in order ('-' skips one), for:\n"
           "  --grad FILE         the vector-Jacobian product for an input, in order; '-' skips one\n"
           "  --direction FILE    a direction v_i an input, in order ('-' skips one), for:\n"
           "  --second FILE       the gradient of the sum of <vjp_i, v_i> for an input, in order; '-' skips one\n"
           "  --seed N            fixes randomness\n"
           "  --device D          where it runs (default cpu)\n"
           "  --bf16              u16 files hold bf16\n"
           "Several files may follow one such option: --direction V0.npy V1.npy.\n\n"
           "Exit status: 0 done, 1 the op or a file failed, 2 the command line is wrong. With '-' each request is "
           "answered by a\n"
           "line, 'ok' or 'error: TEXT', the next one is read, and the status is 0.\n");
}

/* ---- Names ---- */

static const ct_attr *find_attr(const ct_op *op, const char *name) {
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, name) == 0 || (attr->plural && strcmp(attr->plural, name) == 0)) return attr;
    return NULL;
}

static int find_input(const ct_op *op, const char *name) {
    for (int i = 0; op->inputs && op->inputs[i].name; i++)
        if (strcmp(op->inputs[i].name, name) == 0) return i;
    return -1;
}

static cli_list *find_file_list(apply_request *r, const char *name) {
    if (strcmp(name, "output") == 0) return &r->outputs;
    if (strcmp(name, "mutated") == 0) return &r->mutated;
    if (strcmp(name, "cotangent") == 0) return &r->cotangents;
    if (strcmp(name, "grad") == 0) return &r->grads;
    if (strcmp(name, "direction") == 0) return &r->directions;
    if (strcmp(name, "second") == 0) return &r->seconds;
    return NULL;
}

static int unknown_option(const ct_op *op, const char *name, cli_message *message) {
    static const char *const own[] = {"output", "mutated", "cotangent", "grad", "direction",
                                      "second", "seed",    "device",    "bf16", "help"};
    cli_list names = {0};
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++) {
        cli_list_add(&names, attr->name);
        if (attr->plural) cli_list_add(&names, attr->plural);
    }
    for (int i = 0; op->inputs && op->inputs[i].name; i++) cli_list_add(&names, op->inputs[i].name);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) cli_list_add(&names, own[i]);
    const char *near = cli_nearest(name, names.at, names.n);
    if (near) cli_wrong(message, "%s has no option --%s; did you mean --%s?", op->name, name, near);
    else cli_wrong(message, "%s has no option --%s; 'cotangent ops %s' lists them", op->name, name, op->name);
    cli_list_free(&names);
    return CLI_USAGE;
}

/* ---- Words ---- */

typedef struct parser {
    const char *const *words;
    int n, at;
    apply_request *request;
    cli_list positional;
    cli_list *open;        /* the list of files that the last option began, and that further files go on */
    const char *named[64]; /* inputs given by name */
    bool is_set[256];      /* which attributes */
    cli_message *message;
} parser;

static bool is_truth(const char *text) {
    static const char *const truths[] = {"true", "false", "1", "0"};
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        if (strcmp(text, truths[i]) == 0) return true;
    return false;
}

/* The value of an option: after its =, or the next word. */
static const char *take_value(parser *p, const char *equals) {
    if (equals) return equals + 1;
    return p->at < p->n ? p->words[p->at++] : NULL;
}

static int set_attr(parser *p, const ct_attr *attr, const char *name, const char *equals) {
    const ct_op *op = p->request->op;
    const char *value;
    /* a bare --keepdim means true */
    if (attr->type == CT_ATTR_BOOL && !equals && (p->at == p->n || !is_truth(p->words[p->at]))) value = "true";
    else value = take_value(p, equals);
    if (!value) return cli_wrong(p->message, "--%s needs a value", name);
    const ptrdiff_t number = attr - op->attrs;
    if (number < (ptrdiff_t)(sizeof p->is_set / sizeof *p->is_set)) p->is_set[number] = true;
    if (ct_attrs_set(op, p->request->attrs, name, value)) return CLI_DONE;
    cli_failed(p->message); /* a value that cannot be read is a wrong command line, not a failing op */
    return CLI_USAGE;
}

static int set_seed(parser *p, const char *equals) {
    const char *value = take_value(p, equals);
    char *end = NULL;
    errno = 0;
    p->request->seed = value ? strtoull(value, &end, 0) : 0;
    p->request->seeded = true;
    if (!value || end == value || *end || errno || value[0] == '-')
        return cli_wrong(p->message, "--seed needs an integer from 0 to 18446744073709551615");
    return CLI_DONE;
}

static bool has_attr(const ct_op *op, const char *name) {
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, name) == 0) return true;
    return false;
}

static int set_device(parser *p, const char *equals) {
    const char *value = take_value(p, equals);
    if (!value) return cli_wrong(p->message, "--device needs a name such as cpu or cuda:1");
    if (ct_device_parse(value, &p->request->device)) return CLI_DONE;
    cli_failed(p->message);
    return CLI_USAGE;
}

static int take_option(parser *p, const char *word) {
    apply_request *r = p->request;
    char name[64];
    const char *equals = strchr(word, '=');
    const size_t length = equals ? (size_t)(equals - word) : strlen(word);
    if (length >= sizeof name) return cli_wrong(p->message, "unknown option --%.60s...", word);
    memcpy(name, word, length);
    name[length] = 0;

    if (strcmp(name, "bf16") == 0 && !equals) return r->bf16 = true, CLI_DONE;
    if (strcmp(name, "help") == 0 && !equals) return r->help = true, CLI_DONE;
    if (strcmp(name, "seed") == 0) return set_seed(p, equals);
    if (strcmp(name, "device") == 0 && !has_attr(r->op, "device")) return set_device(p, equals);
    cli_list *files = find_file_list(r, name);
    p->open = files;
    if (files) {
        const char *value = take_value(p, equals);
        if (!value) return cli_wrong(p->message, "--%s needs a file", name);
        return cli_list_add(files, value) ? CLI_DONE : cli_wrong(p->message, "out of memory");
    }
    const ct_attr *attr = find_attr(r->op, name);
    if (attr) return set_attr(p, attr, name, equals);
    const int input = find_input(r->op, name);
    if (input >= 0 && input < (int)(sizeof p->named / sizeof *p->named)) {
        p->named[input] = take_value(p, equals);
        return p->named[input] ? CLI_DONE : cli_wrong(p->message, "--%s needs a file", name);
    }
    return unknown_option(r->op, name, p->message);
}

/* A file without an option: an input, unless all inputs are there and a list of files has been begun. */
static cli_list *list_for_file(parser *p) {
    int required = 0;
    for (const ct_arg *arg = p->request->op->inputs; arg->name; arg++) required += !(arg->flags & CT_ARG_OPTIONAL);
    return p->open && p->positional.n >= required ? p->open : &p->positional;
}

static int take_words(parser *p) {
    while (p->at < p->n) {
        const char *word = p->words[p->at++];
        int status = CLI_DONE;
        if (strcmp(word, "-o") == 0) status = take_option(p, "output");
        else if (strcmp(word, "-h") == 0) p->request->help = true;
        else if (word[0] == '-' && word[1] == '-' && word[2]) status = take_option(p, word + 2);
        else if (word[0] == '-' && word[1])
            status = cli_wrong(p->message, "unknown option %s (options begin with --)", word);
        else if (!cli_list_add(list_for_file(p), word)) status = cli_wrong(p->message, "out of memory");
        if (status != CLI_DONE) return status;
    }
    return CLI_DONE;
}

/* ---- Inputs ---- */

/* Appends the files of "@A.npy,B.npy"; "@" alone is the empty list. */
static int add_list(parser *p, const char *word) {
    apply_request *r = p->request;
    if (word[1] == 0) return CLI_DONE;
    free(r->list_text);
    r->list_text = strdup(word + 1);
    if (!r->list_text) return cli_wrong(p->message, "out of memory");
    for (char *name = r->list_text; name;) {
        char *comma = strchr(name, ',');
        if (comma) *comma++ = 0;
        if (!*name) return cli_wrong(p->message, "a name is missing in the list %s", word);
        if (!cli_list_add(&r->inputs, name)) return cli_wrong(p->message, "out of memory");
        name = comma;
    }
    return CLI_DONE;
}

/* From the words without a dash and the inputs given by name to the flat list of ct_apply. */
static int place_inputs(parser *p) {
    apply_request *r = p->request;
    const ct_arg *args = r->op->inputs;
    const int n = cli_count(args);
    int at = 0;
    for (int i = 0; i < n; i++) {
        const bool list = args[i].flags & CT_ARG_LIST;
        const char *word = p->named[i] ? p->named[i] : at < p->positional.n ? p->positional.at[at++] : NULL;
        if (!word) word = args[i].flags & CT_ARG_OPTIONAL ? "-" : NULL;
        if (!word && !list) return cli_wrong(p->message, "%s: input %d (%s) is missing", r->op->name, i, args[i].name);
        if (!list) {
            if (word[0] == '@')
                return cli_wrong(p->message, "%s: input %d (%s) is not a list", r->op->name, i, args[i].name);
            if (apply_skipped(word) && !(args[i].flags & CT_ARG_OPTIONAL))
                return cli_wrong(p->message, "%s: input %d (%s) is required", r->op->name, i, args[i].name);
            if (!cli_list_add(&r->inputs, word)) return cli_wrong(p->message, "out of memory");
            continue;
        }
        /* a list is one @word, or all the words that are left */
        if (!word || apply_skipped(word)) {
            if (args[i].flags & CT_ARG_OPTIONAL) continue;
            return cli_wrong(p->message, "%s: input %d (%s) is missing: a list, @A.npy,B.npy", r->op->name, i,
                             args[i].name);
        }
        if (word[0] == '@') {
            const int status = add_list(p, word);
            if (status != CLI_DONE) return status;
            continue;
        }
        if (!cli_list_add(&r->inputs, word)) return cli_wrong(p->message, "out of memory");
        while (at < p->positional.n)
            if (!cli_list_add(&r->inputs, p->positional.at[at++])) return cli_wrong(p->message, "out of memory");
    }
    if (at < p->positional.n)
        return cli_wrong(p->message, "%s takes %d input%s; '%s' is one too many", r->op->name, n, n == 1 ? "" : "s",
                         p->positional.at[at]);
    return CLI_DONE;
}

/* ---- Checks ---- */

static int check_count(const parser *p, const cli_list *list, const char *flag, int most, const char *what) {
    if (list->n <= most) return CLI_DONE;
    return cli_wrong(p->message, "%s: %s is given %d times, at most %d fit: one for each %s", p->request->op->name,
                     flag, list->n, most, what);
}

static int check_request(const parser *p) {
    const apply_request *r = p->request;
    const ct_op *op = r->op;
    for (int i = 0; op->attrs && op->attrs[i].name && i < (int)(sizeof p->is_set / sizeof *p->is_set); i++)
        if (op->attrs[i].required && !p->is_set[i])
            return cli_wrong(p->message, "%s: option --%s is required", op->name, op->attrs[i].name);

    const int outputs = cli_count(op->outputs);
    const bool any_number = outputs > 0 && (op->outputs[outputs - 1].flags & CT_ARG_LIST);
    int changed = 0;
    for (int i = 0; op->inputs && op->inputs[i].name; i++) changed += (op->inputs[i].flags & CT_ARG_MUTATED) != 0;
    const int most = any_number ? 1 << 20 : outputs;
    int status = check_count(p, &r->outputs, "-o", most, "output");
    if (!status) status = check_count(p, &r->cotangents, "--cotangent", most, "output");
    if (!status) status = check_count(p, &r->mutated, "--mutated", changed, "input that it changes");
    if (!status) status = check_count(p, &r->grads, "--grad", r->inputs.n, "input");
    if (!status) status = check_count(p, &r->directions, "--direction", r->inputs.n, "input");
    if (!status) status = check_count(p, &r->seconds, "--second", r->inputs.n, "input");
    if (status) return status;

    if (r->outputs.n == 0 && r->grads.n == 0 && r->seconds.n == 0 && r->mutated.n == 0)
        return cli_wrong(p->message, "%s: nothing to write: give -o FILE", op->name);
    if (r->cotangents.n > 0 && r->grads.n == 0 && r->seconds.n == 0)
        return cli_wrong(p->message, "%s: --cotangent without --grad or --second", op->name);
    if (r->directions.n > 0 && r->seconds.n == 0)
        return cli_wrong(p->message, "%s: --direction without --second", op->name);
    if (r->seconds.n > 0 && r->directions.n == 0)
        return cli_wrong(p->message, "%s: --second needs --direction", op->name);
    return CLI_DONE;
}

int apply_parse(const char *const *words, int n, apply_request *request, cli_message *message) {
    *request = (apply_request){0};
    request->op = cli_find_op(words[0], message);
    if (!request->op) return CLI_USAGE;
    request->attrs = calloc(1, request->op->attr_size ? request->op->attr_size : 1);
    if (!request->attrs) return cli_wrong(message, "out of memory");
    ct_attrs_default(request->op, request->attrs);

    parser p = {.words = words, .n = n, .at = 1, .request = request, .message = message};
    int status = take_words(&p);
    if (!status && !request->help) status = place_inputs(&p);
    if (!status && !request->help) status = check_request(&p);
    cli_list_free(&p.positional);
    return status;
}

void apply_free(apply_request *request) {
    cli_list *const lists[] = {&request->inputs, &request->outputs,    &request->mutated, &request->cotangents,
                               &request->grads,  &request->directions, &request->seconds};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) cli_list_free(lists[i]);
    free(request->list_text);
    free(request->attrs);
    *request = (apply_request){0};
}

/* ---- The command ---- */

/* One request from start to end; on CLI_DONE *help says that it only asked what the op takes. */
static int run_words(const char *const *words, int n, const ct_op **help, cli_message *message) {
    apply_request request;
    int status = apply_parse(words, n, &request, message);
    *help = status == CLI_DONE && request.help ? request.op : NULL;
    if (status == CLI_DONE && !*help) status = apply_run(&request, message);
    apply_free(&request);
    return status;
}

static void answer(int status, cli_message *message) {
    for (char *c = message->text; *c; c++)
        if (*c == '\n') *c = ' '; /* an answer is one line */
    if (status == CLI_DONE) printf("ok\n");
    else printf("error: %s\n", message->text);
    fflush(stdout);
}

static int run_lines(void) {
    char *line = NULL;
    size_t capacity = 0;
    cli_list words = {0};
    while (getline(&line, &capacity, stdin) >= 0) {
        cli_message message = {{0}};
        words.n = 0;
        int status = cli_split(line, &words, &message);
        const char *const *first = words.at;
        int n = words.n;
        /* a line may be a whole command, as it would stand in a script */
        if (n > 1 && strcmp(*first, "cotangent") == 0) first++, n--;
        if (n > 1 && strcmp(*first, "apply") == 0) first++, n--;
        if (status == CLI_DONE && n == 0) continue;
        const ct_op *help = NULL;
        if (status == CLI_DONE) status = run_words(first, n, &help, &message);
        if (help) status = cli_wrong(&message, "--help has no place here; see 'cotangent ops %s'", help->name);
        answer(status, &message);
    }
    cli_list_free(&words);
    free(line);
    return CLI_DONE;
}

int cli_apply(int argc, char **argv) {
    cli_message message = {{0}};
    if (argc > 1 && strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0) {
        if (strcmp(argv[1], "-") == 0 && argc == 2) return run_lines();
        const ct_op *help = NULL;
        const int status = run_words((const char *const *)argv + 1, argc - 1, &help, &message);
        if (help) cli_print_op(stdout, help);
        if (status != CLI_DONE) fprintf(stderr, "error: %s\n", message.text);
        return status;
    }
    if (argc > 1) {
        print_help();
        return CLI_DONE;
    }
    fprintf(stderr, "error: no op given; see 'cotangent apply --help'\n");
    return CLI_USAGE;
}
