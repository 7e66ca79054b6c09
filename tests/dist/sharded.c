/* Parameters, gradients and optimizer state that are divided among ranks, against a network that every rank has
 * whole: the same weights after some steps, and a fraction of the memory. Run by tests/dist.sh under mpirun. */
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/dist/ranks.h"

static int rank, size;
enum { ITEMS = 4, WIDTH = 96 };

static ct_module *layer(int64_t in, int64_t out, int stage) {
    ct_module *linear = ct_nn_sequential(ct_nn_linear(in, out), ct_nn_layer_norm(out), ct_nn_dropout(0.1));
    return stage ? ct_dist_sharded(linear, .stage = stage) : linear;
}

static ct_module *new_net(int stage, uint64_t seed) {
    ct_seed(seed);
    return ct_nn_sequential(layer(8, WIDTH, stage), ct_nn_tanh(), layer(WIDTH, WIDTH, stage), ct_nn_tanh(),
                            layer(WIDTH, 3, stage));
}

static double distance(ct_tensor *a, ct_tensor *b) { return a && b ? ct_item(ct_amax(ct_abs(ct_sub(a, b)))) : 1e9; }

static void train(ct_module *net, ct_optim *opt, ct_dist_parallel *parallel, int step) {
    ct_rng *rng = ct_rng_new(4, (uint64_t)(step * size + rank));
    ct_rng_set_position(NULL, (uint64_t)step << 20); /* the same dropout in both networks */
    ct_scope {
        ct_tensor *x = ct_randn(CT_DIMS(ITEMS, 8), .rng = rng);
        CHECK(ct_backward(ct_mean(ct_square(ct_sub_s(ct_forward(net, x), 1)))));
        if (parallel) CHECK(ct_dist_reduce_gradients(parallel));
        CHECK(ct_optim_step(opt));
    }
    ct_rng_free(rng);
}

static void same_weights(int stage) {
    ct_module *net = new_net(stage, 3 + (uint64_t)rank), *whole = new_net(0, 3);
    ct_dist_parallel *parallel = ct_dist_data_parallel(whole);
    /* Of two ranks the sum has one order, so the bits are the same. Of more, MPI's order may differ between the two
     * collectives: then by an optimizer that does not blow up what rounding leaves of a gradient that is nearly 0. */
    const bool exact = size <= 2;
    ct_optim *opt = exact ? ct_adamw(net, .lr = 0.01) : ct_sgd(net, .lr = 0.01);
    ct_optim *whole_opt = exact ? ct_adamw(whole, .lr = 0.01) : ct_sgd(whole, .lr = 0.01);
    CHECK(ct_module_size(net) < ct_module_size(whole) / size + 3 * size);
    for (int step = 0; step < 5 && ct_ok(); step++) {
        train(net, opt, NULL, step);
        train(whole, whole_opt, parallel, step);
    }
    for (int i = 0; i < 3; i++) {
        ct_module *back = ct_dist_whole(ct_module_child(net, 2 * i));
        if (!CHECK(back != NULL)) continue;
        for (int k = 0; k < 2; k++) {
            const char *name = k ? "0.bias" : "0.weight";
            const double off =
                distance(ct_module_find(back, name), ct_module_find(ct_module_child(whole, 2 * i), name));
            CHECK(exact ? off == 0 : off < 1e-6);
        }
        CHECK(ct_requires_grad(ct_module_find(back, "0.weight")));
        ct_module_free(back);
    }
    ct_dist_parallel_free(parallel);
    ct_optim_free(opt);
    ct_optim_free(whole_opt);
    ct_module_free(net);
    ct_module_free(whole);
}

/* Bytes of parameters, gradients and state, after a step that leaves its gradients. */
static double held(int stage, bool gpt) {
    ct_memory before = {.size = sizeof before}, after = {.size = sizeof after};
    ct_memory_stats((ct_device){CT_CPU, 0}, &before);
    ct_module *net = gpt ? ct_nn_gpt(64, .dim = 128, .heads = 4, .layers = 4, .context = 32)
                         : ct_nn_sequential(layer(512, 512, stage), layer(512, 512, stage), layer(512, 8, stage));
    if (gpt && stage) CHECK(ct_dist_divide(net, .stage = stage));
    ct_dist_parallel *parallel = gpt && stage ? ct_dist_data_parallel(net) : NULL;
    ct_optim *opt = ct_adamw(net, .lr = 0.01);
    for (int i = 0; i < 2; i++)
        ct_scope {
            ct_tensor *x = gpt ? ct_zeros(CT_DIMS(1, 8), .dtype = CT_I64) : ct_ones(CT_DIMS(1, 512));
            CHECK(ct_backward(ct_mean(ct_forward(net, x))));
            if (parallel) CHECK(ct_dist_reduce_gradients(parallel));
            if (i == 0) CHECK(ct_optim_step(opt) && ct_optim_zero_grad(opt));
        }
    CHECK(ct_memory_stats((ct_device){CT_CPU, 0}, &after));
    ct_dist_parallel_free(parallel);
    ct_optim_free(opt);
    ct_module_free(net);
    return (double)(after.in_use - before.in_use);
}

static void takes_a_fraction(bool gpt) {
    const double whole = held(0, gpt), part = held(3, gpt);
    if (rank == 0)
        printf("%s: parameters, gradients and state are %.2f of one process's\n", gpt ? "gpt" : "mlp", part / whole);
    CHECK(part < (1.0 / size + 0.1) * whole);
}

int main(void) {
    if (!CHECK(ct_dist_init())) return 1;
    rank = ct_dist_rank();
    size = ct_dist_size();
    ct_scope
        same_weights(2);
    ct_scope
        same_weights(3);
    takes_a_fraction(false);
    takes_a_fraction(true);
    ct_module *odd = ct_nn_sequential(ct_nn_linear(2, 2), ct_nn_linear(2, 2));
    ct_module_to_dtype(ct_module_child(odd, 1), CT_F64);
    CHECK(!ct_dist_sharded(odd) && strstr(ct_error(), "'1.weight' is f64 and the first parameter f32"));
    ct_error_clear();
    CHECK(!ct_dist_sharded(ct_nn_relu()) && strstr(ct_error(), "the module has no parameters"));
    ct_error_clear();
    if (rank == 0) printf("%d ranks\n", size);
    return ended();
}
