/* cotangent bench: how fast the ops are on this machine, beside the machine's own limits. The workloads are lines of
 * bench/workloads.def; other libraries on the same work: `make bench-peers`. */
#include "cli/bench.h"

#include <cotangent/capture.h>

#include "cli/train/options.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct workload {
    const char *name;
    const char *op, *inputs; /* of WORK */
    bench_how how;
    bench_case run; /* of CASE */
    double flops, bytes;
} workload;

static const workload workloads[] = {
#define WORK(name_, op_, inputs_, how_, flops_, bytes_) \
    {.name = name_, .op = op_, .inputs = inputs_, .how = how_, .flops = flops_, .bytes = bytes_},
#define CASE(name_, function, flops_, bytes_) {.name = name_, .run = function, .flops = flops_, .bytes = bytes_},
#include "bench/workloads.def"
#undef WORK
#undef CASE
};

enum { MOST_COUNTS = 16 };

typedef struct options {
    const char *filter;
    int threads[MOST_COUNTS], counts; /* of threads; several: side by side */
    ct_device device;
    double min_time;
    bool json, list;
} options;

static double pause_time; /* seconds in which nothing is asked of the library, before each repetition */

/* ---- Measuring ---- */

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#define SLOWER 1.1 /* times as long is more than noise */
enum { SAMPLES = 2000, LEAST_SAMPLES = 5, WARM_UP = 3 };

bool bench_measure(bool (*fn)(void *context), void *context, double min_time, bench_result *result) {
    static double seconds[SAMPLES];
    double start = bench_now();
    for (int i = 0; i < WARM_UP; i++)
        if (!fn(context)) return false;
    double warm = (bench_now() - start) / WARM_UP, end = bench_now() + min_time;
    int64_t inner = warm > 2e-4 || pause_time > 0 ? 1 : (int64_t)(2e-4 / (warm > 1e-9 ? warm : 1e-9)) + 1;
    int n = 0;
    while (n < SAMPLES && (n < LEAST_SAMPLES || bench_now() < end)) {
        start = bench_now();
        while (pause_time > 0 && bench_now() < start + pause_time) continue;
        start = bench_now();
        for (int64_t i = 0; i < inner; i++)
            if (!fn(context)) return false;
        if (!ct_synchronize(ct_get_device())) return false;
        seconds[n++] = (bench_now() - start) / (double)inner;
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_time);
    *result = (bench_result){.median = seconds[n / 2], .least = seconds[0], .repetitions = n * inner};
    return true;
}

static bool replay(void *graph) { return ct_replay(graph); }

bool bench_replays(bool (*fn)(void *context), void *context, double min_time, bench_result *result) {
    ct_graph *graph = ct_capture(fn, context, 0);
    const bool ok = graph && bench_measure(replay, graph, min_time, result);
    ct_graph_free(graph);
    return ok;
}

/* ---- Printing ---- */

static void print_result(const workload *w, const bench_result *r, const options *o, int threads) {
    bool overhead = strncmp(w->name, "overhead_", 9) == 0;
    double flops = r->flops > 0 ? r->flops : w->flops;
    bool limit = strncmp(w->name, "limit_", 6) == 0;
    double seconds = limit ? r->least : r->median; /* a limit is what the machine can do, not what it mostly did */
    if (o->json) {
        printf("{\"name\": \"%s\", \"threads\": %d", w->name, threads);
        if (overhead) printf(", \"ns\": %.1f", r->median / flops * 1e9);
        else
            printf(", \"median_ms\": %.6g, \"min_ms\": %.6g, \"reps\": %lld", r->median * 1e3, r->least * 1e3,
                   (long long)r->repetitions);
        if (!overhead && flops > 0) printf(", \"gflops\": %.1f", flops / seconds * 1e-9);
        if (w->bytes > 0) printf(", \"gb_s\": %.2f", w->bytes / seconds * 1e-9);
        printf(", \"peak_mb\": %.1f}\n", r->peak);
    } else if (overhead) {
        printf("%-34s %10.1f ns\n", w->name, r->median / flops * 1e9);
    } else {
        printf("%-34s %10.4f ms", w->name, seconds * 1e3);
        if (flops > 0) printf(" %9.1f GFLOP/s", flops / seconds * 1e-9);
        if (w->bytes > 0) printf(" %9.2f GB/s", w->bytes / seconds * 1e-9);
        printf("\n");
    }
    fflush(stdout);
}

