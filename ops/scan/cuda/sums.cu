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
    typedef S In;
    typedef typename carried<S>::Out Out;
    typedef typename carried<S>::State State;
    enum { RECURS = 0, PLACES = 0 };
    CT_DEVICE static State of(S x, S, int64_t) { return (State)ct_number_of(x); }
    CT_DEVICE static Out out(State state) { return ct_stored<Out>(state); }
    CT_DEVICE static int64_t place(State) { return 0; }
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
    typedef S In;
    typedef S Out;
    enum { RECURS = 1, PLACES = 0 };
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
    CT_DEVICE static State of(S x, S third, int64_t) {
        return state((double)ct_number_of(x), (double)ct_number_of(third));
    }
    CT_DEVICE static S out(const State &s) { return ct_stored<S>(s.more); }
    CT_DEVICE static int64_t place(const State &) { return 0; }
};

CT_SCAN_OF_FLOATS(cumsum, sums)
CT_SCAN_OF_INTEGERS(cumsum, sums)
CT_SCAN_OF_FLOATS(cumprod, products)
CT_SCAN_OF_INTEGERS(cumprod, products)
CT_SCAN_OF_FLOATS(linear_scan, recurrence)
