// Conversion between dtypes: one function for each dtype that is read. The one that is written is a branch which all threads take alike,
// once for four elements.
#include "ops/cast/cuda/cast.h"

#include "backends/cuda/convert.cuh"
#include "backends/cuda/nest.cuh"

enum { PACK = 4 };

template <typename T> struct alignas(sizeof(T) * PACK < 16 ? sizeof(T) * PACK : 16) pack {
    T v[PACK];
};

// complex64 is true where either part is not zero; all else follows from the real part.
template <int FROM, int TO> CT_DEVICE typename ct_of_dtype<TO>::type convert(typename ct_of_dtype<FROM>::type x) {
    if constexpr (FROM == CT_COMPLEX64 && TO == CT_BOOL) return (uint8_t)(x.x != 0 || x.y != 0);
    else if constexpr (FROM == TO) return x;
    else return ct_of_dtype<TO>::store(ct_of_dtype<FROM>::load(x));
}

template <int FROM> CT_DEVICE void convert_all(const ct_cuda_convert &a) {
    typedef typename ct_of_dtype<FROM>::type S;
    if (ct_does_nothing(a.head)) return;
    const int64_t first = ct_first(), step = ct_step(), packs = a.packs ? a.nest.total / PACK : 0;
    for (int64_t p = first; p < packs; p += step) {
        const pack<S> in = ((const pack<S> *)a.from)[p];
        ct_by_dtype(a.dtype, [&](auto tag) {
            constexpr int TO = decltype(tag)::value;
            pack<typename ct_of_dtype<TO>::type> out;
#pragma unroll
            for (int k = 0; k < PACK; k++) out.v[k] = convert<FROM, TO>(in.v[k]);
            ((pack<typename ct_of_dtype<TO>::type> *)a.to)[p] = out;
        });
    }
    for (int64_t e = packs * PACK + first; e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        const S x = ((const S *)a.from)[at[1]];
        ct_by_dtype(a.dtype, [&](auto tag) {
            constexpr int TO = decltype(tag)::value;
            ((typename ct_of_dtype<TO>::type *)a.to)[at[0]] = convert<FROM, TO>(x);
        });
    }
}

#define CONVERT(name, dtype) \
    extern "C" __global__ void convert_##name(const __grid_constant__ ct_cuda_convert a) { convert_all<dtype>(a); }
CONVERT(f32, CT_F32)
CONVERT(f64, CT_F64)
CONVERT(f16, CT_F16)
CONVERT(bf16, CT_BF16)
CONVERT(i8, CT_I8)
CONVERT(i16, CT_I16)
CONVERT(i32, CT_I32)
CONVERT(i64, CT_I64)
CONVERT(u8, CT_U8)
CONVERT(u16, CT_U16)
CONVERT(u32, CT_U32)
CONVERT(u64, CT_U64)
CONVERT(f8e4m3, CT_F8E4M3)
CONVERT(f8e5m2, CT_F8E5M2)
CONVERT(complex64, CT_COMPLEX64)
