/* Runs tests, each in a child process: a crash, a hang or a leak of one says nothing about the others.
 *     PROGRAM [--list] [NAME...]    a NAME that is no test runs every test whose name holds it */
#include "tests/harness.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_PASSED = 0, EXIT_FAILED = 1, EXIT_SKIPPED = 77 };

static harness_test *first, **last = &first;
static bool failed, skipped, may_leak;

void harness_add(harness_test *test) {
    *last = test;
    last = &test->next;
}

bool harness_failed(void) { return failed; }
void harness_may_leak(void) { may_leak = true; }

double harness_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool harness_sanitized(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return false;
}

int64_t harness_buried(void) {
#ifdef CT_DEBUG
    return 4096 * 256; /* handles stay readable for a while, so that their use is a message */
#else
    return 0;
#endif
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* An allocation that is too large is an error of the library here, not of the program. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

/* ---- Checks ---- */

static const char *base_name(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

bool harness_check(bool held, const char *file, int line, const char *format, ...) {
    if (held) return true;
    failed = true;
    va_list args;
    va_start(args, format);
    printf("  %s:%d: ", base_name(file), line);
    vprintf(format, args);
    va_end(args);
    printf(ct_ok() ? "\n" : " (pending error: %s)\n", ct_error());
    return false;
}

bool harness_near(const char *file, int line, const char *what, double got, double expected, double tolerance) {
    bool near = (isnan(got) && isnan(expected)) || got == expected || fabs(got - expected) <= tolerance;
    return harness_check(near, file, line, "%s is %.17g, not %.17g (tolerance %g)", what, got, expected, tolerance);
}

bool harness_text(const char *file, int line, const char *what, const char *got, const char *expected) {
    return harness_check(got && strcmp(got, expected) == 0, file, line, "%s is\n    '%s', not\n    '%s'", what,
                         got ? got : "(NULL)", expected);
}

bool harness_error(const char *file, int line, ct_code code, const char *text) {
    bool held = ct_error_code() == code && strcmp(ct_error(), text) == 0;
    char got[1200];
    snprintf(got, sizeof got, "code %d '%s'", (int)ct_error_code(), ct_error());
    ct_error_clear();
    return harness_check(held, file, line, "the error is\n    %s, not\n    code %d '%s'", got, (int)code, text);
}

void harness_skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    skipped = true;
}

/* ---- Values ---- */

ct_tensor *harness_tensor(ct_dtype dtype, ct_dims shape, const double *values, int count) {
    int64_t expected = 1;
    for (int i = 0; i < shape.n; i++) expected *= shape.d[i];
    if (!harness_check(expected == count, __FILE__, __LINE__, "%d values for a tensor of %lld elements", count,
                       (long long)expected))
        return NULL;
    return ct_cast(ct_from_data(values, shape, CT_F64), dtype);
}

static double *read_all(ct_tensor *x, int64_t *count) {
    *count = ct_numel(x);
    double *values = malloc(((size_t)*count + 1) * sizeof *values);
    ct_scope {
        if (!x || !values || !ct_read(ct_cast(ct_detach(x), CT_F64), values, (size_t)*count * sizeof *values))
            *count = -1;
    }
    return values;
}

double harness_at(ct_tensor *x, int64_t index) {
    int64_t count;
    double *values = read_all(x, &count);
    double value = values && index < count ? values[index] : NAN;
    free(values);
    return value;
}

bool harness_values(const char *file, int line, const char *what, ct_tensor *x, ct_dims shape, const double *values,
                    int count, double tolerance) {
    if (!harness_check(x != NULL, file, line, "%s is NULL", what)) return false;
    bool fits = ct_ndim(x) == shape.n;
    for (int i = 0; fits && i < shape.n; i++) fits = ct_dim(x, i) == shape.d[i];
    if (!harness_check(fits, file, line, "%s is %s, not of shape %s", what, ct_tensor_text(x), ct_dims_text(shape)))
        return false;
    int64_t n;
    double *got = read_all(x, &n);
    bool held = harness_check(n == count, file, line, "%s has %lld values, not %d", what, (long long)n, count);
    for (int i = 0; i < n && held; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s at %d", what, i);
        held = harness_near(file, line, name, got[i], values[i], tolerance);
    }
    free(got);
    return held;
}

bool harness_same_bits(ct_tensor *a, ct_tensor *b) {
    if (!a || !b || ct_dtype_of(a) != ct_dtype_of(b) || ct_ndim(a) != ct_ndim(b)) return false;
    for (int i = 0; i < ct_ndim(a); i++)
        if (ct_dim(a, i) != ct_dim(b, i)) return false;
    size_t bytes = (size_t)ct_numel(a) * ct_dtype_size(ct_dtype_of(a));
    char *left = malloc(bytes + 1), *right = malloc(bytes + 1);
    bool same = left && right && ct_read(a, left, bytes) && ct_read(b, right, bytes) && memcmp(left, right, bytes) == 0;
    free(left);
    free(right);
    return same;
}

ct_tensor *harness_randn(ct_dims shape) {
    ct_rng *rng = ct_rng_new(5, 0);
    ct_tensor *x = ct_randn(shape, .rng = rng);
    ct_rng_free(rng);
    return x;
}

/* ---- The dispatch log ---- */

static struct {
    char **lines;
    int count, capacity;
} logged;

static void take_line(void *context, const char *line) {
    (void)context;
    if (logged.count == logged.capacity) {
        logged.capacity = logged.capacity ? 2 * logged.capacity : 64;
        logged.lines = realloc(logged.lines, (size_t)logged.capacity * sizeof *logged.lines);
    }
    logged.lines[logged.count++] = strdup(line);
}

void harness_log_start(void) {
    while (logged.count) free(logged.lines[--logged.count]);
    ct_set_log_sink(take_line, NULL);
    ct_set_log("dispatch");
}

void harness_log_stop(void) {
    ct_set_log(NULL);
    ct_set_log_sink(NULL, NULL);
}

const char *harness_log_line(int index) { return index >= 0 && index < logged.count ? logged.lines[index] : NULL; }

int harness_log_calls(const char *op) {
    if (!op) return logged.count;
    size_t length = strlen(op);
    int calls = 0;
    for (int i = 0; i < logged.count; i++)
        calls += strncmp(logged.lines[i], op, length) == 0 && logged.lines[i][length] == '(';
    return calls;
}

/* ---- Running ---- */

static int run_here(const harness_test *test) {
    int64_t before = ct_live_objects();
    if (test->bare) test->run();
    else
        ct_scope {
            test->run();
        }
    harness_check(ct_ok(), "end", 0, "the test left an error pending");
    ct_error_clear();
    int64_t after = ct_live_objects();
    if (!may_leak && !failed)
        harness_check(after == before, "end", 0, "%lld objects were alive before the test, %lld after it",
                      (long long)before, (long long)after);
    return failed ? EXIT_FAILED : skipped ? EXIT_SKIPPED : EXIT_PASSED;
}

/* Waits for the child, at most so long; its whole process group goes when it is late. */
static int wait_for(pid_t child, int seconds, bool *late) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    double deadline = harness_seconds() + seconds;
    int status;
    for (;;) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child) return status;
        double left = deadline - harness_seconds();
        if (left <= 0) break;
        struct timespec wait = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - floor(left)) * 1e9)};
        sigtimedwait(&set, NULL, &wait);
    }
    *late = true;
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return status;
}

