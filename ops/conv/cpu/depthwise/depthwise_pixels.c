/* Depthwise convolution of channels-last images, in f32 (halves are widened line by line) and f64. */
#include "ops/conv/cpu/depthwise/depthwise.h"

#define T       float
#define V       vf32
#define VL      VF32_LANES
#define VF(op)  vf32_##op
#define NAME(x) x##_f32
#include "ops/conv/cpu/depthwise/depthwise_pixels.h"
#undef T
#undef V
#undef VL
#undef VF
#undef NAME

#define T       double
#define V       vf64
#define VL      VF64_LANES
#define VF(op)  vf64_##op
#define NAME(x) x##_f64
#include "ops/conv/cpu/depthwise/depthwise_pixels.h"

size_t CT_ISA_FN(ct__depthwise_pixels_bytes)(const depthwise_pass *pass) {
    return pass->dtype == CT_F64 ? pixels_pass_f64(pass, NULL) : pixels_pass_f32(pass, NULL);
}
void CT_ISA_FN(ct__depthwise_pixels)(const depthwise_pass *pass, void *scratch) {
    if (pass->dtype == CT_F64) pixels_pass_f64(pass, scratch);
    else pixels_pass_f32(pass, scratch);
}
size_t CT_ISA_FN(ct__depthwise_pixels_grad_bytes)(const depthwise_gradient *gradient) {
    return gradient->dtype == CT_F64 ? pixels_gradient_f64(gradient, NULL) : pixels_gradient_f32(gradient, NULL);
}
void CT_ISA_FN(ct__depthwise_pixels_grad)(const depthwise_gradient *gradient, void *scratch) {
    if (gradient->dtype == CT_F64) pixels_gradient_f64(gradient, scratch);
    else pixels_gradient_f32(gradient, scratch);
}
