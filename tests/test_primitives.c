/* What a backend needs, on three of the tests' own: with the CPU's kernels for every op, for the primitives alone, and for none. So
 * lowerings are compared with kernels bit by bit, reads of a device are counted, and what is missing says so. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>

#include "tests/harness.h"
#include "tests/harness_backend.h"
#include "tests/opcheck.h"

/* What docs/howto-backend.md promises: so many kernels beside those of the elementwise lines. */
enum { MOST_PRIMITIVES = 40 };

static const ct_device cpu = {CT_CPU, 0};

/* ---- How many ---- */

static bool is_primitive(const ct_op *op) { return !op->lower && !(op->flags & (CT_OP_VIEW | CT_OP_ELEMENTWISE)); }

TEST(a_backend_needs_few_kernels_beside_the_elementwise_lines) {
    int count = 0;
    for (int i = 0; i < ct_op_count(); i++) count += is_primitive(ct_op_at(i));
    if (CHECK(count <= MOST_PRIMITIVES)) return;
    for (int i = 0; i < ct_op_count(); i++)
        if (is_primitive(ct_op_at(i))) printf("  %s\n", ct_op_at(i)->name);
}

/* ---- The same bits ---- */

/* call, which makes its result on d, on the CPU and in primitives: the same bits. */
#define CHECK_SAME(call)                                                                                             \
    do {                                                                                                             \
        ct_tensor *both_[2];                                                                                         \
        for (int i_ = 0; i_ < 2; i_++) {                                                                             \
            const ct_device d = i_ ? device : cpu;                                                                   \
            ct_seed(11);                                                                                             \
            both_[i_] = (call);                                                                                      \
        }                                                                                                            \
        harness_check(both_[0] && both_[1] && harness_same_bits(both_[0], ct_to(both_[1], cpu)), __FILE__, __LINE__, \
                      "%s, in primitives: %s", #call, ct_error());                                                   \
        ct_error_clear();                                                                                            \
    } while (0)

static const ct_dtype floats[] = {CT_F32, CT_F64, CT_F16, CT_BF16};

TEST(uniform_numbers_choices_and_permutations_are_the_same_bits_in_primitives) {
    const ct_device device = harness_device(HARNESS_PRIMITIVES);
    static const int64_t sizes[] = {0, 1, 2, 3, 67, 1001, 70003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const ct_dims shape = CT_DIMS(1, sizes[s]);
        for (int f = 0; f < 4; f++) {
            const ct_dtype dtype = floats[f];
            CHECK_SAME(ct_rand(shape, .dtype = dtype, .device = d));
            CHECK_SAME(ct_uniform(shape, -1.7, 0.3, .dtype = dtype, .device = d));
            CHECK_SAME(ct_uniform(shape, 5, 5, .dtype = dtype, .device = d));
            CHECK_SAME(ct_uniform(shape, 1e6, 1e6 + 1, .dtype = dtype, .device = d)); /* which rounds to its bound */
            CHECK_SAME(ct_bernoulli_full(shape, 0.37, .dtype = dtype, .device = d));
            CHECK_SAME(ct_bernoulli(ct_full(shape, 0.37, .dtype = dtype, .device = d)));
            CHECK_SAME(ct_dropout(ct_full(shape, 1.3, .dtype = dtype, .device = d), 0.3));
            CHECK_SAME(ct_dropout(ct_full(shape, 1.3, .dtype = dtype, .device = d), 1));
        }
        CHECK_SAME(ct_bernoulli_full(shape, 1, .dtype = CT_BOOL, .device = d));
        CHECK_SAME(ct_randint(shape, 0, 7, .device = d));
        CHECK_SAME(ct_randint(shape, -100, 100, .dtype = CT_I8, .device = d));
        CHECK_SAME(ct_randint(shape, INT64_MIN, INT64_MAX, .device = d));
        CHECK_SAME(ct_randint(shape, INT64_MAX - 3, INT64_MAX, .device = d));
        CHECK_SAME(ct_randint(shape, -5000000000, 70000000000, .device = d));
        CHECK_SAME(ct_randint(shape, 0, INT64_C(1) << 32, .dtype = CT_U32, .device = d));
        CHECK_SAME(ct_randperm(sizes[s], .device = d));
        CHECK_SAME(ct_randperm(sizes[s], .dtype = CT_I32, .device = d));
    }
    for (int f = 0; f < 4; f++) {
        ct_tensor *weights = ct_cast(F32(CT_DIMS(2, 5), 1, 0, 2, 0.5, 0, 0, 3, 0.25, 1, 8), floats[f]);
        CHECK_SAME(ct_multinomial(ct_to(weights, d), 3));
        CHECK_SAME(ct_multinomial(ct_to(weights, d), 100, .replacement = true));
        CHECK_SAME(ct_multinomial(ct_to(weights, d), 0));
    }
}

/* Both are right to the rounding of the dtype: of z = r cos, that of r's logarithm and root, of the cosine, and of products. */
TEST(normal_numbers_are_near_in_primitives) {
    const ct_device device = harness_device(HARNESS_PRIMITIVES);
    for (int f = 0; f < 4; f++) {
        const ct_dtype dtype = floats[f];
        const double computing = dtype == CT_F64 ? 0x1p-53 : 0x1p-24, rounding = dtype == CT_F16    ? 0x1p-11
                                                                                 : dtype == CT_BF16 ? 0x1p-8
                                                                                                    : 0;
        for (int kind = 0; kind < 4; kind++) {
            ct_tensor *y[2];
            for (int i = 0; i < 2; i++) {
                const ct_device d = i ? device : cpu;
                ct_seed(5);
                y[i] = kind == 0   ? ct_randn(CT_DIMS(5003), .dtype = dtype, .device = d)
                       : kind == 1 ? ct_normal(CT_DIMS(5003), 3, 0.5, .dtype = dtype, .device = d)
                       : kind == 2 ? ct_truncated_normal(CT_DIMS(5003), 1, 2, -1, 1.5, .dtype = dtype, .device = d)
                                   : ct_truncated_normal(CT_DIMS(5003), 0, 1, 20, 21, .dtype = dtype, .device = d);
                y[i] = ct_cast(ct_to(y[i], cpu), CT_F64);
            }
            const double largest = kind == 0 ? 0 : kind == 1 ? 3 : kind == 2 ? 4 : 21; /* of what is added up */
            int wrong = 0;
            for (int64_t k = 0; k < 5003; k++) {
                const double a = harness_at(y[0], k), b = harness_at(y[1], k);
                wrong += !(fabs(a - b) <= 16 * computing * (fabs(a) + largest) + 2 * rounding * fabs(a));
            }
            harness_check(wrong == 0, __FILE__, __LINE__, "%s, kind %d: %d of 5003 differ", ct_dtype_name(dtype), kind,
                          wrong);
        }
    }
}

TEST(selections_of_equals_and_nan_are_the_same_bits_in_primitives) {
    const ct_device device = harness_device(HARNESS_PRIMITIVES);
    ct_tensor *wide =
        F64(CT_DIMS(3, 7), 2, 1, 2, -1, 1, 2, 0, 1, NAN, 3, NAN, -4, 3, 1, -INFINITY, 5, INFINITY, 5, -0.0, 0, 5);
    for (int f = 0; f < 4; f++) {
        ct_tensor *x = ct_cast(wide, floats[f]);
        for (int axis = 0; axis < 2; axis++) {
            ct_tensor *i = NULL;
            CHECK_SAME(ct_median(ct_to(x, d), axis));
            CHECK_SAME((ct_median(ct_to(x, d), axis, .keepdim = true, .indices = &i), i));
            CHECK_SAME(ct_kthvalue(ct_to(x, d), 2, axis));
            CHECK_SAME((ct_kthvalue(ct_to(x, d), 3, axis, .indices = &i), i));
            CHECK_SAME(ct_topk(ct_to(x, d), 2, axis));
            CHECK_SAME((ct_topk(ct_to(x, d), 3, axis, .indices = &i), i));
            CHECK_SAME((ct_topk(ct_to(x, d), 3, axis, .smallest = true, .indices = &i), i));
            CHECK_SAME(ct_argsort(ct_to(x, d), axis));
            CHECK_SAME(ct_argsort(ct_to(x, d), axis, .descending = true));
            CHECK_SAME(ct_argmax(ct_to(x, d), .axis = CT_SET(axis)));
            CHECK_SAME(ct_argmin(ct_to(x, d), .axis = CT_SET(axis), .keepdim = true));
            CHECK_SAME(ct_unique(ct_to(x, d), .axis = CT_SET(axis)));
            CHECK_SAME(ct_any(ct_to(x, d), .axes = CT_DIMS(axis)));
            CHECK_SAME(ct_all(ct_to(x, d), .axes = CT_DIMS(axis)));
            CHECK_SAME(ct_count_nonzero(ct_to(x, d), .axes = CT_DIMS(axis)));
        }
        CHECK_SAME(ct_argmax(ct_to(x, d)));
        CHECK_SAME(ct_argmin(ct_to(x, d), .keepdim = true));
        CHECK_SAME(ct_unique(ct_to(x, d)));
        CHECK_SAME(ct_nonzero(ct_to(x, d)));
        CHECK_SAME(ct_histogram(ct_to(x, d), 5, -4, 5));
        CHECK_SAME(ct_tril(ct_to(x, d), .diagonal = INT64_MIN));
        CHECK_SAME(ct_triu(ct_to(x, d), .diagonal = INT64_MIN));
        CHECK_SAME(ct_triu(ct_to(x, d), .diagonal = INT64_MAX));
    }
    ct_tensor *scalar = F32(CT_DIMS0, 3), *i = NULL;
    CHECK_SAME((ct_median(ct_to(scalar, d), 0, .indices = &i), i));
    CHECK_SAME(ct_kthvalue(ct_to(scalar, d), 1, -1, .keepdim = true));
    CHECK_SAME(ct_topk(ct_to(scalar, d), 1, 0));
    CHECK_SAME(ct_argmax(ct_to(scalar, d), .axis = CT_SET(0)));
    CHECK_SAME(ct_median(ct_zeros(CT_DIMS(0, 0), .device = d), 1));
}

TEST(what_is_made_of_numbers_is_the_same_bits_in_primitives) {
    const ct_device device = harness_device(HARNESS_PRIMITIVES);
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16, CT_I64, CT_I8};
    static const double ends[][2] = {{0, 1},   {1, 0},           {-3, 7},         {5, 5},
                                     {0, 100}, {1, 1 + 0x1p-52}, {-1e300, 1e300}, {0, 5e-324}};
    for (int k = 0; k < 6; k++) {
        const ct_dtype dtype = dtypes[k];
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            for (int64_t n = 0; n < 9; n++)
                CHECK_SAME(ct_linspace(ends[e][0], ends[e][1], n, .dtype = dtype, .device = d));
        CHECK_SAME(ct_linspace(-2, 3, 1001, .dtype = dtype, .device = d));
        CHECK_SAME(ct_eye(5, .m = 3, .dtype = dtype, .device = d));
        CHECK_SAME(ct_zeros(CT_DIMS(2, 0), .dtype = dtype, .device = d));
        CHECK_SAME(ct_ones(CT_DIMS(2, 3), .dtype = dtype, .device = d));
    }
    CHECK_SAME(ct_tril_mask(4, .m = 6, .diagonal = INT64_MAX, .device = d));
    CHECK_SAME(ct_tril_mask(4, .m = 6, .diagonal = INT64_MIN, .device = d));
    CHECK_SAME(ct_one_hot(ct_to(I64(CT_DIMS(2, 2), 0, 3, 1, 1), d), 4));
    CHECK_SAME(ct_sum(ct_full(CT_DIMS(3), 0x1p62, .dtype = CT_I64, .device = d))); /* wraps */
    CHECK_SAME(ct_mean(ct_to(I64(CT_DIMS(2, 2), 1, 2, 4, 8), d), .axes = CT_DIMS(0)));
    CHECK_SAME(ct_var(ct_to(F32(CT_DIMS(1), 3), d))); /* NaN: no degrees of freedom */
}

