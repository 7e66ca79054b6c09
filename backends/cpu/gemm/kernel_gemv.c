/* Matrix by vector: bound by memory, so the matrix is streamed once, in the order it lies. Sums are
 * f32 (f64 for f64). How one sum is formed depends on k alone, not on its neighbors. */
#include "backends/cpu/gemm/convert.h"
#include "backends/cpu/gemm/isa.h"

#if CT_ISA_LEVEL < 3 /* avx512bf16 uses that of avx512 */

#define AS_IS(x) (x)

#define NAME   dot_f32
#define T      float
#define LOAD   vf32_load
#define LOAD_N vf32_load_n
#define ACC    float
#define V      vf32
#include "backends/cpu/gemm/gemv_dot.h"
#define NAME   dot_f64
#define T      double
#define LOAD   vf64_load
#define LOAD_N vf64_load_n
#define ACC    double
#define V      vf64
#include "backends/cpu/gemm/gemv_dot.h"
#define NAME   dot_bf16
#define T      uint16_t
#define LOAD   vf32_load_bf16
#define LOAD_N vf32_load_bf16_n
#define ACC    float
#define V      vf32
#include "backends/cpu/gemm/gemv_dot.h"
#define NAME   dot_f16
#define T      uint16_t
#define LOAD   vf32_load_f16
#define LOAD_N vf32_load_f16_n
#define ACC    float
#define V      vf32
#include "backends/cpu/gemm/gemv_dot.h"

#define NAME   axpy_f32
#define T      float
#define VALUE  AS_IS
#define LOAD   vf32_load
#define LOAD_N vf32_load_n
#define ACC    float
#define V      vf32
#include "backends/cpu/gemm/gemv_axpy.h"
#define NAME   axpy_f64
#define T      double
#define VALUE  AS_IS
#define LOAD   vf64_load
#define LOAD_N vf64_load_n
#define ACC    double
#define V      vf64
#include "backends/cpu/gemm/gemv_axpy.h"
#define NAME   axpy_bf16
#define T      uint16_t
#define VALUE  bf16_to_f32
#define LOAD   vf32_load_bf16
#define LOAD_N vf32_load_bf16_n
#define ACC    float
#define V      vf32
#include "backends/cpu/gemm/gemv_axpy.h"
#define NAME   axpy_f16
#define T      uint16_t
#define VALUE  f16_to_f32
#define LOAD   vf32_load_f16
#define LOAD_N vf32_load_f16_n
#define ACC    float
#define V      vf32
#include "backends/cpu/gemm/gemv_axpy.h"

void CT_ISA_FN(ct__gemv_dot)(ct_gemm_type type, const void *a, int64_t a_row, const void *x, void *y, int64_t rows,
                             int64_t k, double alpha, bool accumulate) {
    const float scale = (float)alpha;
    switch (type) {
    case CT_GEMM_F32: dot_f32(a, a_row, x, y, rows, k, scale, accumulate); break;
    case CT_GEMM_F64: dot_f64(a, a_row, x, y, rows, k, alpha, accumulate); break;
    case CT_GEMM_BF16: dot_bf16(a, a_row, x, y, rows, k, scale, accumulate); break;
    default: dot_f16(a, a_row, x, y, rows, k, scale, accumulate); break;
    }
}

void CT_ISA_FN(ct__gemv_axpy)(ct_gemm_type type, const void *a, int64_t a_col, const void *x, int64_t x_step, void *y,
                              int64_t rows, int64_t k, double alpha, bool accumulate) {
    const float scale = (float)alpha;
    switch (type) {
    case CT_GEMM_F32: axpy_f32(a, a_col, x, x_step, y, rows, k, scale, accumulate); break;
    case CT_GEMM_F64: axpy_f64(a, a_col, x, x_step, y, rows, k, alpha, accumulate); break;
    case CT_GEMM_BF16: axpy_bf16(a, a_col, x, x_step, y, rows, k, scale, accumulate); break;
    default: axpy_f16(a, a_col, x, x_step, y, rows, k, scale, accumulate); break;
    }
}

#endif
