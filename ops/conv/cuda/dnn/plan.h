/* What a call of a convolution asks of cuDNN, and the ways to do it.
 *
 * A problem is in cuDNN's order of axes: images [N,C,...], filters [K,C,...], with two or three spatial axes. cuDNN has engines for two packed
 * layouts, channels last (NHWC with filters KRSC, where Tensor Cores are fast) and channels first (NCHW, KCRS). An operand that lies so and
 * is aligned is used in place; another one, as the filter [kh,kw,C,K] of channels last, goes through a packed copy in scratch.
 *
 * A way is a layout, whether bias, residual and activation are in the same pass, whether the stride is folded into
 * channels, and an engine; or it is a product by cuBLASLt, or kernels of our own (ops/conv/cuda/cores.h). The ways of a
 * problem are found at the first call with such sizes and kept. */
#ifndef COTANGENT_OPS_CONV_CUDA_DNN_PLAN_H
#define COTANGENT_OPS_CONV_CUDA_DNN_PLAN_H

#include "backends/cuda/blas.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/dnn.h"
#include "ops/conv/cuda/cores.h"

#ifdef CT_CUDA_DNN

enum { CT_CONV_X, CT_CONV_W, CT_CONV_Y, CT_CONV_RESIDUAL, CT_CONV_OPERANDS };
enum { CT_CONV_FORWARD, CT_CONV_INPUT_GRAD, CT_CONV_WEIGHT_GRAD };
enum {
    CT_CONV_AXES = 5,
    CT_CONV_IDS = 1,
    CT_CONV_BIAS_ID = CT_CONV_IDS + CT_CONV_OPERANDS
}; /* ids of tensors in graphs */

typedef struct ct_conv_problem {
    int kind, rank; /* spatial axes: 2 or 3 */
    ct_view views[CT_CONV_OPERANDS];
    bool has_residual, exact;
    const ct_view *bias;
    int activation;
    int64_t stride[3], dilation[3], before[3], after[3];
} ct_conv_problem;

ct_conv_problem ct_conv_forward_problem(const ct_call *call);
ct_conv_problem ct_conv_fused_problem(const ct_call *call);
ct_conv_problem ct_conv_input_grad_problem(const ct_call *call);
ct_conv_problem ct_conv_weight_grad_problem(const ct_call *call);
const char *ct_conv_refuses(const ct_conv_problem *p); /* NULL, or why it is none for cuDNN */

static inline int ct_conv_output(int kind) {
    return kind == CT_CONV_FORWARD ? CT_CONV_Y : kind == CT_CONV_INPUT_GRAD ? CT_CONV_X : CT_CONV_W;
}
static inline bool ct_conv_is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }
/* Whether anything comes behind the convolution. */
static inline bool ct_conv_has_more(const ct_conv_problem *p) {
    return p->bias || p->has_residual || p->activation != CT_ACT_NONE;
}

void ct_conv_packed_strides(const ct_view *view, bool last, int64_t *strides);
bool ct_conv_lies(const ct_view *view, bool last); /* packed in this layout, and aligned */
ct_view ct_conv_packed_at(const ct_view *view, bool last, char *address);

/* All on which the choice of a way depends, without padding. */
typedef struct ct_conv_key {
    int32_t device, kind, rank, dtype, activation, bias, packed_bias, residual, exact, tf32, lasting, unused;
    int32_t lies[2][CT_CONV_OPERANDS]; /* by layout: channels first, channels last */
    int64_t dims[CT_CONV_Y + 1][CT_CONV_AXES], stride[3], dilation[3], before[3], after[3];
} ct_conv_key;

typedef struct ct_conv_way {
    bool last, fused;
    bool product; /* by cuBLASLt: there is no plan */
    bool folded;  /* the stride into channels, x and w through copies */
    bool own;     /* a gradient by kernels of our own: there is no plan */
    ct_dnn_plan plan;
    size_t room
        [CT_CONV_OPERANDS]; /* where in scratch a packed copy is; CT_CONV_IN_PLACE: the operand is used as it lies */
    size_t workspace, need; /* need: bytes of scratch, of which the workspace begins there */
} ct_conv_way;
#define CT_CONV_IN_PLACE ((size_t)-1)

enum { CT_CONV_WAYS = 32, CT_CONV_GRAPHS = 6 };

typedef struct ct_conv_plan {
    ct_conv_key key;
    struct ct_conv_plan *next;
    ct_dnn_graph graphs[CT_CONV_GRAPHS];
    int n_graphs, n, chosen; /* chosen: -1 until it has been measured */
    ct_conv_way ways[CT_CONV_WAYS];
    char why[160]; /* where n is 0 */
} ct_conv_plan;

/* The plan of a problem, made at its first use; NULL: no memory. As long as ct_cuda_dnn_begin's lock is held it stays. */
ct_conv_plan *ct_conv_plan_for(const ct_call *call, const ct_conv_problem *p, cudnnHandle_t handle);
/* The product that it is; false: it is none. */
bool ct_conv_product(const ct_conv_problem *p, const ct_conv_key *k, ct_cuda_blas_product *product);
/* A gradient for kernels of our own: why it is none, with the bytes of scratch, and running it. */
const char *ct_conv_own_refuses(const ct_call *call, const ct_conv_problem *p, size_t *scratch);
bool ct_conv_own_run(const ct_call *call, const ct_conv_problem *p, char *scratch);
/* The problem with its stride folded into channels (ops/conv/cuda/fold.h); false: it is none for that. */
bool ct_conv_fold(const ct_conv_problem *p, ct_conv_problem *folded);
/* Folds an operand into memory, or back from there. */
bool ct_conv_fold_run(const ct_call *call, const ct_conv_problem *p, const ct_conv_problem *folded, int operand,
                      char *memory, bool back);
bool ct_conv_measures(void); /* false: CT_TUNE=0, the first way serves */
uint64_t ct_conv_hash(const void *bytes, size_t size);

#endif
#endif
