/* On WebGPU what is moved, made and summed by index, at sizes and in layouts that the samples of the ops do not
 * have: bit for bit as on the CPU, in every dtype. */
#include <math.h>
#include <string.h>

#include "tests/webgpu_device.h"

static const ct_dtype dtypes[] = {CT_F32, CT_F16, CT_BF16, CT_I8, CT_I16, CT_I32, CT_I64, CT_U8, CT_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static uint64_t state = 88172645463325252u;
static int64_t below(int64_t n) { /* xorshift: the same sizes at every run */
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int64_t)(state % (uint64_t)n);
}

static ct_tensor *numbers(ct_dims shape, ct_dtype dtype) {
    return ct_cast(ct_sub_s(ct_randint(shape, 0, 200), dtype == CT_U8 || dtype == CT_BOOL ? 0 : 100), dtype);
}

static bool alike(const char *what, ct_tensor *a, ct_tensor *b) {
    ct_tensor *back = b ? ct_to(b, (ct_device){CT_CPU, 0}) : NULL;
    const bool same = a && back && harness_same_bits(a, back);
    if (!same) printf("%s of %s: %s\n", what, a ? ct_tensor_text(a) : "nothing", ct_ok() ? "other bits" : ct_error());
    return same;
}

/* A view of x that the numbers from seed on choose. */
static ct_tensor *some_view(ct_tensor *x, uint64_t seed) {
    const uint64_t kept = state;
    state = seed;
    for (int k = 0; k < 3 && x; k++) {
        const int axis = (int)below(ct_ndim(x));
        const int64_t size = ct_dim(x, axis), start = below(size);
        ct_dims shape = ct_shape(ct_unsqueeze(x, axis));
        switch (below(4)) {
        case 0: x = ct_transpose(x, axis, below(ct_ndim(x))); break;
        case 1: x = ct_narrow(x, axis, start, size - start); break;
        case 2: x = ct_slice(x, axis, start, .step = 1 + below(3)); break;
        default: shape.d[axis] = 1 + below(3), x = ct_expand(ct_unsqueeze(x, axis), shape); break;
        }
    }
    state = kept;
    return x;
}

TEST_LIMIT(strided_copies_keep_every_bit_and_what_lies_beside_them, 240) {
    WEBGPU(d);
    for (int i = 0; i < 4 * DTYPES; i++)
        ct_scope {
            const ct_dtype dtype = dtypes[i % DTYPES];
            const ct_dims shape = CT_DIMS(1 + below(5), 1 + below(40), 1 + below(40));
            ct_tensor *x = numbers(shape, dtype), *y = ct_to(x, d), *whole = ct_clone(numbers(shape, dtype)),
                      *there = ct_clone(ct_to(whole, d));
            const uint64_t seed = state;
            CHECK(alike("clone", ct_clone(some_view(x, seed)), ct_clone(some_view(y, seed))));
            const int axis = (int)below(3);
            const int64_t start = below(shape.d[axis]), length = 1 + below(shape.d[axis] - start);
            CHECK(ct_assign(ct_narrow(whole, axis, start, length), ct_narrow(x, axis, 0, length)) &&
                  ct_assign(ct_narrow(there, axis, start, length), ct_narrow(y, axis, 0, length)));
            CHECK(alike("assign", whole, there));
            CHECK(ct_fill(ct_narrow(whole, axis, start, length), 1) &&
                  ct_fill(ct_narrow(there, axis, start, length), 1));
            CHECK(alike("fill", whole, there));
            CHECK(alike("cat", ct_cat(((ct_tensor *[]){x, whole}), 2, axis),
                        ct_cat(((ct_tensor *[]){y, there}), 2, axis)));
        }
}

TEST_LIMIT(transposes_through_tiles_keep_every_bit, 240) {
    WEBGPU(d);
    static const int64_t shapes[][3] = {{1, 167, 130}, {50, 18, 19}};
    for (int i = 0; i < 2 * DTYPES; i++)
        ct_scope {
            const int64_t *s = shapes[i / DTYPES];
            ct_tensor *x = numbers(CT_DIMS(s[0], s[1], s[2]), dtypes[i % DTYPES]);
            CHECK(alike("transpose", ct_clone(ct_transpose(x, 1, 2)), ct_clone(ct_transpose(ct_to(x, d), 1, 2))));
        }
}

