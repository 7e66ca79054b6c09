/* Tensors: made, sliced, combined, printed; and what an error looks like. */
#include <cotangent.h>
#include <stdio.h>

int main(void) {
    const float values[] = {1, 2, 3, 4, 5, 6};
    ct_tensor *a = ct_from_data(values, CT_DIMS(2, 3), CT_F32);

    /* Shapes broadcast, views share memory, options go by name. */
    ct_tensor *row = ct_narrow(a, 0, 1, 1);          /* the second row, (1,3): a view */
    ct_tensor *sums = ct_sum(a, .axes = CT_DIMS(1)); /* of each row, (2) */
    ct_tensor *product = ct_matmul(a, ct_t(a));      /* (2,2) */
    ct_print(a);
    ct_print(ct_add(a, row));
    ct_print(sums);
    ct_print(product);

    /* A scope releases what was made inside it; ct_pass lets one result out. */
    ct_tensor *mean = NULL;
    ct_scope {
        mean = ct_pass(ct_mean(ct_mul(a, a)));
    }
    printf("mean of squares: %g\n", ct_item(mean));

    /* Nothing aborts: calls after a failing one get NULL and give NULL, and the text says what was wrong. */
    ct_tensor *wrong = ct_exp(ct_matmul(a, a));
    if (!wrong) printf("as expected: %s\n", ct_error());
    ct_error_clear();
    return mean && ct_item(mean) > 15 && ct_ok() ? 0 : 1;
}
