/* log.jsonl: a JSON object a line. It is read back by looking for keys, since these lines are our own. */
#include "cli/train/journal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_number(buffer *b, const char *key, double value) {
    buffer_add(b, ",\"%s\":", key);
    buffer_json_number(b, value, 10);
}

static double *grown(double **list, int capacity) {
    double *at = realloc(*list, (size_t)capacity * sizeof *at);
    if (at) *list = at;
    return at;
}

static bool remember_step(journal *j, double step, double loss, double lr) {
    if (j->step_count == j->step_capacity) {
        const int capacity = j->step_capacity ? 2 * j->step_capacity : 256;
        if (!grown(&j->step, capacity) || !grown(&j->loss, capacity) || !grown(&j->lr, capacity))
            return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        j->step_capacity = capacity;
    }
    j->step[j->step_count] = step;
    j->loss[j->step_count] = loss;
    j->lr[j->step_count++] = lr;
    return true;
}

static bool remember_epoch(journal *j, const epoch_record *record) {
    if (j->epoch_count == j->epoch_capacity) {
        const int capacity = j->epoch_capacity ? 2 * j->epoch_capacity : 32;
        epoch_record *at = realloc(j->epochs, (size_t)capacity * sizeof *at);
        if (!at) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        j->epochs = at;
        j->epoch_capacity = capacity;
    }
    j->epochs[j->epoch_count++] = *record;
    return true;
}

static double number_of(const char *line, const char *prefix, const char *key) {
    char pattern[96];
    snprintf(pattern, sizeof pattern, "\"%s%s\":", prefix, key);
    const char *at = strstr(line, pattern);
    if (!at) return NAN;
    at += strlen(pattern);
    return strncmp(at, "null", 4) == 0 ? NAN : strtod(at, NULL);
}

static bool remember_line(journal *j, const char *line) {
    if (strstr(line, "\"event\":\"step\""))
        return remember_step(j, number_of(line, "", "step"), number_of(line, "", "loss"), number_of(line, "", "lr"));
    if (!strstr(line, "\"event\":\"epoch\"")) return true;
    const char *score = j->task->score;
    return remember_epoch(j, &(epoch_record){number_of(line, "", "epoch"), number_of(line, "", "step"),
                                             number_of(line, "train_", "loss"), number_of(line, "train_", score),
                                             number_of(line, "valid_", "loss"), number_of(line, "valid_", score),
                                             number_of(line, "", "lr"), number_of(line, "", "seconds"),
                                             number_of(line, "", "rate")});
}

/* Keeps the lines of steps up to `step`, and of epochs up to `epoch`: an epoch whose last step was saved may have been written
 * down without being saved as done, and is then evaluated again. A line that was cut by a crash is dropped. */
static bool take_back(journal *j, int64_t step, int64_t epoch) {
    size_t n = 0;
    if (!file_exists(j->path)) return true;
    char *text = file_read(j->path, (size_t)1 << 30, &n);
    if (!text) return false;
    buffer kept = {0};
    bool right = true;
    for (char *line = text, *end; right && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (!(number_of(line, "", "step") <= (double)step)) continue;
        if (strstr(line, "\"event\":\"epoch\"") && !(number_of(line, "", "epoch") <= (double)epoch)) continue;
        buffer_add(&kept, "%s\n", line);
        right = remember_line(j, line);
    }
    free(text);
    if (right && kept.failed) right = ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    right = right && file_write(j->path, kept.at ? kept.at : "", kept.n, true);
    buffer_free(&kept);
    return right;
}

bool journal_open(journal *j, const char *folder, const task_info *task, bool resume, int64_t step, int64_t epoch,
                  bool echo) {
    j->task = task;
    if (!folder) return true;
    j->echo = echo;
    snprintf(j->path, sizeof j->path, "%s/log.jsonl", folder);
    if (resume && !take_back(j, step, epoch)) return false;
    j->file = fopen(j->path, resume ? "ab" : "wb");
    return j->file || ct_fail(CT_ERR_IO, NULL, "%s: %s", j->path, strerror(errno));
}

void journal_close(journal *j) {
    if (j->file) fclose(j->file);
    free(j->epochs);
    free(j->step);
    free(j->loss);
    free(j->lr);
    *j = (journal){0};
}

bool journal_line(journal *j, const char *text) {
    if (!j->file) return true; /* another process writes it */
    if (j->echo) {
        printf("{%s}\n", text);
        fflush(stdout);
    }
    if (fprintf(j->file, "{%s}\n", text) > 0 && fflush(j->file) == 0) return true;
    return ct_fail(CT_ERR_IO, NULL, "%s: cannot be written: %s", j->path, strerror(errno));
}

static bool finish(journal *j, buffer *line) {
    const bool right = line->failed ? ct_fail(CT_ERR_MEMORY, NULL, "out of memory") : journal_line(j, line->at);
    buffer_free(line);
    return right;
}

bool journal_step(journal *j, int64_t epoch, int64_t step, double loss, double lr) {
    buffer line = {0};
    buffer_add(&line, "\"event\":\"step\",\"epoch\":%lld,\"step\":%lld", (long long)epoch, (long long)step);
    json_number(&line, "loss", loss);
    json_number(&line, "lr", lr);
    return finish(j, &line) && remember_step(j, (double)step, loss, lr);
}

bool journal_epoch(journal *j, const epoch_record *record, const recipe *r, const evaluation *e, bool best) {
    buffer line = {0};
    char key[80];
    buffer_add(&line, "\"event\":\"epoch\",\"epoch\":%.0f,\"step\":%.0f", record->epoch, record->step);
    json_number(&line, "train_loss", record->loss);
    snprintf(key, sizeof key, "train_%s", j->task->score);
    json_number(&line, key, record->score);
    json_number(&line, "valid_loss", record->valid_loss);
    snprintf(key, sizeof key, "valid_%s", j->task->score);
    json_number(&line, key, record->valid_score);
    for (int i = 0; i < r->metric_count; i++) {
        snprintf(key, sizeof key, "metric_%s", r->metrics[i]);
        json_number(&line, key, e->metrics[i]);
    }
    json_number(&line, "lr", record->lr);
    json_number(&line, "seconds", record->seconds);
    json_number(&line, "rate", record->rate);
    buffer_add(&line, ",\"best\":%s", best ? "true" : "false");
    return finish(j, &line) && remember_epoch(j, record);
}
