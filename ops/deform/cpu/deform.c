/* The loops of deformable convolution over channels, for one ISA level; drivers in patches.c and gradient.c. */
#include "backends/cpu/copy.h"
#include "ops/deform/cpu/kernels.h"

#include "ops/reduce/cpu/elements.h"

#include "gen/deform.attrs.h"

enum { RUNS = 8 }; /* of a row of patches, of one tap and one group of offsets each, that are sampled together */

#define POINT_T       float
#define POINT(x)      f32_##x
#define POINT_LINKAGE static __attribute__((noinline))
#include "ops/deform/cpu/points.h"

/* For templates over POINT_D, f32 or f64. */
#define POINT_T  ELEMENT(POINT_D)
#define POINT_V  VECTOR(POINT_D)
#define POINT(x) ELEMENT_PASTE(POINT_D, ELEMENT_PASTE(_, x))
/* body over i in steps of a vector, with LOAD and STORE whole but for the last one: what is stored under a mask cannot be
 * forwarded to the next load of it */
#define POINT_EACH(n, body)                                      \
    {                                                            \
        int64_t i = 0;                                           \
        for (; i + LANES(POINT_D) <= (n); i += LANES(POINT_D)) { \
            body(POINT_WHOLE, POINT_PUT);                        \
        }                                                        \
        const int lanes = (int)((n)-i);                          \
        if (lanes > 0) {                                         \
            body(POINT_SOME, POINT_PUT_SOME);                    \
        }                                                        \
    }
#define POINT_WHOLE(p)       POINT(load)(p)
#define POINT_SOME(p)        POINT(load_n)(p, lanes)
#define POINT_PUT(p, v)      POINT(store)(p, v)
#define POINT_PUT_SOME(p, v) POINT(store_n)(p, v, lanes)

#define POINT_D f32
#include "ops/deform/cpu/sample.h"
#define POINT_D f64
#include "ops/deform/cpu/sample.h"

/* Keeps the compiler from loading them again for each use. */
#if CT_ISA_LEVEL >= 1 && defined(__AVX2__)
#define IN_REGISTERS(a, b, c, d) __asm__("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d))
#else
#define IN_REGISTERS(a, b, c, d) (void)0
#endif

/* The sums of four vectors. */
#if CT_ISA_LEVEL >= 1 && defined(__AVX2__)
SIMD_INLINE __m256 folded(vf32 v) {
#if CT_ISA_LEVEL >= 2
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
    return v;
#endif
}
SIMD_INLINE void f32_sums(vf32 v0, vf32 v1, vf32 v2, vf32 v3, float *sums) {
    const __m256 a = _mm256_hadd_ps(folded(v0), folded(v1)), b = _mm256_hadd_ps(folded(v2), folded(v3));
    const __m256 c = _mm256_hadd_ps(a, b);
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1)));
}
#else
SIMD_INLINE void f32_sums(vf32 v0, vf32 v1, vf32 v2, vf32 v3, float *sums) {
    sums[0] = vf32_hsum(v0), sums[1] = vf32_hsum(v1), sums[2] = vf32_hsum(v2), sums[3] = vf32_hsum(v3);
}
#endif
SIMD_INLINE void f64_sums(vf64 v0, vf64 v1, vf64 v2, vf64 v3, double *sums) {
    sums[0] = vf64_hsum(v0), sums[1] = vf64_hsum(v1), sums[2] = vf64_hsum(v2), sums[3] = vf64_hsum(v3);
}

#define POINT_D    f32
#define POINT_FAST 1
#include "ops/deform/cpu/sweep.h"
#define POINT_D    f64
#define POINT_FAST 0
#include "ops/deform/cpu/sweep.h"

static const ct__deform_isa isa = {{f32_pack_rows, f64_pack_rows},
                                   {f32_sweep, f64_sweep},
                                   {f32_add_all, f64_add_all},
                                   {f32_range, f64_range},
                                   ct__copy,
                                   ct__copy_run};

static bool forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return ct__deform_forward_run(call, &isa);
}
static bool weight_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return ct__deform_weight_run(call, &isa);
}
static bool gradient_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return ct__deform_gradient_run(call, &isa);
}

CT_KERNELS(deform_deform) = {
    CT_CANDIDATES(deform_conv, {"deform_conv_gemm", ct__deform_forward_can, ct__deform_forward_scratch, forward_run}),
    CT_CANDIDATES(deform_conv_weight_grad,
                  {"deform_conv_weight_gemm", ct__deform_weight_can, ct__deform_weight_scratch, weight_run}),
    CT_CANDIDATES(deform_conv_grad,
                  {"deform_conv_grad_sweep", ct__deform_gradient_can, ct__deform_gradient_scratch, gradient_run}),
    {0},
};
