/* ct_to_string and ct_print, against texts that NumPy printed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"
#include "core/dtype.h"
#include "tests/harness.h"

static bool prints(const char *file, int line, const ct_tensor *x, const char *expected) {
    size_t length = ct_to_string(x, NULL, 0);
    char *text = malloc(length + 1);
    if (!text) return false;
    ct_to_string(x, text, length + 1);
    bool held = harness_text(file, line, "text", text, expected);
    free(text);
    return held;
}
#define CHECK_PRINTS(x, expected) prints(__FILE__, __LINE__, (x), (expected))

/* Written from what NumPy 2.4.6 prints. */
TEST(zeros_and_ones) {
    CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(2, 2), 0.0, 1.0, 1.0, 0.0), "[[0. 1.]\n"
                                                                    " [1. 0.]]");
}

TEST(halves) { CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(3), 0.5, 1.25, -3.0), "[ 0.5   1.25 -3.  ]"); }

TEST(f32_has_its_own_shortest_digits) {
    CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(3), 0.10000000149011612, 0.20000000298023224, 0.3333333432674408),
                 "[0.1        0.2        0.33333334]");
}

TEST(f64_is_cut_at_eight_places) {
    CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(4), 0.1, 0.3333333333333333, 0.6666666666666666, 3.141592653589793),
                 "[0.1        0.33333333 0.66666667 3.14159265]");
}

TEST(large_range_is_scientific) {
    CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(3), 0.001, 1.0, 1000.5), "[1.0000e-03 1.0000e+00 1.0005e+03]");
}

TEST(small_is_scientific) { CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(2), 9e-05, 1.0), "[9.e-05 1.e+00]"); }

TEST(large_is_scientific) { CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(2), 100000000.0, 1.0), "[1.e+08 1.e+00]"); }

TEST(f32_large_is_scientific) { CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(2), 1000000.0, 250000.0), "[1.0e+06 2.5e+05]"); }

TEST(three_digit_exponents) {
    CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(3), 1e-100, 1.0, 25000000000.0), "[1.0e-100 1.0e+000 2.5e+010]");
}

TEST(scientific_digits_are_true) {
    CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(2), 1.1754943508222875e-38, 0.10000000149011612),
                 "[1.1754944e-38 1.0000000e-01]");
}

TEST(nan_and_infinities) {
    CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(4), NAN, 1.5, -INFINITY, INFINITY), "[ nan  1.5 -inf  inf]");
}

TEST(only_nan) { CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(2), NAN, NAN), "[nan nan]"); }

TEST(infinity_among_integers) { CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(3), 1.0, INFINITY, 3.0), "[ 1. inf  3.]"); }

TEST(negative_zero) { CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(2), -0.0, 0.0), "[-0.  0.]"); }

TEST(f16) { CHECK_PRINTS(TENSOR(CT_F16, CT_DIMS(3), 0.0999755859375, 65504.0, 1.0), "[1.00e-01 6.55e+04 1.00e+00]"); }

TEST(f16_power_of_two) {
    CHECK_PRINTS(TENSOR(CT_F16, CT_DIMS(2), 0.015625, 1.0013580322265625e-05), "[1.563e-02 1.001e-05]");
}

TEST(integers_align) {
    CHECK_PRINTS(TENSOR(CT_I64, CT_DIMS(2, 2), 1.0, -20.0, 300.0, 4.0), "[[  1 -20]\n"
                                                                        " [300   4]]");
}

TEST(bytes) { CHECK_PRINTS(TENSOR(CT_U8, CT_DIMS(3), 0.0, 255.0, 7.0), "[  0 255   7]"); }

TEST(truth) { CHECK_PRINTS(TENSOR(CT_BOOL, CT_DIMS(3), 1.0, 0.0, 1.0), "[ True False  True]"); }

TEST(scalar_float) { CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS0, 1.5), "1.5"); }

TEST(scalar_whole) { CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS0, 3.0), "3.0"); }

TEST(scalar_tiny) { CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS0, 1e-05), "1e-05"); }

TEST(scalar_large) { CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS0, 1e+16), "1e+16"); }

TEST(scalar_int) { CHECK_PRINTS(TENSOR(CT_I64, CT_DIMS0, -7.0), "-7"); }

TEST(scalar_bool) { CHECK_PRINTS(TENSOR(CT_BOOL, CT_DIMS0, 1.0), "True"); }

TEST(scalar_nan) { CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS0, NAN), "nan"); }

TEST(scalar_third) { CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS0, 0.3333333432674408), "0.33333334"); }

