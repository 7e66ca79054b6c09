/* The register tile, written once: C[R x NV*lanes] (+)= A[R x k] * B[k x NV*lanes], the micro-kernel of BLIS (driver.c has the
 * loops around it): rank-1 updates, a column of A broadcast against a row of B, with all of C's tile in registers.
 * A kernel_<type>.c defines the vector vocabulary below and includes this file, which stamps out
 * one function for each row count, column-vector count and edge kind, and the table of them.
 *
 * Vocabulary: VEC, MASK, LANES, TILE_ROWS, TILE_VECS, TILE_WIDTH (columns), V_ZERO, V_LOAD, V_LOAD_MASK, V_STORE, V_STORE_MASK,
 * V_BROADCAST, V_FMA(a, b, c), V_ADD, V_SCALE(v, alpha), V_MASK(valid lanes); optional TILE_START
 * (what the sums start from), TILE_COPIES (tiles that also pack B), TILE_ADDS_BIAS (tiles that add a bias), TILE_AHEAD (tiles that prefetch), TILE_UNROLLED (full tiles
 * take four k groups at a time), TILE_TIGHT (these in as few instructions as can be) and TILE_PARTING (k groups at the end of high tiles for which their upper rows go first).
 *
 * A is addressed by two byte strides, so rows of a matrix, of its transpose and of a packed copy
 * all feed the same code. B is k rows of contiguous columns, any byte stride apart. Nothing
 * outside the R rows and `cols` columns is read or written. */
#include "backends/cpu/gemm/engine.h"

_Static_assert(TILE_WIDTH == TILE_VECS * LANES, "a kernel's name says its tile");

/* Fourteen rows, spelled out: loops over an array of accumulators stay in memory with some compilers.
 * What lies past `rows` and `vecs` is compiled away. */
#define TILE_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

#define TILE_DECLARE(r) VEC acc##r##_0 = start0, acc##r##_1 = start1, acc##r##_2 = start2;

/* Rows are reached from one base pointer in three with the index scaled by 0, 1 and 2: fourteen
 * row pointers would not fit the sixteen integer registers of x86-64. */
#define TILE_ROW(r)                                                                 \
    {                                                                               \
        const char *base = r < 3 ? a0 : r < 6 ? a1 : r < 9 ? a2 : r < 12 ? a3 : a4; \
        TILE_UPDATE(r, base + (r % 3) * row + at)                                   \
    }
/* The same where rows lie side by side: from one pointer. */
#define TILE_ROW_BY_K(r) TILE_UPDATE(r, a0 + r * group_bytes)
#define TILE_UPDATE(r, a)                                    \
    if (rows > r && r >= low && r < high) {                  \
        const VEC x = V_BROADCAST(a);                        \
        acc##r##_0 = V_FMA(x, b0, acc##r##_0);               \
        if (vecs > 1) acc##r##_1 = V_FMA(x, b1, acc##r##_1); \
        if (vecs > 2) acc##r##_2 = V_FMA(x, b2, acc##r##_2); \
    }

/* Keeps the compiler from computing fourteen row addresses once and spilling them, and from holding in memory what
 * can as well be read from the description again: its own stores to the stack would queue behind the last tile's. */
#define TILE_FORGET(p) __asm__("" : "+r"(p));

#define TILE_PREFETCH(r)                                      \
    if (rows > r) {                                           \
        __builtin_prefetch(c, 1);                             \
        if (vecs > 1) __builtin_prefetch(c + sizeof(VEC), 1); \
        c += c_row;                                           \
    }

#define TILE_SCALE(r)                                             \
    if (rows > r && r >= low && r < high) {                       \
        acc##r##_0 = V_SCALE(acc##r##_0, t->alpha);               \
        if (vecs > 1) acc##r##_1 = V_SCALE(acc##r##_1, t->alpha); \
        if (vecs > 2) acc##r##_2 = V_SCALE(acc##r##_2, t->alpha); \
    }

#define TILE_ADD(r)                                                    \
    if (rows > r && r >= low && r < high) {                            \
        acc##r##_0 = V_ADD(TILE_LOAD(c, 0), acc##r##_0);               \
        if (vecs > 1) acc##r##_1 = V_ADD(TILE_LOAD(c, 1), acc##r##_1); \
        if (vecs > 2) acc##r##_2 = V_ADD(TILE_LOAD(c, 2), acc##r##_2); \
        c += c_row;                                                    \
    }

