/* Built-in packers: strided matrices of any supported type into the tiles' format (gemm.h).
 * Where the source cannot be read as it is (another type, no unit stride), it goes through a small
 * buffer first, so that there is one fast path for each orientation. */
#include "backends/cpu/gemm/isa.h"
#include "backends/cpu/gemm/transpose.h"

#if CT_ISA_LEVEL < 3 /* avx512bf16 uses that of avx512 */

enum { CHUNK = 64 }; /* k handled at a time when converting; a multiple of every group */

static inline int64_t panel_width(const ct__kernel *k) { return (int64_t)k->lanes * k->vecs; }

void convert_in(void *restrict dst, ct_gemm_type to, const void *restrict src, ct_gemm_type from, int64_t n) {
    if (to == from) {
        copy_bytes(dst, src, n * ct__type_size(to));
        return;
    }
    switch (to) {
    case CT_GEMM_F32:
        if (from == CT_GEMM_BF16) CONVERT_LOOP(float, uint16_t, bf16_to_f32(x))
        if (from == CT_GEMM_F16) {
            int64_t i = 0;
#if defined(__AVX512F__)
            for (; i + 16 <= n; i += 16)
                _mm512_storeu_ps((float *)dst + i,
                                 _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)src + i))));
#elif defined(__F16C__)
            for (; i + 8 <= n; i += 8)
                _mm256_storeu_ps((float *)dst + i,
                                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)src + i))));
#endif
            for (; i < n; i++) ((float *)dst)[i] = f16_to_f32(((const uint16_t *)src)[i]);
            return;
        }
        break;
    case CT_GEMM_F64:
        if (from == CT_GEMM_F32) CONVERT_LOOP(double, float, x)
        break;
    case CT_GEMM_I16:
        if (from == CT_GEMM_I8) CONVERT_LOOP(int16_t, int8_t, x)
        if (from == CT_GEMM_U8) CONVERT_LOOP(int16_t, uint8_t, x)
        break;
    case CT_GEMM_I32:
        if (from == CT_GEMM_I8) CONVERT_LOOP(int32_t, int8_t, x)
        if (from == CT_GEMM_U8) CONVERT_LOOP(int32_t, uint8_t, x)
        if (from == CT_GEMM_I16) CONVERT_LOOP(int32_t, int16_t, x)
        if (from == CT_GEMM_I64) CONVERT_LOOP(int32_t, int64_t, x)
        break;
    case CT_GEMM_I64:
        if (from == CT_GEMM_I8) CONVERT_LOOP(int64_t, int8_t, x)
        if (from == CT_GEMM_U8) CONVERT_LOOP(int64_t, uint8_t, x)
        if (from == CT_GEMM_I16) CONVERT_LOOP(int64_t, int16_t, x)
        if (from == CT_GEMM_I32) CONVERT_LOOP(int64_t, int32_t, x)
        break;
    default:
        /* i8 and u8 share their bits; the tile knows which is which. */
        if (ct__type_size(to) == ct__type_size(from)) memcpy(dst, src, (size_t)(n * ct__type_size(to)));
        break;
    }
}

/* `group` rows of `n` elements into one row of units. */
static void interleave(char *restrict dst, const char *restrict src, int64_t src_row, int64_t have, int64_t group,
                       int64_t n, int64_t size) {
    if (size == 2 && group == 2) {
        const any16 *x = (const any16 *)(const void *)src;
        const any16 *y = (const any16 *)(const void *)(src + src_row);
        any32 *d = (any32 *)(void *)dst;
        if (have == 2)
            for (int64_t j = 0; j < n; j++) d[j] = x[j] | (uint32_t)y[j] << 16;
        else
            for (int64_t j = 0; j < n; j++) d[j] = x[j];
        return;
    }
    /* size 1, group 4 */
    any32 *d = (any32 *)(void *)dst;
    const uint8_t *x = (const uint8_t *)src;
    if (have == 4) {
        const uint8_t *y = x + src_row, *z = y + src_row, *w = z + src_row;
        for (int64_t j = 0; j < n; j++) d[j] = x[j] | (uint32_t)y[j] << 8 | (uint32_t)z[j] << 16 | (uint32_t)w[j] << 24;
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        uint32_t u = 0;
        for (int64_t q = 0; q < have; q++) u |= (uint32_t)x[q * src_row + j] << (8 * q);
        d[j] = u;
    }
}

