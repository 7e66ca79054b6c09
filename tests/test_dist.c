/* One process: every collective works without MPI and gives back what it is given, and what cannot be is told. What several processes do
 * is in tests/dist.sh. */
#include <cotangent/dist.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dist/mpi/half.h"
#include "tests/harness.h"

TEST(a_process_that_was_started_alone_is_rank_0_of_1) {
    CHECK(ct_dist_size() == 1 && ct_dist_rank() == 0 && ct_dist_local_rank() == 0);
    CHECK(ct_dist_init() && ct_dist_init(.timeout = 5));
    CHECK(ct_dist_size() == 1 && ct_dist_rank() == 0);
    CHECK_TEXT(ct_dist_engine(), "one process");
    CHECK(ct_dist_end() && ct_dist_end());
    CHECK(!ct_dist_init());
    CHECK_ERROR(CT_ERR_STATE, "dist_init: this process has left its job: a job is joined once");
    CHECK(!ct_dist_barrier(NULL));
    CHECK_ERROR(CT_ERR_STATE, "dist_barrier: this process has left its job (ct_dist_end)");
}

TEST(collectives_of_one_rank_give_back_what_they_are_given) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2, 2), 1, 2, 3, 4), true);
    for (int r = 0; r <= CT_DIST_PRODUCT; r++) {
        CHECK_VALUES(ct_dist_all_reduce(x, (ct_dist_reduction)r, NULL), CT_DIMS(2, 2), 0, 1, 2, 3, 4);
        CHECK_VALUES(ct_dist_reduce_scatter(x, (ct_dist_reduction)r, NULL), CT_DIMS(2, 2), 0, 1, 2, 3, 4);
    }
    CHECK_VALUES(ct_dist_broadcast(x, 0, NULL), CT_DIMS(2, 2), 0, 1, 2, 3, 4);
    CHECK_VALUES(ct_dist_all_gather(x, NULL), CT_DIMS(2, 2), 0, 1, 2, 3, 4);
    CHECK_VALUES(ct_dist_all_gather(ct_scalar(7, CT_F32), NULL), CT_DIMS(1), 0, 7);
    CHECK_VALUES(ct_dist_all_to_all(x, NULL), CT_DIMS(2, 2), 0, 1, 2, 3, 4);
    ct_backward(ct_sum(ct_dist_all_reduce(ct_t(x), CT_DIST_PRODUCT, NULL)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 2), 0, 1, 1, 1, 1);
    ct_dist_group *group = ct_dist_split(NULL, 3, 0);
    CHECK(group && ct_dist_group_size(group) == 1 && ct_dist_group_rank(group) == 0 && ct_dist_barrier(group));
    ct_dist_work *work = ct_dist_all_reduce_start(x, CT_DIST_MEAN, group);
    ct_tensor *y = NULL;
    CHECK(ct_dist_done(work) && ct_dist_wait(work, &y) && ct_requires_grad(y));
    CHECK_VALUES(y, CT_DIMS(2, 2), 0, 1, 2, 3, 4);
    ct_dist_work_free(work);
    ct_dist_group_free(group);
}

TEST(what_cannot_be_reduced_or_sent_is_told) {
    CHECK(!ct_dist_all_reduce(ct_ones(CT_DIMS(2), .dtype = CT_I32), CT_DIST_MEAN, NULL));
    CHECK_ERROR(CT_ERR_VALUE, "dist_all_reduce: only floating dtypes have a mean (x is i32[2])");
    CHECK(!ct_dist_all_reduce(ct_ones(CT_DIMS(2), .dtype = CT_BOOL), CT_DIST_SUM, NULL));
    CHECK_ERROR(CT_ERR_VALUE,
                "dist_all_reduce: bool has max (or) and min (and) alone; cast it to count (x is bool[2])");
    CHECK(!ct_dist_reduce_scatter(ct_scalar(1, CT_F32), CT_DIST_SUM, NULL));
    CHECK_ERROR(CT_ERR_VALUE,
                "dist_reduce_scatter: the first axis of x is cut into one part per rank: x is f32[], and the group "
                "has 1 ranks");
    CHECK(!ct_dist_broadcast(ct_ones(CT_DIMS(2)), 1, NULL));
    CHECK_ERROR(CT_ERR_VALUE, "dist_broadcast: root is 1, and the group has 1 rank");
    CHECK(!ct_dist_send(ct_ones(CT_DIMS(2)), 0, NULL));
    CHECK_ERROR(CT_ERR_VALUE, "dist_send: to is 0, which is this rank itself (this is rank 0 of 1)");
    CHECK(!ct_dist_receive_start(ct_ones(CT_DIMS(2)), 4, NULL));
    CHECK_ERROR(CT_ERR_VALUE, "dist_receive: from is 4, which is no rank of the group (this is rank 0 of 1)");
    CHECK(!ct_dist_all_gather_start(NULL, NULL));
    CHECK_ERROR(CT_ERR_NULL, "dist_all_gather: x is NULL");
}

TEST(more_ranks_without_an_engine_are_a_clear_error) {
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_PROCID", "2", 1);
    CHECK(!ct_dist_init());
    CHECK_ERROR(CT_ERR_DEVICE,
                "dist_init: srun started this process as one of 4 without telling MPI: use srun --mpi=pmix (Open "
                "MPI) or --mpi=pmi2 (MPICH), or CT_DIST=nccl for CUDA devices without MPI");
    setenv("CT_DIST", "none", 1); /* each for itself */
    CHECK(ct_dist_init() && ct_dist_size() == 1);
}

TEST(an_engine_that_is_not_known_is_told) {
    CHECK(!ct_dist_init(.engine = "pigeons"));
    CHECK_ERROR(CT_ERR_VALUE, "dist_init: there is no engine 'pigeons': openmpi, mpich, nccl and none are known");
    CHECK(!ct_dist_init(.timeout = -1));
    CHECK_ERROR(CT_ERR_VALUE, "dist_init: timeout is -1; expected seconds, more than 0");
}

/* The modules' own conversions, which their reductions of halves use, against the library's. */
TEST(halves_are_converted_as_the_library_does) {
    uint16_t bits[65536];
    float wide[65536];
    for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
    const ct_dtype dtypes[] = {CT_F16, CT_BF16};
    for (int d = 0; d < 2; d++) {
        ct_tensor *all = ct_from_data(bits, CT_DIMS(65536), dtypes[d]);
        REQUIRE(ct_read(ct_cast(all, CT_F32), wide, sizeof wide));
        int off = 0;
        for (int i = 0; i < 65536; i++) {
            const float got = d == 0 ? float_of_f16(bits[i]) : float_of_bf16(bits[i]);
            off += isnan(wide[i]) ? !isnan(got) : bits_of_float(got) != bits_of_float(wide[i]);
        }
        CHECK(off == 0);
        /* numbers between, on and beside the halves */
        ct_tensor *between =
            ct_mul(ct_randn(CT_DIMS(200000)), ct_exp2(ct_sub_s(ct_mul_s(ct_rand(CT_DIMS(200000)), 50), 30)));
        float *x = ct_malloc(200000 * sizeof *x);
        uint16_t *y = ct_malloc(200000 * sizeof *y);
        if (CHECK(x && y && ct_read(between, x, 200000 * sizeof *x) &&
                  ct_read(ct_cast(between, dtypes[d]), y, 200000 * sizeof *y)))
            for (int i = 0; i < 200000; i++) off += (d == 0 ? f16_of_float(x[i]) : bf16_of_float(x[i])) != y[i];
        CHECK(off == 0);
        ct_free(x);
        ct_free(y);
    }
}
