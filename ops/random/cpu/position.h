/* A position in the random stream, kept as a tensor of three integers. */
#ifndef COTANGENT_OPS_RANDOM_POSITION_H
#define COTANGENT_OPS_RANDOM_POSITION_H

#include "backends/cpu/kernel.h"

static inline uint64_t ct__position_part(const ct_view *stream, int64_t i) {
    const int64_t at = i * stream->strides[0];
    return stream->dtype == CT_I64 ? (uint64_t)CT_AT(const int64_t, stream)[at]
                                   : (uint64_t)CT_AT(const int32_t, stream)[at];
}

static inline ct_random ct__position(const ct_view *stream) {
    return (ct_random){ct__position_part(stream, 0), ct__position_part(stream, 1), ct__position_part(stream, 2)};
}

#endif
