// Device code on the host with warps that work together: the threads of a block are coroutines, which go on where they meet, warps by themselves and
// blocks as a whole. Shared memory is full of NaN at the start of a block, copies arrive when they are waited for, and what is not aligned is an error.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <map>
#include <utility>
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

// Bank conflicts. Lanes of a warp that access shared memory at one place of the code (a line, and the array) for the same time since they last met
// do so at once: in one transaction with 4 bytes each, in two with 8, in four with 16, if no two different words of it are in one bank.
#define CT_SHARED_ACCESS(array, at, bytes) ct_record(__LINE__, array, at, bytes)
struct ct_access {
    uintptr_t at[32];
    int bytes;
};
typedef std::pair<std::pair<int, const void *>, int> ct_access_key;
static std::map<ct_access_key, ct_access> ct_accesses[CT_BLOCK_MOST / 32];
static std::map<std::pair<int, const void *>, int> ct_times[CT_BLOCK_MOST];
struct ct_count {
    long transactions, conflicts;
};
static std::map<int, ct_count> ct_banks; // of a line
static bool ct_counts_banks;

static void ct_record(int line, const void *array, const void *at, int bytes) {
    if (!ct_counts_banks) return;
    const std::pair<int, const void *> place(line, array);
    ct_access &a = ct_accesses[threadIdx.x / 32][ct_access_key(place, ct_times[threadIdx.x][place]++)];
    a.at[threadIdx.x % 32] = (uintptr_t)at, a.bytes = bytes;
}
static void ct_count_banks(unsigned warp) {
    for (const auto &one : ct_accesses[warp]) {
        const ct_access &a = one.second;
        ct_count &count = ct_banks[one.first.first.first];
        const int lanes = 32 / (a.bytes / 4);
        for (int lane = 0; lane < 32; lane += lanes) {
            std::vector<uintptr_t> words[32]; // of each bank
            size_t most = 0;
            for (int l = lane; l < lane + lanes; l++)
                for (uintptr_t w = a.at[l] / 4; a.at[l] && w < (a.at[l] + a.bytes) / 4; w++) {
                    std::vector<uintptr_t> &bank = words[w % 32];
                    bool known = false;
                    for (uintptr_t other : bank) known = known || other == w;
                    if (!known) bank.push_back(w);
                    if (bank.size() > most) most = bank.size();
                }
            if (most) count.transactions += most, count.conflicts += most - 1;
        }
    }
    ct_accesses[warp].clear();
    for (unsigned t = warp * 32; t < warp * 32 + 32; t++) ct_times[t].clear();
}
// From now on; what there was since the last time.
extern "C" void ct_watch_banks(bool on, bool report, long *transactions, long *conflicts) {
    *transactions = *conflicts = 0;
    for (const auto &line : ct_banks) {
        *transactions += line.second.transactions, *conflicts += line.second.conflicts;
        if (report)
            fprintf(stderr, "line %d: %ld transactions, %ld conflicts\n", line.first, line.second.transactions,
                    line.second.conflicts);
    }
    ct_banks.clear(), ct_counts_banks = on;
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
    for (unsigned w = from / 32; ct_counts_banks && any && w < to / 32; w++) ct_count_banks(w);
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
            c->context.uc_stack.ss_sp = c->stack.data(), c->context.uc_stack.ss_size = CT_STACK,
            c->context.uc_link = nullptr;
            makecontext(&c->context, ct_body, 0);
        }
        for (bool goes = true; goes;) {
            goes = false;
            for (unsigned w = 0; w < threads; w += 32) do
                    for (unsigned t = w; t < w + 32; t++)
                        if (!ct_threads[t].waits) threadIdx.x = t, swapcontext(&ct_scheduler, &ct_threads[t].context);
                while (ct_release(w, w + 32, 1));
            goes = ct_release(0, threads, 2);
        }
        for (unsigned t = 0; t < threads; t++)
            threadIdx.x = t, ct_expect(ct_threads[t].waits == 3, "it waits for ever");
        for (unsigned w = 0; ct_counts_banks && w < threads / 32; w++) ct_count_banks(w);
        for (const char *c = ct_dynamic + shared; c < ct_dynamic + sizeof ct_dynamic; c++)
            if ((unsigned char)*c != 0xff) {
                ct_expect(false, "it wrote behind its shared memory");
                break;
            }
    }
    return ct_failures;
}

#include "tests/cuda/host.h"
