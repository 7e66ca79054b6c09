/* Weights and their gradient, which are f32, by inputs of bf16, in matrix registers, by terms (gemm/terms.h). Rows
 * of them become terms either as A (products over keys) or in pairs as the panels of B (products over queries,
 * transposed). */
#ifndef COTANGENT_OPS_ATTENTION_SDPA_TERMS_H
#define COTANGENT_OPS_ATTENTION_SDPA_TERMS_H

#include "backends/cpu/gemm/terms.h"
#include "ops/attention/cpu/sdpa.h"

/* Once in each file: they do much at a call. */
#define SDPA_OWN_CALL static __attribute__((noinline, unused))

/* Bytes of a term of a tile of rows. */
enum { SDPA_TERM = SDPA_TILE * SDPA_LD * 2 };

/* A tile of rows of n, SDPA_LD apart, as three terms, each filled up to whole pairs. */
SDPA_OWN_CALL void sdpa_terms_of_rows(const char *from, int64_t rows, int64_t n, char *to) {
    for (int64_t r = 0; r < rows; r++) {
        uint16_t *row = (uint16_t *)(void *)to + r * SDPA_LD;
        ct__terms_of((const float *)(const void *)from + r * SDPA_LD, n, row, SDPA_TERM / 2);
        for (int64_t t = 0; n % 2 && t < CT__TERMS; t++) row[t * SDPA_TERM / 2 + n] = 0;
    }
}

/* Panels of terms in pairs of rows: one after another for each term, `term` bytes apart. */
typedef struct sdpa_pairs {
    char *at;
    int64_t panel, term;
} sdpa_pairs;

static inline int64_t sdpa_pairs_bytes(const sdpa *s, int64_t rows) {
    return ct__panel_bytes(s->inputs, rows) * ct__ceil_div(SDPA_KEYS, ct__panel_width(s->inputs));
}

/* Rows r0.. of a block, r0 even, as parts of its panels. An odd last row has zeros beside it. */
SDPA_OWN_CALL void sdpa_terms_in_pairs(const sdpa *s, const char *from, int64_t r0, int64_t rows, int64_t n,
                                       const sdpa_pairs *to) {
    const int64_t width = ct__panel_width(s->inputs);
    static const float none[SDPA_KEYS];
    for (int64_t r = 0; r < rows; r += 2)
        for (int64_t j = 0; j < n; j += width) {
            const float *x = (const float *)(const void *)from + r * SDPA_LD + j;
            char *at = to->at + j / width * to->panel + (r0 + r) / 2 * width * 4;
            ct__terms_in_pairs(x, r + 1 < rows ? x + SDPA_LD : none, ct__min64(width, n - j), (uint32_t *)(void *)at,
                               to->term / 4);
        }
}

/* An input's rows of keys as the panels of B. */
static inline void sdpa_key_panels(const sdpa *s, const ct_view *x, int64_t b, int64_t h, int64_t r0, int64_t n,
                                   void *panels) {
    const ct__matrix m = sdpa_matrix(x, b, h, r0);
    if (n > 0 && x->dims[3] > 0) ct__gemm_isa->pack_b(s->inputs, &m, panels, n, x->dims[3]);
}
static inline int64_t sdpa_key_panels_bytes(const sdpa *s, int64_t cols) {
    return ct__panel_bytes(s->inputs, SDPA_KEYS) * ct__ceil_div(cols, ct__panel_width(s->inputs));
}

/* C (m, cols) (+)= terms (m, n) by such panels, which hold `keys` of them. */
SDPA_OWN_CALL void sdpa_over_keys(const sdpa *s, const char *terms, int64_t m, int64_t n, const char *panels,
                                  int64_t keys, char *c, int64_t c_row, int64_t cols, bool accumulate) {
    const ct__run runs[CT__TERMS] = {{0, 0}, {SDPA_TERM, 0}, {2 * SDPA_TERM, 0}};
    const ct__block product = {.a = terms,
                               .a_row = SDPA_LD * 2,
                               .a_step = 4,
                               .b = panels,
                               .b_step = ct__panel_width(s->inputs) * 4,
                               .panel = ct__panel_bytes(s->inputs, keys),
                               .c = c,
                               .c_row = c_row,
                               .m = m,
                               .n = cols,
                               .k = ct__ceil_div(n, 2),
                               .runs = runs,
                               .n_runs = CT__TERMS,
                               .accumulate = accumulate};
    ct__block_multiply(s->inputs, &product);
}

/* C^T (cols, n) (+)= an input's rows, transposed (cols, rows), by terms in pairs (rows, n). */
SDPA_OWN_CALL void sdpa_over_queries(const sdpa *s, const char *transposed, int64_t ld, int64_t cols,
                                     const sdpa_pairs *pairs, int64_t rows, int64_t n, char *c, bool accumulate) {
    const ct__run runs[CT__TERMS] = {{0, 0}, {0, pairs->term}, {0, 2 * pairs->term}};
    const ct__block product = {.a = transposed,
                               .a_row = ld,
                               .a_step = 4,
                               .b = pairs->at,
                               .b_step = ct__panel_width(s->inputs) * 4,
                               .panel = pairs->panel,
                               .c = c,
                               .c_row = SDPA_LD * 4,
                               .m = cols,
                               .n = n,
                               .k = ct__ceil_div(rows, 2),
                               .runs = runs,
                               .n_runs = CT__TERMS,
                               .accumulate = accumulate};
    ct__block_multiply(s->inputs, &product);
}

#endif
