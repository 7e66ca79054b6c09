/* The text of a kernel for a fused call: what can be written, and writing it. Nothing here knows of devices. */
#ifndef COTANGENT_OPS_FUSED_CUDA_TEXT_H
#define COTANGENT_OPS_FUSED_CUDA_TEXT_H

#include <cotangent/fused.h>

#include "backends/cuda/nvrtc.h"

/* NULL: there is a text for it; else why not. */
const char *ct_fused_refusal(const ct_call *call);

/* Of a kernel with steps along rows: how groups of threads take them. */
typedef struct ct_fused_rows {
    int64_t rows;
    int n;            /* elements of a row; 0: there are none */
    int lanes, block; /* threads of a row, of a block */
    int kept;         /* packs of a row that a thread keeps */
    /* Sums of columns: they are made in parts, a block each and so many at most, of 2 n numbers of so many bytes, and then by the kernel
     * "fused_total" (as ops/norm/cuda). 0: there are none */
    int64_t parts;
    int number;
} ct_fused_rows;

typedef struct ct_fused_text {
    char *text; /* from malloc */
    size_t length, room;
    int pack;          /* elements that a thread takes at once where addresses are aligned: */
    uint64_t in_packs; /* those of these operands, inputs and then outputs, a bit each */
    ct_fused_rows rows;
    bool failed; /* out of memory */
} ct_fused_text;

/* The kernel is named "fused". It depends on ops, attributes, dtypes, shapes and strides, not on addresses. False: no memory. */
bool ct_fused_write(const ct_call *call, ct_fused_text *text);
void ct_fused_text_free(ct_fused_text *text);

const ct_nvrtc_header *ct_fused_headers(int *n); /* what texts include */

/* Bytes to which an operand of this dtype has to be aligned for packs. */
static inline size_t ct_fused_alignment(size_t element, int pack) {
    return element * (size_t)pack < 16 ? element * (size_t)pack : 16;
}

#endif
