/* Measuring candidates. What is chosen is kept by backends/cuda/choices.c, one table per device. */
#include "backends/cuda/tune.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/choices.h"

/* A run of attempts between two events is to last this long, so that it is more than the resolution of events; the least of some
 * runs counts. Another candidate than the first has to be faster by more than what two runs differ. */
enum { RUN_MICROSECONDS = 100, RUN_ATTEMPTS = 10, RUNS = 3 };
static const double advantage = 0.98;

static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;   /* of tables, for the time of a lookup */
static pthread_mutex_t measuring = PTHREAD_MUTEX_INITIALIZER; /* one at a time: they would slow each other down */
static ct_choices *tables[CT_CUDA_DEVICES];

static bool is_on(void) {
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
    char name[128] = "";
    int driver = 0;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (ct_cuda.cuDeviceGetName(name, (int)sizeof name, d->device) != CUDA_SUCCESS ||
        ct_cuda.cuDriverGetVersion(&driver) != CUDA_SUCCESS)
        return false;
    name[sizeof name - 1] = 0;
    for (char *c = name; *c; c++) {
        const bool word = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!word) *c = '-';
    }
    const bool set = cache && cache[0] == '/';
    if (!set && !(home && home[0] == '/')) return false;
    const int length =
        snprintf(path, room, "%s%s/cotangent/cuda-%s-%d.txt", set ? cache : home, set ? "" : "/.cache", name, driver);
    return length > 0 && (size_t)length < room;
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
    ct_cuda_device *device;
    CUstream stream;
    CUevent start, stop;
    bool (*attempt)(void *context, int candidate);
    void *context;
} contest;

/* Microseconds of one attempt, of `attempts` in a row; infinity: it cannot, or the device failed. */
static double run(const contest *c, int candidate, int attempts) {
    float milliseconds = 0;
    if (ct_cuda.cuEventRecord(c->start, c->stream) != CUDA_SUCCESS) return INFINITY;
    for (int i = 0; i < attempts; i++)
        if (!c->attempt(c->context, candidate)) return INFINITY;
    if (ct_cuda.cuEventRecord(c->stop, c->stream) != CUDA_SUCCESS ||
        ct_cuda.cuEventSynchronize(c->stop) != CUDA_SUCCESS ||
        ct_cuda.cuEventElapsedTime(&milliseconds, c->start, c->stop) != CUDA_SUCCESS)
        return INFINITY;
    return (double)milliseconds * 1e3 / attempts;
}

/* best: the least so far. A candidate that is far behind is not run again. */
static double measure(const contest *c, int candidate, double best) {
    double least = INFINITY;
    if (run(c, candidate, 1) == INFINITY) return INFINITY; /* loads its code */
    const double once = run(c, candidate, 1);
    if (once > 2 * best + 20) return once;
    const double fit = RUN_MICROSECONDS / (once > 1 ? once : 1);
    const int attempts = fit < 1 ? 1 : fit > RUN_ATTEMPTS ? RUN_ATTEMPTS : (int)fit;
    for (int i = 0; i < RUNS; i++) {
        const double now = run(c, candidate, attempts);
        if (now < least) least = now;
    }
    return least;
}

static int fastest(const contest *c, const char *family, int n) {
    double best = INFINITY, first = INFINITY;
    int choice = 0;
    for (int i = 0; i < n; i++) {
        const double now = measure(c, i, best);
        if (i == 0) first = now;
        if (now < best * (choice == 0 && i ? advantage : 1)) best = now, choice = i;
    }
    char line[192];
    snprintf(line, sizeof line, "tune %s: candidate %d of %d, %.1f us; the first %.1f us", family, choice, n, best,
             first);
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
    if (n < 2 || !is_on() || key_bytes > CT_CHOICE_KEY) return 0;
    if (n > CT_CHOICE_COUNT) n = CT_CHOICE_COUNT;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return 0;
    bool there;
    int choice = look_up(d, index, family, key, key_bytes, n, &there);
    if (choice < 0 && there) {
        contest c = {.device = d, .stream = ct_cuda_stream(d, call->stream), .attempt = attempt, .context = context};
        pthread_mutex_lock(&measuring);
        choice = look_up(d, index, family, key, key_bytes, n, &there); /* by another thread meanwhile */
        if (choice < 0 && !ct_cuda_is_capturing(c.stream)) choice = decide(&c, index, family, key, key_bytes, n);
        pthread_mutex_unlock(&measuring);
    }
    ct_cuda_leave(before);
    return choice < 0 ? 0 : choice;
}
