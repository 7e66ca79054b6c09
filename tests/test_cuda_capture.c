/* Captured steps on an NVIDIA device: the bits of eager ones there, from whichever stream they are replayed. */
#include <stdlib.h>

#include "tests/cuda_device.h"
#include "tests/trainings.h"

static const ct_device cpu = {CT_CPU, 0};

TEST_LIMIT(trainings_captured_on_a_device_have_the_bits_of_eager_ones_there, 300) {
    CUDA(d);
    for (int model = 0; model < MODELS; model++)
        for (int kind = 0; kind < 4; kind++) check_training(model, kind, CT_F32, d, d, 40);
}

TEST_LIMIT(in_half_precision_they_have_them_too, 300) {
    CUDA(d);
    for (int model = 0; model < MODELS; model++) check_training(model, model, CT_BF16, d, d, 40);
    check_training(MLP, 1, CT_F16, d, d, 40);
}

/* Layers wide enough for products beside each other, and kernels that begin while others come to their end. */
typedef struct wide {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *target;
} wide;

static bool wide_step(void *context) {
    const wide *w = context;
    ct_tensor *loss = ct_cross_entropy_loss(ct_forward(w->net, w->x), w->target);
    return ct_backward(loss) && ct_optim_step(w->optim) && ct_optim_zero_grad(w->optim);
}

static wide wide_new(ct_device d) {
    wide w = {0};
    ct_seed(11);
    w.net = ct_nn_sequential(ct_nn_linear(784, 512, .activation = CT_ACT_RELU), ct_nn_dropout(0.2),
                             ct_nn_linear(512, 512, .activation = CT_ACT_RELU), ct_nn_linear(512, 10));
    CHECK(w.net && ct_module_to_device(w.net, d));
    w.optim = ct_sgd(w.net, .lr = 0.05, .momentum = CT_SET(0.9));
    ct_scope {
        w.x = ct_keep(ct_to(ct_randn(CT_DIMS(64, 784)), d));
        w.target = ct_keep(ct_to(ct_randint(CT_DIMS(64), 0, 10), d));
    }
    return w;
}

TEST_LIMIT(a_network_of_wide_layers_has_them_after_a_thousand_replays_from_two_streams, 300) {
    CUDA(d);
    wide of[2];
    ct_stream *streams[2] = {ct_stream_new(d), ct_stream_new(d)};
    REQUIRE(streams[0] && streams[1]);
    for (int captured = 0; captured < 2; captured++) {
        wide *w = &of[captured];
        *w = wide_new(d);
        ct_scope {
            CHECK(wide_step(w));
        }
        ct_graph *graph = captured ? ct_capture(wide_step, w, CT_CAPTURE_WARM) : NULL;
        if (captured) REQUIRE(graph != NULL);
        for (int i = captured; i < 1000; i++)
            ct_scope {
                if (captured) CHECK(ct_set_stream(d, streams[i / 10 % 2]));
                if (!CHECK(captured ? ct_replay(graph) : wide_step(w))) break;
            }
        CHECK(ct_set_stream(d, NULL));
        ct_graph_free(graph);
    }
    CHECK(same_networks(of[0].net, of[1].net));
    for (int i = 0; i < 2; i++) {
        ct_optim_free(of[i].optim), ct_module_free(of[i].net);
        ct_drop(of[i].x), ct_drop(of[i].target);
        ct_stream_free(streams[i]);
    }
    CHECK(ct_set_device(cpu) && ct_ok());
}
