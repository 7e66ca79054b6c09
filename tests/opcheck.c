/* Goes through the op table, an op a process: one that crashes or hangs is one failure, not the end. */
#include "tests/opcheck.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 12, MAX_JOBS = 64, SECONDS = 600, FEW = 24 };

bool opcheck_expect(opcheck *check, bool held, const char *format, ...) {
    check->checks++;
    if (held) return true;
    if (++check->failures > LINES) return false;
    va_list args;
    va_start(args, format);
    printf("  %s", check->op->name);
    if (check->sample) printf(" `%.*s`", check->sample->length, check->sample->text);
    printf(": ");
    vprintf(format, args);
    va_end(args);
    printf("\n");
    if (check->failures == LINES) printf("  %s: and more\n", check->op->name);
    return false;
}

/* The most elements that a sample may have: FEW, or as many as the op's smallest one has. */
static int64_t smallest_size(const ct_op *op) {
    opcheck unread = {.op = op};
    opcheck_sample sample;
    const char *at = op->samples;
    int64_t least = INT64_MAX;
    while (opcheck_next_sample(&unread, &at, &sample)) {
        if (sample.largest < least) least = sample.largest;
        opcheck_free_sample(&sample);
    }
    return least > FEW ? least : FEW;
}

static void check_op(opcheck *check, unsigned what) {
    const int64_t most = what & OPCHECK_SMALLEST ? smallest_size(check->op) : INT64_MAX;
    int64_t live = ct_live_objects();
    opcheck_sample sample;
    const char *at = check->op->samples;
    while (opcheck_next_sample(check, &at, &sample)) {
        if (sample.largest > most) {
            opcheck_free_sample(&sample);
            continue;
        }
        if (what & OPCHECK_VALUES) opcheck_values(check, &sample);
        if (what & OPCHECK_GRADIENTS) opcheck_gradients(check, &sample);
        check->sample = &sample;
        opcheck_expect(check, ct_ok(), "an error was left pending: %s", ct_error());
        opcheck_expect(check, ct_live_objects() == live, "%lld objects were left alive",
                       (long long)(ct_live_objects() - live));
        live = ct_live_objects();
        ct_error_clear();
        opcheck_free_sample(&sample);
        check->sample = NULL;
    }
    if (what & OPCHECK_THREADS) opcheck_threads(check);
    check->sample = NULL;
    opcheck_expect(check, ct_live_objects() == live, "%lld objects were left alive",
                   (long long)(ct_live_objects() - live));
}

/* ---- Processes ---- */

typedef struct job {
    pid_t child;
    int op;
    FILE *output;
    struct timespec start;
} job;

static double seconds_since(struct timespec start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
}

/* The device is opened in the child alone: what CUDA is to a process does not survive a fork. */
static bool start_job(job *j, int op, const char *device, unsigned what, opcheck_counts *shared) {
    *j = (job){.op = op, .output = tmpfile()};
    clock_gettime(CLOCK_MONOTONIC, &j->start);
    fflush(stdout);
    j->child = j->output ? fork() : -1;
    if (j->child == 0) {
        dup2(fileno(j->output), STDOUT_FILENO);
        dup2(fileno(j->output), STDERR_FILENO);
        alarm(SECONDS);
        opcheck check = {.op = ct_op_at(op)};
        ct_device where;
        ct_set_threads(1); /* the jobs are the parallelism */
        opcheck_expect(&check, !device || (ct_device_parse(device, &where) && ct_set_device(where)),
                       "the device cannot be used: %s", ct_error());
        if (ct_ok()) check_op(&check, what);
        shared[op] = (opcheck_counts){1, check.checks, check.failures};
        fflush(stdout);
        exit(0); /* not _exit: a sanitizer has its say at exit */
    }
    return j->child > 0;
}

/* Reports a job that has ended. */
static void finish_job(job *j, int status, bool verbose, opcheck_counts *shared, opcheck_counts *total) {
    const char *name = ct_op_at(j->op)->name;
    opcheck_counts *counts = &shared[j->op];
    bool whole = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!whole) *counts = (opcheck_counts){1, counts->checks, counts->failures + 1};
    if (counts->failures || verbose)
        printf("%s %-28s %7d checks %6.2f s\n", counts->failures ? "FAILED" : "ok    ", name, counts->checks,
               seconds_since(j->start));
    char line[2048];
    rewind(j->output);
    while (counts->failures && fgets(line, sizeof line, j->output)) fputs(line, stdout);
    if (!whole && WIFSIGNALED(status))
        printf("  %s: ended by signal %d (%s)\n", name, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (!whole)
        printf("  %s: its process ended with status %d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    fflush(stdout);
    fclose(j->output);
    j->child = 0;
    total->ops++;
    total->checks += counts->checks;
    total->failures += counts->failures != 0;
}

static bool is_chosen(const char *name, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return n == 0;
}

opcheck_counts opcheck_run(const char *const *names, int n, const char *device, unsigned what, int jobs, bool verbose) {
    opcheck_counts total = {0};
    int count = ct_op_count();
    size_t bytes = (size_t)count * sizeof(opcheck_counts);
    opcheck_counts *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return (opcheck_counts){.failures = 1};
    job running[MAX_JOBS] = {{0}};
    if (jobs < 1) jobs = 1;
    if (jobs > MAX_JOBS) jobs = MAX_JOBS;
    int next = 0, active = 0;
    while (next < count || active) {
        while (next < count && !is_chosen(ct_op_at(next)->name, names, n)) next++;
        int slot = 0;
        while (slot < jobs && running[slot].child) slot++;
        if (next < count && slot < jobs) {
            if (start_job(&running[slot], next++, device, what, shared)) {
                active++;
            } else {
                running[slot].child = 0;
                total.failures++;
                printf("FAILED: no process for %s\n", ct_op_at(next - 1)->name);
            }
            continue;
        }
        if (!active) break;
        int status;
        pid_t done = wait(&status);
        for (int i = 0; i < jobs; i++) {
            if (done <= 0 || running[i].child != done) continue;
            finish_job(&running[i], status, verbose, shared, &total);
            active--;
        }
    }
    munmap(shared, bytes);
    return total;
}
