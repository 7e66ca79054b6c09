/* What is done to a recorded graph before it is instantiated. */
#ifndef COTANGENT_BACKENDS_CUDA_RECORDED_H
#define COTANGENT_BACKENDS_CUDA_RECORDED_H

#include "backends/cuda/cuda.h"

/* One recording, or two of the same work: in order, and by parts some of which are beside each other. Of two the first launches measure both in
 * turns, and the faster one stays. */
typedef struct ct_cuda_work ct_cuda_work;
ct_cuda_work *ct_cuda_work_new(CUgraphExec graph); /* owns it; NULL: no memory, and the graph is destroyed */
/* Owns both from then on. */
ct_cuda_work *ct_cuda_work_either(ct_cuda_work *in_order, ct_cuda_work *by_parts);
CUresult ct_cuda_work_launch(ct_cuda_work *work, CUstream stream); /* the context is current, as for the next */
void ct_cuda_work_free(ct_cuda_work *work);

/* Small fills become kernels; where the driver cannot tell or change a node, it stays as it is. The context is current. */
void ct_cuda_recorded_improve(ct_cuda_device *device, int index, CUgraph graph);

#endif
