/* Convolutions by cuDNN, and what of them is left to a kernel of our own: bias, residual and activation where no engine has them in the
 * same pass. */
#ifndef COTANGENT_OPS_CONV_CUDA_DNN_H
#define COTANGENT_OPS_CONV_CUDA_DNN_H

#include "backends/cuda/nest.h"

/* out = activation(sum + bias + residual), in f64 of f64, else in f32. */
typedef struct ct_cuda_conv_finish {
    ct_cuda_head head;
    char *out;
    const char *sum, *bias, *residual; /* bias and residual may be NULL */
    ct_cuda_nest nest;                 /* operands: out, sum, residual, bias */
    int32_t activation;                /* a ct_activation */
    int32_t wide;                      /* sum is of f32 though out is of a half type */
    int32_t packed;                    /* four neighbours of out, sum and residual are aligned, */
    int32_t bias_along;                /* and have biases next to each other, else all the same */
} ct_cuda_conv_finish;

#ifndef __CUDACC__
#include <cotangent/backend.h>

const char *ct_cuda_conv_dnn_can(const ct_call *call);
size_t ct_cuda_conv_dnn_scratch(const ct_call *call);
bool ct_cuda_conv_dnn_run(const ct_call *call, ct_stream *stream);
const char *ct_cuda_conv_input_grad_dnn_can(const ct_call *call);
size_t ct_cuda_conv_input_grad_dnn_scratch(const ct_call *call);
bool ct_cuda_conv_input_grad_dnn_run(const ct_call *call, ct_stream *stream);
const char *ct_cuda_conv_weight_grad_dnn_can(const ct_call *call);
size_t ct_cuda_conv_weight_grad_dnn_scratch(const ct_call *call);
bool ct_cuda_conv_weight_grad_dnn_run(const ct_call *call, ct_stream *stream);
#endif

#endif
