/* Every allocation in the life of an optimizer, a schedule, an average or a scaler fails once: an error or success, nothing lost,
 * and a step that failed has changed no parameter. */
#include <cotangent/optim.h>
#include <string.h>

#include "tests/fail_everywhere.h"

enum { MOST = 3000 };

static ct_tensor *sum_of_squares(void *context) { return ct_sum(ct_square(context)); }

/* Two steps, clipping and a round trip through a state; whether all went well. *moved: the parameter changed. */
static bool live(const ct_optim_info *info, ct_dtype dtype, bool lookahead, bool *moved) {
    bool ok = false;
    *moved = false;
    ct_scope {
        ct_tensor *x = ct_set_requires_grad(ct_full(CT_DIMS(33), 2, .dtype = dtype), true);
        ct_optim *opt = x ? ct_optim_build(info, NULL, NULL) : NULL;
        if (lookahead && opt) opt = ct_lookahead(opt, .k = 1);
        ct_state *state = ct_state_new();
        ok = opt && state && ct_optim_add_tensor(opt, "x", x);
        for (int t = 0; ok && t < 2; t++) {
            if (info->needs_loss) {
                ct_optim_step_with(opt, sum_of_squares, x);
            } else {
                ct_scope {
                    ct_set_grad(x, ct_ones(CT_DIMS(33), .dtype = dtype));
                }
                ct_optim_clip_grad_norm(opt, 1.0);
                const int64_t before = ct_optim_steps(opt);
                const double value = ct_ok() ? harness_at(x, 0) : 0;
                if (ct_ok() && !ct_optim_step(opt) && ct_optim_steps(opt) == before) {
                    /* reading needs memory too: look after the error is out of the way */
                    char text[256];
                    const ct_code code = ct_error_code();
                    strncpy(text, ct_error(), sizeof text - 1);
                    text[sizeof text - 1] = 0;
                    ct__alloc_fail_at(0);
                    ct_error_clear();
                    *moved = harness_at(x, 0) != value;
                    ct_fail(code, "", "%s", text);
                }
            }
            ok = ct_ok();
        }
        ok = ok && ct_optim_put_state(opt, state, "o.") && ct_optim_take_state(opt, state, "o.");
        ct_state_free(state);
        ct_optim_free(opt);
    }
    return ok;
}

static void fail_optimizer(const ct_optim_info *info, ct_dtype dtype, bool lookahead) {
    bool moved, reached = true;
    CHECK(live(info, dtype, lookahead, &moved) && live(info, dtype, lookahead, &moved));
    const int64_t objects = ct_live_objects(), in_use = harness_memory().in_use;
    int n = 1;
    for (; reached && n < MOST; n++) {
        ct__alloc_fail_at(n);
        const bool ok = live(info, dtype, lookahead, &moved);
        reached = ct__alloc_fail_left() <= 0;
        ct__alloc_fail_at(0);
        harness_check(ok == ct_ok() && (ok || ct_error_code() == CT_ERR_MEMORY), __FILE__, __LINE__,
                      "%s, allocation %d: it returned %d with error '%s'", info->name, n, ok, ct_error());
        /* Lookahead moves the weights in a second pass, which can fail by itself */
        harness_check(!moved || lookahead, __FILE__, __LINE__, "%s, allocation %d: a failed step changed x", info->name,
                      n);
        ct_error_clear();
        if (!harness_check(ct_live_objects() == objects, __FILE__, __LINE__, "%s, allocation %d: %lld objects are lost",
                           info->name, n, (long long)(ct_live_objects() - objects)))
            break;
        if (!harness_check(harness_memory().in_use <= in_use + harness_buried(), __FILE__, __LINE__,
                           "%s, allocation %d: %lld bytes are lost", info->name, n,
                           (long long)(harness_memory().in_use - in_use)))
            break;
    }
    CHECK(n > 3 && n < MOST);
}

TEST(every_allocation_of_an_optimizer_can_fail) {
    ct_set_threads(1);
    for (int i = 0; ct_optim_info_at(i); i++) {
        fail_optimizer(ct_optim_info_at(i), CT_F32, false);
        if (!ct_optim_info_at(i)->needs_loss) fail_optimizer(ct_optim_info_at(i), CT_BF16, false);
    }
    fail_optimizer(ct_optim_find("adam"), CT_F32, true);
}

