/* Loops over lines, a template over the type that is computed in: LINE_D is f32 or f64, LINE_FLOATS, LINE_INTEGERS
 * and LINE_MASKS are the prefixes of its vectors' operations. Included by lines.c; lines.h says what the functions
 * are for. */
#define LINE_T    ELEMENT(LINE_D)
#define LINE_V    VECTOR(LINE_D)
#define LINE(x)   ELEMENT_PASTE(LINE_D, ELEMENT_PASTE(_, x))
#define LINE_I    ELEMENT_PASTE(LINE_D, _code)
#define LINE_HALF (sizeof(LINE_T) == 4)
/* Operations of the SIMD wrapper on floats, on integers in their bits, and on masks: LINE_F(gt)(a, b) is vf32_gt(a, b). */
#define LINE_F(x) ELEMENT_PASTE(LINE_FLOATS, ELEMENT_PASTE(_, x))
#define LINE_N(x) ELEMENT_PASTE(LINE_INTEGERS, ELEMENT_PASTE(_, x))
#define LINE_M(x) ELEMENT_PASTE(LINE_MASKS, ELEMENT_PASTE(_, x))

static void LINE(load_line)(void *to_, const void *from_, int64_t stride, int64_t n, ct_dtype dtype) {
    LINE_T *restrict to = to_;
    const LINE_T *restrict from = from_;
    if (LINE_HALF && is_half(dtype)) half_load(to_, from_, stride, n, dtype == CT_BF16);
    else if (stride == 1) memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];
}

static void LINE(store_line)(void *to_, int64_t stride, const void *from_, int64_t n, ct_dtype dtype) {
    LINE_T *restrict to = to_;
    const LINE_T *restrict from = from_;
    if (LINE_HALF && is_half(dtype)) half_store(to_, stride, from_, n, dtype == CT_BF16);
    else if (stride == 1) memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t i = 0; i < n; i++) to[i * stride] = from[i];
}

static void LINE(fill_line)(void *to_, int64_t n, double value) {
    LINE_T *to = to_;
    for (int64_t i = 0; i < n; i++) to[i] = (LINE_T)value;
}

static void LINE(load_codes)(void *to_, const void *from, int64_t stride, int64_t n, ct_dtype dtype) {
    LINE_I *to = to_;
    if (dtype == CT_U8 && stride == 1)
        for (int64_t i = 0; i < n; i++) to[i] = ((const uint8_t *)from)[i];
    else if (dtype == CT_U8)
        for (int64_t i = 0; i < n; i++) to[i] = ((const uint8_t *)from)[i * stride];
    else if (dtype == CT_I32)
        for (int64_t i = 0; i < n; i++) to[i] = ((const int32_t *)from)[i * stride];
    else
        for (int64_t i = 0; i < n; i++) to[i] = (LINE_I)((const int64_t *)from)[i * stride];
}

static void LINE(fill_codes)(void *to_, int64_t n, int64_t code) {
    LINE_I *to = to_;
    for (int64_t i = 0; i < n; i++) to[i] = (LINE_I)code;
}

static void LINE(store_codes)(void *to, const void *from_, int64_t n, ct_dtype dtype) {
    const LINE_I *from = from_;
    if (dtype == CT_U8)
        for (int64_t i = 0; i < n; i++) ((uint8_t *)to)[i] = (uint8_t)from[i];
    else
        for (int64_t i = 0; i < n; i++) ((int32_t *)to)[i] = (int32_t)from[i];
}

#define LINE_MASK_T ELEMENT_PASTE(LINE_D, _mask)
#define LINE_FEW    9 /* taps that a loop of its own is made for hold their pointers in registers */

/* Over a line in vectors: whole ones, then what is left. */
#define LINE_EACH(n, call)                  \
    do {                                    \
        enum { L = LANES(LINE_D) };         \
        int64_t i = 0;                      \
        for (; i + L <= (n); i += L) {      \
            const int lanes = L;            \
            call;                           \
        }                                   \
        if (i < (n)) {                      \
            const int lanes = (int)((n)-i); \
            call;                           \
        }                                   \
    } while (0)

/* The taps of a line, apart: with a constant count the compiler keeps them in registers. */
typedef struct LINE(taps) {
    const LINE_T *value[LINE_FEW], *code[LINE_FEW];
    LINE_V number[LINE_FEW];
} LINE(taps);

SIMD_INLINE LINE(taps) LINE(unpack)(const tap *taps, int64_t count, int64_t shift) {
    LINE(taps) few;
    for (int64_t t = 0; t < count; t++) {
        few.value[t] = (const LINE_T *)taps[t].value + shift;
        few.code[t] = (const LINE_T *)taps[t].code + shift;
        few.number[t] = LINE(place_vector)(taps[t].number);
    }
    return few;
}

