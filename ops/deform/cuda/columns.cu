// Device code of deform_columns and its gradients. A thread finds the four pixels around the place of one tap, once for several channels. The
// gradient of x is summed by atomics in fixed point, relative to the largest exponent of its plane, so that the order does not matter: in
// shared memory where a plane fits, else in words of 64 bits. Where a plane's gradient is not finite, all of the plane is NaN.
#include "ops/deform/cuda/columns.h"

#include "backends/cuda/exact.cuh"
#include "backends/cuda/lanes.cuh"
#include "backends/cuda/thread.cuh"

// A place between four pixels: where they are, -1 outside of x, and how much each counts.
template <typename T> struct place {
    int at[4];
    T weight[4], down, right, mask;
};

template <typename T> CT_DEVICE place<T> find(const ct_cuda_deform &a, int image, int group, int tap, int pixel) {
    const int taps = a.kernel_h * a.kernel_w, pixels = a.out_h * a.out_w, oy = pixel / a.out_w, ox = pixel - oy * a.out_w;
    const int ky = tap / a.kernel_w, kx = tap - ky * a.kernel_w;
    const int64_t row = ((int64_t)image * a.offset_groups + group) * taps + tap;
    const T *offset = (const T *)a.offset + 2 * row * pixels + pixel;
    const T y = offset[0] + (T)(oy * a.stride_y - a.pad_y + ky * a.dilation_y);
    const T x = offset[pixels] + (T)(ox * a.stride_x - a.pad_x + kx * a.dilation_x);
    place<T> p;
    p.mask = a.mask ? ((const T *)a.mask)[row * pixels + pixel] : (T)1;
    const bool near = y >= -1 && y < (T)a.height && x >= -1 && x < (T)a.width; // a NaN is nowhere
    const int low_y = near ? (int)floor(y) : -2, low_x = near ? (int)floor(x) : -2;
    p.down = near ? y - (T)low_y : (T)0;
    p.right = near ? x - (T)low_x : (T)0;
    const bool top = low_y >= 0, bottom = near && low_y + 1 < a.height, left = low_x >= 0, right = near && low_x + 1 < a.width;
    const int corner = low_y * a.width + low_x;
    p.at[0] = top && left ? corner : -1, p.weight[0] = (1 - p.down) * (1 - p.right);
    p.at[1] = top && right ? corner + 1 : -1, p.weight[1] = (1 - p.down) * p.right;
    p.at[2] = bottom && left ? corner + a.width : -1, p.weight[2] = p.down * (1 - p.right);
    p.at[3] = bottom && right ? corner + a.width + 1 : -1, p.weight[3] = p.down * p.right;
    return p;
}

// Places along x of the grid, taps and runs of channels along y.
template <typename T, typename F> CT_DEVICE void each_place(const ct_cuda_deform &a, F take) {
    const int taps = a.kernel_h * a.kernel_w, pixels = a.out_h * a.out_w, each = a.channels / a.offset_groups;
    const int64_t at = ct_first();
    if (at >= (int64_t)a.batch * pixels) return;
    const int image = (int)(at / pixels), pixel = (int)(at - (int64_t)image * pixels);
    const int tap = (int)blockIdx.y % taps, first = (int)blockIdx.y / taps * CT_DEFORM_CHANNELS;
    const int end = min(first + CT_DEFORM_CHANNELS, a.channels);
    place<T> p;
    int group = -1;
    for (int channel = first; channel < end; channel++) {
        if (channel / each != group) {
            group = channel / each;
            p = find<T>(a, image, group, tap, pixel);
        }
        const int64_t plane = (int64_t)image * a.channels + channel;
        take(p, plane, (plane * taps + tap) * pixels + pixel);
    }
}

template <typename T> CT_DEVICE void columns(const ct_cuda_deform &a) {
    if (ct_does_nothing(a.head)) return;
    each_place<T>(a, [&](const place<T> &p, int64_t plane, int64_t column) {
        const T *x = (const T *)a.x + plane * a.height * a.width;
        T sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (p.at[i] >= 0) sum = ct_fma(p.weight[i], x[p.at[i]], sum);
        ((T *)a.columns)[column] = sum * p.mask;
    });
}

// ---- Gradients of offset and mask: a thread for each place of a tap in a group ----

