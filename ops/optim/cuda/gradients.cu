// Lists of gradients: their norm, and their products with a number that lies on the device. Each block leaves what it found, and the last
// one to come makes the result of all of it, in the order of the blocks.
#include "ops/optim/cuda/list.cuh"

// ---- Products ----

template <typename C, bool WRITTEN> struct scaling {
    static constexpr int N = 1;
    static constexpr unsigned READS = 1, WRITES = WRITTEN;
    C by;
    int bad; // a result is not finite
    CT_DEVICE scaling(double factor) : by((C)factor), bad(0) {}
    CT_DEVICE void operator()(C (&x)[1]) {
        x[0] = x[0] * by;
        bad |= !ct_isfinite(x[0]);
    }
};

template <typename L, typename D> CT_DEVICE void over_chunks(const ct_cuda_optim &a, D &does) {
    for (uint32_t c = blockIdx.x; c < a.chunks; c += gridDim.x) L::chunk(a, ct_chunk_at(a, c), does);
}

template <typename C, typename L, typename> CT_DEVICE void clip(const ct_cuda_optim &a) {
    if (ct_does_nothing(a.head)) return;
    ct_put_count(a);
    const double most = ((const optim_clip_attrs *)a.attrs.bytes)->max_norm;
    const double factor = isinf(most) ? 1 : most / (ct_vector_at(a.rates, 0) + 1e-6); // no limit: nothing is larger
    if (factor >= 1) return; // NaN goes on
    scaling<C, true> does(factor);
    over_chunks<L>(a, does);
}

template <typename C, typename L, typename> CT_DEVICE void unscale(const ct_cuda_optim &a) {
    const bool late = ((const optim_unscale_attrs *)a.attrs.bytes)->late, nothing = ct_does_nothing(a.head);
    const double factor = 1 / ct_vector_at(a.rates, 0);
    int bad = 0;
    if (nothing) {
    } else if (late) {
        scaling<C, false> does(1);
        over_chunks<L>(a, does);
        bad = does.bad;
    } else {
        scaling<C, true> does(factor);
        over_chunks<L>(a, does);
        bad = does.bad;
    }
    const int any = __syncthreads_or(bad);
    if (threadIdx.x == 0) a.sums[a.before + blockIdx.x] = any ? 1 : 0;
    if (!a.last || !ct_is_last_block(a)) return;
    const double all = ct_sum_of<ct_added>(a.sums, (int64_t)a.before + gridDim.x, 1);
    if (threadIdx.x || nothing || !a.out.at) return;
    ct_vector_put(a.out, 0, late ? factor : 1);
    ct_vector_put(a.out, 1, all == 0 ? 1 : 0);
}

// ---- Norms ----

struct norm_of_any {
    static constexpr int N = 1;
    static constexpr unsigned READS = 1, WRITES = 0;
    double sum;
};
struct squares : norm_of_any {
    template <typename C> CT_DEVICE void operator()(C (&x)[1]) { sum = fma((double)x[0], (double)x[0], sum); }
};
struct magnitudes : norm_of_any {
    template <typename C> CT_DEVICE void operator()(C (&x)[1]) { sum = ct_largest::join(sum, fabs((double)x[0])); }
};
struct powers : norm_of_any {
    double kind;
    template <typename C> CT_DEVICE void operator()(C (&x)[1]) { sum += pow(fabs((double)x[0]), kind); }
};

template <typename L, typename J, typename D> CT_DEVICE void norm_by(const ct_cuda_optim &a, D &does, double kind) {
    does.sum = 0;
    over_chunks<L>(a, does);
    const double mine = ct_block_sum<J>(does.sum);
    if (threadIdx.x == 0) a.sums[a.before + blockIdx.x] = mine;
    if (!a.last || !ct_is_last_block(a)) return;
    const double all = ct_sum_of<J>(a.sums, (int64_t)a.before + gridDim.x, 1);
    if (threadIdx.x == 0) ct_vector_put(a.out, 0, isinf(kind) ? all : kind == 2 ? sqrt(all) : pow(all, 1 / kind));
}

template <typename C, typename L, typename> CT_DEVICE void norm(const ct_cuda_optim &a) {
    const double kind = ((const optim_norm_attrs *)a.attrs.bytes)->kind;
    if (kind == 2) {
        squares does;
        norm_by<L, ct_added>(a, does, kind);
    } else if (isinf(kind)) {
        magnitudes does;
        norm_by<L, ct_largest>(a, does, kind);
    } else {
        powers does;
        does.kind = kind;
        norm_by<L, ct_added>(a, does, kind);
    }
}

CT_OPTIM_KERNELS(clip_1, clip, 1, void)
CT_OPTIM_KERNELS(unscale_1, unscale, 1, void)
CT_OPTIM_KERNELS(norm_1, norm, 1, void)

// ---- What a loss scaler keeps: single numbers ----

CT_DEVICE void rescale_numbers(const ct_cuda_optim &a) {
    if (ct_does_nothing(a.head)) return;
    double scale = ct_vector_at(a.rates, 0), good = ct_vector_at(a.clock, 0);
    const optim_rescale_attrs *attrs = (const optim_rescale_attrs *)a.attrs.bytes;
    optim_rescale(attrs, optim_most((ct_dtype)a.rates.dtype), ct_vector_at(a.gate, 0), &scale, &good);
    ct_vector_put(a.rates, 0, scale);
    ct_vector_put(a.clock, 0, good);
    ct_put_count(a);
}

CT_DEVICE void count_left_out(const ct_cuda_optim &a) {
    if (ct_does_nothing(a.head)) return;
    if (ct_vector_at(a.gate, 1) == 0) ct_vector_put(a.clock, 0, ct_vector_at(a.clock, 0) + 1);
    ct_put_count(a);
}

CT_OPTIM_KERNEL(rescale, ct_cuda_optim_few, rescale_numbers)
CT_OPTIM_KERNEL(left_out, ct_cuda_optim_few, count_left_out)
