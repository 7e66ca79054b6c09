/* The numbers that repeat_interleave chooses by. One thread: the vector is as long as one axis. */
#include "backends/cpu/kernel.h"

#include "gen/copy.attrs.h"

static int64_t repeats_at(const ct_view *repeats, int64_t i) {
    const int64_t at = i * repeats->strides[0];
    return repeats->dtype == CT_I32 ? CT_AT(const int32_t, repeats)[at] : CT_AT(const int64_t, repeats)[at];
}

static bool run_total(const ct_call *call, ct_stream *stream) {
    const ct_view *repeats = call->in[0];
    int64_t total = 0;
    (void)stream;
    for (int64_t i = 0; i < repeats->dims[0]; i++) {
        const int64_t n = repeats_at(repeats, i);
        if (n < 0)
            return ct_fail(CT_ERR_VALUE, "repeat_interleave", "repeats[%lld] is %lld; it is 0 or more", (long long)i,
                           (long long)n);
        if (__builtin_add_overflow(total, n, &total) || total > (int64_t)1 << 52)
            return ct_fail(CT_ERR_VALUE, "repeat_interleave", "repeats asks for more elements than can be counted");
    }
    *CT_AT(int64_t, call->out[0]) = total;
    return true;
}

static bool run_index(const ct_call *call, ct_stream *stream) {
    const ct_view *repeats = call->in[0], *y = call->out[0];
    int64_t *out = CT_AT(int64_t, y), written = 0;
    (void)stream;
    for (int64_t i = 0; i < repeats->dims[0]; i++) {
        const int64_t n = repeats_at(repeats, i);
        if (n < 0 || n > y->dims[0] - written)
            return ct_fail(CT_ERR_VALUE, call->op->name, "repeats[%lld] is %lld, and %lld of total, %lld, are left",
                           (long long)i, (long long)n, (long long)(y->dims[0] - written), (long long)y->dims[0]);
        for (int64_t k = 0; k < n; k++, written++) out[written * y->strides[0]] = i;
    }
    return written == y->dims[0] || ct_fail(CT_ERR_VALUE, call->op->name, "repeats adds up to %lld, not to total, %lld",
                                            (long long)written, (long long)y->dims[0]);
}

CT_KERNELS(copy_repeat) = {
    CT_CANDIDATES(repeat_total, {"repeat_total", NULL, NULL, run_total}),
    CT_CANDIDATES(repeat_index, {"repeat_index", NULL, NULL, run_index}),
    {0},
};
