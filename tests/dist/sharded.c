/* Parameters, gradients and optimizer state that are divided among ranks, in all stages of ZeRO, against a network that
 * every rank has whole: the same weights after some steps, and a fraction of the memory. Run by tests/dist.sh under
 * mpirun. */
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

/* One step, of several passes; all but the last are not exchanged, where a network is data parallel. */
static void train(ct_module *net, ct_optim *opt, ct_dist_parallel *parallel, int step, int passes, double clip) {
    ct_rng *rng = ct_rng_new(4, (uint64_t)(step * size + rank));
    ct_rng_set_position(NULL, (uint64_t)step << 20); /* the same dropout in both networks */
    ct_scope {
        for (int i = 0; i < passes; i++) {
            ct_tensor *x = ct_randn(CT_DIMS(ITEMS, 8), .rng = rng);
            if (parallel) ct_dist_set_sync(parallel, i + 1 == passes);
            CHECK(ct_backward(ct_mean(ct_square(ct_sub_s(ct_forward(net, x), 1)))));
        }
        if (parallel) CHECK(ct_dist_reduce_gradients(parallel));
        if (clip > 0) CHECK(ct_dist_clip_grad_norm(net, clip) > clip);
        CHECK(ct_optim_step(opt));
    }
    ct_rng_free(rng);
}

