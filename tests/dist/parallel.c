/* Data parallel training against one process that has the whole batch: gradients, unused parameters, accumulation,
 * compression, batch norm over ranks; and with `losses`, the losses of a run in shards, to be compared between
 * numbers of ranks. Run by tests/dist.sh under mpirun. */
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/dist/ranks.h"

static int rank, size;
enum { PER_RANK = 4, FEATURES = 6, CLASSES = 3 };

static ct_module *new_net(uint64_t seed) {
    ct_seed(seed);
    return ct_nn_sequential(ct_nn_linear(FEATURES, 16), ct_nn_relu(), ct_nn_linear(16, 8), ct_nn_tanh(),
                            ct_nn_linear(8, CLASSES));
}

/* The same batch on every rank, of which each takes its part. */
static ct_tensor *batch(int64_t step, int64_t items) {
    ct_rng *rng = ct_rng_new(77, (uint64_t)step);
    ct_tensor *x = ct_randn(CT_DIMS(items, FEATURES), .rng = rng);
    ct_rng_free(rng);
    return x;
}
static ct_tensor *targets(int64_t items) {
    return ct_remainder_s(ct_arange(0, (double)items, 1, .dtype = CT_I64), CLASSES);
}
static ct_tensor *part(ct_tensor *x) { return ct_narrow(x, 0, PER_RANK * rank, PER_RANK); }

static double distance(ct_tensor *a, ct_tensor *b) {
    return a && b ? ct_item(ct_sqrt(ct_sum(ct_square(ct_sub(a, b))))) : a == b ? 0 : 1e9;
}

/* The largest distance of the gradients of two networks. */
static double off(ct_module *a, ct_module *b) {
    double most = 0;
    ct_parameters *la = ct_module_parameters(a), *lb = ct_module_parameters(b);
    for (int i = 0; i < ct_parameters_count(la); i++) {
        const double d = distance(ct_grad_of(ct_parameter_tensor(ct_parameters_at(la, i))),
                                  ct_grad_of(ct_parameter_tensor(ct_parameters_at(lb, i))));
        most = d > most || d != d ? d : most;
    }
    ct_parameters_free(la);
    ct_parameters_free(lb);
    return most;
}

static bool same_on_all_ranks(ct_module *net) {
    bool same = true;
    ct_parameters *list = ct_module_parameters(net);
    for (int i = 0; i < ct_parameters_count(list); i++) {
        ct_scope {
            ct_tensor *x = ct_parameter_tensor(ct_parameters_at(list, i));
            ct_no_grad
                same =
                    same && ct_item(ct_sum(ct_cast(ct_ne(x, ct_dist_broadcast(ct_detach(x), 0, NULL)), CT_F32))) == 0;
        }
    }
    ct_parameters_free(list);
    return same;
}

static ct_tensor *loss_of(ct_module *net, ct_tensor *x, ct_tensor *y) {
    return ct_cross_entropy_loss(ct_forward(net, x), y);
}

static void trains_as_one(int64_t bucket, bool bf16) {
    ct_module *net = new_net(1 + (uint64_t)rank), *whole = new_net(1); /* rank 0's weights become everyone's */
    ct_dist_parallel *parallel = ct_dist_data_parallel(net, .bucket = bucket, .bf16 = bf16);
    ct_optim *opt = ct_sgd(net, .lr = 0.1, .momentum = CT_SET(0.9)),
             *whole_opt = ct_sgd(whole, .lr = 0.1, .momentum = CT_SET(0.9));
    CHECK(parallel && same_on_all_ranks(net));
    for (int step = 0; step < 5; step++) {
        ct_scope {
            ct_tensor *x = batch(step, PER_RANK * size), *y = targets(PER_RANK * size);
            CHECK(ct_backward(loss_of(net, part(x), part(y))) && ct_dist_reduce_gradients(parallel));
            CHECK(ct_backward(loss_of(whole, x, y)));
            CHECK(off(net, whole) < (bf16 ? 2e-2 : 1e-6 * (step + 1)));
            CHECK(ct_optim_step(opt) && ct_optim_step(whole_opt) && ct_optim_zero_grad(opt) &&
                  ct_optim_zero_grad(whole_opt));
        }
    }
    CHECK(same_on_all_ranks(net));
    ct_dist_parallel_free(parallel);
    ct_optim_free(opt);
    ct_optim_free(whole_opt);
    ct_module_free(net);
    ct_module_free(whole);
}

