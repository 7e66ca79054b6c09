/* One request of `cotangent apply`: what apply.c reads from the command line and apply_run.c carries out. */
#ifndef COTANGENT_CLI_APPLY_H
#define COTANGENT_CLI_APPLY_H

#include "cli/cli.h"

/* File names; "-" stands for one that is left out. */
typedef struct apply_request {
    const ct_op *op;
    void *attrs;     /* op->attr_size bytes */
    cli_list inputs; /* in the order of ct_apply: optional ones "-", a list flattened at the end */
    cli_list outputs, mutated;
    cli_list cotangents, grads;   /* by output; by input */
    cli_list directions, seconds; /* by input */
    char *list_text;              /* what the names of an @list point into */
    bool bf16, seeded, help;
    ct_device device; /* where the op runs; zero: on the CPU */
    uint64_t seed;
} apply_request;

/* Reads words[0..n): the op and its arguments. CLI_DONE, CLI_FAILED or CLI_USAGE with a message. */
int apply_parse(const char *const *words, int n, apply_request *request, cli_message *message);
int apply_run(const apply_request *request, cli_message *message);
void apply_free(apply_request *request);

static inline bool apply_skipped(const char *name) { return name[0] == '-' && name[1] == 0; }

#endif
