// Device code of channel_norm and of its gradients in passes over memory: parts of lines, sets, parts again. Sets that fit into shared
// memory are read once: channel_resident.cu.
#include "ops/norm/cuda/channel_norm.cuh"

enum { WARPS = CT_CHANNEL_THREADS / 32 };

// ---- What is done with the elements of a part; COLUMNS 1: all are of one channel, else element k of a pack is of column k ----
//   SUMS             how many sums it makes, in sum
//   G, OTHER         whether it reads those beside x
//   begin            at element `start`, the first of n in this thread's columns of the part
//   take             of one element; the result is stored
//   put              sums of a part of n elements, all threads' together
//   output           where results are stored; NULL: nowhere

template <typename S, int COLUMNS> struct moments {
    typedef typename ct_number<S>::type C;
    enum { SUMS = 2, G = 0, OTHER = 0, REVERSED = 0 };
    C shift[COLUMNS], sum[SUMS][COLUMNS];
    CT_DEVICE static char *output(const ct_cuda_channels &) { return NULL; }
    // Deviations are from the median of three elements of the part, so no digits are lost where the mean is large, nor where one
    // element is far from all others.
    CT_DEVICE static C middle_of(const ct_cuda_channels &a, int64_t start, int64_t n) {
        const S *x = (const S *)a.x + start;
        const int64_t step = a.last ? a.channels : 1;
        const C first = ct_number_of(x[0]), half = ct_number_of(x[n / 2 * step]), end = ct_number_of(x[(n - 1) * step]);
        return max(min(first, half), min(max(first, half), end));
    }
    CT_DEVICE void begin(const ct_cuda_channels &a, int64_t, int64_t, int64_t start, int64_t n) {
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            shift[k] = middle_of(a, start + k, n);
            sum[0][k] = sum[1][k] = 0;
        }
    }
    CT_DEVICE C take(const ct_cuda_channels &, int k, C x, C, C) {
        const C apart = x - shift[k];
        sum[0][k] += apart;
        sum[1][k] = ct_fma(apart, apart, sum[1][k]);
        return 0;
    }
    CT_DEVICE static void put(const ct_cuda_channels &a, int64_t at, int64_t start, int64_t n, const double *sums) {
        const double rest = sums[0] / (double)n;
        a.sums[at] = (double)middle_of(a, start, n) + rest;
        a.sums[a.items * a.channels * a.parts + at] = fmax(sums[1] - rest * sums[0], 0.0);
    }
};

// Where coefficients of each column take many registers, m is folded into the others: y = x scale + (shift - m scale). That loses digits where m is
// large beside the deviations, which half types cannot have.
template <typename S, int COLUMNS> CT_DEVICE constexpr bool folds() { return sizeof(S) == 2 && COLUMNS > 1; }

template <typename S, int COLUMNS, bool WITH> struct normalization_of {
    typedef typename ct_number<S>::type C;
    enum { SUMS = 0, G = 0, OTHER = WITH, REVERSED = 1, FOLDS = folds<S, COLUMNS>() };
    C m[FOLDS ? 1 : COLUMNS], scale[COLUMNS], shift[COLUMNS], sum[1][1];
    CT_DEVICE static char *output(const ct_cuda_channels &a) { return a.y; }
    CT_DEVICE void begin(const ct_cuda_channels &a, int64_t item, int64_t channel, int64_t, int64_t) {
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            const C middle = ct_coefficient<C>(a, 0, item)[channel + k];
            scale[k] = ct_coefficient<C>(a, 1, item)[channel + k];
            shift[k] = ct_coefficient<C>(a, 2, item)[channel + k];
            if (FOLDS) shift[k] = ct_fma(-middle, scale[k], shift[k]);
            else m[FOLDS ? 0 : k] = middle;
        }
    }
    CT_DEVICE C take(const ct_cuda_channels &a, int k, C x, C, C other) {
        C y = ct_fma(FOLDS ? x : x - m[FOLDS ? 0 : k], scale[k], shift[k]);
        if (WITH) y += other;
        return a.relu ? ct_relu_of(y) : y;
    }
    CT_DEVICE static void put(const ct_cuda_channels &, int64_t, int64_t, int64_t, const double *) {}
};

