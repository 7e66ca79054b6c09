/* Regression: noisy samples of sin(x), fitted by a small network with Adam and a cosine schedule. */
#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const int steps = argc > 1 ? atoi(argv[1]) : 1000;
    ct_seed(1);
    ct_tensor *x = ct_uniform(CT_DIMS(512, 1), -3, 3);
    ct_tensor *y = ct_add(ct_sin(x), ct_mul_s(ct_randn(CT_DIMS(512, 1)), 0.1));

    ct_module *net =
        ct_nn_sequential(ct_nn_linear(1, 32), ct_nn_tanh(), ct_nn_linear(32, 32), ct_nn_tanh(), ct_nn_linear(32, 1));
    ct_optim *opt = ct_adam(net, .lr = 1e-2);
    ct_schedule *schedule = ct_schedule_cosine(opt, steps);
    ct_module_print(net);

    for (int step = 0; step < steps && ct_ok(); step++) {
        ct_scope {
            ct_tensor *loss = ct_mse_loss(ct_forward(net, x), y);
            ct_backward(loss);
            ct_optim_step(opt);
            ct_schedule_step(schedule);
            if (step % 200 == 0) printf("step %4d: loss %.4f\n", step, ct_item(loss));
        }
    }

    /* Against the curve without noise. */
    double worst = 0;
    ct_no_grad {
        ct_tensor *line = ct_reshape(ct_linspace(-2.5, 2.5, 101), CT_DIMS(101, 1));
        worst = ct_item(ct_amax(ct_abs(ct_sub(ct_forward(net, line), ct_sin(line)))));
    }
    printf("largest distance from sin(x) on [-2.5, 2.5]: %.3f\n", worst);

    ct_schedule_free(schedule);
    ct_optim_free(opt);
    ct_module_free(net);
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() && (steps < 500 || worst < 0.1) ? 0 : 1;
}
