// Device code of cumsum, cumprod and linear_scan. Floats are carried in double.
#include "ops/scan/cuda/scan.cuh"

template <typename S> struct carried {
    typedef int64_t Out;
    typedef uint64_t State; // integers wrap
};
template <> struct carried<float> {
    typedef float Out;
    typedef double State;
};
template <> struct carried<double> {
    typedef double Out;
    typedef double State;
};
template <> struct carried<__half> {
    typedef __half Out;
    typedef double State;
};
template <> struct carried<__nv_bfloat16> {
    typedef __nv_bfloat16 Out;
    typedef double State;
};

template <typename S> struct ct_plain_scan {
    typedef typename carried<S>::State State;
    CT_DEVICE static State of(const ct_cuda_scan &a, const ct_scan_line &line, int64_t i) {
        return (State)ct_number_of(((const S *)a.at[0])[line.x + i * line.x_step]);
    }
    CT_DEVICE static void put(const ct_cuda_scan &a, const ct_scan_line &line, int64_t i, State state) {
        typedef typename carried<S>::Out Out;
        ((Out *)a.at[1])[line.y + i * line.y_step] = ct_stored<Out>(state);
    }
};

template <typename S> struct sums : ct_plain_scan<S> {
    typedef typename carried<S>::State State;
    CT_DEVICE static State none() { return 0; }
    CT_DEVICE static State step(State a, State b) { return a + b; }
    CT_DEVICE static State join(State a, State b) { return a + b; }
};

// A product that is zero stays so, whether or not a later piece of its own overflows.
CT_DEVICE double ct_join_products(double a, double b) { return a == 0 && isinf(b) ? 0 : a * b; }
CT_DEVICE uint64_t ct_join_products(uint64_t a, uint64_t b) { return a * b; }
template <typename S> struct products : ct_plain_scan<S> {
    typedef typename carried<S>::State State;
    CT_DEVICE static State none() { return 1; }
    CT_DEVICE static State step(State a, State b) { return a * b; }
    CT_DEVICE static State join(State a, State b) { return ct_join_products(a, b); }
};

// y = factor * y + more is what a piece does to what comes into it.
template <typename S> struct recurrence {
    struct State {
        double factor, more;
    };
    CT_DEVICE static State state(double factor, double more) {
        State s;
        s.factor = factor;
        s.more = more;
        return s;
    }
    CT_DEVICE static State none() { return state(1, 0); }
    CT_DEVICE static State step(const State &a, const State &b) {
        return state(a.factor * b.factor, b.factor * a.more + b.more);
    }
    CT_DEVICE static State join(const State &a, const State &b) {
        return a.more == 0 && isinf(b.factor) ? state(a.factor * b.factor, b.more) : step(a, b);
    }
    CT_DEVICE static State of(const ct_cuda_scan &a, const ct_scan_line &line, int64_t i) {
        return state((double)ct_number_of(((const S *)a.at[0])[line.x + i * line.x_step]),
                     (double)ct_number_of(((const S *)a.at[2])[line.third + i * line.third_step]));
    }
    CT_DEVICE static void put(const ct_cuda_scan &a, const ct_scan_line &line, int64_t i, const State &s) {
        ((S *)a.at[1])[line.y + i * line.y_step] = ct_stored<S>(s.more);
    }
};

CT_SCAN_OF_FLOATS(cumsum, sums)
CT_SCAN_OF_INTEGERS(cumsum, sums)
CT_SCAN_OF_FLOATS(cumprod, products)
CT_SCAN_OF_INTEGERS(cumprod, products)
CT_SCAN_OF_FLOATS(linear_scan, recurrence)