template <typename S, int COLUMNS, bool WITH> struct gradient_sums_of {
    typedef typename ct_number<S>::type C;
    enum { SUMS = 3, G = 1, OTHER = WITH, REVERSED = 0, FOLDS = folds<S, COLUMNS>() };
    C m[COLUMNS], scale[COLUMNS], shift[COLUMNS], sum[SUMS][COLUMNS];
    CT_DEVICE static char *output(const ct_cuda_channels &a) { return a.passed; }
    CT_DEVICE void begin(const ct_cuda_channels &a, int64_t item, int64_t channel, int64_t, int64_t) {
        const bool recomputes = a.relu && !WITH;
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            const int64_t set = ct_set_of(a, item, channel + k);
            m[k] = (C)ct_vector_at(a.mean, set, 0);
            scale[k] = recomputes ? (C)ct_vector_at(a.weight, channel + k, 1) *
                                        ct_rsqrt((C)ct_vector_at(a.var, set, 0) + (C)a.eps)
                                  : (C)0;
            shift[k] = recomputes ? (C)ct_vector_at(a.bias, channel + k, 0) : (C)0;
            if (FOLDS) shift[k] = ct_fma(-m[k], scale[k], shift[k]);
            sum[0][k] = sum[1][k] = sum[2][k] = 0;
        }
    }
    CT_DEVICE C take(const ct_cuda_channels &a, int k, C x, C g, C other) {
        const C apart = x - m[k];
        if (a.relu) g = (WITH ? other : ct_fma(FOLDS ? x : apart, scale[k], shift[k])) <= 0 ? (C)0 : g;
        sum[0][k] += g;
        sum[1][k] = ct_fma(apart, g, sum[1][k]);
        sum[2][k] += apart;
        return g;
    }
    CT_DEVICE static void put(const ct_cuda_channels &a, int64_t at, int64_t, int64_t, const double *sums) {
        const int64_t all = a.items * a.channels * a.parts;
        for (int i = 0; i < SUMS; i++) a.sums[i * all + at] = sums[i];
    }
};

template <typename S, int COLUMNS, bool WITH> struct gradient_of {
    typedef typename ct_number<S>::type C;
    enum { SUMS = 0, G = 1, OTHER = WITH, REVERSED = 1, FOLDS = folds<S, COLUMNS>(), APART = FOLDS ? 1 : COLUMNS };
    C m[APART], middle[APART], of_g[COLUMNS], of_x[COLUMNS], of_1[COLUMNS], shift[COLUMNS], sum[1][1];
    CT_DEVICE static char *output(const ct_cuda_channels &a) { return a.y; }
    CT_DEVICE void begin(const ct_cuda_channels &a, int64_t item, int64_t channel, int64_t, int64_t) {
        const bool recomputes = a.relu && !WITH;
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            const C from = ct_coefficient<C>(a, 0, item)[channel + k], minus = ct_coefficient<C>(a, 4, item)[channel + k];
            of_g[k] = ct_coefficient<C>(a, 1, item)[channel + k];
            of_x[k] = ct_coefficient<C>(a, 2, item)[channel + k];
            of_1[k] = ct_coefficient<C>(a, 3, item)[channel + k];
            shift[k] = recomputes ? (C)ct_vector_at(a.bias, channel + k, 0) : (C)0;
            if (FOLDS) {
                of_1[k] = ct_fma(-minus, of_g[k], ct_fma(-from, of_x[k], of_1[k]));
                shift[k] = ct_fma(-from, of_g[k], shift[k]);
            } else {
                m[FOLDS ? 0 : k] = from, middle[FOLDS ? 0 : k] = minus;
            }
        }
    }
    CT_DEVICE C take(const ct_cuda_channels &a, int k, C x, C g, C other) {
        const C apart = FOLDS ? x : x - m[FOLDS ? 0 : k];
        if (a.relu) g = (WITH ? other : ct_fma(apart, of_g[k], shift[k])) <= 0 ? (C)0 : g;
        return ct_fma(FOLDS ? g : g - middle[FOLDS ? 0 : k], of_g[k], ct_fma(apart, of_x[k], of_1[k]));
    }
    CT_DEVICE static void put(const ct_cuda_channels &, int64_t, int64_t, int64_t, const double *) {}
};

