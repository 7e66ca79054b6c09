/* A call on its way through dispatch: arguments.c makes its inputs agree, execute.c chooses a kernel or lowers, dispatch.c
 * records it. */
#ifndef COTANGENT_CORE_CALL_H
#define COTANGENT_CORE_CALL_H

#include "core/tensor.h"
#include "gen/ops_decl.h"

enum { CT__DTYPES = 1, CT__SHAPES = 2 };
enum { CT__INLINE_INPUTS = 8, CT__INLINE_OUTPUTS = 4, CT__EXPANDED = 3 };

typedef struct ct_request {
    const ct_op *op;
    const void *attrs;
    ct_tensor **in; /* the caller's, then cast and expanded; borrowed */
    int n_in;
    ct_tensor **out; /* owned until they are handed over */
    int n_out;
    const bool *want;
    ct_rng *rng;
    ct_random random;
    uint32_t *versions; /* of the inputs before the run */
    ct_tensor *target;  /* where output 0 has to go, or NULL */
    const char *caller; /* whom errors about the target name */
    ct_device device;
    ct_device wanted; /* of an op that transfers: where its result goes */
    uint32_t numbers; /* bit i: in[i] is a number */
    uint32_t
        expanded; /* bit i: in[i] is seen with the shape below, without a handle of its own: those are CT__EXPANDED at most */
    int ndim;             /* of that shape, to which all broadcast */
    const int64_t *shape; /* its sizes */
    ct_view *inferred;    /* the results, where they are known already: another op handed on to this one */
    unsigned disagree;    /* of the inputs: CT__DTYPES, CT__SHAPES */
    bool recording;
    bool scoped;         /* ct__agree has opened a scope, which ends with the call: */
    ct_scope_mark scope; /* this one */
} ct_request;

/* The description of input i, which for lists is that of the last; *last is where the search stopped, 0 to begin with. */
static inline const ct_arg *ct__input_arg(const ct_op *op, int i, int *last) {
    while (*last < i && op->inputs[*last + 1].name && !(op->inputs[*last].flags & CT_ARG_LIST)) ++*last;
    return &op->inputs[*last];
}

static inline bool ct__input_is_mutated(const ct_op *op, int i) {
    int last = 0;
    return (op->flags & CT_OP_MUTATES) && (ct__input_arg(op, i, &last)->flags & CT_ARG_MUTATED);
}

static inline bool ct__op_is_builtin(const ct_op *op) { return op->slot->index <= ct__op_total && op->slot->index > 0; }

bool ct__check_counts(const ct_op *op, ct_tensor *const *inputs, int n, ct_tensor **outputs, int m, const bool *want);
/* NULLs, released tensors, devices; takes the inputs and finds what disagrees. */
bool ct__check_inputs(ct_request *r, ct_tensor *const *inputs);
/* Casts and expands, in a scope that it opens if it has to; common is room for the shape. */
bool ct__agree(ct_request *r, bool mixed, ct_dims *common);
ct_tensor *ct__cast_input(ct_tensor *x, ct_dtype dtype); /* a number, or ct_cast */
/* What of a request's inputs takes part only as a view becomes a tensor, as lowerings want it. */
bool ct__expand_inputs(ct_request *r);

/* A choice of a kernel, remembered for calls like it, with the scratch that it took for so many threads (0: not known yet). */
typedef struct ct_choice {
    uint64_t key;
    const ct_kernel *list, *kernel;
    size_t scratch;
    int threads;
} ct_choice;

/* The first candidate that takes the call; NULL: none. Why others refused is written to refusals, unless that is NULL. *known is where
 * the choice is remembered, or NULL. */
const ct_kernel *ct__choose(const ct_call *call, ct_choice **known, char *refusals, size_t room);

bool ct__execute(ct_request *r); /* infer, run, and the results in out */

/* The op with its first result in target, which the caller has checked to be writable. */
bool ct__apply_into(ct_tensor *target, const char *caller, const ct_op *op, ct_tensor *const *inputs, int n,
                    const void *attrs);

#endif
