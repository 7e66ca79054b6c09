/* What the kernels that take an index tensor share: the loop over its elements in row-major order, and the error that
 * an index out of range raises. Included by kernel files. */
#ifndef COTANGENT_OPS_INDEX_WALK_H
#define COTANGENT_OPS_INDEX_WALK_H

#include <stdio.h>

#include "backends/cpu/kernel.h"

/* Elements by size. Views may lie at any element's address, so no vector alignment is assumed. */
typedef uint8_t unit8;
typedef uint16_t unit16 __attribute__((may_alias));
typedef uint32_t unit32 __attribute__((may_alias));
typedef uint64_t unit64 __attribute__((may_alias));

/* Raises the error for the element at `position` (row-major) of the index tensor `name`, an index of x along axis (x
 * NULL: of an x that is not at hand). Always false. */
static inline bool index_fail(const char *op, const char *name, const ct_view *index, int64_t position, int64_t value,
                              const ct_view *x, int axis, int64_t bound) {
    char place[8 * 21 + 2] = "";
    size_t used = 0;
    int64_t at[CT_MAX_DIMS];
    for (int d = index->ndim - 1; d >= 0; d--) {
        at[d] = position % index->dims[d];
        position /= index->dims[d];
    }
    for (int d = 0; d < index->ndim; d++)
        used += (size_t)snprintf(place + used, sizeof place - used, "%s%lld", d ? "," : "", (long long)at[d]);
    const char *of = x ? ct_view_text(x) : "x";
    if (bound == 0)
        return ct_fail(CT_ERR_INDEX, op, "%s[%s] is %lld, but axis %d of %s has no elements", name, place,
                       (long long)value, axis, of);
    return ct_fail(CT_ERR_INDEX, op, "%s[%s] is %lld, out of range for axis %d of %s: 0 to %lld", name, place,
                   (long long)value, axis, of, (long long)bound - 1);
}

static inline int64_t index_value(const ct_view *index, const void *address, int64_t i) {
    return index->dtype == CT_I32 ? ((const int32_t *)address)[i] : ((const int64_t *)address)[i];
}

#endif
