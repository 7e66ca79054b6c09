/* randperm: the order of n random 64-bit keys. A radix sort by the upper halves, then equal ones by the lower halves and,
 * should those be equal too, by place: the result is a function of the keys alone. */
#include <string.h>

#include "backends/cpu/kernel.h"
#include "core/rng.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, PASSES = 3 };

typedef struct entry {
    uint32_t key, place;
} entry;

static size_t randperm_scratch(const ct_call *call) { return 2 * (size_t)call->out[0]->dims[0] * sizeof(entry); }

static uint32_t low_key(ct_random at, uint32_t place) {
    uint32_t words[4];
    ct__philox(at, place / 2, words);
    return words[2 * (place % 2)];
}

static void sort_pass(const entry *from, entry *to, int64_t n, int shift) {
    uint32_t start[DIGITS] = {0};
    for (int64_t i = 0; i < n; i++) start[from[i].key >> shift & (DIGITS - 1)]++;
    uint32_t sum = 0;
    for (int d = 0; d < DIGITS; d++) {
        uint32_t count = start[d];
        start[d] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++) to[start[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
}

/* Insertion sort of each run of equal keys; with 32-bit keys nearly all are of one. */
static void settle_ties(ct_random at, entry *sorted, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        entry e = sorted[i];
        if (sorted[i - 1].key != e.key) continue;
        uint32_t low = low_key(at, e.place);
        int64_t k = i;
        for (; k > 0 && sorted[k - 1].key == e.key && low_key(at, sorted[k - 1].place) > low; k--) sorted[k] = sorted[k - 1];
        sorted[k] = e;
    }
}

static bool run_randperm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *y = call->out[0];
    int64_t n = y->dims[0], step = y->strides[0];
    entry *a = call->scratch, *b = a + n;
    for (int64_t i = 0; i < n; i += 2) {
        uint32_t words[4];
        ct__philox(call->random, (uint64_t)i / 2, words);
        a[i] = (entry){words[1], (uint32_t)i};
        if (i + 1 < n) a[i + 1] = (entry){words[3], (uint32_t)i + 1};
    }
    for (int pass = 0; pass < PASSES && n > 1; pass++) {
        sort_pass(a, b, n, pass * DIGIT_BITS);
        entry *swap = a;
        a = b;
        b = swap;
    }
    settle_ties(call->random, a, n);
    if (y->dtype == CT_I64) {
        int64_t *to = CT_AT(int64_t, y);
        for (int64_t i = 0; i < n; i++) to[i * step] = a[i].place;
    } else {
        int32_t *to = CT_AT(int32_t, y);
        for (int64_t i = 0; i < n; i++) to[i * step] = (int32_t)a[i].place;
    }
    return true;
}

CT_KERNELS(randperm) = {{"radix_sort", NULL, randperm_scratch, run_randperm}, {0}};
