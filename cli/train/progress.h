/* What a person sees while it runs: a bar that is redrawn on a terminal, plain lines elsewhere, nothing with --json. */
#ifndef COTANGENT_CLI_TRAIN_PROGRESS_H
#define COTANGENT_CLI_TRAIN_PROGRESS_H

#include "cli/train/clock.h"
#include "cli/train/journal.h"

typedef struct progress {
    bool quiet; /* --json */
    bool terminal, utf8;
    const task_info *task;
    int64_t epochs, batches, items; /* of the run, of an epoch, of a batch */
    double start;                   /* when this process began to train */
    int64_t steps;                  /* that this process has done */
    double drawn;                   /* when the bar was */
    ct_device device;               /* whose memory is shown; zero: the CPU, and none is */
} progress;

void progress_begin(progress *p, bool quiet, const task_info *task, int64_t epochs, int64_t batches, int64_t batch,
                    ct_device device);
bool progress_due(const progress *p); /* it is time to draw the bar */
/* After a step: epoch and position from 0. */
void progress_step(progress *p, int64_t epoch, int64_t position, double loss, double score, double lr, bool draw);
void progress_note(progress *p, const char *text); /* in place of the bar, until the next draw */
void progress_epoch(progress *p, const epoch_record *record, bool best);
void progress_clear(progress *p);
/* A line that stays. */
void progress_say(progress *p, const char *format, ...) CT_PRINTF(2, 3);
void format_duration(double seconds, char *text, size_t capacity);
void format_score(const task_info *task, double score, char *text, size_t capacity);

#endif
