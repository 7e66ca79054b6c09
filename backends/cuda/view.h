/* What kernels are given, as plain data that C and CUDA C both read. Every kernel takes one struct by value, whose first member is a
 * ct_cuda_head. */
#ifndef COTANGENT_BACKENDS_CUDA_VIEW_H
#define COTANGENT_BACKENDS_CUDA_VIEW_H

#include <stdint.h>

enum { CT_CUDA_DIMS = 8 };

/* A strided operand: the address of its first element, sizes, and strides in elements. */
typedef struct ct_cuda_view {
    char *data;
    int32_t dtype; /* a ct_dtype */
    int32_t ndim;
    int64_t dims[CT_CUDA_DIMS];
    int64_t strides[CT_CUDA_DIMS];
} ct_cuda_view;

/* The error word of a device: the first value that a kernel found wrong. Words are set by one thread, which has won `taken`. */
typedef struct ct_cuda_word {
    uint32_t taken;
    uint32_t set;        /* the rest is there */
    uint64_t op, called; /* addresses of the host's, which only the host uses */
    uint64_t what;
    uint32_t flags;
    int32_t code, argument, is_real;
    int64_t position, value, low, high;
    double real_value, real_low, real_high;
} ct_cuda_word;

/* What every kernel gets. */
typedef struct ct_cuda_head {
    ct_cuda_word *word;
    uint32_t *noticed; /* in the host's memory: some word is set */
    uint64_t op, called;
    uint32_t flags;   /* of the call */
    uint32_t lasting; /* do nothing while the word is set */
} ct_cuda_head;

#endif
