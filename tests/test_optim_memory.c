/* Every allocation of tensor memory in the life of an optimizer fails once: an error or success, nothing lost, and a step that
 * failed has changed no parameter. */
#include <cotangent/optim.h>
#include <string.h>

#include "core/alloc.h"
#include "tests/harness.h"

enum { MOST = 3000 };

static ct_tensor *sum_of_squares(void *context) { return ct_sum(ct_square(context)); }

/* Two steps, clipping and a round trip through a state; whether all went well. *moved: the parameter changed. */
static bool live(const ct_optim_info *info, ct_dtype dtype, bool lookahead, bool *moved) {
    bool ok = false;
    *moved = false;
    ct_scope {
        ct_tensor *x = ct_require_grad(ct_full(CT_DIMS(33), 2, .dtype = dtype));
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

static void fail_everywhere(const ct_optim_info *info, ct_dtype dtype, bool lookahead) {
    bool moved, reached = true;
    CHECK(live(info, dtype, lookahead, &moved));
    const int64_t objects = ct_live_objects();
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
    }
    CHECK(n > 3 && n < MOST);
}

TEST(every_allocation_of_an_optimizer_can_fail) {
    ct_set_threads(1);
    for (int i = 0; ct_optim_info_at(i); i++) {
        fail_everywhere(ct_optim_info_at(i), CT_F32, false);
        if (!ct_optim_info_at(i)->needs_loss) fail_everywhere(ct_optim_info_at(i), CT_BF16, false);
    }
    fail_everywhere(ct_optim_find("adam"), CT_F32, true);
}