#define LINE_VALUE(t)  LINE(load_n)((few ? few->value[t] : (const LINE_T *)taps[t].value + shift) + i, lanes)
#define LINE_CODE(t)   LINE(load_n)((few ? few->code[t] : (const LINE_T *)taps[t].code + shift) + i, lanes)
#define LINE_NUMBER(t) (few ? few->number[t] : LINE(place_vector)(taps[t].number))

SIMD_INLINE LINE_V LINE(code_plus)(LINE_V code, LINE_V number) {
    return LINE_F(from_bits)(LINE_N(add)(LINE_F(bits)(code), LINE_F(bits)(number)));
}

/* v where its code is that number, else 0. */
SIMD_INLINE LINE_V LINE(where_code)(LINE_V v, LINE_V code, LINE_V number) {
    return LINE_F(select)(LINE_N(eq)(LINE_F(bits)(code), LINE_F(bits)(number)), v, LINE_F(zero)());
}

/* Where v is the greater one, or as great and of the lesser code. */
SIMD_INLINE LINE_MASK_T LINE(wins)(LINE_V v, LINE_V code, LINE_V best, LINE_V at) {
    return LINE_M(or)(LINE_F(gt)(v, best),
                      LINE_M(and)(LINE_F(eq)(v, best), LINE_N(gt)(LINE_F(bits)(at), LINE_F(bits)(code))));
}

/* One vector of the greatest taps and of their numbers. Comparing alone passes over NaN; where there is one it is done
 * again with the first NaN as the greatest. */
SIMD_INLINE void LINE(max_vector)(const LINE(taps) * few, const tap *taps, int64_t count, int64_t shift, int64_t i,
                                  int lanes, LINE_T *y, LINE_I *codes) {
    LINE_V best = LINE_VALUE(0), at = LINE_NUMBER(0);
    if (!codes) {
        for (int64_t t = 1; t < count; t++) best = LINE(max)(best, LINE_VALUE(t));
        LINE(store_n)(y + i, best, lanes);
        return;
    }
    LINE_MASK_T nan = LINE_F(isnan)(best);
    for (int64_t t = 1; t < count; t++) {
        const LINE_V v = LINE_VALUE(t);
        const LINE_MASK_T greater = LINE_F(gt)(v, best);
        at = LINE(select)(greater, LINE_NUMBER(t), at);
        best = LINE(select)(greater, v, best);
        nan = LINE_M(or)(nan, LINE_F(isnan)(v));
    }
    if (__builtin_expect(LINE(any)(nan), 0)) {
        best = LINE_VALUE(0);
        at = LINE_NUMBER(0);
        for (int64_t t = 1; t < count; t++) {
            const LINE_V v = LINE_VALUE(t);
            const LINE_MASK_T greater = LINE(not_le)(v, best);
            at = LINE(select)(greater, LINE_NUMBER(t), at);
            best = LINE(select)(greater, v, best);
        }
    }
    LINE(store_n)(y + i, best, lanes);
    LINE(store_n)((LINE_T *)(void *)(codes + i), at, lanes);
}

/* fn over the line with `count` taps in registers. */
#define LINE_WITH(count, shift, n, fn, ...)                                \
    do {                                                                   \
        const LINE(taps) few = LINE(unpack)(taps, count, shift);           \
        LINE_EACH(n, fn(&few, taps, count, shift, i, lanes, __VA_ARGS__)); \
    } while (0)

static void LINE(max_line)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y, void *codes) {
    if (count == 3 && codes) LINE_WITH(3, shift, n, LINE(max_vector), y, codes);
    else if (count == 3) LINE_WITH(3, shift, n, LINE(max_vector), y, NULL);
    else if (count == 9 && codes) LINE_WITH(9, shift, n, LINE(max_vector), y, codes);
    else LINE_EACH(n, LINE(max_vector)(NULL, taps, count, shift, i, lanes, y, codes));
}

/* Of equal taps the one with the least code + number. */
SIMD_INLINE void LINE(across_vector)(const LINE(taps) * few, const tap *taps, int64_t count, int64_t shift, int64_t i,
                                     int lanes, LINE_T *y, LINE_I *codes) {
    LINE_V best = LINE_VALUE(0), at = LINE(code_plus)(LINE_CODE(0), LINE_NUMBER(0));
    for (int64_t t = 1; t < count; t++) {
        const LINE_V v = LINE_VALUE(t), code = LINE(code_plus)(LINE_CODE(t), LINE_NUMBER(t));
        const LINE_MASK_T wins = LINE(wins)(v, code, best, at);
        at = LINE(select)(wins, code, at);
        best = LINE(select)(wins, v, best);
    }
    LINE(store_n)(y + i, best, lanes);
    LINE(store_n)((LINE_T *)(void *)(codes + i), at, lanes);
}

static void LINE(across_line)(const tap *taps, int64_t count, int64_t n, void *y, void *codes) {
    if (count == 3) LINE_WITH(3, 0, n, LINE(across_vector), y, codes);
    else LINE_EACH(n, LINE(across_vector)(NULL, taps, count, 0, i, lanes, y, codes));
}

