/* Every collective against a plain loop: all dtypes, reductions, groups, devices, sizes down to zero; begun and
 * waited for; gradients, also of gradients, against one process that knows all ranks' values. Run by tests/dist.sh
 * under mpirun. */
#include "tests/dist/ranks.h"

static int rank, size;
enum { MOST = 21 }; /* ranks, for which the values below are exact */

/* ---- Values that all ranks know ---- */

/* Small whole numbers, so that sums and products are exact in every dtype: MOST ranks add up to at most 126, and only
 * the first 12 have factors of 2, so that a product is at most 64. */
static double value(int r, int64_t i, ct_dist_reduction reduction) {
    return reduction == CT_DIST_PRODUCT ? (double)(1 + (r < 12 && (r + i) % 2)) : (double)((3 * r + i * i) % 7);
}

static ct_tensor *values(int r, ct_dims shape, ct_dtype dtype, ct_dist_reduction reduction) {
    int64_t n = 1;
    for (int i = 0; i < shape.n; i++) n *= shape.d[i];
    double *list = ct_malloc((size_t)(n ? n : 1) * sizeof *list);
    for (int64_t i = 0; i < n; i++) list[i] = dtype == CT_BOOL ? (r + i) % 3 == 0 : value(r, i, reduction);
    ct_tensor *x = ct_cast(ct_from_data(list, shape, CT_F64), dtype);
    ct_free(list);
    return x;
}

static double reduced(int64_t i, int ranks, ct_dtype dtype, ct_dist_reduction reduction) {
    double y = 0;
    for (int r = 0; r < ranks; r++) {
        const double v = dtype == CT_BOOL ? (r + i) % 3 == 0 : value(r, i, reduction);
        if (r == 0) y = v;
        else if (reduction == CT_DIST_MAX) y = v > y ? v : y;
        else if (reduction == CT_DIST_MIN) y = v < y ? v : y;
        else if (reduction == CT_DIST_PRODUCT) y *= v;
        else y += v;
    }
    return reduction == CT_DIST_MEAN ? y / ranks : y;
}

static double near_enough(ct_dtype dtype) { /* a mean is rounded once */
    return dtype == CT_F32 ? 1e-6 : dtype == CT_F64 ? 1e-14 : dtype == CT_F16 ? 2e-3 : dtype == CT_BF16 ? 2e-2 : 0;
}

static bool reduces(ct_dtype dtype, ct_dist_reduction reduction) {
    if (dtype == CT_F8E4M3 || dtype == CT_F8E5M2 || dtype == CT_COMPLEX64) return false;
    if (dtype == CT_BOOL) return reduction == CT_DIST_MAX || reduction == CT_DIST_MIN;
    return reduction != CT_DIST_MEAN || ct_dtype_is_float(dtype);
}

static bool near(double got, double expected, double tolerance) {
    const double off = got > expected ? got - expected : expected - got;
    return off <= tolerance * (1 + (expected < 0 ? -expected : expected));
}

/* ---- Values ---- */

static bool same_reduction(ct_tensor *y, int64_t first, int64_t n, ct_dtype dtype, ct_dist_reduction reduction) {
    if (!y || ct_dtype_of(y) != dtype || ct_numel(y) != n) return false;
    for (int64_t i = 0; i < n; i++)
        if (!near(at(y, i), reduced(first + i, size, dtype, reduction), near_enough(dtype))) return false;
    return true;
}

static void reductions_of(ct_dtype dtype, ct_device device) {
    for (int r = 0; r <= CT_DIST_PRODUCT; r++) {
        const ct_dist_reduction reduction = (ct_dist_reduction)r;
        ct_tensor *x = ct_to(values(rank, CT_DIMS(3 * size, 2), dtype, reduction), device);
        ct_tensor *y = ct_dist_all_reduce(x, reduction, NULL);
        if (!reduces(dtype, reduction)) {
            CHECK(!y && ct_error_code() == CT_ERR_VALUE);
            ct_error_clear();
            continue;
        }
        CHECK(same_reduction(y, 0, 6 * size, dtype, reduction));
        CHECK(y && ct_device_of(y).type == ct_device_of(x).type);
        ct_tensor *part = ct_dist_reduce_scatter(x, reduction, NULL);
        CHECK(part && ct_dim(part, 0) == 3 && same_reduction(part, 6 * rank, 6, dtype, reduction));
    }
}