/* ---- What kernels say about values ---- */

/* The same call on the CPU and in primitives: the same code, and the same text but for the part that it came up in. */
#define CHECK_REFUSED(call)                                                                        \
    do {                                                                                           \
        char texts_[2][512];                                                                       \
        ct_code codes_[2];                                                                         \
        for (int i_ = 0; i_ < 2; i_++) {                                                           \
            const ct_device d = i_ ? device : cpu;                                                 \
            CHECK(!(call));                                                                        \
            codes_[i_] = ct_error_code();                                                          \
            snprintf(texts_[i_], sizeof texts_[i_], "%s", ct_error());                             \
            char *inner_ = strstr(texts_[i_], " (in ");                                            \
            if (inner_) *inner_ = 0;                                                               \
            ct_error_clear();                                                                      \
        }                                                                                          \
        CHECK(codes_[0] == codes_[1] && (codes_[0] == CT_ERR_VALUE || codes_[0] == CT_ERR_INDEX)); \
        CHECK_TEXT(texts_[1], texts_[0]);                                                          \
    } while (0)

TEST(lowerings_refuse_the_values_that_kernels_refuse) {
    const ct_device device = harness_device(HARNESS_PRIMITIVES);
    ct_tensor *p = F32(CT_DIMS(3), 0.5, 1.5, 0.2), *index = I64(CT_DIMS(2), 1, 4), *x = ct_zeros(CT_DIMS(4, 5));
    CHECK_REFUSED(ct_bernoulli(ct_to(p, d)));
    CHECK_REFUSED(ct_bernoulli(ct_to(F64(CT_DIMS(1), NAN), d)));
    CHECK_REFUSED(ct_one_hot(ct_to(index, d), 4));
    CHECK_REFUSED(ct_multinomial(ct_to(F32(CT_DIMS(2), 1, -1), d), 1));
    CHECK_REFUSED(ct_multinomial(ct_to(F32(CT_DIMS(2), 1, INFINITY), d), 1, .replacement = true));
    CHECK_REFUSED(ct_multinomial(ct_to(F32(CT_DIMS(2, 2), 1, 1, 0, 1), d), 2));
    CHECK_REFUSED(ct_multinomial(ct_to(F32(CT_DIMS(2, 2), 1, 1, 0, 0), d), 2, .replacement = true));
    CHECK_REFUSED(ct_index_put(ct_to(x, d), ct_zeros(CT_DIMS(2), .device = d),
                               ((ct_tensor *[]){ct_to(index, d), ct_to(index, d)}), 2));
    CHECK_REFUSED(ct_repeat_interleave(ct_to(x, d), 0, 0, .repeats = ct_to(I64(CT_DIMS(4), 1, -1, 0, 2), d)));
    CHECK_REFUSED(ct_bincount(ct_to(I64(CT_DIMS(2), -1, 4), d)));
    CHECK_REFUSED(ct_embedding(ct_to(x, d), ct_to(index, d)));
    CHECK_REFUSED(ct_ctc_loss(ct_zeros(CT_DIMS(4, 2, 3), .device = d), ct_to(I64(CT_DIMS(3), 1, 2, 1), d),
                              .target_lengths = ct_to(I64(CT_DIMS(2), 2, 2), d)));
}