// Without and with `other`, whose packs would take registers of all.
template <typename S, int COLUMNS> using normalization = normalization_of<S, COLUMNS, false>;
template <typename S, int COLUMNS> using normalization_with = normalization_of<S, COLUMNS, true>;
template <typename S, int COLUMNS> using gradient_sums = gradient_sums_of<S, COLUMNS, false>;
template <typename S, int COLUMNS> using gradient_sums_with = gradient_sums_of<S, COLUMNS, true>;
template <typename S, int COLUMNS> using gradient = gradient_of<S, COLUMNS, false>;
template <typename S, int COLUMNS> using gradient_with = gradient_of<S, COLUMNS, true>;

// ---- Going over parts ----

// Packs that a thread loads at once: fewer where each column of a pack has coefficients of its own in registers.
template <typename F, int COLUMNS> CT_DEVICE constexpr int unrolled() { return F::G && COLUMNS > 4 ? 2 : 4; }

// Where a part begins in each tensor; its elements are within 2^32 bytes.
template <typename F> struct part_bases {
    const char *x, *g, *other;
    char *output;
    CT_DEVICE part_bases(const ct_cuda_channels &a, int64_t bytes)
        : x(a.x + bytes), g(F::G ? a.g + bytes : NULL), other(F::OTHER ? a.other + bytes : NULL),
          output(F::output(a) ? F::output(a) + bytes : NULL) {}
};

// The packs at so many bytes, and `step` bytes apart, U of them.
template <typename S, int V, int COLUMNS, int U, typename F>
CT_DEVICE void take_packs(const ct_cuda_channels &a, const part_bases<F> &base, F &f, uint32_t at, uint32_t step) {
    typedef typename ct_number<S>::type C;
    typedef ct_neighbors<S, V> pack;
    pack x[U], g[U], other[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        x[u] = *(const pack *)(base.x + (at + u * step));
        if (F::G) g[u] = *(const pack *)(base.g + (at + u * step));
        if (F::OTHER) other[u] = *(const pack *)(base.other + (at + u * step));
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        pack packed;
        C xs[V], gs[V], others[V];
        x[u].numbers(xs);
        if (F::G) g[u].numbers(gs);
        if (F::OTHER) other[u].numbers(others);
#pragma unroll
        for (int k = 0; k < V; k++)
            xs[k] = f.take(a, COLUMNS == 1 ? 0 : k, xs[k], F::G ? gs[k] : (C)0, F::OTHER ? others[k] : (C)0);
        if (!base.output) continue;
        packed.store(xs);
        *(pack *)(base.output + (at + u * step)) = packed;
    }
}
// All packs from `first` on, every `stride`-th of n; `bytes` is the distance of neighbors.
template <typename S, int V, int COLUMNS, typename F>
CT_DEVICE void take_all(const ct_cuda_channels &a, const part_bases<F> &base, F &f, uint32_t at, uint32_t bytes, int first,
                        int stride, int n) {
    enum { UNROLLED = unrolled<F, COLUMNS>() };
    const uint32_t step = stride * bytes;
    int i = first;
    at += first * bytes;
    for (; i + (UNROLLED - 1) * stride < n; i += UNROLLED * stride, at += UNROLLED * step)
        take_packs<S, V, COLUMNS, UNROLLED>(a, base, f, at, step);
#pragma unroll 1
    for (; i < n; i += stride, at += step) take_packs<S, V, COLUMNS, 1>(a, base, f, at, step);
}

// A warp to a part of a line.
template <typename S, int V, template <typename, int> class F> CT_DEVICE void go_along_lines(const ct_cuda_channels &a) {
    typedef F<S, 1> function;
    const int lane = threadIdx.x & 31;
    const int64_t units = a.items * a.channels * a.parts;
    for (int64_t u = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; u < units; u += (int64_t)gridDim.x * WARPS) {
        // from the end: what was read last is still in the cache
        const int64_t unit = function::REVERSED ? units - 1 - u : u, line = a.parts == 1 ? unit : unit / a.parts,
                      item = line / a.channels, first = (unit - line * a.parts) * a.part,
                      n = min(a.part, a.places - first), start = line * a.places + first;
        function f;
        f.begin(a, item, line - item * a.channels, start, n);
        const part_bases<function> base(a, start * (int64_t)sizeof(S));
        take_all<S, V, 1>(a, base, f, 0u, (uint32_t)(V * sizeof(S)), lane, 32, (int)(n / V));
        if (function::SUMS) {
            double sums[3];
            for (int i = 0; i < function::SUMS; i++) sums[i] = ct_sum_group((double)f.sum[i][0], 32);
            if (lane == 0) function::put(a, unit, start, n, sums);
        }
    }
}