template <typename T> CT_DEVICE void offset_grad(const ct_cuda_deform &a) {
    if (ct_does_nothing(a.head)) return;
    const int taps = a.kernel_h * a.kernel_w, pixels = a.out_h * a.out_w, each = a.channels / a.offset_groups;
    const int64_t at = ct_first();
    if (at >= (int64_t)a.batch * pixels) return;
    const int image = (int)(at / pixels), pixel = (int)(at - (int64_t)image * pixels);
    const int tap = (int)blockIdx.y % taps, group = (int)blockIdx.y / taps;
    const place<T> p = find<T>(a, image, group, tap, pixel);
    T whole = 0, down = 0, right = 0;
    for (int c = 0; c < each; c++) {
        const int64_t plane = (int64_t)image * a.channels + group * each + c;
        const T *x = (const T *)a.x + plane * a.height * a.width;
        const T g = ((const T *)a.columns)[(plane * taps + tap) * pixels + pixel];
        T v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = p.at[i] >= 0 ? x[p.at[i]] : (T)0;
        const T above = ct_fma(p.right, v[1] - v[0], v[0]), below = ct_fma(p.right, v[3] - v[2], v[2]);
        const T beside = ct_fma(p.down, (v[3] - v[2]) - (v[1] - v[0]), v[1] - v[0]);
        whole = ct_fma(g, ct_fma(p.down, below - above, above), whole);
        down = ct_fma(g, below - above, down);
        right = ct_fma(g, beside, right);
    }
    const int64_t row = ((int64_t)image * a.offset_groups + group) * taps + tap;
    if (a.doffset) {
        T *to = (T *)a.doffset + 2 * row * pixels + pixel;
        to[0] = down * p.mask;
        to[pixels] = right * p.mask;
    }
    if (a.dmask) ((T *)a.dmask)[row * pixels + pixel] = whole;
}

// ---- The gradient of x ----

// The largest exponent of a plane's gradient, in every thread of the plane's block.
template <typename T> CT_DEVICE uint32_t largest_exponent(const ct_cuda_deform &a, int64_t image, int64_t group, int64_t plane) {
    const int64_t n = (int64_t)a.kernel_h * a.kernel_w * a.out_h * a.out_w;
    const T *g = (const T *)a.columns + plane * n, *mask = a.mask ? (const T *)a.mask + (image * a.offset_groups + group) * n : NULL;
    uint32_t most = 0;
    for (int64_t i = threadIdx.x; i < n; i += CT_DEFORM_THREADS) {
        const uint32_t e = ct_exact<T>::exponent(mask ? g[i] * mask[i] : g[i]);
        most = max(most, e); // a flag is more than any exponent
    }
    return ct_merge_group(most, CT_DEFORM_THREADS, [](uint32_t p, uint32_t q) { return max(p, q); });
}

// A plane in shared memory: q = x 2^shift, of CT_DEFORM_LIMBS times a.bits bits, whose limbs are summed apart.
CT_DEVICE void plane_grad(const ct_cuda_deform &a) {
    extern __shared__ int32_t limbs[];
    if (ct_does_nothing(a.head)) return;
    const int places = a.height * a.width, pixels = a.out_h * a.out_w, taps = a.kernel_h * a.kernel_w, bits = a.bits;
    const int64_t plane = blockIdx.x;
    const int image = (int)(plane / a.channels), group = (int)(plane - (int64_t)image * a.channels) / (a.channels / a.offset_groups);
    for (int i = (int)threadIdx.x; i < CT_DEFORM_LIMBS * places; i += CT_DEFORM_THREADS) limbs[i] = 0;
    const uint32_t exponent = largest_exponent<float>(a, image, group, plane);
    __syncthreads();
    const int shift = CT_DEFORM_LIMBS * bits + 126 - (int)exponent;
    float *dx = (float *)a.dx + plane * places;
    if (exponent & CT_NOT_FINITE) {
        for (int i = (int)threadIdx.x; i < places; i += CT_DEFORM_THREADS) dx[i] = NAN;
        return;
    }
    const double scale = ct_exact<float>::power(shift);
    const float *columns = (const float *)a.columns + plane * taps * pixels;
    for (int tap = 0; tap < taps; tap++)
        for (int pixel = (int)threadIdx.x; pixel < pixels; pixel += CT_DEFORM_THREADS) {
            const place<float> p = find<float>(a, image, group, tap, pixel);
            const float g = columns[tap * pixels + pixel] * p.mask;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (p.at[i] < 0) continue;
                const int64_t q = __double2ll_rn((double)(g * p.weight[i]) * scale);
                const int32_t low = (int32_t)(q & ((1 << bits) - 1)), middle = (int32_t)(q >> bits & ((1 << bits) - 1));
                const int32_t high = (int32_t)(q >> 2 * bits);
                if (low) atomicAdd(&limbs[p.at[i]], low);
                if (middle) atomicAdd(&limbs[places + p.at[i]], middle);
                if (high) atomicAdd(&limbs[2 * places + p.at[i]], high);
            }
        }
    __syncthreads();
    const double back = ct_exact<float>::power(-shift);
    for (int i = (int)threadIdx.x; i < places; i += CT_DEFORM_THREADS) {
        const int64_t sum = ((int64_t)limbs[2 * places + i] << 2 * bits) + ((int64_t)limbs[places + i] << bits) + limbs[i];
        dx[i] = (float)((double)sum * back);
    }
}
extern "C" __global__ void __launch_bounds__(CT_DEFORM_THREADS) deform_plane_grad_f32(const __grid_constant__ ct_cuda_deform a) {
    plane_grad(a);
}

