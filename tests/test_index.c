/* What the indexing ops promise beyond values at samples: errors that name op, value, position and bound; who gets
 * gradient when several elements go to one place; sizes that depend on values; rows of large tables. */
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

/* This error is pending, whatever its text; it is cleared. */
#define CHECK_CODE(code)                  \
    do {                                  \
        CHECK(ct_error_code() == (code)); \
        ct_error_clear();                 \
    } while (0)

TEST(an_index_out_of_range_names_op_value_position_and_bound) {
    ct_tensor *x = ct_zeros(CT_DIMS(2, 3)), *bad = I64(CT_DIMS(2, 2), 0, 2, 1, 3),
              *negative = I64(CT_DIMS(2, 1), 0, -1);
    CHECK(!ct_gather(x, 1, bad));
    CHECK_ERROR(CT_ERR_INDEX, "gather: index is 3 at element 3; it has to be in 0 to 2");
    CHECK(!ct_gather(x, 1, negative));
    CHECK_ERROR(CT_ERR_INDEX, "gather: index is -1 at element 1; it has to be in 0 to 2");
    CHECK(!ct_scatter_add(x, 1, bad, ct_ones(CT_DIMS(2, 2))));
    CHECK_ERROR(CT_ERR_INDEX, "scatter_add: index is 3 at element 3; it has to be in 0 to 2");
    CHECK(!ct_scatter(x, 1, negative, ct_ones(CT_DIMS(2, 1))));
    CHECK_ERROR(CT_ERR_INDEX, "scatter: index is -1 at element 1; it has to be in 0 to 2");
    CHECK(!ct_index_select(x, 0, I64(CT_DIMS(3), 0, 1, 2)));
    CHECK_ERROR(CT_ERR_INDEX, "index_select: index is 2 at element 2; it has to be in 0 to 1");
    CHECK(!ct_embedding(x, I64(CT_DIMS(2, 2), 0, 1, 5, 0)));
    CHECK_ERROR(CT_ERR_INDEX, "embedding: index is 5 at element 2; it has to be in 0 to 1");
    CHECK(!ct_index_add(x, 0, I64(CT_DIMS(2), 0, 9), ct_ones(CT_DIMS(2, 3))));
    CHECK_ERROR(CT_ERR_INDEX, "index_add: index is 9 at element 1; it has to be in 0 to 1");
    CHECK(!ct_take(x, I64(CT_DIMS(1), 6)));
    CHECK_ERROR(CT_ERR_INDEX, "take: index is 6 at element 0; it has to be in 0 to 5");
    ct_tensor *pair[] = {I64(CT_DIMS(2), 0, 1), I64(CT_DIMS(2), 0, 3)};
    CHECK(!ct_index_put(x, ct_ones(CT_DIMS(2)), pair, 2));
    CHECK_ERROR(CT_ERR_INDEX, "index_put: indices[1] is 3 at element 1; it has to be in 0 to 2");
    CHECK(!ct_gather(ct_zeros(CT_DIMS(2, 0)), 1, negative));
    CHECK_ERROR(CT_ERR_INDEX, "gather: index is 0 at element 0, and there is nothing that it could name");
    CHECK(!ct_gather(x, 1, ct_zeros(CT_DIMS(2, 1))));
    CHECK_CODE(CT_ERR_DTYPE);
}

TEST(the_last_of_several_stays_and_only_it_gets_gradient) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(3), 10, 20, 30), true),
              *src = ct_set_requires_grad(F64(CT_DIMS(4), 1, 2, 3, 4), true), *index = I64(CT_DIMS(4), 0, 2, 0, 2);
    ct_tensor *y = ct_scatter(x, 0, index, src);
    CHECK_VALUES(y, CT_DIMS(3), 0, 3, 20, 4);
    CHECK(ct_backward_from(y, F64(CT_DIMS(3), 5, 6, 7), 0));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(3), 0, 0, 6, 0);
    CHECK_VALUES(ct_grad_of(src), CT_DIMS(4), 0, 0, 0, 5, 7);
    ct_tensor *z = ct_index_copy(x, 0, I64(CT_DIMS(2), 1, 1), F64(CT_DIMS(2), 7, 8));
    CHECK_VALUES(z, CT_DIMS(3), 0, 10, 8, 30);
}

