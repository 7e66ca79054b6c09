/* The child processes, random numbers and reports of tests/fuzz_calls.h. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fuzz_calls.h"

enum { MOST_FAILURES = 200, MOST_OF_A_KIND = 3, KINDS = 512, TEXT = 8192 };

/* What parent and child share: it outlives the child. */
static struct shared {
    int64_t index, failures, worked;
    bool done;
    struct {
        char name[64]; /* what stands before the first bracket of a description */
        int failures;
    } kinds[KINDS];
    size_t length;
    char text[TEXT];
} * shared;

static uint64_t run_seed, state;

/* ---- Numbers ---- */

static uint64_t scramble(uint64_t z) { /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t fuzz_draw(void) { return scramble(state += 0x9E3779B97F4A7C15u); }
uint64_t fuzz_upto(uint64_t n) { return fuzz_draw() % n; }
bool fuzz_chance(int percent) { return fuzz_upto(100) < (uint64_t)percent; }
uint64_t fuzz_seed(void) { return run_seed; }

int64_t fuzz_int(void) {
    static const int64_t extremes[] = {
        INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, INT32_MIN, INT32_MAX, 1LL << 31, 1LL << 32, 1LL << 40,
        1LL << 62, -1000,         1000,      5000,          -1,        0,         1,         16,        17};
    const uint64_t kind = fuzz_upto(20);
    if (kind < 13) return (int64_t)fuzz_upto(8) - 2;
    if (kind < 16) return (int64_t)fuzz_upto(40) - 20;
    if (kind == 16) return (int64_t)(fuzz_draw() >> fuzz_upto(64));
    return extremes[fuzz_upto(sizeof extremes / sizeof *extremes)];
}

double fuzz_double(void) {
    const double extremes[] = {0,     -0.0, NAN,   INFINITY, -INFINITY, 1e300, -1e300, 1e-300, 4e-324,
                               1e18,  1e19, -1e19, 2.5,      -1,        1,     0.5,    1e-5,   0.9,
                               1e308, 1e40, 1e9,   1e6,      -0.1,      255,   256,    65536,  2147483648.0};
    if (fuzz_chance(40)) return extremes[fuzz_upto(sizeof extremes / sizeof *extremes)];
    if (fuzz_chance(30)) return (double)fuzz_int();
    return (double)(fuzz_draw() >> 11) * 0x1p-53 * (fuzz_chance(30) ? 10 : 1) - (fuzz_chance(20) ? 1 : 0);
}

/* ---- Descriptions and failures ---- */

static void append(const char *format, va_list args) {
    const size_t left = TEXT - shared->length;
    const int more = vsnprintf(shared->text + shared->length, left, format, args);
    if (more > 0) shared->length += (size_t)more < left ? (size_t)more : left - 1;
}

void fuzz_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    append(format, args);
    va_end(args);
}

void fuzz_worked(void) { shared->worked++; }

static const fuzz_calls *running;

/* How often what this call is about has failed, with this time. */
static int failures_of_kind(void) {
    char name[sizeof shared->kinds->name];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(shared->text, "("), shared->text);
    for (int i = 0; i < KINDS; i++) {
        if (!shared->kinds[i].name[0]) memcpy(shared->kinds[i].name, name, sizeof name);
        if (strcmp(shared->kinds[i].name, name) == 0) return ++shared->kinds[i].failures;
    }
    return 1;
}

/* False: enough of these were printed. */
static bool print_failure_start(void) {
    shared->failures++;
    const int kind = failures_of_kind();
    if (kind == MOST_OF_A_KIND + 1) printf("FAILED: more of %.*s\n", (int)strcspn(shared->text, "("), shared->text);
    if (kind > MOST_OF_A_KIND) return false;
    printf("FAILED: %s 1 %llu %lld: %s\n    ", running->program, (unsigned long long)run_seed, (long long)shared->index,
           shared->text);
    return true;
}

bool fuzz_expect(bool held, const char *format, ...) {
    if (held) return true;
    if (!print_failure_start()) return false;
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    return false;
}

/* ---- Memory ---- */

static size_t memory_left, memory_block;

static void *limited_get(void *context, size_t bytes, size_t alignment) {
    (void)context;
    if (bytes > memory_block || bytes > memory_left) return NULL;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory) memory_left -= bytes;
    return memory;
}

static void limited_return(void *context, void *memory, size_t bytes) {
    (void)context;
    memory_left += bytes;
    free(memory);
}

bool fuzz_limit_memory(size_t total, size_t block) {
    memory_left = total;
    memory_block = block;
    return ct_set_allocator(limited_get, limited_return, NULL);
}

#if defined(__SANITIZE_ADDRESS__)
/* What is asked of the C library and cannot be had is no error of the program. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }
#endif

/* ---- Processes ---- */

/* A limit of the processor's time, since a loaded machine makes no call wrong; a call that waits for ever ends too. */
static void limit_time(int seconds) {
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
    alarm((unsigned)seconds * 60);
}

static void one_call(int64_t index) {
    shared->index = index;
    shared->length = 0;
    shared->text[0] = 0;
    state = scramble(run_seed * 0xD1342543DE82EF95u + (uint64_t)index + 1);
    limit_time(running->seconds);
    running->call();
    limit_time(0);
}

static void child_main(int64_t first, int64_t end, bool alone) {
    if (running->start && !running->start()) {
        printf("FAILED: it did not start: %s\n", ct_error());
        shared->failures++;
        exit(1);
    }
    for (int64_t i = first; i < end && shared->failures < MOST_FAILURES; i++) {
        one_call(i);
        if (alone) printf("%s\n", shared->text);
    }
    shared->done = true;
    fflush(stdout);
    exit(0); /* not _exit: a sanitizer has its say at exit */
}

/* Why the child ended. */
static void report_death(int status) {
    if (!print_failure_start()) return;
    if (shared->done) printf("after the last call the process ended with status %d: a leak?\n", status);
    else if (WIFSIGNALED(status))
        printf("died: %s\n", WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM ? "took too long"
                                                                                        : strsignal(WTERMSIG(status)));
    else printf("ended the process with status %d\n", WEXITSTATUS(status));
}

int fuzz_calls_run(int argc, char **argv, const fuzz_calls *calls) {
    const int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : calls->calls,
                  first = argc > 3 ? strtoll(argv[3], NULL, 10) : 0, end = first + count;
    run_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    running = calls;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        printf("no memory\n0 passed, 1 failed\n");
        return 1;
    }
    printf("%lld calls from number %lld on, seed %llu\n", (long long)count, (long long)first,
           (unsigned long long)run_seed);
    for (int64_t next = first; next < end && shared->failures < MOST_FAILURES && !shared->done;) {
        fflush(stdout);
        shared->index = next;
        const pid_t child = fork();
        if (child == 0) child_main(next, end, count == 1);
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) report_death(status);
        next = shared->index + 1;
    }
    const int64_t made = shared->index + 1 - first, failures = shared->failures;
    printf("%lld of them did what they were asked to\n", (long long)shared->worked);
    if (made < count) printf("stopped after %lld calls\n", (long long)made);
    printf("%lld passed, %lld failed\n", (long long)(made > failures ? made - failures : 0), (long long)failures);
    return failures != 0;
}