static void show(const char *verdict, const harness_test *test, FILE *output) {
    char line[1024];
    printf("%s %s\n", verdict, test->name);
    rewind(output);
    while (fgets(line, sizeof line, output)) fputs(line, stdout);
}

static int run_child(const harness_test *test, double *seconds) {
    FILE *output = tmpfile();
    fflush(stdout);
    double start = harness_seconds();
    pid_t child = fork();
    if (child == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setpgid(0, 0);
        if (output) {
            dup2(fileno(output), STDOUT_FILENO);
            dup2(fileno(output), STDERR_FILENO);
        }
        int verdict = run_here(test);
        fflush(stdout);
        exit(verdict);
    }
    if (child < 0 || !output) {
        printf("FAILED %s\n  no process or no temporary file: %s\n", test->name, strerror(errno));
        if (output) fclose(output);
        return EXIT_FAILED;
    }
    setpgid(child, child);
    bool late = false;
    int limit = harness_sanitized() ? 10 * test->seconds : test->seconds, status = wait_for(child, limit, &late);
    *seconds = harness_seconds() - start;
    int verdict = !late && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
    if (verdict == EXIT_SKIPPED) show("skipped", test, output);
    else if (verdict != EXIT_PASSED) show("FAILED", test, output);
    if (late) printf("  ran longer than %d seconds\n", limit);
    else if (WIFSIGNALED(status)) printf("  ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    fclose(output);
    return verdict;
}

static bool chosen(const harness_test *test, int argc, char **argv) {
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        any = true;
        if (strstr(test->name, argv[i])) return true;
    }
    return !any;
}

int main(int argc, char **argv) {
    bool list = false, times = false, here = false;
    for (int i = 1; i < argc; i++) {
        list |= strcmp(argv[i], "--list") == 0;
        times |= strcmp(argv[i], "--times") == 0; /* how long each took */
        here |= strcmp(argv[i], "--here") == 0;   /* in this process, for a debugger */
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD); /* blocked, so that sigtimedwait sees it */
    if (!here) sigprocmask(SIG_BLOCK, &set, NULL);
    int counts[3] = {0};
    for (harness_test *test = first; test; test = test->next) {
        if (!chosen(test, argc, argv)) continue;
        if (list) {
            printf("%s\n", test->name);
            continue;
        }
        double seconds = 0;
        failed = skipped = may_leak = false;
        int verdict = here ? run_here(test) : run_child(test, &seconds);
        if (times) printf("%8.3f s  %s\n", seconds, test->name);
        counts[verdict == EXIT_PASSED ? 0 : verdict == EXIT_SKIPPED ? 2 : 1]++;
    }
    if (list) return 0;
    if (counts[2]) printf("%d passed, %d failed, %d skipped\n", counts[0], counts[1], counts[2]);
    else printf("%d passed, %d failed\n", counts[0], counts[1]);
    return counts[1] != 0;
}
