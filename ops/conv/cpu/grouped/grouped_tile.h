/* The register tiles of convolution with few channels per group, for one kind of product: TILE_NAME(x), TILE_TARGET,
 * TILE_FMA and PLANE_FMA (of v8 and vf32), PLANE_TYPE and PLANE_STORE. Included by grouped.c once per kind; no
 * include guard. */

/* `positions` neighboring targets by eight channels:
 * out[q * step + l] = start[l] + sum over t of src[offset[t] + q] w[t][l] */
SIMD_INLINE TILE_TARGET void TILE_NAME(tile_body)(float *out, int64_t step, const float *src, const int64_t *offset,
                                                  const float *w, int64_t taps, const float *start,
                                                  const int positions) {
    v8 s[GROUPED_TILE];
#pragma GCC unroll 14
    for (int q = 0; q < positions; q++) s[q] = v8_load(start);
    for (int64_t t = 0; t < taps; t++) {
        const float *x = src + offset[t];
        const v8 y = v8_load(w + t * 8);
#pragma GCC unroll 14
        for (int q = 0; q < positions; q++) s[q] = TILE_FMA(v8_set1(x[q]), y, s[q]);
    }
#pragma GCC unroll 14
    for (int q = 0; q < positions; q++) v8_store(out + q * step, s[q]);
}

#define TILE(R)                                                                                                    \
    static TILE_TARGET void TILE_NAME(tile_##R)(float *out, int64_t step, const float *src, const int64_t *offset, \
                                                const float *w, int64_t taps, const float *start) {                \
        TILE_NAME(tile_body)(out, step, src, offset, w, taps, start, R);                                           \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
#if GROUPED_TILE == 14
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
TILE(13)
TILE(14)
#endif
#undef TILE
static const tile_fn TILE_NAME(tiles)[GROUPED_TILE] = {
    TILE_NAME(tile_1),  TILE_NAME(tile_2),  TILE_NAME(tile_3),  TILE_NAME(tile_4),
    TILE_NAME(tile_5),  TILE_NAME(tile_6),  TILE_NAME(tile_7),
#if GROUPED_TILE == 14
    TILE_NAME(tile_8),  TILE_NAME(tile_9),  TILE_NAME(tile_10), TILE_NAME(tile_11),
    TILE_NAME(tile_12), TILE_NAME(tile_13), TILE_NAME(tile_14),
#endif
};

/* `rows` rows by sixteen columns by eight channels, a vector of columns for each channel:
 * out[c * step + r * out_row + j] = start[c] + sum over t of src[offset[t] + r * src_row + j] w[t][c], j < n, c < count */
#if VF32_LANES == 16
SIMD_INLINE TILE_TARGET void TILE_NAME(plane_body)(void *dst, int64_t step, int64_t out_row, const float *src,
                                                   int64_t src_row, const int64_t *offset, const float *w, int64_t taps,
                                                   const float *start, int64_t count, int n, const int rows) {
    PLANE_TYPE *out = dst;
    vf32 s[PLANE_ROWS * 8];
#pragma GCC unroll 24
    for (int i = 0; i < 8 * rows; i++) s[i] = vf32_set1(start[i % 8]);
    for (int64_t t = 0; t < taps; t++) {
        const float *x = src + offset[t];
        const vf32 x0 = vf32_load(x), x1 = rows > 1 ? vf32_load(x + src_row) : x0,
                   x2 = rows > 2 ? vf32_load(x + 2 * src_row) : x0;
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) {
            const vf32 y = vf32_set1(w[t * 8 + c]);
            s[c] = PLANE_FMA(x0, y, s[c]);
            if (rows > 1) s[8 % (8 * rows) + c] = PLANE_FMA(x1, y, s[8 % (8 * rows) + c]);
            if (rows > 2) s[16 % (8 * rows) + c] = PLANE_FMA(x2, y, s[16 % (8 * rows) + c]);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < 8 * rows; i++)
        if (i % 8 < count) PLANE_STORE(out + i % 8 * step + i / 8 * out_row, s[i], n);
}

#define PLANE(R)                                                                                                       \
    static TILE_TARGET void TILE_NAME(plane_##R)(void *out, int64_t step, int64_t out_row, const float *src,           \
                                                 int64_t src_row, const int64_t *offset, const float *w, int64_t taps, \
                                                 const float *start, int64_t count, int n) {                           \
        TILE_NAME(plane_body)(out, step, out_row, src, src_row, offset, w, taps, start, count, n, R);                  \
    }
PLANE(1)
PLANE(2)
PLANE(3)
#undef PLANE
static const plane_fn TILE_NAME(planes)[PLANE_ROWS] = {TILE_NAME(plane_1), TILE_NAME(plane_2), TILE_NAME(plane_3)};
#endif

#undef TILE_NAME
#undef TILE_TARGET
#undef TILE_FMA
#undef PLANE_FMA
#undef PLANE_STORE
#undef PLANE_TYPE
