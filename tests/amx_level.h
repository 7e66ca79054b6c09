/* Kernels in matrix registers on any machine, and what they compute counted: those of level avx512amx, by the processor or by a trap
 * (amx_trap.h); where the processor lacks even AVX-512 BF16, the same text compiled here, with each of AMX's instructions a function
 * (amx_tiles.h). Included once, after all else. */
#ifndef COTANGENT_TESTS_AMX_LEVEL_H
#define COTANGENT_TESTS_AMX_LEVEL_H

#include <cotangent.h>
#include <stdatomic.h>

#include "backends/cpu/gemm/engine.h"
#include "backends/cpu/simd/simd.h"
#include "core/threads.h"
#include "tests/amx_tiles.h"
#include "tests/amx_trap.h"

#undef CT_ISA_LEVEL
#define CT_ISA_LEVEL 4
#undef CT_ISA_FN
#define CT_ISA_FN(name) name##_plain

#define AMX_CONFIGURE(config)       amx_configure(config)
#define AMX_RELEASE()               amx_release()
#define AMX_ZERO(tile)              amx_zero(tile)
#define AMX_LOAD(tile, at, stride)  amx_load(tile, at, stride)
#define AMX_STORE(tile, at, stride) amx_store(tile, at, stride)
#define AMX_PRODUCT_BF16(c, a, b)   amx_product_bf16(c, a, b)
#define AMX_PRODUCT_U8(c, a, b)     amx_product_u8(c, a, b)
#define AMX_FENCE                   ((void)0)
#include "backends/cpu/gemm/kernel_amx.c"

static _Atomic int64_t blocks_done; /* by all threads: whether these kernels were at work */
static const ct__kernel *counted_bf16, *counted_i8;

static void count_bf16(const ct__tile *t) {
    blocks_done++;
    counted_bf16->block(t);
}
static void count_i8(const ct__tile *t) {
    blocks_done++;
    counted_i8->block(t);
}

#define AMX_IN_PLAIN_C "avx512amx in plain C"

/* Until amx_trap_stop and ct__gemm_init. Returns what is in use. */
static const char *gemm_use_amx(void) {
    static ct_gemm_isa isa;
    static ct__kernel bf16, i8;
    const bool there = amx_trap_start();
    ct__gemm_init(there ? 4 : 0);
    isa = *ct__gemm_isa;
    counted_bf16 = there ? isa.blocks[CT__KIND_BF16] : &ct__gemm_bf16_plain;
    counted_i8 = there ? isa.blocks[CT__KIND_I8] : &ct__gemm_i8_plain;
    bf16 = *counted_bf16, bf16.block = count_bf16;
    i8 = *counted_i8, i8.block = count_i8;
    isa.blocks[CT__KIND_BF16] = &bf16, isa.blocks[CT__KIND_I8] = &i8;
    if (!there) isa.kernels[CT__KIND_BF16] = &bf16, isa.kernels[CT__KIND_I8] = &i8;
    ct__gemm_isa = &isa;
    return amx_trap_is_set() ? "avx512amx, trapped" : there ? "avx512amx" : AMX_IN_PLAIN_C;
}

/* The same for ops, whose kernels of every level are left alone: what was chosen for another is forgotten. And back. */
static __attribute__((unused)) void ops_use_amx(void) {
    ct_item(ct_zeros(CT_DIMS0));
    gemm_use_amx();
    atomic_fetch_add(&ct__tuning, 1);
}
static __attribute__((unused)) void ops_use_what_there_is(void) {
    amx_trap_stop();
    ct__gemm_init(-1);
    atomic_fetch_add(&ct__tuning, 1);
}

#endif
