/* A random call of an op, before it is made: a mutated sample of the op or something made up. For tests/fuzz_ops.c. */
#ifndef COTANGENT_TESTS_OPCHECK_PLAN_H
#define COTANGENT_TESTS_OPCHECK_PLAN_H

#include "tests/opcheck.h"

enum {
    OPCHECK_LARGE = 40000,        /* elements of an input, at most */
    OPCHECK_RANDOM_STRIDES = 100, /* a layout beside those of opcheck.h: elements may coincide */
};

typedef struct opcheck_argument {
    bool absent;
    int same_as; /* -1, or the input whose tensor is given again */
    ct_dims shape;
    ct_dtype dtype;
    char domain[24];
    int layout;
    bool grad, extreme; /* extreme: some values are NaN, huge, out of range */
} opcheck_argument;

typedef struct opcheck_plan {
    const ct_op *op;
    opcheck_argument in[OPCHECK_INPUTS];
    int n_in, n_out;
    void *attrs;
    bool no_attrs, no_inputs, no_outputs, shared_error;
    bool want[OPCHECK_OUTPUTS];
    bool some_wanted; /* want is given */
    enum { OPCHECK_NO_TARGET, OPCHECK_TARGET_LIKE_RESULT, OPCHECK_TARGET_IS_INPUT, OPCHECK_TARGET_WRONG } target;
    ct_dtype autocast;
} opcheck_plan;

/* A plan for p->op, with room for its options in p->attrs, from fuzz_draw(). */
void opcheck_make_plan(opcheck_plan *p, opcheck *check);
void opcheck_say_plan(const opcheck_plan *p); /* into the description of the call */

ct_dims opcheck_draw_shape(void);
int64_t opcheck_extent(ct_dims shape); /* the product of its sizes, zeros left out; INT64_MAX: too large */

#endif
