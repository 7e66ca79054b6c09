/* A program that has initialized MPI itself, and goes on to use it after a call was given up: the rank that was missing comes then, and MPI
 * completes what had begun. Nothing is written to memory that is others' by now. Compiled by tests/dist.sh with each mpicc. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cotangent/dist.h>

/* Blocks of many sizes, in which what the library has given back is used again. */
enum { MARK = 0xA5, BLOCKS = 1024 };
static unsigned char *blocks[BLOCKS];
static size_t bytes_of(int i) { return (size_t)(i % 128 + 1) * 16; }

static bool take_blocks(void) {
    for (int i = 0; i < BLOCKS; i++) {
        if (!(blocks[i] = ct_malloc(bytes_of(i)))) return false;
        memset(blocks[i], MARK, bytes_of(i));
    }
    return true;
}
static int marks_lost(void) {
    int lost = 0;
    for (int i = 0; i < BLOCKS; i++)
        for (size_t k = 0; k < bytes_of(i); k++) lost += blocks[i][k] != MARK;
    return lost;
}

int main(int argc, char **argv) {
    int rank = -1, size = 0, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bool fine = ct_dist_init(.timeout = 2);
    if (rank == 1) nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
    ct_dist_work *work = fine ? ct_dist_all_reduce_start(ct_ones(CT_DIMS(8)), CT_DIST_SUM, NULL) : NULL;
    fine = work && !ct_dist_wait(work, NULL) && ct_error_code() == CT_ERR_STATE;
    ct_dist_work_free(work);
    fine = take_blocks() && fine;
    for (int i = 0; i < 20; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    const int lost = fine ? marks_lost() : 0;
    if (!fine || lost) printf("rank %d: %d bytes of other memory have changed; %s\n", rank, lost, ct_error());
    MPI_Finalize();
    if (fine && !lost && rank == 0) printf("%d ranks\n", size);
    return fine && !lost ? 0 : 1;
}
