/* The text of a kernel for a fused call: what can be written, and writing it. */
#ifndef COTANGENT_OPS_FUSED_WEBGPU_TEXT_H
#define COTANGENT_OPS_FUSED_WEBGPU_TEXT_H

#include <cotangent/fused.h>

#include "ops/norm/webgpu/row_norm.h"

enum {
    CT_WGPU_FUSED_OPERANDS = 64,
    CT_WGPU_FUSED_DRAWS = 16, /* positions that Params has room for */
};

/* What is known of a call from its first run on, in the room that it has for that. Nothing is frozen but where its
 * views lie. */
typedef struct ct_wgpu_fused_plan {
    const char *text; /* lives as long as the process; NULL: there is none yet */
    uint64_t used;    /* operands of the call, inputs and then outputs, a bit each, that lie in memory to the kernel; */
    uint64_t quads;   /* of these, that are taken in quads */
    int n;            /* elements of a row; 0: it has no steps along rows */
    ct_wgpu_row_division division; /* of rows */
    int sums;                      /* the step that sums columns; -1: none */
    int cost;                      /* of an element, in simple instructions */
    int loads;                     /* operands that are read for each element */
} ct_wgpu_fused_plan;
_Static_assert(sizeof(ct_wgpu_fused_plan) <= CT_FUSED_PREPARED, "the plan has its room");

/* NULL: there is a text for it; else why not. */
const char *ct_wgpu_fused_refusal(const ct_call *call);
/* All but text and quads, for which views have to be where they will be. */
void ct_wgpu_fused_divide(const ct_call *call, ct_wgpu_fused_plan *plan);
/* Those; false: no memory. */
bool ct_wgpu_fused_write(const ct_call *call, ct_wgpu_fused_plan *plan);

/* texts.c: one that has the same characters, for as long as the process lives; NULL: no memory. */
const char *ct_wgpu_fused_keep(const char *text);

#endif