static void moves_of(ct_dtype dtype, ct_device device) {
    ct_tensor *x = ct_to(values(rank, CT_DIMS(2 * size, 3), dtype, CT_DIST_SUM), device);
    ct_tensor *all = ct_dist_all_gather(x, NULL), *exchanged = ct_dist_all_to_all(x, NULL);
    CHECK(all && ct_dim(all, 0) == 2 * size * size && ct_dtype_of(all) == dtype);
    CHECK(exchanged && ct_dim(exchanged, 0) == 2 * size);
    for (int r = 0; r < size && all && exchanged; r++) {
        ct_tensor *theirs = values(r, CT_DIMS(2 * size, 3), dtype, CT_DIST_SUM);
        ct_tensor *from = ct_dist_broadcast(x, r, NULL);
        for (int64_t i = 0; i < 6 * size && dtype != CT_COMPLEX64; i++) {
            CHECK(at(all, 6 * size * r + i) == at(theirs, i));
            CHECK(at(from, i) == at(theirs, i));
        }
        for (int64_t i = 0; i < 6 && dtype != CT_COMPLEX64; i++)
            CHECK(at(exchanged, 6 * r + i) == at(theirs, 6 * rank + i));
    }
}

static void every_dtype_and_reduction(void) {
    for (int d = 0; d < CT_DTYPE_COUNT; d++) {
        ct_scope {
            reductions_of((ct_dtype)d, (ct_device){CT_CPU, 0});
            moves_of((ct_dtype)d, (ct_device){CT_CPU, 0});
        }
    }
}

static void on_device(ct_device device) {
    ct_scope {
        reductions_of(CT_F32, device);
        reductions_of(CT_BF16, device);
        reductions_of(CT_I32, device);
        moves_of(CT_I64, device);
    }
}

static void devices(void) {
    ct_device guard;
    const int count = ct_device_count(CT_CUDA);
    if (CHECK(ct_device_parse("guard", &guard))) on_device(guard);
    if (count > 0) on_device((ct_device){CT_CUDA, ct_dist_local_rank() % count});
}

static void sizes(void) {
    ct_tensor *none = ct_dist_all_reduce(ct_zeros(CT_DIMS(0, 3)), CT_DIST_SUM, NULL);
    CHECK(none && ct_numel(none) == 0 && ct_dim(none, 1) == 3);
    ct_tensor *empty = ct_dist_all_gather(ct_zeros(CT_DIMS(0)), NULL);
    CHECK(empty && ct_numel(empty) == 0);
    ct_tensor *scalar = ct_dist_all_reduce(ct_scalar(rank + 1, CT_F64), CT_DIST_SUM, NULL);
    CHECK(scalar && ct_ndim(scalar) == 0 && ct_item(scalar) == size * (size + 1) / 2.0);
    ct_tensor *gathered = ct_dist_all_gather(ct_scalar(rank, CT_I32), NULL);
    CHECK(gathered && ct_ndim(gathered) == 1 && at(gathered, size - 1) == size - 1);
    ct_tensor *large = ct_dist_all_reduce(ct_full(CT_DIMS(1 << 20), rank + 1), CT_DIST_MEAN, NULL);
    CHECK(large && at(large, 12345) == (size + 1) / 2.0);
    ct_tensor *odd = ct_arange(0, 40001, 1), *sum = ct_dist_all_reduce(ct_add_s(odd, rank), CT_DIST_SUM, NULL);
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(sum, ct_add_s(ct_mul_s(odd, size), size * (size - 1) / 2))))) == 0);
    ct_tensor *transposed = ct_t(values(rank, CT_DIMS(5, 4), CT_F32, CT_DIST_SUM));
    ct_tensor *y = ct_dist_all_reduce(transposed, CT_DIST_SUM, NULL);
    CHECK(y && ct_dim(y, 0) == 4 && at(y, 1) == reduced(4, size, CT_F32, CT_DIST_SUM));
    CHECK(size == 1 || (!ct_dist_all_to_all(ct_zeros(CT_DIMS(2 * size + 1)), NULL) && ct_error_code() == CT_ERR_VALUE));
    ct_error_clear();
    CHECK(!ct_dist_broadcast(ct_zeros(CT_DIMS(2)), size, NULL) && strstr(ct_error(), "root is"));
    ct_error_clear();
    CHECK(!ct_dist_all_reduce(NULL, CT_DIST_SUM, NULL) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
}

