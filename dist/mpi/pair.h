/* The sum of f32 over two ranks, by halves. */
#ifndef COTANGENT_DIST_MPI_PAIR_H
#define COTANGENT_DIST_MPI_PAIR_H

#include <mpi.h>

#include "dist/transport.h"

/* Whether this is such a sum, and long enough. */
bool ct__pair_takes(const ct__transfer *transfer, MPI_Comm comm);
/* Begins it; the scale of the transfer is done here, and becomes 0. tag: the same on both, and another for each that is
 * on its way. */
const char *ct__pair_start(ct__transfer *transfer, MPI_Comm comm, int tag, ct__request *request);
bool ct__pair_is(const ct__request *request);
const char *ct__pair_test(ct__request *request, bool *done);
void ct__pair_close(void);

#endif