/* ---- Who reads ---- */

static ct_dtype dtype_of(const opcheck_input *input) {
    if (strcmp(input->domain, "bool") == 0) return CT_BOOL;
    return opcheck_is_index(input) || strcmp(input->domain, "i64") == 0 ? CT_I64 : CT_F32;
}

static ct_tensor *value_of(const opcheck_input *input, int position, ct_device device) {
    const int64_t count = opcheck_count(input->shape);
    double *values = malloc(((size_t)count + 1) * sizeof *values);
    opcheck_fill(input, position, false, values, count);
    ct_tensor *x = ct_to(opcheck_place(dtype_of(input), input->shape, values, OPCHECK_DENSE), device);
    free(values);
    const bool varies = x && ct_dtype_is_float(ct_dtype_of(x)) && !(input->flags & CT_ARG_MUTATED);
    return varies ? ct_set_requires_grad(ct_detach(x), true) : x;
}

/* The sum of squares of those that have a graph; NULL: none has. */
static ct_tensor *squares_of(ct_tensor *const *list, int n) {
    ct_tensor *total = NULL;
    for (int i = 0; i < n; i++) {
        if (!list[i] || !ct_requires_grad(list[i])) continue;
        ct_tensor *term = ct_cast(ct_sum(ct_square(list[i])), CT_F32);
        total = total ? ct_add(total, term) : term;
    }
    return total;
}

