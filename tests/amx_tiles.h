/* AMX's matrix registers in software, a set per thread: the instructions as Intel's manual describes them (SDM volume 2: LDTILECFG,
 * TILELOADD, TDPBF16PS, ...; its AMX exception classes). What the processor answers by #UD or #GP ends the process by SIGILL or SIGSEGV,
 * as there, after a text that says why. For machines without AMX: amx_trap.h executes by them what such a processor refuses, and
 * amx_level.h compiles the kernels with them. Nothing here allocates or locks: all of it may run in a signal handler. */
#ifndef COTANGENT_TESTS_AMX_TILES_H
#define COTANGENT_TESTS_AMX_TILES_H

#include <stdint.h>

void amx_configure(const void *config); /* LDTILECFG, of 64 bytes */
void amx_release(void);                 /* TILERELEASE */
void amx_zero(int tile);                /* TILEZERO */
void amx_load(int tile, const void *from, int64_t stride);
void amx_store(int tile, void *to, int64_t stride);
void amx_product_bf16(int c, int a, int b); /* TDPBF16PS: c += a b */
void amx_product_u8(int c, int a, int b);   /* TDPBUSD: u8 by i8 */

#endif
