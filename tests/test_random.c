/* Random numbers: known answers of the generator, the same bits for every level and thread count, and distributions. Seeds
 * are fixed, so a statistical check either always holds or never does; bounds are at five standard errors or more. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "core/threads.h"
#include "tests/harness.h"

enum { MANY = 200003 }; /* not a multiple of any block */

static bool words_are(ct_random at, uint64_t block, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    uint32_t words[4];
    ct__philox(at, block, words);
    return words[0] == a && words[1] == b && words[2] == c && words[3] == d;
}

/* The published vectors of Philox4x32-10. A counter of all ones takes a stream that the exclusive-or of the counter's upper
 * parts turns into ones: with stream 0, block and call are the counter. */
TEST(philox_gives_the_published_words) {
    CHECK(words_are((ct_random){0, 0, 0}, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
    CHECK(words_are((ct_random){.seed = UINT64_MAX, .stream = 0, .call = UINT64_MAX}, UINT64_MAX, 0x408f276d,
                    0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
    CHECK(words_are((ct_random){.seed = 0x299f31d0a4093822ull, .stream = 0, .call = 0x0370734413198a2eull},
                    0x85a308d3243f6a88ull, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

/* ---- Where the words go ---- */

TEST(rand_takes_word_i_of_its_call) {
    ct_seed(42);
    ct_rand(CT_DIMS(3)); /* call 0 */
    ct_tensor *x = ct_rand(CT_DIMS(1000)), *y = ct_rand(CT_DIMS(10, 50), .dtype = CT_F64);
    REQUIRE(x && y);
    const float *f = ct_data(x);
    const double *d = ct_data(y);
    int wrong = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t words[4];
        ct__philox((ct_random){42, 0, 1}, i / 4, words);
        wrong += f[i] != (float)(words[i % 4] >> 8) * 0x1p-24f;
    }
    for (uint64_t i = 0; i < 500; i++) {
        uint32_t words[4];
        ct__philox((ct_random){42, 0, 2}, i / 2, words);
        uint64_t word = (uint64_t)words[2 * (i % 2) + 1] << 32 | words[2 * (i % 2)];
        wrong += d[i] != (double)(word >> 11) * 0x1p-53;
    }
    CHECK(wrong == 0);
}

static ct_tensor *draw(int kind, ct_rng *rng) {
    switch (kind) {
    case 0: return ct_rand(CT_DIMS(MANY), .rng = rng);
    case 1: return ct_rand(CT_DIMS(MANY), .dtype = CT_F64, .rng = rng);
    case 2: return ct_uniform(CT_DIMS(7, 30001), -3, 5, .dtype = CT_F16, .rng = rng);
    case 3: return ct_randint(CT_DIMS(MANY), -5, 1000003, .rng = rng);
    case 4: return ct_bernoulli_full(CT_DIMS(MANY), 0.3, .dtype = CT_BOOL, .rng = rng);
    case 5: return ct_randperm(MANY, .rng = rng);
    case 6: return ct_bernoulli(ct_full(CT_DIMS(MANY), 0.7), .rng = rng);
    case 7: return ct_multinomial(ct_arange(1, 4001, 1), 400, .rng = rng);
    case 8: return ct_rand(CT_DIMS(MANY), .dtype = CT_BF16, .rng = rng);
    case 9: return ct_multinomial(ct_arange(1, 401, 1), 4000, .replacement = true, .rng = rng);
    case 10: return ct_randn(CT_DIMS(MANY), .rng = rng);
    case 11: return ct_randn(CT_DIMS(MANY), .dtype = CT_F64, .rng = rng);
    default: return ct_truncated_normal(CT_DIMS(MANY), 1, 2, -1, 4, .rng = rng);
    }
}
enum { EXACT = 10, KINDS = 13 }; /* those from EXACT on use the math library */

TEST(same_bits_for_any_thread_count) {
    for (int kind = 0; kind < KINDS; kind++)
        ct_scope {
            ct_tensor *first = NULL;
            for (int threads = 1; threads <= 5; threads += 2) {
                ct_rng *rng = ct_rng_new(9, 3);
                ct_set_threads(threads);
                ct__set_grain(threads == 3 ? 1 : 0);
                ct_tensor *x = draw(kind, rng);
                ct__set_grain(0);
                if (!first) first = x;
                harness_check(x && harness_same_bits(first, x), __FILE__, __LINE__, "kind %d differs on %d threads",
                              kind, threads);
                ct_rng_free(rng);
            }
        }
    ct_set_threads(0);
}

TEST(same_numbers_at_every_level) {
    static const char *const levels[] = {"base", "avx2", "avx512", "neon"};
    for (int kind = 0; kind < KINDS; kind++)
        ct_scope {
            ct_tensor *first = NULL;
            for (int i = 0; i < 4; i++) {
                if (!ct_set_isa(levels[i])) {
                    ct_error_clear();
                    continue;
                }
                ct_rng *rng = ct_rng_new(9, 3);
                ct_tensor *x = draw(kind, rng);
                ct_rng_free(rng);
                REQUIRE(x);
                if (!first) {
                    first = x;
                } else if (kind < EXACT) {
                    harness_check(harness_same_bits(first, x), __FILE__, __LINE__, "kind %d differs at level %s", kind,
                                  levels[i]);
                } else {
                    double tolerance = kind == 11 ? 1e-13 : 4e-6, worst = 0;
                    ct_tensor *difference = ct_amax(ct_abs(ct_sub(first, x)));
                    worst = ct_item(difference);
                    harness_check(worst <= tolerance, __FILE__, __LINE__, "kind %d is off by %g at level %s", kind,
                                  worst, levels[i]);
                }
            }
        }
}

TEST(strided_results_have_the_same_numbers) {
    ct_seed(1);
    ct_tensor *dense = ct_rand(CT_DIMS(70, 33)), *wide = ct_zeros(CT_DIMS(70, 66));
    ct_seed(1);
    ct_tensor *view = ct_slice(wide, 1, 0, .step = 2);
    REQUIRE(ct_into(view));
    REQUIRE(ct_rand(CT_DIMS(70, 33)));
    CHECK(harness_same_bits(dense, ct_contiguous(view)));
    CHECK(ct_item(ct_sum(ct_slice(wide, 1, 1, .step = 2))) == 0);
}

TEST(a_strided_permutation_is_the_same) {
    static const ct_dtype dtypes[] = {CT_I64, CT_I32};
    for (int i = 0; i < 2; i++) {
        ct_seed(1);
        ct_tensor *dense = ct_randperm(MANY, .dtype = dtypes[i]),
                  *wide = ct_zeros(CT_DIMS(3 * MANY), .dtype = dtypes[i]);
        ct_seed(1);
        ct_tensor *view = ct_slice(wide, 0, 1, .step = 3);
        REQUIRE(ct_into(view));
        REQUIRE(ct_randperm(MANY, .dtype = dtypes[i]));
        CHECK(harness_same_bits(dense, ct_contiguous(view)));
        CHECK(ct_item(ct_sum(ct_slice(wide, 0, 0, .step = 3))) == 0);
    }
}

TEST(streams_and_seeds_differ) {
    ct_rng *a = ct_rng_new(1, 0), *b = ct_rng_new(1, 1), *c = ct_rng_new(2, 0);
    ct_tensor *x = ct_rand(CT_DIMS(64), .rng = a), *y = ct_rand(CT_DIMS(64), .rng = b),
              *z = ct_rand(CT_DIMS(64), .rng = c), *w = ct_rand(CT_DIMS(64), .rng = a);
    CHECK(!harness_same_bits(x, y) && !harness_same_bits(x, z) && !harness_same_bits(x, w));
    CHECK(ct_rng_position(a) == 2);
    ct_rng_set_position(a, 0);
    CHECK(harness_same_bits(x, ct_rand(CT_DIMS(64), .rng = a)));
    ct_rng_free(a);
    ct_rng_free(b);
    ct_rng_free(c);
}

/* ---- Distributions ---- */

/* Chi-square of counts that should be equal: mean cells - 1, deviation sqrt(2 (cells - 1)). */
static bool even_counts(const int64_t *counts, int cells, int64_t total) {
    double expected = (double)total / cells, sum = 0;
    for (int i = 0; i < cells; i++) sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    return fabs(sum - (cells - 1)) < 5 * sqrt(2.0 * (cells - 1));
}

TEST(rand_is_uniform) {
    int64_t counts[100] = {0}, pairs[64] = {0};
    ct_seed(5);
    ct_tensor *x = ct_rand(CT_DIMS(1000000));
    REQUIRE(x);
    const float *values = ct_data(x);
    for (int i = 0; i < 1000000; i++) {
        REQUIRE(values[i] >= 0 && values[i] < 1);
        counts[(int)(values[i] * 100)]++;
        if (i % 2) pairs[(int)(values[i] * 8) * 8 + (int)(values[i - 1] * 8)]++;
    }
    CHECK(even_counts(counts, 100, 1000000));
    CHECK(even_counts(pairs, 64, 500000)); /* neighbors are independent */
}

static void moments(ct_tensor *x, double m[5]) {
    int64_t n = ct_numel(x);
    double *values = malloc((size_t)n * sizeof *values);
    for (int k = 0; k < 5; k++) m[k] = 0;
    if (!values || !ct_read(ct_cast(x, CT_F64), values, (size_t)n * sizeof *values)) n = 0;
    for (int64_t i = 0; i < n; i++)
        for (int k = 1; k < 5; k++) m[k] += pow(values[i], k) / (double)n;
    free(values);
}

TEST(randn_has_normal_moments) {
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16};
    for (int i = 0; i < 4; i++)
        ct_scope {
            double m[5], n = 1e6;
            ct_seed(6);
            moments(ct_randn(CT_DIMS(1000000), .dtype = dtypes[i]), m);
            /* the variances of the powers of a normal number are 1, 2, 15 and 96; bf16 rounds at 2^-9 */
            double rounding = dtypes[i] == CT_BF16 ? 1e-4 : 0;
            CHECK_NEAR(m[1], 0, 5 * sqrt(1 / n) + rounding);
            CHECK_NEAR(m[2], 1, 5 * sqrt(2 / n) + rounding);
            CHECK_NEAR(m[3], 0, 5 * sqrt(15 / n) + rounding);
            CHECK_NEAR(m[4], 3, 5 * sqrt(96 / n) + rounding);
        }
}

TEST(normal_scales_and_shifts) {
    double m[5];
    ct_seed(7);
    moments(ct_normal(CT_DIMS(100000), 3, 0.5), m);
    CHECK_NEAR(m[1], 3, 5 * 0.5 / sqrt(1e5));
    CHECK_NEAR(m[2] - m[1] * m[1], 0.25, 5 * 0.25 * sqrt(2 / 1e5));
    CHECK(ct_item(ct_amax(ct_normal(CT_DIMS(100), 2, 0))) == 2);
}

/* P(Z <= z) of each value is uniform. */
static bool normal_counts(ct_tensor *x, double mean, double std, double lo, double hi) {
    enum { CELLS = 50 };
    int64_t counts[CELLS] = {0}, n = ct_numel(x);
    double from = lo == -INFINITY ? 0 : 0.5 * erfc(-(lo - mean) / std / sqrt(2)),
           to = hi == INFINITY ? 1 : 0.5 * erfc(-(hi - mean) / std / sqrt(2));
    const float *values = ct_data(x);
    for (int64_t i = 0; i < n; i++) {
        double p = (0.5 * erfc(-(values[i] - mean) / std / sqrt(2)) - from) / (to - from);
        int cell = (int)(p * CELLS);
        if (values[i] < (float)lo || values[i] > (float)hi) return false;
        counts[cell < 0 ? 0 : cell >= CELLS ? CELLS - 1 : cell]++;
    }
    return even_counts(counts, CELLS, n);
}

TEST(normals_follow_their_distribution) {
    ct_seed(8);
    CHECK(normal_counts(ct_randn(CT_DIMS(500000)), 0, 1, -INFINITY, INFINITY));
    CHECK(normal_counts(ct_truncated_normal(CT_DIMS(200000), 0, 1, -2, 2), 0, 1, -2, 2));
    CHECK(normal_counts(ct_truncated_normal(CT_DIMS(200000), 1, 3, -1, INFINITY), 1, 3, -1, INFINITY));
    CHECK(normal_counts(ct_truncated_normal(CT_DIMS(200000), 0, 1, -5, -3), 0, 1, -5, -3));
}

/* On the positive side 1 - P is what is small; the kernel mirrors the interval there. */
TEST(truncated_normal_is_precise_far_out) {
    ct_seed(8);
    ct_tensor *x = ct_truncated_normal(CT_DIMS(200000), 0, 1, 6, 8, .dtype = CT_F64);
    double m[5];
    moments(x, m);
    /* the mean of a tail from a on is phi(a) / Q(a); to 8 the rest is 1e-6 of it */
    double a = 6, density = exp(-a * a / 2) / sqrt(2 * 3.14159265358979323846), tail = 0.5 * erfc(a / sqrt(2));
    CHECK_NEAR(m[1], density / tail, 0.005);
    CHECK(ct_item(ct_amin(x)) >= 6 && ct_item(ct_amax(x)) <= 8);
}

TEST(uniform_stays_below_its_upper_bound) {
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16};
    for (int i = 0; i < 4; i++)
        ct_scope {
            ct_seed(3);
            ct_tensor *x = ct_cast(ct_uniform(CT_DIMS(300000), 1, 1.25, .dtype = dtypes[i]), CT_F64);
            CHECK(ct_item(ct_amin(x)) >= 1 && ct_item(ct_amax(x)) < 1.25);
            CHECK_NEAR(ct_item(ct_mean(x)), 1.125, dtypes[i] == CT_BF16 ? 0.01 : 0.001);
        }
    CHECK(ct_item(ct_amax(ct_uniform(CT_DIMS(10), 2, 2))) == 2);
}

TEST(randint_is_uniform_and_reaches_its_bounds) {
    int64_t counts[7] = {0};
    ct_seed(11);
    ct_tensor *x = ct_randint(CT_DIMS(70000), -3, 4);
    REQUIRE(x && ct_dtype_of(x) == CT_I64);
    for (int i = 0; i < 70000; i++) counts[((const int64_t *)ct_data(x))[i] + 3]++;
    CHECK(even_counts(counts, 7, 70000));
    ct_tensor *bytes = ct_randint(CT_DIMS(20000), 0, 256, .dtype = CT_U8);
    CHECK(ct_item(ct_amin(bytes)) == 0 && ct_item(ct_amax(bytes)) == 255);
    CHECK(!ct_randint(CT_DIMS(2), 0, 257, .dtype = CT_U8));
    CHECK_ERROR(CT_ERR_VALUE, "randint: lo is 0 and hi is 257; lo < hi is needed, and values that u8 holds");
    CHECK(!ct_randint(CT_DIMS(2), 4, 4));
    CHECK_ERROR(CT_ERR_VALUE, "randint: lo is 4 and hi is 4; lo < hi is needed, and values that i64 holds");
    CHECK(!ct_randint(CT_DIMS(2), 0, 4, .dtype = CT_F64));
    CHECK_ERROR(CT_ERR_DTYPE, "randint: dtype is f64; it has to be an integer");
}

TEST(bernoulli_has_the_frequency_it_is_given) {
    ct_seed(12);
    CHECK_NEAR(ct_item(ct_mean(ct_bernoulli_full(CT_DIMS(100000), 0.3))), 0.3, 5 * sqrt(0.3 * 0.7 / 1e5));
    CHECK_NEAR(ct_item(ct_mean(ct_bernoulli(ct_full(CT_DIMS(100000), 0.9)))), 0.9, 5 * sqrt(0.9 * 0.1 / 1e5));
    CHECK(ct_item(ct_sum(ct_bernoulli_full(CT_DIMS(1000), 0))) == 0);
    CHECK(ct_item(ct_sum(ct_bernoulli_full(CT_DIMS(1000), 1))) == 1000);
    CHECK(ct_item(ct_sum(ct_bernoulli(ct_ones(CT_DIMS(1000))))) == 1000);
    CHECK(!ct_bernoulli(F32(CT_DIMS(3), 0.5, 1.5, 0)));
    CHECK_ERROR(CT_ERR_VALUE, "bernoulli: p is 1.5 at element 1; it has to be in 0 to 1");
}

TEST(bernoulli_has_a_zero_gradient) {
    ct_tensor *p = ct_set_requires_grad(ct_full(CT_DIMS(4), 0.5), true);
    REQUIRE(ct_backward(ct_sum(ct_mul(ct_bernoulli(p), p))));
    ct_tensor *grad = ct_grad_of(p);
    REQUIRE(grad);
    for (int i = 0; i < 4; i++) CHECK(harness_at(grad, i) == 0 || harness_at(grad, i) == 1); /* the factor p alone */
}

TEST(randperm_is_a_permutation_and_fair) {
    int64_t counts[24] = {0};
    ct_seed(13);
    ct_tensor *big = ct_randperm(MANY, .dtype = CT_I32);
    REQUIRE(big);
    char *seen = calloc(MANY, 1);
    for (int i = 0; i < MANY; i++) seen[((const int32_t *)ct_data(big))[i]]++;
    int once = 0;
    for (int i = 0; i < MANY; i++) once += seen[i] == 1;
    free(seen);
    CHECK(once == MANY);
    for (int turn = 0; turn < 24000; turn++)
        ct_scope { /* each of the 24 orders of four */
            const int64_t *p = ct_data(ct_randperm(4));
            int code = 0;
            for (int i = 0, weight = 6; i < 3; weight /= 3 - i, i++) {
                int smaller = 0;
                for (int j = i + 1; j < 4; j++) smaller += p[j] < p[i];
                code += smaller * weight;
            }
            counts[code]++;
        }
    CHECK(even_counts(counts, 24, 24000));
}

TEST(multinomial_follows_its_weights) {
    ct_tensor *weights = F32(CT_DIMS(4), 1, 0, 3, 4);
    int64_t counts[4] = {0}, first[4] = {0};
    ct_seed(14);
    ct_tensor *x = ct_multinomial(weights, 80000, .replacement = true);
    REQUIRE(x);
    for (int i = 0; i < 80000; i++) counts[((const int64_t *)ct_data(x))[i]]++;
    for (int turn = 0; turn < 8000; turn++)
        ct_scope {
            const int64_t *two = ct_data(ct_multinomial(weights, 2));
            CHECK(two[0] != two[1] && two[1] != 1);
            first[two[0]]++;
        }
    for (int i = 0; i < 4; i++) {
        double p = (double[]){0.125, 0, 0.375, 0.5}[i];
        CHECK_NEAR((double)counts[i] / 80000, p, 5 * sqrt(p * (1 - p) / 80000));
        CHECK_NEAR((double)first[i] / 8000, p, 5 * sqrt(p * (1 - p) / 8000));
    }
}

TEST(multinomial_refuses_what_cannot_be_drawn) {
    CHECK(!ct_multinomial(F32(CT_DIMS(3), 1, 0, 2), 3));
    CHECK_ERROR(CT_ERR_VALUE, "multinomial: the number of weights above 0 in row 0 is 2; it has to be 3 or more");
    CHECK(!ct_multinomial(F32(CT_DIMS(3), 1, -1, 2), 1));
    CHECK_ERROR(CT_ERR_VALUE, "multinomial: weights is -1 at element 1; it has to be finite and 0 or more");
    CHECK(!ct_multinomial(F32(CT_DIMS(2), 0, 0), 1, .replacement = true));
    CHECK_ERROR(CT_ERR_VALUE, "multinomial: the sum of the weights in row 0 is 0; it has to be finite and above 0");
    CHECK(!ct_multinomial(F32(CT_DIMS(2), 1, 1), 3));
    CHECK_ERROR(CT_ERR_VALUE, "multinomial: n is 3, but weights is f32[2]: without replacement only 2 can be drawn");
}