/* The op at one sample, and its derivatives of first and second order: how often the device was read; -1 after an error. */
static int reads_at(const opcheck_sample *sample, ct_device device) {
    ct_tensor *in[OPCHECK_INPUTS] = {NULL}, *out[OPCHECK_OUTPUTS] = {NULL}, *xs[OPCHECK_INPUTS],
              *grads[OPCHECK_INPUTS] = {NULL};
    int nx = 0;
    for (int i = 0; i < sample->n_in; i++) {
        if (sample->in[i].skipped) continue;
        if (!(in[i] = value_of(&sample->in[i], i, device))) return -1;
        if (ct_requires_grad(in[i])) xs[nx++] = in[i];
    }
    harness_reads = 0;
    if (!ct_apply(sample->op, in, sample->n_in, sample->attrs, out, sample->n_out)) return -1;
    ct_tensor *first = ct_op_differentiable(sample->op) ? squares_of(out, sample->n_out) : NULL;
    if (first && !ct_grad(&first, 1, NULL, xs, nx, grads, CT_CREATE_GRAPH)) return -1;
    ct_tensor *second = first ? squares_of(grads, nx) : NULL;
    if (second && !ct_backward(second)) return -1;
    return ct_ok() ? harness_reads : -1;
}

static void check_reads(const ct_op *op, ct_device device) {
    opcheck check = {.op = op};
    opcheck_sample sample;
    int most = 0;
    for (const char *at = op->samples; opcheck_next_sample(&check, &at, &sample);) {
        ct_scope {
            if (sample.largest <= 4096) {
                const int count = reads_at(&sample, device);
                harness_check(count >= 0, __FILE__, __LINE__, "%s `%.*s` on %s: %s", op->name, sample.length,
                              sample.text, ct_device_text(device), ct_error());
                ct_error_clear();
                if (count > most) most = count;
            }
        }
        opcheck_free_sample(&sample);
    }
    const bool waits = op->flags & CT_OP_WAITS;
    harness_check((most > 0) == waits, __FILE__, __LINE__, "%s on %s reads values %d times%s", op->name,
                  ct_device_text(device), most, waits ? ", but says that it waits" : "; it does not say that it waits");
}

