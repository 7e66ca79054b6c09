/* What `cotangent inspect` computes of a tensor. */
#ifndef COTANGENT_CLI_INSPECT_H
#define COTANGENT_CLI_INSPECT_H

#include <cotangent.h>

enum { INSPECT_BINS = 16 };

typedef struct inspect_stats {
    bool known; /* false for complex numbers, and where there was an error */
    int64_t finite, nan, infinite;
    double min, max, mean, std;      /* of the finite ones; NaN when there are none */
    int64_t histogram[INSPECT_BINS]; /* equal bins from min to max */
} inspect_stats;

inspect_stats inspect_tensor(ct_tensor *x);

#endif
