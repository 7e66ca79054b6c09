/* A small training that tests of devices run, alone and beside others. */
#ifndef COTANGENT_TESTS_DEVICE_TRAINING_H
#define COTANGENT_TESTS_DEVICE_TRAINING_H

#include <string.h>

#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/harness.h"

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *target; /* kept; on the device */
    ct_device device;
    bool own_stream;
    double losses[24];
    bool ok;
} training;
enum { STEPS = 24, CLASSES = 7, WIDTH = 40 };

static bool begin(training *t, ct_device d, uint64_t seed, int64_t batch) {
    memset(t, 0, sizeof *t);
    t->device = d;
    ct_seed(seed);
    ct_scope {
        t->net = ct_nn_sequential(ct_nn_linear(WIDTH, 64), ct_nn_layer_norm(64), ct_nn_gelu(), ct_nn_linear(64, 64),
                                  ct_nn_relu(), ct_nn_linear(64, CLASSES));
        t->ok = ct_module_to_device(t->net, d);
        t->optim = ct_adamw(t->net, .lr = 1e-2);
        t->x = ct_keep(ct_to(ct_randn(CT_DIMS(batch, WIDTH)), d));
        t->target = ct_keep(ct_to(ct_randint(CT_DIMS(batch), 0, CLASSES), d));
    }
    return t->ok = t->ok && t->optim && t->x && t->target;
}

static bool step(training *t, ct_tensor *x, ct_tensor *target, double *loss) {
    bool ok = false;
    ct_scope {
        ct_tensor *value = ct_cross_entropy_loss(ct_forward(t->net, x), target);
        ok = ct_backward(value) && ct_optim_step(t->optim) && ct_optim_zero_grad(t->optim);
        if (ok && loss) *loss = ct_item(value);
    }
    return ok && ct_ok();
}

static void end(training *t) {
    ct_drop(t->x);
    ct_drop(t->target);
    ct_optim_free(t->optim);
    ct_module_free(t->net);
}

__attribute__((unused)) static void *run(void *context) {
    training *t = context;
    ct_stream *stream = t->own_stream ? ct_stream_new(t->device) : NULL;
    t->ok = t->ok && (!t->own_stream || (stream && ct_set_stream(t->device, stream)));
    for (int i = 0; t->ok && i < STEPS; i++) t->ok = step(t, t->x, t->target, &t->losses[i]);
    ct_set_stream(t->device, NULL);
    ct_stream_free(stream);
    return t;
}

#endif
