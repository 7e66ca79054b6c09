/* Reductions on the host's side: which formula there is for a reduction over axes, and how a call runs it. */
#ifndef COTANGENT_OPS_REDUCE_WEBGPU_REDUCTION_H
#define COTANGENT_OPS_REDUCE_WEBGPU_REDUCTION_H

#include "backends/webgpu/webgpu.h"

typedef struct ct_wgpu_reduction {
    const char *real, *word, *wide; /* the formula of floats, of integers in a word, of i64; NULL: there is none */
    bool places;                    /* the order of reduced elements counts */
    bool greatest;                  /* of extrema */
} ct_wgpu_reduction;

const char *ct_wgpu_reduction_can(const ct_wgpu_reduction *r, const ct_call *call);
size_t ct_wgpu_reduction_scratch(const ct_wgpu_reduction *r, const ct_call *call, const ct_dims *axes);
bool ct_wgpu_reduction_run(const ct_wgpu_reduction *r, const ct_call *call, const ct_dims *axes);

#endif