/* ---- What is built on an optimizer ---- */

static const ct_schedule_info *schedule_info;
static bool use_schedule(void) {
    ct_module *net = ct_nn_linear(2, 2);
    ct_optim *opt = net ? ct_sgd(net, .momentum = CT_SET(0.9)) : NULL;
    ct_schedule *s = opt ? ct_schedule_build(schedule_info, opt, NULL, 20) : NULL;
    ct_state *state = s ? ct_state_new() : NULL;
    bool ok = state != NULL;
    for (int i = 0; ok && i < 3; i++) ok = ct_schedule_step_metric(s, 1.0);
    ok = ok && ct_schedule_put_state(s, state, "s.") && ct_schedule_take_state(s, state, "s.") &&
         ct_optim_group(opt, "bias", .lr = 0.5);
    ct_state_free(state);
    ct_schedule_free(s);
    ct_optim_free(opt);
    ct_module_free(net);
    return ok;
}

static bool use_sequence(void) {
    ct_module *net = ct_nn_linear(2, 2);
    ct_optim *opt = net ? ct_sgd(net) : NULL;
    ct_schedule *one = opt ? ct_schedule_warmup(opt, 3) : NULL, *two = one ? ct_schedule_exponential(opt, 0.9) : NULL;
    ct_schedule *chain = two ? ct_schedule_chain((ct_schedule *[]){two}, 1) : NULL;
    ct_schedule *all = chain ? ct_schedule_sequence((ct_schedule *[]){one, chain}, 2, (const int64_t[]){3}) : NULL;
    bool ok = all != NULL;
    for (int i = 0; ok && i < 5; i++) ok = ct_schedule_step(all);
    if (all) ct_schedule_free(all);
    else if (!chain) ct_schedule_free(one); /* what was given away is gone, also where that failed */
    ct_optim_free(opt);
    ct_module_free(net);
    return ok;
}

static bool use_average(void) {
    bool ok = false;
    ct_module *net = ct_nn_sequential(ct_nn_linear(3, 2), ct_nn_batch_norm(2));
    ct_optim *opt = net ? ct_adamw(net) : NULL;
    ct_ema *ema = opt ? ct_ema_new(net, .decay = CT_SET(0.5)) : NULL;
    ct_scaler *scaler = ema ? ct_scaler_new(8) : NULL;
    ct_state *state = scaler ? ct_state_new() : NULL;
    ct_scope {
        ct_tensor *loss = state ? ct_mean(ct_forward(net, ct_ones(CT_DIMS(4, 3)))) : NULL;
        ok = loss && ct_backward(ct_scaler_scale(scaler, loss)) && ct_scaler_unscale(scaler, opt) &&
             ct_clip_grad_norm(net, 0.5) >= 0 && ct_clip_grad_value(net, 0.1) && ct_scaler_step(scaler, opt) &&
             ct_scaler_update(scaler) && ct_ema_update(ema) && ct_ema_swap_in(ema) && ct_ema_swap_out(ema) &&
             ct_ema_put_state(ema, state, "e.") && ct_ema_take_state(ema, state, "e.") &&
             ct_scaler_put_state(scaler, state, "s.") && ct_scaler_take_state(scaler, state, "s.");
    }
    ct_state_free(state);
    ct_scaler_free(scaler);
    ct_ema_free(ema);
    ct_optim_free(opt);
    ct_module_free(net);
    return ok;
}

TEST_LIMIT(schedules_survive_the_failure_of_any_allocation, 300) {
    for (int i = 0; (schedule_info = ct_schedule_info_at(i)); i++)
        CHECK(fail_everywhere(schedule_info->name, use_schedule) > 10);
    CHECK(FAIL_EVERYWHERE(use_sequence) > 10);
}
TEST_LIMIT(averages_and_scalers_survive_the_failure_of_any_allocation, 300) {
    CHECK(FAIL_EVERYWHERE(use_average) > 100);
}
