/* Who started this process: the environment that mpirun, srun and torchrun leave. */
#include <stdlib.h>

#include "dist/dist.h"

typedef struct launcher {
    const char *engine, *who;
    const char *count; /* the variable that says how many ranks there are */
    const char *also;  /* one that has to be there as well, or NULL */
} launcher;

/* In order: srun sets variables of its own beside those of the process manager that it plays. */
static const launcher launchers[] = {
    {"openmpi", "Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", NULL},
    {"mpich", "MPICH's mpiexec or srun --mpi=pmi2", "PMI_SIZE", "PMI_RANK"},
    {"openmpi", "srun --mpi=pmix", "SLURM_STEP_NUM_TASKS", "PMIX_RANK"},
    {"slurm", "srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    {"nccl", "torchrun", "WORLD_SIZE", "MASTER_ADDR"},
};

const char *ct__launcher(int *ranks, const char **who) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        const char *count = getenv(l->count);
        if (!count || (l->also && !getenv(l->also))) continue;
        *ranks = atoi(count);
        *who = l->who;
        return l->engine;
    }
    *ranks = 1;
    *who = "";
    return NULL;
}
