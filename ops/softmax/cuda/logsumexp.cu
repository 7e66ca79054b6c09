// Device code of logsumexp: a reduction whose accumulator is the greatest element so far and the sum of exp(x -
// greatest); of infinite ones exp(x) itself is summed, so that they come out as they are.
#include "backends/cuda/level.cuh"
#include "ops/reduce/cuda/reduce.cuh"

template <typename S> struct sum_of_exponentials {
    typedef S In;
    typedef S Out;
    typedef typename ct_number<S>::type N;
    typedef ct_level<N> Short, Sum;
    enum { V = 16 / sizeof(S) < 8 ? 16 / sizeof(S) : 8 };
    CT_DEVICE static N from(N top) { return ct_isinf(top) ? (N)0 : top; }
    CT_DEVICE static Sum nothing() { return ct_no_level<N>(); }
    CT_DEVICE static Short nothing_short() { return nothing(); }
    CT_DEVICE static void take(Short &s, S x, int64_t) {
        const N v = ct_number_of(x);
        if (v > s.top) {
            s.sum *= ct_exp(s.top - v);
            s.top = v;
        }
        s.sum += ct_exp(v - from(s.top));
    }
    CT_DEVICE static void merge(Sum &a, const Sum &b) {
        const N top = ct_fmax(a.top, b.top), level = from(top);
        a.sum =
            (a.sum == 0 ? (N)0 : a.sum * ct_exp(a.top - level)) + (b.sum == 0 ? (N)0 : b.sum * ct_exp(b.top - level));
        a.top = top;
    }
    CT_DEVICE static void add(Sum &sum, const Short &s) { merge(sum, s); }
    CT_DEVICE static S result(const Sum &sum) { return ct_stored<S>(ct_log(sum.sum) + from(sum.top)); }
};

CT_REDUCTION_OF_FLOATS(logsumexp, sum_of_exponentials)
