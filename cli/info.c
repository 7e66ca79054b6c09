/* cotangent info: what the library is and what it found on this machine. */
#include "cli/cli.h"

int cli_info(int argc, char **argv) {
    if (cli_wants_help(argc, argv)) {
        printf("usage: cotangent info\n\nPrints the version, the level of vector instructions in use, the threads, and "
               "for\n"
               "each backend whether it is there, or why not. CT_ISA and CT_THREADS change the first two.\n");
        return CLI_DONE;
    }
    if (argc > 1) {
        fprintf(stderr, "error: 'cotangent info' takes no arguments\n");
        return CLI_USAGE;
    }
    int visible = 0;
    for (int i = 0; i < ct_op_count(); i++) visible += !(ct_op_at(i)->flags & CT_OP_INTERNAL);
    const char *isa = ct_isa();
    if (!ct_ok()) { /* CT_ISA names a level that this machine lacks, say */
        fprintf(stderr, "error: %s\n", ct_error());
        return CLI_FAILED;
    }
    printf("version   %s\n", ct_version_text());
    printf("isa       %s\n", isa);
    printf("threads   %d\n", ct_get_threads());
    printf("ops       %d\n", visible);
    for (int type = CT_CPU; ct_backend_name((ct_device_type)type); type++) {
        const char *missing = ct_backend_missing((ct_device_type)type);
        printf("%-9s %s%s\n", ct_backend_name((ct_device_type)type), missing[0] ? "no: " : "yes", missing);
    }
    return CLI_DONE;
}
