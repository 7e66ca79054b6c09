/* Activations that are fused into other ops. */
#include "ops/activation.h"

#include "ops/op_impl.h"

ct_tensor *ct__activated(ct_tensor *x, int activation) {
    switch (activation) {
    case CT_ACT_RELU: return relu(x);
    case CT_ACT_SIGMOID: return sigmoid(x);
    case CT_ACT_TANH: return tanh(x);
    case CT_ACT_GELU: return gelu(x);
    case CT_ACT_SILU: return silu(x);
    default: return x;
    }
}

bool ct__activation_by_result(int activation) { return activation != CT_ACT_GELU && activation != CT_ACT_SILU; }

ct_tensor *ct__activation_grad(const ct_op *op, ct_tensor *g, ct_tensor *y, int activation) {
    switch (activation) {
    case CT_ACT_NONE: return g;
    case CT_ACT_RELU: return mul(g, cast(gt_s(y, 0), ct_dtype_of(g)));
    case CT_ACT_SIGMOID: return mul(g, mul(y, rsub_s(y, 1)));
    case CT_ACT_TANH: return mul(g, rsub_s(square(y), 1));
    default: /* reached only by a direct call of an internal op */
        ct_fail(CT_ERR_GRAD, op->name, "this activation's derivative needs its argument; call the public op");
        return NULL;
    }
}
