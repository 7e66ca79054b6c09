/* Several calls done as one: what a kernel of the op "fused" gets as its attributes. A pass over captured graphs makes such calls where
 * a backend has a kernel for them; a backend without one runs the calls one by one.
 *
 * The steps are in an order in which they may run one after the other, and mean just that: whatever a kernel does, outputs hold what the
 * calls would leave there, each result rounded to its dtype. What only steps read is never written to memory. */
#ifndef COTANGENT_FUSED_H
#define COTANGENT_FUSED_H

#include <cotangent/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What steps read or make: `count` elements in an order. Those of an input are the elements of in[input] of the fused call in row-major order,
 * whatever its strides (0 where it is broadcast); what a step makes is in row-major order of the shape that the step gives it. Steps may
 * see the same value in different shapes, as a reshape has them, but every view of it has `count` elements in that order. */
typedef struct ct_fused_value {
    ct_dtype dtype;
    int64_t count;
    int input;      /* of the fused call, where it comes from; -1: step `made` makes it */
    int output;     /* of the fused call, where it goes; -1: only steps read it */
    int made, last; /* steps: the one that makes it, -1 for an input; the last one that reads it, -1 if none does */
} ct_fused_value;

typedef struct ct_fused_step {
    /* op, attributes, numbers, random position, flags, and the kernel that would do it by itself. Views have the shape that the step sees, and
     * a buffer only where they are numbers; their strides are of use only there and for inputs of the fused call. Where a value lies, the
     * views of the fused call say. */
    ct_call call;
    const int *values; /* of its inputs, then of its outputs; -1: a number, or not there */
} ct_fused_step;

/* The attributes of a call of "fused". All steps are of one device. Where that is not the CPU, either all are CT_CALL_LASTING or none is;
 * the fused call is if some are. An output may lie where an input does only if it has the same elements in the same order, and no step
 * reads that input behind the one that makes the output: a kernel that takes an element (of steps by row: a row) through all steps at a
 * time need not look. Otherwise inputs and outputs do not overlap, nor do two outputs.
 *
 * It lives as long as the graph does, at one address. Between two runs only random positions change: the `random` of a step's call, or seed,
 * stream and call among its attributes (dropout_draw). Where the views of the call lie does not change from the first run on. */
typedef struct ct_fused {
    int64_t
        count; /* elements that the steps run over; values of fewer are what steps by row, or random positions, read and make */
    int n_steps, n_values;
    ct_fused_step *steps;
    const ct_fused_value *values;
    /* of ops, attributes but for random positions, dtypes, shapes, strides, numbers, and what goes where: not of addresses */
    uint64_t hash;
    /* Room for what a kernel prepares when it is first asked for its scratch, or run, and finds again in the next runs: zeros to begin with, CT_FUSED_PREPARED bytes for
     * each step and each value and as many again, aligned to 64. A graph runs in one thread at a time. */
    void *prepared;
    size_t prepared_bytes;
} ct_fused;
enum { CT_FUSED_PREPARED = 320 };

#ifdef __cplusplus
}
#endif
#endif
