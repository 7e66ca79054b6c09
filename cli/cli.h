/* What the subcommands of `cotangent` share. Exit codes: 0 done, 1 the library refused, 2 the command line is wrong. */
#ifndef COTANGENT_CLI_H
#define COTANGENT_CLI_H

#include <cotangent.h>
#include <cotangent/op.h>

#include <stdio.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* A command takes its own arguments: argv[0] is its name. */
#define COMMAND(name, summary) int cli_##name(int argc, char **argv);
#include "cli/commands.def"
#undef COMMAND

/* A growing list of strings that it does not own. Zeroed, it is empty. */
typedef struct cli_list {
    const char **at;
    int n, capacity;
} cli_list;
bool cli_list_add(cli_list *list, const char *text); /* false: out of memory */
void cli_list_free(cli_list *list);

/* Writes a message into text and returns CLI_USAGE, so that a parser can `return cli_wrong(...)`. */
typedef struct cli_message {
    char text[1536];
} cli_message;
int cli_wrong(cli_message *message, const char *format, ...) CT_PRINTF(2, 3);
int cli_failed(cli_message *message); /* takes the library's error over, clears it, returns CLI_FAILED */

/* The candidate closest to name by edit distance, NULL when none is near. */
const char *cli_nearest(const char *name, const char *const *candidates, int count);
/* The op of that name, or NULL with a message that suggests one. */
const ct_op *cli_find_op(const char *name, cli_message *message);

/* Splits a line into words as a shell would: blanks, '...', "..." and \; a # at the start of a word ends the line. The
 * line is changed and the words point into it. */
int cli_split(char *line, cli_list *words, cli_message *message);

bool cli_wants_help(int argc, char **argv);
void cli_print_op(FILE *file, const ct_op *op); /* what `cotangent ops NAME` prints */
int cli_count(const ct_arg *arguments);
/* The default of an attribute as it would be typed; "" when it has none. */
void cli_attr_default(const ct_op *op, const ct_attr *attr, char *text, size_t capacity);
const char *cli_attr_type(const ct_attr *attr, char *text, size_t capacity);

/* Pieces of JSON on standard output. */
void cli_json_string(const char *text);
void cli_json_key(const char *key, const char *text); /* "key":"text" */
/* An attribute as an object; value: its default as text, NULL for none. */
void cli_json_attr(const ct_attr *attr, const char *value);

#endif
