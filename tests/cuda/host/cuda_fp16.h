// CUDA's f16 on the host, as far as device code uses it.
#pragma once

struct __half {
    _Float16 value;
};
static float __half2float(__half x) { return (float)x.value; }
static __half __float2half_rn(float x) { return __half{(_Float16)x}; }
