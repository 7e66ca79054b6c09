/* Measuring candidates. What is chosen is kept by backends/cuda/choices.c, one table per device. */
#include "backends/cuda/tune.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cuda/cache.h"
#include "backends/cuda/choices.h"

/* What counts is the time on the device and what it costs the host to enqueue: of small work both matter, of large work the second is
 * nothing. The stream is held while a run of attempts is enqueued, so that the device does not wait for the host in between. A run is
 * to last so long on the device that events resolve it. Candidates take turns, so that clocks that rise after idleness, or fall as the device
 * gets hot, change the times of all of them alike; the least of a candidate's runs counts, and work that fills one run has more of them. A candidate
 * that is behind drops out. Another one than the first has to be faster by more than what two runs differ. */
enum { RUN_MICROSECONDS = 100, RUN_ATTEMPTS = 10, RUNS = 3, LONG_RUNS = 8 };
static const double advantage = 0.98, behind = 1.25, behind_later = 1.08;

static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;   /* of tables, for the time of a lookup */
static pthread_mutex_t measuring = PTHREAD_MUTEX_INITIALIZER; /* one at a time: they would slow each other down */
static ct_choices *tables[CT_CUDA_DEVICES];

bool ct_cuda_tune_is_on(void) {
    static _Atomic int state;
    int now = atomic_load_explicit(&state, memory_order_relaxed);
    if (!now) {
        const char *text = getenv("CT_TUNE");
        now = text && text[0] == '0' ? 1 : 2;
        atomic_store(&state, now);
    }
    return now == 2;
}

/* Where choices of this device are kept; false: nowhere. */
static bool path_of(const ct_cuda_device *d, char *path, size_t room) {
    char name[128] = "", file[192];
    int driver = 0;
    if (ct_cuda.cuDeviceGetName(name, (int)sizeof name, d->device) != CUDA_SUCCESS ||
        ct_cuda.cuDriverGetVersion(&driver) != CUDA_SUCCESS)
        return false;
    name[sizeof name - 1] = 0;
    for (char *c = name; *c; c++) {
        const bool word = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!word) *c = '-';
    }
    snprintf(file, sizeof file, "cuda-%s-%d.txt", name, driver);
    return ct_cache_path(file, path, room);
}

/* -1: not known. *there: there is a table to keep it in. */
static int look_up(const ct_cuda_device *d, int device, const char *family, const void *key, size_t bytes, int n,
                   bool *there) {
    pthread_mutex_lock(&reading);
    if (!tables[device]) {
        char path[4096];
        tables[device] = ct_choices_open(path_of(d, path, sizeof path) ? path : NULL);
    }
    *there = tables[device] != NULL;
    const int found = *there ? ct_choices_find(tables[device], family, key, bytes, n) : -1;
    pthread_mutex_unlock(&reading);
    return found;
}

typedef struct contest {
    CUstream stream;
    CUevent start, stop;
    bool (*attempt)(void *context, int candidate);
    void *context;
} contest;

