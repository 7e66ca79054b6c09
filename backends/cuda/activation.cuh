// The activations of epilogues, as the ops of these names compute them (ops/elementwise/activation.def), and their derivatives from results.
#pragma once

#include <cotangent.h>

#include "backends/cuda/words.cuh"

template <typename C> CT_DEVICE C ct_activate(int activation, C x) {
    switch (activation) {
    case CT_ACT_RELU: return x <= C(0) ? C(0) : x;
    case CT_ACT_SIGMOID: return ct_sigmoid(x);
    case CT_ACT_TANH: return ct_tanh(x);
    case CT_ACT_GELU: return x * ct_ndtr(x);
    case CT_ACT_SILU: return x * ct_sigmoid(x);
    default: return x;
    }
}

// g times the derivative where the result is y; of activations whose derivative is a function of the result.
template <typename C> CT_DEVICE C ct_activation_grad(int activation, C y, C g) {
    switch (activation) {
    case CT_ACT_RELU: return y <= C(0) ? C(0) : g;
    case CT_ACT_SIGMOID: return g * (y * (C(1) - y));
    case CT_ACT_TANH: return g * (C(1) - y * y);
    default: return g;
    }
}