#if CT_ISA_LEVEL == 2
/* The same for pairs of 2 bytes in vectors of 32, n a multiple of it. */
static inline void interleave_pairs(char *restrict dst, const char *restrict x, const char *restrict y, int64_t n) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0),
                  high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int64_t j = 0; j < n; j += 32) {
        const __m512i a = _mm512_loadu_si512(x + 2 * j), b = _mm512_loadu_si512(y + 2 * j);
        _mm512_storeu_si512(dst + 4 * j, _mm512_permutex2var_epi16(a, low, b));
        _mm512_storeu_si512(dst + 4 * j + 64, _mm512_permutex2var_epi16(a, high, b));
    }
}
#endif

/* k rows of contiguous columns -> panel. Source already of the packed type. */
static void panel_from_rows(const ct__kernel *k, const char *src, int64_t src_row, char *dst, int64_t depth,
                            int64_t cols) {
    const int64_t size = ct__type_size(k->packed), group = k->group, unit = size * group;
    const int64_t width = panel_width(k), bytes = width * unit;
#if CT_ISA_LEVEL == 2
    if (size == 2 && group == 2 && cols % 32 == 0)
        for (; depth > 1; depth -= 2, dst += bytes, src += 2 * src_row) {
            __builtin_prefetch(src + cols * size); /* the next panel */
            __builtin_prefetch(src + src_row + cols * size);
            interleave_pairs(dst, src, src + src_row, cols);
        }
#endif
    for (int64_t p = 0; p < depth; p += group, dst += bytes, src += group * src_row) {
        if (group == 1) memcpy(dst, src, (size_t)(cols * unit));
        else {
            for (int64_t q = 0; q < group; q++)
                __builtin_prefetch(src + q * src_row + cols * size); /* the next panel */
            interleave(dst, src, src_row, ct__min(group, depth - p), group, cols, size);
        }
    }
}

/* Four whole panels at once, row by row: B is then read in longer runs. */
static void panels_from_rows(const char *src, int64_t src_row, char *dst, int64_t depth, int64_t row_bytes) {
    const int64_t panel = depth * row_bytes;
    for (int64_t p = 0; p < depth; p++, dst += row_bytes, src += src_row)
        for (int i = 0; i < 4; i++) copy_bytes(dst + i * panel, src + i * row_bytes, row_bytes);
}

/* Columns contiguous along k -> panel. */
static void panel_from_columns(const ct__kernel *k, const char *src, int64_t src_col, char *dst, int64_t depth,
                               int64_t cols) {
    const int64_t size = ct__type_size(k->packed), group = k->group, unit = size * group;
    const int64_t width = panel_width(k), units = depth / group, tail = depth % group;
    transpose(dst, width * unit, src, src_col, cols, units, cols, unit);
    if (tail) {
        dst += units * width * unit;
        memset(dst, 0, (size_t)(width * unit));
        for (int64_t j = 0; j < cols; j++)
            memcpy(dst + j * unit, src + j * src_col + units * unit, (size_t)(tail * size));
    }
}

