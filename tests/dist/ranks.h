/* What the programs that run under mpirun share: checks that say their rank, and values that every rank can compute
 * for every other. */
#ifndef COTANGENT_TESTS_DIST_RANKS_H
#define COTANGENT_TESTS_DIST_RANKS_H

#include <cotangent.h>
#include <cotangent/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static inline bool check_at(bool held, int line, const char *text) {
    if (held) return true;
    failures++;
    printf("rank %d: line %d: %s%s%s\n", ct_dist_rank(), line, text, ct_ok() ? "" : ": ", ct_error());
    fflush(stdout);
    ct_error_clear();
    return false;
}
#define CHECK(condition) check_at((condition), __LINE__, #condition)

/* The element at a row-major position, as a double. */
static inline double at(ct_tensor *x, int64_t i) {
    double value = 0;
    ct_scope {
        ct_tensor *flat = ct_reshape(ct_to(x, (ct_device){CT_CPU, 0}), CT_DIMS(ct_numel(x)));
        value = ct_item(ct_cast(ct_narrow(flat, 0, i, 1), CT_F64));
    }
    return value;
}

static inline int ended(void) { /* the status to exit with */
    const bool mine = failures == 0 && ct_ok();
    if (!ct_ok()) printf("rank %d: %s\n", ct_dist_rank(), ct_error());
    ct_error_clear();
    const int rank = ct_dist_rank();
    const bool left = ct_dist_end();
    if (!left && !ct_ok()) printf("rank %d: %s\n", rank, ct_error());
    return mine && left ? 0 : 1;
}

#endif
