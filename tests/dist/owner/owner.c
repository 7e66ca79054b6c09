/* A program that has initialized MPI itself, with one thread as it may: the library joins on the program's thread, leaves MPI to it, and
 * MPI goes on afterwards. Compiled by tests/dist.sh with each mpicc. */
#include <mpi.h>
#include <stdio.h>

#include <cotangent/dist.h>

int main(int argc, char **argv) {
    int rank = -1, size = 0, over = 1, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bool fine = ct_dist_init() && ct_dist_rank() == rank && ct_dist_size() == size;
    ct_scope
        fine = fine &&
               ct_item(ct_dist_all_reduce(ct_scalar(rank + 1, CT_F64), CT_DIST_SUM, NULL)) == size * (size + 1) / 2.0;
    fine = fine && ct_dist_end();
    if (!fine) printf("rank %d: %s\n", rank, ct_error());
    MPI_Finalized(&over);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    fine = fine && !over && sum == size * (size - 1) / 2;
    MPI_Finalize();
    if (fine && rank == 0) printf("%d ranks\n", size);
    return fine ? 0 : 1;
}
