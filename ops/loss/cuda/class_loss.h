/* Arguments of class_loss and of its gradient. x is (items, classes, places); a target is one of items * places. */
#ifndef COTANGENT_OPS_LOSS_CUDA_CLASS_LOSS_H
#define COTANGENT_OPS_LOSS_CUDA_CLASS_LOSS_H

#include "backends/cuda/view.h"

enum { CT_LOSS_THREADS = 256, CT_LOSS_MOST = 512 };

typedef struct ct_cuda_class_loss {
    ct_cuda_head head;
    const char *x, *target;
    const char *weight, *g;  /* of the dtype that is computed in, or of x: wide_weight, wide_g */
    char *y, *level, *total; /* in what is computed in; NULL: not wanted, or in a gradient not known */
    char *dx;
    double *sums; /* (blocks, 2): of losses and weights */
    int64_t targets, classes, places, blocks;
    int64_t ignored;
    double smoothing;
    int32_t wide_target, wide_weight, wide_g;
    int32_t reduction, lanes;
} ct_cuda_class_loss;

#endif
