/* What happens to a panel of finished sums: C's old value, bias, residual, activation, conversion,
 * store. Everything is done row by row while the panel is in cache. */
#include "backends/cpu/gemm/isa.h"
#include "backends/cpu/gemm/transpose.h"

#if CT_ISA_LEVEL < 3 /* avx512bf16 uses that of avx512 */

enum { SEGMENT = 256 };

#define ADD_LOOP(T)                                              \
    {                                                            \
        T *x = (T *)sums;                                        \
        const T *y = (const T *)more;                            \
        for (int64_t j = 0; j < n; j++) x[j] = (T)(x[j] + y[j]); \
        break;                                                   \
    }

static void add(ct_gemm_type acc, void *restrict sums, const void *restrict more, int64_t n) {
    switch (acc) {
    case CT_GEMM_F32: ADD_LOOP(float)
    case CT_GEMM_F64: ADD_LOOP(double)
    case CT_GEMM_I32: ADD_LOOP(uint32_t)
    default: ADD_LOOP(uint64_t)
    }
}

/* sums[j] += src[j * stride] for values of any type. */
static void add_from(ct_gemm_type acc, char *sums, const char *src, ct_gemm_type type, int64_t stride, int64_t n) {
    const int64_t size = ct__type_size(type);
    char raw[SEGMENT * 8], wide[SEGMENT * 8] __attribute__((aligned(64)));
    if (stride == 1 && type == acc) {
        add(acc, sums, src, n);
        return;
    }
    for (int64_t j = 0; j < n; j += SEGMENT) {
        const int64_t count = ct__min(SEGMENT, n - j);
        const char *from = src + j * stride * size;
        if (stride != 1) {
            gather_bytes(raw, from, stride * size, count, size);
            from = raw;
        }
        convert_in(wide, acc, from, type, count);
        add(acc, sums + j * ct__type_size(acc), wide, count);
    }
}

static void add_scalar(ct_gemm_type acc, char *sums, const char *src, ct_gemm_type type, int64_t n) {
    char value[8] __attribute__((aligned(8)));
    convert_in(value, acc, src, type, 1);
#define SCALAR_LOOP(T)                                        \
    {                                                         \
        T *x = (T *)(void *)sums, y;                          \
        memcpy(&y, value, sizeof(T));                         \
        for (int64_t j = 0; j < n; j++) x[j] = (T)(x[j] + y); \
        break;                                                \
    }
    switch (acc) {
    case CT_GEMM_F32: SCALAR_LOOP(float)
    case CT_GEMM_F64: SCALAR_LOOP(double)
    case CT_GEMM_I32: SCALAR_LOOP(uint32_t)
    default: SCALAR_LOOP(uint64_t)
    }
}

static void store_row(ct_gemm_type acc, const char *sums, char *dst, ct_gemm_type type, int64_t stride, int64_t n) {
    const int64_t size = ct__type_size(type);
    char raw[SEGMENT * 8] __attribute__((aligned(64)));
    if (stride == 1) {
        convert_rows(dst, 0, type, sums, 0, acc, 1, n);
        return;
    }
    for (int64_t j = 0; j < n; j += SEGMENT) {
        const int64_t count = ct__min(SEGMENT, n - j);
        convert_rows(raw, 0, type, sums + j * ct__type_size(acc), 0, acc, 1, count);
        scatter_bytes(dst + j * stride * size, stride * size, raw, count, size);
    }
}

#if CT_ISA_LEVEL == 2
/* A panel whose rows are C's columns, narrowed on the way: two rows become one of pairs, and these are transposed in blocks. */
static void store_transposed_bf16(const char *c_panel, int64_t ld, char *dst, int64_t dst_row, int64_t rows,
                                  int64_t cols) {
    enum { SIDE = 16, LINE = 64 };
    char pairs[SIDE * LINE] __attribute__((aligned(64))), transposed[SIDE * LINE] __attribute__((aligned(64)));
    for (int64_t i = 0; i < rows; i += 2 * SIDE)
        for (int64_t j = 0; j < cols; j += SIDE) {
            const int64_t high = ct__min(2 * SIDE, rows - i), columns = ct__min(SIDE, cols - j), units = (high + 1) / 2;
            const __mmask16 in = (__mmask16)((1u << columns) - 1u);
            const char *from = c_panel + (i * ld + j) * 4;
            char *to = dst + (j * dst_row + i) * 2;
            for (int64_t r = 0; r < units; r++, from += 2 * ld * 4) {
                const __m512i a = bf16_upper(_mm512_maskz_loadu_epi32(in, from)),
                              b = bf16_upper(_mm512_maskz_loadu_epi32(2 * r + 1 < high ? in : 0, from + ld * 4));
                _mm512_store_si512(pairs + r * LINE, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b));
            }
            const bool whole = high % 2 == 0;
            transpose(whole ? to : transposed, whole ? dst_row * 2 : LINE, pairs, LINE, units, columns, units, 4);
            for (int64_t c = 0; c < columns && !whole; c++)
                copy_bytes(to + c * dst_row * 2, transposed + c * LINE, high * 2);
        }
}
#endif

