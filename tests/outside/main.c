/* What a stranger's program does first. The three projects beside this file build it in three ways. */
#include <cotangent.h>
#include <stdio.h>

int main(void) {
    const float values[] = {1, 2, 3};
    ct_tensor *x = ct_from_data(values, CT_DIMS(3), CT_F32);
    ct_set_requires_grad(x, true);
    ct_backward(ct_sum(ct_mul(x, x)));
    const double slope = ct_item(ct_sum(ct_grad_of(x)));
    printf("cotangent %s: %g %s\n", ct_version_text(), slope, ct_error());
    return ct_ok() && slope == 12 ? 0 : 1;
}
