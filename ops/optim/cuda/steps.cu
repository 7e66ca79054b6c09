// Steps in which every element goes by itself, each read once and written once. The arithmetic is that of cpu/lanes.h, with the same fused
// multiplications, and so are its bits.
#include "ops/optim/cuda/list.cuh"

enum : unsigned { ALL = ~0u, ALL_BUT_GRADIENT = ~2u };

// a keep + b rest
template <typename C> CT_DEVICE C mix(C a, C b, C keep, C rest) { return ct_fma(b, rest, a * keep); }

// Common to all: their tensors, and the gradient with the decay.
template <typename C, int WIDTH> struct step_of {
    static constexpr int N = WIDTH;
    static constexpr unsigned READS = ALL, WRITES = ALL_BUT_GRADIENT;
    CT_DEVICE static C gradient(const C (&x)[WIDTH], C scale, C decay) { return ct_fma(x[0], decay, x[1] * scale); }
};

// What a step of a kind has besides its arithmetic.
#define KIND(name, COUNT)                                                                  \
    typedef name##_numbers Numbers;                                                        \
    static constexpr int RATES = COUNT;                                                    \
    CT_DEVICE static Numbers of(const void *attrs, optim_inputs *in) {                     \
        return optim_##name##_numbers((const optim_##name##_attrs *)attrs, in);            \
    }

template <int WIDTH> struct sgd {
    KIND(sgd, SGD_RATES)
    template <typename C> struct Does : step_of<C, WIDTH> {
        C scale, lr, keep, take, momentum, decay;
        bool nesterov;
        CT_DEVICE Does(const Numbers &n)
            : scale((C)n.scale), lr((C)n.lr), keep((C)n.keep), take((C)n.take), momentum((C)n.momentum), decay((C)n.decay),
              nesterov(n.nesterov) {}
        CT_DEVICE void operator()(C (&x)[WIDTH]) const {
            C g = this->gradient(x, scale, decay);
            if constexpr (WIDTH > 2) {
                x[2] = mix(x[2], g, keep, take);
                g = nesterov ? ct_fma(x[2], momentum, g) : x[2];
            }
            x[0] = ct_fma(-g, lr, x[0]);
        }
    };
};

template <int WIDTH> struct adam {
    KIND(adam, ADAM_RATES)
    template <typename C> struct Does : step_of<C, WIDTH> {
        C scale, beta1, rest1, beta2, rest2, eps, decay, shrink, look_ahead, moment, root;
        bool plain;
        CT_DEVICE Does(const Numbers &n)
            : scale((C)n.scale), beta1((C)n.beta1), rest1((C)n.rest1), beta2((C)n.beta2), rest2((C)n.rest2), eps((C)n.eps),
              decay((C)n.decay), shrink((C)n.shrink), look_ahead((C)n.gradient), moment((C)n.moment), root((C)n.root),
              plain(n.plain) {}
        CT_DEVICE void operator()(C (&x)[WIDTH]) const {
            const C g = this->gradient(x, scale, decay);
            x[2] = mix(x[2], g, beta1, rest1);
            x[3] = mix(x[3], g * g, beta2, rest2);
            if constexpr (WIDTH > 4) x[4] = ct_max(x[4], x[3]);
            C u = ct_fma(g, look_ahead, x[2] * moment);
            if (!plain) u = u / ct_fma(ct_sqrt(x[WIDTH - 1]), root, eps);
            x[0] = x[0] * shrink - u;
        }
    };
};

template <int WIDTH> struct rmsprop {
    KIND(rmsprop, RMSPROP_RATES)
    template <typename C> struct Does : step_of<C, WIDTH> {
        C scale, lr, alpha, rest, eps, decay, momentum;
        bool centered;
        CT_DEVICE Does(const Numbers &n)
            : scale((C)n.scale), lr((C)n.lr), alpha((C)n.alpha), rest((C)n.rest), eps((C)n.eps), decay((C)n.decay),
              momentum((C)n.momentum), centered(n.centered) {}
        CT_DEVICE void operator()(C (&x)[WIDTH]) const {
            const C g = this->gradient(x, scale, decay);
            C v = x[2] = mix(x[2], g * g, alpha, rest);
            if constexpr (WIDTH > 3) {
                if (centered) {
                    x[3] = mix(x[3], g, alpha, rest);
                    v = ct_fma(-x[3], x[3], v);
                }
            }
            C u = g / (ct_sqrt(v) + eps);
            if (WIDTH > 3 + centered) u = x[WIDTH - 1] = ct_fma(x[WIDTH - 1], momentum, u);
            x[0] = ct_fma(-u, lr, x[0]);
        }
    };
};

