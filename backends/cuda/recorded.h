/* What is done to a recorded graph before it is instantiated. */
#ifndef COTANGENT_BACKENDS_CUDA_RECORDED_H
#define COTANGENT_BACKENDS_CUDA_RECORDED_H

#include "backends/cuda/cuda.h"

/* Small fills become kernels; where the driver cannot tell or change a node, it stays as it is. The context is current. */
void ct_cuda_recorded_improve(ct_cuda_device *device, int index, CUgraph graph);

#endif
