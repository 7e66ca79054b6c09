/* randperm: the order of n random 64-bit keys. A radix sort by as many of the upper bits as leave few of them equal, then an
 * insertion sort by the others and, should all 64 be equal, by place: the result is a function of the keys alone. */
#include <string.h>

#include "backends/cpu/kernel.h"
#include "ops/random/cpu/philox.h"

#include "gen/random.attrs.h"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, MOST_PASSES = 4, FEWER_PASSES = 1 << 3 * DIGIT_BITS };

typedef struct entry {
    uint32_t key, place;
} entry;

static size_t randperm_scratch(const ct_call *call) { return 2 * (size_t)call->out[0]->dims[0] * sizeof(entry); }

static uint32_t low_key(ct_random at, uint32_t place) {
    uint32_t words[4];
    ct__philox(at, place / 2, words);
    return words[2 * (place % 2)];
}

/* Where each digit's elements begin, from how many there are. */
static void sum_up(uint32_t *counts) {
    uint32_t sum = 0;
    for (int d = 0; d < DIGITS; d++) {
        uint32_t count = counts[d];
        counts[d] = sum;
        sum += count;
    }
}

static void sort_pass(const entry *from, entry *to, int64_t n, int shift, uint32_t *start) {
    for (int64_t i = 0; i < n; i++) to[start[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
}

/* Element i has the words 2i and 2i + 1 of the call; the second is the upper half of its key. */
static void make_keys(ct_random at, entry *to, int64_t n, const int *shifts, uint32_t counts[MOST_PASSES][DIGITS]) {
    enum { BLOCK = 256 };
    uint32_t words[2 * BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int m = (int)ct__min64(BLOCK, n - i);
        philox_fill(at, 2 * (uint64_t)i, 2 * m, words);
        for (int k = 0; k < m; k++) {
            uint32_t key = words[2 * k + 1];
            to[i + k] = (entry){key, (uint32_t)(i + k)};
            for (int pass = 0; shifts[pass] >= 0; pass++) counts[pass][key >> shifts[pass] & (DIGITS - 1)]++;
        }
    }
}

static bool is_after(ct_random at, entry a, entry b) {
    return a.key > b.key || (a.key == b.key && low_key(at, a.place) > low_key(at, b.place));
}

static void settle(ct_random at, entry *sorted, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        entry e = sorted[i];
        int64_t k = i;
        for (; k > 0 && is_after(at, sorted[k - 1], e); k--) sorted[k] = sorted[k - 1];
        sorted[k] = e;
    }
}

static bool run_randperm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *y = call->out[0];
    int64_t n = y->dims[0], step = y->strides[0];
    entry *a = ct__scratch(call), *b = a + n;
    uint32_t counts[MOST_PASSES][DIGITS] = {{0}};
    const int *shifts = n <= FEWER_PASSES ? (const int[]){8, 16, 24, -1} : (const int[]){0, 8, 16, 24, -1};
    make_keys(call->random, a, n, shifts, counts);
    for (int pass = 0; shifts[pass] >= 0; pass++) {
        sum_up(counts[pass]);
        sort_pass(a, b, n, shifts[pass], counts[pass]);
        entry *swap = a;
        a = b;
        b = swap;
    }
    settle(call->random, a, n);
    if (y->dtype == CT_I64) {
        int64_t *to = CT_AT(int64_t, y);
        for (int64_t i = 0; i < n; i++) to[i * step] = a[i].place;
    } else {
        int32_t *to = CT_AT(int32_t, y);
        for (int64_t i = 0; i < n; i++) to[i * step] = (int32_t)a[i].place;
    }
    return true;
}

CT_KERNELS(random_randperm) = {
    CT_CANDIDATES(randperm, {"radix_sort", NULL, randperm_scratch, run_randperm}),
    {0},
};
