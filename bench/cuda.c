/* Figures of an NVIDIA device: medians in milliseconds after warm-up, each repetition ended by a wait. Beside the memory-bound ones stands
 * the least time that their bytes take at the rate of a large copy, which is measured first.
 *     cc -O2 bench/cuda.c $(pkg-config --cflags --libs cotangent) -o cuda && ./cuda */
#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPETITIONS = 15, WARM_UP = 3 };
static ct_device device;
static double bytes_per_ms; /* of a copy, read and written */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_time(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(void (*f)(void *context), void *context) {
    double times[REPETITIONS];
    for (int i = -WARM_UP; i < REPETITIONS; i++) {
        ct_synchronize(device);
        const double start = now();
        ct_scope {
            f(context);
        }
        ct_synchronize(device);
        if (i >= 0) times[i] = now() - start;
    }
    qsort(times, REPETITIONS, sizeof *times, by_time);
    return times[REPETITIONS / 2];
}

static void report(const char *name, void (*f)(void *), void *context, double bytes) {
    const double ms = median(f, context);
    printf("%-34s %9.4f ms", name, ms);
    if (bytes > 0) printf("  (%.4f by its bytes)", bytes / bytes_per_ms);
    printf("%s\n", ct_ok() ? "" : ct_error());
    ct_error_clear();
    fflush(stdout);
}

typedef struct operands {
    ct_tensor *a, *b;
} operands;
#define CASE(name, expression)        \
    static void name(void *context) { \
        const operands *o = context;  \
        (void)o;                      \
        expression;                   \
    }
CASE(copied, ct_clone(o->a))
CASE(added, ct_add(o->a, o->b))
CASE(scaled, ct_mul_s(o->a, 2))
CASE(gelu, ct_gelu(o->a))
CASE(sum_all, ct_sum(o->a))
CASE(sum_0, ct_sum(o->a, .axes = CT_DIMS(0)))
CASE(sum_1, ct_sum(o->a, .axes = CT_DIMS(1)))
CASE(transposed, ct_contiguous(ct_t(o->a)))
CASE(scanned, ct_cumsum(o->a, 1))
CASE(sorted, ct_sort(o->a, 1))
CASE(softmax, ct_softmax(o->a, 1))
CASE(product, ct_matmul(o->a, o->b))
CASE(convolution, ct_backward(ct_sum(ct_conv2d(o->a, o->b, .pad = 1))))

static void recorded_adds(void *context) {
    const operands *o = context;
    ct_tensor *y = o->b;
    for (int i = 0; i < 1000; i++) y = ct_add(y, o->a);
    ct_backward_from(y, o->a, 0);
}

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *target;
} training;

static void step(void *context) {
    const training *t = context;
    ct_backward(ct_cross_entropy_loss(ct_forward(t->net, t->x), t->target));
    ct_optim_step(t->optim);
    ct_optim_zero_grad(t->optim);
}

int main(void) {
    if (!ct_device_parse("cuda", &device) || !ct_set_device(device)) {
        printf("skipped: %s\n", ct_error());
        return 0;
    }
    const double many = 4.0 * (1 << 26);
    operands flat = {ct_randn(CT_DIMS(1 << 26)), ct_randn(CT_DIMS(1 << 26))};
    bytes_per_ms = 2 * many / median(copied, &flat);
    printf("copy %.2f TB/s\n", bytes_per_ms * 1e-9);
    report("add 64M", added, &flat, 3 * many);
    report("times a number 64M", scaled, &flat, 2 * many);
    report("gelu 64M", gelu, &flat, 2 * many);
    operands square = {ct_randn(CT_DIMS(8192, 8192)), NULL};
    report("sum of 8192 x 8192", sum_all, &square, many);
    report("sum over axis 0", sum_0, &square, many);
    report("sum over axis 1", sum_1, &square, many);
    report("transpose 8192 x 8192", transposed, &square, 2 * many);
    report("cumsum 8192 x 8192", scanned, &square, 2 * many);
    report("softmax 8192 x 8192", softmax, &square, 2 * many);
    report("sort 8192 x 8192", sorted, &square, 0);
    static const ct_dtype dtypes[] = {CT_BF16, CT_F16, CT_F32};
    for (int k = 0; k < 3; k++)
        for (int n = 2048; n <= 8192; n *= 4)
            ct_scope {
                char name[64];
                ct_tensor *x = ct_cast(ct_randn(CT_DIMS(n, n)), dtypes[k]);
                snprintf(name, sizeof name, "matmul %d %s", n, ct_dtype_name(dtypes[k]));
                report(name, product, &(operands){x, x}, 0);
            }
    operands tiny = {ct_ones(CT_DIMS(4)), ct_set_requires_grad(ct_zeros(CT_DIMS(4)), true)};
    report("1000 recorded adds, fwd + bwd", recorded_adds, &tiny, 0);
    operands images = {ct_randn(CT_DIMS(16, 64, 56, 56)), ct_set_requires_grad(ct_randn(CT_DIMS(64, 64, 3, 3)), true)};
    report("conv 3x3 64x56x56 n16, fwd + dw", convolution, &images, 0);
    training mlp = {.net = ct_nn_sequential(ct_nn_linear(784, 512), ct_nn_relu(), ct_nn_linear(512, 512), ct_nn_relu(),
                                            ct_nn_linear(512, 10)),
                    .x = ct_randn(CT_DIMS(64, 784)),
                    .target = ct_zeros(CT_DIMS(64), .dtype = CT_I64)};
    ct_module_to_device(mlp.net, device);
    mlp.optim = ct_adamw(mlp.net, .lr = 1e-3);
    report("train MLP 784-512-512-10 b64", step, &mlp, 0);
    ct_optim_free(mlp.optim);
    ct_module_free(mlp.net);
    return ct_ok() ? 0 : 1;
}
