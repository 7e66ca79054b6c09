/* The log: silent unless asked for. */
#include "core/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/dtype.h"
#include "core/error.h"

_Atomic int ct__log_wanted = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*log_sink)(void *context, const char *line);
static void *log_context;

static const char *const names[] = {"dispatch", "capture", "replay"}; /* as the bits of CT__LOG_ */

/* The logs of a comma-separated list; -1: one does not exist, and *from begins with its name, which has *length characters. */
static int logs_of(const char **from, size_t *length) {
    int all = 0;
    for (; **from; *from += *length + ((*from)[*length] == ',')) {
        int found = 0;
        *length = strcspn(*from, ",");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (*length == strlen(names[i]) && memcmp(*from, names[i], *length) == 0) found = 1 << i;
        if (!found && *length) return -1;
        all |= found;
    }
    return all;
}

int ct__log_look(void) {
    const char *text = getenv("CT_LOG");
    int logs = 0;
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
        if (strstr(text, names[i])) logs |= 1 << i; /* what does not exist is passed over */
    atomic_store(&ct__log_wanted, logs);
    return logs;
}

bool ct_set_log(const char *what) {
    size_t length = 0;
    const int logs = what ? logs_of(&what, &length) : 0;
    if (logs < 0)
        return ct_fail(CT_ERR_VALUE, "set_log", "there is no log named %.*s; there are: dispatch, capture, replay",
                       (int)length, what);
    atomic_store(&ct__log_wanted, logs);
    return true;
}

void ct_set_log_sink(void (*sink)(void *context, const char *line), void *context) {
    pthread_mutex_lock(&lock);
    log_sink = sink;
    log_context = context;
    pthread_mutex_unlock(&lock);
}

uint64_t ct__log_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void ct__log_call(const ct_call *call, const char *kernel, const char *refusals, uint64_t start) {
    double microseconds = start ? (double)(ct__log_now() - start) / 1e3 : 0;
    char line[1024];
    int used = snprintf(line, sizeof line, "%s(", call->op->name);
    for (int i = 0; i < call->n_in && used < (int)sizeof line; i++)
        used += i < 32 && (call->numbers >> i & 1)
                    ? snprintf(line + used, sizeof line - (size_t)used, "%s%g", i ? ", " : "",
                               ct__dtype_get(call->in[i]->dtype, call->in[i]->buffer))
                    : snprintf(line + used, sizeof line - (size_t)used, "%s%s", i ? ", " : "",
                               call->in[i] ? ct_view_text(call->in[i]) : "-");
    for (int i = 0; i < call->n_out && used < (int)sizeof line; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, "%s%s", i ? ", " : ") -> ",
                         call->out[i] ? ct_view_text(call->out[i]) : "-");
    if (!call->n_out && used < (int)sizeof line) used += snprintf(line + used, sizeof line - (size_t)used, ")");
    if (used < (int)sizeof line) used += snprintf(line + used, sizeof line - (size_t)used, "  %s%s", kernel, refusals);
    if (start && used < (int)sizeof line) snprintf(line + used, sizeof line - (size_t)used, "  %.1f us", microseconds);
    ct__log_line(line);
}

void ct__log_handed(const ct_infer *infer, const ct_op *to) {
    char kernel[96];
    snprintf(kernel, sizeof kernel, "handed on to %s", to->name);
    ct_call call = {.op = infer->op, .n_in = infer->n_in, .in = infer->in};
    ct__log_call(&call, kernel, "", 0);
}

void ct__log_line(const char *line) {
    if (ct__log_dispatch()) ct__log_put(line);
}

void ct__log_put(const char *line) {
    pthread_mutex_lock(&lock);
    if (log_sink) log_sink(log_context, line);
    else fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&lock);
}
