/* Activations over vectors. */
#include "backends/cpu/activate.h"

#include "backends/cpu/simd/vmath.h"

#define ACTIVATE(name, type, V, LANES, expression)             \
    static void name(const void *ctx, void *data, int64_t n) { \
        (void)ctx;                                             \
        type *x = data;                                        \
        for (int64_t i = 0; i < n; i += LANES) {               \
            int count = (int)ct__min64(n - i, LANES);          \
            V v = V##_load_n(x + i, count);                    \
            V##_store_n(x + i, expression, count);             \
        }                                                      \
    }
#define ACTIVATIONS(type, V, LANES)                                \
    ACTIVATE(relu_##V, type, V, LANES, V##_max(v, V##_set1(0)))    \
    ACTIVATE(sigmoid_##V, type, V, LANES, V##_sigmoid(v))          \
    ACTIVATE(tanh_##V, type, V, LANES, V##_tanh(v))                \
    ACTIVATE(silu_##V, type, V, LANES, V##_mul(v, V##_sigmoid(v))) \
    ACTIVATE(gelu_##V, type, V, LANES, V##_mul(v, V##_ndtr(v)))
ACTIVATIONS(float, vf32, VF32_LANES)
ACTIVATIONS(double, vf64, VF64_LANES)

ct_gemm_activate CT_ISA_FN(ct__activation)(ct_dtype dtype, int activation) {
    static const ct_gemm_activate activations[2][6] = {
        {NULL, relu_vf32, sigmoid_vf32, tanh_vf32, gelu_vf32, silu_vf32},
        {NULL, relu_vf64, sigmoid_vf64, tanh_vf64, gelu_vf64, silu_vf64},
    };
    return activations[dtype == CT_F64][activation];
}