TEST(rows_named_padding_idx_get_no_gradient) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(3, 2), 1, 2, 3, 4, 5, 6), true),
              *index = I64(CT_DIMS(4), 1, 0, 1, 2);
    ct_tensor *y = ct_embedding(w, index, .padding_idx = CT_SET(1));
    CHECK_VALUES(y, CT_DIMS(4, 2), 0, 3, 4, 1, 2, 3, 4, 5, 6);
    CHECK(ct_backward_from(y, ct_ones(CT_DIMS(4, 2), .dtype = CT_F64), 0));
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(3, 2), 0, 1, 1, 0, 0, 1, 1);
    CHECK(!ct_embedding(w, index, .padding_idx = CT_SET(3)));
    CHECK_ERROR(CT_ERR_INDEX, "embedding: padding_idx is 3, not one of the 3 rows of weight");
}

static bool products(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)n, (void)m;
    out[0] = ct_scatter_reduce(in[0], 0, context, in[1], CT_FOLD_PROD);
    return out[0] != NULL;
}

TEST(scattered_products_with_zeros_are_differentiable_twice) {
    ct_tensor *index = I64(CT_DIMS(5), 0, 1, 0, 0, 1),
              *in[] = {F64(CT_DIMS(3), 2, 3, 0), F64(CT_DIMS(5), 4, 5, 0, 7, 0)};
    ct_tensor *x = ct_set_requires_grad(ct_clone(in[0]), true), *src = ct_set_requires_grad(ct_clone(in[1]), true);
    ct_tensor *y = ct_scatter_reduce(x, 0, index, src, CT_FOLD_PROD);
    CHECK_VALUES(y, CT_DIMS(3), 0, 0, 0, 0);
    CHECK(ct_backward_from(y, ct_ones(CT_DIMS(3), .dtype = CT_F64), 0));
    CHECK_VALUES(ct_grad_of(src), CT_DIMS(5), 1e-12, 0, 0, 2 * 4 * 7, 0, 3 * 5);
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(3), 1e-12, 0, 0, 1);
    CHECK(ct_check_grad(products, index, in, 2, 1));
}

TEST(equal_extremes_share_the_gradient) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 3, 9), true),
              *src = ct_set_requires_grad(F64(CT_DIMS(3), 3, 1, 3), true);
    ct_tensor *y = ct_scatter_reduce(x, 0, I64(CT_DIMS(3), 0, 0, 0), src, CT_FOLD_MAX);
    CHECK_VALUES(y, CT_DIMS(2), 0, 3, 9);
    CHECK(ct_backward_from(y, F64(CT_DIMS(2), 6, 1), 0));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 1e-15, 2, 1);
    CHECK_VALUES(ct_grad_of(src), CT_DIMS(3), 1e-15, 2, 0, 2);
}

TEST(exclude_self_leaves_out_x_where_something_is_sent) {
    ct_tensor *x = F64(CT_DIMS(3), 100, -50, 7), *src = F64(CT_DIMS(3), 2, 4, 1), *index = I64(CT_DIMS(3), 0, 0, 1);
    CHECK_VALUES(ct_scatter_reduce(x, 0, index, src, CT_FOLD_SUM, .exclude_self = true), CT_DIMS(3), 0, 6, 1, 7);
    CHECK_VALUES(ct_scatter_reduce(x, 0, index, src, CT_FOLD_MEAN, .exclude_self = true), CT_DIMS(3), 0, 3, 1, 7);
    CHECK_VALUES(ct_scatter_reduce(x, 0, index, src, CT_FOLD_MEAN), CT_DIMS(3), 1e-12, 106.0 / 3, -24.5, 7);
    CHECK_VALUES(ct_scatter_reduce(x, 0, index, src, CT_FOLD_PROD, .exclude_self = true), CT_DIMS(3), 0, 8, 1, 7);
    CHECK_VALUES(ct_scatter_reduce(x, 0, index, src, CT_FOLD_MAX, .exclude_self = true), CT_DIMS(3), 0, 4, 1, 7);
    CHECK_VALUES(ct_scatter_reduce(x, 0, index, src, CT_FOLD_MIN, .exclude_self = true), CT_DIMS(3), 0, 2, 1, 7);
    /* -3 / 2 rounds down */
    CHECK_VALUES(ct_scatter_reduce(I64(CT_DIMS(1), -4), 0, I64(CT_DIMS(1), 0), I64(CT_DIMS(1), 1), CT_FOLD_MEAN),
                 CT_DIMS(1), 0, -2);
}

