/* Options of the command line. */
#include "cli/train/options.h"

#include "cli/train/tree.h"

#include <cotangent/dist.h>

#include <stdlib.h>
#include <string.h>

bool option_value(int argc, char **argv, int *i, const char *name, const char **value) {
    const size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0) return false;
    if (argv[*i][n] == '=') *value = argv[*i] + n + 1;
    else if (argv[*i][n] != 0) return false;
    else *value = *i + 1 < argc ? argv[++*i] : NULL;
    return true;
}

int option_lacks(const char *name) {
    fprintf(stderr, "error: %s needs a value\n", name);
    return CLI_USAGE;
}

int option_unknown(const char *command, const char *word, const char *known) {
    char copy[512];
    const char *names[32];
    int n = 0;
    snprintf(copy, sizeof copy, "%s", known);
    for (char *name = strtok(copy, " "); name && n < 32; name = strtok(NULL, " ")) names[n++] = name;
    const char *near = cli_nearest(word, names, n);
    if (near) fprintf(stderr, "error: 'cotangent %s' has no option %s; did you mean %s?\n", command, word, near);
    else fprintf(stderr, "error: 'cotangent %s' has no option %s; --help lists them\n", command, word);
    return CLI_USAGE;
}

int option_failed(int status) {
    char rank[32] = "";                               /* of several processes each tells what it knows */
    if (ct_dist_size() > 1 && ct_ok()) return status; /* another one tells it */
    if (ct_dist_size() > 1) snprintf(rank, sizeof rank, "rank %d: ", ct_dist_rank());
    fprintf(stderr, "%serror: %s\n", rank, ct_ok() ? "failed without an error text" : ct_error());
    ct_error_clear();
    return status;
}

bool option_device(const char *text, ct_device *device) {
    if (ct_device_parse(text, device)) return true;
    const char *reason = ct_error() + strlen(ct_error_op()); /* which function said so is of no interest here */
    fprintf(stderr, "error: --device %s: %s\n", text, reason + strspn(reason, ": "));
    ct_error_clear();
    return false;
}

bool option_integer(const char *name, const char *text, int64_t least, int64_t most, int64_t *value) {
    const tree node = {.kind = TREE_TEXT, .text = (char *)text};
    if (tree_integer(&node, value) && *value >= least && *value <= most) return true;
    fprintf(stderr, "error: %s is a whole number from %lld to %lld, not '%s'\n", name, (long long)least,
            (long long)most, text);
    return false;
}

bool option_number(const char *name, const char *text, double least, double *value) {
    const tree node = {.kind = TREE_TEXT, .text = (char *)text};
    if (tree_number(&node, value) && *value >= least) return true;
    fprintf(stderr, "error: %s is a number, %g or more, not '%s'\n", name, least, text);
    return false;
}

bool option_threads(const char *text) {
    int64_t n;
    return option_integer("--threads", text, 1, 1024, &n) && (ct_set_threads((int)n) || (option_failed(0), false));
}

bool option_set(option_sets *sets, const char *key, const char *value) {
    buffer b = {0};
    if (!text_is_utf8(value)) return ct_fail(CT_ERR_VALUE, NULL, "--set %s: this is not UTF-8", key ? key : value);
    if (key) buffer_add(&b, "%s=", key);
    if (key && strcmp(key, "data.path") == 0) buffer_json(&b, value); /* a path is never a list or a number */
    else buffer_text(&b, value);
    if (!b.failed && cli_list_add(&sets->at, b.at)) return true;
    buffer_free(&b);
    return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
}

void option_sets_free(option_sets *sets) {
    for (int i = 0; i < sets->at.n; i++) free((char *)sets->at.at[i]);
    cli_list_free(&sets->at);
}
