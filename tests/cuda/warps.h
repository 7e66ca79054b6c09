// Device code on the host with warps that work together: the threads of a block are coroutines, which go on where they meet, warps by themselves and
// blocks as a whole. Shared memory is full of NaN at the start of a block, copies arrive when they are waited for, and what is not aligned is an error.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <vector>

#define CT_WARPS
#define CT_DYNAMIC_SHARED(name) char *const name = ct_dynamic

enum { CT_DYNAMIC_MOST = 232448, CT_STACK = 64 << 10, CT_BLOCK_MOST = 1024 };
alignas(128) static char ct_dynamic[CT_DYNAMIC_MOST + 128];
static unsigned ct_dynamic_size;

struct ct_place {
    unsigned x, y;
};
static ct_place blockIdx, threadIdx, gridDim, blockDim;

struct ct_copy {
    void *to;
    const void *from;
    int bytes;
};
struct ct_coroutine {
    ucontext_t context;
    std::vector<char> stack;
    std::vector<ct_copy> copies;
    int waits; // 0: for nothing; 1: for its warp; 2: for its block; 3: it is over
};
static ct_coroutine ct_threads[CT_BLOCK_MOST];
static ucontext_t ct_scheduler;
static void (*ct_kernel)(const void *);
static const void *ct_arguments;
static int ct_failures;

static void ct_expect(bool holds, const char *what) {
    if (!holds && ct_failures++ < 10) fprintf(stderr, "block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
}
static void ct_meets(int whom) {
    ct_coroutine *mine = &ct_threads[threadIdx.x];
    mine->waits = whom;
    swapcontext(&mine->context, &ct_scheduler);
}
static void ct_warp_meets() { ct_meets(1); }
static void __syncthreads() { ct_meets(2); }
static uint32_t (*ct_warp_words())[8] {
    static uint32_t words[CT_BLOCK_MOST / 32][32][8];
    return words[threadIdx.x / 32];
}
static const void **ct_warp_pointers() {
    static const void *pointers[CT_BLOCK_MOST / 32][32];
    return pointers[threadIdx.x / 32];
}
static void ct_check_shared(const void *to, int bytes) {
    const char *end = (const char *)to + bytes;
    ct_expect((const char *)to >= ct_dynamic && end <= ct_dynamic + ct_dynamic_size, "outside of shared memory");
}
static void ct_copy_later(void *to, const void *from, int bytes) {
    ct_check_shared(to, bytes);
    ct_threads[threadIdx.x].copies.push_back(ct_copy{to, from, bytes});
}
static void ct_copy_now() {
    std::vector<ct_copy> &copies = ct_threads[threadIdx.x].copies;
    for (const ct_copy &c : copies)
        if (c.from) memcpy(c.to, c.from, c.bytes);
        else memset(c.to, 0, c.bytes);
    copies.clear();
}

static void ct_body() {
    ct_kernel(ct_arguments);
    ct_expect(ct_threads[threadIdx.x].copies.empty(), "it ends before its copies do");
    ct_meets(3);
}

// Whether all threads of a group wait for `whom` or are over; then they go on.
static bool ct_release(unsigned from, unsigned to, int whom) {
    bool any = false;
    for (unsigned t = from; t < to; t++) {
        if (ct_threads[t].waits != whom && ct_threads[t].waits != 3) return false;
        any = any || ct_threads[t].waits == whom;
    }
    for (unsigned t = from; any && t < to; t++)
        if (ct_threads[t].waits == whom) ct_threads[t].waits = 0;
    return any;
}

// The number of things that went wrong.
extern "C" int ct_run_blocks(void (*kernel)(const void *), const void *arguments, unsigned blocks, unsigned threads,
                             unsigned shared) {
    ct_kernel = kernel, ct_arguments = arguments, ct_dynamic_size = shared, ct_failures = 0;
    gridDim.x = blocks, blockDim.x = threads;
    for (unsigned b = 0; b < blocks; b++) {
        memset(ct_dynamic, 0xff, sizeof ct_dynamic);
        blockIdx.x = b;
        for (unsigned t = 0; t < threads; t++) {
            ct_coroutine *c = &ct_threads[t];
            c->stack.resize(CT_STACK), c->copies.clear(), c->waits = 0;
            getcontext(&c->context);
            c->context.uc_stack.ss_sp = c->stack.data(), c->context.uc_stack.ss_size = CT_STACK, c->context.uc_link = nullptr;
            makecontext(&c->context, ct_body, 0);
        }
        for (bool goes = true; goes;) {
            goes = false;
            for (unsigned w = 0; w < threads; w += 32)
                do
                    for (unsigned t = w; t < w + 32; t++)
                        if (!ct_threads[t].waits) threadIdx.x = t, swapcontext(&ct_scheduler, &ct_threads[t].context);
                while (ct_release(w, w + 32, 1));
            goes = ct_release(0, threads, 2);
        }
        for (unsigned t = 0; t < threads; t++) threadIdx.x = t, ct_expect(ct_threads[t].waits == 3, "it waits for ever");
        for (const char *c = ct_dynamic + shared; c < ct_dynamic + sizeof ct_dynamic; c++)
            if ((unsigned char)*c != 0xff) { ct_expect(false, "it wrote behind its shared memory"); break; }
    }
    return ct_failures;
}

#include "tests/cuda/host.h"
