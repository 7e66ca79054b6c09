/* Transposes of 16 by 16 bytes and of lines, a template: BITS of an element, N elements in 16 bytes, in ROUNDS of
 * zips. Included by transpose.h. */
#define OF(x) CT_SIMD_PASTE(x, BITS)

/* square: 16 bytes by 16 bytes. lines: 16 squares, so ordered that a line of dst is complete before the next is
 * begun; the lines of src are fetched whole first, since rows that are a power of two apart would drive each other
 * out of the cache between two visits. */
TILE_INLINE void OF(square)(char *dst, int64_t dst_row, const char *src, int64_t src_row, bool stream) {
    OF(row) a[N], b[N];
    _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) memcpy(&a[i], src + i * src_row, 16);
    _Pragma("GCC unroll 4") for (int round = 0; round < ROUNDS; round++) {
        _Pragma("GCC unroll 8") for (int i = 0; i < N / 2; i++) {
            b[2 * i] = OF(ZIP_LOW)(a[i], a[i + N / 2]);
            b[2 * i + 1] = OF(ZIP_HIGH)(a[i], a[i + N / 2]);
        }
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) a[i] = b[i];
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) store_row(dst + i * dst_row, &a[i], stream);
}

TILE_INLINE void OF(lines)(char *dst, int64_t dst_row, const char *src, int64_t src_row, bool stream) {
    char near[4 * N][64] __attribute__((aligned(64)));
    for (int i = 0; i < 4 * N; i++) {
        __builtin_prefetch(src + i * src_row + 128, 0, 3);
        memcpy(near[i], src + i * src_row, 64);
    }
    for (int r = 0; r < 4; r++)
        _Pragma("GCC unroll 4") for (int c = 0; c < 4; c++)
            OF(square)(dst + r * N * dst_row + c * 16, dst_row, near[c * N] + r * 16, 64, stream);
}

#undef OF
#undef BITS
#undef N
#undef ROUNDS