/* n elements `stride` apart -> contiguous, of the packed type. */
static void fetch(void *dst, ct_gemm_type to, const char *src, ct_gemm_type from, int64_t stride, int64_t n) {
    const int64_t size = ct__type_size(from);
    char raw[CHUNK * 8];
    if (stride == 1) {
        convert_in(dst, to, src, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t count = ct__min(CHUNK, n - i);
        gather_bytes(raw, src + i * stride * size, stride * size, count, size);
        convert_in((char *)dst + i * ct__type_size(to), to, raw, from, count);
    }
}

static bool same_bits(ct_gemm_type a, ct_gemm_type b) {
    return a == b || (ct__type_size(a) == 1 && ct__type_size(b) == 1);
}

static void pack_panel(const ct__kernel *k, const ct__matrix *src, char *d, int64_t depth, int64_t cols) {
    const int64_t from = ct__type_size(src->type), to = ct__type_size(k->packed);
    const char *s = (const char *)src->data;
    if (same_bits(src->type, k->packed)) {
        if (src->col == 1) {
            panel_from_rows(k, s, src->row * from, d, depth, cols);
            return;
        }
        if (src->row == 1) {
            panel_from_columns(k, s, src->col * from, d, depth, cols);
            return;
        }
    }
    const int64_t width = panel_width(k);
    char buffer[CHUNK * CT__TILE_WIDTH_MAX * 8];
    for (int64_t p = 0; p < depth; p += CHUNK) {
        const int64_t count = ct__min(CHUNK, depth - p);
        const char *at = s + p * src->row * from;
        if (src->col == 1) {
            for (int64_t i = 0; i < count; i++)
                convert_in(buffer + i * width * to, k->packed, at + i * src->row * from, src->type, cols);
            panel_from_rows(k, buffer, width * to, d, count, cols);
        } else {
            for (int64_t j = 0; j < cols; j++)
                fetch(buffer + j * CHUNK * to, k->packed, at + j * src->col * from, src->type, src->row, count);
            panel_from_columns(k, buffer, CHUNK * to, d, count, cols);
        }
        d += count * width * to;
    }
}

void CT_ISA_FN(ct__gemm_pack_b)(const ct__kernel *k, const ct__matrix *src, void *dst, int64_t depth, int64_t cols) {
    const int64_t size = ct__type_size(src->type), width = panel_width(k);
    const int64_t bytes = (depth + k->group - 1) / k->group * k->group * width * ct__type_size(k->packed);
    ct__matrix at = *src;
    char *d = (char *)dst;
    if (k->group == 1 && src->type == k->packed && src->col == 1)
        for (; cols >= 4 * width; cols -= 4 * width, d += 4 * bytes) {
            panels_from_rows((const char *)at.data, src->row * size, d, depth, width * size);
            at.data = (const char *)at.data + 4 * width * size;
        }
    for (int64_t j = 0; j < cols; j += width, d += bytes) {
        pack_panel(k, &at, d, depth, ct__min(width, cols - j));
        at.data = (const char *)at.data + width * src->col * size;
    }
}

/* Prefetches every line of a span that may begin and end within one; into L2, since spans 4 KiB apart would push
 * each other out of L1. Always inlined: compilers take a function that only prefetches for one without effect and
 * drop its calls. */
static inline __attribute__((always_inline)) void prefetch_lines(const char *at, int64_t bytes) {
    const char *end = at + bytes;
    for (at -= (uintptr_t)at % 64; at < end; at += 64) __builtin_prefetch(at, 0, 2);
}

/* Rows of A side by side, k apart, into rows of k: groups of k are joined first, then units of four bytes transposed. */
static void rows_from_columns(const ct__kernel *k, const char *src, int64_t src_col, char *dst, int64_t dst_row,
                              int64_t rows, int64_t depth) {
    enum { GROUPS = 16 };
    const int64_t size = ct__type_size(k->packed), group = k->group;
    char joined[GROUPS * CHUNK * 4];
    for (int64_t i = 0; i < rows; i += CHUNK) {
        const int64_t high = ct__min(CHUNK, rows - i);
        for (int64_t p = 0; p < depth; p += GROUPS * group) {
            const int64_t groups = ct__ceil_div(ct__min(GROUPS * group, depth - p), group);
            for (int64_t q = 0; q < groups; q++) {
                const int64_t at = p + q * group;
                interleave(joined + q * CHUNK * 4, src + at * src_col + i * size, src_col, ct__min(group, depth - at),
                           group, high, size);
            }
            transpose(dst + i * dst_row + p * size, dst_row, joined, CHUNK * 4, groups, high, groups, 4);
        }
    }
}

/* `rows` elements side by side, high of them to a panel; the panels are `panel` bytes apart. */
static inline void spread_row(const ct__kernel *k, char *dst, int64_t panel, int64_t high, const char *src,
                              const ct__matrix *from, int64_t rows) {
#if CT_ISA_LEVEL == 2
    if (from->type == k->packed && from->row == 1 && ct__type_size(k->packed) == 4 && high <= 16) { /* a vector each */
        const __mmask16 whole = (__mmask16)(0xffffu >> (16 - high)), rest = (__mmask16)((1u << rows % high) - 1);
        for (; rows >= high; rows -= high, src += 4 * high, dst += panel)
            _mm512_mask_storeu_epi32(dst, whole, _mm512_maskz_loadu_epi32(whole, src));
        if (rows) _mm512_mask_storeu_epi32(dst, rest, _mm512_maskz_loadu_epi32(rest, src));
        return;
    }
    if (from->type == k->packed && from->row == 1 && ct__type_size(k->packed) == 8 && high <= 16) { /* one or two */
        const __mmask8 first = (__mmask8)(high < 8 ? 0xffu >> (8 - high) : 0xffu);
        const __mmask8 last = (__mmask8)(high > 8 ? 0xffu >> (16 - high) : 0);
        for (; rows >= high; rows -= high, src += 8 * high, dst += panel) {
            _mm512_mask_storeu_epi64(dst, first, _mm512_maskz_loadu_epi64(first, src));
            if (last) _mm512_mask_storeu_epi64(dst + 64, last, _mm512_maskz_loadu_epi64(last, src + 64));
        }
        memcpy(dst, src, (size_t)rows * 8);
        return;
    }
#elif CT_ISA_LEVEL == 1 && defined(__AVX2__)
    /* Vectors of eight units, whatever the height: what is too much lies where the next k group will be written, or in the gap behind the
     * panel. Of the source nothing is read that lies behind its rows. */
    const int64_t size = ct__type_size(k->packed);
    if (from->type == k->packed && from->row == 1 && size >= 4 && high <= 8) {
        for (; rows >= 8; rows -= high, src += high * size, dst += panel) {
            _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_loadu_si256((const __m256i *)(const void *)src));
            if (high * size > 32)
                _mm256_storeu_si256((__m256i *)(void *)(dst + 32),
                                    _mm256_loadu_si256((const __m256i *)(const void *)(src + 32)));
        }
        for (; rows > 0; rows -= high, src += high * size, dst += panel)
            copy_bytes(dst, src, ct__min(high, rows) * size);
        return;
    }
#endif
    const int64_t step = high * from->row * ct__type_size(from->type);
    for (; rows > 0; rows -= high, src += step, dst += panel)
        fetch(dst, k->packed, src, from->type, from->row, ct__min(high, rows));
}

