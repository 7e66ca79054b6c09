// Words of the random stream at a position that lies in memory: element i is word i.
#include "ops/random/cuda/words.h"

#include "backends/cuda/nest.cuh"
#include "ops/random/cuda/philox.cuh"

extern "C" __global__ void random_words(const __grid_constant__ ct_cuda_words a) {
    if (ct_does_nothing(a.head)) return;
    const ct_position position = {(uint64_t)ct_index_at(a.position, a.wide, 0),
                                  (uint64_t)ct_index_at(a.position, a.wide, a.position_stride),
                                  (uint64_t)ct_index_at(a.position, a.wide, 2 * a.position_stride)};
    const int64_t blocks = (a.nest.total + 3) / 4, step = ct_step();
    for (int64_t b = ct_first(); b < blocks; b += step) {
        uint32_t words[4];
        ct_philox(position, (uint64_t)b, words);
        if (a.dense && 4 * b + 4 <= a.nest.total) {
            longlong2 *to = (longlong2 *)(a.to + 4 * b);
            to[0] = make_longlong2(words[0], words[1]);
            to[1] = make_longlong2(words[2], words[3]);
            continue;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int64_t at[1];
            if (4 * b + k >= a.nest.total) break;
            ct_nest_place(a.nest, 4 * b + k, at);
            a.to[at[0]] = words[k];
        }
    }
}
