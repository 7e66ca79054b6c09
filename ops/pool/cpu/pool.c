/* Kernels of max and average pooling and of their gradients, for 1 to 3 axes, both layouts and any strides: the loops of one
 * ISA level (lines/), driven by the way to pool that suits a call (ways.h). */
#include "ops/pool/cpu/lines/isa.h"
#include "ops/pool/cpu/ways.h"

#include "gen/pool.attrs.h"

/* Without its values the lowering finds the taps. */
static const char *can(const ct_call *call) { return call->out[0] ? NULL : "its first result is not asked for"; }

#define POOL_FUNCTIONS(op, kind)                                                                            \
    static size_t op##_scratch(const ct_call *call) { return ct__pool_scratch(call, kind, &ct__pool_isa); } \
    static bool op##_run(const ct_call *call, ct_stream *stream) {                                          \
        (void)stream;                                                                                       \
        return ct__pool_run(call, kind, &ct__pool_isa);                                                     \
    }
POOL_FUNCTIONS(max_pool_nd, POOL_MAX)
POOL_FUNCTIONS(max_pool_grad, POOL_MAX_GRAD)
POOL_FUNCTIONS(avg_pool_nd, POOL_MEAN)
POOL_FUNCTIONS(avg_pool_grad, POOL_MEAN_GRAD)

CT_KERNELS(pool_pool) = {
    CT_CANDIDATES(max_pool_nd, {"max_pool_nd_lines", can, max_pool_nd_scratch, max_pool_nd_run}),
    CT_CANDIDATES(max_pool_grad, {"max_pool_grad_lines", can, max_pool_grad_scratch, max_pool_grad_run}),
    CT_CANDIDATES(avg_pool_nd, {"avg_pool_nd_lines", can, avg_pool_nd_scratch, avg_pool_nd_run}),
    CT_CANDIDATES(avg_pool_grad, {"avg_pool_grad_lines", can, avg_pool_grad_scratch, avg_pool_grad_run}),
    {0},
};