#if CT_ISA_LEVEL == 1 && defined(__AVX2__)
/* Four k groups of six rows each make three vectors: whole ones, which no line divides. */
static inline void spread_six(char *dst, int64_t panel, const char *src, int64_t src_col, int64_t rows) {
#define HALF(at) _mm_loadu_ps((const float *)(const void *)(at))
#define QUARTERS(a, b) \
    _mm_castpd_ps(_mm_loadh_pd(_mm_load_sd((const double *)(const void *)(a)), (const double *)(const void *)(b)))
#define STORE(at, low, high) \
    _mm256_storeu_ps((float *)(void *)(at), _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1))
    const char *a = src, *b = a + src_col, *c = b + src_col, *d = c + src_col;
    for (; rows >= 6; rows -= 6, a += 24, b += 24, c += 24, d += 24, dst += panel) {
        STORE(dst, HALF(a), QUARTERS(a + 16, b));
        STORE(dst + 32, HALF(b + 8), HALF(c));
        STORE(dst + 64, QUARTERS(c + 16, d), HALF(d + 8));
    }
    if (rows > 0) {
        copy_bytes(dst, a, rows * 4);
        copy_bytes(dst + 24, b, rows * 4);
        copy_bytes(dst + 48, c, rows * 4);
        copy_bytes(dst + 72, d, rows * 4);
    }
