// Device code of amax_place and amin_place: a NaN is better than every number, and of equals the first.
#include "ops/reduce/cuda/reduce.cuh"

template <typename S, bool GREATEST> struct place_of_extremum {
    typedef S In;
    typedef int64_t Out;
    typedef typename ct_number<S>::type N;
    struct Sum {
        N value;
        int64_t place; // -1: nothing seen yet
    };
    typedef Sum Short;
    enum { V = sizeof(S) == 8 ? 2 : 4 };
    CT_DEVICE static Sum nothing() {
        Sum sum;
        sum.value = 0;
        sum.place = -1;
        return sum;
    }
    CT_DEVICE static Short nothing_short() { return nothing(); }
    CT_DEVICE static bool better(N a, N b) { return (a != a && b == b) || (GREATEST ? a > b : a < b); }
    // A thread comes to its elements in their order.
    CT_DEVICE static void take(Short &s, S x, int64_t place) {
        const N value = ct_number_of(x);
        if (s.place < 0 || better(value, s.value)) {
            s.value = value;
            s.place = place;
        }
    }
    CT_DEVICE static void merge(Sum &a, const Sum &b) {
        const bool equal = a.value == b.value || (a.value != a.value && b.value != b.value);
        if (b.place >= 0 && (a.place < 0 || better(b.value, a.value) || (equal && b.place < a.place))) a = b;
    }
    CT_DEVICE static void add(Sum &sum, const Short &s) { merge(sum, s); }
    CT_DEVICE static int64_t result(const Sum &sum) { return sum.place; }
};
template <typename S> struct greatest : place_of_extremum<S, true> {};
template <typename S> struct least : place_of_extremum<S, false> {};

CT_REDUCTION_OF_FLOATS(amax_place, greatest)
CT_REDUCTION_OF_INTEGERS(amax_place, greatest)
CT_REDUCTION_OF_FLOATS(amin_place, least)
CT_REDUCTION_OF_INTEGERS(amin_place, least)
