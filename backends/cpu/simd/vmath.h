/* vmath.h - elementary and special functions over the SIMD wrapper, one vector per call. The text
   is the same for every ISA; only the look-up tables of AVX-512 (vmath_f32_lut.h) are its own.
   Error bounds are in README.md and are tested by tests/test_simd_math.c. */
#ifndef CT_SIMD_VMATH_H
#define CT_SIMD_VMATH_H

#include "backends/cpu/simd/simd.h"

/* Before a short loop of a constant number of turns: it is unrolled whatever the options are, but not where code is to be small. */
#ifdef __OPTIMIZE_SIZE__
#define SIMD_UNROLL
#else
#define SIMD_UNROLL _Pragma("GCC unroll 32")
#endif

#include "backends/cpu/simd/vmath_f32.h"
#include "backends/cpu/simd/vmath_f64.h"
#include "backends/cpu/simd/vmath_trig_parts.h"

SIMD_INLINE vf64 vf64_div_near(vf64 num, vf64 den) { return vf64_div(num, den); }

/* the shared text, first for f32, then for f64 */
#define SVT      vf32
#define SVIT     vi32
#define SMT      mf32
#define SREAL    float
#define SV(op)   vf32_##op
#define SVI(op)  vi32_##op
#define SM(op)   mf32_##op
#define SC(name) VF32_##name
#define SK(x)    vf32_set1((float)(x))
#if SIMD_HAS_FMA
#define SHARED_HAS_SIN
#endif
#if CT_ISA_LEVEL >= 2
#define SHARED_HAS_EXP
#define SHARED_HAS_LOG
#define SHARED_HAS_TANH
#endif
#include "backends/cpu/simd/vmath_shared.h"
#include "backends/cpu/simd/vmath_trig.h"
#undef SVT
#undef SVIT
#undef SMT
#undef SREAL
#undef SV
#undef SVI
#undef SM
#undef SC
#undef SK
#undef SHARED_HAS_EXP
#undef SHARED_HAS_LOG
#undef SHARED_HAS_TANH
#undef SHARED_HAS_SIN

#define SVT      vf64
#define SVIT     vi64
#define SMT      mf64
#define SREAL    double
#define SV(op)   vf64_##op
#define SVI(op)  vi64_##op
#define SM(op)   mf64_##op
#define SC(name) VF64_##name
#define SK(x)    vf64_set1((double)(x))
#include "backends/cpu/simd/vmath_shared.h"
#include "backends/cpu/simd/vmath_trig.h"
#undef SVT
#undef SVIT
#undef SMT
#undef SREAL
#undef SV
#undef SVI
#undef SM
#undef SC
#undef SK

#include "backends/cpu/simd/vmath_pow.h"
#include "backends/cpu/simd/vmath_special.h"

#endif