static bool LINE(has_nan)(const void *values, int64_t n) {
    const LINE_T *x = values;
    int found = 0;
    for (int64_t i = 0; i < n; i++) found |= x[i] != x[i];
    return found;
}

SIMD_INLINE void LINE(pick_vector)(const LINE(taps) * few, const tap *taps, int64_t count, int64_t shift, int64_t i,
                                   int lanes, LINE_T *y) {
    LINE_V sum = LINE(set1)(0);
    for (int64_t t = 0; t < count; t++)
        sum = LINE(add)(sum, LINE(where_code)(LINE_VALUE(t), LINE_CODE(t), LINE_NUMBER(t)));
    LINE(store_n)(y + i, sum, lanes);
}

static void LINE(pick_line)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y) {
    if (count == 1) LINE_WITH(1, shift, n, LINE(pick_vector), y);
    else if (count == 2) LINE_WITH(2, shift, n, LINE(pick_vector), y);
    else if (count == 4) LINE_WITH(4, shift, n, LINE(pick_vector), y);
    else LINE_EACH(n, LINE(pick_vector)(NULL, taps, count, shift, i, lanes, y));
}

SIMD_INLINE void LINE(sum_vector)(const LINE(taps) * few, const tap *taps, int64_t count, int64_t shift, int64_t i,
                                  int lanes, LINE_T *y, const LINE_T *counts, LINE_V divisor, bool divides) {
    LINE_V sum = count ? LINE_VALUE(0) : LINE(set1)(0);
    for (int64_t t = 1; t < count; t++) sum = LINE(add)(sum, LINE_VALUE(t));
    if (divides) sum = LINE_F(div)(sum, counts ? LINE(mul)(divisor, LINE(load_n)(counts + i, lanes)) : divisor);
    LINE(store_n)(y + i, sum, lanes);
}

static void LINE(sum_line)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y, const void *counts,
                           double divisor) {
    const LINE_V by = LINE(set1)((LINE_T)divisor);
    const bool divides = divisor != 1 || counts;
    if (count == 1) LINE_WITH(1, shift, n, LINE(sum_vector), y, counts, by, divides);
    else if (count == 2) LINE_WITH(2, shift, n, LINE(sum_vector), y, counts, by, divides);
    else if (count == 4) LINE_WITH(4, shift, n, LINE(sum_vector), y, counts, by, divides);
    else LINE_EACH(n, LINE(sum_vector)(NULL, taps, count, shift, i, lanes, y, counts, by, divides));
}

static void LINE(deinterleave)(void *phases_, int64_t length, const void *from_, int64_t n, int64_t stride,
                               int64_t before, int64_t in_use) {
    LINE_T *restrict phases = phases_;
    const LINE_T *restrict from = from_;
    if (stride == 1) {
        memcpy(phases + before, from, (size_t)n * sizeof *phases);
        return;
    }
    if (stride == 2 && in_use == 2) {
        LINE_T *restrict even = phases + before % 2 * length + before / 2;
        LINE_T *restrict odd = phases + (before + 1) % 2 * length + (before + 1) / 2;
        for (int64_t i = 0; i < n / 2; i++) {
            even[i] = from[2 * i];
            odd[i] = from[2 * i + 1];
        }
        if (n % 2) even[n / 2] = from[n - 1];
        return;
    }
    for (int64_t i = 0, r = before % stride, q = before / stride; i < n; i++) {
        if (r < in_use) phases[r * length + q] = from[i];
        if (++r == stride) r = 0, q++;
    }
}

static void LINE(interleave)(void *to_, const void *const *phases, int64_t stride, int64_t n) {
    LINE_T *restrict to = to_;
    if (stride == 2 && n > 1) {
        const LINE_T *restrict even = phases[0], *restrict odd = phases[1];
        for (int64_t i = 0; i < n / 2; i++) {
            to[2 * i] = even[i];
            to[2 * i + 1] = odd[i];
        }
        if (n % 2) to[n - 1] = even[n / 2];
        return;
    }
    for (int64_t p = 0; p < ct__min64(stride, n); p++)
        for (int64_t i = p, k = 0; i < n; i += stride, k++) to[i] = ((const LINE_T *)phases[p])[k];
}

#include "ops/pool/cpu/lines/pair_loops.h"

#undef LINE_T
#undef LINE_V
#undef LINE
#undef LINE_I
#undef LINE_HALF
#undef LINE_F
#undef LINE_N
#undef LINE_M
#undef LINE_MASK_T
#undef LINE_FEW
#undef LINE_EACH
#undef LINE_VALUE
#undef LINE_CODE
#undef LINE_NUMBER
#undef LINE_WITH
#undef PAIR_PREFETCH
#undef PAIR_PREFETCH_ROW
#undef PAIR_PREFETCH_ROWS
#undef PAIR_LOAD
#undef PAIR_PIXELS
#undef PAIR_MAX
#undef PIXEL_MAX
#undef PAIR_IF
#undef LINE_D
#undef LINE_FLOATS
#undef LINE_INTEGERS
#undef LINE_MASKS