#undef HALF
#undef QUARTERS
#undef STORE
}
#endif

#if CT_ISA_LEVEL == 2
/* 16 units, or as many as `mask` has bits: `have` of two elements of two bytes, or of four of one, each from a row of its own. */
static inline __m512i join_units(const char *src, int64_t src_col, int64_t have, int64_t size, __mmask16 mask) {
    if (size == 2) {
        const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38,
                                               6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
        const __m256i x = _mm256_maskz_loadu_epi16(mask, src),
                      y = have > 1 ? _mm256_maskz_loadu_epi16(mask, src + src_col) : _mm256_setzero_si256();
        return _mm512_permutex2var_epi16(_mm512_castsi256_si512(x), order, _mm512_castsi256_si512(y));
    }
    __m128i row[4];
    for (int q = 0; q < 4; q++) row[q] = q < have ? _mm_maskz_loadu_epi8(mask, src + q * src_col) : _mm_setzero_si128();
    const __m128i low[] = {_mm_unpacklo_epi8(row[0], row[1]), _mm_unpacklo_epi8(row[2], row[3])},
                  high[] = {_mm_unpackhi_epi8(row[0], row[1]), _mm_unpackhi_epi8(row[2], row[3])};
    const __m256i first = _mm256_set_m128i(_mm_unpackhi_epi16(low[0], low[1]), _mm_unpacklo_epi16(low[0], low[1])),
                  last = _mm256_set_m128i(_mm_unpackhi_epi16(high[0], high[1]), _mm_unpacklo_epi16(high[0], high[1]));
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1);
}
#endif

/* The same for `have` rows of a k group, joined to units. */
static inline void spread_group(const ct__kernel *k, char *dst, int64_t panel, int64_t high, const char *src,
                                const ct__matrix *from, int64_t have, int64_t rows) {
    const int64_t size = ct__type_size(from->type), to = ct__type_size(k->packed), src_col = from->col * size;
    const bool same = same_bits(from->type, k->packed);
#if CT_ISA_LEVEL == 2
    if (same && high <= 16) {
        for (; rows > 0; rows -= high, src += high * size, dst += panel) {
            const __mmask16 mask = (__mmask16)(0xffffu >> (16 - ct__min(high, rows)));
            _mm512_mask_storeu_epi32(dst, mask, join_units(src, src_col, have, size, mask));
        }
        return;
    }
#endif
    char buffer[4 * 4 * CHUNK];
    for (; rows > 0; rows -= high, src += high * size, dst += panel) {
        const int64_t count = ct__min(high, rows);
        for (int64_t q = 0; q < have && !same; q++)
            convert_in(buffer + q * CHUNK * to, k->packed, src + q * src_col, from->type, count);
        interleave(dst, same ? src : buffer, same ? src_col : CHUNK * to, have, k->group, count, to);
    }
}

/* Panels of A one after the other, in each of them all rows of a k group side by side: what tiles of ld / group rows read. Some at a time: a
 * processor writes few places at once well. */
