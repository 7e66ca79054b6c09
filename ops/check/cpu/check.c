/* check_range: a look at every element, in order, so that the first one that is wrong is the one that is named; then a copy. */
#include <stdio.h>
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"
#include "core/dtype.h"
#include "core/error.h"
#include "ops/create/cpu/rows.h"

#include "gen/check.attrs.h"

static bool refuse(const check_range_attrs *a, double value, int64_t element) {
    char text[256];
    size_t used = 0;
    for (const char *c = a->says.s; *c && c < a->says.s + sizeof a->says.s && used < sizeof text - 32; c++) {
        if (*c == '%') used += (size_t)snprintf(text + used, sizeof text - used, "%.15g", value);
        else if (*c == '#') used += (size_t)snprintf(text + used, sizeof text - used, "%lld", (long long)element);
        else text[used++] = *c;
    }
    text[used] = 0;
    return ct_fail(a->index ? CT_ERR_INDEX : CT_ERR_VALUE, NULL, "%s", text);
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
            if (!(value >= a->lo && value <= a->hi)) return refuse(a, value, first + i);
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
