/* Windows two apart along the row, without staging. Channels first (`inner` is 0), whole vectors of windows at a time:
 * neighbors are taken apart in registers. Channels last, whole vectors of the `inner` channels of a window. Max of 2
 * or 3 taps per row, mean of 2, and their gradients. Rows hold at least two pixels per window, so that only the tap before
 * the first one is padding. A part of the template line_loops.h. */

/* The lines 9 KiB further on: the processor's own prefetching stops at pages. */
#define PAIR_PREFETCH(p, n) \
    for (int a_ = 0; a_ < (n) * (int)sizeof *(p); a_ += 64) __builtin_prefetch((const char *)(p) + (9 << 10) + a_, 0, 2)
#define PAIR_PREFETCH_ROW(p, inner)      \
    do {                                 \
        PAIR_PREFETCH(p, L);             \
        PAIR_PREFETCH((p) + (inner), L); \
    } while (0)
/* Of two rows, from pixel `pair` on. Short ones that are one run are prefetched in its order. */
#define PAIR_PREFETCH_ROWS(above, below, pair, inner)                        \
    do {                                                                     \
        const int64_t down_ = (const char *)(below) - (const char *)(above); \
        if (inner) {                                                         \
            PAIR_PREFETCH_ROW((above) + (pair), (inner));                    \
            PAIR_PREFETCH_ROW((below) + (pair), (inner));                    \
        } else if (down_ > 0 && down_ <= 4096) {                             \
            PAIR_PREFETCH((above) + 2 * (pair), 4 * L);                      \
        } else {                                                             \
            PAIR_PREFETCH((above) + (pair), 2 * L);                          \
            PAIR_PREFETCH((below) + (pair), 2 * L);                          \
        }                                                                    \
    } while (0)
#define PAIR_LOAD(p, n) ((n) >= L ? LINE(load)(p) : (n) <= 0 ? LINE(set1)(0) : LINE(load_n)(p, (int)(n)))

/* All windows of a row of pixels. */
#define PAIR_PIXELS(n, inner, call)   \
    for (int64_t o = 0; o < (n); o++) \
        for (int64_t i = o * (inner); i < (o + 1) * (inner); i += LANES(LINE_D)) call

/* One vector of windows: i is its place in y, pair that of its first pair of pixels. before: 1 where the first tap is the
 * one before the pair. carry: the last odd elements of each row; channels last, what lies before the first pixel. Of equals
 * the first wins: along a row, then from row to row. Returns where there was NaN; all is to be done again then. */
SIMD_INLINE LINE_MASK_T LINE(pair_vector)(const tap *sources, int count, int kernel, int before, int64_t inner,
                                          int64_t pair, int64_t i, int lanes, LINE_V *carry, LINE_MASK_T nan, LINE_T *y,
                                          uint8_t *codes) {
    enum { L = LANES(LINE_D) };
    LINE_V best = LINE(set1)(0), at = best;
    PAIR_PREFETCH_ROWS((const LINE_T *)sources[count - 2].value, (const LINE_T *)sources[count - 1].value, pair, inner);
    for (int r = 0; r < count; r++) {
        const LINE_T *x = (const LINE_T *)sources[r].value + pair;
        const LINE_V a = PAIR_LOAD(x, 2 * lanes), b = PAIR_LOAD(x + (inner ? inner : L), 2 * lanes - L);
        const LINE_V even = inner ? a : LINE_F(evens)(a, b), odd = inner ? b : LINE_F(odds)(a, b);
        LINE_V third = even;
        nan = LINE_M(or)(nan, LINE_F(unordered)(even, odd));
        if (before && inner) {
            third = pair < inner ? carry[0] : LINE(load)(x - inner);
        } else if (before) {
            third = LINE_F(behind)(carry[r], odd);
            carry[r] = odd;
        } else if (kernel == 3) {
            third = LINE_F(evens)(PAIR_LOAD(x + 2, 2 * lanes - 1), PAIR_LOAD(x + 2 + L, 2 * lanes - 1 - L));
            nan = LINE_M(or)(nan, LINE_F(isnan)(third));
        }
        if (!codes) {
            LINE_V greatest = LINE(max_number)(even, odd);
            if (kernel == 3) greatest = LINE(max_number)(greatest, third);
            best = r ? LINE(max_number)(best, greatest) : greatest;
            continue;
        }
        LINE_MASK_T wins = LINE_F(gt)(odd, even);
        LINE_V greatest = LINE(select)(wins, odd, even);
        LINE_V number = LINE(select)(wins, LINE(place_vector)(sources[r].number + before + 1),
                                     LINE(place_vector)(sources[r].number + before));
        if (kernel == 3) { /* a padding of NaN is never greater */
            wins = before ? LINE_F(ge)(third, greatest) : LINE_F(gt)(third, greatest);
            greatest = LINE(select)(wins, third, greatest);
            number = LINE(select)(wins, LINE(place_vector)(sources[r].number + (before ? 0 : 2)), number);
        }
        if (r) {
            wins = LINE_F(gt)(greatest, best);
            best = LINE(select)(wins, greatest, best);
            at = LINE(select)(wins, number, at);
        } else {
            best = greatest;
            at = number;
        }
    }
    LINE(store_n)(y + i, best, lanes);
    if (codes) LINE_F(store_bytes)(codes + i, at, lanes);
    return nan;
}

