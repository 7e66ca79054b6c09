/* The caches of a core, as far as plans look at them, and how it fills them. */
#ifndef CT_BACKENDS_CPU_GEMM_CACHES_H
#define CT_BACKENDS_CPU_GEMM_CACHES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ct_caches {
    int64_t l1_ways, l1_way; /* lines that a set holds, and bytes after which sets come again */
    int64_t l2_ways, l2_way;
    bool reads_ahead; /* reads a run from memory faster by its own prefetching than with prefetches beside it */
} ct_caches;

/* Of this machine, read once. Blocks of sums do not depend on it, so neither do bits. */
const ct_caches *ct__caches(void);

#endif
