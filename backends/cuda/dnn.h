/* cuDNN's graph API: opening the library at run time, graphs of operations, the engines that can run them, and running one. What the
 * graphs compute lies with the ops (ops/conv/cuda/dnn.c). The library may be missing, and so may its headers when this is built. */
#ifndef COTANGENT_BACKENDS_CUDA_DNN_H
#define COTANGENT_BACKENDS_CUDA_DNN_H

#include "backends/cuda/cuda.h"

/* NULL: the library is there; else why it cannot be used. CT_CUDNN=0 leaves it alone, CT_CUDNN=PATH takes the one at that path. */
const char *ct_cuda_dnn_missing(void);

#ifdef CT_CUDA_DNN
#include <cudnn_graph.h>

size_t ct_cuda_dnn_version(void); /* as 91400 */

/* The handle of the call's device, set to its stream. The device's context is current. One thread at a time: the lock is held until
 * ct_cuda_dnn_end. NULL: there is none, the reason is in the log, and the lock is not held. */
cudnnHandle_t ct_cuda_dnn_begin(const ct_call *call, const ct_cuda_device *device);
void ct_cuda_dnn_end(void);

/* A graph in the making. What goes wrong first stays, and what is asked of it afterwards does nothing. */
enum { CT_DNN_DESCRIPTORS = 32, CT_DNN_OPERATIONS = 8 };
typedef struct ct_dnn_graph {
    cudnnBackendDescriptor_t made[CT_DNN_DESCRIPTORS], operations[CT_DNN_OPERATIONS], graph;
    int n, n_operations;
    cudnnStatus_t status;
    const char *what; /* failed */
} ct_dnn_graph;

cudnnBackendDescriptor_t ct_dnn_make(ct_dnn_graph *graph, cudnnBackendDescriptorType_t type);
void ct_dnn_set(ct_dnn_graph *graph, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values);
void ct_dnn_end(ct_dnn_graph *graph, cudnnBackendDescriptor_t descriptor);
void ct_dnn_operation(ct_dnn_graph *graph, cudnnBackendDescriptor_t descriptor); /* complete: the graph has it */

enum { CT_DNN_ALIGNMENT = 16 }; /* of every tensor that is not virtual, in bytes */
cudnnBackendDescriptor_t ct_dnn_tensor(ct_dnn_graph *graph, int64_t id, cudnnDataType_t type, int n,
                                       const int64_t *dims, const int64_t *strides, bool is_virtual);
/* y = mode(x, b), b NULL where mode takes one; in f32. */
void ct_dnn_pointwise(ct_dnn_graph *graph, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                      cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y);
void ct_dnn_graph_free(ct_dnn_graph *graph);

cudnnDataType_t ct_dnn_type(ct_dtype dtype); /* of floats */

/* One way to run a graph. The graph has to stay as long as it. */
typedef struct ct_dnn_plan {
    cudnnBackendDescriptor_t config, plan;
    size_t workspace;
    int64_t engine;
    uint64_t knobs;           /* a hash of how the engine is set */
    unsigned notes, behavior; /* of the engine, as in ct_dnn_wish */
} ct_dnn_plan;

/* What is asked of engines. */
typedef struct ct_dnn_wish {
    unsigned refused;  /* bit CUDNN_NUMERICAL_NOTE_: no engine with that note; of NONDETERMINISTIC none ever */
    unsigned behavior; /* bit CUDNN_BEHAVIOR_NOTE_: likewise */
    size_t workspace;  /* bytes at most */
    int most;          /* plans */
    int64_t unwanted;  /* the number of an engine that is not taken; -1: none */
} ct_dnn_wish;

/* Up to wish->most plans in the library's order of preference. Where there are none the graph says why. */
int ct_dnn_plans(ct_dnn_graph *graph, cudnnHandle_t handle, const ct_dnn_wish *wish, ct_dnn_plan *plans);
void ct_dnn_plan_free(ct_dnn_plan *plan);
cudnnStatus_t ct_dnn_run(cudnnHandle_t handle, const ct_dnn_plan *plan, int n, const int64_t *ids,
                         void *const *pointers, void *workspace);
const char *ct_dnn_status(cudnnStatus_t status);
#endif

#endif
