/* A training step as one call: loss, gradients, clipping, optimizer, loss scale and average of weights, captured where that pays.
 *
 *     static ct_tensor *loss_of(void *net, ct_tensor *const *batch, int n, ct_tensor **extra) {
 *         return ct_cross_entropy_loss(ct_forward(net, batch[0]), batch[1]);
 *     }
 *     ct_train_step *step = ct_train_step_new(opt, loss_of, net, .clip_norm = 1);
 *     for (ct_batch b; ct_next(batches, &b);)
 *         ct_scope {
 *             ct_tensor *loss = NULL;
 *             ct_train_step_take(step, b.field, 2, &loss, NULL);
 *             ct_schedule_step(schedule);
 *         }
 *
 * Captured and eager steps have the same bits on the CPU, and may alternate. A batch of other shapes, such as an epoch's last smaller one, has
 * a graph of its own (cotangent/capture.h), up to eight of them: what is of yet another shape is eager. The first step of each shape is
 * eager, the second is captured, and the rest are replays, before which the batch is copied to tensors that the graph reads. What the loss
 * function computes on the host is frozen in them.
 *
 * Threads: a step belongs to the thread that trains, as its optimizer does. */
#ifndef COTANGENT_TRAIN_H
#define COTANGENT_TRAIN_H

#include <cotangent/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_train_step ct_train_step;

/* The loss of the n tensors of a batch, a scalar, in the scope; NULL after an error. *extra is NULL and may be set to what else is to be
 * known of the batch, such as the number of right answers: it is computed without gradients by whoever wants that, and summed over the
 * parts of a batch that is cut. */
typedef ct_tensor *(*ct_train_loss_fn)(void *context, ct_tensor *const *batch, int n, ct_tensor **extra);

typedef enum ct_train_mode {
    CT_TRAIN_AUTO = 0, /* captured where that is known to pay: on the CPU and on CUDA */
    CT_TRAIN_CAPTURED,
    CT_TRAIN_EAGER,
} ct_train_mode;

typedef struct ct_train_step_options {
    size_t size;
    ct_scaler *scaler; /* of f16 */
    ct_ema *ema;       /* updated after each step */
    double clip_norm;  /* 0: gradients are as long as they are */
    int64_t
        accumulate; /* 1: parts that a batch is cut into, along its first axis; their gradients are added, each loss weighted by
                            the part's share of the items. So less memory is needed for the same step */
    ct_train_mode mode;
    bool
        recompute; /* graphs compute cheap results again, for less memory: CT_CAPTURE_RECOMPUTE (cotangent/capture.h) */
    bool channels_last; /* in graphs images have their channels last, to other bits: CT_CAPTURE_LAYOUT */
} ct_train_step_options;

/* Holds none of these: they outlive it. NULL after an error. */
CT_API ct_train_step *ct_train_step_new_p(ct_optim *optim, ct_train_loss_fn loss, void *context,
                                          const ct_train_step_options *options);
CT_API void ct_train_step_free(ct_train_step *step);

/* One step with a batch of n tensors (1 to 8) whose first sizes are its number of items. loss and extra, unless NULL, are set to what the
 * loss function gave: tensors without gradients, in the scope, that later steps do not change; *extra is NULL where there was none. Where
 * something cannot be captured the step has been taken all the same, and all later ones are eager. False after an error. */
CT_API bool ct_train_step_take(ct_train_step *step, ct_tensor *const *batch, int n, ct_tensor **loss,
                               ct_tensor **extra);

/* The second half of a step alone, for gradients that are there already: loss scale, clipping, optimizer, average of weights. */
CT_API bool ct_train_step_update(ct_train_step *step);

/* Forgets all graphs: after something that they take as given has changed, such as which parameters are frozen or the mode of the network.
 * Of a checkpoint that was loaded, into the optimizer, the averages or the scaler, they know themselves. */
CT_API void ct_train_step_reset(ct_train_step *step);
CT_API int64_t ct_train_step_replays(const ct_train_step *step); /* steps so far that were replays */
CT_API const char *
ct_train_step_note(const ct_train_step *step); /* why steps are eager, in a line; "": there is no reason */

#ifdef __cplusplus
}
#endif

#include <cotangent/train_options.h>

#endif
