/* Physics in the loss: a network u(t) that solves the damped oscillator
 *     u'' + 2 d u' + w^2 u = 0,  u(0) = 1,  u'(0) = 0
 * by making that equation hold. The loss has second derivatives of the network, and training differentiates them once more. */
#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double damping = 0.5, frequency = 4;

/* The derivative of a column of values, each of which depends on its own t alone. */
static ct_tensor *derivative(ct_tensor *u, ct_tensor *t) {
    ct_tensor *total = ct_sum(u), *slope = NULL;
    return ct_grad(&total, 1, NULL, &t, 1, &slope, CT_CREATE_GRAPH) ? slope : NULL;
}

typedef struct problem {
    ct_module *net;
    ct_tensor *t; /* [n, 1]: where the equation is asked to hold; the first is 0 */
} problem;

/* u(t) = 1 + t^2 net(t): both conditions at 0 hold by construction. */
static ct_tensor *solution(ct_module *net, ct_tensor *t) {
    return ct_add_s(ct_mul(ct_square(t), ct_forward(net, t)), 1);
}

static ct_tensor *loss(void *context) {
    problem *p = context;
    ct_tensor *u = solution(p->net, p->t), *du = derivative(u, p->t), *ddu = derivative(du, p->t);
    ct_tensor *residual = ct_add(ddu, ct_add(ct_mul_s(du, 2 * damping), ct_mul_s(u, frequency * frequency)));
    return ct_mean(ct_square(residual));
}

int main(int argc, char **argv) {
    const int steps = argc > 1 ? atoi(argv[1]) : 60;
    ct_seed(1);
    problem p = {.net = ct_nn_mlp(CT_DIMS(1, 32, 32, 1), CT_ACT_TANH)};
    ct_module_to_dtype(p.net, CT_F64);
    p.t = ct_set_requires_grad(ct_reshape(ct_linspace(0, 2, 80, .dtype = CT_F64), CT_DIMS(80, 1)), true);
    ct_optim *opt = ct_lbfgs(p.net, .strong_wolfe = true);
    for (int step = 0; step < steps && ct_ok(); step++) {
        const double value = ct_optim_step_with(opt, loss, &p);
        if (step % 10 == 0) printf("step %3d: residual %.3e\n", step, sqrt(value));
    }

    /* The exact solution: exp(-d t) (cos v t + d / v sin v t) with v = sqrt(w^2 - d^2). */
    double worst = 0;
    ct_no_grad
        ct_scope {
            const double v = sqrt(frequency * frequency - damping * damping);
            ct_tensor *u = solution(p.net, p.t), *phase = ct_mul_s(p.t, v);
            ct_tensor *exact =
                ct_mul(ct_exp(ct_mul_s(p.t, -damping)), ct_add(ct_cos(phase), ct_mul_s(ct_sin(phase), damping / v)));
            worst = ct_item(ct_amax(ct_abs(ct_sub(u, exact))));
        }
    printf("largest error against the exact solution: %.2e\n", worst);
    ct_optim_free(opt);
    ct_module_free(p.net);
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() && (steps < 60 || worst < 1e-2) ? 0 : 1;
}
