/* Max pooling on WebGPU where rows are whole quads: the way of an invocation for four results. Other sizes are those of `cotangent check`.
 * Without a device all of it is skipped, and says why. */
#include <math.h>

#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

typedef struct window {
    int64_t kernel[2], stride, pad, height, width;
} window;

/* Few values, so that there are ties, and rows of those that compare in ways of their own. */
static ct_tensor *image(const window *w, ct_dtype dtype) {
    ct_tensor *x = ct_cast(ct_randint(CT_DIMS(2, 3, w->height, w->width), -4, 5), CT_F32);
    ct_fill(ct_slice(ct_select(x, 0, 0), 1, 1, .stop = CT_SET(4)), -INFINITY);
    ct_fill(ct_slice(ct_select(ct_select(x, 0, 1), 0, 1), 1, 2, .stop = CT_SET(9), .step = 3), NAN);
    return ct_cast(x, dtype);
}

static void check_window(ct_device d, const window *w, ct_dtype dtype) {
    ct_scope {
        ct_tensor *x = image(w, dtype), *there = ct_to(x, d);
        ct_set_requires_grad(x, true);
        ct_set_requires_grad(there, true);
        const ct_dims kernel = CT_DIMS(w->kernel[0], w->kernel[1]);
        ct_tensor *y = ct_max_pool2d(x, kernel, .stride = w->stride, .pad = w->pad);
        ct_tensor *z = ct_max_pool2d(there, kernel, .stride = w->stride, .pad = w->pad);
        CHECK(y && z && ct_shape(y).d[3] % 4 == 0);
        ct_tensor *g = ct_cast(ct_randint(ct_shape(y), -3, 4), dtype), *g_there = ct_to(g, d), *dx = NULL, *dz = NULL;
        CHECK(ct_grad(&y, 1, &g, &x, 1, &dx, 0) && ct_grad(&z, 1, &g_there, &there, 1, &dz, 0));
        harness_check(harness_same_bits(ct_to(z, cpu), y) && harness_same_bits(ct_to(dz, cpu), dx), __FILE__, __LINE__,
                      "%s, kernel %lld x %lld, stride %lld, pad %lld, %lld x %lld: %s", ct_dtype_name(dtype),
                      (long long)w->kernel[0], (long long)w->kernel[1], (long long)w->stride, (long long)w->pad,
                      (long long)w->height, (long long)w->width, ct_error());
        ct_error_clear();
    }
}

TEST_LIMIT(windows_over_rows_of_whole_quads_are_the_cpus, 300) {
    static const window windows[] = {
        {{3, 3}, 2, 1, 24, 24}, {{2, 2}, 2, 0, 10, 8},  {{3, 3}, 1, 1, 7, 12}, {{2, 4}, 2, 1, 13, 16},
        {{4, 3}, 1, 1, 9, 20},  {{3, 2}, 2, 0, 11, 24}, {{3, 3}, 2, 1, 6, 32}, {{4, 4}, 2, 1, 9, 16},
    };
    WEBGPU(d);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        check_window(d, &windows[i], CT_F32);
        if (i < 2) check_window(d, &windows[i], i ? CT_BF16 : CT_F16);
    }
}
