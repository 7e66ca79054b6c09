/* AMX: whether it may be used, and its instructions by name, so that a test can put a plain version of each in their place: few machines
 * have them. */
#ifndef CT_BACKENDS_CPU_GEMM_AMX_H
#define CT_BACKENDS_CPU_GEMM_AMX_H

#include <stdbool.h>

#include "backends/cpu/simd/simd.h"

bool ct__amx_is_granted(void);
/* Set by tests that execute the instructions in the processor's place (tests/amx_trap.h), and by nothing else. */
extern bool ct__amx_is_emulated;

#if CT_ISA_LEVEL == 4 && !defined(AMX_CONFIGURE)
#include <immintrin.h>
/* Not _tile_loadconfig: in GCC's header it reads eight bytes, so that what the other 56 were set to is left out. */
#define AMX_CONFIGURE(config)       __asm__ volatile("ldtilecfg\t%0" ::"m"(*(config)))
#define AMX_RELEASE()               _tile_release()
#define AMX_ZERO(tile)              _tile_zero(tile)
#define AMX_LOAD(tile, at, stride)  _tile_loadd(tile, at, stride)
#define AMX_STORE(tile, at, stride) _tile_stored(tile, at, stride)
#define AMX_PRODUCT_BF16(c, a, b)   _tile_dpbf16ps(c, a, b)
#define AMX_PRODUCT_U8(c, a, b)     _tile_dpbusd(c, a, b) /* u8 by i8 */
/* Compilers do not know that tiles are read from memory and written to it. */
#define AMX_FENCE __asm__ volatile("" ::: "memory")
#endif

#endif
