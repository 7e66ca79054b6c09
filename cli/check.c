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
           "[--jobs N] [--at-once N] "
           "[--verbose] [OP...]\n\n"
           "Checks the ops (all of them when none is named) on this machine, at the samples that they bring:\n"
           "  --values     results in every dtype, memory layout and level of vector instructions, against the op\n"
           "               computed another way in f64\n"
           "  --gradients  first and second derivatives against central differences\n"
           "  --threads    the same bits for 1, 2 and 7 threads\n"
           "  --capture    the same bits when a call and its gradients are captured and replayed\n"
           "Without any of these four all are checked. --smallest takes only samples of few elements, --wide only "
           "f32, f64 and "
           "i64;\n--jobs N uses N processes (default: the threads of the library, for a device 6 at most),\n"
           "--at-once N checks N ops in each of them, for devices that take long to open (default: 1, for a device 8 "
           "at most);\n"
           "--device D checks another device than the CPU; --verbose prints one line per op. The exit status is 0 when "
           "everything holds.\n");
}

typedef struct check_options {
    cli_list names;
    unsigned what;
    int jobs, at_once; /* 0: not given */
    bool verbose;
    const char *device;
} check_options;

/* The number behind option i of the words; 0: there is none. */
static int number_after(int argc, char **argv, int i) { return i + 1 < argc ? atoi(argv[i + 1]) : 0; }

static int parse(int argc, char **argv, check_options *o) {
    cli_message message;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--values") == 0) o->what |= OPCHECK_VALUES;
        else if (strcmp(word, "--gradients") == 0) o->what |= OPCHECK_GRADIENTS;
        else if (strcmp(word, "--threads") == 0) o->what |= OPCHECK_THREADS;
        else if (strcmp(word, "--capture") == 0) o->what |= OPCHECK_CAPTURE;
        else if (strcmp(word, "--smallest") == 0) o->what |= OPCHECK_SMALLEST;
        else if (strcmp(word, "--wide") == 0) o->what |= OPCHECK_WIDE;
        else if (strcmp(word, "--verbose") == 0) o->verbose = true;
        else if (strcmp(word, "--device") == 0 && i + 1 < argc) o->device = argv[++i];
        else if (strcmp(word, "--jobs") == 0 && number_after(argc, argv, i) > 0) o->jobs = atoi(argv[++i]);
        else if (strcmp(word, "--at-once") == 0 && number_after(argc, argv, i) > 0) o->at_once = atoi(argv[++i]);
        else if (word[0] == '-') {
            fprintf(stderr, "error: '%s' is not an option of 'cotangent check', or lacks its number; see --help\n",
                    word);
            return CLI_USAGE;
        } else if (!cli_find_op(word, &message)) {
            fprintf(stderr, "error: %s\n", message.text);
            return CLI_USAGE;
        } else if (!cli_list_add(&o->names, word)) {
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
    check_options o = {0};
    int status = parse(argc, argv, &o);
    if (status == CLI_DONE && o.device) status = try_device(o.device);
    if (status == CLI_DONE) {
        const int threads = ct_get_threads(), usual = o.device && threads > DEVICE_JOBS ? DEVICE_JOBS : threads;
        for (const char *const *level = opcheck_missing_levels(); *level; level++)
            printf("not checked: %s (this machine lacks its instructions)\n", *level);
        opcheck_counts counts =
            opcheck_run(o.names.at, o.names.n, o.device, o.what & OPCHECK_ALL ? o.what : o.what | OPCHECK_ALL,
                        o.jobs ? o.jobs : usual, o.at_once, o.verbose || o.names.n > 0);
        printf("%d ops, %d checks: ", counts.ops, counts.checks);
        if (counts.failures) printf("%d op%s failed\n", counts.failures, counts.failures == 1 ? "" : "s");
        else printf("all hold\n");
        status = counts.failures ? CLI_FAILED : CLI_DONE;
    }
    cli_list_free(&o.names);
    return status;
}
