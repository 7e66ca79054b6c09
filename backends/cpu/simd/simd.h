/* simd.h - the one SIMD wrapper: full-width f32 and f64 vectors of the instruction set that this
   translation unit is compiled for (CT_ISA). Arithmetic, memory and masks live here and in the
   simd_<isa>.h that it picks; exp, log, sin and the like live in vmath.h. */
#ifndef CT_SIMD_H
#define CT_SIMD_H

#include <stdint.h>
#include <string.h>

#ifndef CT_ISA
#define CT_ISA base
#endif

#define CT_SIMD_PASTE_(a, b) a##b
#define CT_SIMD_PASTE(a, b)  CT_SIMD_PASTE_(a, b)

/* CT_ISA_FN(exp_f32) is exp_f32_avx512 in the AVX-512 compilation of a file. */
#define CT_ISA_FN(name) CT_SIMD_PASTE(CT_SIMD_PASTE(name, _), CT_ISA)

#define CT_ISA_LEVEL_base       0
#define CT_ISA_LEVEL_avx2       1
#define CT_ISA_LEVEL_avx512     2
#define CT_ISA_LEVEL_avx512bf16 3
#define CT_ISA_LEVEL_avx512amx  4
#define CT_ISA_LEVEL_neon       1
#define CT_ISA_LEVEL_neonbf16   3
#define CT_ISA_LEVEL            CT_SIMD_PASTE(CT_ISA_LEVEL_, CT_ISA)

/* The wrapper must vanish: a call that is not inlined would spill every live vector. */
#define SIMD_INLINE static inline __attribute__((always_inline))
/* But for what is long; the base level is chosen for its size, and calls that too. */
#if CT_ISA_LEVEL == 0
#define SIMD_LONG static __attribute__((noinline, unused))
#else
#define SIMD_LONG SIMD_INLINE
#endif

#if CT_ISA_LEVEL == 0
#include "backends/cpu/simd/simd_base.h"
#elif defined(__aarch64__)
#include "backends/cpu/simd/simd_neon.h"
#elif CT_ISA_LEVEL == 1
#include "backends/cpu/simd/simd_avx2.h"
#else
#include "backends/cpu/simd/simd_avx512.h"
#endif

#include "backends/cpu/simd/simd_derived.h"

#endif
