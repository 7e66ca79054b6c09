/* Gradients, gradients of gradients, and the Hessian of Rosenbrock's function
 *     f(x, y) = (1 - x)^2 + 100 (y - x^2)^2,
 * every step of which can be checked by hand. Newton's method with that Hessian then finds the minimum at (1, 1). */
#include <cotangent.h>
#include <math.h>
#include <stdio.h>

/* A function of tensors, as ct_hessian and ct_check_grad take it: in[0] is [2]. */
static bool rosenbrock(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    ct_tensor *x = ct_narrow(in[0], 0, 0, 1), *y = ct_narrow(in[0], 0, 1, 1);
    ct_tensor *valley = ct_sub(y, ct_square(x));
    out[0] = ct_sum(ct_add(ct_square(ct_rsub_s(x, 1)), ct_mul_s(ct_square(valley), 100)));
    return out[0] != NULL;
}

int main(void) {
    const double start[] = {-1, 2};
    ct_tensor *p = ct_set_requires_grad(ct_from_data(start, CT_DIMS(2), CT_F64), true), *f = NULL;

    /* By hand at (-1, 2): f = 2^2 + 100 * 1^2 = 104. */
    rosenbrock(NULL, &p, 1, &f, 1);
    printf("f(-1, 2) = %g\n", ct_item(f));

    /* df/dx = -2 (1 - x) - 400 x (y - x^2) = -4 + 400 = 396, df/dy = 200 (y - x^2) = 200. ct_backward adds it to p's
     * gradient. */
    ct_backward(f);
    printf("gradient = ");
    ct_print(ct_grad_of(p));

    /* The same as a tensor, with a graph of its own, so that it can be differentiated again: d2f/dx2 = 2 - 400 (y - 3 x^2)
     * = 2 + 400 = 402, d2f/dxdy = -400 x = 400. */
    ct_tensor *slope = NULL, *row = NULL;
    rosenbrock(NULL, &p, 1, &f, 1);
    ct_grad(&f, 1, NULL, &p, 1, &slope, CT_CREATE_GRAPH);
    ct_tensor *dx = ct_sum(ct_narrow(slope, 0, 0, 1));
    ct_grad(&dx, 1, NULL, &p, 1, &row, 0);
    printf("first row of the Hessian = ");
    ct_print(row);

    /* Or all at once. d2f/dy2 = 200. */
    ct_tensor *hessian = ct_hessian(rosenbrock, NULL, p, 0);
    printf("Hessian =\n");
    ct_print(hessian);

    /* Any function can be compared with finite differences, at first and second order. */
    if (ct_check_grad(rosenbrock, NULL, &p, 1, 1)) printf("the gradients are right\n");

    /* Newton: p -= H^-1 gradient, with the inverse of a 2x2 matrix written out. */
    double at[2] = {start[0], start[1]};
    for (int step = 1; step <= 6; step++) {
        ct_scope {
            double g[2], h[4];
            ct_tensor *x = ct_set_requires_grad(ct_from_data(at, CT_DIMS(2), CT_F64), true), *value = NULL,
                      *gradient = NULL;
            rosenbrock(NULL, &x, 1, &value, 1);
            ct_grad(&value, 1, NULL, &x, 1, &gradient, 0);
            ct_read(gradient, g, sizeof g);
            ct_read(ct_hessian(rosenbrock, NULL, x, 0), h, sizeof h);
            const double determinant = h[0] * h[3] - h[1] * h[2];
            at[0] -= (h[3] * g[0] - h[1] * g[1]) / determinant;
            at[1] -= (h[0] * g[1] - h[2] * g[0]) / determinant;
            printf("step %d: (%.6f, %.6f)\n", step, at[0], at[1]);
        }
    }
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() && fabs(at[0] - 1) < 1e-9 && fabs(at[1] - 1) < 1e-9 ? 0 : 1;
}
