/* Numbers and decisions among processes. */
#include "cli/train/exchange.h"

#include <cotangent/dist.h>
#include <stdlib.h>

bool ranks_agree(unsigned *flags) {
    bool right = false;
    ct_scope {
        const double mine[2] = {(*flags & RANKS_STOP) != 0, (*flags & RANKS_SAVE) != 0};
        double any[2] = {0};
        ct_tensor *all = ct_dist_all_reduce(ct_from_data(mine, CT_DIMS(2), CT_F64), CT_DIST_MAX, NULL);
        right = all && ct_read(all, any, sizeof any);
        *flags = (any[0] > 0 ? RANKS_STOP : 0u) | (any[1] > 0 ? RANKS_SAVE : 0u);
    }
    return right;
}

double *ranks_gather(const double *values, int64_t n) {
    const size_t bytes = (size_t)n * (size_t)ct_dist_size() * sizeof *values;
    double *room = malloc(bytes + 1);
    bool right = room || ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    ct_scope {
        ct_tensor *all = right ? ct_dist_all_gather(ct_from_data(values, CT_DIMS(n), CT_F64), NULL) : NULL;
        right = all && ct_read(all, room, bytes);
    }
    if (right) return room;
    free(room);
    return NULL;
}

bool ranks_take_first(double *values, int64_t n) {
    bool right = ct_dist_size() == 1;
    if (right) return true;
    ct_scope {
        ct_tensor *first = ct_dist_broadcast(ct_from_data(values, CT_DIMS(n), CT_F64), 0, NULL);
        right = first && ct_read(first, values, (size_t)n * sizeof *values);
    }
    return right;
}
