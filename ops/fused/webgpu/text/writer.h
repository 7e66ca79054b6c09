/* What the writers of fused kernels share: steps.c has what a step is, text.c operands in memory, phases and kernels
 * over elements, rows.c kernels with steps along rows, texts.c keeps what was written. */
#ifndef COTANGENT_OPS_FUSED_WEBGPU_WRITER_H
#define COTANGENT_OPS_FUSED_WEBGPU_WRITER_H

#include "backends/webgpu/shader.h"
#include "ops/fused/layout.h"
#include "ops/fused/webgpu/text/text.h"

typedef struct ct_wgpu_writer {
    ct_wgpu_text t;
    const ct_call *call;
    const ct_fused *fused;
    const ct_wgpu_fused_plan *plan;
} ct_wgpu_writer;

/* ---- steps.c ---- */

typedef enum ct_wgpu_fused_kind {
    CT_WGPU_NO_STEP,
    CT_WGPU_ELEMENTWISE,
    CT_WGPU_CAST,
    CT_WGPU_COPY,
    CT_WGPU_FILL,
    CT_WGPU_DRAW,   /* dropout at a position that is known as numbers, */
    CT_WGPU_REPLAY, /* and at one in memory */
    CT_WGPU_ROW,    /* along rows, from here on: softmax and its like, */
    CT_WGPU_ROW_NORM,
    CT_WGPU_ROW_NORM_GRAD,
} ct_wgpu_fused_kind;
ct_wgpu_fused_kind ct_wgpu_fused_kind_of(const ct_call *call);
static inline bool ct_wgpu_is_row(const ct_fused_step *step) {
    return ct_wgpu_fused_kind_of(&step->call) >= CT_WGPU_ROW;
}
static inline bool ct_wgpu_is_dropout(const ct_fused_step *step) {
    const ct_wgpu_fused_kind kind = ct_wgpu_fused_kind_of(&step->call);
    return kind == CT_WGPU_DRAW || kind == CT_WGPU_REPLAY;
}

/* Whether a step takes input i element by element, in place of a few numbers or not at all; and whether it does so
 * with a value. */
bool ct_wgpu_takes_elements(const ct_fused_step *step, int i);
bool ct_wgpu_step_reads(const ct_fused_step *step, int value);
/* A value that is a result of a step beside its elements. */
bool ct_wgpu_is_beside(const ct_fused *fused, int value);
const char *ct_wgpu_step_refusal(const ct_fused *fused, const ct_fused_step *step);
int ct_wgpu_step_cost(const ct_fused_step *step); /* in simple instructions for an element */

/* Variables hold values as they are computed in, or their bits: v3 is value 3. */
const char *ct_wgpu_variable(ct_dtype dtype);
const char *ct_wgpu_four(ct_dtype dtype); /* four of them */
/* The functions that steps need: formulas, codings of dtypes, positions. */
void ct_wgpu_put_functions(ct_wgpu_writer *w);
/* The declaration of the variable that a step makes of one element. */
void ct_wgpu_put_step(ct_wgpu_writer *w, int number);
/* Stores the positions that steps have drawn, where they go to memory. */
void ct_wgpu_put_positions(ct_wgpu_writer *w);
/* A number as the dtype has it. */
void ct_wgpu_put_rounding(ct_wgpu_writer *w, ct_dtype dtype, const char *number);

/* ---- text.c ---- */

/* Operand i of the call (inputs, then outputs), and its name in the text, a number: o3. */
static inline const ct_view *ct_wgpu_operand_view(const ct_call *call, int i) {
    return i < call->n_in ? call->in[i] : call->out[i - call->n_in];
}
static inline int ct_wgpu_operand_number(const ct_wgpu_writer *w, int i) {
    return __builtin_popcountll(w->plan->used & (((uint64_t)1 << i) - 1));
}

/* Elements i to i + 3 of input `input` of the call, an expression. */
void ct_wgpu_put_load(ct_wgpu_writer *w, int input);
/* Stores y3, which is value 3, there. */
void ct_wgpu_put_store(ct_wgpu_writer *w, int value);

/* Steps first to last - 1, none of which is along rows, and the step along rows before them, -1: none. */
typedef struct ct_wgpu_phase {
    int number, first, last, after;
} ct_wgpu_phase;
static inline bool ct_wgpu_is_made_in(const ct_wgpu_phase *p, const ct_fused_value *value) {
    return value->made >= p->first && value->made < p->last;
}
/* What a phase gets from outside and leaves behind. */
bool ct_wgpu_phase_takes(const ct_wgpu_writer *w, const ct_wgpu_phase *p, int value);
bool ct_wgpu_phase_gives(const ct_wgpu_writer *w, const ct_wgpu_phase *p, int value);
/* A value that an invocation keeps from phase to phase, as w3. */
bool ct_wgpu_is_kept(const ct_wgpu_writer *w, int value);

/* The phase as a function of one element, of variables and words of dropout; and, where a3 are four elements of
 * value 3, its results y3. The inner loop ends at `end`. */
void ct_wgpu_put_phase(ct_wgpu_writer *w, const ct_wgpu_phase *p);
void ct_wgpu_put_phase_of_four(ct_wgpu_writer *w, const ct_wgpu_phase *p, const char *end);

/* ---- rows.c ---- */

const char *ct_wgpu_row_refusal(const ct_fused *fused, const ct_fused_step *step);
const char *ct_wgpu_rows_refusal(const ct_fused *fused); /* it has some */
void ct_wgpu_put_rows(ct_wgpu_writer *w);

#endif
