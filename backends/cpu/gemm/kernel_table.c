/* The table of one instruction set: kernels and the helpers compiled with it. */
#include "backends/cpu/gemm/engine.h"
#include "backends/cpu/gemm/isa.h"

#if CT_ISA_LEVEL >= 3 /* they add kernels, and have the rest from the levels below */
#if defined(__aarch64__)
#define SHARED(name) name##_neon
#define BYTES(name)  name##_neonbf16
#else
#define SHARED(name) name##_avx512
#define BYTES(name)  name##_avx512bf16
#endif
#else
#define SHARED(name) CT_ISA_FN(name)
#define BYTES(name)  CT_ISA_FN(name)
#endif
extern const ct__kernel SHARED(ct__gemm_f32), SHARED(ct__gemm_f64), SHARED(ct__gemm_i32), SHARED(ct__gemm_i64);
#if CT_ISA_LEVEL >= 3
extern const ct__kernel BYTES(ct__gemm_bf16);
#endif
#if CT_ISA_LEVEL >= 3 || (CT_ISA_LEVEL >= 1 && defined(__AVX2__))
extern const ct__kernel BYTES(ct__gemm_i8);
#endif
#if CT_ISA_LEVEL == 4
extern const ct__kernel CT_ISA_FN(ct__gemm_bf16), CT_ISA_FN(ct__gemm_i8);
#endif

void SHARED(ct__gemm_pack_b)(const ct__kernel *, const ct__matrix *, void *, int64_t, int64_t);
void SHARED(ct__gemm_pack_a)(const ct__kernel *, const ct__matrix *, void *, int64_t, int64_t, int64_t, int64_t);
void SHARED(ct__gemm_flip)(void *, int64_t);
void SHARED(ct__gemm_offsets)(const ct__kernel *, const void *, int64_t, int32_t *);
void SHARED(ct__gemm_finish)(const ct__finish *, void *, int64_t, int64_t, int64_t, int64_t, int64_t);
void SHARED(ct__gemv_dot)(ct_gemm_type, const void *, int64_t, const void *, void *, int64_t, int64_t, double, bool);
void SHARED(ct__gemv_axpy)(ct_gemm_type, const void *, int64_t, const void *, int64_t, void *, int64_t, int64_t, double,
                           bool);

const ct_gemm_isa CT_ISA_FN(ct__gemm_isa) = {
    .name = CT__STRING(CT_ISA),
    .level = CT_ISA_LEVEL,
    .kernels =
        {
            [CT__KIND_F32] = &SHARED(ct__gemm_f32),
            [CT__KIND_F64] = &SHARED(ct__gemm_f64),
            [CT__KIND_I32] = &SHARED(ct__gemm_i32),
            [CT__KIND_I64] = &SHARED(ct__gemm_i64),
#if CT_ISA_LEVEL >= 3
            [CT__KIND_BF16] = &BYTES(ct__gemm_bf16),
#endif
#if CT_ISA_LEVEL >= 3 || (CT_ISA_LEVEL >= 1 && defined(__AVX2__))
            [CT__KIND_I8] = &BYTES(ct__gemm_i8),
#endif
        },
#if CT_ISA_LEVEL == 4
    .blocks = {[CT__KIND_BF16] = &CT_ISA_FN(ct__gemm_bf16), [CT__KIND_I8] = &CT_ISA_FN(ct__gemm_i8)},
#endif
    .pack_b = SHARED(ct__gemm_pack_b),
    .pack_a = SHARED(ct__gemm_pack_a),
    .flip = SHARED(ct__gemm_flip),
    .offsets = SHARED(ct__gemm_offsets),
    .finish = SHARED(ct__gemm_finish),
    .gemv_dot = SHARED(ct__gemv_dot),
    .gemv_axpy = SHARED(ct__gemv_axpy),
};