TEST(cube) {
    CHECK_PRINTS(TENSOR(CT_I64, CT_DIMS(2, 2, 3), 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0),
                 "[[[ 0  1  2]\n"
                 "  [ 3  4  5]]\n"
                 "\n"
                 " [[ 6  7  8]\n"
                 "  [ 9 10 11]]]");
}

TEST(four_axes) {
    CHECK_PRINTS(TENSOR(CT_I64, CT_DIMS(2, 1, 2, 2), 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), "[[[[0 1]\n"
                                                                                              "   [2 3]]]\n"
                                                                                              "\n"
                                                                                              "\n"
                                                                                              " [[[4 5]\n"
                                                                                              "   [6 7]]]]");
}

TEST(long_row_wraps) {
    CHECK_PRINTS(TENSOR(CT_F64, CT_DIMS(30), 0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0, 10.5, 12.0, 13.5, 15.0, 16.5, 18.0,
                        19.5, 21.0, 22.5, 24.0, 25.5, 27.0, 28.5, 30.0, 31.5, 33.0, 34.5, 36.0, 37.5, 39.0, 40.5, 42.0,
                        43.5),
                 "[ 0.   1.5  3.   4.5  6.   7.5  9.  10.5 12.  13.5 15.  16.5 18.  19.5\n"
                 " 21.  22.5 24.  25.5 27.  28.5 30.  31.5 33.  34.5 36.  37.5 39.  40.5\n"
                 " 42.  43.5]");
}

TEST(long_rows_wrap) {
    CHECK_PRINTS(TENSOR(CT_F32, CT_DIMS(2, 25), 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0,
                        3.25, 3.5, 3.75, 4.0, 4.25, 4.5, 4.75, 5.0, 5.25, 5.5, 5.75, 6.0, 6.25, 6.5, 6.75, 7.0, 7.25,
                        7.5, 7.75, 8.0, 8.25, 8.5, 8.75, 9.0, 9.25, 9.5, 9.75, 10.0, 10.25, 10.5, 10.75, 11.0, 11.25,
                        11.5, 11.75, 12.0, 12.25),
                 "[[ 0.    0.25  0.5   0.75  1.    1.25  1.5   1.75  2.    2.25  2.5   2.75\n"
                 "   3.    3.25  3.5   3.75  4.    4.25  4.5   4.75  5.    5.25  5.5   5.75\n"
                 "   6.  ]\n"
                 " [ 6.25  6.5   6.75  7.    7.25  7.5   7.75  8.    8.25  8.5   8.75  9.\n"
                 "   9.25  9.5   9.75 10.   10.25 10.5  10.75 11.   11.25 11.5  11.75 12.\n"
                 "  12.25]]");
}

TEST(more_than_a_thousand_are_summarised) {
    CHECK_PRINTS(ct_reshape(ct_arange(0, 1001, 1, .dtype = CT_I64), CT_DIMS(1001)),
                 "[   0    1    2 ...  998  999 1000]");
}

TEST(matrix_is_summarised) {
    CHECK_PRINTS(ct_reshape(ct_arange(0, 2000, 1, .dtype = CT_I64), CT_DIMS(40, 50)),
                 "[[   0    1    2 ...   47   48   49]\n"
                 " [  50   51   52 ...   97   98   99]\n"
                 " [ 100  101  102 ...  147  148  149]\n"
                 " ...\n"
                 " [1850 1851 1852 ... 1897 1898 1899]\n"
                 " [1900 1901 1902 ... 1947 1948 1949]\n"
                 " [1950 1951 1952 ... 1997 1998 1999]]");
}

TEST(thin_matrix_is_summarised) {
    CHECK_PRINTS(ct_reshape(ct_arange(0, 1200, 1, .dtype = CT_I64), CT_DIMS(3, 400)),
                 "[[   0    1    2 ...  397  398  399]\n"
                 " [ 400  401  402 ...  797  798  799]\n"
                 " [ 800  801  802 ... 1197 1198 1199]]");
}