/* Two passes make one step; in the first nothing is sent. */
static void accumulates(int64_t bucket) {
    ct_module *net = new_net(3), *whole = new_net(3);
    ct_dist_parallel *parallel = ct_dist_data_parallel(net, .bucket = bucket);
    ct_dist_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    ct_tensor *y = targets(PER_RANK * size);
    CHECK(ct_dist_set_sync(parallel, false));
    CHECK(ct_dist_get_stats(&before) && ct_backward(loss_of(net, part(batch(0, PER_RANK * size)), part(y))));
    CHECK(ct_dist_reduce_gradients(parallel) && ct_dist_get_stats(&after) && after.calls == before.calls);
    CHECK(!ct_dist_set_sync(parallel, true));
    CHECK(ct_backward(loss_of(net, part(batch(1, PER_RANK * size)), part(y))) && ct_dist_reduce_gradients(parallel));
    for (int i = 0; i < 2; i++) CHECK(ct_backward(loss_of(whole, batch(i, PER_RANK * size), y)));
    CHECK(off(net, whole) < 1e-6);
    /* passes that were not told to wait */
    if (size > 1) {
        CHECK(ct_module_zero_grad(net) && ct_backward(loss_of(net, part(batch(0, PER_RANK * size)), part(y))));
        CHECK(!ct_backward(loss_of(net, part(batch(1, PER_RANK * size)), part(y))) &&
              strstr(ct_error(), "a second gradient of '4.weight'"));
        ct_error_clear();
        CHECK(ct_dist_reduce_gradients(parallel)); /* what has begun is ended by all */
    }
    ct_dist_parallel_free(parallel);
    ct_module_free(net);
    ct_module_free(whole);
}

/* Gradients that a ct_grad gives away are averaged as well, small ones and those that go by themselves. */
static void averages_what_is_given_away(int64_t side) {
    ct_module *net = ct_nn_linear(side, side, .no_bias = true);
    ct_dist_parallel *parallel = ct_dist_data_parallel(net);
    ct_tensor *w = ct_module_param(net, 0), *mine = NULL;
    ct_tensor *loss = ct_mul_s(ct_sum(ct_forward(net, ct_ones(CT_DIMS(1, side)))), rank + 1);
    CHECK(ct_grad(&loss, 1, NULL, &w, 1, &mine, 0) && ct_dist_reduce_gradients(parallel));
    CHECK(ct_item(ct_amin(mine)) == rank + 1 && ct_item(ct_amax(mine)) == rank + 1); /* the caller's stays */
    ct_tensor *mean = ct_grad_of(w);
    if (size > 1) CHECK(mean && distance(mean, ct_full_like(w, 0.5 * (size + 1))) < 1e-4);
    ct_dist_parallel_free(parallel);
    ct_module_free(net);
}

/* A layer that one rank uses, and one that nobody does. */
static void leaves_unused_alone(void) {
    ct_module *net = new_net(5);
    ct_nn_append(net, ct_nn_linear(2, 2));
    ct_dist_parallel *parallel = ct_dist_data_parallel(net, .bucket = 64);
    ct_tensor *x = batch(0, PER_RANK), *h = ct_forward(ct_module_child(net, 0), x);
    if (rank == size - 1) h = ct_forward(ct_module_child(net, 2), h);
    CHECK(ct_backward(ct_sum(h)) && ct_dist_reduce_gradients(parallel));
    ct_tensor *some = ct_grad_of(ct_module_find(net, "2.weight")), *all = ct_grad_of(ct_module_find(net, "0.weight"));
    CHECK(some && all && ct_item(ct_sum(ct_square(some))) > 0);
    CHECK(!ct_grad_of(ct_module_find(net, "5.weight")) && !ct_grad_of(ct_module_find(net, "4.bias")));
    ct_tensor *alone = NULL, *w = ct_module_find(net, "2.weight"); /* that rank's own gradient, divided by all */
    ct_tensor *again = ct_sum(ct_forward(ct_module_child(net, 2), ct_forward(ct_module_child(net, 0), x)));
    CHECK(ct_grad(&again, 1, NULL, &w, 1, &alone, 0) && distance(ct_div_s(alone, size), some) < 1e-6);
    ct_dist_parallel_free(parallel);
    ct_module_free(net);
}

static void refuses_other_tensors(void) {
    ct_module *net = new_net(6);
    ct_dist_parallel *parallel = ct_dist_data_parallel(net);
    CHECK(ct_module_to_dtype(net, CT_F64) && !ct_dist_reduce_gradients(parallel));
    CHECK(strstr(ct_error(), "'4.bias' is another tensor than when ct_dist_data_parallel was called"));
    ct_error_clear();
    ct_dist_parallel_free(parallel);
    ct_module_free(net);
}

