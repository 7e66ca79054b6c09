/* Ranks that disagree, hang or die: the call ends on every other rank with a text, which is printed. Run by
 * tests/dist.sh under mpirun:
 *     faults shape|dtype|op|order|end|message|deadlock|sleep|kill|begun|meanwhile|network|layer|init|late|one_less */
#include <signal.h>
#include <unistd.h>

#include <cotangent/nn.h>

#include "dist/dist.h"
#include "tests/dist/ranks.h"

static int rank, size;

static ct_tensor *sum_of(ct_dims shape, ct_dtype dtype) {
    return ct_dist_all_reduce(ct_ones(shape, .dtype = dtype), CT_DIST_SUM, NULL);
}

static void train(const char *what, bool odd) {
    const bool other = !strcmp(what, "network") && odd;
    ct_module *net = ct_nn_sequential(ct_nn_linear(3, 4), ct_nn_linear(4, other ? 5 : 2));
    ct_dist_parallel *parallel = ct_dist_data_parallel(net);
    if (parallel && odd) sleep(5); /* in the middle of a step */
    if (parallel && ct_backward(ct_sum(ct_forward(net, ct_ones(CT_DIMS(2, 3)))))) ct_dist_reduce_gradients(parallel);
    ct_dist_parallel_free(parallel);
    ct_module_free(net);
}

/* Ranks disagree, and one of them is slow to say about what: what the others call until then waits behind that, and fails with it. */
static void call_meanwhile(bool odd) {
    enum { CALLS = 3, BLOCKS = 64 };
    void *blocks[BLOCKS];
    ct_dist_work *first = ct_dist_all_reduce_start(ct_ones(CT_DIMS(odd ? 2 : 5)), CT_DIST_SUM, NULL), *more[CALLS];
    usleep(odd ? 500000 : 100000);
    for (int i = 0; i < CALLS && !odd; i++) more[i] = ct_dist_all_reduce_start(ct_ones(CT_DIMS(5)), CT_DIST_SUM, NULL);
    for (int i = 0; i < CALLS && !odd; i++) ct_dist_work_free(more[i]);
    ct_dist_wait(first, NULL);
    ct_dist_work_free(first);
    for (int i = 0; i < BLOCKS; i++) /* over what they were */
        if ((blocks[i] = ct_malloc(sizeof(ct__flight) + 64))) memset(blocks[i], 0x41, sizeof(ct__flight) + 64);
    usleep(50000);
    for (int i = 0; i < BLOCKS; i++) ct_free(blocks[i]);
}

static void do_what(const char *what) {
    const bool odd = rank == size - 1; /* the rank that does something else */
    ct_tensor *x = ct_ones(CT_DIMS(3, 4));
    if (!strcmp(what, "shape")) sum_of(odd ? CT_DIMS(3, 5) : CT_DIMS(3, 4), CT_F32);
    if (!strcmp(what, "dtype")) sum_of(CT_DIMS(2), odd ? CT_F64 : CT_F32);
    if (!strcmp(what, "op")) odd ? ct_dist_all_gather(x, NULL) : sum_of(CT_DIMS(3, 4), CT_F32);
    if (!strcmp(what, "order") && odd) sum_of(CT_DIMS(3, 4), CT_F32); /* one step ahead */
    if (!strcmp(what, "order")) ct_dist_broadcast(x, 0, NULL);
    if (!strcmp(what, "end") && !odd) sum_of(CT_DIMS(7), CT_F32); /* and the odd one ends */
    if (!strcmp(what, "message") && rank == 0) ct_dist_send(x, 1, NULL);
    if (!strcmp(what, "message") && rank == 1) ct_dist_receive(ct_ones(CT_DIMS(4, 3)), 0, NULL);
    if (!strcmp(what, "deadlock") && rank < 2) ct_dist_receive(x, 1 - rank, NULL);
    if (!strcmp(what, "init") && odd) sleep(5); /* if it has come that far */
    if (!strcmp(what, "init")) sum_of(CT_DIMS(3, 4), CT_F32);
    if (!strcmp(what, "one_less")) ct_dist_barrier(NULL);
    if (!strcmp(what, "one_less") && odd) sleep(5);
    if (!strcmp(what, "one_less") && !odd) sum_of(CT_DIMS(3, 4), CT_F32);
    if (!strcmp(what, "late")) sum_of(CT_DIMS(3, 4), CT_F32);
    if (!strcmp(what, "sleep") && odd) sleep(5);
    if (!strcmp(what, "kill") && odd) raise(SIGKILL);
    if (!strcmp(what, "sleep") || !strcmp(what, "kill")) sum_of(CT_DIMS(3, 4), CT_F32);
    if (!strcmp(what, "meanwhile")) call_meanwhile(odd);
    if (!strcmp(what, "network") || !strcmp(what, "layer")) train(what, odd);
    if (!strcmp(what, "begun")) {
        ct_dist_work *first = ct_dist_all_reduce_start(x, CT_DIST_SUM, NULL);
        ct_dist_work *second = ct_dist_all_reduce_start(ct_ones(CT_DIMS(odd ? 2 : 5)), CT_DIST_SUM, NULL);
        CHECK(ct_dist_wait(first, NULL) || !ct_ok());
        CHECK(!ct_dist_wait(second, NULL));
        ct_dist_work_free(first);
        ct_dist_work_free(second);
    }
}

static void die(int signal_number) {
    (void)signal_number;
    raise(SIGKILL);
}

static bool is_last(void) { /* by what the launcher says */
    const char *mine = getenv("OMPI_COMM_WORLD_RANK"), *all = getenv("RANKS");
    if (!mine) mine = getenv("RANK");
    if (!mine) mine = getenv("PMI_RANK");
    return mine && all && atoi(mine) == atoi(all) - 1;
}

int main(int argc, char **argv) {
    const char *what = argc == 2 ? argv[1] : "";
    if (!strcmp(what, "init") && is_last()) { /* it dies on its way into the job */
        signal(SIGALRM, die);
        ualarm(20000, 0);
    }
    if (!strcmp(what, "late") && is_last()) sleep(8); /* the others have given up by then */
    if (argc != 2 || !ct_dist_init(.no_progress = !strcmp(what, "meanwhile") && is_last())) {
        printf("%s\n", ct_error());
        fflush(stdout);
        if (!strcmp(what, "late")) usleep(300000);
        return 2;
    }
    rank = ct_dist_rank();
    size = ct_dist_size();
    ct_scope
        do_what(what);
    if (ct_ok()) ct_dist_end();
    const bool failed = !ct_ok();
    printf("rank %d: %s\n", rank, ct_error());
    fflush(stdout);
    if (failed && !strcmp(what, "begun")) { /* whatever follows says the same */
        ct_error_clear();
        CHECK(!ct_dist_barrier(NULL) &&
              strstr(ct_error(), "nothing can be exchanged after an earlier error: dist_all_reduce"));
    }
    usleep(300000); /* the launcher ends the others when the first one ends: all should have told */
    return failed ? 3 : 0;
}