TEST(block_is_summarised) {
    CHECK_PRINTS(ct_reshape(ct_arange(0, 1280, 1, .dtype = CT_I64), CT_DIMS(4, 4, 80)),
                 "[[[   0    1    2 ...   77   78   79]\n"
                 "  [  80   81   82 ...  157  158  159]\n"
                 "  [ 160  161  162 ...  237  238  239]\n"
                 "  [ 240  241  242 ...  317  318  319]]\n"
                 "\n"
                 " [[ 320  321  322 ...  397  398  399]\n"
                 "  [ 400  401  402 ...  477  478  479]\n"
                 "  [ 480  481  482 ...  557  558  559]\n"
                 "  [ 560  561  562 ...  637  638  639]]\n"
                 "\n"
                 " [[ 640  641  642 ...  717  718  719]\n"
                 "  [ 720  721  722 ...  797  798  799]\n"
                 "  [ 800  801  802 ...  877  878  879]\n"
                 "  [ 880  881  882 ...  957  958  959]]\n"
                 "\n"
                 " [[ 960  961  962 ... 1037 1038 1039]\n"
                 "  [1040 1041 1042 ... 1117 1118 1119]\n"
                 "  [1120 1121 1122 ... 1197 1198 1199]\n"
                 "  [1200 1201 1202 ... 1277 1278 1279]]]");
}

TEST(no_elements) {
    CHECK_PRINTS(ct_zeros(CT_DIMS(0)), "[]");
    CHECK_PRINTS(ct_zeros(CT_DIMS(2, 0, 3)), "[]");
}

TEST(a_view_prints_its_own_order) {
    ct_tensor *x = TENSOR(CT_I32, CT_DIMS(2, 3), 1, 2, 3, 4, 5, 6);
    CHECK_PRINTS(ct_t(x), "[[1 4]\n [2 5]\n [3 6]]");
    CHECK_PRINTS(ct_expand(ct_narrow(x, 0, 0, 1), CT_DIMS(2, 3)), "[[1 2 3]\n [1 2 3]]");
}

TEST(bf16_prints_the_digits_that_name_it) {
    CHECK_PRINTS(TENSOR(CT_BF16, CT_DIMS(3), 0.1, 1, 3.140625), "[0.1  1.   3.14]");
}

TEST(large_integers_are_exact) {
    int64_t values[2] = {INT64_MAX, INT64_MIN};
    CHECK_PRINTS(ct_from_data(values, CT_DIMS(2), CT_I64), "[ 9223372036854775807 -9223372036854775808]");
    uint64_t big = UINT64_MAX;
    CHECK_PRINTS(ct_from_data(&big, CT_DIMS(1), CT_U64), "[18446744073709551615]");
}

TEST(a_short_buffer_gets_the_beginning) {
    ct_tensor *x = TENSOR(CT_I32, CT_DIMS(3), 1, 2, 3);
    char text[4] = "xxx";
    CHECK(ct_to_string(x, text, sizeof text) == 7);
    CHECK_TEXT(text, "[1 ");
    char one[1] = {'x'};
    CHECK(ct_to_string(x, one, 1) == 7);
    CHECK(one[0] == 0);
}

TEST(null_is_an_error) {
    char text[8] = "old";
    CHECK(ct_to_string(NULL, text, sizeof text) == 0);
    CHECK_TEXT(text, "");
    CHECK_ERROR(CT_ERR_NULL, "to_string: argument x is NULL");
    CHECK(!ct_print(NULL));
    CHECK_ERROR(CT_ERR_NULL, "print: argument x is NULL");
}

/* ---- Digits, beside those of the C library ---- */

static double read_as(ct_dtype dtype, const char *text) {
    char raw[16];
    if (dtype == CT_F64) return strtod(text, NULL);
    if (dtype == CT_F32) return (double)strtof(text, NULL);
    ct__dtype_put(dtype, raw, strtod(text, NULL));
    return ct__dtype_get(dtype, raw);
}

/* What printf writes with n digits, or the next decimal of n digits above it. */
static void nearest_text(double value, int n, bool above, char *text, size_t capacity) {
    snprintf(text, capacity, "%.*e", n - 1, value);
    if (!above) return;
    char *end = strchr(text, 'e');
    const int exponent = atoi(end + 1);
    char digits[32] = "0";
    int length = 1;
    for (const char *at = text; at < end; at++)
        if (*at != '.') digits[length++] = *at;
    int i = length - 1;
    for (; digits[i] == '9'; i--) digits[i] = '0';
    digits[i]++;
    snprintf(text, capacity, "%.*se%d", length, digits, exponent - (n - 1));
}

/* The fewest digits that read back, by trying; and that they are the ones that we print. */
static bool is_shortest(double value, ct_dtype dtype) {
    char text[64], own[64];
    const ct__decimal d = ct__decimal_shortest(value, dtype);
    snprintf(own, sizeof own, "0.%se%d", d.digits, d.point);
    if (d.n != (int)strlen(d.digits) || (d.n > 1 && d.digits[d.n - 1] == '0')) return false;
    for (int n = 1; n <= 17; n++)
        for (int above = 0; above < 2; above++) {
            nearest_text(value, n, above, text, sizeof text);
            if (read_as(dtype, text) == value) return strtod(text, NULL) == strtod(own, NULL) && d.n <= n;
        }
    return false;
}