/* Sources are copied, so that stores of codes, which might be anything, do not make it load them again. */
#define PAIR_MAX(count, kernel, before, codes)                                                                    \
    tap near[count];                                                                                              \
    memcpy(near, sources, sizeof near);                                                                           \
    LINE_EACH(n, nan = LINE(pair_vector)(near, count, kernel, before, 0, 2 * i, i, lanes, carry, nan, y, codes)); \
    return LINE(any)(nan)
#define PIXEL_MAX(count, kernel, before)                                                                            \
    tap near[count];                                                                                                \
    memcpy(near, sources, sizeof near);                                                                             \
    PAIR_PIXELS(n, inner,                                                                                           \
                nan = LINE(pair_vector)(near, count, kernel, before, inner, i + o * inner, i, LANES(LINE_D), carry, \
                                        nan, y, codes));                                                            \
    return LINE(any)(nan)

/* Channels last, with winners, all rows inside x: 2 taps, or 3 with the one before. Only f32: f64 goes the longer way, and its
 * code is saved. */
static bool LINE(max_pixels)(const tap *sources, int64_t kernel, int64_t n, int64_t inner, void *y, uint8_t *codes) {
    LINE_MASK_T nan = LINE_F(isnan)(LINE(set1)(0));
    LINE_V carry[1] = {LINE(set1)((LINE_T)NAN)};
    if (!LINE_HALF) return true;
    if (kernel == 2) {
        PIXEL_MAX(2, 2, 0);
    } else {
        PIXEL_MAX(3, 3, 1);
    }
}

static bool LINE(max_row)(const tap *sources, int64_t count, int64_t before, int64_t n, void *y, uint8_t *codes) {
    LINE_MASK_T nan = LINE_F(isnan)(LINE(set1)(0));
    LINE_V carry[3];
    carry[0] = carry[1] = carry[2] = LINE(set1)(codes ? (LINE_T)NAN : -(LINE_T)INFINITY);
    if (count == 3 && before && codes) {
        PAIR_MAX(3, 3, 1, codes);
    } else if (count == 3 && before) {
        PAIR_MAX(3, 3, 1, NULL);
    } else if (count == 3 && codes) {
        PAIR_MAX(3, 3, 0, codes);
    } else if (count == 3) {
        PAIR_MAX(3, 3, 0, NULL);
    } else if (before && codes) {
        PAIR_MAX(2, 3, 1, codes);
    } else if (before) {
        PAIR_MAX(2, 3, 1, NULL);
    } else if (codes) {
        PAIR_MAX(2, 2, 0, codes);
    } else {
        PAIR_MAX(2, 2, 0, NULL);
    }
}

SIMD_INLINE LINE_V LINE(over)(LINE_V v, LINE_V by, bool divides) {
    return divides ? LINE_F(div)(v, by) : LINE(mul)(v, by);
}

/* A quotient by a power of two is a product, bit for bit. */
SIMD_INLINE bool LINE(reciprocal)(double divisor, LINE_V *by) {
    uint64_t bits;
    memcpy(&bits, &divisor, sizeof bits);
    const bool power = bits << 12 == 0;
    *by = LINE(set1)((LINE_T)(power ? 1 / divisor : divisor));
    return power;
}

