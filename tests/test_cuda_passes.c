/* Passes over captured graphs on an NVIDIA device: random graphs through all passes but fusion, which rounds otherwise there, have the bits of
 * eager calls; and with channels last a network has the same gradients but for rounding. Without a device all of it is skipped. */
#include <cotangent/nn.h>

#include "tests/cuda_device.h"
#include "tests/random_graph.h"

TEST_LIMIT(random_graphs_with_passes_in_any_order_have_the_bits_of_eager_calls, 600) {
    CUDA(device);
    const char *text = getenv("CT_TEST_GRAPHS");
    const int n = text ? atoi(text) : 100;
    for (int seed = 0; seed < n && !harness_failed(); seed++) {
        char passes[256];
        ct_graph_info info;
        random_passes((uint64_t)seed + 31, "fuse", passes, sizeof passes);
        random_check((uint64_t)seed, OPS, passes, device, &info);
    }
}

typedef struct gradients {
    ct_module *net;
    ct_tensor *x, *dx; /* dx is left behind */
} gradients;

static bool differentiate(void *context) {
    gradients *g = context;
    ct_tensor *y = ct_forward(g->net, g->x), *loss = ct_sum(ct_tanh(y)), *dx = NULL;
    if (!y || !ct_grad(&loss, 1, NULL, &g->x, 1, &dx, 0)) return false;
    ct_drop(g->dx);
    g->dx = ct_keep(dx);
    return true;
}

/* Smooth, since a relu that falls on the other side of 0 by rounding is no rounding any more. */
static ct_module *make_net(void) {
    return ct_nn_sequential(ct_nn_conv2d(3, 32, 3, .pad = 1, .no_bias = true), ct_nn_batch_norm(32), ct_nn_gelu(),
                            ct_nn_conv2d(32, 64, 3, .stride = 2, .pad = 1, .no_bias = true), ct_nn_batch_norm(64),
                            ct_nn_gelu(), ct_nn_avg_pool2d(2), ct_nn_conv2d(64, 64, 3, .pad = 1), ct_nn_gelu(),
                            ct_nn_flatten(), ct_nn_linear(64 * 8 * 8, 10));
}

TEST_LIMIT(a_network_written_channels_first_has_the_same_gradients_channels_last, 300) {
    CUDA(device);
    gradients of[2];
    for (int last = 0; last < 2; last++) {
        ct_seed(5);
        gradients *g = &of[last];
        *g = (gradients){.net = make_net()};
        CHECK(g->net && ct_module_to_device(g->net, device));
        g->x = ct_set_requires_grad(ct_to(ct_randn(CT_DIMS(8, 3, 32, 32)), device), true);
        ct_graph *graph = ct_capture(differentiate, g, last ? CT_CAPTURE_LAYOUT : 0);
        harness_check(graph && ct_replay(graph), __FILE__, __LINE__, "%s", ct_error());
        ct_graph_free(graph);
    }
    ct_no_grad {
        /* sums of up to 576 products, sqrt(576) roundings each; a dozen convolutions and norms there and back; 4: norms divide */
        const double most = ct_item(ct_amax(ct_abs(of[0].dx)));
        CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(of[0].dx, of[1].dx)))) / most, 0, 4 * 12 * 24 * 0x1p-24);
    }
    for (int i = 0; i < 2; i++) ct_drop(of[i].dx), ct_module_free(of[i].net);
}