template <typename T> CT_DEVICE void plane_exponent(const ct_cuda_deform &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t plane = blockIdx.x, image = plane / a.channels, group = (plane - image * a.channels) / (a.channels / a.offset_groups);
    const uint32_t most = largest_exponent<T>(a, image, group, plane);
    if (threadIdx.x == 0) a.exponents[plane] = most;
    const int64_t places = (int64_t)a.height * a.width, all = (int64_t)a.batch * a.channels * places;
    for (int l = 0; l < ct_exact<T>::LIMBS; l++)
        for (int64_t i = threadIdx.x; i < places; i += CT_DEFORM_THREADS) ((uint64_t *)a.sums)[l * all + plane * places + i] = 0;
}

template <typename T> CT_DEVICE void input_sums(const ct_cuda_deform &a) {
    typedef ct_exact<T> exact;
    if (ct_does_nothing(a.head)) return;
    const int64_t places = (int64_t)a.height * a.width, all = (int64_t)a.batch * a.channels * places;
    each_place<T>(a, [&](const place<T> &p, int64_t plane, int64_t column) {
        const uint32_t exponent = a.exponents[plane];
        const T g = ((const T *)a.columns)[column] * p.mask;
        if (g == 0 || exponent & CT_NOT_FINITE) return;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (p.at[i] < 0) continue;
            int64_t limbs[exact::LIMBS];
            exact::split(g * p.weight[i], exponent, a.growth, limbs);
#pragma unroll
            for (int l = 0; l < exact::LIMBS; l++)
                atomicAdd((unsigned long long *)a.sums + l * all + plane * places + p.at[i], (unsigned long long)limbs[l]);
        }
    });
}

template <typename T> CT_DEVICE void input_grad(const ct_cuda_deform &a) {
    typedef ct_exact<T> exact;
    if (ct_does_nothing(a.head)) return;
    const int64_t places = (int64_t)a.height * a.width, all = (int64_t)a.batch * a.channels * places;
    for (int64_t at = ct_first(); at < all; at += ct_step()) {
        const uint32_t exponent = a.exponents[at / places];
        int64_t limbs[exact::LIMBS];
#pragma unroll
        for (int l = 0; l < exact::LIMBS; l++) limbs[l] = ((const int64_t *)a.sums)[l * all + at];
        ((T *)a.dx)[at] = exponent & CT_NOT_FINITE ? (T)NAN : exact::join(limbs, exponent, a.growth);
    }
}

#define KERNEL(name, suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(CT_DEFORM_THREADS) deform_##name##_##suffix(const __grid_constant__ ct_cuda_deform a) { \
        name<T>(a);                                                                                                          \
    }
#define DTYPE(suffix, T)             \
    KERNEL(columns, suffix, T)       \
    KERNEL(offset_grad, suffix, T)   \
    KERNEL(plane_exponent, suffix, T) \
    KERNEL(input_sums, suffix, T)    \
    KERNEL(input_grad, suffix, T)
DTYPE(f32, float)
DTYPE(f64, double)
