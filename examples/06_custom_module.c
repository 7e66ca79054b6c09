/* A module of one's own: squeeze and excitation (Hu et al. 2018), which scales each channel by a weight computed from the
 * means of all channels. It is then a module like any other: named, printed, copied, saved, trained. */
#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>

/* Its own plain data; parameters live in children. */
typedef struct excite {
    int64_t channels, reduced;
} excite;

static ct_tensor *excite_forward(ct_module *self, ct_tensor *x) {
    const excite *data = ct_module_data(self);
    ct_tensor *means = ct_mean(x, .axes = CT_DIMS(2, 3)); /* [N, C] */
    ct_tensor *weights = ct_sigmoid(ct_forward(ct_module_child(self, 1), ct_forward(ct_module_child(self, 0), means)));
    return ct_mul(x, ct_reshape(weights, CT_DIMS(-1, data->channels, 1, 1)));
}

static void excite_describe(const ct_module *self, char *text, size_t capacity) {
    const excite *data = ct_module_data(self);
    snprintf(text, capacity, "%lld, reduced=%lld", (long long)data->channels, (long long)data->reduced);
}

static const ct_module_class excite_class = {.size = sizeof(ct_module_class),
                                             .name = "excite",
                                             .state = sizeof(excite),
                                             .forward = excite_forward,
                                             .describe = excite_describe};

static ct_module *make_excite(int64_t channels, int64_t reduced) {
    ct_module *self = ct_module_new(&excite_class);
    if (!self) return NULL;
    *(excite *)ct_module_data(self) = (excite){channels, reduced};
    if (ct_module_add(self, "down", ct_nn_linear(channels, reduced, .activation = CT_ACT_RELU)) &&
        ct_module_add(self, "up", ct_nn_linear(reduced, channels)))
        return self;
    ct_module_free(self);
    return NULL;
}

int main(void) {
    ct_seed(1);
    ct_module *net = ct_nn_sequential(ct_nn_conv2d(3, 16, 3, .pad = 1), ct_nn_relu(), make_excite(16, 4),
                                      ct_nn_adaptive_avg_pool2d(1), ct_nn_flatten(), ct_nn_linear(16, 2));
    ct_module_print(net);

    /* Is a picture more red or more green? */
    ct_optim *opt = ct_adam(net, .lr = 1e-2);
    double first = 0, last = 0;
    for (int step = 0; step < 60 && ct_ok(); step++) {
        ct_scope {
            ct_tensor *shade = ct_rand(CT_DIMS(32, 3, 1, 1)), *x = ct_mul(ct_rand(CT_DIMS(32, 3, 8, 8)), shade);
            ct_tensor *greener = ct_gt(ct_narrow(shade, 1, 1, 1), ct_narrow(shade, 1, 0, 1));
            ct_tensor *label = ct_reshape(ct_cast(greener, CT_I64), CT_DIMS(32));
            ct_tensor *loss = ct_cross_entropy_loss(ct_forward(net, x), label);
            ct_backward(loss);
            ct_optim_step(opt);
            last = ct_item(loss);
            if (step == 0) first = last;
        }
    }
    printf("loss %.3f at first, %.3f after 60 steps\n", first, last);

    /* A copy computes the same; a wrong input is an error that says where. */
    ct_module *copy = ct_module_copy(net);
    ct_eval(net);
    ct_eval(copy);
    ct_no_grad
        ct_scope {
            ct_tensor *x = ct_ones(CT_DIMS(1, 3, 8, 8));
            const double a = ct_item(ct_sum(ct_forward(net, x))), b = ct_item(ct_sum(ct_forward(copy, x)));
            printf("the copy gives %s\n", a == b ? "the same" : "something else");
            if (!ct_forward(net, ct_ones(CT_DIMS(1, 4, 8, 8)))) printf("as expected: %s\n", ct_error());
            ct_error_clear();
        }
    ct_optim_free(opt);
    ct_module_free(copy);
    ct_module_free(net);
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() && last < first / 2 ? 0 : 1;
}
