/* The folder of a run: what its checkpoints are called, which are kept, which is the newest that is whole. */
#include <cotangent/run.h>

#include "io/run.h"
#include "support/files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* FOLDER/NAME.safetensors for the caller to free; NULL with an error. */
static char *path_of(const char *folder, const char *name) {
    const size_t capacity = strlen(folder) + strlen(name) + sizeof "/.safetensors";
    char *path = ct_malloc(capacity);
    if (!path) ct_fail(CT_ERR_MEMORY, "run", "out of memory");
    else snprintf(path, capacity, "%s/%s.safetensors", folder, name);
    return path;
}

/* ---- The checkpoints in a folder ---- */

typedef struct steps {
    int64_t *at; /* the largest first */
    size_t count;
} steps;

/* N of "step-N.safetensors" as ct_run_checkpoint writes it, -1 for anything else. */
static int64_t step_of(const char *name) {
    if (strncmp(name, "step-", 5) != 0) return -1;
    const char *at = name + 5;
    if (*at < '0' || *at > '9' || (at[0] == '0' && at[1] >= '0' && at[1] <= '9')) return -1;
    int64_t n = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (n > (INT64_MAX - 9) / 10) return -1;
        n = n * 10 + (*at - '0');
    }
    return strcmp(at, ".safetensors") == 0 ? n : -1;
}

static int largest_first(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static bool list_steps(const char *folder, steps *list) {
    *list = (steps){0};
    DIR *dir = opendir(folder);
    if (!dir) {
        if (errno == ENOENT) return true;
        return ct_fail(CT_ERR_IO, "run", "%s: cannot be read: %s", folder, strerror(errno));
    }
    size_t capacity = 0;
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(dir));) {
        const int64_t step = step_of(entry->d_name);
        if (step < 0) continue;
        if (list->count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            int64_t *more = ct_realloc(list->at, capacity * sizeof *more);
            if (!more) {
                good = ct_fail(CT_ERR_MEMORY, "run", "out of memory");
                break;
            }
            list->at = more;
        }
        list->at[list->count++] = step;
    }
    closedir(dir);
    if (good && list->count > 0) qsort(list->at, list->count, sizeof *list->at, largest_first);
    if (!good) ct_free(list->at);
    return good;
}

static char *step_path(const char *folder, int64_t step) {
    char name[40];
    snprintf(name, sizeof name, "step-%" PRId64, step);
    return path_of(folder, name);
}

/* ---- Writing ---- */

static bool check(ct_run *whole, const ct_run *run, const char *folder) {
    return ct__run_open_struct(whole, run) && (folder || ct_fail(CT_ERR_NULL, "run", "argument folder is NULL"));
}

bool ct_run_save(const ct_run *run, const char *folder, const char *name) {
    ct_run whole;
    char *path = check(&whole, run, folder) ? ct__file_in(folder, name, ".safetensors", "run") : NULL;
    if (!path) return false;
    ct__output_clean(folder, NULL);
    const bool good = ct__run_write(&whole, path);
    ct_free(path);
    return good;
}

/* All but the newest `keep`, and never the one of step `last`. What cannot be removed stays: the checkpoint is written. */
static bool prune(const char *folder, int keep, int64_t last) {
    steps list;
    if (!list_steps(folder, &list)) return false;
    bool good = true;
    for (size_t i = (size_t)keep; i < list.count && good; i++) {
        if (list.at[i] == last) continue;
        char *path = step_path(folder, list.at[i]);
        good = path != NULL;
        if (path) unlink(path);
        ct_free(path);
    }
    ct_free(list.at);
    return good;
}

bool ct_run_checkpoint(const ct_run *run, const char *folder, int keep) {
    ct_run whole;
    if (!check(&whole, run, folder)) return false;
    if (keep < 0) return ct_fail(CT_ERR_VALUE, "run", "keep = %d is negative", keep);
    if (whole.step < 0) return ct_fail(CT_ERR_VALUE, "run", "step = %" PRId64 " is negative", whole.step);
    char name[40];
    snprintf(name, sizeof name, "step-%" PRId64, whole.step);
    return ct_run_save(run, folder, name) && (keep == 0 || prune(folder, keep, whole.step));
}

/* ---- Resuming ---- */

bool ct_run_resume(ct_run *run, const char *folder) {
    ct_run whole;
    if (!check(&whole, run, folder)) return false;
    steps list;
    if (!list_steps(folder, &list)) return false;
    whole.note[0] = 0;
    ct_state *stored = NULL;
    char *path = NULL;
    bool good = true;
    for (size_t i = 0; i < list.count && !stored && good; i++) {
        ct_free(path);
        path = step_path(folder, list.at[i]);
        good = path && ((stored = ct_run_open(path)) || ct_error_code() == CT_ERR_IO);
        if (stored || !good) break;
        if (!whole.note[0]) { /* the newest is the one to know of */
            const char *slash = strrchr(path, '/');
            snprintf(whole.note, sizeof whole.note, "passed over %s", slash ? slash + 1 : path);
        }
        if (i + 1 < list.count) ct_error_clear();
    }
    if (list.count > 0 && good && !stored) {
        char text[800];
        snprintf(text, sizeof text, "%s", ct_error());
        ct_error_clear();
        ct_fail(CT_ERR_IO, "run", "%s: none of its %zu checkpoints is whole; the oldest: %s", folder, list.count, text);
        good = false;
    }
    if (stored) good = ct__run_take(&whole, stored, path);
    ct__run_close_struct(&whole, run);
    ct_state_free(stored);
    ct_free(path);
    ct_free(list.at);
    return good;
}
