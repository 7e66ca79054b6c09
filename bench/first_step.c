/* A program that builds the MLP, takes one training step and ends: how long that takes from the start of the process is
 * measured by bench/first_step.sh. */
#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

int main(void) {
    ct_module *net = ct_nn_mlp(CT_DIMS(784, 512, 512, 10), CT_ACT_RELU);
    ct_optim *opt = ct_sgd(net, .lr = 0.01);
    ct_scope {
        ct_tensor *logits = ct_forward(net, ct_randn(CT_DIMS(64, 784)));
        ct_backward(ct_cross_entropy_loss(logits, ct_randint(CT_DIMS(64), 0, 10)));
        ct_optim_step(opt);
    }
    ct_optim_free(opt);
    ct_module_free(net);
    return ct_ok() ? 0 : 1;
}
