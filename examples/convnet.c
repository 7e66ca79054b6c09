/* A small convolutional network with batch normalisation and dropout, trained on Fashion-MNIST with ops and autograd.
 *   convnet [FOLDER_OF_IDX_FILES [EPOCHS]] */
#include <cotangent.h>

#include "images.h"

enum { BATCH = 100, W = 9 };

/* What is learned, in the order of network(), and what batch_norm keeps beside it. */
typedef struct model {
    ct_tensor *w[W];
    ct_tensor *mean, *var;
} model;

/* Deviations are sqrt(2 / inputs of an output). */
static ct_tensor *random_weight(ct_dims shape, double deviation) { return ct_mul_s(ct_randn(shape), deviation); }

static model make_model(void) {
    model m = {{random_weight(CT_DIMS(16, 1, 3, 3), 0.47), ct_ones(CT_DIMS(16)), ct_zeros(CT_DIMS(16)),
                random_weight(CT_DIMS(32, 16, 3, 3), 0.12), ct_zeros(CT_DIMS(32)),
                random_weight(CT_DIMS(64, 32 * 7 * 7), 0.036), ct_zeros(CT_DIMS(64)),
                random_weight(CT_DIMS(IMAGE_CLASSES, 64), 0.18), ct_zeros(CT_DIMS(IMAGE_CLASSES))},
               ct_zeros(CT_DIMS(16)),
               ct_ones(CT_DIMS(16))};
    for (int i = 0; i < W; i++) ct_require_grad(m.w[i]);
    return m;
}

/* x: (n,1,28,28). The result, (n,10), goes to cross_entropy. */
static ct_tensor *network(const model *m, ct_tensor *x, bool training) {
    ct_tensor *const *w = m->w;
    x = ct_conv2d(x, w[0], .pad = 1);
    x = ct_relu(ct_batch_norm(x, .running_mean = m->mean, .running_var = m->var, .weight = w[1], .bias = w[2],
                              .training = training));
    x = ct_max_pool2d(x, CT_DIMS(2));
    x = ct_conv2d(x, w[3], .bias = w[4], .pad = 1, .activation = CT_ACT_RELU);
    x = ct_flatten(ct_max_pool2d(x, CT_DIMS(2)), .start = 1);
    x = ct_linear(x, w[5], .bias = w[6], .activation = CT_ACT_RELU);
    return ct_linear(ct_dropout(x, 0.25, .eval = !training), w[7], .bias = w[8]);
}

static ct_tensor *pixels(const images *set) {
    ct_tensor *bytes = ct_from_data(set->pixels, CT_DIMS(set->n, 1, IMAGE_SIDE, IMAGE_SIDE), CT_U8);
    return ct_div_s(ct_cast(bytes, CT_F32), 255);
}

static double accuracy(const model *m, const images *set) {
    double right = 0;
    ct_tensor *x = pixels(set), *labels = ct_from_data(set->labels, CT_DIMS(set->n), CT_I64);
    ct_no_grad {
        for (int64_t at = 0; at < set->n; at += 1000) {
            ct_scope {
                const int64_t n = set->n - at < 1000 ? set->n - at : 1000;
                ct_tensor *answers = ct_argmax(network(m, ct_narrow(x, 0, at, n), false), .axis = CT_SET(1));
                right += ct_item(ct_count_nonzero(ct_eq(answers, ct_narrow(labels, 0, at, n))));
            }
        }
    }
    return right / (double)set->n;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "build/data";
    const int epochs = argc > 2 ? atoi(argv[2]) : 2;
    images train = {0}, test = {0};
    if (!images_load(&train, folder, "train") || !images_load(&test, folder, "t10k")) {
        printf("no Fashion-MNIST in %s: training on digits drawn by this program instead\n", folder);
        if (!images_draw(&train, 6000, 1) || !images_draw(&test, 1000, 2)) return 1;
    }
    ct_seed(1);
    model m = make_model();
    ct_tensor *speed[W]; /* of gradient descent with momentum */
    for (int i = 0; i < W; i++) speed[i] = ct_zeros(ct_shape(m.w[i]));
    ct_tensor *x = pixels(&train), *labels = ct_from_data(train.labels, CT_DIMS(train.n), CT_I64);

    for (int epoch = 1; epoch <= epochs && ct_ok(); epoch++) {
        double total = 0;
        for (int64_t at = 0; at + BATCH <= train.n; at += BATCH) {
            ct_scope {
                ct_tensor *y = network(&m, ct_narrow(x, 0, at, BATCH), true), *grads[W];
                ct_tensor *loss = ct_cross_entropy(y, ct_narrow(labels, 0, at, BATCH));
                ct_grad(&loss, 1, NULL, m.w, W, grads, 0);
                ct_no_grad {
                    for (int i = 0; i < W; i++) {
                        ct_add_(ct_mul_(speed[i], ct_scalar(0.9, CT_F32)), grads[i]);
                        ct_sub_(m.w[i], ct_mul_s(speed[i], 0.02));
                    }
                }
                total += ct_item(loss);
            }
        }
        printf("epoch %d: loss %.4f, test accuracy %.2f %%\n", epoch, total / (double)(train.n / BATCH),
               100 * accuracy(&m, &test));
    }
    images_free(&train);
    images_free(&test);
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() ? 0 : 1;
}
