/* What the kernels of convolution share: the problem that a call poses, and the candidates that conv.c lists.
 *
 * To add a candidate: write CT_ISA_FN(NAME_can), _scratch and _run in a folder beside conv.c (compiled once per ISA
 * level), declare them below with CONV_CANDIDATE(NAME), and put CONV_ENTRY(NAME) into the table of conv.c in the
 * place it deserves: the first candidate whose `can` gives NULL runs. A candidate begins with ct__conv_problem(call, &p)
 * and looks at p alone; it may be listed for several kinds and tell them by p.kind. */
#ifndef COTANGENT_OPS_CONV_KERNELS_H
#define COTANGENT_OPS_CONV_KERNELS_H

#include <cotangent/backend.h>

#include "backends/cpu/gemm/gemm.h"
#include "ops/geometry.h"

typedef enum ct_conv_kind {
    CT_CONV_FORWARD,     /* y = activation(conv(x, w) + bias + residual) */
    CT_CONV_INPUT_GRAD,  /* x = adjoint of conv(., w) applied to y, + bias */
    CT_CONV_WEIGHT_GRAD, /* w = adjoint of conv(x, .) applied to y; bias_grad = sum of y over all but channels */
} ct_conv_kind;

/* All geometry is that of the forward convolution; geometry.x, .y and .w hold the element strides of whatever stands in
 * the place of x, y and w, inputs and outputs alike. Any stride may occur, zero too. Everything may be of size zero. All
 * tensors have the same dtype; halves compute and accumulate in f32. */
typedef struct ct_conv_problem {
    ct_conv_kind kind;
    ct_conv_geometry geometry;
    ct_dtype dtype;
    void *x, *w, *y;      /* two are read, the one that kind names is written, every element of it */
    const void *bias;     /* NULL: none; forward: (out_channels), input gradient: (in_channels) */
    int64_t bias_stride;  /* in elements */
    const void *residual; /* NULL: none; forward only, the shape of y */
    ct_image_strides residual_strides;
    int activation;  /* enum ct_activation; forward only */
    void *bias_grad; /* NULL: not asked for; weight gradient only, (out_channels), dense */
    bool exact;      /* no algorithm that rounds otherwise than sums of products do (Winograd) */
} ct_conv_problem;

/* Of a call of conv, conv_fused, conv_input_grad or conv_weight_grad. */
void ct__conv_problem(const ct_call *call, ct_conv_problem *problem);

/* Whether windows span so much padding beside so little of x that a kernel which copies all they span would take its time and
 * memory for nothing: "mostly padding". */
bool ct__conv_mostly_padding(const ct_conv_problem *problem);

#ifdef CT_ISA
#define CONV_CANDIDATE(name)                                      \
    const char *CT_ISA_FN(ct__##name##_can)(const ct_call *call); \
    size_t CT_ISA_FN(ct__##name##_scratch)(const ct_call *call);  \
    bool CT_ISA_FN(ct__##name##_run)(const ct_call *call, ct_stream *stream);
#define CONV_ENTRY(name) \
    { #name, CT_ISA_FN(ct__##name##_can), CT_ISA_FN(ct__##name##_scratch), CT_ISA_FN(ct__##name##_run) }
#endif

/* small.c: conv of a few numbers. */
const char *ct__conv_small_can(const ct_call *call);
bool ct__conv_small_run(const ct_call *call, ct_stream *stream);
#define CONV_SMALL \
    { "conv_small", ct__conv_small_can, NULL, ct__conv_small_run }

/* direct.c: plain loops, takes everything. */
bool ct__conv_direct_run(const ct_call *call, ct_stream *stream);
#define CONV_DIRECT \
    { "conv_direct", NULL, NULL, ct__conv_direct_run }

#endif