// Threads side by side at V channels each, in groups that take every so-manieth place.
template <typename S, int V, template <typename, int> class F>
CT_DEVICE void go_along_columns(const ct_cuda_channels &a) {
    typedef typename ct_number<S>::type C;
    typedef F<S, V> function;
    enum { SUMS = function::SUMS };
    __shared__ C shared[SUMS ? SUMS * CT_CHANNEL_THREADS * V : 1];
    const int side = a.side, groups = CT_CHANNEL_THREADS / side, group = threadIdx.x / side,
              column = (threadIdx.x & (side - 1)) * V, width = side * V;
    const int64_t tiles = (a.channels + width - 1) / width, jobs = tiles * a.items * a.parts;
    for (int64_t j = blockIdx.x; j < jobs; j += gridDim.x) {
        const int64_t job = function::REVERSED ? jobs - 1 - j : j, rest = job / tiles, item = rest / a.parts,
                      part = rest - item * a.parts, channel = (job - rest * tiles) * width,
                      rows = min(a.part, a.places - part * a.part),
                      start = (item * a.places + part * a.part) * a.channels + channel;
        function f;
        if (channel + column < a.channels) {
            f.begin(a, item, channel + column, start + column, rows);
            const part_bases<function> base(a, start * (int64_t)sizeof(S));
            take_all<S, V, V>(a, base, f, (uint32_t)(column * sizeof(S)), (uint32_t)(a.channels * sizeof(S)), group, groups,
                              (int)rows);
        }
        if (!SUMS) continue;
        __syncthreads(); // what was there before has been read
#pragma unroll
        for (int i = 0; i < SUMS; i++)
#pragma unroll
            for (int k = 0; k < V; k++) shared[(i * groups + group) * width + column + k] = f.sum[i][k];
        __syncthreads();
        for (int c = threadIdx.x; c < width && channel + c < a.channels; c += CT_CHANNEL_THREADS) {
            double sums[3] = {0, 0, 0};
            for (int i = 0; i < SUMS; i++)
                for (int k = 0; k < groups; k++) sums[i] += (double)shared[(i * groups + k) * width + c];
            function::put(a, rest * a.channels + channel + c, start + c, rows, sums);
        }
    }
}

template <typename S, template <typename, int> class F> CT_DEVICE void lines(const ct_cuda_channels &a) {
    if (ct_does_nothing(a.head)) return;
    if (a.packed) go_along_lines<S, 16 / sizeof(S), F>(a);
    else go_along_lines<S, 1, F>(a);
}
template <typename S, template <typename, int> class F> CT_DEVICE void columns(const ct_cuda_channels &a) {
    if (ct_does_nothing(a.head)) return;
    if (a.packed) go_along_columns<S, 16 / sizeof(S), F>(a);
    else go_along_columns<S, 1, F>(a);
}

// ---- Sets ----

// The parts of a set, or of a channel: `outer` times a.parts of them.
struct parts_of {
    int64_t first, outer, step, part_step;
};
CT_DEVICE parts_of parts_of_channel(const ct_cuda_channels &a, int64_t channel) {
    return {a.last ? channel : channel * a.parts, a.items, a.channels * a.parts, a.last ? a.channels : 1};
}
CT_DEVICE parts_of parts_of_set(const ct_cuda_channels &a, int64_t set) {
    if (a.batch) return parts_of_channel(a, set);
    const int64_t item = set / a.groups, channel = (set - item * a.groups) * a.members,
                  base = item * a.channels * a.parts;
    return {base + (a.last ? channel : channel * a.parts), a.members, a.last ? 1 : a.parts, a.last ? a.channels : 1};
}
CT_DEVICE int64_t places_of(const ct_cuda_channels &a, int64_t part) { return min(a.part, a.places - part * a.part); }

