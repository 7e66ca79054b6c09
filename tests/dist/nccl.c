/* CUDA tensors by NCCL, one rank of one: every collective, gradients, and a network that is trained in parallel.
 * Skips where there is no such device. Several ranks need several devices; what they compute is in collectives.c,
 * which torchrun or mpirun start in the same way. */
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/dist/ranks.h"

static const ct_device cuda = {CT_CUDA, 0};

static ct_tensor *on_device(ct_tensor *x) { return ct_to(x, cuda); }

/* What carried the collectives, by the log of kernels: with one rank the host's way gives the same numbers. */
static struct { int nccl, host; } carried;
static void count(void *context, const char *line) {
    (void)context;
    if (strncmp(line, "dist_", 5) != 0) return;
    carried.nccl += strstr(line, "  nccl  ") != NULL;
    carried.host += strstr(line, "host_memory") != NULL;
}

static void collectives(void) {
    const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16, CT_I32, CT_I64, CT_U8};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        ct_scope {
            ct_tensor *x = on_device(ct_cast(ct_arange(0, 12, 1), dtypes[d])), *list[8];
            int n = 0;
            list[n++] = ct_dist_all_reduce(x, CT_DIST_SUM, NULL);
            list[n++] = ct_dist_all_reduce(x, CT_DIST_MAX, NULL);
            list[n++] = ct_dist_all_reduce(x, CT_DIST_PRODUCT, NULL);
            list[n++] = ct_dist_broadcast(x, 0, NULL);
            list[n++] = ct_dist_all_gather(x, NULL);
            list[n++] = ct_dist_reduce_scatter(x, CT_DIST_SUM, NULL);
            list[n++] = ct_dist_all_to_all(x, NULL);
            for (int i = 0; i < n; i++) {
                CHECK(list[i] && ct_device_of(list[i]).type == CT_CUDA && ct_dtype_of(list[i]) == dtypes[d]);
                for (int64_t k = 0; list[i] && k < 12; k++) CHECK(at(list[i], k) == (double)k);
            }
        }
    }
    ct_tensor *none = ct_dist_all_reduce(on_device(ct_zeros(CT_DIMS(0, 3))), CT_DIST_SUM, NULL);
    CHECK(none && ct_numel(none) == 0);
}

static void large_and_begun(void) { /* the op before and the op after are on another stream */
    ct_tensor *x = ct_full(CT_DIMS(1 << 24), 1, .device = cuda);
    for (int i = 0; i < 20 && x; i++) x = ct_dist_all_reduce(ct_add_s(x, 1), CT_DIST_SUM, NULL);
    CHECK(x && at(x, 12345) == 21 && at(x, (1 << 24) - 1) == 21);
    ct_dist_work *work = ct_dist_all_reduce_start(x, CT_DIST_MEAN, NULL);
    ct_tensor *y = NULL;
    CHECK(work && ct_dist_wait(work, &y) && y && at(ct_mul_s(y, 2), 77) == 42);
    ct_dist_work_free(work);
}

static void gradients(void) {
    ct_tensor *x = ct_set_requires_grad(on_device(ct_arange(1, 5, 1)), true);
    ct_tensor *y = ct_dist_broadcast(ct_dist_all_reduce(x, CT_DIST_SUM, NULL), 0, NULL);
    CHECK(y && ct_backward(ct_sum(ct_mul(y, ct_mul(y, y)))));
    for (int64_t i = 0; i < 4; i++) CHECK(at(ct_grad_of(x), i) == 3.0 * (double)((i + 1) * (i + 1)));
}

static void training(void) {
    ct_seed(1);
    ct_module *net = ct_nn_mlp(CT_DIMS(8, 32, 4), CT_ACT_TANH), *plain = ct_module_copy(net);
    CHECK(ct_module_to_device(net, cuda) && ct_module_to_device(plain, cuda));
    ct_dist_parallel *parallel = ct_dist_data_parallel(net);
    ct_optim *opt = ct_adamw(net, .lr = 0.01), *plain_opt = ct_adamw(plain, .lr = 0.01);
    double a = 0, b = 0;
    for (int step = 0; step < 10 && ct_ok(); step++) {
        ct_scope {
            ct_tensor *x = on_device(ct_randn(CT_DIMS(16, 8)));
            ct_tensor *loss = ct_mean(ct_square(ct_forward(net, x))), *other = ct_mean(ct_square(ct_forward(plain, x)));
            CHECK(ct_backward(loss) && ct_dist_reduce_gradients(parallel) && ct_optim_step(opt));
            CHECK(ct_backward(other) && ct_optim_step(plain_opt));
            a = ct_item(loss), b = ct_item(other);
        }
    }
    CHECK(a == b);
    ct_dist_parallel_free(parallel);
    ct_optim_free(opt);
    ct_optim_free(plain_opt);
    ct_module_free(net);
    ct_module_free(plain);
}

int main(void) {
    if (ct_device_count(CT_CUDA) == 0) {
        printf("skipped: there is no CUDA device: %s\n", ct_backend_missing(CT_CUDA));
        return 77;
    }
    if (!ct_dist_init(.engine = "nccl")) {
        printf("%s\n", ct_error());
        return strstr(ct_error(), "cannot open") || strstr(ct_error(), "no module") ? 77 : 1;
    }
    printf("rank %d of %d by %s\n", ct_dist_rank(), ct_dist_size(), ct_dist_engine());
    ct_set_log_sink(count, NULL);
    ct_set_log("dispatch");
    ct_scope
        collectives();
    ct_set_log(NULL);
    CHECK(carried.nccl == 7 * 7 + 1 && carried.host == 0);
    printf("collectives: %d by NCCL, %d through the host\n", carried.nccl, carried.host);
    ct_scope
        large_and_begun();
    ct_scope
        gradients();
    ct_scope
        training();
    return ended();
}