/* A line of /proc/self/status, in MiB; 0 where there is none. */
static double resident(const char *field) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) kib = strtol(line + strlen(field) + 1, NULL, 10);
    if (file) fclose(file);
    return (double)kib / 1024;
}

/* So that VmHWM counts from here on. */
static void forget_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}

typedef enum outcome { MEASURED, REFUSED, PASSED_OVER } outcome;

/* A level without an instruction, or an op that does not exist, is passed over. */
static outcome measure_workload(const workload *w, const options *o, bench_result *result) {
    bool missing = false, ok = false;
    ct_seed(0);
    forget_peak();
    const double before = resident("VmRSS");
    ct_scope {
        ok = w->run ? w->run(o->min_time, result) : bench_op(w->op, w->inputs, w->how, o->min_time, result, &missing);
    }
    result->peak = resident("VmHWM") - before;
    ct_memory_trim((ct_device){CT_CPU, 0});
    if (ok) return MEASURED;
    if (!ct_ok()) {
        fprintf(stderr, "error: %s: %s\n", w->name, ct_error());
        ct_error_clear();
        return REFUSED;
    }
    FILE *to = o->json ? stderr : stdout;
    if (missing) fprintf(to, "%-34s there is no op %s\n", w->name, w->op);
    else fprintf(to, "%-34s there is no such instruction at this level\n", w->name);
    return PASSED_OVER;
}

enum { ROUNDS = 3 }; /* in which numbers of threads take turns: a busy moment is nobody's fault then */

/* One workload on every number of threads; of several, the first is what the others are measured by. Returns false when the library refused. */
static bool run_workload(const workload *w, const options *o, int *slower) {
    bench_result best[MOST_COUNTS] = {0};
    options part = *o;
    const int rounds = o->counts > 1 ? ROUNDS : 1;
    part.min_time /= rounds;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < o->counts; i++) {
            bench_result result = {0};
            if (o->counts > 1 && !ct_set_threads(o->threads[i])) return false;
            const outcome got = measure_workload(w, &part, &result);
            if (got != MEASURED) return got != REFUSED;
            if (round == 0 || result.median < best[i].median) best[i] = result;
        }
    if (o->json || o->counts == 1) {
        for (int i = 0; i < o->counts; i++) {
            if (o->counts > 1 && !ct_set_threads(o->threads[i])) return false;
            print_result(w, &best[i], o, ct_get_threads());
        }
        return true;
    }
    printf("%-34s", w->name);
    double worst = 0;
    for (int i = 0; i < o->counts; i++) {
        printf(" %10.2f", best[i].median * 1e6);
        if (best[i].median > worst) worst = best[i].median;
    }
    const bool is_slower = worst > SLOWER * best[0].median;
    *slower += is_slower;
    printf(" %7.2f%s\n", best[0].median / best[o->counts - 1].median, is_slower ? "  slower" : "");
    fflush(stdout);
    return true;
}

/* ---- Command line ---- */

static void print_help(void) {
    printf(
        "usage: cotangent bench [FILTER] [--device D] [--threads N[,N...]] [--time SECONDS] [--pause MICROSECONDS] "
        "[--json] [--list]\n\n"
        "Runs the workloads whose name matches FILTER (a regular expression; all without one, but for scaling_*) and "
        "prints the\n"
        "median time of each, and the rate. limit_* are what this machine can do at most.\n\n"
        "  --threads N,... on N threads (default: all, as many as the process may use). Several numbers: the times, in "
        "microseconds,\n"
        "                  side by side, how many times as fast the last is as the first, and which rows are slower on "
        "any\n"
        "                  than on the first; `cotangent bench scaling --threads 1,2,4,all --time 0.05` sweeps sizes\n"
        "  --time SECONDS  repeat each workload for that long (default 0.5)\n"
        "  --pause MICROSECONDS  wait before each repetition, so that the library's threads sleep when it begins\n"
        "  --json          one JSON object a line\n"
        "  --list          only the names\n");
}

