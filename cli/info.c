/* cotangent info: what the library is and what it found on this machine. */
#include "cli/cli.h"

/* "138.9 of 139.8 GiB free", or what is known of it. */
static void print_memory(const ct_device_info *info) {
    const double gib = 0x1p30;
    if (!info->memory) return;
    if (info->memory_free)
        printf(", %.1f of %.1f GiB free", (double)info->memory_free / gib, (double)info->memory / gib);
    else printf(", %.1f GiB", (double)info->memory / gib);
}

/* The devices of a backend that is there: two lines each. */
static void print_devices(ct_device_type type) {
    for (int i = 0; i < ct_device_count(type); i++) {
        const ct_device device = {type, i};
        ct_device_info info = {.size = sizeof info};
        if (!ct_device_describe(device, &info)) {
            printf("  %-7s %s\n", ct_device_text(device), ct_error());
            ct_error_clear();
            continue;
        }
        printf("  %-7s %s", ct_device_text(device), info.name);
        print_memory(&info);
        const char *between = info.driver[0] && info.libraries[0] ? "; " : "";
        if (info.driver[0] || info.libraries[0]) printf("\n%10s%s%s%s", "", info.driver, between, info.libraries);
        if (info.features[0]) printf("\n%10s%s", "", info.features);
        printf("\n");
    }
}

int cli_info(int argc, char **argv) {
    if (cli_wants_help(argc, argv)) {
        printf("usage: cotangent info\n\nPrints the version, the level of vector instructions in use, the threads, and "
               "for\n"
               "each backend whether it is there, or why not, with its devices: their memory, driver, libraries and "
               "features.\n"
               "CT_ISA and CT_THREADS change the level and the threads.\n");
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
        if (type != CT_CPU && !missing[0]) print_devices((ct_device_type)type);
    }
    return CLI_DONE;
}
