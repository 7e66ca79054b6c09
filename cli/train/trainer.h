/* A training run: everything that it holds, and its folder. */
#ifndef COTANGENT_CLI_TRAIN_TRAINER_H
#define COTANGENT_CLI_TRAIN_TRAINER_H

#include "cli/train/journal.h"
#include "cli/train/progress.h"
#include "cli/train/tensorboard.h"

#include <cotangent/dist.h>

typedef struct trainer_options {
    const char *recipe; /* NULL: that of the checkpoint, with resume */
    const char *out;    /* NULL: runs/RECIPE-N */
    const char *const *sets;
    int set_count;
    int64_t more_epochs; /* than the recipe or the run says; 0: as they say */
    ct_device device;
    const char *capture; /* "true", "false" or "auto"; NULL: as the recipe says */
    bool resume, json;
} trainer_options;

/* What a step gave, still on the device. */
enum { MOST_UNREAD = 64 };
typedef struct unread_step {
    ct_tensor *loss, *score; /* kept; score: NULL where the task has none of its own */
    int64_t targets, items, step, epoch;
    double lr;
} unread_step;

typedef struct trainer {
    const trainer_options *options;
    recipe *recipe;
    learner learner;
    char out[4096];
    int lock;      /* the folder, so that no other process trains in it; -1: not yet */
    char *command; /* that began the run, as a shell takes it */
    ct_loader *batches, *valid;
    ct_optim *optim;
    ct_schedule *schedule;
    ct_scaler *scaler;
    ct_ema *ema;
    ct_train_step *step;
    bool note_said;               /* why steps are not captured */
    int rank, ranks;              /* of the job: 0 of 1 where this process is alone */
    int share, sharers;           /* of those that divide the batch: several ranks may have one part of it together */
    ct_dist_group *near, *across; /* that cut layers among them, and that have the same part; NULL: not divided so */
    ct_dist_parallel *parallel;   /* NULL: it trains alone, and not in shards */
    bool stopping;                /* a signal came, to any rank */
    double waited[2]; /* of the last epoch, part of the time that ranks waited for each other: least and most */
    ct_run run;
    int64_t total_steps, log_every;
    bool warmup_cut; /* to less than the recipe says */
    /* the epoch so far */
    double loss_sum, score_sum; /* of score: right answers, or squared errors */
    int64_t items, targets;
    unread_step unread[MOST_UNREAD]; /* the last steps, of which the above does not know yet */
    int unread_count;
    double read; /* when they last were */
    /* the best so far */
    double best_score, best_loss;
    int64_t best_epoch; /* from 1; 0: none */
    /* a run whose number of epochs was changed */
    int64_t epochs_before; /* what the checkpoint says; 0: it is a new run */
    int64_t patient_from;  /* the epoch from which the run gets a new chance not to be stopped early */
    bool finished;
    char *samples[3]; /* of a language model, at the end */
    evaluation best;  /* of the best epoch that this process has seen, or of the first */
    bool best_is_old; /* an earlier process had a better one */
    journal journal;
    progress progress;
    board *board;
    bool stored;         /* there is a checkpoint */
    double saved;        /* when the last one was, or the start */
    double epoch_start;  /* when this process entered the epoch */
    int64_t epoch_items; /* that this process has done in it */
} trainer;

/* All of it: 0 done, 1 an error is pending, 2 stopped by a signal after a checkpoint. */
enum { TRAINED = 0, TRAIN_FAILED = 1, TRAIN_STOPPED = 2 };
int trainer_run(const trainer_options *options);

/* Saving and going on (resume.c). */
bool trainer_choose_folder(trainer *t); /* sets out */
bool trainer_make_folder(trainer *t);
bool trainer_lock(trainer *t);
bool trainer_save(trainer *t);      /* OUT/last.safetensors */
bool trainer_save_best(trainer *t); /* OUT/best.safetensors: the network as it is evaluated */
bool trainer_resume(trainer *t);    /* from OUT/last.safetensors */
bool trainer_stopped_early(const trainer *t);
/* The recipe: the one that is named, compared with that of the checkpoint where the run goes on. */
bool trainer_open_recipe(trainer *t);
bool trainer_sets_epochs(const trainer_options *options); /* whether a --set is of the number of epochs */

/* Losses and scores, which stay on the device for a while (unread.c). Reading them waits for it, and finds a loss that is not
 * finite. */
/* loss and score: one for each part that this process has computed, of b->n items and so many targets. */
bool trainer_note(trainer *t, ct_tensor *loss, ct_tensor *score, const ct_batch *b, int64_t targets, double lr);
ct_tensor *trainer_loss(void *learner, ct_tensor *const *batch, int n, ct_tensor **score);
/* What a step's score is made of: NULL for a language model, whose perplexity comes from the loss. */
ct_tensor *trainer_score(const learner *l, ct_tensor *outputs, ct_tensor *target);
bool trainer_read(trainer *t);
void trainer_drop_unread(trainer *t);

/* OUT/report.html (report.c). */
bool report_write(trainer *t);

#endif
