/* What the files of `cotangent bench` share: a clock, a measurement, and workloads by name. */
#ifndef COTANGENT_CLI_BENCH_H
#define COTANGENT_CLI_BENCH_H

#include "cli/cli.h"

typedef struct bench_result {
    double median, least; /* seconds a repetition */
    int64_t repetitions;
    double peak;  /* MiB of memory that were resident at most, beyond what was before */
    double flops; /* of one repetition, where that depends on the machine; else 0 */
} bench_result;

double bench_now(void);
/* Runs fn until min_time has passed, in batches long enough for the clock. Stops when fn returns false. */
bool bench_measure(bool (*fn)(void *context), void *context, double min_time, bench_result *result);

/* The same for replays of fn, captured (cotangent/capture.h). */
bool bench_replays(bool (*fn)(void *context), void *context, double min_time, bench_result *result);

/* How a line of bench/workloads.def runs its op. */
typedef enum bench_how {
    BENCH_ALLOC,    /* the result is new each time */
    BENCH_OUT,      /* into a result made before */
    BENCH_BACKWARD, /* forward, and backward to the inputs marked * */
} bench_how;

/* An op on inputs as text, see bench/workloads.def. False with the library's error, or with *missing set when there is no such op. */
bool bench_op(const char *op, const char *inputs, bench_how how, double min_time, bench_result *result, bool *missing);

/* Workloads that are more than one call of one op. */
typedef bool (*bench_case)(double min_time, bench_result *result);
#define WORK(name, op, inputs, how, flops, bytes)
#define CASE(name, function, flops, bytes) bool function(double min_time, bench_result *result);
#include "bench/workloads.def"
#undef WORK
#undef CASE

#endif