static double now(void) { /* microseconds */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Holds a stream until everything is enqueued. Not for ever: an attempt may wait for the device, against all rules. */
enum { HELD_MICROSECONDS = 5000 };
static atomic_bool open; /* of the one contest that there is at a time */
static void CUDA_CB hold(void *unused) {
    (void)unused;
    const double end = now() + HELD_MICROSECONDS;
    while (!atomic_load(&open) && now() < end) sched_yield();
}

/* Microseconds of one attempt, of `attempts` in a row; infinity: it cannot, or the device failed. */
static double run(const contest *c, int candidate, int attempts) {
    float milliseconds = 0;
    atomic_store(&open, false);
    if (ct_cuda.cuLaunchHostFunc(c->stream, hold, NULL) != CUDA_SUCCESS) return INFINITY;
    bool ok = ct_cuda.cuEventRecord(c->start, c->stream) == CUDA_SUCCESS;
    const double start = now();
    for (int i = 0; i < attempts && ok; i++) ok = c->attempt(c->context, candidate);
    const double enqueued = now() - start;
    ok = ct_cuda.cuEventRecord(c->stop, c->stream) == CUDA_SUCCESS && ok;
    atomic_store(&open, true);
    ok = ct_cuda.cuEventSynchronize(c->stop) == CUDA_SUCCESS && ok;
    ok = ok && ct_cuda.cuEventElapsedTime(&milliseconds, c->start, c->stop) == CUDA_SUCCESS;
    return ok ? ((double)milliseconds * 1e3 + enqueued) / attempts : INFINITY;
}

/* One run of one attempt, after one that loads its code, which may wait for the stream. */
static double try_once(const contest *c, int candidate) {
    if (!c->attempt(c->context, candidate) || ct_cuda.cuStreamSynchronize(c->stream) != CUDA_SUCCESS) return INFINITY;
    return run(c, candidate, 1);
}

static int fastest(const contest *c, const char *family, int n) {
    double once[CT_CHOICE_COUNT], least[CT_CHOICE_COUNT], best = INFINITY;
    int choice = 0;
    for (int i = 0; i < n; i++) {
        once[i] = try_once(c, i);
        least[i] = INFINITY;
        if (once[i] < best) best = once[i];
    }
    const int rounds = best < RUN_MICROSECONDS ? RUNS : LONG_RUNS;
    double limit = 2 * best + 20; /* of one attempt, which says little */
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < n; i++) {
            if ((round ? least[i] : once[i]) > limit) continue;
            const double fit = RUN_MICROSECONDS / (once[i] > 1 ? once[i] : 1);
            const double next = run(c, i, fit < 1 ? 1 : fit > RUN_ATTEMPTS ? RUN_ATTEMPTS : (int)fit);
            if (next < least[i]) least[i] = next;
        }
        best = INFINITY;
        for (int i = 0; i < n; i++)
            if (least[i] < best) best = least[i];
        limit = (round < RUNS - 1 ? behind : behind_later) * best;
    }
    for (int i = 1; i < n; i++)
        if (least[i] < least[choice] * (choice ? 1 : advantage)) choice = i;
    char line[192];
    snprintf(line, sizeof line, "tune %s: candidate %d of %d, %.1f us; the first %.1f us", family, choice, n,
             least[choice], least[0] < INFINITY ? least[0] : once[0]);
    ct_cuda_host->log(line);
    return choice;
}

/* The lock of measuring is held, the context is current. */
static int decide(contest *c, int device, const char *family, const void *key, size_t bytes, int n) {
    int choice = 0;
    if (ct_cuda.cuEventCreate(&c->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return 0;
    if (ct_cuda.cuEventCreate(&c->stop, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
        choice = fastest(c, family, n);
        ct_cuda.cuEventDestroy_v2(c->stop);
        pthread_mutex_lock(&reading);
        if (ct_choices_keep(tables[device], family, key, bytes, n, choice)) ct_choices_save(tables[device]);
        pthread_mutex_unlock(&reading);
    }
    ct_cuda.cuEventDestroy_v2(c->start);
    return choice;
}

bool ct_cuda_is_capturing(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ct_cuda.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

int ct_cuda_tune(const ct_call *call, const char *family, const void *key, size_t key_bytes, int n,
                 bool (*attempt)(void *context, int candidate), void *context) {
    CUcontext before;
    const int index = call->device.index;
    if (n < 2 || !ct_cuda_tune_is_on() || key_bytes > CT_CHOICE_KEY) return 0;
    if (n > CT_CHOICE_COUNT) n = CT_CHOICE_COUNT;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return 0;
    bool there;
    int choice = look_up(d, index, family, key, key_bytes, n, &there);
    if (choice < 0 && there) {
        contest c = {.stream = ct_cuda_stream(d, call->stream), .attempt = attempt, .context = context};
        pthread_mutex_lock(&measuring);
        choice = look_up(d, index, family, key, key_bytes, n, &there); /* by another thread meanwhile */
        if (choice < 0 && !ct_cuda_is_capturing(c.stream)) choice = decide(&c, index, family, key, key_bytes, n);
        pthread_mutex_unlock(&measuring);
    }
    ct_cuda_leave(before);
    return choice < 0 ? 0 : choice;
}
