/* A template: sorting and selecting one kind of items. Included by items.c for narrow and for wide ones, with
 *   ITEM           the type
 *   ITEM_FN(name)  names of the functions
 *   LESS(a, b)     the order, place included
 *   DIGIT(a, shift, mask)  bits of the key
 *   PLACE(a)       the place */

static void ITEM_FN(insertion_sort)(ITEM *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        ITEM item = a[i];
        int64_t j = i;
        for (; j > 0 && LESS(item, a[j - 1]); j--) a[j] = a[j - 1];
        a[j] = item;
    }
}

static void ITEM_FN(merge)(ITEM *to, const ITEM *a, int64_t n, const ITEM *b, int64_t m) {
    while (n > 0 && m > 0) {
        bool second = LESS(*b, *a);
        *to++ = second ? *b : *a;
        b += second;
        m -= second;
        a += !second;
        n -= !second;
    }
    memcpy(to, a, (size_t)n * sizeof *a);
    memcpy(to + n, b, (size_t)m * sizeof *b);
}

/* Short runs by insertion, then merged back and forth. */
static void ITEM_FN(merge_sort)(ITEM *a, ITEM *spare, int64_t n) {
    enum { RUN = 16 };
    for (int64_t i = 0; i < n; i += RUN) ITEM_FN(insertion_sort)(a + i, n - i < RUN ? n - i : RUN);
    ITEM *from = a, *to = spare;
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t left = n - i < run ? n - i : run, right = n - i - left < run ? n - i - left : run;
            ITEM_FN(merge)(to + i, from + i, left, from + i + left, right);
        }
        ITEM *t = from;
        from = to;
        to = t;
    }
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}

/* Digits from the least significant; those that are the same in all items cost nothing. */
static ITEM *ITEM_FN(radix_sort)(ITEM *a, ITEM *spare, int bits, int64_t n) {
    uint32_t counts[8][RADIX];
    int digits = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    memset(counts, 0, (size_t)digits * sizeof counts[0]);
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < digits; d++) counts[d][DIGIT(a[i], d * DIGIT_BITS, RADIX - 1)]++;
    for (int d = 0; d < digits; d++) {
        uint32_t *count = counts[d], start = 0;
        if (count[DIGIT(a[0], d * DIGIT_BITS, RADIX - 1)] == n) continue;
        for (int k = 0; k < RADIX; k++) {
            uint32_t c = count[k];
            count[k] = start;
            start += c;
        }
        for (int64_t i = 0; i < n; i++) spare[count[DIGIT(a[i], d * DIGIT_BITS, RADIX - 1)]++] = a[i];
        ITEM *t = a;
        a = spare;
        spare = t;
    }
    return a;
}

static ITEM *ITEM_FN(sort)(ITEM *a, ITEM *spare, int bits, int64_t n) {
    if (n > 192 && n < UINT32_MAX) return ITEM_FN(radix_sort)(a, spare, bits, n);
    if (n <= 24) ITEM_FN(insertion_sort)(a, n);
    else ITEM_FN(merge_sort)(a, spare, n);
    return a;
}

/* ---- One long line over the threads ---- */

/* Four histograms, because neighbors often have the same digit and would wait for each other's count. */
static void ITEM_FN(count_task)(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const radix_pass *p = ctx;
    int64_t i = chunk * p->chunk, to = i + p->chunk < p->n ? i + p->chunk : p->n;
    uint32_t part[4][RADIX] = {{0}}, *count = p->counts + chunk * RADIX;
    const ITEM *a = p->from;
    for (; i + 4 <= to; i += 4)
        for (int k = 0; k < 4; k++) part[k][DIGIT(a[i + k], p->shift, RADIX - 1)]++;
    for (; i < to; i++) part[0][DIGIT(a[i], p->shift, RADIX - 1)]++;
    for (int k = 0; k < RADIX; k++) count[k] = part[0][k] + part[1][k] + part[2][k] + part[3][k];
}

