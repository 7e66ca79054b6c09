/* Every allocation of tensors fails once while networks are built, copied, converted, stored and run: an error or success, no
 * crash, no leak. */
#include <cotangent/nn.h>
#include <stdio.h>

#include "core/alloc.h"
#include "harness.h"

static ct_module *build_layers(void) {
    return ct_nn_sequential(
        ct_nn_conv2d(2, 4, 3, .pad = 1), ct_nn_relu(), ct_nn_batch_norm(4), ct_nn_separable_conv2d(4, 4, 3, .pad = 1),
        ct_nn_residual(ct_nn_deform_conv2d(4, 4, 3, .pad = 1, .modulated = true), ct_nn_conv2d(4, 4, 1), CT_ACT_RELU),
        ct_nn_adaptive_avg_pool2d(2), ct_nn_flatten(), ct_nn_linear(16, 8), ct_nn_dropout(0.1), ct_nn_linear(8, 3));
}

static ct_module *build_gpt(void) {
    return ct_nn_gpt(7, .context = 4, .dim = 6, .heads = 2, .layers = 1, .dropout = 0.1, .tied = true);
}

/* Everything that is done to networks; false when something failed. */
static bool use(ct_module *net, ct_tensor *x, bool convert) {
    bool ok = false;
    ct_module *copy = NULL;
    ct_state *state = NULL;
    ct_scope {
        if (!net || !x) break;
        ok = ct_backward(ct_mean(ct_forward(net, x))) && ct_module_zero_grad(net);
        copy = ok ? ct_module_copy(net) : NULL;
        state = copy ? ct_state_new() : NULL;
        ok = state && ct_module_put_state(net, state, "net.") && ct_module_take_state(copy, state, "net.") &&
             ct_module_freeze(copy, true) && ct_eval(copy) && ct_module_freeze(copy, false);
        ct_no_grad {
            ok = ok && ct_forward(copy, x);
        }
        ok = ok && (!convert || ct_module_to_dtype(copy, CT_F64));
    }
    ct_state_free(state);
    ct_module_free(copy);
    ct_module_free(net);
    return ok;
}

static bool use_layers(void) {
    ct_scope {
        return use(build_layers(), ct_ones(CT_DIMS(2, 2, 5, 5)), true);
    }
    return false;
}

static bool use_gpt(void) {
    ct_scope {
        return use(build_gpt(), ct_zeros(CT_DIMS(2, 3), .dtype = CT_I64), true);
    }
    return false;
}

static void fail_everywhere(bool (*step)(void)) {
    REQUIRE(step()); /* caches fill up, tables are made */
    const int64_t live = ct_live_objects();
    int64_t n = 1;
    for (bool reached = true; reached && !harness_failed(); n++) {
        ct__alloc_fail_at(n);
        const bool ok = step();
        reached = ct__alloc_fail_left() <= 0;
        ct__alloc_fail_at(0);
        harness_check(ok == ct_ok() && (ok || ct_error_code() == CT_ERR_MEMORY), __FILE__, __LINE__,
                      "allocation %lld: it returned %d with error '%s'", (long long)n, ok, ct_error());
        ct_error_clear();
        harness_check(ct_live_objects() == live, __FILE__, __LINE__, "allocation %lld: %lld objects leaked",
                      (long long)n, (long long)(ct_live_objects() - live));
        harness_check(ct_grad_enabled(), __FILE__, __LINE__, "allocation %lld: grad mode was left off", (long long)n);
    }
    CHECK(n > 100);
}

TEST_LIMIT(layers_survive_the_failure_of_any_allocation, 120) { fail_everywhere(use_layers); }
TEST_LIMIT(a_model_survives_the_failure_of_any_allocation, 120) { fail_everywhere(use_gpt); }