TEST_LIMIT(lines_are_those_that_f64_gives, 120) {
    WEBGPU(d);
    for (int i = 0; i < 4 * DTYPES; i++)
        ct_scope {
            const ct_dtype dtype = dtypes[i % DTYPES];
            const int64_t n = 1 + below(300);
            const double start = (double)(below(2000001) - 1000000) / 7 * pow(10, (double)(below(9) - 6)),
                         step = (double)(1 + below(1000)) / 3 * pow(10, (double)(below(7) - 5)),
                         stop = start + step * ((double)n - 0.5);
            CHECK(alike("arange", ct_arange(start, stop, step, .dtype = dtype),
                        ct_arange(start, stop, step, .dtype = dtype, .device = d)));
            CHECK(alike("linspace", ct_linspace(start, stop, n, .dtype = dtype),
                        ct_linspace(start, stop, n, .dtype = dtype, .device = d)));
            CHECK(alike("full", ct_full(CT_DIMS(n), start, .dtype = dtype),
                        ct_full(CT_DIMS(n), start, .dtype = dtype, .device = d)));
        }
}

/* Few are looked through for each place, many are sorted: in one block or in several, into a few rows that each get
 * very many, or into many. Small whole numbers have exact sums in any order, so that all bits have to be the same. */
TEST_LIMIT(what_is_sent_by_index_arrives_as_on_the_cpu, 240) {
    WEBGPU(d);
    static const int64_t sizes[][3] = {{5, 3, 40}, {7, 4, 600}, {300, 12, 1100}, {5, 1, 1300}, {1500, 3, 1200}};
    static const ct_dtype some[] = {CT_F32, CT_F16, CT_I64, CT_U8}; /* one of each way to be stored */
    for (int i = 0; i < 5 * 4; i++)
        ct_scope {
            const int64_t rows = sizes[i / 4][0], width = sizes[i / 4][1], n = sizes[i / 4][2];
            const ct_dtype dtype = some[i % 4];
            ct_tensor *x = ct_cast(ct_randint(CT_DIMS(rows, width), 0, 2), dtype),
                      *src = ct_cast(ct_lt_s(ct_rand(CT_DIMS(n, width)), 0.1), dtype),
                      *index = ct_cast(ct_randint(CT_DIMS(n), 0, rows), i / 4 % 2 ? CT_I32 : CT_I64),
                      *each = ct_cast(ct_randint(CT_DIMS(n, width), 0, rows), i / 4 % 2 ? CT_I64 : CT_I32);
            ct_tensor *gx = ct_to(x, d), *gsrc = ct_to(src, d), *gindex = ct_to(index, d), *geach = ct_to(each, d);
            CHECK(alike("index_add", ct_index_add(x, 0, index, src), ct_index_add(gx, 0, gindex, gsrc)));
            CHECK(alike("index_copy", ct_index_copy(x, 0, index, src), ct_index_copy(gx, 0, gindex, gsrc)));
            CHECK(alike("scatter_add", ct_scatter_add(x, 0, each, src), ct_scatter_add(gx, 0, geach, gsrc)));
            CHECK(alike("scatter", ct_scatter(x, 0, each, src), ct_scatter(gx, 0, geach, gsrc)));
            CHECK(alike("scatter_reduce", ct_scatter_reduce(x, 0, each, src, CT_FOLD_MAX),
                        ct_scatter_reduce(gx, 0, geach, gsrc, CT_FOLD_MAX)));
            CHECK(alike("index_select", ct_index_select(x, 0, index), ct_index_select(gx, 0, gindex)));
            CHECK(alike("gather", ct_gather(x, 0, each), ct_gather(gx, 0, geach)));
        }
}

TEST_LIMIT(a_bad_index_among_many_is_told_in_the_words_of_the_cpu, 120) {
    WEBGPU(d);
    enum { N = 3000 };
    static int64_t places[N];
    char texts[2][3][256] = {{{0}}};
    places[2777] = (int64_t)1 << 40;
    for (int i = 0; i < 2; i++) {
        const ct_device on = i ? d : (ct_device){CT_CPU, 0};
        for (int k = 0; k < 3; k++)
            ct_scope {
                ct_tensor *x = ct_zeros(CT_DIMS(5, 2), .device = on), *src = ct_zeros(CT_DIMS(N, 2), .device = on),
                          *index = ct_to(ct_from_data(places, CT_DIMS(N), CT_I64), on);
                ct_tensor *y = k == 0   ? ct_index_add(x, 0, index, src)
                               : k == 1 ? ct_scatter(x, 0, ct_unsqueeze(index, 1), src)
                                        : ct_take(x, index);
                ct_item(ct_sum(y));
                snprintf(texts[i][k], sizeof texts[i][k], "%s", ct_ok() ? "no error" : ct_error());
                ct_error_clear();
            }
    }
    for (int k = 0; k < 3; k++) {
        CHECK_TEXT(texts[1][k], texts[0][k]);
        CHECK(strstr(texts[0][k], "1099511627776"));
    }
}