// What comes of a set's moments, and of its sums; thread `lane` of `lanes` takes part.
template <typename C>
CT_DEVICE void settle_set(const ct_cuda_channels &a, int64_t set, double mean, double var, int lane, int lanes) {
    const int64_t item = a.batch ? 0 : set / a.groups, first = (set - item * a.groups) * a.members;
    const double rstd = 1 / sqrt(var + a.eps);
    if (lane == 0) {
        ct_vector_set(a.mean, set, mean);
        ct_vector_set(a.var, set, var);
    }
    for (int64_t c = first + lane; c < first + a.members; c += lanes) {
        const ct_forward_coefficients<C> by = ct_forward_of<C>(a, mean, rstd, c);
        ct_coefficient<C>(a, 0, item)[c] = by.m;
        ct_coefficient<C>(a, 1, item)[c] = by.scale;
        ct_coefficient<C>(a, 2, item)[c] = by.shift;
    }
}
// The sums have weight in them already, unless a channel is a set.
template <typename C>
CT_DEVICE void settle_gradient_set(const ct_cuda_channels &a, int64_t set, double g, double product, double rest, int lane,
                                   int lanes) {
    const int64_t sets = (a.batch ? 1 : a.items) * a.groups, item = a.batch ? 0 : set / a.groups,
                  first = (set - item * a.groups) * a.members;
    const double w = a.batch ? ct_vector_at(a.weight, set, 1) : 1;
    ct_set_sums s = {g * w, product * w, rest, ct_rstd_of(a, set), 0, 0};
    ct_settle_sums(a, set, s);
    if (lane == 0 && a.batch) {
        ct_vector_set(a.dweight, set, (product - s.rest * g) * s.rstd);
        ct_vector_set(a.dbias, set, g);
    } else if (lane == 0) {
        a.rest[set] = s.rest, a.rest[sets + set] = s.rstd;
    }
    for (int64_t c = first + lane; c < first + a.members; c += lanes) {
        const ct_backward_coefficients<C> by = ct_backward_of<C>(a, s, (C)ct_vector_at(a.mean, set, 0), c);
        ct_coefficient<C>(a, 0, item)[c] = by.m;
        ct_coefficient<C>(a, 1, item)[c] = by.of_g;
        ct_coefficient<C>(a, 2, item)[c] = by.of_x;
        ct_coefficient<C>(a, 3, item)[c] = by.of_1;
        ct_coefficient<C>(a, 4, item)[c] = by.middle;
    }
}

template <typename S> CT_DEVICE void settle(const ct_cuda_channels &a) {
    typedef typename ct_number<S>::type C;
    enum { SETTLERS = CT_CHANNEL_SETTLERS };
    if (ct_does_nothing(a.head)) return;
    const double *means = a.sums, *squares = a.sums + a.items * a.channels * a.parts;
    const int64_t sets = (a.batch ? 1 : a.items) * a.groups;
    for (int64_t set = blockIdx.x; set < sets; set += gridDim.x) {
        const parts_of p = parts_of_set(a, set);
        const int64_t many = p.outer * a.parts;
        double mean = 0, square = 0;
        for (int64_t i = threadIdx.x; i < many; i += SETTLERS) {
            const int64_t o = i / a.parts, part = i - o * a.parts;
            mean += means[p.first + o * p.step + part * p.part_step] * (double)places_of(a, part);
        }
        mean = ct_sum_group(mean, SETTLERS) / a.count;
        for (int64_t i = threadIdx.x; i < many; i += SETTLERS) {
            const int64_t o = i / a.parts, part = i - o * a.parts, at = p.first + o * p.step + part * p.part_step;
            const double apart = means[at] - mean;
            square += squares[at] + apart * apart * (double)places_of(a, part);
        }
        const double var = ct_sum_group(square, SETTLERS) / a.count;
        settle_set<C>(a, set, mean, var, threadIdx.x, SETTLERS);
    }
}

// Coefficients for given statistics.
template <typename S> CT_DEVICE void fix(const ct_cuda_channels &a) {
    typedef typename ct_number<S>::type C;
    if (ct_does_nothing(a.head)) return;
    for (int64_t c = ct_first(); c < a.channels; c += ct_step()) {
        const ct_forward_coefficients<C> by = ct_forward_of<C>(a, ct_vector_at(a.mean, c, 0), ct_rstd_of(a, c), c);
        ct_coefficient<C>(a, 0, 0)[c] = by.m;
        ct_coefficient<C>(a, 1, 0)[c] = by.scale;
        ct_coefficient<C>(a, 2, 0)[c] = by.shift;
    }
}