SIMD_INLINE void LINE(mean_vector)(const LINE_T *above, const LINE_T *below, int64_t inner, int64_t pair, int64_t i,
                                   int lanes, LINE_V by, bool divides, LINE_T *y) {
    enum { L = LANES(LINE_D) };
    const LINE_T *p = above + pair, *q = below + pair;
    const int64_t next = inner ? inner : L;
    PAIR_PREFETCH_ROWS(above, below, pair, inner);
    const LINE_V a = LINE(add)(PAIR_LOAD(p, 2 * lanes), PAIR_LOAD(q, 2 * lanes));
    const LINE_V b = LINE(add)(PAIR_LOAD(p + next, 2 * lanes - L), PAIR_LOAD(q + next, 2 * lanes - L));
    const LINE_V sum = inner ? LINE(add)(a, b) : LINE(add)(LINE_F(evens)(a, b), LINE_F(odds)(a, b));
    LINE(store_n)(y + i, LINE(over)(sum, by, divides), lanes);
}

static void LINE(mean_pairs)(const void *above, const void *below, int64_t n, int64_t inner, double divisor, void *y) {
    LINE_V by;
    const bool divides = !LINE(reciprocal)(divisor, &by);
    if (LINE_HALF && inner)
        PAIR_PIXELS(n, inner, LINE(mean_vector)(above, below, inner, i + o * inner, i, LANES(LINE_D), by, divides, y));
    else if (divides) LINE_EACH(n, LINE(mean_vector)(above, below, 0, 2 * i, i, lanes, by, true, y));
    else LINE_EACH(n, LINE(mean_vector)(above, below, 0, 2 * i, i, lanes, by, false, y));
}

/* Two vectors in turn to 2 lanes elements, or to two pixels; past the caches where `stream` says that they are aligned. */
SIMD_INLINE void LINE(put_pairs)(LINE_T *to, int64_t inner, LINE_V even, LINE_V odd, int lanes, bool stream) {
    enum { L = LANES(LINE_D) };
    if (inner) {
        if (stream) {
            LINE_F(stream)(to, even);
            LINE_F(stream)(to + inner, odd);
        } else {
            LINE(store)(to, even);
            LINE(store)(to + inner, odd);
        }
        return;
    }
    const LINE_V low = LINE_F(weave_low)(even, odd), high = LINE_F(weave_high)(even, odd);
    if (stream && 2 * lanes % L == 0) {
        LINE_F(stream)(to, low);
        if (2 * lanes > L) LINE_F(stream)(to + L, high);
        return;
    }
    LINE(store_n)(to, low, 2 * lanes < L ? 2 * lanes : L);
    if (2 * lanes > L) LINE(store_n)(to + L, high, 2 * lanes - L);
}

SIMD_INLINE void LINE(spread_vector)(const LINE_T *g, int64_t inner, int64_t pair, int lanes, LINE_V by, bool divides,
                                     LINE_T *above, LINE_T *below, bool stream) {
    enum { L = LANES(LINE_D) };
    PAIR_PREFETCH(g, L);
    const LINE_V v = LINE(over)(LINE(load_n)(g, lanes), by, divides);
    LINE(put_pairs)(above + pair, inner, v, v, lanes, stream);
    LINE(put_pairs)(below + pair, inner, v, v, lanes, stream);
}

/* The gradient of a mean of 2 by 2, two rows of it. */
static void LINE(spread_pairs)(const void *g_, int64_t n, int64_t inner, double divisor, void *above, void *below,
                               bool stream) {
    const LINE_T *g = g_;
    LINE_V by;
    const bool divides = !LINE(reciprocal)(divisor, &by);
    if (LINE_HALF && inner)
        PAIR_PIXELS(n, inner,
                    LINE(spread_vector)(g + i, inner, i + o * inner, LANES(LINE_D), by, divides, above, below, stream));
    else if (divides) LINE_EACH(n, LINE(spread_vector)(g + i, 0, 2 * i, lanes, by, true, above, below, stream));
    else LINE_EACH(n, LINE(spread_vector)(g + i, 0, 2 * i, lanes, by, false, above, below, stream));
}

/* g where tap `number` won, else 0. */
#define PAIR_IF(g, code, number) LINE(where_code)(g, code, LINE(place_vector)(number))

