/* Fashion-MNIST in forty lines: 03_fashion_mnist [FOLDER [EPOCHS]]. Without the data it learns drawn shapes. */
#include <cotangent.h>
#include <cotangent/data.h>
#include <cotangent/io.h>
#include <cotangent/metrics.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
    const int epochs = argc > 2 ? atoi(argv[2]) : 3;
    ct_seed(1);
    ct_dataset *train = ct_dataset_mnist(folder, true), *test = ct_dataset_mnist(folder, false);
    if (!ct_ok()) {
        printf("%s\nlearning drawn shapes instead\n", ct_error());
        ct_error_clear();
        train = ct_dataset_shapes(4000, 28, 1), test = ct_dataset_shapes(1000, 28, 2);
    }
    ct_loader *batches = ct_batches(train, 128, .shuffle = true, .seed = 1), *tests = ct_batches(test, 500);
    ct_module *net =
        ct_nn_sequential(ct_nn_conv2d(1, 32, 3, .pad = 1), ct_nn_relu(), ct_nn_max_pool2d(2),
                         ct_nn_conv2d(32, 64, 3, .pad = 1), ct_nn_relu(), ct_nn_max_pool2d(2), ct_nn_flatten(),
                         ct_nn_linear(64 * 7 * 7, 128), ct_nn_relu(), ct_nn_dropout(0.25), ct_nn_linear(128, 10));
    ct_optim *opt = ct_adamw(net, .lr = 2e-3);
    ct_schedule *schedule = ct_schedule_one_cycle(opt, 4e-3, epochs * ct_loader_batches(batches));

    for (int epoch = 1; epoch <= epochs && ct_ok(); epoch++) {
        ct_running_mean loss = {0};
        ct_accuracy right = {0};
        ct_train(net);
        for (ct_batch b; ct_next(batches, &b);)
            ct_scope {
                ct_tensor *l = ct_cross_entropy_loss(ct_forward(net, b.x), b.y);
                ct_backward(l);
                ct_optim_step(opt);
                ct_schedule_step(schedule);
                ct_running_mean_add(&loss, ct_item(l), (double)b.n);
            }
        ct_eval(net);
        ct_no_grad
            for (ct_batch b; ct_next(tests, &b);)
                ct_scope
                    ct_accuracy_add(&right, ct_forward(net, b.x), b.y);
        printf("epoch %d: loss %.4f, test accuracy %.2f %%\n", epoch, ct_running_mean_value(&loss),
               100 * ct_accuracy_value(&right));
    }
    if (ct_ok() && ct_save("fashion_mnist.safetensors", net)) printf("saved fashion_mnist.safetensors\n");
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    ct_schedule_free(schedule), ct_optim_free(opt), ct_module_free(net);
    ct_loader_free(batches), ct_loader_free(tests), ct_dataset_free(train), ct_dataset_free(test);
    return ct_ok() ? 0 : 1;
}