/* The same for any types: transposed in blocks, then whole lines are converted. */
static void store_transposed(ct_gemm_type acc, const char *c_panel, int64_t ld, char *dst, ct_gemm_type type,
                             int64_t dst_row, int64_t rows, int64_t cols) {
    enum { ROWS = 64, COLS = 16 };
    const int64_t wide = ct__type_size(acc), size = ct__type_size(type);
    char transposed[ROWS * COLS * 8] __attribute__((aligned(64)));
#if CT_ISA_LEVEL == 2
    if (acc == CT_GEMM_F32 && type == CT_GEMM_BF16) {
        store_transposed_bf16(c_panel, ld, dst, dst_row, rows, cols);
        return;
    }
#endif
    for (int64_t i = 0; i < rows; i += ROWS)
        for (int64_t j = 0; j < cols; j += COLS) {
            const int64_t high = ct__min(ROWS, rows - i), columns = ct__min(COLS, cols - j);
            transpose(transposed, ROWS * wide, c_panel + (i * ld + j) * wide, ld * wide, high, columns, high, wide);
            convert_rows(dst + j * dst_row * size + i * size, dst_row * size, type, transposed, ROWS * wide, acc,
                         columns, high);
        }
}

void CT_ISA_FN(ct__gemm_finish)(const ct__finish *f, void *c_panel, int64_t ld, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols) {
    const ct_gemm *g = f->g;
    const int64_t acc = ct__type_size(f->acc), c_size = ct__type_size(g->c_type);
    const int64_t bias_size = ct__type_size(g->bias_type);
    /* Seen from the c_panel, whose rows are C's columns when the product is computed transposed. */
    const int64_t c_row = f->swapped ? g->c_col : g->c_row, c_col = f->swapped ? g->c_row : g->c_col;
    const int64_t r_row = f->swapped ? g->residual_col : g->residual_row;
    const int64_t r_col = f->swapped ? g->residual_row : g->residual_col;
    const char *bias_row = f->swapped ? f->bias_col : f->bias_row;
    const char *bias_col = f->swapped ? f->bias_row : f->bias_col;
    char *c = f->c + (row0 * c_row + col0 * c_col) * c_size;
    const bool old = g->accumulate && !f->in_place;
    const bool transposed = !f->in_place && !g->store && c_row == 1 && c_col != 1;

    const bool bare = !old && !bias_row && !bias_col && !f->residual && !g->activate;
    if (bare && !f->in_place && !g->store && !transposed && c_col == 1) {
        convert_rows(c, c_row * c_size, g->c_type, c_panel, ld * acc, f->acc, rows, cols);
        return;
    }
    for (int64_t i = 0; i < rows && !(bare && transposed); i++) {
        char *x = (char *)c_panel + i * ld * acc;
        if (old) add_from(f->acc, x, c + i * c_row * c_size, g->c_type, c_col, cols);
        if (bias_row) add_scalar(f->acc, x, bias_row + (row0 + i) * bias_size, g->bias_type, cols);
        if (bias_col) add_from(f->acc, x, bias_col + col0 * bias_size, g->bias_type, 1, cols);
        if (f->residual)
            add_from(f->acc, x, f->residual + ((row0 + i) * r_row + col0 * r_col) * c_size, g->c_type, r_col, cols);
        if (g->activate) g->activate(g->activate_ctx, x, cols);
        if (!f->in_place && !g->store && !transposed)
            store_row(f->acc, x, c + i * c_row * c_size, g->c_type, c_col, cols);
    }
    if (g->store) g->store(g->store_ctx, f->batch, c_panel, ld, row0, rows, col0, cols);
    if (!transposed) return;
    if (g->c_type == f->acc) transpose(c, c_col * c_size, (const char *)c_panel, ld * acc, rows, cols, rows, acc);
    else store_transposed(f->acc, c_panel, ld, c, g->c_type, c_col, rows, cols);
}

#endif