static void ITEM_FN(scatter_task)(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const radix_pass *p = ctx;
    int64_t from = chunk * p->chunk, to = from + p->chunk < p->n ? from + p->chunk : p->n;
    uint32_t *place = p->counts + chunk * RADIX;
    const ITEM *a = p->from;
    ITEM *b = p->to;
    const int shift = p->shift;
    for (int64_t i = from; i < to; i++) b[place[DIGIT(a[i], shift, RADIX - 1)]++] = a[i];
}

static ITEM *ITEM_FN(sort_parallel)(ITEM *a, ITEM *spare, uint32_t *counts, int bits, int64_t n) {
    radix_pass p = {.counts = counts, .n = n, .chunk = long_chunk(n)};
    int64_t chunks = (n + p.chunk - 1) / p.chunk;
    for (p.shift = 0; p.shift < bits; p.shift += DIGIT_BITS) {
        p.from = a;
        p.to = spare;
        ct__parallel(chunks, ITEM_FN(count_task), &p);
        if (!places_from_counts(&p, chunks)) continue;
        ct__parallel(chunks, ITEM_FN(scatter_task), &p);
        ITEM *t = a;
        a = spare;
        spare = t;
    }
    return a;
}

/* ---- Selection ---- */

/* Hoare's, with the median of three as pivot; a sequence of bad pivots ends in a sort by heap. */
static void ITEM_FN(sift)(ITEM *a, int64_t i, int64_t n) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && LESS(a[child], a[child + 1])) child++;
        if (!LESS(a[i], a[child])) return;
        ITEM t = a[i];
        a[i] = a[child];
        a[child] = t;
    }
}

static void ITEM_FN(heap_sort)(ITEM *a, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; i--) ITEM_FN(sift)(a, i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        ITEM t = a[0];
        a[0] = a[end];
        a[end] = t;
        ITEM_FN(sift)(a, 0, end);
    }
}

static void ITEM_FN(select)(ITEM *a, int64_t n, int64_t k) {
    int64_t lo = 0, hi = n - 1, at = k - 1;
    int patience = 64;
    while (hi - lo > 16) {
        if (patience-- == 0) {
            ITEM_FN(heap_sort)(a + lo, hi - lo + 1);
            return;
        }
        int64_t middle = lo + (hi - lo) / 2;
        ITEM x = a[lo], y = a[middle], z = a[hi], pivot;
        if (LESS(x, y)) pivot = LESS(y, z) ? y : LESS(x, z) ? z : x;
        else pivot = LESS(x, z) ? x : LESS(y, z) ? z : y;
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (LESS(a[i], pivot)) i++;
            while (LESS(pivot, a[j])) j--;
            if (i > j) break;
            ITEM t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
        if (at <= j) hi = j;
        else if (at >= i) lo = i;
        else return;
    }
    ITEM_FN(insertion_sort)(a + lo, hi - lo + 1);
}

static void ITEM_FN(places)(const ITEM *items, int64_t n, int64_t *y, int64_t step) {
    for (int64_t i = 0; i < n; i++) y[i * step] = (int64_t)PLACE(items[i]);
}

#define VALUES(U)                                                                                                 \
    case sizeof(U):                                                                                               \
        for (int64_t i = 0; i < n; i++) ((U *)y)[i * y_step] = ((const U *)x)[(int64_t)PLACE(items[i]) * x_step]; \
        break;
static void ITEM_FN(values)(const ITEM *items, int64_t n, const void *x, int64_t x_step, void *y, int64_t y_step,
                            size_t element) {
    switch (element) {
        VALUES(uint8_t)
        VALUES(uint16_t)
        VALUES(uint32_t)
        VALUES(uint64_t)
    }
}
#undef VALUES

static int64_t ITEM_FN(keep)(ITEM *kept, int64_t count, const ITEM *more, int64_t n, int64_t bar) {
    if (bar < 0) {
        memcpy(kept + count, more, (size_t)n * sizeof *more);
        return count + n;
    }
    ITEM limit = kept[bar];
    for (int64_t i = 0; i < n; i++)
        if (LESS(more[i], limit)) kept[count++] = more[i];
    return count;
}

#undef ITEM
#undef ITEM_FN
#undef LESS
#undef DIGIT
#undef PLACE