static ct_module *normed(void) {
    ct_seed(9);
    return ct_nn_sequential(ct_nn_conv2d(2, 4, 3, .pad = 1), ct_nn_batch_norm(4), ct_nn_relu(), ct_nn_flatten(),
                            ct_nn_linear(4 * 9, 2));
}

static void norms_over_ranks(void) {
    ct_module *net = normed(), *whole = normed();
    CHECK(ct_nn_sync_batch_norm(net, NULL));
    ct_dist_parallel *parallel = ct_dist_data_parallel(net);
    ct_tensor *x = ct_reshape(ct_randn(CT_DIMS(PER_RANK * size * 18)), CT_DIMS(PER_RANK * size, 2, 3, 3));
    x = ct_add_s(ct_dist_broadcast(x, 0, NULL), 3);
    ct_tensor *y = ct_forward(net, part(x)), *whole_y = ct_forward(whole, x);
    CHECK(distance(y, part(whole_y)) < 1e-5);
    CHECK(ct_backward(ct_mean(ct_mul(y, y))) && ct_dist_reduce_gradients(parallel));
    CHECK(ct_backward(ct_mean(ct_mul(whole_y, whole_y))));
    CHECK(off(net, whole) < 1e-5);
    for (int i = 0; i < 2; i++)
        CHECK(distance(ct_module_buffer(ct_module_child(net, 1), i), ct_module_buffer(ct_module_child(whole, 1), i)) <
              1e-5);
    CHECK(ct_eval(net) && ct_eval(whole) && distance(ct_forward(net, part(x)), part(ct_forward(whole, x))) < 1e-5);
    ct_dist_parallel_free(parallel);
    ct_module_free(net);
    ct_module_free(whole);
}

/* ---- Shards ---- */

static int losses(void) {
    enum { SHARDS = 4, ITEMS = 8, STEPS = 6 };
    ct_seed(1);
    ct_module *net = ct_nn_sequential(ct_nn_linear(FEATURES, 16), ct_nn_batch_norm(16), ct_nn_relu(),
                                      ct_nn_dropout(0.3), ct_nn_linear(16, CLASSES));
    ct_dist_parallel *parallel = ct_dist_data_parallel(net, .shards = SHARDS);
    ct_optim *opt = ct_adamw(net, .lr = 0.01);
    CHECK(ct_dist_last_shard(parallel) - ct_dist_first_shard(parallel) == SHARDS / size);
    for (int step = 0; step < STEPS && ct_ok(); step++) {
        ct_scope {
            ct_tensor *x = batch(step, ITEMS * SHARDS), *y = targets(ITEMS * SHARDS), *mine[SHARDS];
            int n = 0;
            for (int s = ct_dist_first_shard(parallel); s < ct_dist_last_shard(parallel); s++) {
                CHECK(ct_dist_shard(parallel, step, s));
                ct_tensor *loss = loss_of(net, ct_narrow(x, 0, ITEMS * s, ITEMS), ct_narrow(y, 0, ITEMS * s, ITEMS));
                mine[n++] = ct_detach(loss);
                CHECK(ct_backward(loss));
            }
            CHECK(ct_dist_reduce_gradients(parallel));
            ct_tensor *all = ct_dist_all_gather(ct_stack(mine, n, 0), NULL);
            for (int s = 0; s < SHARDS && rank == 0; s++) printf("step %d shard %d: %a\n", step, s, at(all, s));
            CHECK(ct_optim_step(opt) && ct_optim_zero_grad(opt));
        }
    }
    ct_tensor *running = ct_module_buffer(ct_module_child(net, 1), 1);
    for (int i = 0; i < 16 && rank == 0; i++) printf("running %a\n", at(running, i));
    CHECK(same_on_all_ranks(net));
    ct_dist_parallel_free(parallel);
    ct_optim_free(opt);
    ct_module_free(net);
    return ended();
}

int main(int argc, char **argv) {
    if (!CHECK(ct_dist_init())) return 1;
    rank = ct_dist_rank();
    size = ct_dist_size();
    if (argc > 1 && !strcmp(argv[1], "losses")) return losses();
    const int64_t buckets[] = {0, 200, 40}; /* together; some by themselves; all weights by themselves */
    for (int b = 0; b < 3; b++) {
        ct_scope
            trains_as_one(buckets[b], false);
        ct_scope
            trains_as_one(buckets[b], true);
        ct_scope
            accumulates(buckets[b]);
    }
    ct_scope
        leaves_unused_alone();
    ct_scope
        averages_what_is_given_away(8);
    ct_scope
        averages_what_is_given_away(512);
    ct_scope
        refuses_other_tensors();
    ct_scope
        norms_over_ranks();
    if (rank == 0) printf("%d ranks\n", size);
    return ended();
}
