/* A network of two layers, trained on Fashion-MNIST with ops and autograd alone: no modules, no optimizer.
 *   mnist_two_layer [FOLDER_OF_IDX_FILES [EPOCHS]] */
#include <cotangent.h>

#include "images.h"

enum { HIDDEN = 128, BATCH = 100 };

/* Pixels as f32 from 0 to 1, (n,784). */
static ct_tensor *pixels(const images *set) {
    return ct_div_s(ct_cast(ct_from_data(set->pixels, CT_DIMS(set->n, IMAGE_PIXELS), CT_U8), CT_F32), 255);
}

/* w is four tensors: weights (784,HIDDEN), bias, weights (HIDDEN,10), bias. */
static ct_tensor *network(ct_tensor *const *w, ct_tensor *x) {
    ct_tensor *hidden = ct_relu(ct_add(ct_matmul(x, w[0]), w[1]));
    return ct_add(ct_matmul(hidden, w[2]), w[3]);
}

/* The mean over the batch of -log softmax(y)[label]. labels: (n,1) */
static ct_tensor *cross_entropy(ct_tensor *y, ct_tensor *labels) {
    return ct_neg(ct_mean(ct_gather(ct_log_softmax(y, 1), 1, labels)));
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "build/data";
    const int epochs = argc > 2 ? atoi(argv[2]) : 10;
    images train = {0}, test = {0};
    if (images_load(&train, folder, "train") && images_load(&test, folder, "t10k")) {
        printf("Fashion-MNIST from %s\n", folder);
    } else {
        printf("no Fashion-MNIST in %s: training on digits drawn by this program instead\n", folder);
        if (!images_draw(&train, 20000, 1) || !images_draw(&test, 4000, 2)) return 1;
    }

    ct_seed(1);
    ct_tensor *x = pixels(&train), *labels = ct_from_data(train.labels, CT_DIMS(train.n, 1), CT_I64);
    ct_tensor *w[] = {ct_mul_s(ct_randn(CT_DIMS(IMAGE_PIXELS, HIDDEN)), 0.05), ct_zeros(CT_DIMS(HIDDEN)),
                      ct_mul_s(ct_randn(CT_DIMS(HIDDEN, IMAGE_CLASSES)), 0.1), ct_zeros(CT_DIMS(IMAGE_CLASSES))};
    for (int i = 0; i < 4; i++) ct_require_grad(w[i]);

    for (int epoch = 1; epoch <= epochs && ct_ok(); epoch++) {
        const double rate = epoch > epochs - 3 ? 0.05 : 0.2; /* small steps at the end */
        double total = 0;
        for (int64_t at = 0; at + BATCH <= train.n; at += BATCH) {
            ct_scope {
                ct_tensor *loss =
                    cross_entropy(network(w, ct_narrow(x, 0, at, BATCH)), ct_narrow(labels, 0, at, BATCH));
                ct_tensor *grads[4];
                ct_grad(&loss, 1, NULL, w, 4, grads, 0);
                ct_no_grad {
                    for (int i = 0; i < 4; i++) ct_sub_(w[i], ct_mul_s(grads[i], rate));
                }
                total += ct_item(loss);
            }
        }
        printf("epoch %d: loss %.4f\n", epoch, total / (double)(train.n / BATCH));
    }
    ct_no_grad {
        ct_tensor *answers = ct_argmax(network(w, pixels(&test)), .axis = CT_SET(1));
        ct_tensor *right = ct_eq(answers, ct_from_data(test.labels, CT_DIMS(test.n), CT_I64));
        printf("test accuracy %.2f %%\n", 100 * ct_item(ct_mean(ct_cast(right, CT_F32))));
    }
    images_free(&train);
    images_free(&test);
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() ? 0 : 1;
}
