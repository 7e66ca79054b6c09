/* Random convolutions on WebGPU against the CPU in f64 (tests/random_conv.h). Without a device all of it is skipped, and says why. */
#include "tests/random_conv.h"
#include "tests/webgpu_device.h"

/* CT_TEST_CONVOLUTIONS: how many, in all; a few where nobody says. */
static int half_of_them(void) {
    const char *text = getenv("CT_TEST_CONVOLUTIONS");
    return (text ? atoi(text) : 24) / 2;
}

TEST_LIMIT(random_convolutions_by_tiles_agree_with_the_cpu, 300) {
    webgpu_as_for_a_gpu();
    WEBGPU(d);
    sweep(d, 0, half_of_them());
}
TEST_LIMIT(random_convolutions_agree_with_the_cpu, 300) {
    WEBGPU(d);
    sweep(d, 1000, 1000 + half_of_them());
}

/* Sizes that occur in networks: larger than what is computed element by element. */
static const config usual[] = {
    {.rank = 2,
     .batch = 3,
     .groups = 1,
     .in_each = 24,
     .out_each = 72,
     .in = {14, 12},
     .kernel = {3, 3},
     .pads = {1, 1, 1, 1}},
    {.rank = 2, .batch = 4, .groups = 1, .in_each = 64, .out_each = 36, .in = {13, 14}, .kernel = {1, 1}},
    {.rank = 2,
     .batch = 2,
     .groups = 1,
     .in_each = 3,
     .out_each = 68,
     .in = {31, 32},
     .kernel = {7, 7},
     .stride = {2, 2},
     .pads = {3, 3, 3, 3}},
    {.rank = 2,
     .batch = 3,
     .groups = 3,
     .in_each = 18,
     .out_each = 22,
     .in = {9, 16},
     .kernel = {3, 3},
     .pads = {1, 2, 0, 1}},
    {.rank = 2,
     .batch = 3,
     .groups = 1,
     .in_each = 33,
     .out_each = 35,
     .in = {11, 9},
     .kernel = {5, 3},
     .stride = {1, 3},
     .pads = {2, 1, 0, 2}},
    {.rank = 1, .batch = 5, .groups = 1, .in_each = 16, .out_each = 96, .in = {130}, .kernel = {9}, .pads = {4, 4}},
    {.rank = 3,
     .batch = 1,
     .groups = 1,
     .in_each = 12,
     .out_each = 28,
     .in = {6, 8, 8},
     .kernel = {3, 3, 2},
     .pads = {1, 1, 1, 1, 1, 0}},
    {.rank = 2,
     .batch = 2,
     .groups = 1,
     .in_each = 32,
     .out_each = 20,
     .in = {12, 10},
     .kernel = {4, 5},
     .stride = {2, 3},
     .pads = {1, 1, 2, 1},
     .transposed = true},
    {.rank = 2,
     .batch = 2,
     .groups = 32,
     .in_each = 1,
     .out_each = 1,
     .in = {57, 41},
     .kernel = {5, 3},
     .stride = {1, 2},
     .pads = {2, 2, 1, 1}},
};
enum { USUAL = sizeof usual / sizeof *usual };

static config usual_one(int i, ct_dtype dtype, bool last) {
    config c = usual[i];
    c.dtype = dtype, c.last = last, c.exact = true, c.bias = true;
    for (int a = 0; a < c.rank; a++) {
        if (!c.stride[a]) c.stride[a] = 1;
        c.dilation[a] = 1 + (i == 4);
    }
    return c;
}

static void check_usual(ct_device d) {
    static const ct_dtype dtypes[] = {CT_F32, CT_F32, CT_BF16, CT_F32, CT_F16};
    for (int i = 0; i < USUAL * 2; i++) {
        const config c = usual_one(i % USUAL, dtypes[i % 5], i / USUAL);
        if (!check(&c, d, unit(c.dtype))) break;
    }
}

TEST_LIMIT(usual_sizes_agree_in_both_layouts, 300) {
    WEBGPU(d);
    check_usual(d);
}

TEST_LIMIT(usual_sizes_by_tiles_agree_in_both_layouts, 300) {
    webgpu_as_for_a_gpu();
    WEBGPU(d);
    check_usual(d);
}

TEST_LIMIT(tiles_and_direct_loops_both_serve, 120) {
    WEBGPU(d);
    harness_log_start();
    const config large = usual_one(0, CT_F32, false), thin = usual_one(8, CT_F32, false);
    CHECK(check(&large, d, unit(CT_F32)) && check(&thin, d, unit(CT_F32)));
    harness_log_stop();
    int tiles = 0, direct = 0;
    for (int i = 0; harness_log_line(i); i++) {
        tiles += strstr(harness_log_line(i), "conv") && strstr(harness_log_line(i), " tiles");
        direct += strstr(harness_log_line(i), "conv") && strstr(harness_log_line(i), " direct");
    }
    CHECK(tiles >= 3 && direct >= 3);
}

/* Sums are divided by sizes alone. */
TEST_LIMIT(convolutions_by_tiles_have_the_same_bits_at_every_run, 120) {
    webgpu_as_for_a_gpu();
    WEBGPU(d);
    for (int i = 0; i < USUAL; i += 4)
        ct_scope {
            const config c = usual_one(i, CT_F32, i % 2);
            const int ins = c.groups * c.in_each, outs = c.groups * c.out_each;
            ct_tensor *in[4] = {
                ct_set_requires_grad(place(&c, numbers(shape_of(&c, c.batch, ins, c.in, false)), d, false), true),
                ct_set_requires_grad(place(&c, numbers(shape_of(&c, outs, c.in_each, c.kernel, true)), d, false), true),
                ct_set_requires_grad(place(&c, numbers(CT_DIMS(outs)), d, false), true), NULL};
            ct_tensor *first[4] = {0}, *g = NULL;
            for (int turn = 0; turn < 2; turn++) {
                ct_tensor *made[4] = {run(&c, in, false), NULL, NULL, NULL};
                if (!g) g = place(&c, numbers(ct_shape(made[0])), d, false);
                REQUIRE(ct_grad(&made[0], 1, &g, in, 3, made + 1, 0));
                for (int k = 0; k < 4; k++) {
                    made[k] = ct_to(made[k], cpu);
                    if (turn == 0) first[k] = made[k];
                    CHECK(made[k] && first[k] && harness_same_bits(first[k], made[k]));
                }
            }
        }
}