static void pack_by_k(const ct__kernel *k, const ct__matrix *src, char *d, int64_t ld, int64_t panel, int64_t rows,
                      int64_t depth) {
    enum { PANELS = 16 };
    const int64_t from = ct__type_size(src->type), to = ct__type_size(k->packed), group = k->group, high = ld / group;
    const int64_t ahead = src->row == 1 ? 24 : depth; /* short runs far apart: the hardware does not see them coming */
    const char *s = (const char *)src->data;
    for (; rows > 0; rows -= PANELS * high, d += PANELS * panel, s += PANELS * high * src->row * from) {
        const int64_t some = ct__min(rows, PANELS * high);
        int64_t p = 0;
#if CT_ISA_LEVEL == 1 && defined(__AVX2__)
        if (group == 1 && src->type == k->packed && src->row == 1 && to == 4 && high == 6)
            for (; p + 4 <= depth; p += 4) {
                for (int64_t q = p + ahead; q < ct__min(p + ahead + 4, depth); q++)
                    prefetch_lines(s + q * src->col * from, some * from);
                spread_six(d + p * ld * to, panel, s + p * src->col * from, src->col * from, some);
            }
#endif
        for (; p < depth; p += group) {
            const char *at = s + p * src->col * from;
            char *out = d + p / group * ld * to;
            for (int64_t q = p + ahead; q < ct__min(p + ahead + group, depth); q++)
                prefetch_lines(s + q * src->col * from, some * from);
            if (group == 1) spread_row(k, out, panel, high, at, src, some);
            else spread_group(k, out, panel, high, at, src, ct__min(group, depth - p), some);
        }
    }
}

void CT_ISA_FN(ct__gemm_pack_a)(const ct__kernel *k, const ct__matrix *src, void *dst, int64_t ld, int64_t panel,
                                int64_t rows, int64_t depth) {
    const int64_t from = ct__type_size(src->type), to = ct__type_size(k->packed), group = k->group;
    const char *s = (const char *)src->data;
    char *d = (char *)dst;
    if (!panel) {
        const int64_t padded = ct__round_up(depth, group);
#if CT_ISA_LEVEL == 2
        if (src->col == 1 && same_bits(src->type, k->packed) && depth > 0 && padded * to <= 64) { /* a vector each */
            const __mmask64 in = ~(__mmask64)0 >> (64 - depth * to), out = ~(__mmask64)0 >> (64 - padded * to);
            if (padded * to <= 16) {
                for (int64_t i = 0; i < rows; i++)
                    _mm_mask_storeu_epi8(d + i * ld * to, (__mmask16)out,
                                         _mm_maskz_loadu_epi8((__mmask16)in, s + i * src->row * from));
                return;
            }
            for (int64_t i = 0; i < rows; i++)
                _mm512_mask_storeu_epi8(d + i * ld * to, out, _mm512_maskz_loadu_epi8(in, s + i * src->row * from));
            return;
        }
#endif
        if (src->row == 1 && same_bits(src->type, k->packed) && group * to == 4 && group > 1) {
            rows_from_columns(k, s, src->col * from, d, ld * to, rows, depth);
            return;
        }
        for (int64_t i = 0; i < rows; i++) {
            fetch(d + i * ld * to, k->packed, s + i * src->row * from, src->type, src->col, depth);
            memset(d + (i * ld + depth) * to, 0, (size_t)((padded - depth) * to));
        }
        return;
    }
    pack_by_k(k, src, d, ld, panel, rows, depth);
}

void CT_ISA_FN(ct__gemm_flip)(void *packed, int64_t bytes) {
    uint8_t *x = (uint8_t *)packed;
    for (int64_t i = 0; i < bytes; i++) x[i] ^= 0x80;
}

void CT_ISA_FN(ct__gemm_offsets)(const ct__kernel *k, const void *panel, int64_t depth, int32_t *out) {
    const int64_t width = panel_width(k);
    const int8_t *x = (const int8_t *)panel;
    uint32_t *sum = (uint32_t *)out; /* unsigned: wraps */
    for (int64_t j = 0; j < width; j++) sum[j] = 0;
    for (int64_t p = 0; p < depth; p += 4)
        for (int64_t j = 0; j < width; j++, x += 4) sum[j] += (uint32_t)(x[0] + x[1] + x[2] + x[3]);
    for (int64_t j = 0; j < width; j++) sum[j] *= (uint32_t)-128;
}

#endif
