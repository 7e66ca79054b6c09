/* deform_columns and its gradients on CUDA, of f32 and f64: halves are computed in f32. */
#include "ops/deform/cuda/columns.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/deform.attrs.h"

CT_CUDA_UNIT(deform_columns);

#define BOTH(name) \
    { CT_CUDA_FUNCTION("deform_" name "_f32"), CT_CUDA_FUNCTION("deform_" name "_f64") }
static ct_cuda_function forward[] = BOTH("columns"), offset_grad[] = BOTH("offset_grad"),
                        plane_exponent[] = BOTH("plane_exponent"), input_sums[] = BOTH("input_sums"),
                        input_grad[] = BOTH("input_grad"), plane_grad = CT_CUDA_FUNCTION("deform_plane_grad_f32");

static const char *can(const ct_call *call, const ct_view *x, const ct_view *columns) {
    if (x->dtype != CT_F32 && x->dtype != CT_F64) return "f32 and f64 only";
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && !ct_cuda_is_dense(call->in[i])) return "an input is not dense";
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !ct_cuda_is_dense(call->out[i])) return "an output is not dense";
    const int64_t runs =
        ct_cuda_ceil_div(x->dims[1], CT_DEFORM_CHANNELS) * (x->dims[1] ? columns->dims[1] / x->dims[1] : 0);
    if (ct_cuda_count(columns) > INT32_MAX || ct_cuda_count(x) > INT32_MAX / 4) return "too many elements";
    return runs < 65536 ? NULL : "too many channels or taps";
}

static ct_cuda_deform job_of(const ct_view *x, const ct_view *offset, const ct_view *mask, const ct_dims *kernel,
                             const ct_dims *strides, const ct_dims *pads, const ct_dims *dilations, int64_t groups) {
    ct_cuda_deform a;
    memset(&a, 0, sizeof a);
    a.x = ct_cuda_address(x), a.offset = ct_cuda_address(offset), a.mask = ct_cuda_address_if(mask);
    a.batch = (int32_t)x->dims[0], a.channels = (int32_t)x->dims[1];
    a.height = (int32_t)x->dims[2], a.width = (int32_t)x->dims[3];
    a.out_h = (int32_t)offset->dims[2], a.out_w = (int32_t)offset->dims[3];
    a.kernel_h = (int32_t)kernel->d[0], a.kernel_w = (int32_t)kernel->d[1];
    a.stride_y = (int32_t)strides->d[0], a.stride_x = (int32_t)strides->d[strides->n > 1];
    a.dilation_y = (int32_t)dilations->d[0], a.dilation_x = (int32_t)dilations->d[dilations->n > 1];
    a.pad_y = (int32_t)pads->d[0], a.pad_x = (int32_t)pads->d[pads->n == 4 ? 2 : pads->n > 1];
    a.offset_groups = (int32_t)groups;
    return a;
}

static bool is_empty(const ct_cuda_deform *a) {
    return !a->batch || !a->channels || !a->out_h || !a->out_w || !a->kernel_h || !a->kernel_w;
}

/* Places, and beside them taps of each of so many runs of channels or groups. */
static ct_cuda_shape places(const ct_cuda_deform *a, int64_t runs) {
    const int64_t all = (int64_t)a->batch * a->out_h * a->out_w;
    return (ct_cuda_shape){.grid = (unsigned)ct_cuda_ceil_div(all, CT_DEFORM_THREADS),
                           .grid_y = (unsigned)(runs * a->kernel_h * a->kernel_w),
                           .block = CT_DEFORM_THREADS};
}

static const char *columns_can(const ct_call *call) { return can(call, call->in[0], call->out[0]); }

static bool columns_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const deform_columns_attrs *attrs = call->attrs;
    ct_cuda_deform a = job_of(call->in[0], call->in[1], call->in[2], &attrs->kernel, &attrs->strides, &attrs->pads,
                              &attrs->dilations, attrs->offset_groups);
    a.columns = ct_cuda_address(call->out[0]);
    if (is_empty(&a)) return true;
    return ct_cuda_launch(call, &forward[call->in[0]->dtype == CT_F64],
                          places(&a, ct_cuda_ceil_div(a.channels, CT_DEFORM_CHANNELS)), &a);
}

