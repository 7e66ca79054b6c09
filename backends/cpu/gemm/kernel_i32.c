/* Wrapping i32 register tiles, in vector extensions at every level: 6 rows by two vectors with AVX-512 and AVX2, 4
 * elsewhere: such products are rare, and every row is another tile in the library.
 * Narrower integers are widened to i32 by the packers. */
#include "backends/cpu/gemm/isa.h"
#include <stdint.h>

#if CT_ISA_LEVEL < 3 /* avx512bf16 uses the avx512 kernels */

#define PORTABLE_SCALAR uint32_t /* unsigned: overflow wraps by definition */
#define TILE_VECS       2
#if CT_ISA_LEVEL == 2
#define PORTABLE_BYTES 64
#define TILE_ROWS      6
#define TILE_WIDTH     32
#elif CT_ISA_LEVEL == 1 && defined(__AVX2__)
#define PORTABLE_BYTES 32
#define TILE_ROWS      6
#define TILE_WIDTH     16
#else
#define TILE_ROWS  4
#define TILE_WIDTH 8
#endif
#include "backends/cpu/gemm/portable.h"
#include "backends/cpu/gemm/tile.h"

const ct__kernel CT_ISA_FN(ct__gemm_i32) = {
    .name = CT__KERNEL_NAME("i32"),
    .tiles = tiles,
    .rows = TILE_ROWS,
    .lanes = LANES,
    .vecs = TILE_VECS,
    .group = 1,
    .packed = CT_GEMM_I32,
    .acc = CT_GEMM_I32,
    .depth = 256,
    .block_cols = 256,
    .block_rows = 112,
    .stage_bytes = 8 << 20,
    .stage_cols = 2048,
};
#endif