struct adagrad {
    KIND(adagrad, ADAGRAD_RATES)
    template <typename C> struct Does : step_of<C, 3> {
        C scale, lr, eps, decay;
        CT_DEVICE Does(const Numbers &n) : scale((C)n.scale), lr((C)n.lr), eps((C)n.eps), decay((C)n.decay) {}
        CT_DEVICE void operator()(C (&x)[3]) const {
            const C g = this->gradient(x, scale, decay);
            x[2] = ct_fma(g, g, x[2]);
            x[0] = x[0] - g * lr / (ct_sqrt(x[2]) + eps);
        }
    };
};

struct adadelta {
    KIND(adadelta, ADADELTA_RATES)
    template <typename C> struct Does : step_of<C, 4> {
        C scale, lr, rho, rest, eps, decay;
        CT_DEVICE Does(const Numbers &n)
            : scale((C)n.scale), lr((C)n.lr), rho((C)n.rho), rest((C)n.rest), eps((C)n.eps), decay((C)n.decay) {}
        CT_DEVICE void operator()(C (&x)[4]) const {
            const C g = this->gradient(x, scale, decay);
            x[2] = mix(x[2], g * g, rho, rest);
            const C u = ct_sqrt(x[3] + eps) / ct_sqrt(x[2] + eps) * g;
            x[3] = mix(x[3], u * u, rho, rest);
            x[0] = ct_fma(-u, lr, x[0]);
        }
    };
};

struct lion {
    KIND(lion, LION_RATES)
    template <typename C> struct Does : step_of<C, 3> {
        C scale, lr, beta1, rest1, beta2, rest2, shrink;
        CT_DEVICE Does(const Numbers &n)
            : scale((C)n.scale), lr((C)n.lr), beta1((C)n.beta1), rest1((C)n.rest1), beta2((C)n.beta2), rest2((C)n.rest2),
              shrink((C)n.shrink) {}
        CT_DEVICE void operator()(C (&x)[3]) const {
            const C g = x[1] * scale, c = mix(x[2], g, beta1, rest1);
            x[0] = ct_fma(-(c == 0 ? (C)0 : ct_sign(c)), lr, x[0] * shrink);
            x[2] = mix(x[2], g, beta2, rest2);
        }
    };
};

template <typename C, typename L, typename S> CT_DEVICE void each(const ct_cuda_optim &a) {
    __shared__ typename S::Numbers numbers;
    ct_put_count(a);
    if (!ct_step_numbers<S>(a, numbers)) return;
    typename S::template Does<C> does(numbers);
    for (uint32_t c = blockIdx.x; c < a.chunks; c += gridDim.x) L::chunk(a, ct_chunk_at(a, c), does);
}

CT_OPTIM_KERNELS(sgd_2, each, 2, sgd<2>)
CT_OPTIM_KERNELS(sgd_3, each, 2, sgd<3>)
CT_OPTIM_KERNELS(adam_4, each, 2, adam<4>)
CT_OPTIM_KERNELS(adam_5, each, 2, adam<5>)
CT_OPTIM_KERNELS(rmsprop_3, each, 2, rmsprop<3>)
CT_OPTIM_KERNELS(rmsprop_4, each, 2, rmsprop<4>)
CT_OPTIM_KERNELS(rmsprop_5, each, 2, rmsprop<5>)
CT_OPTIM_KERNELS(adagrad_3, each, 2, adagrad)
CT_OPTIM_KERNELS(adadelta_4, each, 2, adadelta)
CT_OPTIM_KERNELS(lion_3, each, 2, lion)

// ---- Moving averages ----

// From the one that counts more, by half the difference: see cpu/lanes.h.
template <typename C> struct averaging {
    static constexpr int N = 2;
    static constexpr unsigned READS = ALL, WRITES = 1;
    C by;
    bool older, copied; // older: it counts more
    CT_DEVICE averaging(double keep, double rest)
        : by((C)(2 * (keep >= 0.5 ? rest : keep))), older(keep >= 0.5), copied(keep == 0) {}
    CT_DEVICE void operator()(C (&x)[2]) const {
        if (copied) {
            x[0] = x[1];
            return;
        }
        const C heavy = older ? x[0] : x[1], light = older ? x[1] : x[0];
        x[0] = ct_fma(-ct_fma(heavy, (C)0.5, light * (C)-0.5), by, heavy);
    }
};

template <typename C, typename L, typename> CT_DEVICE void average_all(const ct_cuda_optim &a) {
    if (ct_does_nothing(a.head)) return;
    ct_put_count(a);
    averaging<C> does(ct_vector_at(a.rates, 0), ct_vector_at(a.rates, 1));
    for (uint32_t c = blockIdx.x; c < a.chunks; c += gridDim.x) L::chunk(a, ct_chunk_at(a, c), does);
}
CT_OPTIM_KERNELS(average_2, average_all, 2, void)