/* ---- Gradients ---- */

static const char *grad_can(const ct_call *call) { return can(call, call->in[1], call->in[0]); }

static size_t sums_bytes(const ct_view *x) {
    return (size_t)ct_cuda_count(x) * (x->dtype == CT_F64 ? 3 : 1) * sizeof(uint64_t);
}

/* Whether a plane of x is summed in shared memory, and then how many bytes of that it takes; 0: in scratch. */
static unsigned shared_bytes(const ct_cuda_deform *a, ct_dtype dtype) {
    enum { MOST = 96 << 10 }; /* so that two blocks find room on a multiprocessor */
    const int64_t bytes = (int64_t)a->height * a->width * CT_DEFORM_LIMBS * (int64_t)sizeof(int32_t);
    return dtype == CT_F32 && a->bits >= CT_DEFORM_LEAST_BITS && bytes <= MOST ? (unsigned)bytes : 0;
}

static ct_cuda_deform grad_job(const ct_call *call) {
    const deform_columns_grad_attrs *attrs = call->attrs;
    ct_cuda_deform a = job_of(call->in[1], call->in[2], call->in[3], &attrs->kernel, &attrs->strides, &attrs->pads,
                              &attrs->dilations, attrs->offset_groups);
    while (a.growth < 40 && (1ll << a.growth) < 4ll * a.kernel_h * a.kernel_w * a.out_h * a.out_w) a.growth++;
    a.bits = 30 - a.growth; /* the sum of a limb has 31 bits at most, that of all of them 62 */
    if (a.bits > (62 - a.growth) / CT_DEFORM_LIMBS) a.bits = (62 - a.growth) / CT_DEFORM_LIMBS;
    return a;
}

static size_t grad_scratch(const ct_call *call) {
    const ct_view *x = call->in[1];
    const ct_cuda_deform a = grad_job(call);
    if (shared_bytes(&a, x->dtype)) return 0;
    return sums_bytes(x) + (size_t)(x->dims[0] * x->dims[1]) * sizeof(uint32_t);
}

static bool input_run(const ct_call *call, ct_cuda_deform *a) {
    const ct_view *x = call->in[1];
    const bool wide = x->dtype == CT_F64;
    const int64_t planes = (int64_t)a->batch * a->channels, all = planes * a->height * a->width;
    const ct_cuda_shape by_plane = {
        .grid = (unsigned)planes, .block = CT_DEFORM_THREADS, .shared = shared_bytes(a, x->dtype)};
    const ct_cuda_shape by_element = {.grid = ct_cuda_blocks(call, all, CT_DEFORM_THREADS), .block = CT_DEFORM_THREADS};
    if (by_plane.shared) return ct_cuda_launch(call, &plane_grad, by_plane, a);
    a->sums = ct_cuda_scratch(call);
    a->exponents = (uint32_t *)(void *)(a->sums + sums_bytes(x));
    return ct_cuda_launch(call, &plane_exponent[wide], by_plane, a) &&
           (is_empty(a) ||
            ct_cuda_launch(call, &input_sums[wide], places(a, ct_cuda_ceil_div(a->channels, CT_DEFORM_CHANNELS)), a)) &&
           ct_cuda_launch(call, &input_grad[wide], by_element, a);
}

static bool grad_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_deform a = grad_job(call);
    if (!a.batch || !a.channels || !a.height || !a.width) return true;
    a.columns = ct_cuda_address(call->in[0]);
    a.dx = ct_cuda_address(call->out[0]);
    a.doffset = call->n_out > 1 ? ct_cuda_address_if(call->out[1]) : NULL;
    a.dmask = call->n_out > 2 ? ct_cuda_address_if(call->out[2]) : NULL;
    if (!input_run(call, &a)) return false;
    return (!a.doffset && !a.dmask) || is_empty(&a) ||
           ct_cuda_launch(call, &offset_grad[call->in[1]->dtype == CT_F64], places(&a, a.offset_groups), &a);
}

CT_CUDA_KERNELS(deform_columns) = {
    CT_CANDIDATES(deform_columns, {"places", columns_can, NULL, columns_run}),
    CT_CANDIDATES(deform_columns_grad, {"places", grad_can, grad_scratch, grad_run}),
    {0},
};
