/* What the kernels that take an index tensor share: the loop over its elements in row-major order, and the error that
 * an index out of range raises. Included by kernel files. */
#ifndef COTANGENT_OPS_INDEX_WALK_H
#define COTANGENT_OPS_INDEX_WALK_H

#include "backends/cpu/kernel.h"

/* Elements by size. Views may lie at any element's address, so no vector alignment is assumed. */
typedef uint8_t unit8;
typedef uint16_t unit16 __attribute__((may_alias));
typedef uint32_t unit32 __attribute__((may_alias));
typedef uint64_t unit64 __attribute__((may_alias));

/* Raises the error for the element at `position` (row-major) of index, an input of the call, which is not below bound. */
static inline bool index_fail(const ct_call *call, const ct_view *index, int64_t position, int64_t value,
                              int64_t bound) {
    int argument = 0;
    while (call->in[argument] != index) argument++;
    return ct__wrong_index(call, argument, position, value, bound);
}

static inline int64_t index_value(const ct_view *index, const void *address, int64_t i) {
    return index->dtype == CT_I32 ? ((const int32_t *)address)[i] : ((const int64_t *)address)[i];
}

#endif
