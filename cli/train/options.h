/* What the command lines of train, eval, predict and generate share. */
#ifndef COTANGENT_CLI_TRAIN_OPTIONS_H
#define COTANGENT_CLI_TRAIN_OPTIONS_H

#include "cli/cli.h"

/* Whether argv[*i] is that option; then its value (after =, or the next word, which is passed over), NULL when it lacks one. */
bool option_value(int argc, char **argv, int *i, const char *name, const char **value);
/* These print a line and return CLI_USAGE. known: all options, with blanks between them. */
int option_lacks(const char *name);
int option_unknown(const char *command, const char *word, const char *known);
/* Prints the pending error, clears it and returns status. */
int option_failed(int status);

/* False after a line was printed. */
bool option_device(const char *text, ct_device *device);
bool option_threads(const char *text);
bool option_integer(const char *name, const char *text, int64_t least, int64_t most, int64_t *value);
bool option_number(const char *name, const char *text, double least, double *value);

/* "key=value" each, owned. */
typedef struct option_sets {
    cli_list at;
} option_sets;
bool option_set(option_sets *sets, const char *key, const char *value); /* key NULL: value is the whole */
void option_sets_free(option_sets *sets);

#endif
