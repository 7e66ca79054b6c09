// Values that a kernel finds wrong: the first is noted in the device's error word, which the next wait of the host raises. The texts are
// the host's (ct_fail_value), so an error reads as the CPU's does.
#pragma once

#include <cotangent.h>

#include "backends/cuda/view.h"

// `wrong` has code, argument, what, position, the value and its bounds; the rest is taken from the head. Who wins `taken` fills
// the word; `set` and then `noticed` follow only when all of it is there for the host to see.
static __device__ __noinline__ void ct_wrong(const ct_cuda_head &head, ct_cuda_word wrong) {
    if (atomicCAS(&head.word->taken, 0u, 1u) != 0) return;
    ct_cuda_word *word = head.word;
    word->op = head.op;
    word->called = head.called;
    word->flags = head.flags;
    word->what = wrong.what;
    word->code = wrong.code;
    word->argument = wrong.argument;
    word->is_real = wrong.is_real;
    word->position = wrong.position;
    word->value = wrong.value;
    word->low = wrong.low;
    word->high = wrong.high;
    word->real_value = wrong.real_value;
    word->real_low = wrong.real_low;
    word->real_high = wrong.real_high;
    __threadfence_system();
    *(volatile uint32_t *)&word->set = 1;
    __threadfence_system();
    *(volatile uint32_t *)head.noticed = 1;
}

// Element `position` (in row-major order) of input `argument` is no index below count; a negative count is no upper bound.
static __device__ __noinline__ void ct_wrong_index(const ct_cuda_head &head, int argument, int64_t position,
                                                   int64_t value, int64_t count) {
    ct_cuda_word wrong = {};
    wrong.code = CT_ERR_INDEX;
    wrong.argument = argument;
    wrong.position = position;
    wrong.value = value;
    wrong.high = count < 0 ? INT64_MAX : count - 1;
    ct_wrong(head, wrong);
}

// An integer, or a number made of the argument's elements, that does not lie in low to high. `what` is an address of the host's
// (of a text that lives as long as the module); 0: an element.
static __device__ __noinline__ void ct_wrong_count(const ct_cuda_head &head, int argument, uint64_t what,
                                                   int64_t position, int64_t value, int64_t low, int64_t high) {
    ct_cuda_word wrong = {};
    wrong.code = CT_ERR_VALUE;
    wrong.argument = argument;
    wrong.what = what;
    wrong.position = position;
    wrong.value = value;
    wrong.low = low;
    wrong.high = high;
    ct_wrong(head, wrong);
}

// The same of a real number.
static __device__ __noinline__ void ct_wrong_value(const ct_cuda_head &head, int argument, uint64_t what,
                                                   int64_t position, double value, double low, double high) {
    ct_cuda_word wrong = {};
    wrong.code = CT_ERR_VALUE;
    wrong.argument = argument;
    wrong.what = what;
    wrong.is_real = 1;
    wrong.position = position;
    wrong.real_value = value;
    wrong.real_low = low;
    wrong.real_high = high;
    ct_wrong(head, wrong);
}
