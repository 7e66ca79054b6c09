/* Problems with a folded stride (ops/conv/cuda/fold.h). */
#include "ops/conv/cuda/fold.h"

#include "ops/conv/cuda/dnn/plan.h"

#ifdef CT_CUDA_DNN
#include <string.h>

enum { FEW_CHANNELS = 4, MOST_FOLDED = 64, MULTIPLE = 8 };

static int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* A packed view with channels last of that many channels and pixels, without memory. */
static ct_view folded_view(const ct_view *view, int64_t channels, const int64_t *size) {
    ct_view v = *view;
    v.buffer = NULL, v.origin = 0, v.offset = 0;
    v.dims[1] = channels, v.dims[2] = size[0], v.dims[3] = size[1];
    ct_conv_packed_strides(&v, true, v.strides);
    return v;
}

bool ct_conv_fold(const ct_conv_problem *p, ct_conv_problem *folded) {
    const ct_view *x = &p->views[CT_CONV_X], *w = &p->views[CT_CONV_W], *y = &p->views[CT_CONV_Y];
    const int64_t channels = w->dims[1] * p->stride[0] * p->stride[1];
    if (p->rank != 2 || w->dims[1] != x->dims[1] || w->dims[1] > FEW_CHANNELS || channels > MOST_FOLDED) return false;
    if (p->stride[0] * p->stride[1] == 1 || p->dilation[0] != 1 || p->dilation[1] != 1) return false;
    if (p->kind != CT_CONV_FORWARD && ct_conv_has_more(p)) return false;
    int64_t taps[2], size[2];
    for (int d = 0; d < 2; d++) {
        taps[d] = (w->dims[2 + d] + p->stride[d] - 1) / p->stride[d];
        size[d] = y->dims[2 + d] + taps[d] - 1;
    }
    *folded = *p;
    folded->views[CT_CONV_X] = folded_view(x, round_up(channels, MULTIPLE), size);
    folded->views[CT_CONV_W] = folded_view(w, round_up(channels, MULTIPLE), taps);
    for (int d = 0; d < 2; d++) folded->stride[d] = 1, folded->before[d] = folded->after[d] = 0;
    return ct_cuda_count(&folded->views[CT_CONV_X]) <= INT32_MAX;
}

CT_CUDA_UNIT(conv_fold);
static ct_cuda_function functions[2][2] = {{CT_CUDA_FUNCTION("fold_2"), CT_CUDA_FUNCTION("fold_4")},
                                           {CT_CUDA_FUNCTION("unfold_2"), CT_CUDA_FUNCTION("unfold_4")}};

bool ct_conv_fold_run(const ct_call *call, const ct_conv_problem *p, const ct_conv_problem *folded, int operand,
                      char *memory, bool back) {
    const ct_view *plain = &p->views[operand], *to = &folded->views[operand];
    const size_t size = ct_cuda_dtype_size(plain->dtype);
    ct_cuda_conv_fold a;
    memset(&a, 0, sizeof a);
    a.folded = memory, a.plain = ct_cuda_address(plain);
    a.outer_stride = plain->strides[0], a.channel_stride = plain->strides[1];
    a.outer = (uint32_t)plain->dims[0], a.channels = (uint32_t)plain->dims[1], a.padded = (uint32_t)to->dims[1];
    for (int d = 0; d < 2; d++) {
        a.strides[d] = plain->strides[2 + d];
        a.size[d] = (uint32_t)plain->dims[2 + d], a.folded_size[d] = (uint32_t)to->dims[2 + d];
        a.stride[d] = (uint32_t)p->stride[d];
        a.before[d] = operand == CT_CONV_X ? (uint32_t)p->before[d] : 0;
    }
    a.channels_inner = plain->strides[1] <= plain->strides[3];
    a.items = (uint32_t)(back ? ct_cuda_count(plain) : ct_cuda_count(to) * (int64_t)size / 16);
    return ct_cuda_launch(call, &functions[back][size == 4],
                          (ct_cuda_shape){.grid = ct_cuda_blocks(call, a.items, 256), .block = 256}, &a);
}
#endif