template <typename S> CT_DEVICE void settle_gradient(const ct_cuda_channels &a) {
    typedef typename ct_number<S>::type C;
    enum { SETTLERS = CT_CHANNEL_SETTLERS };
    if (ct_does_nothing(a.head)) return;
    const int64_t sets = (a.batch ? 1 : a.items) * a.groups, all = a.items * a.channels * a.parts;
    for (int64_t set = blockIdx.x; set < sets; set += gridDim.x) {
        const int64_t item = a.batch ? 0 : set / a.groups, first = (set - item * a.groups) * a.members;
        const parts_of p = parts_of_set(a, set);
        double g = 0, product = 0, rest = 0;
        for (int64_t i = threadIdx.x; i < p.outer * a.parts; i += SETTLERS) {
            const int64_t o = i / a.parts, at = p.first + o * p.step + (i - o * a.parts) * p.part_step;
            const double w = a.batch ? 1 : ct_vector_at(a.weight, first + o, 1);
            g += w * a.sums[at];
            product += w * a.sums[all + at];
            rest += a.sums[2 * all + at];
        }
        g = ct_sum_group(g, SETTLERS);
        product = ct_sum_group(product, SETTLERS);
        rest = ct_sum_group(rest, SETTLERS);
        settle_gradient_set<C>(a, set, g, product, rest, threadIdx.x, SETTLERS);
    }
}

// Channels last, the batch as one set: the parts of neighboring channels lie side by side.
struct abreast {
    int64_t channel, many;
    int column, group;
    CT_DEVICE abreast(const ct_cuda_channels &a)
        : channel((int64_t)blockIdx.x * CT_CHANNEL_ABREAST + threadIdx.x % CT_CHANNEL_ABREAST), many(a.items * a.parts),
          column(threadIdx.x % CT_CHANNEL_ABREAST), group(threadIdx.x / CT_CHANNEL_ABREAST) {}
};
enum { ABREAST_GROUPS = CT_CHANNEL_COLUMNS / CT_CHANNEL_ABREAST };
// The sum of x over the groups of a column, in all of them.
CT_DEVICE double sum_abreast(const abreast &w, double x) {
    __shared__ double sums[ABREAST_GROUPS][CT_CHANNEL_ABREAST];
    __syncthreads(); // what was there before has been read
    sums[w.group][w.column] = x;
    __syncthreads();
    for (int half = ABREAST_GROUPS / 2; half; half /= 2) {
        if (w.group < half) sums[w.group][w.column] += sums[w.group + half][w.column];
        __syncthreads();
    }
    return sums[0][w.column];
}
template <typename S> CT_DEVICE void settle_columns(const ct_cuda_channels &a) {
    if (ct_does_nothing(a.head)) return;
    const abreast w(a);
    const bool there = w.channel < a.channels;
    const double *means = a.sums + w.channel, *squares = means + w.many * a.channels;
    double mean = 0, square = 0;
#pragma unroll 4
    for (int64_t i = w.group; there && i < w.many; i += ABREAST_GROUPS)
        mean += means[i * a.channels] * (double)places_of(a, a.items == 1 ? i : i % a.parts);
    mean = sum_abreast(w, mean) / a.count;
#pragma unroll 4
    for (int64_t i = w.group; there && i < w.many; i += ABREAST_GROUPS) {
        const double apart = means[i * a.channels] - mean;
        square += squares[i * a.channels] + apart * apart * (double)places_of(a, a.items == 1 ? i : i % a.parts);
    }
    const double var = sum_abreast(w, square) / a.count;
    if (there && w.group == 0) settle_set<typename ct_number<S>::type>(a, w.channel, mean, var, 0, 1);
}
template <typename S> CT_DEVICE void settle_gradient_columns(const ct_cuda_channels &a) {
    if (ct_does_nothing(a.head)) return;
    const abreast w(a);
    const bool there = w.channel < a.channels;
    const int64_t all = w.many * a.channels;
    const double *sums = a.sums + w.channel;
    double g = 0, product = 0, rest = 0;
#pragma unroll 4
    for (int64_t i = w.group; there && i < w.many; i += ABREAST_GROUPS) {
        g += sums[i * a.channels];
        product += sums[all + i * a.channels];
        rest += sums[2 * all + i * a.channels];
    }
    g = sum_abreast(w, g);
    product = sum_abreast(w, product);
    rest = sum_abreast(w, rest);
    if (there && w.group == 0)
        settle_gradient_set<typename ct_number<S>::type>(a, w.channel, g, product, rest, 0, 1);
}

