/* The kernels in matrix registers, with each of AMX's instructions as a plain function: what a machine without them can test of them. Included once, after all else. */
#ifndef COTANGENT_TESTS_GEMM_AMX_H
#define COTANGENT_TESTS_GEMM_AMX_H

#include <cotangent.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/gemm/engine.h"
#include "backends/cpu/simd/simd.h"
#include "core/threads.h"

#undef CT_ISA_LEVEL
#define CT_ISA_LEVEL 4
#undef CT_ISA_FN
#define CT_ISA_FN(name) name##_plain

/* The register file of a thread. What a configuration leaves out of a register is zero, and no instruction touches its memory. */
static _Thread_local struct {
    int rows, row_bytes;
    unsigned char at[16][64];
} tiles[8];
static _Thread_local bool in_use;
static _Atomic int64_t products_done; /* by all threads: whether these kernels were at work */

static void configure_plain(const void *config) {
    const unsigned char *c = config;
    memset(tiles, 0, sizeof tiles);
    for (int i = 0; i < 8; i++) {
        tiles[i].row_bytes = c[16 + 2 * i] | c[17 + 2 * i] << 8;
        tiles[i].rows = c[48 + i];
    }
    in_use = c[0] == 1;
}

static void load_plain(int tile, const void *from, int64_t stride) {
    memset(tiles[tile].at, 0, sizeof tiles[tile].at);
    for (int i = 0; in_use && i < tiles[tile].rows; i++)
        memcpy(tiles[tile].at[i], (const char *)from + i * stride, (size_t)tiles[tile].row_bytes);
}

static void store_plain(int tile, void *to, int64_t stride) {
    for (int i = 0; in_use && i < tiles[tile].rows; i++)
        memcpy((char *)to + i * stride, tiles[tile].at[i], (size_t)tiles[tile].row_bytes);
}

static float bf16_at(const unsigned char *at) {
    const uint32_t bits = (uint32_t)(at[0] | at[1] << 8) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void product_bf16_plain(int c, int a, int b) {
    products_done++;
    for (int i = 0; i < tiles[c].rows; i++)
        for (int p = 0; p < tiles[a].row_bytes / 4; p++)
            for (int j = 0; j < tiles[c].row_bytes / 4; j++) {
                float sum;
                memcpy(&sum, &tiles[c].at[i][4 * j], 4);
                for (int k = 0; k < 2; k++)
                    sum += bf16_at(&tiles[a].at[i][4 * p + 2 * k]) * bf16_at(&tiles[b].at[p][4 * j + 2 * k]);
                memcpy(&tiles[c].at[i][4 * j], &sum, 4);
            }
}

static void product_u8_plain(int c, int a, int b) {
    products_done++;
    for (int i = 0; i < tiles[c].rows; i++)
        for (int p = 0; p < tiles[a].row_bytes / 4; p++)
            for (int j = 0; j < tiles[c].row_bytes / 4; j++) {
                uint32_t sum;
                memcpy(&sum, &tiles[c].at[i][4 * j], 4);
                for (int k = 0; k < 4; k++)
                    sum += (uint32_t)(tiles[a].at[i][4 * p + k] * (int8_t)tiles[b].at[p][4 * j + k]);
                memcpy(&tiles[c].at[i][4 * j], &sum, 4);
            }
}

#define AMX_CONFIGURE(config)       configure_plain(config)
#define AMX_RELEASE()               (in_use = false)
#define AMX_ZERO(tile)              memset(tiles[tile].at, 0, sizeof tiles[tile].at)
#define AMX_LOAD(tile, at, stride)  load_plain(tile, at, stride)
#define AMX_STORE(tile, at, stride) store_plain(tile, at, stride)
#define AMX_PRODUCT_BF16(c, a, b)   product_bf16_plain(c, a, b)
#define AMX_PRODUCT_U8(c, a, b)     product_u8_plain(c, a, b)
#define AMX_FENCE                   ((void)0)
#include "backends/cpu/gemm/kernel_amx.c"

/* Until ct__gemm_init. */
static void gemm_use_plain_amx(void) {
    static ct_gemm_isa isa;
    ct__gemm_init(0);
    isa = *ct__gemm_isa;
    isa.kernels[CT__KIND_BF16] = isa.blocks[CT__KIND_BF16] = &ct__gemm_bf16_plain;
    isa.kernels[CT__KIND_I8] = isa.blocks[CT__KIND_I8] = &ct__gemm_i8_plain;
    ct__gemm_isa = &isa;
}

/* The same for ops, whose kernels of every level are left alone: what was chosen for another is forgotten. And back. */
static __attribute__((unused)) void ops_use_plain_amx(void) {
    ct_item(ct_zeros(CT_DIMS0));
    gemm_use_plain_amx();
    atomic_fetch_add(&ct__tuning, 1);
}
static __attribute__((unused)) void ops_use_what_there_is(void) {
    ct__gemm_init(-1);
    atomic_fetch_add(&ct__tuning, 1);
}

#endif
