/* Layers whose matrices are cut among ranks, against the same layers of one process: results, gradients of the input
 * and of every part, and gradients of gradients. Run by tests/dist.sh under mpirun. */
#include <cotangent/nn.h>

#include "tests/dist/ranks.h"

static int rank, size;

static double distance(ct_tensor *a, ct_tensor *b) {
    return a && b && ct_numel(a) == ct_numel(b) ? ct_item(ct_amax(ct_abs(ct_sub(a, ct_reshape(b, ct_shape(a)))))) : 1e9;
}
static ct_tensor *part(ct_tensor *x, int axis) {
    const int64_t n = ct_dim(x, axis) / size;
    return ct_narrow(x, axis, n * rank, n);
}

/* The gradients of x, and of x's gradient's square, through a layer. */
static ct_tensor *differentiate(ct_module *layer, ct_tensor *x, ct_tensor **first, ct_tensor **second) {
    ct_tensor *y = ct_forward(layer, x), *loss = y ? ct_sum(ct_mul(y, ct_mul(y, y))) : NULL;
    if (!CHECK(loss && ct_grad(&loss, 1, NULL, &x, 1, first, CT_CREATE_GRAPH))) return NULL;
    ct_tensor *square = ct_sum(ct_mul(*first, *first));
    CHECK(ct_grad(&square, 1, NULL, &x, 1, second, 0));
    ct_module_zero_grad(layer);
    CHECK(ct_backward(ct_sum(ct_square(ct_forward(layer, x)))));
    return y;
}

static void compare(ct_module *split, ct_module *whole, ct_tensor *from) {
    ct_tensor *x = ct_set_requires_grad(ct_clone(from), true), *other = ct_set_requires_grad(ct_clone(from), true);
    ct_tensor *g = NULL, *h = NULL, *whole_g = NULL, *whole_h = NULL;
    ct_tensor *y = differentiate(split, x, &g, &h), *whole_y = differentiate(whole, other, &whole_g, &whole_h);
    CHECK(distance(y, whole_y) < 1e-5);
    CHECK(distance(g, whole_g) < 1e-4 && distance(h, whole_h) < 1e-4 * (1 + ct_item(ct_amax(ct_abs(whole_h)))));
    CHECK(distance(ct_grad_of(x), ct_grad_of(other)) < 1e-4);
}

static ct_tensor *grad(ct_module *net, const char *path) { return ct_grad_of(ct_module_find(net, path)); }

static void feed_forward(void) {
    ct_seed(11);
    ct_module *split =
        ct_nn_sequential(ct_dist_column_linear(6, 8, .activation = CT_ACT_TANH), ct_dist_row_linear(8, 5));
    ct_seed(11);
    ct_module *whole = ct_nn_sequential(ct_nn_linear(6, 8, .activation = CT_ACT_TANH), ct_nn_linear(8, 5));
    compare(split, whole, ct_sub_s(ct_reshape(ct_mul_s(ct_arange(0, 18, 1), 0.1), CT_DIMS(3, 6)), 0.8));
    CHECK(distance(grad(split, "0.weight"), part(grad(whole, "0.weight"), 0)) < 1e-4);
    CHECK(distance(grad(split, "0.bias"), part(grad(whole, "0.bias"), 0)) < 1e-4);
    CHECK(distance(grad(split, "1.weight"), part(grad(whole, "1.weight"), 1)) < 1e-4);
    CHECK(distance(grad(split, "1.bias"), grad(whole, "1.bias")) < 1e-4);
    ct_module_free(split);
    ct_module_free(whole);
}

static void attention(void) {
    ct_seed(12);
    ct_module *split = ct_dist_attention(8, 4, .causal = true);
    ct_seed(12);
    ct_module *whole = ct_nn_multi_head_attention(8, 4, .causal = true);
    compare(split, whole, ct_sin(ct_reshape(ct_arange(0, 80, 1), CT_DIMS(2, 5, 8))));
    CHECK(distance(grad(split, "out_proj.weight"), part(grad(whole, "out_proj.weight"), 1)) < 1e-4);
    ct_tensor *heads = part(ct_reshape(grad(whole, "in_proj_weight"), CT_DIMS(3, 4, 2, 8)), 1);
    CHECK(distance(grad(split, "in_proj_weight"), ct_contiguous(heads)) < 1e-4);
    CHECK(distance(grad(split, "out_proj.bias"), grad(whole, "out_proj.bias")) < 1e-4);
    ct_module_free(split);
    ct_module_free(whole);
}

static void embedding(void) {
    ct_seed(13);
    ct_module *split = ct_dist_embedding(12, 3);
    ct_seed(13);
    ct_module *whole = ct_nn_embedding(12, 3);
    ct_tensor *index = ct_reshape(ct_remainder_s(ct_arange(0, 40, 5, .dtype = CT_I64), 12), CT_DIMS(2, 4));
    ct_tensor *y = ct_forward(split, index), *whole_y = ct_forward(whole, index);
    CHECK(distance(y, whole_y) == 0);
    CHECK(ct_backward(ct_sum(ct_mul(y, y))) && ct_backward(ct_sum(ct_mul(whole_y, whole_y))));
    CHECK(distance(grad(split, "weight"), part(grad(whole, "weight"), 0)) < 1e-5);
    ct_module_free(split);
    ct_module_free(whole);
}

static bool refused(bool done, const char *text) {
    const bool right = !done && strstr(ct_error(), text);
    if (!right) printf("rank %d: %s\n", rank, ct_error());
    ct_error_clear();
    return right;
}

/* What is shared among ranks has to be the same part on all of them. */
static void groups_that_do_not_fit(void) {
    ct_dist_group *pair = ct_dist_split(NULL, rank / 2, 0), *self = ct_dist_split(NULL, rank, 0);
    ct_module *net = ct_nn_gpt(7, .dim = 8, .heads = 2, .layers = 1, .context = 4);
    if (size > 1) {
        CHECK(refused(ct_dist_divide(net, .tensor = pair, .stage = 2), "data has to be the group of the"));
        CHECK(
            refused(ct_dist_divide(net, .tensor = pair, .data = pair, .stage = 1), "data has to be the group of the"));
        CHECK(ct_dist_divide(net, .tensor = pair));
        ct_tensor *text = ct_arange(0, 4, 1, .dtype = CT_I64),
                  *before = ct_forward(net, ct_reshape(text, CT_DIMS(1, 4)));
        CHECK(refused(ct_dist_divide(net, .tensor = pair),
                      "a multi_head_attention is expected: a network is divided once"));
        CHECK(distance(before, ct_forward(net, ct_reshape(text, CT_DIMS(1, 4)))) == 0); /* and stays as it was */
    }
    ct_module_free(net);
    if (size > 2) { /* who would write which of the copies? */
        net = ct_dist_sharded(ct_dist_column_linear(4, 8, .group = pair), .group = self);
        CHECK(refused(ct_dist_clip_grad_norm(net, 1) == 0, "'weight' is cut among 2 ranks and shared among 1"));
        ct_module_free(net);
    }
    ct_dist_group_free(pair);
    ct_dist_group_free(self);
}

int main(void) {
    if (!CHECK(ct_dist_init())) return 1;
    rank = ct_dist_rank();
    size = ct_dist_size();
    ct_scope
        feed_forward();
    ct_scope
        attention();
    ct_scope
        embedding();
    ct_scope
        groups_that_do_not_fit();
    CHECK(size == 1 || (!ct_dist_attention(9, 3) && strstr(ct_error(), "heads is 3, which")));
    ct_error_clear();
    if (rank == 0) printf("%d ranks\n", size);
    return ended();
}
