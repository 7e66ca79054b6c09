/* cast between all dtypes, at the edges of each, on every level of vector instructions; and the ops that make tensors. */
#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "tests/harness.h"

static const double edges[] = {0,
                               -0.0,
                               1,
                               -1,
                               1.5,
                               -1.5,
                               2.5,
                               127.6,
                               128,
                               -128.9,
                               -129,
                               255.5,
                               256,
                               300,
                               -32769,
                               32767.9,
                               65535.5,
                               65536,
                               2147483647.0,
                               2147483648.0,
                               -2147483649.0,
                               4294967295.0,
                               4294967296.0,
                               1e18,
                               9.3e18,
                               -9.3e18,
                               1.9e19,
                               1e30,
                               NAN,
                               INFINITY,
                               -INFINITY,
                               0.015,
                               0.001,
                               1e-4,
                               464,
                               465,
                               448,
                               61439,
                               61440,
                               57344,
                               65504,
                               65519,
                               65520,
                               6e-8,
                               3e-8,
                               1e-40};
enum { EDGES = sizeof edges / sizeof *edges, COUNT = 3 * EDGES };

static bool is_integer(ct_dtype d) {
    return ct_dtype_is_int(d) || d == CT_BOOL || d == CT_U16 || d == CT_U32 || d == CT_U64;
}

static bool is_unsigned(ct_dtype d) { return d == CT_U8 || d == CT_BOOL || d == CT_U16 || d == CT_U32 || d == CT_U64; }

/* What one element has to become. Between integers the low bytes stay; 64-bit integers go to floats without a double between. */
static void expected(ct_dtype from, const char *x, ct_dtype to, char *y) {
    if (is_integer(from) && to != CT_BOOL) {
        size_t size = ct_dtype_size(from);
        uint64_t bits = 0;
        memcpy(&bits, x, size);
        if (!is_unsigned(from) && size < 8 && bits >> (8 * size - 1)) bits |= ~(uint64_t)0 << 8 * size;
        if (is_integer(to)) {
            memcpy(y, &bits, ct_dtype_size(to));
            return;
        }
        double wide = is_unsigned(from) ? (double)bits : (double)(int64_t)bits;
        float narrow = is_unsigned(from) ? (float)bits : (float)(int64_t)bits;
        ct__dtype_put(to, y, to == CT_F64 ? wide : (double)narrow);
        return;
    }
    ct__dtype_put(to, y, ct__dtype_get(from, x));
}

static int wrong_elements(ct_dtype from, ct_dtype to, bool strided) {
    char values[COUNT * 8];
    size_t from_size = ct_dtype_size(from), to_size = ct_dtype_size(to);
    for (int i = 0; i < COUNT; i++) ct__dtype_put(from, values + (size_t)i * from_size, edges[i % EDGES]);
    ct_tensor *x = ct_from_data(values, CT_DIMS(3, EDGES), from), *y;
    if (strided) {
        ct_tensor *columns = ct_t(ct_contiguous(ct_t(x))), *home = ct_t(ct_empty(CT_DIMS(EDGES, 6), .dtype = to));
        home = ct_slice(home, 0, 0, .step = 2);
        ct_into(home);
        y = ct_cast(columns, to);
    } else {
        y = ct_cast(x, to);
    }
    char got[COUNT * 8], want[8];
    if (!y || !ct_read(y, got, COUNT * to_size)) return COUNT;
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        const char *g = got + (size_t)i * to_size;
        expected(from, values + (size_t)i * from_size, to, want);
        bool both_nan = isnan(ct__dtype_get(to, want)) && isnan(ct__dtype_get(to, g));
        wrong += memcmp(want, g, to_size) != 0 && !both_nan;
    }
    return wrong;
}