/* What the process asks for before the first op is made there. */
static void check_all_reads(ct_device device) {
    REQUIRE(ct_set_device(device));
    for (int i = 0; i < ct_op_count(); i++) check_reads(ct_op_at(i), device);
    ct_set_device(cpu);
}

TEST_LIMIT(only_ops_that_say_so_read_values_of_a_device, 300) { check_all_reads(harness_device(HARNESS_ALL_KERNELS)); }
TEST_LIMIT(nor_do_lowerings, 600) { check_all_reads(harness_device(HARNESS_PRIMITIVES)); }

/* ---- What is missing ---- */

TEST(a_backend_without_cast_says_so) {
    const ct_device device = harness_device(HARNESS_NO_KERNELS);
    ct_tensor *x = ct_to(F32(CT_DIMS(3), 1, 2, 3), device);
    CHECK(!ct_cast(x, CT_F64));
    CHECK_ERROR(CT_ERR_UNSUPPORTED, "cast: no kernel of bare takes f32[3], and the op has no lowering (in convert)");
    ct_tensor *half = ct_to(ct_cast(F32(CT_DIMS(2, 2), 1, 2, 3, 4), CT_F16), device);
    CHECK(!ct_softmax(half, 1)); /* whose lowering runs in f32 */
    CHECK_ERROR(CT_ERR_UNSUPPORTED,
                "softmax: no kernel of bare takes f16[2,2], and the op has no lowering (in convert)");
}

/* Whatever is missing: an error that names the backend, and no op that is lowered to itself. */
TEST_LIMIT(every_op_ends_without_any_kernel, 300) {
    const ct_device device = harness_device(HARNESS_NO_KERNELS);
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        opcheck check = {.op = op};
        opcheck_sample sample;
        const char *at = op->samples;
        if (!opcheck_next_sample(&check, &at, &sample)) continue;
        ct_scope {
            ct_tensor *in[OPCHECK_INPUTS] = {NULL}, *out[OPCHECK_OUTPUTS] = {NULL};
            for (int k = 0; k < sample.n_in; k++)
                if (!sample.in[k].skipped) in[k] = value_of(&sample.in[k], k, device);
            CHECK(ct_set_device(device));
            const bool ok = ct_apply(op, in, sample.n_in, sample.attrs, out, sample.n_out);
            ct_set_device(cpu);
            harness_check(ok || (ct_error_code() == CT_ERR_UNSUPPORTED && strstr(ct_error(), "bare")), __FILE__,
                          __LINE__, "%s: %s", op->name, ct_error());
            harness_check(!ok || !is_primitive(op), __FILE__, __LINE__, "%s ran without a kernel", op->name);
            ct_error_clear();
        }
        opcheck_free_sample(&sample);
    }
}
