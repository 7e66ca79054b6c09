/* check_range: a look at every element, in order, so that the first one that is wrong is the one that is named; then a copy. */
#include "ops/check/check.h"
#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"
#include "core/dtype.h"
#include "ops/create/cpu/rows.h"

#include "gen/check.attrs.h"

static int64_t whole(double bound) {
    return bound >= 0x1p63 ? CT_NO_BOUND : bound < -0x1p63 ? INT64_MIN : (int64_t)bound;
}

static bool refuse(const ct_call *call, double value, int64_t element) {
    const check_range_attrs *a = call->attrs;
    const ct_op *of = ct_op_find(a->of.s);
    const bool element_of = a->what == CT_CHECKED_ELEMENT;
    const ct_wrong_value wrong = {.op = of ? of : call->op,
                                  .called = call->called,
                                  .flags = call->flags,
                                  .code = a->index ? CT_ERR_INDEX : CT_ERR_VALUE,
                                  .argument = of ? (int)a->argument : 0,
                                  .what = ct__checked_texts[a->what],
                                  .is_real = ct_dtype_is_float(call->in[0]->dtype),
                                  .position = element_of || ct__checked_by_row(a->what) ? element : -1,
                                  .value = whole(value),
                                  .low = whole(a->lo),
                                  .high = whole(a->hi),
                                  .real_value = value,
                                  .real_low = a->lo,
                                  .real_high = a->hi};
    return ct_fail_value(&wrong);
}

static bool run_check_range(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const check_range_attrs *a = call->attrs;
    const ct_view *x = call->in[0];
    const int64_t size = (int64_t)ct_dtype_size(x->dtype);
    const rows all = rows_of(x, NULL);
    for (int64_t first = 0; first < all.count;) {
        const rows_run run = rows_at(&all, first, all.count);
        const char *at = (const char *)ct__address(x, (size_t)size) + run.at[0] * size;
        for (int64_t i = 0; i < run.n; i++) {
            const double value = ct__dtype_get(x->dtype, at + i * run.step[0] * size);
            if (!(value >= a->lo && value <= a->hi)) return refuse(call, value, first + i);
        }
        first += run.n;
    }
    ct__copy_view(call->out[0], x);
    return true;
}

CT_KERNELS(check_check) = {
    CT_CANDIDATES(check_range, {"look", NULL, NULL, run_check_range}),
    {0},
};
