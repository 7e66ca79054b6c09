/* A recurrence step by step, in any float and of any size, for ops/rnn/cuda/recurrence.c. */
#ifndef COTANGENT_OPS_RNN_CUDA_STEPS_H
#define COTANGENT_OPS_RNN_CUDA_STEPS_H

#include <cotangent/backend.h>

#include "ops/rnn/cuda/recurrence.h"

size_t ct_rnn_forward_scratch(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype);
bool ct_rnn_forward_run(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype);
size_t ct_rnn_backward_scratch(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype);
bool ct_rnn_backward_run(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype);

#endif
