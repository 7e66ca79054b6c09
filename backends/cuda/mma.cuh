// Tensor Cores and what feeds them: products of halves, and of f32 in TF32, with sums in f32, matrices of 8 x 8 halves from shared memory, and copies
// into shared memory that do not wait. A warp works together; lane l has row l / 4 and columns 2 (l % 4) and the next of such a matrix.
#pragma once

#include "backends/cuda/words.cuh"

// d += a b: a is 16 x 16 (rows l / 4 and l / 4 + 8 at columns 0 to 7, then at 8 to 15), b 16 x 8 as its transpose, d rows l / 4 and
// l / 4 + 8.
template <typename S> CT_DEVICE void ct_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <> CT_DEVICE void ct_mma<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> CT_DEVICE void ct_mma<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d += a b of f32 in TF32, which has 10 bits of mantissa: a is 16 x 8 (rows l / 4 and l / 4 + 8 at column l % 4, then at l % 4 + 4), b 8 x 8
// (column l / 4 at rows l % 4 and l % 4 + 4).
CT_DEVICE void ct_mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounded to TF32, to the nearest; the products by themselves cut off.
CT_DEVICE uint32_t ct_tf32(float x) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

// Four matrices; lane l gives the address of row l % 8 of matrix l / 8.
CT_DEVICE void ct_load_matrices(uint32_t (&r)[4], const void *row) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
CT_DEVICE void ct_load_matrices_transposed(uint32_t (&r)[4], const void *row) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// N bytes (4, 8 or 16) from global to shared memory, or as many zeros; ct_async_wait ends what this thread has begun.
template <int N> CT_DEVICE void ct_async_copy(void *to, const void *from, bool there) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if (N == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(N), "r"(there ? N : 0)
                     : "memory");
}
CT_DEVICE void ct_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Copies in groups: what this thread has begun since the last end becomes one, and all but its N latest are waited for.
CT_DEVICE void ct_async_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> CT_DEVICE void ct_async_wait_but() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// A pair of halves as numbers.
template <typename S> CT_DEVICE float2 ct_unpair(uint32_t pair);
template <> CT_DEVICE float2 ct_unpair<__half>(uint32_t pair) {
    const __half_raw low = {(unsigned short)pair}, high = {(unsigned short)(pair >> 16)};
    return make_float2(__half2float(__half(low)), __half2float(__half(high)));
}
template <> CT_DEVICE float2 ct_unpair<__nv_bfloat16>(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
// Two numbers as halves, the first in the low bits.
template <typename S> CT_DEVICE uint32_t ct_pair(float low, float high);
template <> CT_DEVICE uint32_t ct_pair<__half>(float low, float high) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
template <> CT_DEVICE uint32_t ct_pair<__nv_bfloat16>(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
