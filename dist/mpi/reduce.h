/* The reductions that MPI does not have as the library means them. */
#ifndef COTANGENT_DIST_MPI_REDUCE_H
#define COTANGENT_DIST_MPI_REDUCE_H

#include <mpi.h>

#include "dist/transport.h"

/* Made once, when the job is joined. */
const char *ct__reduce_open(void);
/* The datatype and the operation for a dtype; what went wrong where there is none. */
const char *ct__reduce_find(ct_dtype dtype, ct_dist_reduction reduction, MPI_Datatype *type, MPI_Op *op);
const char *ct__type_find(ct_dtype dtype, MPI_Datatype *type);
const char *ct__mpi_problem(int code); /* NULL: none */
void ct__request_put(ct__request *request, MPI_Request mpi);

#endif
