/* Turning a tile: dst[r, c] = src[c, r], both dense along the inner side. For the strided copy. */
#ifndef COTANGENT_BACKENDS_CPU_ISA_TRANSPOSE_H
#define COTANGENT_BACKENDS_CPU_ISA_TRANSPOSE_H

#include <stdbool.h>
#include <stdint.h>

#define TRANSPOSE_TILE(name, T)                                                                                         \
    static void name(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns) {     \
        for (int64_t r = 0; r < rows; r++)                                                                              \
            for (int64_t c = 0; c < columns; c++)                                                                       \
                *(T *)(dst + r * dst_row + c * (int64_t)sizeof(T)) = *(const T *)(src + c * src_row + r * (int64_t)sizeof(T)); \
    }
typedef uint16_t tile16 __attribute__((may_alias, aligned(1)));
typedef uint32_t tile32 __attribute__((may_alias, aligned(1)));
typedef uint64_t tile64 __attribute__((may_alias, aligned(1)));
TRANSPOSE_TILE(transpose_tile8, uint8_t)
TRANSPOSE_TILE(transpose_tile16, tile16)
TRANSPOSE_TILE(transpose_tile32, tile32)
TRANSPOSE_TILE(transpose_tile64, tile64)

static void transpose_tile(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns, int size, bool stream) {
    (void)stream;
    switch (size) {
    case 1: transpose_tile8(dst, dst_row, src, src_row, rows, columns); break;
    case 2: transpose_tile16(dst, dst_row, src, src_row, rows, columns); break;
    case 4: transpose_tile32(dst, dst_row, src, src_row, rows, columns); break;
    default: transpose_tile64(dst, dst_row, src, src_row, rows, columns); break;
    }
}

#endif