TEST(every_dtype_becomes_every_other) {
    static const char *const levels[] = {"base", "avx2", "avx512", "neon"};
    for (int i = 0; i < 4; i++) {
        if (!ct_set_isa(levels[i])) {
            ct_error_clear();
            continue;
        }
        for (int from = 0; from < CT_DTYPE_COUNT; from++)
            for (int to = 0; to < CT_DTYPE_COUNT; to++)
                for (int strided = 0; strided < 2; strided++)
                    ct_scope {
                        int wrong = wrong_elements((ct_dtype)from, (ct_dtype)to, strided);
                        harness_check(wrong == 0, __FILE__, __LINE__, "%s: %d elements from %s to %s are wrong%s: %s",
                                      levels[i], wrong, ct_dtype_name((ct_dtype)from), ct_dtype_name((ct_dtype)to),
                                      strided ? " (strided)" : "", ct_error());
                    }
    }
}

/* Every f16 number: among them all numbers of 8 bits and the ties between them. */
TEST(small_floats_round_to_nearest_even) {
    static uint16_t all[65536];
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    ct_tensor *x = ct_from_data(all, CT_DIMS(65536), CT_F16), *a = ct_cast(x, CT_F8E4M3), *b = ct_cast(x, CT_F8E5M2);
    REQUIRE(a && b);
    int wrong = 0;
    for (int i = 0; i < 65536; i++) {
        float value = ct__f16_to_f32((uint16_t)i);
        if (isnan(value)) continue;
        wrong += ((const uint8_t *)ct_data(a))[i] != ct__f32_to_f8(value, 4);
        wrong += ((const uint8_t *)ct_data(b))[i] != ct__f32_to_f8(value, 5);
    }
    CHECK(wrong == 0);
}

/* Around every power of two, in neighborhoods of eight that are all small, all large or mixed. */
TEST(whole_numbers_of_64_bits_are_rounded_once) {
    enum { AROUND = 3 * 8 };
    int64_t values[2 * 63 * AROUND];
    int n = 0, wrong = 0;
    for (int bit = 0; bit < 63; bit++)
        for (int k = 0; k < AROUND; k++) {
            const int64_t power = k < AROUND / 3 ? (int64_t)1 << bit : k % 2 ? (int64_t)1 << bit : 1;
            values[n++] = power + (power >> 24) + (k % 8 - 4);
            values[n++] = -(power + (power >> 24)) - (k % 8 - 4);
        }
    ct_tensor *x = ct_from_data(values, CT_DIMS(n), CT_I64), *a = ct_cast(x, CT_F32), *b = ct_cast(x, CT_F64);
    REQUIRE(a && b);
    for (int i = 0; i < n; i++) {
        wrong += ((const float *)ct_data(a))[i] != (float)values[i];
        wrong += ((const double *)ct_data(b))[i] != (double)values[i];
    }
    CHECK(wrong == 0);
}

TEST(complex_has_its_real_part_and_its_truth) {
    float values[6] = {1, 2, 0, 3, 0, 0};
    ct_tensor *x = ct_from_data(values, CT_DIMS(3), CT_COMPLEX64);
    CHECK_VALUES(ct_cast(x, CT_F64), CT_DIMS(3), 0, 1, 0, 0);
    CHECK_VALUES(ct_cast(x, CT_BOOL), CT_DIMS(3), 0, 1, 1, 0);
}

TEST(its_own_dtype_keeps_memory_and_graph) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(3), 1, 2, 3), true), *y = ct_cast(x, CT_F32);
    REQUIRE(y);
    CHECK(ct_data(y) == ct_data(x));
    REQUIRE(ct_backward(ct_sum(ct_mul(y, y))));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(3), 0, 2, 4, 6);
    ct_tensor *h = ct_set_requires_grad(TENSOR(CT_BF16, CT_DIMS(2), 1, 2), true);
    REQUIRE(ct_backward(ct_sum(ct_cast(h, CT_BF16))));
    CHECK_VALUES(ct_grad_of(h), CT_DIMS(2), 0, 1, 1);
}