static bool is_rounded(double value) {
    char text[400], own[64];
    for (int n = 1; n <= 17; n++) {
        const ct__decimal d = ct__decimal_significant(value, n);
        snprintf(text, sizeof text, "%.*e", n - 1, value);
        snprintf(own, sizeof own, "%c%s%se%+03d", d.digits[0], n > 1 ? "." : "", d.digits + 1, d.point - 1);
        if (strcmp(own, text) != 0) return false;
    }
    for (int places = 0; value < 1e9 && places <= 8; places++) {
        const ct__decimal d = ct__decimal_fraction(value, places);
        snprintf(text, sizeof text, "%.*f", places, value);
        snprintf(own, sizeof own, "%se%d", d.digits, d.point - d.n);
        if (d.n - d.point != places || strtod(text, NULL) != strtod(own, NULL)) return false;
    }
    return true;
}

TEST(every_small_float_has_its_fewest_digits) {
    static const ct_dtype dtypes[] = {CT_F16, CT_BF16, CT_F8E4M3, CT_F8E5M2};
    for (int i = 0; i < 4; i++) {
        const unsigned count = ct_dtype_size(dtypes[i]) == 2 ? 0x8000 : 0x80;
        int wrong = 0;
        for (unsigned bits = 1; bits < count; bits++) {
            const uint16_t raw = (uint16_t)bits;
            const uint8_t byte = (uint8_t)bits;
            const double value = ct__dtype_get(dtypes[i], count == 0x80 ? (const void *)&byte : (const void *)&raw);
            /* the largest e4m3 is what any larger number saturates to: there are shorter ones, and they would mislead */
            if (isfinite(value) && !(dtypes[i] == CT_F8E4M3 && value == 448)) {
                int q = !is_shortest(value, dtypes[i]);
                wrong += q;
                if (q) {
                    ct__decimal d = ct__decimal_shortest(value, dtypes[i]);
                    printf("%d %.17g %s %d\n", i, value, d.digits, d.point);
                }
            }
        }
        CHECK(wrong == 0);
    }
}

static uint64_t random_state = 1;
static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int wrong_digits(double value, ct_dtype dtype) {
    if (!isfinite(value) || value <= 0) return 0;
    return !is_shortest(value, dtype) + !is_rounded(value);
}

TEST(digits_are_those_of_the_c_library) {
    int wrong = 0;
    for (int i = 0; i < 4000; i++) {
        const uint64_t bits = next_random() >> 1;
        double f64;
        float f32;
        const uint32_t half = (uint32_t)(bits >> 31) & 0x7fffffff;
        memcpy(&f64, &bits, sizeof f64); /* any exponent */
        memcpy(&f32, &half, sizeof f32);
        wrong += wrong_digits(f64, CT_F64) + wrong_digits((double)f32, CT_F32);
        const double usual = ldexp((double)(bits >> 10), (int)(bits % 64) - 80); /* what tensors hold */
        wrong += wrong_digits(usual, CT_F64) + wrong_digits((double)(float)usual, CT_F32);
        const double few = (double)(bits % 100000) / 1000; /* few digits */
        wrong += wrong_digits(few, CT_F64) + wrong_digits((double)(float)few, CT_F32);
        const double ties = ldexp((double)(bits % 4096), -8); /* ends in 5 */
        wrong += wrong_digits(ties, CT_F64);
    }
    for (int e = -1074; e < 1024; e++)
        for (int side = -1; side <= 1; side++) {
            const double power = ldexp(1, e), value = side ? nextafter(power, side * INFINITY) : power;
            wrong += wrong_digits(value, CT_F64);
            if (e >= -149 && e < 128) wrong += wrong_digits((double)nextafterf((float)power, (float)side), CT_F32);
        }
    CHECK(wrong == 0);
}

TEST(an_array_of_eight_axes_is_shown_whole_where_its_axes_are_short) {
    /* 6 is not more than two edges of 3: all 6^8 numbers are shown, as by NumPy */
    ct_tensor *x = ct_reshape(ct_arange(0, 1679616, 1), CT_DIMS(6, 6, 6, 6, 6, 6, 6, 6));
    const size_t length = ct_to_string(x, NULL, 0);
    /* each as "1.679615e+06", since some are above 1e6 */
    CHECK(length > (size_t)1679616 * 12);
}