TEST(masked_select_and_nonzero_have_the_size_that_values_give) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2, 3), 1, 0, 3, 0, 5, -0.0), true), *mask = ct_ne_s(x, 0);
    ct_tensor *y = ct_masked_select(x, mask);
    CHECK_VALUES(y, CT_DIMS(3), 0, 1, 3, 5);
    CHECK(ct_backward_from(y, F64(CT_DIMS(3), 7, 8, 9), 0));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 3), 0, 7, 0, 8, 0, 9, 0);
    CHECK_VALUES(ct_nonzero(x), CT_DIMS(3, 2), 0, 0, 0, 0, 2, 1, 1);
    CHECK(ct_dim(ct_masked_select(x, ct_zeros(CT_DIMS(2, 3), .dtype = CT_BOOL)), 0) == 0);
    CHECK(ct_numel(ct_nonzero(ct_zeros(CT_DIMS(4)))) == 0);
    ct_dims shape = ct_shape(ct_nonzero(ct_scalar(3, CT_F32)));
    CHECK(shape.n == 2 && shape.d[0] == 1 && shape.d[1] == 0);
}

TEST(masked_select_of_many_chunks_keeps_the_order) {
    const int64_t n = 300001;
    float *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = (float)((i * 7919) % 1000) - 500;
    ct_tensor *x = ct_from_data(data, CT_DIMS(n), CT_F32), *even = ct_slice(x, 0, 0, .step = 2);
    ct_tensor *y = ct_masked_select(x, ct_gt_s(x, 0)), *z = ct_masked_select(even, ct_gt_s(even, 0));
    const float *got = ct_data(y), *other = ct_data(z);
    int64_t k = 0, h = 0;
    bool same = got && other;
    for (int64_t i = 0; same && i < n; i++)
        if (data[i] > 0) {
            same &= k < ct_numel(y) && got[k++] == data[i];
            if (i % 2 == 0) same &= h < ct_numel(z) && other[h++] == data[i];
        }
    CHECK(same && k == ct_numel(y) && h == ct_numel(z));
    free(data);
}

TEST(repeat_interleave_takes_a_vector_of_repeats) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(3, 2), 1, 2, 3, 4, 5, 6), true),
              *y = ct_repeat_interleave(x, 0, 0, .repeats = I64(CT_DIMS(3), 2, 0, 1));
    CHECK_VALUES(y, CT_DIMS(3, 2), 0, 1, 2, 1, 2, 5, 6);
    CHECK(ct_backward_from(y, F64(CT_DIMS(3, 2), 1, 2, 3, 4, 5, 6), 0));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(3, 2), 0, 4, 6, 0, 0, 5, 6);
    CHECK(!ct_repeat_interleave(x, 0, 0, .repeats = I64(CT_DIMS(3), 2, -1, 1)));
    CHECK_ERROR(CT_ERR_VALUE, "repeat_interleave: repeats is -1 at element 1; it has to be 0 or more");
    CHECK(!ct_repeat_interleave(x, 0, 0, .repeats = I64(CT_DIMS(2), 2, 1)));
    CHECK_CODE(CT_ERR_SHAPE);
}

/* Large enough to be written past the caches and cut into many chunks: forward, and the sums that are the gradient.
 * */