TEST(gradients_are_cast_back) {
    ct_tensor *x = ct_set_requires_grad(TENSOR(CT_F16, CT_DIMS(2), 1, 2), true);
    REQUIRE(ct_backward(ct_sum(ct_mul_s(ct_cast(x, CT_F64), 3))));
    CHECK(ct_dtype_of(ct_grad_of(x)) == CT_F16);
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 3, 3);
    CHECK(!ct_requires_grad(ct_cast(x, CT_I32)));
    CHECK(!ct_requires_grad(ct_cast(ct_cast(x, CT_F8E5M2), CT_F32)));
}

TEST(made_by_value) {
    CHECK_VALUES(ct_zeros(CT_DIMS(2, 2), .dtype = CT_I8), CT_DIMS(2, 2), 0, 0, 0, 0, 0);
    CHECK_VALUES(ct_ones(CT_DIMS(3), .dtype = CT_BF16), CT_DIMS(3), 0, 1, 1, 1);
    CHECK_VALUES(ct_full(CT_DIMS(2), -7.9, .dtype = CT_I16), CT_DIMS(2), 0, -7, -7);
    CHECK_VALUES(ct_full(CT_DIMS0, NAN), CT_DIMS0, 0, NAN);
    CHECK(ct_numel(ct_empty(CT_DIMS(3, 0))) == 0);
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true);
    CHECK_VALUES(ct_full_like(x, 5), CT_DIMS(2), 0, 5, 5);
    CHECK(ct_dtype_of(ct_ones_like(x)) == CT_F64);
    REQUIRE(ct_backward(ct_sum(ct_mul(x, ct_full_like(x, 3)))));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 3, 3);
    CHECK(!ct_zeros(CT_DIMS(2, -1)));
    CHECK_ERROR(CT_ERR_SHAPE, "zeros: shape [2,-1]: dimension 1 is negative");
    CHECK(!ct_zeros(CT_DIMS((int64_t)1 << 40, (int64_t)1 << 40)));
    CHECK_ERROR(CT_ERR_SHAPE, "zeros: shape [1099511627776,1099511627776] has more elements than memory can hold");
    CHECK(!ct_zeros(CT_DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1)));
    CHECK_ERROR(CT_ERR_SHAPE, "zeros: shape has 9 dimensions; a tensor has at most 8");
}

TEST(made_by_index) {
    CHECK_VALUES(ct_arange(0, 2, 0.5), CT_DIMS(4), 0, 0, 0.5, 1, 1.5);
    CHECK_VALUES(ct_arange(5, 0, -2, .dtype = CT_I64), CT_DIMS(3), 0, 5, 3, 1);
    CHECK(ct_numel(ct_arange(1, 1, 1)) == 0);
    CHECK(!ct_arange(0, 5, -1));
    CHECK_ERROR(CT_ERR_VALUE, "arange: step -1 does not lead from start 0 to stop 5");
    CHECK(!ct_arange(0, 5, 0));
    CHECK_ERROR(CT_ERR_VALUE, "arange: start is 0, stop 5 and step 0; all have to be finite, and step not zero");
    CHECK_VALUES(ct_linspace(0, 1, 5), CT_DIMS(5), 0, 0, 0.25, 0.5, 0.75, 1);
    CHECK_VALUES(ct_linspace(3, 9, 1), CT_DIMS(1), 0, 3);
    ct_tensor *line = ct_linspace(-0.1, 0.7, 1001, .dtype = CT_F64);
    CHECK(harness_at(line, 0) == -0.1 && harness_at(line, 1000) == 0.7);
    CHECK_VALUES(ct_eye(2, .m = 3), CT_DIMS(2, 3), 0, 1, 0, 0, 0, 1, 0);
    CHECK_VALUES(ct_eye(3, .m = 2), CT_DIMS(3, 2), 0, 1, 0, 0, 1, 0, 0);
    CHECK(ct_item(ct_sum(ct_eye(300))) == 300);
    CHECK_VALUES(ct_tril_mask(2, .m = 3, .diagonal = 1), CT_DIMS(2, 3), 0, 1, 1, 0, 1, 1, 1);
    CHECK_VALUES(ct_one_hot(I64(CT_DIMS(2), 2, 0), 3), CT_DIMS(2, 3), 0, 0, 0, 1, 1, 0, 0);
    CHECK(!ct_one_hot(I64(CT_DIMS(2), 1, 3), 3));
    CHECK_ERROR(CT_ERR_INDEX, "one_hot: indices is 3 at element 1; it has to be in 0 to 2");
}

