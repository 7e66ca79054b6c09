// Device code of sum and prod.
#include "ops/reduce/cuda/reduce.cuh"

// Floats are added in their own precision over short blocks, the blocks in double.
template <typename S> struct sum_of_floats {
    typedef S In;
    typedef S Out;
    typedef typename ct_number<S>::type Short;
    typedef double Sum;
    enum { V = 16 / sizeof(S) };
    CT_DEVICE static Short nothing_short() { return 0; }
    CT_DEVICE static Sum nothing() { return 0; }
    CT_DEVICE static void take(Short &s, S x, int64_t) { s += ct_number_of(x); }
    CT_DEVICE static void add(Sum &sum, Short s) { sum += (double)s; }
    CT_DEVICE static void merge(Sum &sum, Sum other) { sum += other; }
    CT_DEVICE static S result(Sum sum) { return ct_stored<S>(sum); }
};

// Unsigned, since integers wrap.
template <typename S> struct sum_of_integers {
    typedef S In;
    typedef int64_t Out;
    typedef uint64_t Short, Sum;
    enum { V = sizeof(S) == 1 ? 8 : 16 / sizeof(S) };
    CT_DEVICE static Short nothing_short() { return 0; }
    CT_DEVICE static Sum nothing() { return 0; }
    CT_DEVICE static void take(Short &s, S x, int64_t) { s += (uint64_t)(int64_t)x; }
    CT_DEVICE static void add(Sum &sum, Short s) { sum += s; }
    CT_DEVICE static void merge(Sum &sum, Sum other) { sum += other; }
    CT_DEVICE static int64_t result(Sum sum) { return (int64_t)sum; }
};

// In double, so that a product of many f32 overflows only if its result does.
template <typename S> struct product_of_floats {
    typedef S In;
    typedef S Out;
    typedef double Short, Sum;
    enum { V = sizeof(S) == 8 ? 2 : 4 };
    CT_DEVICE static Short nothing_short() { return 1; }
    CT_DEVICE static Sum nothing() { return 1; }
    CT_DEVICE static void take(Short &s, S x, int64_t) { s *= (double)ct_number_of(x); }
    CT_DEVICE static void add(Sum &sum, Short s) { sum *= s; }
    CT_DEVICE static void merge(Sum &sum, Sum other) { sum *= other; }
    CT_DEVICE static S result(Sum sum) { return ct_stored<S>(sum); }
};

template <typename S> struct product_of_integers {
    typedef S In;
    typedef int64_t Out;
    typedef uint64_t Short, Sum;
    enum { V = sizeof(S) == 8 ? 2 : 4 };
    CT_DEVICE static Short nothing_short() { return 1; }
    CT_DEVICE static Sum nothing() { return 1; }
    CT_DEVICE static void take(Short &s, S x, int64_t) { s *= (uint64_t)(int64_t)x; }
    CT_DEVICE static void add(Sum &sum, Short s) { sum *= s; }
    CT_DEVICE static void merge(Sum &sum, Sum other) { sum *= other; }
    CT_DEVICE static int64_t result(Sum sum) { return (int64_t)sum; }
};

CT_REDUCTION_OF_FLOATS(sum, sum_of_floats)
CT_REDUCTION_OF_INTEGERS(sum, sum_of_integers)
CT_REDUCTION_OF_FLOATS(prod, product_of_floats)
CT_REDUCTION_OF_INTEGERS(prod, product_of_integers)
