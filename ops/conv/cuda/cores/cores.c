/* Gradients of convolutions in TF32 by kernels of our own: their launches. Who chooses them is ops/conv/cuda/dnn.c and grads.c, by measuring. */
#include "ops/conv/cuda/cores.h"

#include "backends/cuda/cuda.h"
#include "backends/cuda/tune.h"

CT_CUDA_OVERLAPPING_UNIT(conv_cores);

enum { WEIGHT_PARTS, WEIGHT_SUM, INPUT, KINDS };
#define FUNCTIONS(kind)                                                               \
    {                                                                                 \
        CT_CUDA_FUNCTION("cores_" kind "_16"), CT_CUDA_FUNCTION("cores_" kind "_32"), \
            CT_CUDA_FUNCTION("cores_" kind "_64")                                     \
    }
static ct_cuda_function functions[KINDS][3] = {FUNCTIONS("weight_parts"), FUNCTIONS("weight_sum"), FUNCTIONS("input")};

static bool launch(const ct_call *call, int kind, unsigned blocks, unsigned threads, unsigned shared,
                   ct_cores_plan *plan) {
    const ct_cuda_shape shape = {.grid = blocks, .block = threads, .shared = shared};
    return ct_cuda_launch(call, &functions[kind][plan->rows == 64 ? 2 : plan->rows == 32], shape, &plan->a);
}

static unsigned shared_of(const ct_call *call) {
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    return d ? (unsigned)d->shared_limit : 0;
}

static const char *refuses(const ct_call *call) { return ct_cuda_tf32(call) ? NULL : "TF32 is off"; }

const char *ct_cores_weight_refuses(const ct_call *call, const ct_cores_problem *p, size_t *scratch) {
    ct_cores_plan plan;
    const char *why = refuses(call);
    if (!why) why = ct_cores_plan_weight(p, shared_of(call), &plan);
    if (!why) *scratch = plan.scratch;
    return why;
}

bool ct_cores_weight_run(const ct_call *call, const ct_cores_problem *p, char *scratch) {
    ct_cores_plan plan;
    const char *why = ct_cores_plan_weight(p, shared_of(call), &plan);
    if (why) return ct_cuda_host->fail(CT_ERR_DEVICE, call->op->name, "%s", why);
    plan.a.partial = (float *)(void *)scratch, plan.a.dbias_partial = (float *)(void *)(scratch + plan.partial);
    return launch(call, WEIGHT_PARTS, plan.blocks, CT_CORES_THREADS, plan.shared, &plan) &&
           launch(call, WEIGHT_SUM, plan.sum_blocks, CT_CORES_SUM_THREADS, 0, &plan);
}

const char *ct_cores_input_refuses(const ct_call *call, const ct_cores_problem *p) {
    ct_cores_plan plan;
    const char *why = refuses(call);
    return why ? why : ct_cores_plan_input(p, shared_of(call), &plan);
}

bool ct_cores_input_run(const ct_call *call, const ct_cores_problem *p) {
    ct_cores_plan plan;
    const char *why = ct_cores_plan_input(p, shared_of(call), &plan);
    if (why) return ct_cuda_host->fail(CT_ERR_DEVICE, call->op->name, "%s", why);
    return launch(call, INPUT, plan.blocks, CT_CORES_THREADS, plan.shared, &plan);
}
