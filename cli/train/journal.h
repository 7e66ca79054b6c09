/* What happened in a run: kept for the report, written to log.jsonl as it happens, and read back when the run goes on. */
#ifndef COTANGENT_CLI_TRAIN_JOURNAL_H
#define COTANGENT_CLI_TRAIN_JOURNAL_H

#include "cli/train/learner.h"

#include <stdio.h>

typedef struct epoch_record {
    double epoch, step; /* epochs and steps done by then */
    double loss, score; /* over the training of that epoch */
    double valid_loss, valid_score;
    double lr, seconds, rate; /* rate: items per second */
} epoch_record;

typedef struct journal {
    FILE *file;
    char path[4096];
    bool echo; /* every line on standard output as well */
    const task_info *task;
    epoch_record *epochs;
    int epoch_count, epoch_capacity;
    double *step, *loss, *lr; /* of some steps */
    int step_count, step_capacity;
} journal;

/* Opens FOLDER/log.jsonl. With resume, what it says of steps after `step` and of epochs after
 * `epoch` is forgotten; otherwise it begins anew. folder NULL: another process writes it. */
bool journal_open(journal *j, const char *folder, const task_info *task, bool resume, int64_t step, int64_t epoch,
                  bool echo);
void journal_close(journal *j);

bool journal_step(journal *j, int64_t epoch, int64_t step, double loss, double lr);
bool journal_epoch(journal *j, const epoch_record *record, const recipe *r, const evaluation *e, bool best);
/* A line of another kind: text is the inside of a JSON object, from its first key on. */
bool journal_line(journal *j, const char *text);

/* A number as JSON has it: null for what is not finite. */
void json_number(buffer *b, const char *key, double value);

#endif
