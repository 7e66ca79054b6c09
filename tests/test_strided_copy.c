/* The strided copy behind clone, cat and the rest, against plain loops: every element size, orders of axes, sizes
 * above and below the limit from which results are written past the caches, rows that begin anywhere in a cache line.
 * */
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

static const ct_dtype by_size[] = {CT_U8, CT_U16, CT_U32, CT_COMPLEX64};

/* Elements whose bits differ between neighbors. */
static ct_tensor *numbered(ct_dims shape, ct_dtype dtype) {
    int64_t count = 1;
    for (int i = 0; i < shape.n; i++) count *= shape.d[i];
    const size_t size = ct_dtype_size(dtype), bytes = (size_t)count * size;
    unsigned char *data = malloc(bytes + 1);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t bits = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15ull;
        memcpy(data + (size_t)i * size, (const char *)&bits + (8 - size), size);
    }
    ct_tensor *x = ct_from_data(data, shape, dtype);
    free(data);
    return x;
}

/* y is dense and holds, in order, the elements of the view that starts at data with these strides. */
static bool same_elements(ct_tensor *y, const unsigned char *data, ct_dims dims, ct_dims strides, size_t size) {
    const unsigned char *at = ct_data(y);
    const int64_t count = ct_numel(y);
    if (!at && count) return false;
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, place = 0;
        for (int d = dims.n - 1; d >= 0; d--) {
            place += rest % dims.d[d] * strides.d[d];
            rest /= dims.d[d];
        }
        if (memcmp(at + (size_t)i * size, data + place * (int64_t)size, size) != 0) return false;
    }
    return true;
}

static void check_orders(ct_dims shape) {
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 3, 1}, {0, 3, 1, 2}, {2, 0, 3, 1}, {1, 0, 3, 2}};
    for (int s = 0; s < 4; s++) {
        ct_scope {
            ct_tensor *x = numbered(shape, by_size[s]);
            for (int k = 0; k < 6; k++) {
                ct_scope {
                    ct_dims axes = {0};
                    for (int i = 0; i < 4; i++)
                        if (orders[k][i] < shape.n) axes.d[axes.n++] = orders[k][i];
                    ct_tensor *view = ct_permute(x, axes), *y = ct_clone(view);
                    harness_check(
                        y && same_elements(y, ct_data(x), ct_shape(view), ct_strides(view), ct_dtype_size(by_size[s])),
                        __FILE__, __LINE__, "shape %s, axes %s, %s", ct_dims_text(shape), ct_dims_text(axes),
                        ct_dtype_name(by_size[s]));
                }
            }
        }
    }
}

TEST(every_order_of_axes_is_copied_right) {
    check_orders(CT_DIMS(1, 1));
    check_orders(CT_DIMS(3, 5, 7, 2));
    check_orders(CT_DIMS(67, 130));
    check_orders(CT_DIMS(5, 64, 33));
    check_orders(CT_DIMS(2, 3, 65, 129));
    check_orders(CT_DIMS(129, 4, 4, 17));
    check_orders(CT_DIMS(0, 4, 4));
}

TEST_LIMIT(large_results_are_copied_right, 300) {
    const int64_t sides[][2] = {{2048, 2560}, {2047, 2561}, {1024, 5001}, {5003, 1025}, {3, 1800000}, {1800000, 3}};
    for (int i = 0; i < 6; i++) check_orders(CT_DIMS(sides[i][0], sides[i][1]));
    check_orders(CT_DIMS(8, 3, 512, 401));
    check_orders(CT_DIMS(4, 512, 16, 161));
}

TEST(views_with_gaps_steps_and_repeats_are_copied_right) {
    ct_tensor *x = numbered(CT_DIMS(40, 1300, 60), CT_F32);
    const unsigned char *data = ct_data(x);
    ct_tensor *views[] = {
        ct_narrow(x, 1, 7, 1200),
        ct_slice(x, 2, 1, .step = 2),
        ct_slice(x, 1, 3, .step = 5),
        ct_narrow(ct_permute(x, CT_DIMS(2, 1, 0)), 1, 1, 1298),
        ct_select(x, 2, 59),
        ct_unfold(ct_narrow(x, 0, 3, 2), 1, 20, 3),
        ct_diagonal(x, .axis2 = CT_SET(2)),
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        ct_tensor *y = ct_clone(views[i]);
        int64_t start = 0; /* where the view starts: its first element is the first of the copy */
        while (memcmp(data + start * 4, ct_data(y), 4) != 0) start++;
        CHECK(same_elements(y, data + start * 4, ct_shape(views[i]), ct_strides(views[i]), 4));
    }
    ct_tensor *row = numbered(CT_DIMS(1, 1300, 1), CT_F32), *wide = ct_expand(row, CT_DIMS(500, 1300, 3)),
              *y = ct_clone(wide);
    CHECK(same_elements(y, ct_data(row), ct_shape(wide), ct_strides(wide), 4));
    y = ct_clone(ct_expand(ct_scalar(2.5, CT_F32), CT_DIMS(3001, 777)));
    CHECK(ct_item(ct_amin(y)) == 2.5 && ct_item(ct_amax(y)) == 2.5);
}

TEST(flips_rolls_triangles_and_frames_of_large_tensors) {
    const int64_t n = 1500, m = 1211;
    float *data = malloc((size_t)(n * m) * sizeof *data);
    for (int64_t i = 0; i < n * m; i++) data[i] = (float)(i + 1);
    ct_tensor *x = ct_from_data(data, CT_DIMS(n, m), CT_F32);
    const float *flip = ct_data(ct_flip(x, CT_DIMS(1))),
                *roll = ct_data(ct_roll(x, CT_DIMS(7, -3), .axes = CT_DIMS(0, 1))),
                *tril = ct_data(ct_tril(x, .diagonal = 2)), *triu = ct_data(ct_triu(x, .diagonal = -1)),
                *padded = ct_data(ct_pad(x, CT_DIMS(1, 2, 3, 4), .value = -1));
    bool flips = true, rolls = true, lower = true, upper = true, pads = true;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            flips &= flip[i * m + j] == data[i * m + (m - 1 - j)];
            rolls &= roll[i * m + j] == data[(i - 7 + n) % n * m + (j + 3) % m];
            lower &= tril[i * m + j] == (j <= i + 2 ? data[i * m + j] : 0);
            upper &= triu[i * m + j] == (j >= i - 1 ? data[i * m + j] : 0);
        }
    for (int64_t i = 0; i < n + 3; i++)
        for (int64_t j = 0; j < m + 7; j++) {
            const bool inside = i >= 1 && i < n + 1 && j >= 3 && j < m + 3;
            pads &= padded[i * (m + 7) + j] == (inside ? data[(i - 1) * m + j - 3] : -1);
        }
    CHECK(flips);
    CHECK(rolls);
    CHECK(lower);
    CHECK(upper);
    CHECK(pads);
    free(data);
}
