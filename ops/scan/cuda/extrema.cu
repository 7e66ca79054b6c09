// Device code of cummax and cummin. NaN is better than every number; of equals, and of NaNs, the last.
#include "ops/scan/cuda/scan.cuh"

template <typename S, bool GREATEST> struct extrema {
    typedef typename ct_number<S>::type N;
    struct State {
        N value;
        int64_t place; // -1: of nothing
    };
    CT_DEVICE static State none() {
        State s;
        s.value = 0;
        s.place = -1;
        return s;
    }
    CT_DEVICE static State join(const State &a, const State &b) {
        const bool last = b.value != b.value || (a.value == a.value && (GREATEST ? b.value >= a.value : b.value <= a.value));
        return b.place >= 0 && (a.place < 0 || last) ? b : a;
    }
    CT_DEVICE static State step(const State &a, const State &b) { return join(a, b); }
    CT_DEVICE static State of(const ct_cuda_scan &a, const ct_scan_line &line, int64_t i) {
        State s;
        s.value = ct_number_of(((const S *)a.at[0])[line.x + i * line.x_step]);
        s.place = i;
        return s;
    }
    CT_DEVICE static void put(const ct_cuda_scan &a, const ct_scan_line &line, int64_t i, const State &s) {
        if (a.at[1]) ((S *)a.at[1])[line.y + i * line.y_step] = ct_stored<S>(s.value);
        if (a.at[2]) ((int64_t *)a.at[2])[line.third + i * line.third_step] = s.place;
    }
};
template <typename S> struct greatest : extrema<S, true> {};
template <typename S> struct least : extrema<S, false> {};

CT_SCAN_OF_FLOATS(cummax, greatest)
CT_SCAN_OF_INTEGERS(cummax, greatest)
CT_SCAN_OF_FLOATS(cummin, least)
CT_SCAN_OF_INTEGERS(cummin, least)
