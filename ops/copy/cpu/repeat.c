/* The numbers that repeat_interleave chooses by. One thread: the vector is as long as one axis. */
#include "backends/cpu/kernel.h"

#include "gen/copy.attrs.h"

static const int64_t most = (int64_t)1 << 52; /* elements */

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
        if (n < 0) return ct__wrong_count(call, 0, NULL, i, n, 0, CT_NO_BOUND);
        if (__builtin_add_overflow(total, n, &total) || total > most)
            return ct__wrong_count(call, 0, "the sum of repeats up to element", i, INT64_MAX, 0, most);
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
        if (n < 0 || n > y->dims[0] - written) return ct__wrong_count(call, 0, NULL, i, n, 0, y->dims[0] - written);
        for (int64_t k = 0; k < n; k++, written++) out[written * y->strides[0]] = i;
    }
    return written == y->dims[0] || ct__wrong_count(call, 0, "the sum of repeats", -1, written, y->dims[0], y->dims[0]);
}

CT_KERNELS(copy_repeat) = {
    CT_CANDIDATES(repeat_total, {"repeat_total", NULL, NULL, run_total}),
    CT_CANDIDATES(repeat_index, {"repeat_index", NULL, NULL, run_index}),
    {0},
};
