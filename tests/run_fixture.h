/* A small real training for the tests of runs: a network with dropout and running statistics, Adam, a schedule, a scaled
 * loss, an average of the weights, and a loader that shuffles. */
#ifndef COTANGENT_TESTS_RUN_FIXTURE_H
#define COTANGENT_TESTS_RUN_FIXTURE_H

#include <cotangent/io.h>
#include <cotangent/run.h>
#include <cotangent/train.h>

#include "tests/files.h"

enum { RUN_ITEMS = 90, RUN_IN = 12, RUN_CLASSES = 3 };

typedef struct training {
    ct_run run;
    ct_dataset *data;
    ct_train_step *step; /* NULL: steps are written out, and eager */
} training;

static inline bool training_make(training *t, int64_t hidden, int64_t batch, int loader_threads) {
    *t = (training){.run.size = sizeof t->run};
    ct_scope {
        ct_rng *rng = ct_rng_new(99, 1);
        ct_tensor *fields[] = {ct_randn(CT_DIMS(RUN_ITEMS, RUN_IN), .rng = rng),
                               ct_randint(CT_DIMS(RUN_ITEMS), 0, RUN_CLASSES, .rng = rng)};
        t->data = ct_dataset_tensors(fields, 2);
        ct_rng_free(rng);
    }
    ct_seed(7);
    t->run.net = ct_nn_sequential(ct_nn_linear(RUN_IN, hidden), ct_nn_batch_norm(hidden), ct_nn_relu(),
                                  ct_nn_dropout(0.3), ct_nn_linear(hidden, RUN_CLASSES));
    t->run.optim = ct_adam(t->run.net, .lr = 1e-2);
    t->run.schedule = ct_schedule_cosine(t->run.optim, 1000);
    t->run.scaler = ct_scaler_new(1024, .growth_interval = 5);
    t->run.ema = ct_ema_new(t->run.net, .decay = CT_SET(0.9));
    t->run.loader = ct_batches(t->data, batch, .shuffle = true, .seed = 3, .threads = CT_SET(loader_threads));
    return ct_ok();
}

static inline ct_tensor *training_loss(void *net, ct_tensor *const *batch, int n, ct_tensor **extra) {
    (void)n, (void)extra;
    return ct_cross_entropy_loss(ct_forward(net, batch[0]), batch[1]);
}

/* From here on steps are captured. */
static inline bool training_capture(training *t) {
    t->step = ct_train_step_new(t->run.optim, training_loss, t->run.net, .scaler = t->run.scaler, .ema = t->run.ema,
                                .mode = CT_TRAIN_CAPTURED);
    return t->step != NULL;
}

static inline void training_free(training *t) {
    ct_train_step_free(t->step);
    ct_loader_free(t->run.loader);
    ct_dataset_free(t->data);
    ct_ema_free(t->run.ema);
    ct_scaler_free(t->run.scaler);
    ct_schedule_free(t->run.schedule);
    ct_optim_free(t->run.optim);
    ct_module_free(t->run.net);
    ct_state_free(t->run.extra);
}

/* One step; its loss, NaN after an error. */
static inline double training_step(training *t) {
    ct_batch b;
    double value = 0;
    if (!ct_next(t->run.loader, &b) && !(ct_ok() && ct_next(t->run.loader, &b))) return ct_item(NULL);
    ct_scope {
        ct_tensor *loss = NULL;
        if (t->step) {
            ct_train_step_take(t->step, b.field, 2, &loss, NULL);
            value = ct_item(loss);
        } else {
            loss = training_loss(t->run.net, b.field, 2, NULL);
            value = ct_item(loss);
            ct_backward(ct_scaler_scale(t->run.scaler, loss));
            ct_scaler_step(t->run.scaler, t->run.optim);
            ct_scaler_update(t->run.scaler);
            ct_ema_update(t->run.ema);
        }
        ct_schedule_step(t->run.schedule);
    }
    t->run.step++;
    t->run.epoch = b.epoch;
    return ct_ok() ? value : ct_item(NULL);
}

/* Everything that the next step depends on, as bytes: two runs of the same fingerprint go on alike. */
static inline bool training_same(const training *t, const char *checkpoint) {
    const char *name = "fingerprint";
    char path[600];
    snprintf(path, sizeof path, "%s/%s.safetensors", own_folder(), name);
    return ct_run_save(&t->run, own_folder(), name) && same_files(path, checkpoint);
}

#endif
