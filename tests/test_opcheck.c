/* Every op of the table against itself computed another way: see opcheck.h. */
#include "tests/opcheck.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/amx_trap.h"

int main(int argc, char **argv) {
    unsigned what = 0, smallest = 0;
    bool verbose = false;
    int n = 0;
    const char **names = calloc((size_t)argc + 1, sizeof *names);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            for (int op = 0; op < ct_op_count(); op++) printf("%s\n", ct_op_at(op)->name);
            return 0;
        }
        if (strcmp(argv[i], "--verbose") == 0) verbose = true;
        else if (strcmp(argv[i], "--values") == 0) what |= OPCHECK_VALUES;
        else if (strcmp(argv[i], "--gradients") == 0) what |= OPCHECK_GRADIENTS;
        else if (strcmp(argv[i], "--threads") == 0) what |= OPCHECK_THREADS;
        else if (strcmp(argv[i], "--capture") == 0) what |= OPCHECK_CAPTURE;
        else if (strcmp(argv[i], "--smallest") == 0) smallest = OPCHECK_SMALLEST;
        else names[n++] = argv[i];
    }
    amx_trap_start();
    if (amx_trap_is_set()) opcheck_trapped = amx_trap_count;
    int skipped = 0;
    for (const char *const *level = opcheck_missing_levels(); *level; level++) {
        printf("skipped %s: this machine lacks its instructions, or this build the level\n", *level);
        skipped++;
    }
    opcheck_counts counts = opcheck_run(names, n, NULL, (what ? what : OPCHECK_ALL) | smallest, 2, 0, verbose);
    free(names);
    printf("%d ops, %d checks\n", counts.ops, counts.checks);
    if (skipped) printf("%d passed, %d failed, %d skipped\n", counts.ops - counts.failures, counts.failures, skipped);
    else printf("%d passed, %d failed\n", counts.ops - counts.failures, counts.failures);
    return counts.failures != 0;
}
