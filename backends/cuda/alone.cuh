// What device code includes of the toolkit's headers, for texts that are compiled while a program runs, where those headers need not be
// installed: integers, limits, and half types with the conversions of cuda_fp16.h and cuda_bf16.h, whose bits these have.
#ifndef CT_CUDA_ALONE
#define CT_CUDA_ALONE

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;

#define INT8_MIN   (-128)
#define INT8_MAX   127
#define UINT8_MAX  255
#define INT16_MIN  (-32768)
#define INT16_MAX  32767
#define UINT16_MAX 65535
#define INT32_MIN  (-2147483647 - 1)
#define INT32_MAX  2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN  (-9223372036854775807ll - 1)
#define INT64_MAX  9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
#define FLT_MAX    0x1.fffffep127f
#define DBL_MAX    0x1.fffffffffffffp1023
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

struct __half {
    unsigned short bits;
};
struct __nv_bfloat16 {
    unsigned short bits;
};

__device__ __forceinline__ __half __ushort_as_half(unsigned short x) {
    __half y;
    y.bits = x;
    return y;
}
__device__ __forceinline__ unsigned short __half_as_ushort(__half x) { return x.bits; }
__device__ __forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }

__device__ __forceinline__ float __half2float(__half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ __half __float2half_rn(float x) {
    __half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
__device__ __forceinline__ float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
__device__ __forceinline__ __nv_bfloat16 __float2bfloat16_rn(float x) {
    __nv_bfloat16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

#endif