/* Numbers of threads with commas between them; 0 stands for `all`. */
static bool parse_threads(const char *text, options *o) {
    o->counts = 0;
    for (const char *p = text;; p++) {
        char *end = NULL;
        long count = strncmp(p, "all", 3) == 0 ? 0 : strtol(p, &end, 10);
        if (!end) end = (char *)(uintptr_t)p + 3;
        else if (end == p || count < 1 || count > 4096) return false;
        if (o->counts == MOST_COUNTS) return false;
        o->threads[o->counts++] = (int)count;
        p = end;
        if (!*p) return true;
        if (*p != ',') return false;
    }
}

static int parse_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        char *end = NULL;
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            o->list = true;
        } else if (strcmp(argv[i], "--threads") == 0 && has_value) {
            end = parse_threads(argv[++i], o) ? argv[i] : NULL;
        } else if (strcmp(argv[i], "--device") == 0 && has_value) {
            if (!option_device(argv[++i], &o->device)) return CLI_USAGE;
        } else if (strcmp(argv[i], "--time") == 0 && has_value) {
            o->min_time = strtod(argv[++i], &end);
            if (*end || !(o->min_time >= 0)) end = NULL;
        } else if (strcmp(argv[i], "--pause") == 0 && has_value) {
            pause_time = 1e-6 * strtod(argv[++i], &end);
            if (*end || !(pause_time >= 0)) end = NULL;
        } else if (argv[i][0] != '-' && !o->filter) {
            o->filter = argv[i];
        } else {
            fprintf(stderr, "error: 'cotangent bench' does not understand '%s'; see cotangent bench --help\n", argv[i]);
            return CLI_USAGE;
        }
        bool numeric = strcmp(argv[i - 1], "--threads") == 0 || strcmp(argv[i - 1], "--time") == 0 ||
                       strcmp(argv[i - 1], "--pause") == 0;
        if (numeric && i > 1 && !end) {
            fprintf(stderr, "error: '%s' is not a value of %s\n", argv[i], argv[i - 1]);
            return CLI_USAGE;
        }
    }
    return CLI_DONE;
}

int cli_bench(int argc, char **argv) {
    options o = {.min_time = 0.5, .counts = 1};
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    int status = parse_options(argc, argv, &o);
    if (status != CLI_DONE) return status;
    regex_t filter;
    if (regcomp(&filter, o.filter ? o.filter : ".", REG_EXTENDED | REG_NOSUB) != 0) {
        fprintf(stderr, "error: '%s' is not a regular expression\n", o.filter);
        return CLI_USAGE;
    }
    if ((o.threads[0] && !ct_set_threads(o.threads[0])) || !ct_set_device(o.device)) {
        fprintf(stderr, "error: %s\n", ct_error());
        regfree(&filter);
        return CLI_FAILED;
    }
    int matched = 0, slower = 0;
    if (o.counts > 1 && !o.json && !o.list) {
        printf("%-34s", "threads");
        for (int i = 0; i < o.counts; i++)
            if (o.threads[i]) printf(" %10d", o.threads[i]);
            else printf(" %10s", "all");
        printf("  faster\n");
    }
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        const char *name = workloads[i].name;
        if (regexec(&filter, name, 0, NULL, 0) != 0 || (!o.filter && strncmp(name, "scaling_", 8) == 0)) continue;
        matched++;
        if (o.list) printf("%s\n", name);
        else if (!run_workload(&workloads[i], &o, &slower)) status = CLI_FAILED;
    }
    regfree(&filter);
    if (!matched) {
        fprintf(stderr, "error: no workload matches '%s'; see cotangent bench --list\n", o.filter);
        return CLI_USAGE;
    }
    if (o.counts > 1 && !o.json && !o.list) printf("%d of %d slower on more threads\n", slower, matched);
    return status;
}