#define TILE_ADD_BIAS(r)                                     \
    if (rows > r && r >= low && r < high) {                  \
        acc##r##_0 = V_ADD(acc##r##_0, bias0);               \
        if (vecs > 1) acc##r##_1 = V_ADD(acc##r##_1, bias1); \
        if (vecs > 2) acc##r##_2 = V_ADD(acc##r##_2, bias2); \
    }

#define TILE_STORE_VEC(v, x)                                                 \
    if (masked && v == vecs - 1) V_STORE_MASK(c + v * sizeof(VEC), mask, x); \
    else V_STORE(c + v * sizeof(VEC), x);
#define TILE_STORE(r)                       \
    if (rows > r && r >= low && r < high) { \
        TILE_STORE_VEC(0, acc##r##_0)       \
        if (vecs > 1) {                     \
            TILE_STORE_VEC(1, acc##r##_1)   \
        }                                   \
        if (vecs > 2) {                     \
            TILE_STORE_VEC(2, acc##r##_2)   \
        }                                   \
        c += c_row;                         \
    }

#define TILE_LOAD(p, v) \
    (masked && v == vecs - 1 ? V_LOAD_MASK((p) + v * sizeof(VEC), mask) : V_LOAD((p) + v * sizeof(VEC)))
#ifndef TILE_START
#define TILE_START(t, v) V_ZERO
#endif

#ifndef TILE_PARTING
#define TILE_PARTING 0
#endif

#ifdef TILE_AHEAD
#define TILE_PREFETCHES 1
#else
#define TILE_PREFETCHES 0
#endif
#ifdef TILE_ADDS_BIAS
#define TILE_BIASES 1
#else
#define TILE_BIASES 0
#endif
#ifdef TILE_UNROLLED
#define TILE_UNROLLS 1
#else
#define TILE_UNROLLS 0
#endif

#ifdef TILE_TIGHT
#define TILE_TIGHTENS 1
#else
#define TILE_TIGHTENS 0
#endif

/* Leaves B's row behind. What comes is prefetched into L2: rows a power of two apart would push each other out of L1. */
#define TILE_LEAVE                                                                          \
    {                                                                                       \
        __builtin_prefetch(b + 32 * b_step, 0, 2);                                          \
        if (vecs > 1) __builtin_prefetch(b + 32 * b_step + (vecs - 1) * sizeof(VEC), 0, 2); \
        V_STORE(to, b0);                                                                    \
        if (vecs > 1) V_STORE(to + sizeof(VEC), b1);                                        \
        if (vecs > 2) V_STORE(to + 2 * sizeof(VEC), b2);                                    \
        to += vecs * sizeof(VEC);                                                           \
    }
/* One k group: a row of B against those of A. */
#define TILE_GROUP(ROW)                                     \
    {                                                       \
        const VEC b0 = TILE_LOAD(b, 0);                     \
        const VEC b1 = vecs > 1 ? TILE_LOAD(b, 1) : V_ZERO; \
        const VEC b2 = vecs > 2 ? TILE_LOAD(b, 2) : V_ZERO; \
        if (copy) TILE_LEAVE                                \
        TILE_EACH(ROW)                                      \
        b += b_step;                                        \
        (void)b1, (void)b2;                                 \
    }
#define TILE_STEP                                                   \
    {                                                               \
        const int at = 0;                                           \
        TILE_GROUP(TILE_ROW)                                        \
        a0 += step, a1 += step, a2 += step, a3 += step, a4 += step; \
    }
/* Where k groups lie side by side: the one `offset` bytes from A's pointers. */
#define TILE_STEP_AT(offset)   \
    {                          \
        const int at = offset; \
        TILE_GROUP(TILE_ROW)   \
    }
/* Where rows do. */
#define TILE_STEP_BY_K            \
    {                             \
        TILE_GROUP(TILE_ROW_BY_K) \
        a0 += step;               \
    }
/* Tiles of few rows issue more than three instructions in a cycle. On a busy machine, as if another thread shared the core, they lost a quarter
 * of their speed where multiply-adds alone lost nothing: every instruction that neither loads nor multiplies costs then. So, four k
 * groups of which all addresses in A are constants from one pointer, where it is in panels as high as the tile, */
#define TILE_ROW_PACKED(r) TILE_UPDATE(r, a0 + at + r * group_bytes)
#define TILE_STEP_PACKED(group)                    \
    {                                              \
        const int at = group * rows * group_bytes; \
        TILE_GROUP(TILE_ROW_PACKED)                \
    }
#define TILE_FOUR_PACKED              \
    {                                 \
        TILE_STEP_PACKED(0)           \
        TILE_STEP_PACKED(1)           \
        TILE_STEP_PACKED(2)           \
        TILE_STEP_PACKED(3)           \
        a0 += 4 * rows * group_bytes; \
    }
/* or where k groups of A lie side by side: rows are then reached by index and constant. Without the barrier compilers compute the sums of both
 * beforehand, more than there are registers for. */
#define TILE_STEP_ROWS(offset) \
    {                          \
        const int at = offset; \
        TILE_FORGET(row)       \
        TILE_GROUP(TILE_ROW)   \
    }
#define TILE_FOUR_ROWS                                \
    {                                                 \
        TILE_STEP_ROWS(0)                             \
        TILE_STEP_ROWS(group_bytes)                   \
        TILE_STEP_ROWS(2 * group_bytes)               \
        TILE_STEP_ROWS(3 * group_bytes)               \
        a0 += 4 * group_bytes, a1 += 4 * group_bytes; \
        a2 += 4 * group_bytes, a3 += 4 * group_bytes; \
        a4 += 4 * group_bytes;                        \
    }
/* Three loops: the first prefetches C's rows, where they are far away, the second what is wanted later, if anything is, and the last need not
 * look. */
#define TILE_TIGHT_LOOP(FOUR)                                              \
    for (; c_left > 0; c_left--, p -= 4) {                                 \
        __builtin_prefetch(c_line, 1);                                     \
        if (vecs > 1) __builtin_prefetch(c_line + sizeof(VEC), 1);         \
        c_line += t->c_row;                                                \
        FOUR                                                               \
    }                                                                      \
    if (ahead)                                                             \
        for (; p >= 4; p -= 4) {                                           \
            __builtin_prefetch(ahead, 0, 2);                               \
            ahead += 64;                                                   \
            if (--span == 0) span = t->ahead_span, ahead += t->ahead_jump; \
            FOUR                                                           \
        }                                                                  \
    for (; p >= 4; p -= 4) FOUR

/* A line of what is wanted later, or of C's rows first. */
#define TILE_PREFETCH_SLOWLY                                           \
    if (c_left) {                                                      \
        __builtin_prefetch(c_line, 1);                                 \
        if (vecs > 1) __builtin_prefetch(c_line + sizeof(VEC), 1);     \
        c_line += t->c_row, c_left--;                                  \
    } else if (ahead) {                                                \
        __builtin_prefetch(ahead, 0, 2);                               \
        ahead += 64;                                                   \
        if (--span == 0) span = t->ahead_span, ahead += t->ahead_jump; \
    }

/* The bias of the tile's columns, to every row. */
#define TILE_BIAS                                                 \
    if (TILE_BIASES && t->bias) {                                 \
        const char *const bias = (const char *)t->bias;           \
        const VEC bias0 = TILE_LOAD(bias, 0);                     \
        const VEC bias1 = vecs > 1 ? TILE_LOAD(bias, 1) : V_ZERO; \
        const VEC bias2 = vecs > 2 ? TILE_LOAD(bias, 2) : V_ZERO; \
        TILE_EACH(TILE_ADD_BIAS)                                  \
        (void)bias1, (void)bias2;                                 \
    }

/* What becomes of the sums of some rows. */
#define TILE_END               \
    if (t->scale) {            \
        TILE_EACH(TILE_SCALE)  \
    }                          \
    if (t->accumulate) {       \
        char *const first = c; \
        TILE_EACH(TILE_ADD)    \
        c = first;             \
        TILE_FORGET(c)         \
    }                          \
    TILE_BIAS                  \
    TILE_EACH(TILE_STORE)

/* `copy`: leaves a packed copy of B's panel behind, for the row tiles that follow. B is then far
 * away, so its rows are prefetched early. */
static inline __attribute__((always_inline)) void tile_body(const ct__tile *t, const int rows, const int vecs,
                                                            const int masked, const int copy) {
    int64_t row = t->a_row;
    const int64_t step = t->a_step, b_step = t->b_step;
    const char *a0 = (const char *)t->a, *b = (const char *)t->b;
    const ct__run *run = t->runs;
    int64_t runs = copy ? 0 : t->n_runs;
    if (runs > 0) a0 += run->a, b += run->b;
    const char *a1 = a0 + 3 * row, *a2 = a1 + 3 * row, *a3 = a2 + 3 * row, *a4 = a3 + 3 * row;
    const char *ahead = (const char *)t->ahead;
    int64_t span = t->ahead_span;
    const bool full = !masked && !copy && vecs == TILE_VECS;
    const bool prefetches = TILE_PREFETCHES && full && ahead && !t->ahead_slowly;
    /* Four groups at a time in high tiles where k, or the rows, lie side by side: adding to pointers takes turns of the units
     * that multiply on some processors. Nothing is prefetched faster than a row of C, or a line of what is wanted later, in that
     * time: many at once would fill the queue that B's lines wait in as well. */
    const int group_bytes = sizeof(VEC) / LANES;
    const bool by_k = row == group_bytes && step != group_bytes;
    const int64_t least_k = TILE_TIGHTENS && !t->far_c ? 8 : 4 * rows + TILE_PARTING;
    const bool unrolls = TILE_UNROLLS && full && rows >= TILE_ROWS / 2 && !prefetches &&
                         (step == group_bytes || by_k) && t->k >= least_k;
    /* So few lines that one with each four groups is enough. */
    const bool few_lines = TILE_TIGHTENS && prefetches && rows >= TILE_ROWS / 2 && step == group_bytes &&
                           (span ? span >= 4 : t->ahead_step <= 16);
    int64_t c_left = unrolls && t->far_c ? rows : 0;
    const char *c_line = (const char *)t->c;
    char *to = (char *)t->copy;
    const MASK mask = V_MASK(t->cols - (vecs - 1) * LANES);
    const VEC start0 = TILE_START(t, 0);
    const VEC start1 = vecs > 1 ? TILE_START(t, 1) : V_ZERO;
    const VEC start2 = vecs > 2 ? TILE_START(t, 2) : V_ZERO;
    TILE_EACH(TILE_DECLARE)
    const int split = rows > 9 ? 6 : 3;
    const bool halves = TILE_PARTING > 0 && rows > 6 && vecs == 2 && !masked && !copy;

    /* The stores at the end would otherwise wait for these lines. */
    if (t->far_c && !unrolls) {
        const char *c = (const char *)t->c;
        const int64_t c_row = t->c_row;
        TILE_EACH(TILE_PREFETCH)
    }
again:;
    {
        const int low = 0, high = rows;
        int64_t p = t->k;
        /* See below. */
        if (halves && runs <= 1) p = p > TILE_PARTING ? p - TILE_PARTING : 0;
        if (few_lines) {
            for (; p >= 4; p -= 4) {
                __builtin_prefetch(ahead, 0, 2);
                ahead += 4 * t->ahead_step;
                if (span && (span -= 4) <= 0) span += t->ahead_span, ahead += t->ahead_jump;
                TILE_FOUR_ROWS
            }
            for (; p > 0; p--) {
                TILE_STEP
            }
        } else if (prefetches) {
            const int64_t ahead_step = t->ahead_step;
            for (; p > 0; p--) {
                if (span) {
                    __builtin_prefetch(ahead, 0, 2);
                    if (--span == 0) span = t->ahead_span, ahead += t->ahead_jump;
                } else {
                    __builtin_prefetch(ahead);
                }
                ahead += ahead_step;
                TILE_STEP
            }
        } else {
            if (TILE_TIGHTENS && unrolls && by_k && step == rows * group_bytes) {
                TILE_TIGHT_LOOP(TILE_FOUR_PACKED)
                a1 = a0 + 3 * row, a2 = a1 + 3 * row, a3 = a2 + 3 * row, a4 = a3 + 3 * row;
            } else if (unrolls && by_k) {
                for (; p >= 4; p -= 4) {
                    TILE_PREFETCH_SLOWLY
                    for (int pairs = 2; pairs > 0; pairs--) { /* one after the other, for the size of it */
                        TILE_FORGET(pairs)
                        TILE_STEP_BY_K
                        TILE_STEP_BY_K
                    }
                }
                a1 = a0 + 3 * row, a2 = a1 + 3 * row, a3 = a2 + 3 * row, a4 = a3 + 3 * row;
            } else if (unrolls && TILE_TIGHTENS) {
                TILE_TIGHT_LOOP(TILE_FOUR_ROWS)
            } else if (unrolls) {
                for (; p >= 4; p -= 4) {
                    TILE_PREFETCH_SLOWLY
                    TILE_STEP_AT(0)
                    TILE_STEP_AT(group_bytes)
                    TILE_STEP_AT(2 * group_bytes)
                    TILE_STEP_AT(3 * group_bytes)
                    a0 += 4 * group_bytes, a1 += 4 * group_bytes, a2 += 4 * group_bytes, a3 += 4 * group_bytes;
                    a4 += 4 * group_bytes;
                }
            }
            for (; p > 0; p--) {
                TILE_STEP
            }
        }
    }
    if (--runs > 0) {
        run++;
        a0 = (const char *)t->a + run->a, b = (const char *)t->b + run->b;
        a1 = a0 + 3 * row, a2 = a1 + 3 * row, a3 = a2 + 3 * row, a4 = a3 + 3 * row;
        goto again;
    }
    TILE_FORGET(t)
    const int64_t c_row = t->c_row;
    char *c = (char *)t->c;
    /* High tiles end in two parts: a vector's store takes as long as two products, so that the stores of all rows in a row fill
     * the queues and hold up whatever follows. Those of the upper rows drain while the lower rows are still summed. */
    const int64_t parting = t->k < TILE_PARTING ? t->k : TILE_PARTING;
    if (halves) {
        const int low = 0, high = split;
        for (int64_t p = parting; p > 0; p--) {
            TILE_STEP
        }
        TILE_END
        b -= parting * b_step, a1 -= parting * step, a2 -= parting * step, a3 -= parting * step, a4 -= parting * step;
    }
    {
        const int low = halves ? split : 0, high = rows;
        if (halves)
            for (int64_t p = parting; p > 0; p--) {
                TILE_STEP
            }
        TILE_END
    }
    (void)mask, (void)to;
}

#define TILE_ONE(R, NV, M) \
    static void tile_##R##x##NV##_##M(const ct__tile *t) { tile_body(t, R, NV, M, 0); }
#define TILE_COPY(R, NV, M) \
    static void tile_##R##x##NV##_copy(const ct__tile *t) { tile_body(t, R, NV, M, 1); }
#define TILE_NAME(R, NV, M)      tile_##R##x##NV##_##M,
#define TILE_COPY_NAME(R, NV, M) tile_##R##x##NV##_copy,

/* Row counts up to TILE_ROWS. */
#if TILE_ROWS == 14
#define TILE_ROWS_LIST(X, NV, M) \
    X(1, NV, M)                  \
    X(2, NV, M)                  \
    X(3, NV, M)                  \
    X(4, NV, M)                  \
    X(5, NV, M)                  \
    X(6, NV, M) X(7, NV, M) X(8, NV, M) X(9, NV, M) X(10, NV, M) X(11, NV, M) X(12, NV, M) X(13, NV, M) X(14, NV, M)
#elif TILE_ROWS == 8
#define TILE_ROWS_LIST(X, NV, M) \
    X(1, NV, M) X(2, NV, M) X(3, NV, M) X(4, NV, M) X(5, NV, M) X(6, NV, M) X(7, NV, M) X(8, NV, M)
#elif TILE_ROWS == 6
#define TILE_ROWS_LIST(X, NV, M) X(1, NV, M) X(2, NV, M) X(3, NV, M) X(4, NV, M) X(5, NV, M) X(6, NV, M)
#elif TILE_ROWS == 4
#define TILE_ROWS_LIST(X, NV, M) X(1, NV, M) X(2, NV, M) X(3, NV, M) X(4, NV, M)
#else
#error "add the list of row counts"
#endif

TILE_ROWS_LIST(TILE_ONE, 1, 0)
TILE_ROWS_LIST(TILE_ONE, 1, 1)
#if TILE_VECS >= 2
TILE_ROWS_LIST(TILE_ONE, 2, 0)
TILE_ROWS_LIST(TILE_ONE, 2, 1)
#endif
#if TILE_VECS >= 3
TILE_ROWS_LIST(TILE_ONE, 3, 0)
TILE_ROWS_LIST(TILE_ONE, 3, 1)
#endif

/* tiles[(vecs - 1) * 2 + masked][rows - 1] */
static const ct__tile_fn tiles[2 * TILE_VECS][CT__TILE_ROWS_MAX] = {
    {TILE_ROWS_LIST(TILE_NAME, 1, 0)}, {TILE_ROWS_LIST(TILE_NAME, 1, 1)},
#if TILE_VECS >= 2
    {TILE_ROWS_LIST(TILE_NAME, 2, 0)}, {TILE_ROWS_LIST(TILE_NAME, 2, 1)},
#endif
#if TILE_VECS >= 3
    {TILE_ROWS_LIST(TILE_NAME, 3, 0)}, {TILE_ROWS_LIST(TILE_NAME, 3, 1)},
#endif
};

#ifdef TILE_COPIES
TILE_ROWS_LIST(TILE_COPY, TILE_VECS, 0)
static const ct__tile_fn copying_tiles[CT__TILE_ROWS_MAX] = {TILE_ROWS_LIST(TILE_COPY_NAME, TILE_VECS, 0)};
#endif
