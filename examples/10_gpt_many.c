/* A small GPT by many processes, in two ways at once: matrices are cut among neighbors (tensor parallelism), and what
 * each of them has is divided, with its gradients and Adam's state, among those that have the same part (ZeRO), which
 * also share the batch.
 *     mpirun -n 4 ./10_gpt_many text.txt 100 2       100 steps, matrices in 2 parts; alone it is one process
 * With any number of processes it is the same training, but for rounding. */
#include <cotangent/data.h>
#include <cotangent/dist.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 64, HEADS = 4, LAYERS = 2, LENGTH = 32, BATCH = 8 };

/* One layer, of which this process has its part of the matrices, and of that part its shard. */
static ct_module *layer(ct_dist_group *near, ct_dist_group *across) {
    ct_module *attention =
        ct_nn_sequential(ct_nn_layer_norm(DIM), ct_dist_attention(DIM, HEADS, .group = near, .causal = true));
    ct_module *forward = ct_nn_sequential(ct_nn_layer_norm(DIM),
                                          ct_dist_column_linear(DIM, 4 * DIM, .group = near, .activation = CT_ACT_GELU),
                                          ct_dist_row_linear(4 * DIM, DIM, .group = near));
    return ct_dist_sharded(
        ct_nn_sequential(ct_nn_residual(attention, NULL, CT_ACT_NONE), ct_nn_residual(forward, NULL, CT_ACT_NONE)),
        .group = across);
}

/* Where in the text a token is: waves of several lengths are added. */
static ct_tensor *add_positions(void *context, ct_tensor *x) {
    (void)context;
    ct_tensor *place = ct_reshape(ct_arange(0, (double)ct_dim(x, 1), 1), CT_DIMS(ct_dim(x, 1), 1));
    ct_tensor *wave = ct_exp(ct_mul_s(ct_arange(0, DIM, 1), -6.0 / DIM));
    return ct_add(x, ct_sin(ct_mul(place, wave)));
}

static ct_module *gpt(int64_t vocabulary, ct_dist_group *near, ct_dist_group *across) {
    /* a table for a multiple of the processes that share it */
    const int64_t parts = ct_dist_group_size(near), rows = (vocabulary + parts - 1) / parts * parts;
    ct_module *net = ct_nn_sequential(ct_dist_sharded(ct_dist_embedding(rows, DIM, .group = near), .group = across),
                                      ct_nn_lambda("positions", add_positions, NULL, NULL));
    for (int i = 0; i < LAYERS; i++) ct_nn_append(net, layer(near, across));
    ct_nn_append(
        net, ct_dist_sharded(ct_nn_sequential(ct_nn_layer_norm(DIM), ct_nn_linear(DIM, vocabulary)), .group = across));
    return net;
}

int main(int argc, char **argv) {
    const int steps = argc > 2 ? atoi(argv[2]) : 100, cut = argc > 3 ? atoi(argv[3]) : 1;
    if (!ct_dist_init() || cut < 1) {
        fprintf(stderr, "error: %s\n", ct_error());
        return 1;
    }
    ct_dist_group *near = ct_dist_split(NULL, ct_dist_rank() / cut, 0),
                  *across = ct_dist_split(NULL, ct_dist_rank() % cut, 0);
    const int part = ct_dist_group_rank(across), parts = ct_dist_group_size(across);
    ct_dataset *text = ct_dataset_text(argc > 1 ? argv[1] : __FILE__, LENGTH);
    /* the processes that share the batch divide one permutation of the text; neighbors have the same part */
    ct_loader *batches = ct_batches(text, BATCH, .shuffle = true, .drop_last = true, .parts = parts, .part = part);
    const int64_t vocabulary = text ? ct_vocabulary_size(ct_text_vocabulary(text)) : 0;
    ct_seed(1);
    ct_module *net = ct_ok() ? gpt(vocabulary, near, across) : NULL;
    ct_optim *opt = net ? ct_adamw(net, .lr = 3e-3) : NULL;
    double loss = 0;
    for (int step = 0; step < steps && ct_ok();) {
        ct_batch b;
        if (!ct_next(batches, &b)) continue; /* another epoch */
        ct_scope {
            ct_tensor *logits = ct_flatten(ct_forward(net, b.x), .start = 0, .end = CT_SET(1));
            ct_tensor *value = ct_cross_entropy_loss(logits, ct_reshape(b.y, CT_DIMS(-1)));
            ct_backward(value);
            ct_optim_step(opt);
            if (++step == steps) loss = ct_item(ct_dist_all_reduce(ct_detach(value), CT_DIST_MEAN, across));
        }
    }
    if (ct_ok() && ct_dist_rank() == 0)
        printf("%d processes, %lld numbers each; loss %.4f after %d steps\n", ct_dist_size(),
               (long long)ct_module_size(net), loss, steps);
    ct_optim_free(opt), ct_module_free(net), ct_loader_free(batches), ct_dataset_free(text);
    ct_dist_group_free(near), ct_dist_group_free(across);
    if (ct_ok()) ct_dist_end();
    if (!ct_ok()) fprintf(stderr, "rank %d: %s\n", ct_dist_rank(), ct_error());
    return ct_ok() ? 0 : 1;
}