// dweight and dbias, a block to a channel.
CT_DEVICE void settle_parameters(const ct_cuda_channels &a) {
    enum { SETTLERS = CT_CHANNEL_SETTLERS };
    if (ct_does_nothing(a.head)) return;
    const int64_t sets = (a.batch ? 1 : a.items) * a.groups, all = a.items * a.channels * a.parts;
    for (int64_t channel = blockIdx.x; channel < a.channels; channel += gridDim.x) {
        const parts_of p = parts_of_channel(a, channel);
        double g = 0, product = 0;
        for (int64_t i = threadIdx.x; i < p.outer * a.parts; i += SETTLERS) {
            const int64_t item = i / a.parts, at = p.first + item * p.step + (i - item * a.parts) * p.part_step,
                          set = ct_set_of(a, item, channel);
            g += a.sums[at];
            product += (a.sums[all + at] - a.rest[set] * a.sums[at]) * a.rest[sets + set];
        }
        g = ct_sum_group(g, SETTLERS);
        product = ct_sum_group(product, SETTLERS);
        if (threadIdx.x == 0) {
            ct_vector_set(a.dweight, channel, product);
            ct_vector_set(a.dbias, channel, g);
        }
    }
}

extern "C" __global__ void __launch_bounds__(CT_CHANNEL_SETTLERS)
    channel_parameters(const __grid_constant__ ct_cuda_channels a) {
    settle_parameters(a);
}

extern "C" __global__ void __launch_bounds__(CT_CHANNEL_SETTLERS)
    channel_running(const __grid_constant__ ct_cuda_running a) {
    if (ct_does_nothing(a.head)) return;
    for (int64_t c = ct_first(); c < a.channels; c += ct_step())
        for (int i = 0; i < 2; i++) {
            const double batch = ct_vector_at(a.batch[i], c, 0) * (i ? a.unbias : 1);
            ct_vector_set(a.running[i], c, ct_vector_at(a.running[i], c, 0) * (1 - a.momentum) + batch * a.momentum);
        }
}

#define KERNEL(name, threads, blocks, suffix, body)                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)               \
        channel_##name##_##suffix(const __grid_constant__ ct_cuda_channels a) { \
        body;                                                                   \
    }
#define PASS(name, blocks, suffix, S)                                                  \
    KERNEL(name##_lines, CT_CHANNEL_THREADS, blocks, suffix, (lines<S, name>(a)))      \
    KERNEL(name##_columns, CT_CHANNEL_THREADS, blocks, suffix, (columns<S, name>(a)))
#define SETTLING(name, suffix, body) KERNEL(name, CT_CHANNEL_SETTLERS, 4, suffix, body)
#define KERNELS(suffix, S)                    \
    PASS(moments, 3, suffix, S)               \
    PASS(normalization, 4, suffix, S)         \
    PASS(normalization_with, 3, suffix, S)    \
    PASS(gradient_sums, 3, suffix, S)         \
    PASS(gradient_sums_with, 2, suffix, S)    \
    PASS(gradient, 3, suffix, S)              \
    PASS(gradient_with, 3, suffix, S)         \
    SETTLING(settle, suffix, settle<S>(a))    \
    KERNEL(settle_columns, CT_CHANNEL_COLUMNS, 2, suffix, settle_columns<S>(a)) \
    KERNEL(settle_gradient_columns, CT_CHANNEL_COLUMNS, 2, suffix, settle_gradient_columns<S>(a)) \
    SETTLING(fixed, suffix, fix<S>(a))        \
    SETTLING(settle_gradient, suffix, settle_gradient<S>(a))
KERNELS(f32, float)
KERNELS(f64, double)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