static void same_weights(int stage) {
    ct_module *net = new_net(stage, 3 + (uint64_t)rank), *whole = new_net(0, 3);
    ct_dist_parallel *parallel = ct_dist_data_parallel(whole), *own = stage == 1 ? ct_dist_data_parallel(net) : NULL;
    /* In stage 1 gradients are summed as those of the whole network are; and of two ranks the sum has one order: the
     * bits are the same. Of more, MPI's order may differ between the two collectives: then by an optimizer that does
     * not blow up what rounding leaves of a gradient that is nearly 0. */
    const bool exact = size <= 2 || stage == 1;
    ct_optim *opt = exact ? ct_adamw(net, .lr = 0.01) : ct_sgd(net, .lr = 0.01);
    ct_optim *whole_opt = exact ? ct_adamw(whole, .lr = 0.01) : ct_sgd(whole, .lr = 0.01);
    if (stage > 1) CHECK(ct_module_size(net) < ct_module_size(whole) / size + 3 * size);
    for (int step = 0; step < 5 && ct_ok(); step++) {
        train(net, opt, own, step, 1, 0);
        train(whole, whole_opt, parallel, step, 1, 0);
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
    ct_dist_parallel_free(own);
    ct_dist_parallel_free(parallel);
    ct_optim_free(opt);
    ct_optim_free(whole_opt);
    ct_module_free(net);
    ct_module_free(whole);
}

/* ---- Stage 1: what is divided is the optimizer alone, so all else goes with it ---- */

static ct_optim *new_optim(int kind, ct_module *net) {
    switch (kind) {
    case 0: return ct_sgd(net, .lr = 0.1, .momentum = CT_SET(0.9), .nesterov = true);
    case 1: return ct_nadam(net, .lr = 0.01);
    case 2: return ct_rmsprop(net, .lr = 0.01, .centered = true, .momentum = CT_SET(0.5));
    case 3: return ct_lion(net, .lr = 0.01);
    default: return ct_lookahead(ct_adam(net, .lr = 0.01, .amsgrad = true), .k = 2);
    }
}

/* A network with parameters of f32 and, between them, of bf16, one of which is frozen; two groups of options; steps of
 * two passes, of which the first is not exchanged; and gradients that are clipped: to the bit as without the
 * division. */
static void learns_apart(int kind) {
    ct_module *nets[2];
    ct_optim *optims[2];
    ct_dist_parallel *parallels[2];
    for (int i = 0; i < 2; i++) {
        nets[i] = new_net(0, 3);
        CHECK(ct_module_to_dtype(ct_module_child(nets[i], 2), CT_BF16));
        CHECK(ct_module_freeze(ct_module_child(ct_module_child(nets[i], 2), 1), true));
        if (i) CHECK(ct_dist_divide(nets[i], .stage = 1));
        parallels[i] = ct_dist_data_parallel(nets[i], .bucket = 4096);
        optims[i] = new_optim(kind, nets[i]);
        CHECK(ct_optim_group(optims[i], "*.bias", .lr = 0.02));
    }
    for (int step = 0; step < 5 && ct_ok(); step++)
        for (int i = 0; i < 2; i++) train(nets[i], optims[i], parallels[i], step, 2, 1e-3);
    ct_parameters *a = ct_module_parameters(nets[0]), *b = ct_module_parameters(nets[1]);
    for (int i = 0; i < ct_parameters_count(a); i++)
        CHECK(distance(ct_parameter_tensor(ct_parameters_at(a, i)), ct_parameter_tensor(ct_parameters_at(b, i))) == 0);
    ct_parameters_free(a);
    ct_parameters_free(b);
    for (int i = 0; i < 2; i++) {
        ct_dist_parallel_free(parallels[i]);
        ct_optim_free(optims[i]);
        ct_module_free(nets[i]);
    }
}

static void refuses_what_stage_1_cannot(void) {
    ct_module *net = new_net(0, 3);
    ct_optim *before = ct_sgd(net, .lr = 0.1);
    CHECK(ct_dist_divide(net, .stage = 1));
    ct_optim *after = ct_sgd(net, .lr = 0.1);
    CHECK(ct_backward(ct_sum(ct_forward(net, ct_ones(CT_DIMS(2, 8))))) && ct_optim_keep_grad(before, true));
    if (size > 1) {
        CHECK(!ct_optim_step(before) &&
              strstr(ct_error(), "0.0.weight was divided among processes, or no longer, after the optimizer was made"));
        ct_error_clear();
        CHECK(!ct_optim_step(after) && strstr(ct_error(), "dist_divide: stage 1 leaves gradients whole, and nothing "
                                                          "averages that of f32[96,8], parameter 0 of the step"));
        ct_error_clear();
        CHECK(!ct_lamb(net) && strstr(ct_error(), "lamb: 0.0.weight is learned by ") &&
              strstr(ct_error(), "processes, each a part of its elements, and lamb needs all of them"));
        ct_error_clear();
        CHECK(!ct_lbfgs(net) && ct_error_code() == CT_ERR_UNSUPPORTED);
        ct_error_clear();
    }
    ct_optim_free(before);
    ct_optim_free(after);
    CHECK(!ct_dist_divide(net, .stage = 4) && strstr(ct_error(), "stage is 4; expected 1, 2 or 3, or 0 for none"));
    ct_error_clear();
    ct_module_free(net);
    for (int stage = -1; stage <= 4; stage += 5) {
        CHECK(!ct_dist_sharded(ct_nn_linear(2, 2), .stage = stage) && strstr(ct_error(), "expected 1, 2 or 3"));
        ct_error_clear();
    }
}

/* Bytes of parameters, gradients and state, after a step that leaves its gradients. */
static double held(int stage, bool gpt) {
    ct_memory before = {.size = sizeof before}, after = {.size = sizeof after};
    ct_memory_stats((ct_device){CT_CPU, 0}, &before);
    ct_module *net = gpt ? ct_nn_gpt(64, .dim = 128, .heads = 4, .layers = 4, .context = 32)
                         : ct_nn_sequential(layer(512, 512, stage), layer(512, 512, stage), layer(512, 8, stage));
    if (gpt && stage) CHECK(ct_dist_divide(net, .stage = stage));
    ct_dist_parallel *parallel = stage == 1 || (gpt && stage) ? ct_dist_data_parallel(net) : NULL;
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

/* Adam's state is half of it all, and divided in every stage. */
static void takes_a_fraction(int stage, bool gpt) {
    const double whole = held(0, gpt), part = held(stage, gpt);
    if (rank == 0)
        printf("%s, stage %d: parameters, gradients and state are %.3f of one process's\n", gpt ? "gpt" : "mlp", stage,
               part / whole);
    CHECK(part < (stage == 1 ? 0.5 + 0.5 / size + 0.01 : 1.0 / size + 0.1) * whole);
}

int main(void) {
    if (!CHECK(ct_dist_init())) return 1;
    rank = ct_dist_rank();
    size = ct_dist_size();
    for (int stage = 1; stage <= 3; stage++)
        ct_scope
            same_weights(stage);
    for (int kind = 0; kind < 5; kind++)
        ct_scope
            learns_apart(kind);
    ct_scope
        refuses_what_stage_1_cannot();
    for (int stage = 1; stage <= 3; stage += 2) {
        takes_a_fraction(stage, false);
        takes_a_fraction(stage, true);
    }
    ct_module *odd = ct_nn_sequential(ct_nn_linear(2, 2), ct_nn_linear(2, 2));
    ct_module_to_dtype(ct_module_child(odd, 1), CT_F64);
    CHECK(!ct_dist_sharded(odd) && strstr(ct_error(), "'1.weight' is f64 and the first parameter f32"));
    ct_error_clear();
    CHECK(!ct_dist_sharded(ct_nn_relu()) && strstr(ct_error(), "the module has no parameters"));
    ct_error_clear();
    if (rank == 0) printf("%d ranks\n", size);
    return ended();
}
