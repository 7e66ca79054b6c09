/* to: the copy is the core's, which alone knows both devices. */
#include "core/transfer.h"

#include "ops/op_impl.h"

bool to_infer(ct_infer *infer) {
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    return true;
}

void to_lower(ct_lower *l) { l->out[0] = ct__transfer(l->in[0], l->device, "to"); }

void to_vjp(ct_vjp *v) { v->grad[0] = to(v->cot[0], v->device); }
