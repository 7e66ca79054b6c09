// Device code of sort: bitonic sorts of tiles (Batcher, 1968), and merges that are cut into tiles along the path of the merge (Odeh, Green
// and Birk, 2012).
#include "backends/cuda/nest.cuh"
#include "ops/sort/cuda/sort.h"

#include <cotangent.h>

// ---- Items ----

// Keys of up to 32 bits in the upper half of a word, places in the lower.
struct ct_narrow_item {
    uint64_t word;
    CT_DEVICE static ct_narrow_item of(uint64_t key, int64_t place) {
        ct_narrow_item item;
        item.word = key << 32 | (uint32_t)place;
        return item;
    }
    CT_DEVICE static ct_narrow_item last() { return of(UINT32_MAX, UINT32_MAX); }
    CT_DEVICE bool operator<(const ct_narrow_item &b) const { return word < b.word; }
    CT_DEVICE int64_t place() const { return (int64_t)(uint32_t)word; }
};

// Keys of 64 bits, and lines of 2^32 elements and more.
struct alignas(16) ct_wide_item {
    uint64_t key, at;
    CT_DEVICE static ct_wide_item of(uint64_t key, int64_t place) {
        ct_wide_item item;
        item.key = key;
        item.at = (uint64_t)place;
        return item;
    }
    CT_DEVICE static ct_wide_item last() { return of(UINT64_MAX, -1); }
    CT_DEVICE bool operator<(const ct_wide_item &b) const { return key < b.key || (key == b.key && at < b.at); }
    CT_DEVICE int64_t place() const { return (int64_t)at; }
};

// Floats order as their bits do once negative ones are complemented and positive ones get the sign bit. NaN is the greatest, -0 equals 0.
template <typename U> CT_DEVICE U ct_float_key(U bits, U infinite) {
    const U sign = (U)((U)1 << (8 * sizeof(U) - 1)), size = (U)(bits & (U)~sign);
    if (size > infinite) return (U) ~(U)0;
    if (size == 0) return sign;
    return bits & sign ? (U)~bits : (U)(bits | sign);
}
CT_DEVICE uint64_t ct_sort_key(const ct_cuda_sort &a, int64_t offset) {
    uint64_t key, all;
    switch (a.dtype) {
    case CT_F32: key = ct_float_key<uint32_t>(((const uint32_t *)a.x)[offset], 0x7f800000u), all = UINT32_MAX; break;
    case CT_F64:
        key = ct_float_key<uint64_t>(((const uint64_t *)a.x)[offset], 0x7ff0000000000000ull), all = UINT64_MAX;
        break;
    case CT_F16: key = ct_float_key<uint16_t>(((const uint16_t *)a.x)[offset], 0x7c00), all = UINT16_MAX; break;
    case CT_BF16: key = ct_float_key<uint16_t>(((const uint16_t *)a.x)[offset], 0x7f80), all = UINT16_MAX; break;
    case CT_I8: key = ((const uint8_t *)a.x)[offset] ^ 0x80u, all = UINT8_MAX; break;
    case CT_I16: key = ((const uint16_t *)a.x)[offset] ^ 0x8000u, all = UINT16_MAX; break;
    case CT_I32: key = ((const uint32_t *)a.x)[offset] ^ 0x80000000u, all = UINT32_MAX; break;
    case CT_I64: key = ((const uint64_t *)a.x)[offset] ^ 0x8000000000000000ull, all = UINT64_MAX; break;
    default: key = ((const uint8_t *)a.x)[offset], all = UINT8_MAX; break; // u8 and bool
    }
    return a.descending ? key ^ all : key;
}

// The element from `place` goes to place `i` of its line.
CT_DEVICE void ct_put_sorted(const ct_cuda_sort &a, int64_t line, int64_t i, int64_t place) {
    if (a.values) {
        const int64_t from = ct_offset(a.lines, 0, line) + place * a.x_step;
        const int64_t to = ct_offset(a.lines, 1, line) + i * a.values_step;
        switch (a.size) {
        case 1: ((uint8_t *)a.values)[to] = ((const uint8_t *)a.x)[from]; break;
        case 2: ((uint16_t *)a.values)[to] = ((const uint16_t *)a.x)[from]; break;
        case 4: ((uint32_t *)a.values)[to] = ((const uint32_t *)a.x)[from]; break;
        default: ((uint64_t *)a.values)[to] = ((const uint64_t *)a.x)[from]; break;
        }
    }
    if (a.indices) ((int64_t *)a.indices)[ct_offset(a.lines, 2, line) + i * a.indices_step] = place;
}

// ---- Tiles ----