TEST(rows_of_a_large_table_and_their_gradient) {
    enum { V = 9000, D = 301, N = 7000 };
    static int64_t places[N];
    static int hits[V];
    float *data = malloc((size_t)V * D * sizeof *data);
    for (int64_t i = 0; i < V * D; i++) data[i] = (float)(i % 8191);
    for (int i = 0; i < N; i++) hits[places[i] = (i * 7919LL + i / 3) % V]++;
    ct_tensor *w = ct_set_requires_grad(ct_from_data(data, CT_DIMS(V, D), CT_F32), true),
              *index = ct_from_data(places, CT_DIMS(N), CT_I64);
    ct_tensor *y = ct_embedding(w, index), *z = ct_index_select(w, 0, index);
    const float *rows = ct_data(y);
    bool same = true;
    for (int i = 0; i < N; i++)
        same &= memcmp(rows + (size_t)i * D, data + (size_t)places[i] * D, D * sizeof(float)) == 0;
    CHECK(same);
    CHECK(harness_same_bits(y, z));
    CHECK(ct_backward_from(y, ct_ones(CT_DIMS(N, D)), 0));
    const float *grad = ct_data(ct_grad_of(w));
    bool summed = true;
    for (int v = 0; v < V; v++)
        for (int d = 0; d < D; d++) summed &= grad[(size_t)v * D + d] == (float)hits[v];
    CHECK(summed);
    free(data);
}

TEST(a_large_gather_is_right) {
    enum { ROWS = 1500, WIDTH = 999 };
    float *data = malloc((size_t)ROWS * WIDTH * sizeof *data);
    int64_t *places = malloc((size_t)ROWS * WIDTH * sizeof *places);
    for (int64_t i = 0; i < ROWS * WIDTH; i++) data[i] = (float)i, places[i] = (i * 7919 + i / 7) % WIDTH;
    ct_tensor *x = ct_from_data(data, CT_DIMS(ROWS, WIDTH), CT_F32),
              *index = ct_from_data(places, CT_DIMS(ROWS, WIDTH), CT_I64);
    const float *y = ct_data(ct_gather(x, 1, index));
    bool same = y != NULL;
    for (int64_t i = 0; same && i < ROWS * WIDTH; i++) same = y[i] == data[i / WIDTH * WIDTH + places[i]];
    CHECK(same);
    free(data);
    free(places);
}

/* Row by row past the caches, and the row of an index that is out of range as well. */
TEST(a_large_scatter_add_is_right) {
    enum { ROWS = 1500, WIDTH = 999, COUNT = ROWS * WIDTH };
    float *data = malloc(2 * COUNT * sizeof *data), *wanted = data + COUNT;
    int64_t *places = malloc(COUNT * sizeof *places);
    for (int64_t i = 0; i < COUNT; i++) {
        data[i] = wanted[i] = (float)(i % 4093);
        places[i] = (i * 7919 + i / 7) % WIDTH;
    }
    for (int64_t i = 0; i < COUNT; i++) wanted[i / WIDTH * WIDTH + places[i]] += data[COUNT - 1 - i];
    ct_tensor *x = ct_from_data(data, CT_DIMS(ROWS, WIDTH), CT_F32), *src = ct_flip(x, CT_DIMS(0, 1));
    ct_tensor *index[] = {ct_from_data(places, CT_DIMS(ROWS, WIDTH), CT_I64), NULL};
    index[1] = ct_cast(index[0], CT_I32);
    for (int wide = 0; wide < 2; wide++) {
        const float *y = ct_data(ct_scatter_add(x, 1, index[wide], src));
        CHECK(y && memcmp(y, wanted, COUNT * sizeof *y) == 0);
    }
    places[COUNT / 2] = WIDTH;
    CHECK(!ct_scatter_add(x, 1, ct_from_data(places, CT_DIMS(ROWS, WIDTH), CT_I64), src));
    CHECK_ERROR(CT_ERR_INDEX, "scatter_add: index is 999 at element 749250; it has to be in 0 to 998");
    free(data);
    free(places);
}

/* Written in place, one of them does not change the others, nor x. */
TEST(repeated_elements_have_memory_of_their_own) {
    ct_tensor *x = F32(CT_DIMS(2, 1), 1, 2), *y = ct_repeat_interleave(x, 3, 1);
    REQUIRE(y && ct_assign(ct_narrow(y, 1, 1, 1), ct_full(CT_DIMS(2, 1), 7)));
    CHECK_VALUES(y, CT_DIMS(2, 3), 0, 1, 7, 1, 2, 7, 2);
    CHECK_VALUES(x, CT_DIMS(2, 1), 0, 1, 2);
}
