/* Helpers of the command line: lists, messages, suggestions, words of a line. Nothing about any one command. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

bool cli_list_add(cli_list *list, const char *text) {
    if (list->n == list->capacity) {
        const int capacity = list->capacity ? list->capacity * 2 : 16;
        const char **at = realloc(list->at, (size_t)capacity * sizeof *at);
        if (!at) return false;
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->n++] = text;
    return true;
}

void cli_list_free(cli_list *list) {
    free(list->at);
    *list = (cli_list){0};
}

int cli_wrong(cli_message *message, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message->text, sizeof message->text, format, args);
    va_end(args);
    return CLI_USAGE;
}

int cli_failed(cli_message *message) {
    snprintf(message->text, sizeof message->text, "%s", ct_ok() ? "failed without an error text" : ct_error());
    ct_error_clear();
    return CLI_FAILED;
}

/* Levenshtein distance, one row at a time; long names are compared by their beginning. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 63 };
    int row[LONGEST + 1];
    const int n = (int)strnlen(a, LONGEST), m = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int substitute = diagonal + (a[i - 1] != b[j - 1]);
            const int shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = substitute < shift ? substitute : shift;
        }
    }
    return row[m];
}

const char *cli_nearest(const char *name, const char *const *candidates, int count) {
    const char *best = NULL;
    int least = (int)strlen(name) / 3 + 2; /* further away is no suggestion */
    for (int i = 0; i < count; i++) {
        const int d = distance(name, candidates[i]);
        if (d < least) {
            least = d;
            best = candidates[i];
        }
    }
    return best;
}

const ct_op *cli_find_op(const char *name, cli_message *message) {
    const ct_op *op = ct_op_find(name);
    if (op) return op;
    cli_list names = {0};
    for (int i = 0; i < ct_op_count(); i++)
        if (!(ct_op_at(i)->flags & CT_OP_INTERNAL) && !cli_list_add(&names, ct_op_at(i)->name)) break;
    const char *near = cli_nearest(name, names.at, names.n);
    if (near) cli_wrong(message, "there is no op '%s'; did you mean '%s'?", name, near);
    else cli_wrong(message, "there is no op '%s'; 'cotangent ops' lists them", name);
    cli_list_free(&names);
    return NULL;
}

int cli_split(char *line, cli_list *words, cli_message *message) {
    char *in = line, *out = line;
    for (;;) {
        while (*in == ' ' || *in == '\t' || *in == '\n' || *in == '\r') in++;
        if (*in == 0 || *in == '#') return CLI_DONE;
        char *word = out;
        char quote = 0;
        for (; *in && (quote || !strchr(" \t\n\r", *in)); in++) {
            if (quote && *in == quote) quote = 0;
            else if (!quote && (*in == '\'' || *in == '"')) quote = *in;
            else if (*in == '\\' && quote != '\'' && in[1]) *out++ = *++in;
            else *out++ = *in;
        }
        if (quote) return cli_wrong(message, "a quote (%c) is not closed", quote);
        const bool more = *in != 0;
        *out++ = 0; /* never ahead of `in`: a word is at most as long as its text and is followed by one blank */
        if (!cli_list_add(words, word)) return cli_wrong(message, "out of memory");
        if (!more) return CLI_DONE;
        in++;
    }
}

bool cli_wants_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

int cli_count(const ct_arg *arguments) {
    int n = 0;
    while (arguments && arguments[n].name) n++;
    return n;
}