static void not_a_number_wins(void) {
    ct_tensor *x = ct_full(CT_DIMS(3), rank == size - 1 ? 0.0 / 0.0 : rank);
    CHECK(at(ct_dist_all_reduce(x, CT_DIST_MAX, NULL), 0) != at(ct_dist_all_reduce(x, CT_DIST_MIN, NULL), 1));
    const double most = at(ct_dist_all_reduce(x, CT_DIST_MAX, NULL), 2);
    CHECK(most != most);
}

static void groups(void) {
    ct_dist_group *parity = ct_dist_split(NULL, rank % 2, -rank); /* in descending order of rank */
    if (!CHECK(parity != NULL)) return;
    const int members = (size + 1 - rank % 2) / 2;
    CHECK(ct_dist_group_size(parity) == members && ct_dist_group_rank(parity) == members - 1 - rank / 2);
    double expected = 0;
    for (int r = rank % 2; r < size; r += 2) expected += r;
    CHECK(ct_item(ct_dist_all_reduce(ct_scalar(rank, CT_F64), CT_DIST_SUM, parity)) == expected);
    ct_dist_group *alone = ct_dist_split(parity, -1, 0);
    CHECK(alone && ct_dist_group_size(alone) == 1);
    CHECK(ct_item(ct_dist_all_reduce(ct_scalar(rank, CT_F64), CT_DIST_SUM, alone)) == rank);
    ct_dist_group_free(alone);
    ct_dist_group_free(parity);
    CHECK(ct_dist_barrier(NULL));
}

static void begun(void) {
    enum { CALLS = 6 };
    ct_dist_work *works[CALLS];
    for (int i = 0; i < CALLS; i++) /* short ones, and long ones that go in another way between two */
        works[i] = ct_dist_all_reduce_start(ct_full(CT_DIMS((i % 3 ? 30001 : 1000) * (i + 1)), rank + i),
                                            i % 2 ? CT_DIST_MEAN : CT_DIST_SUM, NULL);
    ct_dist_work *wall = ct_dist_barrier_start(NULL);
    for (int i = CALLS - 1; i >= 0; i--) { /* the last one first */
        ct_tensor *y = NULL;
        const double sum = size * (size - 1) / 2.0 + size * i;
        CHECK(ct_dist_wait(works[i], &y) && y && at(y, 7) == (i % 2 ? sum / size : sum));
        CHECK(y && at(y, ct_numel(y) - 1) == at(y, 7));
        CHECK(ct_dist_done(works[i]));
        ct_dist_work_free(works[i]);
    }
    CHECK(ct_dist_wait(wall, NULL));
    ct_dist_work_free(wall);
    ct_tensor *x = ct_set_requires_grad(ct_full(CT_DIMS(2), rank), true), *y = NULL;
    ct_dist_work *work = ct_dist_all_reduce_start(x, CT_DIST_SUM, NULL);
    CHECK(ct_dist_wait(work, &y) && ct_requires_grad(y) && ct_backward(ct_sum(ct_mul(y, y))));
    CHECK(at(ct_grad_of(x), 0) == 2.0 * size * (size * (size - 1) / 2)); /* d/dx of size (sum x)^2 */
    ct_dist_work_free(work);
    ct_dist_work_free(ct_dist_all_gather_start(x, NULL)); /* nobody waits */
}

