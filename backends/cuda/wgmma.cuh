// Products by warpgroups (four warps, compute capability 9.0): 64 rows of A, 16 of each warp, in registers as ct_mma has them, times B in shared
// memory, with sums in f32 that lie as those of ct_mma do. They run beside the warps: between ct_wgmma_begin and the ct_wgmma_wait that ends them
// nobody may touch the sums, A or B.
//
// A tile of B is rows of 64 halves, 128 bytes, from a multiple of 1024 bytes on; the eight parts of 16 bytes of row r are stored in the order
// part ^ (r % 8), so that eight rows never meet in the banks. What is stored by threads has to be shown to the products by ct_wgmma_show before
// a barrier.
#pragma once

#include "backends/cuda/words.cuh"

// Where column c of row r is in a tile.
CT_DEVICE int ct_wgmma_place(int r, int c) { return r * 64 + ((c / 8 ^ r % 8) * 8 | c % 8); }

CT_DEVICE void ct_wgmma_show() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
CT_DEVICE void ct_wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
CT_DEVICE void ct_wgmma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most N of the groups that ct_wgmma_end has closed are running.
template <int N> CT_DEVICE void ct_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Sums and operands that products are running on look like ordinary variables to the compiler. It has to be told before ct_wgmma_begin and after
// ct_wgmma_wait that they are used there, or it computes with them too early or too late.
template <int N> CT_DEVICE void ct_wgmma_hold(float (&x)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])::"memory");
}
template <int N> CT_DEVICE void ct_wgmma_hold(uint32_t (&x)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+r"(x[n][0]), "+r"(x[n][1]), "+r"(x[n][2]), "+r"(x[n][3])::"memory");
}

// Describes the rows from `at` on: the address, 1024 bytes from eight rows to the next eight, rows of 128 bytes in the order above.
CT_DEVICE uint64_t ct_wgmma_tile(const void *at) {
    const uint64_t address = (uint64_t)__cvta_generic_to_shared(at);
    return (address & 0x3ffff) >> 4 | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
// From 16 columns to the next, and from 16 rows to the next, in descriptions.
enum { CT_WGMMA_COLUMNS = 32 >> 4, CT_WGMMA_ROWS = 2048 >> 4 };

#define CT_SUMS4(how, d) how((d)[0]), how((d)[1]), how((d)[2]), how((d)[3])
#define CT_SUMS16(how, d, n) \
    CT_SUMS4(how, d[n]), CT_SUMS4(how, d[n + 1]), CT_SUMS4(how, d[n + 2]), CT_SUMS4(how, d[n + 3])
#define CT_SUMS_MADE(x) "=f"(x)
#define CT_SUMS_MORE(x) "+f"(x)
// One product of 16 in k. BY_ROWS: b's rows are those that the sums' columns stand for, k runs along them; else rows are k. begin makes the
// sums, add adds to them.
template <typename S, bool BY_ROWS> struct ct_wgmma;
#define CT_WGMMA_32(name, how, type, scale, transposed)                                          \
    CT_DEVICE static void name(float(&d)[4][4], const uint32_t(&a)[4], uint64_t b) {             \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " scale ", 0;\n"                             \
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                 \
                     " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,"                                      \
                     "%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, " transposed ";}\n" \
                     : CT_SUMS16(how, d, 0)                                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                        \
                     : "memory");                                                                \
    }
#define CT_WGMMA_64(name, how, type, scale, transposed)                                                       \
    CT_DEVICE static void name(float(&d)[8][4], const uint32_t(&a)[4], uint64_t b) {                          \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " scale ", 0;\n"                                          \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                              \
                     " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,"                                                   \
                     "%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, " \
                     "{%32,%33,%34,%35}, %36, p, 1, 1, " transposed ";}\n"                                    \
                     : CT_SUMS16(how, d, 0), CT_SUMS16(how, d, 4)                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                     \
                     : "memory");                                                                             \
    }
// The same with A in shared memory, 64 rows of a tile with k along them.
#define CT_WGMMA_TILES(name, how, type, scale, transposed)                            \
    CT_DEVICE static void name(float(&d)[4][4], uint64_t a, uint64_t b) {             \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " scale ", 0;\n"                  \
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type      \
                     " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,"                           \
                     "%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, " transposed ";}\n" \
                     : CT_SUMS16(how, d, 0)                                           \
                     : "l"(a), "l"(b)                                                 \
                     : "memory");                                                     \
    }
#define CT_WGMMA(S, type, BY_ROWS, transposed)                     \
    template <> struct ct_wgmma<S, BY_ROWS> {                      \
        CT_WGMMA_32(begin, CT_SUMS_MADE, type, "0", transposed)    \
        CT_WGMMA_32(add, CT_SUMS_MORE, type, "1", transposed)      \
        CT_WGMMA_64(begin, CT_SUMS_MADE, type, "0", transposed)    \
        CT_WGMMA_64(add, CT_SUMS_MORE, type, "1", transposed)      \
        CT_WGMMA_TILES(begin, CT_SUMS_MADE, type, "0", transposed) \
        CT_WGMMA_TILES(add, CT_SUMS_MORE, type, "1", transposed)   \
    };
CT_WGMMA(__half, "f16", true, "0")
CT_WGMMA(__half, "f16", false, "1")
CT_WGMMA(__nv_bfloat16, "bf16", true, "0")
CT_WGMMA(__nv_bfloat16, "bf16", false, "1")
