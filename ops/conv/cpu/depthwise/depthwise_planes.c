/* Depthwise convolution plane by plane, in f32 (halves are widened as they are copied) and f64. */
#include "ops/conv/cpu/depthwise/depthwise.h"

#define LOAD_LANES(lanes, p)     _mm512_maskz_loadu_ps((__mmask16)(lanes), p)
#define STORE_LANES(p, lanes, v) _mm512_mask_storeu_ps(p, (__mmask16)(lanes), v)
#define T                        float
#define DTYPE                    CT_F32
#define V                        vf32
#define VL                       VF32_LANES
#define VF(op)                   vf32_##op
#define NAME(x)                  x##_f32
#include "ops/conv/cpu/depthwise/depthwise_planes.h"
#undef T
#undef DTYPE
#undef V
#undef VL
#undef VF
#undef NAME
#undef LOAD_LANES
#undef STORE_LANES

#define LOAD_LANES(lanes, p)     _mm512_maskz_loadu_pd((__mmask8)(lanes), p)
#define STORE_LANES(p, lanes, v) _mm512_mask_storeu_pd(p, (__mmask8)(lanes), v)
#define T                        double
#define DTYPE                    CT_F64
#define V                        vf64
#define VL                       VF64_LANES
#define VF(op)                   vf64_##op
#define NAME(x)                  x##_f64
#include "ops/conv/cpu/depthwise/depthwise_planes.h"

#define PASS(type)                                                                                  \
    do {                                                                                            \
        band_##type b;                                                                              \
        plan_##type(&b, pass);                                                                      \
        const int64_t workers = ct__threads() * b.worker;                                           \
        if (!scratch) return (size_t)(offset_room_##type(&b) + workers) * sizeof *b.workers;        \
        b.workers = list_offsets_##type(&b, scratch);                                               \
        memset(b.workers, 0, (size_t)workers * sizeof *b.workers); /* the padding of copied rows */ \
        ct__parallel((b.planes + b.chunk - 1) / b.chunk, planes_chunk_##type, &b);                  \
    } while (0)
#define SUMS(type)                                                                                         \
    do {                                                                                                   \
        sums_##type s;                                                                                     \
        depthwise_pass pass;                                                                               \
        plan_sums_##type(&s, &pass, gradient);                                                             \
        const int64_t parts = depthwise_up(s.band.planes * (gradient->h.taps * gradient->w.taps + 1), 16); \
        const int64_t workers = ct__threads() * s.band.worker;                                             \
        if (!scratch) return (size_t)(offset_room_##type(&s.band) + parts + workers) * sizeof *s.parts;    \
        s.parts = list_offsets_##type(&s.band, scratch);                                                   \
        s.band.workers = s.parts + parts;                                                                  \
        memset(s.band.workers, 0, (size_t)workers * sizeof *s.parts);                                      \
        ct__parallel((s.band.planes + s.band.chunk - 1) / s.band.chunk, sums_chunk_##type, &s);            \
        ct__parallel(gradient->channels * gradient->multiplier, join_chunk_##type, &s);                    \
    } while (0)

/* Without scratch: how many bytes of it. */
static size_t run_pass(const depthwise_pass *pass, void *scratch) {
    if (pass->dtype == CT_F64) PASS(f64);
    else PASS(f32);
    return 0;
}
static size_t run_gradient(const depthwise_gradient *gradient, void *scratch) {
    if (gradient->dtype == CT_F64) SUMS(f64);
    else SUMS(f32);
    return 0;
}

size_t CT_ISA_FN(ct__depthwise_planes_bytes)(const depthwise_pass *pass) { return run_pass(pass, NULL); }
void CT_ISA_FN(ct__depthwise_planes)(const depthwise_pass *pass, void *scratch) { run_pass(pass, scratch); }
size_t CT_ISA_FN(ct__depthwise_planes_grad_bytes)(const depthwise_gradient *gradient) {
    return run_gradient(gradient, NULL);
}
void CT_ISA_FN(ct__depthwise_planes_grad)(const depthwise_gradient *gradient, void *scratch) {
    run_gradient(gradient, scratch);
}
