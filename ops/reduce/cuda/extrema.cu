// Device code of amax and amin. NaN wins.
#include "ops/reduce/cuda/reduce.cuh"

template <typename N> CT_DEVICE N ct_farthest(bool greatest) { return greatest ? -(N)INFINITY : (N)INFINITY; }
template <> CT_DEVICE int32_t ct_farthest(bool greatest) { return greatest ? INT32_MIN : INT32_MAX; }
template <> CT_DEVICE int64_t ct_farthest(bool greatest) { return greatest ? INT64_MIN : INT64_MAX; }

template <typename S, bool GREATEST> struct extremum {
    typedef S In;
    typedef S Out;
    typedef typename ct_number<S>::type Short, Sum;
    enum { V = sizeof(S) == 1 ? 8 : 16 / sizeof(S) };
    CT_DEVICE static Short nothing_short() { return ct_farthest<Short>(GREATEST); }
    CT_DEVICE static Sum nothing() { return nothing_short(); }
    CT_DEVICE static void merge(Sum &a, Sum b) { a = (GREATEST ? a > b : a < b) || a != a ? a : b; }
    CT_DEVICE static void take(Short &s, S x, int64_t) { merge(s, ct_number_of(x)); }
    CT_DEVICE static void add(Sum &sum, Short s) { merge(sum, s); }
    CT_DEVICE static S result(Sum sum) { return ct_stored<S>(sum); }
};
template <typename S> struct greatest : extremum<S, true> {};
template <typename S> struct least : extremum<S, false> {};

CT_REDUCTION_OF_FLOATS(amax, greatest)
CT_REDUCTION_OF_INTEGERS(amax, greatest)
CT_REDUCTION_OF_FLOATS(amin, least)
CT_REDUCTION_OF_INTEGERS(amin, least)