// As many tiles side by side as fit, each a line or a part of one.
template <typename Item> CT_DEVICE void ct_sort_tiles(const ct_cuda_sort &a) {
    if (ct_does_nothing(a.head)) return;
    __shared__ Item items[CT_SORT_TILE];
    const int room = a.room, side = CT_SORT_TILE / room;
    const int64_t jobs = a.line_count * a.tiles;
    for (int64_t first = (int64_t)blockIdx.x * side; first < jobs; first += (int64_t)gridDim.x * side) {
        for (int i = threadIdx.x; i < CT_SORT_TILE; i += CT_SORT_THREADS) {
            const int64_t job = first + i / room, line = a.tiles == 1 ? job : job / a.tiles;
            const int64_t at = (job - line * a.tiles) * room + (i & (room - 1));
            const bool there = job < jobs && at < a.n;
            items[i] = there ? Item::of(ct_sort_key(a, ct_offset(a.lines, 0, a.first_line + line) + at * a.x_step), at)
                             : Item::last();
        }
        __syncthreads();
        for (int run = 2; run <= room; run *= 2)
            for (int distance = run / 2; distance; distance /= 2) {
                for (int t = threadIdx.x; t < CT_SORT_TILE / 2; t += CT_SORT_THREADS) {
                    const int i = 2 * t - (t & (distance - 1));
                    const bool ascending = (i & (room - 1) & run) == 0;
                    const Item low = items[i], high = items[i + distance];
                    if ((high < low) == ascending) items[i] = high, items[i + distance] = low;
                }
                __syncthreads();
            }
        for (int i = threadIdx.x; i < CT_SORT_TILE; i += CT_SORT_THREADS) {
            const int64_t job = first + i / room, line = a.tiles == 1 ? job : job / a.tiles;
            const int64_t at = (job - line * a.tiles) * room + (i & (room - 1));
            if (job >= jobs || at >= a.n) continue;
            if (a.last) ct_put_sorted(a, a.first_line + line, at, items[i].place());
            else ((Item *)a.to)[line * a.n + at] = items[i];
        }
        __syncthreads();
    }
}

// ---- Merges ----

// How many of the first `count` items of a merge come from the first of its two runs.
template <typename Item>
CT_DEVICE int64_t ct_merge_split(const Item *one, int64_t n, const Item *two, int64_t m, int64_t count) {
    int64_t low = count > m ? count - m : 0, high = count < n ? count : n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (one[middle] < two[count - 1 - middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

template <typename Item> CT_DEVICE void ct_sort_merge(const ct_cuda_sort &a) {
    if (ct_does_nothing(a.head)) return;
    __shared__ Item items[CT_SORT_TILE];
    __shared__ int64_t splits[2];
    const int64_t jobs = a.line_count * a.tiles;
    for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64_t line = job / a.tiles, start = (job - line * a.tiles) * CT_SORT_TILE,
                      end = min(start + CT_SORT_TILE, a.n);
        const int64_t pair = start / (2 * a.run) * (2 * a.run), n = min(a.run, a.n - pair),
                      m = min(a.run, a.n - pair - n);
        const Item *one = (const Item *)a.from + line * a.n + pair, *two = one + n;
        if (threadIdx.x % 32 == 0 && threadIdx.x < 64)
            splits[threadIdx.x / 32] = ct_merge_split(one, n, two, m, (threadIdx.x == 0 ? start : end) - pair);
        __syncthreads();
        const int64_t from_one = splits[0], from_two = start - pair - from_one;
        const int count = (int)(end - start), ones = (int)(splits[1] - from_one), twos = count - ones;
        for (int i = threadIdx.x; i < count; i += CT_SORT_THREADS)
            items[i] = i < ones ? one[from_one + i] : two[from_two + i - ones];
        __syncthreads();
        Item merged[CT_SORT_EACH];
        const int first = min((int)threadIdx.x * CT_SORT_EACH, count);
        int i = (int)ct_merge_split(items, ones, items + ones, twos, first), j = first - i;
#pragma unroll
        for (int k = 0; k < CT_SORT_EACH; k++) {
            if (first + k >= count) break;
            const bool takes_one = j >= twos || (i < ones && items[i] < items[ones + j]);
            merged[k] = items[takes_one ? i : ones + j];
            i += takes_one;
            j += !takes_one;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < CT_SORT_EACH; k++)
            if (first + k < count) items[first + k] = merged[k];
        __syncthreads();
        for (int k = threadIdx.x; k < count; k += CT_SORT_THREADS) {
            if (a.last) ct_put_sorted(a, a.first_line + line, start + k, items[k].place());
            else ((Item *)a.to)[line * a.n + start + k] = items[k];
        }
        __syncthreads();
    }
}

#define CT_SORT_KERNEL(name, function, Item)                                                                     \
    extern "C" __global__ void __launch_bounds__(CT_SORT_THREADS) name(const __grid_constant__ ct_cuda_sort a) { \
        function<Item>(a);                                                                                       \
    }
CT_SORT_KERNEL(sort_tiles_narrow, ct_sort_tiles, ct_narrow_item)
CT_SORT_KERNEL(sort_tiles_wide, ct_sort_tiles, ct_wide_item)
CT_SORT_KERNEL(sort_merge_narrow, ct_sort_merge, ct_narrow_item)
CT_SORT_KERNEL(sort_merge_wide, ct_sort_merge, ct_wide_item)