TEST(meshgrid_in_both_orders) {
    ct_tensor *xs[2] = {F32(CT_DIMS(2), 1, 2), F32(CT_DIMS(3), 3, 4, 5)}, *ys[2];
    REQUIRE(ct_meshgrid(xs, 2, ys, 2));
    CHECK_VALUES(ys[0], CT_DIMS(2, 3), 0, 1, 1, 1, 2, 2, 2);
    CHECK_VALUES(ys[1], CT_DIMS(2, 3), 0, 3, 4, 5, 3, 4, 5);
    REQUIRE(ct_meshgrid(xs, 2, ys, 2, .xy = true));
    CHECK_VALUES(ys[0], CT_DIMS(3, 2), 0, 1, 2, 1, 2, 1, 2);
    CHECK_VALUES(ys[1], CT_DIMS(3, 2), 0, 3, 3, 4, 4, 5, 5);
}

TEST(prelu_takes_one_weight_or_one_a_channel) {
    ct_tensor *x = F32(CT_DIMS(1, 2, 2), -1, 2, -3, 4);
    CHECK_VALUES(ct_prelu(x, F32(CT_DIMS(2), 0.5, 2)), CT_DIMS(1, 2, 2), 0, -0.5, 2, -6, 4);
    CHECK_VALUES(ct_prelu(x, F32(CT_DIMS(1), 0.5)), CT_DIMS(1, 2, 2), 0, -0.5, 2, -1.5, 4);
    CHECK(!ct_prelu(x, F32(CT_DIMS(3), 1, 2, 3)));
    CHECK_ERROR(CT_ERR_SHAPE, "prelu: weight is f32[3]; x is f32[1,2,2], so weight has to have 1 element or 2, one for "
                              "each channel (axis 1)");
}

TEST(glu_halves_an_axis) {
    CHECK_VALUES(ct_glu(F64(CT_DIMS(2, 2), 3, 0, 5, 0), 1), CT_DIMS(2, 1), 1e-15, 1.5, 2.5);
    CHECK(!ct_glu(F32(CT_DIMS(3), 1, 2, 3), 0));
    CHECK_ERROR(CT_ERR_SHAPE, "glu: x is f32[3]; the size of axis 0 has to be even, to have two halves");
}

TEST(clamp_between_tensors) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(5), -2, -1, 0, 1, 2), true),
              *lo = ct_set_requires_grad(F64(CT_DIMS(1), -1), true),
              *hi = ct_set_requires_grad(F64(CT_DIMS(1), 1), true);
    ct_tensor *y = ct_clamp_tensor(x, .min = lo, .max = hi);
    CHECK_VALUES(y, CT_DIMS(5), 0, -1, -1, 0, 1, 1);
    REQUIRE(ct_backward(ct_sum(y)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(5), 0, 0, 1, 1, 1, 0); /* at a bound it is x's */
    CHECK_VALUES(ct_grad_of(lo), CT_DIMS(1), 0, 1);
    CHECK_VALUES(ct_grad_of(hi), CT_DIMS(1), 0, 1);
    CHECK_VALUES(ct_clamp_tensor(ct_detach(x), .min = F64(CT_DIMS(1), 3), .max = F64(CT_DIMS(1), 1)), CT_DIMS(5), 0, 1,
                 1, 1, 1, 1);
    CHECK(!ct_clamp_tensor(x));
    CHECK_ERROR(CT_ERR_NULL, "clamp_tensor: both min and max are NULL; one bound at least is needed");
}
