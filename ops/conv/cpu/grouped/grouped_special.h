/* The candidates that take special shapes before the implicit product: 3x3 by Winograd, one channel a group, few channels a
 * group. For the tables of conv.c. */
#ifndef COTANGENT_OPS_CONV_GROUPED_SPECIAL_H
#define COTANGENT_OPS_CONV_GROUPED_SPECIAL_H

#include "ops/conv/cpu/kernels.h"

CONV_CANDIDATE(winograd)
CONV_CANDIDATE(depthwise)
CONV_CANDIDATE(grouped)
#define CONV_SPECIAL CONV_ENTRY(winograd), CONV_ENTRY(depthwise), CONV_ENTRY(grouped)

#endif
