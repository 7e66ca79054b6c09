/* Reductions on the host's side: which formula there is for a reduction over axes, and how a call runs it. */
#ifndef COTANGENT_OPS_REDUCE_WEBGPU_REDUCTION_H
#define COTANGENT_OPS_REDUCE_WEBGPU_REDUCTION_H

#include "backends/webgpu/webgpu.h"

/* One reduction, perhaps among others that a call does. */
typedef struct ct_wgpu_reduce {
    const ct_view *x, *out; /* out has the axes of x, the reduced ones as 1 or not at all */
    unsigned mask;          /* bit d: axis d is reduced */
    bool places;            /* the order of reduced elements counts */
    const char *formula;
    size_t scratch_offset; /* where its scratch begins, a multiple of 256 */
    /* Adds operands and constants of the formula; NULL: there are none. */
    void (*with)(ct_wgpu_launch *launch, const void *context);
    const void *context;
} ct_wgpu_reduce;

size_t ct_wgpu_reduce_scratch(const ct_wgpu_reduce *r);
bool ct_wgpu_reduce_run(const ct_call *call, const ct_wgpu_reduce *r);

/* A reduction that is an op. */
typedef struct ct_wgpu_reduction {
    const char *real, *word, *wide; /* the formula of floats, of integers in a word, of i64; NULL: there is none */
    bool places;                    /* the order of reduced elements counts */
    bool option;                    /* of extrema: the greatest; of sums: means; of truths: all */
} ct_wgpu_reduction;

const char *ct_wgpu_reduction_can(const ct_wgpu_reduction *r, const ct_call *call);
size_t ct_wgpu_reduction_scratch(const ct_wgpu_reduction *r, const ct_call *call, const ct_dims *axes);
bool ct_wgpu_reduction_run(const ct_wgpu_reduction *r, const ct_call *call, const ct_dims *axes);

#endif
