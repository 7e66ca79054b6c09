/* Level avx512amx on machines without AMX, so that its machine code is tested as it is shipped: SIGILL is caught, and the instruction of
 * AMX that raised it is executed in software (amx_tiles.h). That takes microseconds each time. */
#ifndef COTANGENT_TESTS_AMX_TRAP_H
#define COTANGENT_TESTS_AMX_TRAP_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the level may be used until amx_trap_stop: by the processor itself, where it has AMX, or by the trap. Not where what the
 * level has beside AMX is missing, AVX-512 BF16, or where the build lacks the level. The level in use stays as it is. */
bool amx_trap_start(void);
void amx_trap_stop(void);     /* the handler of SIGILL is what it was */
bool amx_trap_is_set(void);   /* started, and not the processor's own */
int64_t amx_trap_count(void); /* instructions executed so far, of all threads */

#endif
