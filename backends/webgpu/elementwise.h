/* Elementwise ops: the texts that mkops writes (gen/webgpu/elementwise.inc) in the loops of elementwise*.wgsl, and
 * for others who compute by them. */
#ifndef COTANGENT_BACKENDS_WEBGPU_ELEMENTWISE_H
#define COTANGENT_BACKENDS_WEBGPU_ELEMENTWISE_H

#include "backends/webgpu/webgpu.h"

bool ct_wgpu_elementwise_start(void);                     /* false: no memory */
const ct_kernel *ct_wgpu_elementwise_of(const ct_op *op); /* NULL: it is none */

/* The text is fn formula(m, a, b, c, d, e): a mask and five numbers, of which the op uses some. It names T and the
 * words on it, and of p what ct_wgpu_attributes has. */
typedef struct ct_wgpu_formula {
    const char *name;
    int typed, mask; /* inputs: the first number, the mask or -1 */
    unsigned classes;
    int cost,
        choice; /* choice: the attribute, an enum, whose value chooses among formulas, or -1: it is the text's CHOICE */
    const char *text;
} ct_wgpu_formula;
const ct_wgpu_formula *ct_wgpu_formula_of(const ct_op *op); /* NULL: it has none */
bool ct_wgpu_formula_takes(const ct_wgpu_formula *formula, ct_dtype dtype);
ct_wgpu_words ct_wgpu_words_of(ct_dtype dtype);

/* A number of a call as the words that ct_from_words takes. */
void ct_wgpu_number_words(uint32_t words[2], ct_dtype dtype, const void *number);

/* Attributes of a call, the same way. As in Params. */
enum { CT_WGPU_ATTRS = 4 };
typedef struct ct_wgpu_attributes {
    uint32_t given; /* bit k: attribute k was set */
    float highest;  /* the largest finite number of the dtype */
    uint32_t attrs[CT_WGPU_ATTRS][2];
} ct_wgpu_attributes;
void ct_wgpu_attributes_of(const ct_call *call, ct_dtype dtype, ct_wgpu_attributes *attributes); /* of zeros before */

#endif
