/* The reduction engine: any shape, strides and set of axes, cut into fixed chunks, for whatever a reducer does with
 * one dtype. It knows nothing of sums or maxima. */
#ifndef COTANGENT_OPS_REDUCE_ENGINE_H
#define COTANGENT_OPS_REDUCE_ENGINE_H

#include <cotangent/backend.h>

/* What finish may need besides the accumulators. */
typedef struct ct_reduce_params {
    int64_t count; /* elements that each result has taken */
    double number; /* the op's own: a correction, say */
} ct_reduce_params;

/* One reduction of one dtype. An accumulator is any plain struct; elements are contiguous, steps count elements.
 * `base` is the place of the first element in the reduction, in row-major order, for those that care (ordered). */
typedef struct ct_reducer {
    size_t element, accumulator; /* bytes */
    bool ordered;                /* needs `base`, so the reduced axes keep their order */
    void (*init)(void *acc, int64_t n);
    /* acc[i] takes x[i * step + j] for every j < n */
    void (*rows)(void *acc, const void *x, int64_t rows, int64_t step, int64_t n, int64_t base);
    /* acc[j], j < n, takes x[i * step + j] for every i < rows; n is at most CT_REDUCE_COLUMNS */
    void (*columns)(void *acc, const void *x, int64_t n, int64_t rows, int64_t step, int64_t base);
    void (*merge)(void *acc, const void *other, int64_t n);
    /* results, out[k] + i * step[k]; out[k] is NULL where an output is not wanted */
    void (*finish)(void *const *out, const int64_t *step, const void *acc, int64_t n, const ct_reduce_params *params);
} ct_reducer;

enum {
    CT_REDUCE_COLUMNS = 4096,    /* the widest block of columns */
    CT_REDUCE_STACK = 48 * 1024, /* bytes of accumulators that a chunk keeps on its stack */
};

/* Reduces input 0 over the axes in mask, into outputs 0 and 1. reducer NULL: the dtype is not supported. */
size_t ct__reduce_scratch(const ct_call *call, const ct_reducer *reducer, unsigned mask);
bool ct__reduce_run(const ct_call *call, const ct_reducer *reducer, unsigned mask, double number);

#endif
