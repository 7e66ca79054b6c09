/* The candidates of the internal ops of convolution on the CPU, in order of preference. The kernels themselves are in the
 * folders beside this file. */
#include "backends/cpu/activate.h"
#include "backends/cpu/kernel.h"
#include "ops/conv/cpu/gathered.h"
#include "ops/conv/cpu/grouped/grouped_special.h"
#include "ops/conv/cpu/implicit.h"
#include "ops/conv/cpu/kernels.h"

#include "gen/conv.attrs.h"

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
    if (ct__conv_mostly_padding(&p)) return "mostly padding";
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
    if (p.kind == CT_CONV_WEIGHT_GRAD) return ct__conv_weight(&p, ct__scratch(call));
    return ct__conv_implicit(&p, CT_ISA_FN(ct__activation)(p.dtype, p.activation), ct__scratch(call));
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
    if (!ct__conv_pointwise(&p, &g)) return 0;
    g.activate = CT_ISA_FN(ct__activation)(p.dtype, p.activation); /* with it the engine may go another way */
    return ct__gemm_scratch(&g);
}

static bool pointwise_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    ct_gemm g;
    ct__conv_problem(call, &p);
    if (!ct__conv_pointwise(&p, &g)) return false;
    g.activate = CT_ISA_FN(ct__activation)(p.dtype, p.activation);
    return ct__gemm(&g, ct__scratch(call));
}

#define POINTWISE \
    { "pointwise_gemm", pointwise_can, pointwise_scratch, pointwise_run }

static const char *gathered_can(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    return empty(&p) ? "there is nothing to multiply" : ct__conv_gathered_can(&p);
}

static size_t gathered_scratch(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    return ct__conv_gathered_scratch(&p, CT_ISA_FN(ct__activation)(p.dtype, p.activation));
}

static bool gathered_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    return ct__conv_gathered(&p, CT_ISA_FN(ct__activation)(p.dtype, p.activation), ct__scratch(call));
}

#define GATHERED \
    { "gathered_gemm", gathered_can, gathered_scratch, gathered_run }

CT_KERNELS(conv_conv) = {
    CT_CANDIDATES(conv, CONV_SMALL, CONV_SPECIAL, POINTWISE, GATHERED, IMPLICIT, CONV_DIRECT),
    CT_CANDIDATES(conv_fused, CONV_SPECIAL, POINTWISE, GATHERED, IMPLICIT, CONV_DIRECT),
    CT_CANDIDATES(conv_input_grad, CONV_SPECIAL, POINTWISE, GATHERED, IMPLICIT, CONV_DIRECT),
    CT_CANDIDATES(conv_weight_grad, CONV_SPECIAL, GATHERED, IMPLICIT, CONV_DIRECT),
    {0},
};
