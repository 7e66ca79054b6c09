/* What kernels of check_range say of a value: texts that outlive the call, as a device needs that raises the error later. */
#ifndef COTANGENT_OPS_CHECK_CHECK_H
#define COTANGENT_OPS_CHECK_CHECK_H

#include <cotangent/enums.h>
#include <stdbool.h>

/* By the option `what`; NULL: an element of the argument. */
static const char *const ct__checked_texts[] = {
    [CT_CHECKED_CHOSEN] = "the number of chosen elements",
    [CT_CHECKED_SUM_OF_REPEATS] = "the sum of repeats",
    [CT_CHECKED_SUM_OF_LENGTHS] = "the sum of target_lengths",
    [CT_CHECKED_WEIGHTS_ABOVE_0] = "the number of weights above 0 in row",
    [CT_CHECKED_SUM_OF_WEIGHTS] = "the sum of the weights in row",
};
/* Whether there is one of it for each row, which the text then names. */
static inline bool ct__checked_by_row(int what) {
    return what == CT_CHECKED_WEIGHTS_ABOVE_0 || what == CT_CHECKED_SUM_OF_WEIGHTS;
}

#endif
