/* Gradients, and gradients of gradients: f(x) = sum x^3, its slope 3x^2, its curvature 6x. */
#include <cotangent.h>
#include <math.h>
#include <stdio.h>

/* As a function of tensors, for ct_hvp and ct_check_grad. */
static bool cubes(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    out[0] = ct_sum(ct_mul(ct_mul(in[0], in[0]), in[0]));
    return out[0] != NULL;
}

int main(void) {
    const double values[] = {1, 2, 3};
    ct_tensor *x = ct_require_grad(ct_from_data(values, CT_DIMS(3), CT_F64));

    /* ct_backward adds to the gradient of every leaf. */
    ct_tensor *y = NULL;
    cubes(NULL, &x, 1, &y, 1);
    ct_backward(y);
    ct_print(ct_grad_of(x)); /* 3 12 27 */

    /* ct_grad gives gradients as tensors; with CT_CREATE_GRAPH they have gradients themselves. */
    ct_tensor *slope = NULL, *curvature = NULL;
    cubes(NULL, &x, 1, &y, 1);
    ct_grad(&y, 1, NULL, &x, 1, &slope, CT_CREATE_GRAPH);
    ct_tensor *total = ct_sum(slope);
    ct_grad(&total, 1, NULL, &x, 1, &curvature, 0);
    ct_print(curvature); /* 6 12 18 */

    /* The Hessian times a vector, without the Hessian. */
    const double first[] = {1, 0, 0};
    ct_tensor *v = ct_from_data(first, CT_DIMS(3), CT_F64), *hv = NULL;
    ct_hvp(cubes, NULL, &x, &v, 1, &hv, 0);
    ct_print(hv); /* 6 0 0 */

    /* Any function can be compared with finite differences, at first and second order. */
    if (ct_check_grad(cubes, NULL, &x, 1, 1, NULL)) printf("the gradients are right\n");
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() && fabs(ct_item(ct_sum(curvature)) - 36) < 1e-9 ? 0 : 1;
}
