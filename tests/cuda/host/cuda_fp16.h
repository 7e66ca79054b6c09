// CUDA's f16 on the host, as far as device code uses it.
#pragma once

struct __half {
    _Float16 value;
};
static __half __ushort_as_half(unsigned short x) {
    __half y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
static unsigned short __half_as_ushort(__half x) {
    unsigned short y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
static float __half2float(__half x) { return (float)x.value; }
static __half __float2half_rn(float x) { return __half{(_Float16)x}; }
