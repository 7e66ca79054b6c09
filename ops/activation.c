/* Activations that are fused into other ops. */
#include "ops/activation.h"

#include "core/dtype.h"

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

bool ct__activation_by_result(int activation, ct_dtype dtype) {
    if (activation == CT_ACT_SIGMOID || activation == CT_ACT_TANH) return !ct__dtype_is_half(dtype);
    return activation != CT_ACT_GELU && activation != CT_ACT_SILU;
}

/* The derivatives of the ops themselves, in one pass, from the result. */
static ct_tensor *grad_by_result(const ct_op *grad, ct_tensor *y, ct_tensor *g) {
    ct_tensor *dx = NULL;
    ct_apply(grad, (ct_tensor *[]){y, g}, 2, NULL, &dx, 1);
    return dx;
}

ct_tensor *ct__activation_grad(const ct_op *op, ct_tensor *g, ct_tensor *y, int activation) {
    switch (activation) {
    case CT_ACT_NONE: return g;
    case CT_ACT_RELU: return grad_by_result(&ct__op_relu_grad_x, y, g);
    case CT_ACT_SIGMOID: return grad_by_result(&ct__op_sigmoid_grad_x, y, g);
    case CT_ACT_TANH: return grad_by_result(&ct__op_tanh_grad_x, y, g);
    default: /* reached only by a direct call of an internal op */
        ct_fail(CT_ERR_GRAD, op->name, "this activation's derivative needs its argument; call the public op");
        return NULL;
    }
}
