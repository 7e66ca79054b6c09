/* Arguments of the scans' device code. A line is cut into chunks where there are too few lines: then a first kernel finds what each chunk
 * comes to, and the second begins each with what lies before it. */
#ifndef COTANGENT_OPS_SCAN_CUDA_H
#define COTANGENT_OPS_SCAN_CUDA_H

#include "backends/cuda/nest.h"

enum { CT_SCAN_EACH = 8, CT_SCAN_CHUNKS = 256 }; /* elements that a thread takes at once; the most chunks in a line */

typedef struct ct_cuda_scan {
    ct_cuda_head head;
    char *at[3]; /* x, y, and what is third: b of a recurrence, the places of an extremum; y and these may be NULL */
    int64_t step[3];
    ct_cuda_nest lines; /* of the three */
    int64_t n;
    int32_t reverse;
    int32_t totals; /* only find what chunks come to */
    int64_t chunks, chunk;
    char *partial; /* (lines, chunks) states; NULL where chunks is 1 */
} ct_cuda_scan;

#endif
