/* Products of small blocks inside another kernel, on the engine's register tiles: no plan, no scratch, no threads. For kernels
 * that keep blocks in cache between products (attention, recurrence). */
#ifndef CT_BACKENDS_CPU_GEMM_BLOCK_H
#define CT_BACKENDS_CPU_GEMM_BLOCK_H

#include "backends/cpu/gemm/plan.h"

/* Spans of memory that are wanted soon, `bytes` each, `stride` bytes apart. */
typedef struct ct__spans {
    const char *at;
    int64_t count, stride, bytes;
} ct__spans;

/* Prefetches them, into the second cache. Always inlined: compilers take a function that only prefetches for one
 * without effect and drop its calls. */
static inline __attribute__((always_inline)) void ct__prefetch_now(const ct__spans *p) {
    const char *at = p->at;
    for (int64_t i = 0; i < p->count; i++, at += p->stride)
        for (int64_t b = 0; b < p->bytes; b += 64) __builtin_prefetch(at + b, 0, 2);
}

/* The same by the tile while it sums, in even steps, or at once where it cannot. */
static inline __attribute__((always_inline)) void ct__prefetch_by(const ct__spans *p, const ct__kernel *kernel,
                                                                  ct__tile *t) {
    const bool prefetches = kernel->prefetches && t->cols == ct__panel_width(kernel);
    const int64_t each = prefetches && p->count > 0 ? (t->k - CT__PREFETCHES_LESS) / p->count : 0;
    t->ahead = NULL;
    if (p->count <= 0 || p->bytes <= 0) return;
    if (each < ct__ceil_div(p->bytes, 64)) {
        ct__prefetch_now(p);
        return;
    }
    t->ahead = p->at;
    t->ahead_step = ct__ceil_div(p->bytes, each);
    t->ahead_span = each;
    t->ahead_jump = p->stride - each * t->ahead_step;
}

/* C (m,n) (+)= A (m,k) B (k,n). A by its two strides; B as rows (panel: bytes of a panel's width) or as the panels
 * of pack_b (panel: bytes of a whole one). C has unit stride. All in bytes, of the kernel's own type; k in its
 * groups. With runs, the sum of as many products, each of k groups. A kernel in matrix registers takes what
 * ct__kernel.block says, between its enter and leave. */
typedef struct ct__block {
    const char *a;
    int64_t a_row, a_step;
    const char *b;
    int64_t b_step, panel;
    char *c;
    int64_t c_row;
    int64_t m, n, k;
    const ct__run *runs;
    int64_t n_runs;
    bool accumulate, far_c; /* far_c: C is not in cache */
    const ct__spans *ahead; /* lists of what is wanted after the product, one for each panel (NULL: nothing) */
    int64_t lists;          /* those that find no panel are prefetched at once */
} ct__block;

void ct__block_multiply(const ct__kernel *kernel, const ct__block *p);

/* Room in a scratch block, a cache line each. */
static inline size_t ct__room(int64_t bytes) { return ((size_t)bytes + 63) / 64 * 64; }
static inline char *ct__claim(char **at, int64_t bytes) {
    char *p = *at;
    *at += ct__room(bytes);
    return p;
}

/* Scratch that is to stay in the second cache lies on a huge page: small pages fall on its sets at random, some on the same. */
static inline size_t ct__near_scratch(size_t bytes) {
    return bytes > (256u << 10) && bytes < (2u << 20) ? (size_t)2 << 20 : bytes;
}

#endif
