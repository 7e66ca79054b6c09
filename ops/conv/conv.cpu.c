/* The candidates of the internal ops of convolution on the CPU, in order of preference, and the activations of their
 * epilogue. The kernels themselves are in the other .cpu.c files of this folder. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "ops/conv/grouped_special.h"
#include "ops/conv/implicit.h"
#include "ops/conv/kernels.h"

#include "gen/conv.attrs.h"

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
    ACTIVATE(gelu_##V, type, V, LANES,                             \
             V##_mul(v, V##_mul(V##_set1((type)0.5), V##_erfc(V##_mul(v, V##_set1((type)-0.70710678118654752440))))))
ACTIVATIONS(float, vf32, VF32_LANES)
ACTIVATIONS(double, vf64, VF64_LANES)

ct_gemm_activate CT_ISA_FN(ct__conv_activation)(ct_dtype dtype, int activation) {
    static const ct_gemm_activate activations[2][6] = {
        {NULL, relu_vf32, sigmoid_vf32, tanh_vf32, gelu_vf32, silu_vf32},
        {NULL, relu_vf64, sigmoid_vf64, tanh_vf64, gelu_vf64, silu_vf64},
    };
    return activations[dtype == CT_F64][activation];
}

/* ---- On the matrix engine ---- */

static bool empty(const ct_conv_problem *p) {
    const ct_conv_geometry *g = &p->geometry;
    return g->batch == 0 || g->in_channels == 0 || g->out_channels == 0 || ct__window_pixels_in(&g->window) == 0 ||
           ct__window_pixels_out(&g->window) == 0;
}

static size_t bytes_of(const ct_conv_problem *p) {
    return p->kind == CT_CONV_WEIGHT_GRAD ? ct__conv_weight_scratch(p) : ct__conv_implicit_scratch(p);
}

static const char *implicit_can(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    if (empty(&p)) return "there is nothing to multiply";
    return bytes_of(&p) ? NULL : "its kernel or stride is very large";
}

static size_t implicit_scratch(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    return bytes_of(&p);
}

static bool implicit_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    if (p.kind == CT_CONV_WEIGHT_GRAD) return ct__conv_weight(&p, call->scratch);
    return ct__conv_implicit(&p, CT_ISA_FN(ct__conv_activation)(p.dtype, p.activation), call->scratch);
}

#define IMPLICIT \
    { "implicit_gemm", implicit_can, implicit_scratch, implicit_run }

static const char *pointwise_can(const ct_call *call) {
    ct_conv_problem p;
    ct_gemm g;
    ct__conv_problem(call, &p);
    if (empty(&p)) return "there is nothing to multiply";
    return ct__conv_pointwise(&p, &g) ? NULL : "it is not a single tap over evenly spaced pixels";
}

static size_t pointwise_scratch(const ct_call *call) {
    ct_conv_problem p;
    ct_gemm g;
    ct__conv_problem(call, &p);
    return ct__conv_pointwise(&p, &g) ? ct__gemm_scratch(&g) : 0;
}

static bool pointwise_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    ct_gemm g;
    ct__conv_problem(call, &p);
    if (!ct__conv_pointwise(&p, &g)) return false;
    g.activate = CT_ISA_FN(ct__conv_activation)(p.dtype, p.activation);
    return ct__conv_pointwise_run(&p, &g, call->scratch);
}

#define POINTWISE \
    { "pointwise_gemm", pointwise_can, pointwise_scratch, pointwise_run }

/* ---- Tables ---- */

CT_KERNELS(conv) = {CONV_SPECIAL, POINTWISE, IMPLICIT, CONV_DIRECT, {0}};
CT_KERNELS(conv_fused) = {CONV_SPECIAL, POINTWISE, IMPLICIT, CONV_DIRECT, {0}};
CT_KERNELS(conv_input_grad) = {CONV_SPECIAL, POINTWISE, IMPLICIT, CONV_DIRECT, {0}};
CT_KERNELS(conv_weight_grad) = {CONV_SPECIAL, POINTWISE, IMPLICIT, CONV_DIRECT, {0}};