/* n: how many elements of g there are in the row from the right neighbor of i on. across: from a pixel to the next where they go to. */
SIMD_INLINE void LINE(pick_pair)(int kernel, const LINE_T *g, const uint8_t *at, const LINE_T *g_next,
                                 const uint8_t *at_next, int64_t inner, int64_t i, int lanes, int64_t n, int64_t across,
                                 LINE_T *above, LINE_T *below, bool stream) {
    enum { L = LANES(LINE_D) };
    const LINE_V v = LINE(load_n)(g + i, lanes), code = LINE_F(load_bytes)(at + i, lanes);
    if (kernel == 2) {
        LINE(put_pairs)(above, across, PAIR_IF(v, code, 0), PAIR_IF(v, code, 1), lanes, stream);
        LINE(put_pairs)(below, across, PAIR_IF(v, code, 2), PAIR_IF(v, code, 3), lanes, stream);
        return;
    }
    const int right = n < L ? (int)n : L;
    const int64_t next = i + (inner ? inner : 1);
    const LINE_V w = LINE(load_n)(g + next, right), w_code = LINE_F(load_bytes)(at + next, right);
    const LINE_V under = LINE(load_n)(g_next + i, lanes), under_code = LINE_F(load_bytes)(at_next + i, lanes);
    const LINE_V last = LINE(load_n)(g_next + next, right), last_code = LINE_F(load_bytes)(at_next + next, right);
    LINE(put_pairs)
    (above, across, PAIR_IF(v, code, 4), LINE(add)(PAIR_IF(w, w_code, 3), PAIR_IF(v, code, 5)), lanes, stream);
    const LINE_V even = LINE(add)(PAIR_IF(under, under_code, 1), PAIR_IF(v, code, 7));
    LINE_V odd = LINE(add)(PAIR_IF(last, last_code, 0), PAIR_IF(under, under_code, 2));
    odd = LINE(add)(LINE(add)(odd, PAIR_IF(w, w_code, 6)), PAIR_IF(v, code, 8));
    LINE(put_pairs)(below, across, even, odd, lanes, stream);
}

/* Channels last and past the caches, where a line takes several vectors: the channels of two pixels are brought together first. Lines
 * written in parts, with reads and other lines between them, may go to memory in parts too; in runs of some hundred bytes they do not. */
SIMD_INLINE void LINE(pick_held)(int kernel, const LINE_T *g, const uint8_t *at, const LINE_T *g_next,
                                 const uint8_t *at_next, int64_t n, int64_t inner, LINE_T *above, LINE_T *below) {
    enum { L = LANES(LINE_D), HELD = 64 };
    LINE_T held[4 * HELD]; /* of two pixels above and of two below */
    for (int64_t o = 0; o < n; o++)
        for (int64_t c = 0; c < inner; c += HELD) {
            const int64_t have = ct__min64(HELD, inner - c);
            for (int64_t k = 0; k < have; k += L) LINE(pick_pair)
            (kernel, g, at, g_next, at_next, inner, o * inner + c + k, L, (n - 1 - o) * inner, HELD, held + k,
             held + 2 * HELD + k, false);
            for (int q = 0; q < 4; q++) {
                LINE_T *to = (q < 2 ? above : below) + (2 * o + q % 2) * inner + c;
                for (int64_t k = 0; k < have; k += L) LINE_F(stream)(to + k, LINE(load)(held + q * HELD + k));
            }
        }
}

/* The gradient of a max of 2 by 2, or of 3 by 3 with a padding of 1: two rows of it, from a row of g and the next. */
static void LINE(pick_pairs)(int64_t kernel, const void *g, const uint8_t *at, const void *g_next,
                             const uint8_t *at_next, int64_t n, int64_t inner, void *above, void *below, bool stream) {
#define PICK_PAIRS(kernel)                                                                                           \
    LINE_EACH(n, LINE(pick_pair)(kernel, g, at, g_next, at_next, 0, i, lanes, n - i - 1, 0, (LINE_T *)above + 2 * i, \
                                 (LINE_T *)below + 2 * i, stream))
#define PICK_PIXELS(kernel)                                                                                          \
    PAIR_PIXELS(n, inner,                                                                                            \
                LINE(pick_pair)(kernel, g, at, g_next, at_next, inner, i, LANES(LINE_D), (n - 1 - o) * inner, inner, \
                                (LINE_T *)above + i + o * inner, (LINE_T *)below + i + o * inner, stream))
    if (LINE_HALF && inner && stream && sizeof(LINE_V) < 64) {
        if (kernel == 2) LINE(pick_held)(2, g, at, g_next, at_next, n, inner, above, below);
        else LINE(pick_held)(3, g, at, g_next, at_next, n, inner, above, below);
    } else if (LINE_HALF && inner && kernel == 2) {
        PICK_PIXELS(2);
    } else if (LINE_HALF && inner) {
        PICK_PIXELS(3);
    } else if (kernel == 2) {
        PICK_PAIRS(2);
    } else {
        PICK_PAIRS(3);
    }
#undef PICK_PAIRS
#undef PICK_PIXELS
}