static void messages(void) {
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    ct_tensor *x = values(rank, CT_DIMS(40, 50), CT_BF16, CT_DIST_SUM),
              *y = ct_zeros(CT_DIMS(40, 50), .dtype = CT_BF16);
    ct_tensor *flag = ct_zeros(CT_DIMS(1), .dtype = CT_I64);
    ct_dist_work *sent = ct_dist_send_start(x, next, NULL),
                 *second = ct_dist_send_start(ct_full_i64(CT_DIMS(1), rank), next, NULL);
    CHECK(ct_dist_receive(y, before, NULL) && ct_dist_receive(flag, before, NULL));
    CHECK(ct_dist_wait(sent, NULL) && ct_dist_wait(second, NULL));
    ct_dist_work_free(sent);
    ct_dist_work_free(second);
    ct_tensor *theirs = values(before, CT_DIMS(40, 50), CT_BF16, CT_DIST_SUM);
    CHECK(ct_item(ct_sum(ct_cast(ct_ne(y, theirs), CT_F32))) == 0);
    CHECK(ct_item_i64(flag) == before);
    CHECK(!ct_dist_send(x, rank, NULL) && strstr(ct_error(), "this rank itself"));
    ct_error_clear();
    ct_tensor *graph = ct_mul_s(ct_set_requires_grad(ct_ones(CT_DIMS(2)), true), 2);
    CHECK(!ct_dist_send(graph, next, NULL) && ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

/* ---- Gradients ---- */

static bool same_tensor(ct_tensor *a, ct_tensor *b) {
    return a && b && ct_numel(a) == ct_numel(b) && ct_ndim(a) == ct_ndim(b) &&
           ct_item(ct_sum(ct_cast(ct_ne(a, b), CT_F32))) == 0;
}

/* Every collective begun, waited for in another order than they have begun in, gives what it gives at once, and its gradient. */
static void every_one_begun(void) {
    enum { CALLS = 9 };
    ct_tensor *x = ct_set_requires_grad(
        ct_add_s(ct_reshape(ct_arange(0, 6 * size, 1, .dtype = CT_F64), CT_DIMS(2 * size, 3)), 0.25 * rank + 1), true);
    ct_tensor *at_once[CALLS], *begun_ones[CALLS];
    ct_dist_work *works[CALLS];
    int n = 0;
    for (int r = CT_DIST_SUM; r <= CT_DIST_PRODUCT; r++)
        works[n++] = ct_dist_all_reduce_start(x, (ct_dist_reduction)r, NULL);
    works[n++] = ct_dist_broadcast_start(x, size - 1, NULL);
    works[n++] = ct_dist_all_gather_start(x, NULL);
    works[n++] = ct_dist_reduce_scatter_start(x, CT_DIST_MEAN, NULL);
    works[n++] = ct_dist_all_to_all_start(x, NULL);
    n = 0;
    for (int r = CT_DIST_SUM; r <= CT_DIST_PRODUCT; r++)
        at_once[n++] = ct_dist_all_reduce(x, (ct_dist_reduction)r, NULL);
    at_once[n++] = ct_dist_broadcast(x, size - 1, NULL);
    at_once[n++] = ct_dist_all_gather(x, NULL);
    at_once[n++] = ct_dist_reduce_scatter(x, CT_DIST_MEAN, NULL);
    at_once[n++] = ct_dist_all_to_all(x, NULL);
    for (int i = CALLS - 1; i >= 0; i--) {
        CHECK(ct_dist_wait(works[i], &begun_ones[i]) && same_tensor(at_once[i], begun_ones[i]));
        ct_dist_work_free(works[i]);
    }
    for (int i = 0; i < CALLS; i++) {
        ct_tensor *losses[2] = {ct_sum(ct_mul(at_once[i], at_once[i])), ct_sum(ct_mul(begun_ones[i], begun_ones[i]))};
        ct_tensor *g[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++) CHECK(ct_grad(&losses[k], 1, NULL, &x, 1, &g[k], 0));
        CHECK(same_tensor(g[0], g[1]));
        CHECK(ct_item(ct_dist_all_reduce(ct_amax(ct_abs(g[0])), CT_DIST_MAX, NULL)) >
              0); /* of a broadcast the root's */
    }
}

/* What each rank computes from its x, of its own weights, and the whole of it from all x, as one process would. Each has
 * 4 rows or more, a part of them for each rank. */
static int64_t rows(void) { return (3 + size) / size * size; }

typedef enum function { SUM, MEAN, MAX, MIN, PRODUCT, BROADCAST, GATHER, SCATTER, EXCHANGE, FUNCTIONS } function;

static ct_tensor *leaf(int r) { /* with ties among ranks, and zeros */
    double list[2 * MOST];
    for (int i = 0; i < 2 * rows(); i++) list[i] = i == 3 ? 0 : i == 5 ? 1.5 : 0.25 * ((5 * r + 3 * i) % 11) - 1;
    return ct_from_data(list, CT_DIMS(rows(), 2), CT_F64);
}

static ct_tensor *weights(int r, ct_tensor *y) {
    return ct_add_s(ct_reshape(ct_arange(0, (double)ct_numel(y), 1, .dtype = CT_F64), ct_shape(y)), r + 0.5);
}

static ct_tensor *distributed(function f, ct_tensor *x) {
    switch (f) {
    case SUM: return ct_dist_all_reduce(x, CT_DIST_SUM, NULL);
    case MEAN: return ct_dist_all_reduce(x, CT_DIST_MEAN, NULL);
    case MAX: return ct_dist_all_reduce(x, CT_DIST_MAX, NULL);
    case MIN: return ct_dist_all_reduce(x, CT_DIST_MIN, NULL);
    case PRODUCT: return ct_dist_all_reduce(x, CT_DIST_PRODUCT, NULL);
    case BROADCAST: return ct_dist_broadcast(x, size - 1, NULL);
    case GATHER: return ct_dist_all_gather(x, NULL);
    case SCATTER: return ct_dist_reduce_scatter(x, CT_DIST_MEAN, NULL);
    default: return ct_dist_all_to_all(x, NULL);
    }
}

/* y of rank r, from all ranks' x [size, rows, 2]. */
static ct_tensor *together(function f, ct_tensor *all, int r) {
    ct_tensor *mean = ct_div_s(ct_sum(all, .axes = CT_DIMS(0)), size);
    const int64_t part = rows() / size;
    ct_tensor *parts[MOST];
    switch (f) {
    case SUM: return ct_sum(all, .axes = CT_DIMS(0));
    case MEAN: return mean;
    case MAX: return ct_max(all, 0);
    case MIN: return ct_min(all, 0);
    case PRODUCT: return ct_prod(all, .axes = CT_DIMS(0));
    case BROADCAST: return ct_squeeze(ct_narrow(all, 0, size - 1, 1), .axes = CT_DIMS(0));
    case GATHER: return ct_reshape(all, CT_DIMS(rows() * size, 2));
    case SCATTER: return ct_narrow(mean, 0, r * part, part);
    default:
        for (int s = 0; s < size; s++)
            parts[s] = ct_squeeze(ct_narrow(ct_narrow(all, 0, s, 1), 1, r * part, part), .axes = CT_DIMS(0));
        return ct_cat(parts, size, 0);
    }
}

static ct_tensor *curved(ct_tensor *y, int r) { return ct_sum(ct_mul(weights(r, y), ct_mul(y, ct_mul(y, y)))); }

static void gradients(function f) {
    ct_tensor *x = ct_set_requires_grad(leaf(rank), true), *leaves[MOST], *g = NULL, *h = NULL, *whole_g = NULL,
              *whole_h = NULL;
    for (int r = 0; r < size; r++) leaves[r] = leaf(r);
    ct_tensor *all = ct_set_requires_grad(ct_stack(leaves, size, 0), true), *sum = NULL;
    for (int r = 0; r < size; r++) {
        ct_tensor *part = curved(together(f, all, r), r);
        sum = sum ? ct_add(sum, part) : part;
    }
    ct_tensor *mine = curved(distributed(f, x), rank);
    CHECK(ct_grad(&mine, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH));
    CHECK(ct_grad(&sum, 1, NULL, &all, 1, &whole_g, CT_CREATE_GRAPH));
    if (!g || !whole_g) return;
    const int64_t n = ct_numel(x);
    for (int64_t i = 0; i < n; i++) CHECK(near(at(g, i), at(whole_g, n * rank + i), 1e-12));
    ct_tensor *square = ct_sum(ct_mul(g, g)), *whole_square = ct_sum(ct_mul(whole_g, whole_g));
    CHECK(ct_grad(&square, 1, NULL, &x, 1, &h, 0));
    CHECK(ct_grad(&whole_square, 1, NULL, &all, 1, &whole_h, 0));
    for (int64_t i = 0; h && whole_h && i < n; i++) CHECK(near(at(h, i), at(whole_h, n * rank + i), 1e-11));
}

int main(void) {
    if (!CHECK(ct_dist_init())) return 1;
    rank = ct_dist_rank();
    size = ct_dist_size();
    const char *expected = getenv("RANKS");
    if (!CHECK(!expected || size == atoi(expected)) || !CHECK(size <= MOST)) return 1;
    CHECK(ct_dist_local_rank() == rank && ct_dist_engine()[0]);
    if (rank == 0) printf("%d ranks by %s\n", size, ct_dist_engine());
    ct_scope
        every_dtype_and_reduction();
    ct_scope
        devices();
    ct_scope
        sizes();
    ct_scope
        not_a_number_wins();
    ct_scope
        groups();
    ct_scope
        begun();
    ct_scope
        every_one_begun();
    if (size > 1)
        ct_scope
            messages();
    for (int f = 0; f < FUNCTIONS; f++)
        ct_scope
            gradients((function)f);
    return ended();
}
