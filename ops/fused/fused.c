/* fused has no meaning of its own, but that of the calls that a captured graph has put together: nobody can call it. */
#include "ops/op_impl.h"

void fused_lower(ct_lower *l) { ct_fail(CT_ERR_UNSUPPORTED, l->op->name, "only a captured graph has calls of it"); }
