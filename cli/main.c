/* The `cotangent` command: finds the subcommand and runs it. */
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
#define COMMAND(name, summary) {#name, summary, cli_##name},
#include "cli/commands.def"
#undef COMMAND
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *file) {
    fprintf(file, "usage: cotangent COMMAND [ARGUMENTS]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(file, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(file, "\n'cotangent COMMAND --help' says more. 'cotangent --version' prints the version.\n");
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return CLI_DONE;
    }
    if (strcmp(name, "--version") == 0) {
        printf("cotangent %s\n", ct_version_text());
        return CLI_DONE;
    }
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) == 0) return commands[i].run(argc - 1, argv + 1);
    }
    const char *near = cli_nearest(name, names, COMMAND_COUNT);
    fprintf(stderr, "error: there is no command '%s'", name);
    if (near) fprintf(stderr, "; did you mean '%s'?\n", near);
    else fprintf(stderr, "; 'cotangent --help' lists them\n");
    return CLI_USAGE;
}

/* A descriptor that was closed would be given to the first file that is opened, and what is printed would land in it. */
static bool hold_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return false; /* open takes the lowest that is free */
    return true;
}

/* What could not be printed is a failure too: a full disk must not look like success. */
int main(int argc, char **argv) {
    if (!hold_descriptors()) return CLI_FAILED;
    signal(SIGXFSZ, SIG_IGN); /* a file at the limit of its size is then an error of the write, which has a text */
    const int status = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "error: not everything could be written to standard output\n");
    return status == CLI_DONE ? CLI_FAILED : status;
}
