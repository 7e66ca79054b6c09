/* What the writers of fused kernels share: steps.c has what a step is, text.c operands in memory and kernels over elements, rows.c kernels
 * with steps along rows. */
#ifndef COTANGENT_OPS_FUSED_CUDA_WRITER_H
#define COTANGENT_OPS_FUSED_CUDA_WRITER_H

#include "ops/fused/cuda/fused/text.h"
#include "ops/fused/layout.h"

/* ---- steps.c ---- */

/* How a dtype is stored and computed in. */
typedef struct ct_fused_type {
    const char *name, *stored, *computed;
    int size;
} ct_fused_type;
enum { CT_FUSED_TYPES = CT_BOOL + 1 };
extern const ct_fused_type ct_fused_types[CT_FUSED_TYPES];

typedef enum ct_fused_kind {
    CT_FUSED_NONE,
    CT_FUSED_ELEMENTWISE,
    CT_FUSED_CAST,
    CT_FUSED_COPY,
    CT_FUSED_DROPOUT,
    CT_FUSED_ROW_NORM, /* along rows, from here on */
    CT_FUSED_ROW_NORM_GRAD,
} ct_fused_kind;
ct_fused_kind ct_fused_kind_of(const ct_op *op);
static inline bool ct_fused_is_row(const ct_fused_step *step) {
    return ct_fused_kind_of(step->call.op) >= CT_FUSED_ROW_NORM;
}

const char *ct_fused_formula(const ct_op *op); /* the function of an elementwise op */
void ct_fused_put(ct_fused_text *text, const char *format, ...) CT_PRINTF(2, 3);
/* Values are variables of the type that they are computed in, and bool ones bytes: v3 is value 3. */
const char *ct_fused_variable(ct_dtype dtype);
/* What is stored, as such a variable. */
void ct_fused_put_loaded(ct_fused_text *text, ct_dtype dtype, const char *format, ...) CT_PRINTF(3, 4);
/* The declaration of the variable that a step makes of one element; k is the element's number in its pack. */
void ct_fused_put_step(ct_fused_text *text, const ct_fused *fused, int number);

/* ---- text.c ---- */

/* Reads the pack of a value from element e on into `to`; any: addresses may not be aligned. */
void ct_fused_put_read(ct_fused_text *text, const ct_call *call, int value, const char *to, bool any);
/* Writes the pack `from` of a value there. */
void ct_fused_put_write(ct_fused_text *text, const ct_call *call, int value, const char *from, bool any);
/* Element k of the pack `to` is what the variable of a value stores. */
void ct_fused_put_stored(ct_fused_text *text, const ct_fused *fused, int value, const char *to);
/* The words of dropout of the pack from element e on, for its steps from `first` to `last` - 1. */
void ct_fused_put_words(ct_fused_text *text, const ct_call *call, int first, int last);
static inline bool ct_fused_is_element(const ct_fused *fused, int value) {
    return fused->values[value].count == fused->count;
}

/* ---- rows.c ---- */

/* NULL: its steps along rows can be written; else why not. It has some. */
const char *ct_fused_rows_refusal(const ct_fused *fused);
const char *ct_fused_row_step_refusal(const ct_fused *fused, const ct_fused_step *step);
/* Sets how rows are divided, before anything is written. */
void ct_fused_divide_rows(const ct_fused *fused, ct_fused_text *text);
void ct_fused_put_row_kernel(ct_fused_text *text, const ct_call *call);

#endif
