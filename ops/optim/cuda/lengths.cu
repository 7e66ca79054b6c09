// LAMB and LARS, in two launches: the first leaves the sums of squares of each chunk, the second makes each item's lengths of those of its
// chunks, always in the same order.
#include "ops/optim/cuda/list.cuh"

template <typename C> CT_DEVICE void add_square(double &sum, C x) { sum = fma((double)x, (double)x, sum); }

// Parts of an item: the first pass of D, with sums, and the second, given the item's factor.
struct lamb {
    typedef lamb_numbers Numbers;
    static constexpr int RATES = LAMB_RATES;
    CT_DEVICE static Numbers of(const void *attrs, optim_inputs *in) {
        return optim_lamb_numbers((const optim_lamb_attrs *)attrs, in);
    }
    CT_DEVICE static double ratio(const Numbers &n, double weight, double direction) {
        return optim_lamb_ratio(&n, weight, direction);
    }
    template <typename C> struct Common {
        C scale, beta1, rest1, beta2, rest2, eps, decay, moment, root;
        CT_DEVICE Common(const Numbers &n)
            : scale((C)n.scale), beta1((C)n.beta1), rest1((C)n.rest1), beta2((C)n.beta2), rest2((C)n.rest2), eps((C)n.eps),
              decay((C)n.decay), moment((C)n.moment), root((C)n.root) {}
        CT_DEVICE C direction(const C (&x)[4]) const {
            return ct_fma(x[0], decay, x[2] * moment / ct_fma(ct_sqrt(x[3]), root, eps));
        }
    };
    template <typename C> struct First : Common<C> {
        static constexpr int N = 4;
        static constexpr unsigned READS = 15, WRITES = 12;
        double sums[2];
        CT_DEVICE First(const Numbers &n) : Common<C>(n) {}
        CT_DEVICE void operator()(C (&x)[4]) {
            const C g = x[1] * this->scale;
            x[2] = ct_fma(g, this->rest1, x[2] * this->beta1);
            x[3] = ct_fma(g * g, this->rest2, x[3] * this->beta2);
            add_square(sums[0], x[0]);
            add_square(sums[1], this->direction(x));
        }
    };
    template <typename C> struct Second : Common<C> {
        static constexpr int N = 4;
        static constexpr unsigned READS = 13, WRITES = 1;
        C rate;
        CT_DEVICE Second(const Numbers &n) : Common<C>(n) {}
        CT_DEVICE void factor(const Numbers &n, double factor) { rate = (C)(n.lr * factor); }
        CT_DEVICE void operator()(C (&x)[4]) const { x[0] = ct_fma(-this->direction(x), rate, x[0]); }
    };
};

struct lars {
    typedef lars_numbers Numbers;
    static constexpr int RATES = LARS_RATES;
    CT_DEVICE static Numbers of(const void *attrs, optim_inputs *in) {
        return optim_lars_numbers((const optim_lars_attrs *)attrs, in);
    }
    CT_DEVICE static double ratio(const Numbers &n, double weight, double gradient) {
        return optim_lars_ratio(&n, weight, gradient);
    }
    template <typename C> struct First {
        static constexpr int N = 3;
        static constexpr unsigned READS = 3, WRITES = 0;
        double sums[2];
        CT_DEVICE First(const Numbers &) {}
        CT_DEVICE void operator()(C (&x)[3]) {
            add_square(sums[0], x[0]);
            add_square(sums[1], x[1]);
        }
    };
    template <typename C> struct Second {
        static constexpr int N = 3;
        static constexpr unsigned READS = 7, WRITES = 5;
        C scale, decay, momentum, rate;
        bool nesterov;
        CT_DEVICE Second(const Numbers &n)
            : scale((C)n.scale), decay((C)n.decay), momentum((C)n.momentum), nesterov(n.nesterov) {}
        CT_DEVICE void factor(const Numbers &n, double factor) { rate = (C)(n.lr * factor); }
        CT_DEVICE void operator()(C (&x)[3]) const {
            const C u = ct_fma(x[0], decay, x[1] * scale) * rate;
            x[2] = ct_fma(x[2], momentum, u);
            x[0] = x[0] - (nesterov ? ct_fma(x[2], momentum, u) : x[2]);
        }
    };
};

template <typename C, typename L, typename S> CT_DEVICE void first_pass(const ct_cuda_optim &a) {
    __shared__ typename S::Numbers numbers;
    if (!ct_step_numbers<S>(a, numbers)) return;
    typename S::template First<C> does(numbers);
    for (uint32_t c = blockIdx.x; c < a.chunks; c += gridDim.x) {
        does.sums[0] = does.sums[1] = 0;
        L::chunk(a, ct_chunk_at(a, c), does);
        const double first = ct_block_sum<ct_added>(does.sums[0]), second = ct_block_sum<ct_added>(does.sums[1]);
        double *to = a.sums + 2 * ((int64_t)a.before + c);
        if (threadIdx.x == 0) to[0] = first, to[1] = second;
    }
}

template <typename C, typename L, typename S> CT_DEVICE void second_pass(const ct_cuda_optim &a) {
    __shared__ typename S::Numbers numbers;
    ct_put_count(a);
    if (!ct_step_numbers<S>(a, numbers)) return;
    typename S::template Second<C> does(numbers);
    int item = -1;
    for (uint32_t c = blockIdx.x; c < a.chunks; c += gridDim.x) {
        const ct_part chunk = ct_chunk_at(a, c);
        if (chunk.item != item) {
            item = chunk.item;
            const uint32_t from = ct_first_chunk(a, item), n = ct_first_chunk(a, item + 1) - from;
            const double *sums = a.sums + 2 * ((int64_t)a.before + from);
            const double weight = sqrt(ct_sum_of<ct_added>(sums, n, 2)), other = sqrt(ct_sum_of<ct_added>(sums + 1, n, 2));
            does.factor(numbers, S::ratio(numbers, weight, other));
        }
        L::chunk(a, chunk, does);
    }
}

CT_OPTIM_KERNELS(lamb_first, first_pass, 2, lamb)
CT_OPTIM_KERNELS(lamb_second, second_pass, 2, lamb)
CT_OPTIM_KERNELS(lars_first, first_pass, 2, lars)
CT_OPTIM_KERNELS(lars_second, second_pass, 2, lars)
