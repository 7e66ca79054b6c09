/* What every ops/NAME/NAME.c includes, and includes last: the op contract, the generated declarations and
 * attribute structs, helpers for infer, and the ops without their prefix, so that a derivative reads as a formula. */
#ifndef COTANGENT_OP_IMPL_H
#define COTANGENT_OP_IMPL_H

#include <cotangent/op.h>

#include "ops/infer.h"

#include "gen/ops_decl.h"

#include "gen/ops_short.h"

#endif
