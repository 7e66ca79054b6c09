/* cotangent check: the sweep over the op table that the tests run, on the user's machine. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/train/options.h"
#include "tests/opcheck.h"

/* Processes take turns on a device: sixteen of them got less done on one than four. */
enum { DEVICE_JOBS = 6 };

static void print_help(void) {
    printf("usage: cotangent check [--values] [--gradients] [--threads] [--capture] [--smallest] [--wide] [--device D] "
           "[--jobs N] "
           "[--verbose] [OP...]\n\n"
           "Checks the ops (all of them when none is named) on this machine, at the samples that they bring:\n"
           "  --values     results in every dtype, memory layout and level of vector instructions, against the op\n"
           "               computed another way in f64\n"
           "  --gradients  first and second derivatives against central differences\n"
           "  --threads    the same bits for 1, 2 and 7 threads\n"
           "  --capture    the same bits when a call and its gradients are captured and replayed\n"
           "Without any of these four all are checked. --smallest takes only samples of few elements, --wide only "
           "f32, f64 and "
           "i64;\n--jobs N uses N processes (default: the threads of the library, for a device 6 at most);\n"
           "--device D checks another device than the CPU; --verbose prints one line per op. The exit status is 0 when "
           "everything holds.\n");
}

static int parse(int argc, char **argv, cli_list *names, unsigned *what, int *jobs, bool *verbose,
                 const char **device) {
    cli_message message;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--values") == 0) *what |= OPCHECK_VALUES;
        else if (strcmp(word, "--gradients") == 0) *what |= OPCHECK_GRADIENTS;
        else if (strcmp(word, "--threads") == 0) *what |= OPCHECK_THREADS;
        else if (strcmp(word, "--capture") == 0) *what |= OPCHECK_CAPTURE;
        else if (strcmp(word, "--smallest") == 0) *what |= OPCHECK_SMALLEST;
        else if (strcmp(word, "--wide") == 0) *what |= OPCHECK_WIDE;
        else if (strcmp(word, "--verbose") == 0) *verbose = true;
        else if (strcmp(word, "--device") == 0 && i + 1 < argc) {
            *device = argv[++i];
        } else if (strcmp(word, "--jobs") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) *jobs = atoi(argv[++i]);
        else if (word[0] == '-') {
            fprintf(stderr, "error: '%s' is not an option of 'cotangent check', or lacks its number; see --help\n",
                    word);
            return CLI_USAGE;
        } else if (!cli_find_op(word, &message)) {
            fprintf(stderr, "error: %s\n", message.text);
            return CLI_USAGE;
        } else if (!cli_list_add(names, word)) {
            fprintf(stderr, "error: out of memory\n");
            return CLI_FAILED;
        }
    }
    return CLI_DONE;
}

/* Asked in a process of its own, since a device that was opened here could not be used in those that check. */
static int try_device(const char *text) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        ct_device device;
        const int tried = !option_device(text, &device) ? CLI_USAGE
                          : ct_set_device(device)       ? CLI_DONE
                                                        : option_failed(CLI_FAILED);
        fflush(stderr);
        _exit(tried);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
}

int cli_check(int argc, char **argv) {
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    cli_list names = {0};
    unsigned what = 0;
    int jobs = 0;
    bool verbose = false;
    const char *device = NULL;
    int status = parse(argc, argv, &names, &what, &jobs, &verbose, &device);
    if (status == CLI_DONE && device) status = try_device(device);
    if (!jobs) {
        const int threads = ct_get_threads();
        jobs = device && threads > DEVICE_JOBS ? DEVICE_JOBS : threads;
    }
    if (status == CLI_DONE) {
        for (const char *const *level = opcheck_missing_levels(); *level; level++)
            printf("not checked: %s (this machine lacks its instructions)\n", *level);
        opcheck_counts counts = opcheck_run(names.at, names.n, device, what & OPCHECK_ALL ? what : what | OPCHECK_ALL,
                                            jobs, verbose || names.n > 0);
        printf("%d ops, %d checks: ", counts.ops, counts.checks);
        if (counts.failures) printf("%d op%s failed\n", counts.failures, counts.failures == 1 ? "" : "s");
        else printf("all hold\n");
        status = counts.failures ? CLI_FAILED : CLI_DONE;
    }
    cli_list_free(&names);
    return status;
}
