/* Loops over lines of elements, which every way to pool is made of. A line is a row of windows (channels first) or the channels
 * of one window (channels last); a window's taps are lines as well. Computed in f32 or f64; half types are widened when a line
 * is loaded. What a maximum was taken from is told by the tap's number in the kernel: its code. */
#ifndef COTANGENT_OPS_POOL_LINES_H
#define COTANGENT_OPS_POOL_LINES_H

#include <cotangent/backend.h>

/* A tap of a line: where its values are, where their codes are, and its number in the kernel. */
typedef struct tap {
    const void *value, *code;
    int64_t number;
} tap;

enum { PADDING = 1 << 30 }; /* the code of padding: greater than any tap's number */

typedef struct line_ops {
    size_t size; /* of an element in scratch; codes are as large */
    void (*load)(void *to, const void *from, int64_t stride, int64_t n, ct_dtype dtype);
    void (*store)(void *to, int64_t stride, const void *from, int64_t n, ct_dtype dtype);
    void (*fill)(void *to, int64_t n, double value);
    void (*load_codes)(void *to, const void *from, int64_t stride, int64_t n, ct_dtype dtype);
    void (*store_codes)(void *to, const void *from, int64_t n, ct_dtype dtype);
    void (*fill_codes)(void *to, int64_t n, int64_t code);
    /* y = the greatest tap (the first NaN if there is one) and, where codes is not NULL, its number. Here and below
     * taps lie `shift` elements behind their pointers */
    void (*max)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y, void *codes);
    /* the same for taps that have codes: of equals the least code + number wins, and is the result. No NaN */
    void (*across)(const tap *taps, int64_t count, int64_t n, void *y, void *codes);
    bool (*has_nan)(const void *values, int64_t n);
    /* y = the sum of the taps whose number is their code */
    void (*pick)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y);
    /* y = the sum of the taps, over divisor * counts (NULL: 1) */
    void (*sum)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y, const void *counts, double divisor);
    /* phases[r][q] = from[i] for i + before = q * stride + r, for phases r in use; they are `length` apart */
    void (*deinterleave)(void *phases, int64_t length, const void *from, int64_t n, int64_t stride, int64_t before,
                         int64_t in_use);
    /* to[i] = phases[i % stride][i / stride] */
    void (*interleave)(void *to, const void *const *phases, int64_t stride, int64_t n);
} line_ops;

/* n windows two apart along a row, from rows to y, or from g (and the winners) to two rows of dx. inner: 0, or the channels of
 * a pixel where they come last. stream: past the caches, which wants rows of whole cache lines. */
typedef struct pair_ops {
    /* These two return true, and have written nothing of worth, where there was NaN. */
    bool (*max_row)(const tap *sources, int64_t count, int64_t before, int64_t n, void *y, uint8_t *codes);
    bool (*max_pixels)(const tap *sources, int64_t kernel, int64_t n, int64_t inner, void *y, uint8_t *codes);
    void (*mean)(const void *above, const void *below, int64_t n, int64_t inner, double divisor, void *y);
    void (*spread)(const void *g, int64_t n, int64_t inner, double divisor, void *above, void *below, bool stream);
    void (*pick)(int64_t kernel, const void *g, const uint8_t *at, const void *g_next, const uint8_t *at_next,
                 int64_t n, int64_t inner, void *above, void *below, bool stream);
} pair_ops;

/* What depends on the level of vector instructions. */
typedef struct pool_isa {
    line_ops lines[2]; /* f32, f64 */
    pair_ops pairs[2];
    int lanes; /* of a vector of f32 */
    /* past the caches: backends/cpu/copy.h */
    bool (*stream_worth)(int64_t bytes);
    void (*stream)(void *to, const void *from, int64_t n, size_t size);
    void (*stream_end)(void);
} pool_isa;

#endif
