/* Goes through the op table, one process per op or, on a device, per few: one that crashes or hangs is a failure, not the end. */
#include "tests/opcheck.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 12, OPS_AT_ONCE = 8, MAX_JOBS = 64, SECONDS = 600, FEW = 24 };

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
        if (what & OPCHECK_CAPTURE) opcheck_capture(check, &sample); /* before the options of the sample are changed */
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

/* What a process has found out about an op. */
typedef struct finding {
    opcheck_counts counts; /* ops: 1 when it is done */
    double seconds;
    long from, to; /* its lines in the output of the job */
} finding;

typedef struct job {
    pid_t child;
    int *ops, n; /* owned */
    FILE *output;
} job;

static double seconds_since(struct timespec start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
}

static void check_in_job(int op, bool device_is_there, unsigned what, finding *found) {
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    found->from = found->to = ftell(stdout);
    alarm(SECONDS);
    opcheck check = {.op = ct_op_at(op), .what = what};
    opcheck_expect(&check, device_is_there, "the device cannot be used: %s", ct_error());
    if (device_is_there) check_op(&check, what);
    fflush(stdout);
    *found = (finding){{1, check.checks, check.failures}, seconds_since(start), found->from, ftell(stdout)};
}

/* The device is opened in the child alone: what CUDA is to a process does not survive a fork. Opening it takes longer than checking an op, so
 * there a process checks several. */
static bool start_job(job *j, const char *device, unsigned what, finding *shared) {
    fflush(stdout);
    j->output = tmpfile();
    j->child = j->output ? fork() : -1;
    if (j->child == 0) {
        dup2(fileno(j->output), STDOUT_FILENO);
        dup2(fileno(j->output), STDERR_FILENO);
        ct_device where;
        ct_set_threads(1); /* the jobs are the parallelism */
        alarm(SECONDS);
        const bool there = !device || (ct_device_parse(device, &where) && ct_set_device(where));
        for (int i = 0; i < j->n; i++) check_in_job(j->ops[i], there, what, &shared[j->ops[i]]);
        exit(0); /* not _exit: a sanitizer has its say at exit */
    }
    return j->child > 0;
}

/* Lines from..to of a job's output; to < from: all that come. */
static void print_lines(FILE *output, long from, long to) {
    char line[2048];
    if (fseek(output, from, SEEK_SET) != 0) return;
    while ((to < from || ftell(output) < to) && fgets(line, sizeof line, output)) fputs(line, stdout);
}

/* Reports a job that has ended. One that has not ended well has failed in the op at which it was, or at its exit, which is the last one's. */
static void finish_job(job *j, int status, bool verbose, finding *shared, opcheck_counts *total) {
    bool whole = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    for (int i = 0; i < j->n; i++) {
        const char *name = ct_op_at(j->ops[i])->name;
        finding *found = &shared[j->ops[i]];
        const bool ended = !whole && (!found->counts.ops || i == j->n - 1);
        if (ended || !found->counts.ops) found->counts.failures++;
        if (found->counts.failures || verbose)
            printf("%s %-28s %7d checks %6.2f s\n", found->counts.failures ? "FAILED" : "ok    ", name,
                   found->counts.checks, found->seconds);
        if (found->counts.failures) print_lines(j->output, found->from, ended ? -1 : found->to);
        if (ended && WIFSIGNALED(status))
            printf("  %s: ended by signal %d (%s)\n", name, WTERMSIG(status), strsignal(WTERMSIG(status)));
        else if (ended)
            printf("  %s: its process ended with status %d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        else if (!found->counts.ops) printf("  %s: its process had ended before\n", name);
        whole = whole || ended; /* the others have not been reached */
        total->ops++;
        total->checks += found->counts.checks;
        total->failures += found->counts.failures != 0;
    }
    fflush(stdout);
    fclose(j->output);
    free(j->ops);
    j->child = 0;
}

static bool is_chosen(const char *name, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return n == 0;
}

opcheck_counts opcheck_run(const char *const *names, int n, const char *device, unsigned what, int jobs, int at_once,
                           bool verbose) {
    opcheck_counts total = {0};
    int count = ct_op_count(), chosen = 0, *ops = malloc((size_t)(count + 1) * sizeof *ops);
    size_t bytes = (size_t)count * sizeof(finding);
    finding *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !ops) {
        free(ops);
        return (opcheck_counts){.failures = 1};
    }
    job running[MAX_JOBS] = {{0}};
    if (jobs < 1) jobs = 1;
    if (jobs > MAX_JOBS) jobs = MAX_JOBS;
    for (int i = 0; i < count; i++)
        if (is_chosen(ct_op_at(i)->name, names, n)) ops[chosen++] = i;
    /* Several at once as long as there is work for all, and not those next to each other: some families take long. */
    const int share = (chosen + 4 * jobs - 1) / (4 * jobs), several = share < OPS_AT_ONCE ? share : OPS_AT_ONCE;
    const int most = at_once > 0 ? at_once : device && several > 1 ? several : 1, groups = (chosen + most - 1) / most;
    int next = 0, active = 0;
    while (next < groups || active) {
        int slot = 0;
        while (slot < jobs && running[slot].child) slot++;
        if (next < groups && slot < jobs) {
            job *j = &running[slot];
            *j = (job){.ops = malloc((size_t)most * sizeof *j->ops)};
            const int first = next++;
            for (int i = first; j->ops && i < chosen; i += groups) j->ops[j->n++] = ops[i];
            if (j->ops && start_job(j, device, what, shared)) {
                active++;
            } else {
                free(j->ops);
                j->child = 0;
                total.failures++;
                printf("FAILED: no process for %s\n", ct_op_at(ops[first])->name);
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
    free(ops);
    return total;
}
