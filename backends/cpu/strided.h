/* Elements of strided operands in and out of dense buffers: what the driver of elementwise kernels and that of fused calls share. */
#ifndef COTANGENT_BACKENDS_CPU_STRIDED_H
#define COTANGENT_BACKENDS_CPU_STRIDED_H

#include <cotangent/backend.h>

/* An operand that is walked over dimensions that its user has; strides are in elements. */
typedef struct ct_strided {
    char *base;
    int64_t strides[CT_MAX_DIMS];
    int size; /* of an element in memory, bytes: 1, 2, 4 or 8 */
} ct_strided;

static inline char *ct__strided_address(int ndim, const ct_strided *o, const int64_t *index) {
    int64_t offset = 0;
    for (int d = 0; d < ndim; d++) offset += index[d] * o->strides[d];
    return o->base + offset * o->size;
}

static inline void ct__strided_advance(int ndim, const int64_t *dims, int64_t *index, int64_t n) {
    index[ndim - 1] += n;
    for (int d = ndim - 1; d > 0 && index[d] >= dims[d]; d--) {
        index[d - 1] += index[d] / dims[d];
        index[d] %= dims[d];
    }
}

/* Where element `at` is, in row-major order. */
static inline void ct__strided_index(int ndim, const int64_t *dims, int64_t at, int64_t *index) {
    for (int d = ndim - 1; d >= 0; d--) {
        index[d] = at % dims[d];
        at /= dims[d];
    }
}

/* n elements from index on, in row-major order, into a dense buffer; or back. Whole rows go together. */
void ct__strided_move(int ndim, const int64_t *dims, const ct_strided *o, const int64_t *index, int64_t n, char *buffer,
                      bool out);
/* Copies rows x n elements between two strided places; *_outer and *_inner are strides of rows and elements. */
void ct__copy_box(int size, void *to, const void *from, int64_t rows, int64_t n, int64_t to_outer, int64_t to_inner,
                  int64_t from_outer, int64_t from_inner);
/* One value over a whole vector (CT_ELEMENTWISE_SPLAT bytes). */
void ct__splat(char *to, const char *value, int size);

#endif
