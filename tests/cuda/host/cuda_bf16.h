// CUDA's bf16 on the host, as far as device code uses it.
#pragma once

#include "tests/cuda/host.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
static unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
static __nv_bfloat16 __float2bfloat16_rn(float x) { // to nearest, ties to even
    const uint32_t bits = __float_as_uint(x);
    if (x != x) return __nv_bfloat16{0x7fff};
    return __nv_bfloat16{(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
