/* Losses and scores of steps that the device may still be at: they stay there until the progress is drawn, a checkpoint is written
 * or the epoch ends, so that no step waits for the one before it. */
#include "cli/train/ranks.h"

#include <math.h>
#include <stdlib.h>

/* How often each class was taken for each, (target, prediction), as a vector; the last place is of pixels without a class. */
static ct_tensor *count_pairs(const learner *l, ct_tensor *outputs, ct_tensor *target) {
    const double classes = (double)l->classes;
    ct_tensor *said = ct_reshape(ct_argmax(outputs, .axis = CT_SET(1)), CT_DIMS(-1));
    ct_tensor *meant = ct_reshape(target, CT_DIMS(-1)), *pair = ct_add(ct_mul_s(meant, classes), said);
    ct_tensor *nowhere = ct_full(CT_DIMS0, classes * classes, .dtype = CT_I64, .device = ct_device_of(outputs));
    pair = ct_where(ct_lt_s(meant, 0), nowhere, pair);
    ct_tensor *counts = ct_zeros(CT_DIMS(l->classes * l->classes + 1), .device = ct_device_of(outputs));
    return ct_scatter_add(counts, 0, pair, ct_ones(ct_shape(pair), .device = ct_device_of(outputs)));
}

/* Right answers, squared errors in the units of the loss, or pairs of classes. */
ct_tensor *trainer_score(const learner *l, ct_tensor *outputs, ct_tensor *target) {
    if (l->task == TASK_LANGUAGE) return NULL;
    if (l->task == TASK_SEGMENTATION) return count_pairs(l, outputs, target);
    if (l->task == TASK_REGRESSION) return ct_sum(ct_square(ct_sub(ct_reshape(outputs, ct_shape(target)), target)));
    const bool soft = ct_dtype_is_float(ct_dtype_of(target));
    ct_tensor *meant = soft ? ct_argmax(target, .axis = CT_SET(1)) : target;
    return ct_sum(
        ct_cast(ct_eq(ct_cast(ct_argmax(outputs, .axis = CT_SET(1)), CT_I64), ct_cast(meant, CT_I64)), CT_F32));
}

bool trainer_note(trainer *t, ct_tensor *loss, ct_tensor *score, const ct_batch *b, int64_t targets, double lr) {
    t->unread[t->unread_count++] = (unread_step){.loss = ct_keep(loss),
                                                 .score = score ? ct_keep(score) : NULL,
                                                 .targets = targets,
                                                 .items = b->n,
                                                 .step = t->run.step + 1,
                                                 .epoch = b->epoch + 1,
                                                 .lr = lr};
    return ct_ok();
}

/* Mean overlap of prediction and target over the classes that occur. */
static double mean_overlap(const double *counts, int64_t classes) {
    double sum = 0, present = 0;
    for (int64_t c = 0; c < classes; c++) {
        double all = 0;
        const double hits = counts[c * classes + c];
        for (int64_t i = 0; i < classes; i++) all += counts[c * classes + i] + counts[i * classes + c];
        if (!(all > 0)) continue;
        sum += hits / (all - hits);
        present++;
    }
    return present > 0 ? sum / present : (double)NAN;
}

/* Everything of one kind in one go; room: n times the size of each. */
static bool read_all(ct_tensor *const *xs, int n, double *room) {
    bool right = false;
    ct_scope {
        ct_tensor *all = ct_cast(ct_to(ct_stack(xs, n, 0), (ct_device){.type = CT_CPU}), CT_F64);
        right = all && ct_read(all, room, (size_t)ct_numel(all) * sizeof *room);
    }
    return right;
}

static bool add_step(trainer *t, const unread_step *u, double loss, const double *score) {
    const learner *l = &t->learner;
    if (!isfinite(loss) && !t->scaler)
        return ct_fail(
            CT_ERR_VALUE, NULL,
            "the loss became %s in step %lld; a smaller learning rate (--lr), clip_norm or a warm-up may help",
            isnan(loss) ? "NaN" : "infinite", (long long)u->step);
    t->loss_sum += loss * (double)u->targets;
    t->targets += u->targets;
    t->items += u->items;
    if (l->task == TASK_CLASSIFICATION) t->score_sum += score[0];
    if (l->task == TASK_SEGMENTATION) t->score_sum += mean_overlap(score, l->classes) * (double)u->items;
    if (l->task == TASK_REGRESSION) t->score_sum += score[0] * l->target_std * l->target_std;
    return u->step % t->log_every != 0 || (journal_step(&t->journal, u->epoch, u->step, loss, u->lr) &&
                                           board_scalar(t->board, u->step, "loss/step", loss) &&
                                           board_scalar(t->board, u->step, "learning_rate", u->lr));
}

/* One kind of figure, (steps,parts,size) of this rank: those of all ranks are added up, part by part in the order of the batch, to
 * (steps,size) in sums. */
static bool add_parts(const trainer *t, ct_tensor *const *xs, int n, int64_t parts, int64_t size, double *sums) {
    const int64_t here = n * parts * size;
    double *mine = calloc((size_t)here + 1, sizeof *mine), *all = mine;
    bool right = mine ? read_all(xs, n, mine) : ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    if (right && t->ranks > 1) right = (all = ranks_gather(mine, here)) != NULL;
    for (int64_t i = 0; right && i < n * size; i++) {
        sums[i] = 0;
        for (int64_t p = 0; p < t->sharers * parts; p++) /* of those that compute one part together the first tells */
            sums[i] +=
                all[((p / parts * (t->ranks / t->sharers) * n + i / size) * parts + p % parts) * size + i % size];
    }
    if (all != mine) free(all);
    free(mine);
    return right;
}

bool trainer_read(trainer *t) {
    const int n = t->unread_count;
    if (n == 0) return ct_ok();
    ct_tensor *losses[MOST_UNREAD], *scores[MOST_UNREAD];
    double loss[MOST_UNREAD];
    for (int i = 0; i < n; i++) losses[i] = t->unread[i].loss, scores[i] = t->unread[i].score;
    const int64_t parts = ct_numel(losses[0]), size = scores[0] ? ct_numel(scores[0]) / parts : 0;
    const int64_t all = t->sharers * parts; /* that a batch was cut into */
    double *score = calloc((size_t)(n * size) + 1, sizeof *score);
    bool right = score || ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    ct_no_grad {
        right =
            right && add_parts(t, losses, n, parts, 1, loss) && (!size || add_parts(t, scores, n, parts, size, score));
    }
    for (int i = 0; right && i < n; i++) {
        right = add_step(t, &t->unread[i], loss[i] / (double)all, score + i * size);
    }
    free(score);
    trainer_drop_unread(t);
    t->read = seconds_now();
    return right;
}

void trainer_drop_unread(trainer *t) {
    for (int i = 0; i < t->unread_count; i++) {
        ct_drop(t->unread[i].loss);
        ct_drop(t->unread[i].score);
    }
    t->unread_count = 0;
}
