/* Optimizer steps on an NVIDIA device against the CPU: lists longer than one table, items of every dtype and layout, clipping and loss scaling.
 * Without a device all of it is skipped, and says why. */
#include <math.h>
#include <stdio.h>

#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};

enum { MANY = 190, STEPS = 20 }; /* MANY: more items than two tables hold */

static ct_tensor *numbers(int seed, ct_dims shape, ct_dtype dtype) {
    ct_seed((uint64_t)seed);
    return ct_cast(ct_randn(shape), dtype);
}

static ct_dims shape_of(int i) {
    if (i % 37 == 5) return CT_DIMS(0, 3);
    if (i % 23 == 7) return CT_DIMS0;
    if (i == 40) return CT_DIMS(300, 67); /* several chunks and a rest */
    if (i % 5 == 0) return CT_DIMS(7, 11);
    return CT_DIMS(1 + i % 61);
}
static ct_dtype dtype_of(int i, bool mixed) {
    return !mixed ? CT_F32 : i % 11 == 3 ? CT_F64 : i % 11 == 5 ? CT_F16 : i % 11 == 8 ? CT_BF16 : CT_F32;
}

/* A parameter on a device; one of a few lies in part of something larger, out of line with 16 bytes, or transposed. */
static ct_tensor *parameter(int i, bool mixed, ct_device d) {
    ct_tensor *x = ct_to(numbers(i, shape_of(i), dtype_of(i, mixed)), d);
    if (mixed && i % 13 == 4 && ct_ndim(x) == 1) {
        ct_tensor *room = ct_zeros(CT_DIMS(ct_dim(x, 0) + 1), .dtype = ct_dtype_of(x), .device = d);
        ct_tensor *part = ct_narrow(room, 0, 1, ct_dim(x, 0));
        ct_assign(part, x);
        x = ct_detach(part);
    } else if (mixed && i % 10 == 0 && ct_ndim(x) == 2) {
        x = ct_detach(ct_t(ct_contiguous(ct_t(x))));
    }
    return ct_set_requires_grad(x, true);
}

typedef struct training {
    ct_optim *opt;
    ct_scaler *scaler;
    ct_tensor *x[MANY];
} training;

static bool begin(training *t, const ct_optim_info *info, bool mixed, bool scaled, ct_device d) {
    char name[16];
    *t = (training){.opt = ct_optim_build(info, NULL, NULL), .scaler = scaled ? ct_scaler_new(1024) : NULL};
    bool ok = t->opt != NULL;
    for (int i = 0; ok && i < MANY; i++) {
        snprintf(name, sizeof name, "x%d", i);
        t->x[i] = parameter(i, mixed, d);
        ok = ct_optim_add_tensor(t->opt, name, t->x[i]);
    }
    return ok;
}

/* The gradients of a step; bad: one of them is infinite. */
static bool give_gradients(training *t, int step, bool mixed, bool bad, ct_device d) {
    bool ok = true;
    for (int i = 0; ok && i < MANY; i++)
        ct_scope {
            ct_tensor *g = numbers(1000 * (step + 1) + i, shape_of(i), dtype_of(i, mixed));
            if (bad && i == MANY - 3) g = ct_mul_s(g, (double)INFINITY);
            ok = ct_set_grad(t->x[i], ct_to(g, d));
        }
    return ok;
}

static bool step(training *t, int i, bool mixed, double limit, bool bad, ct_device d) {
    bool ok = give_gradients(t, i, mixed, bad, d);
    if (t->scaler) ok = ok && ct_scaler_scale(t->scaler, ct_zeros(CT_DIMS0, .device = d)) != NULL;
    if (t->scaler) ok = ok && ct_scaler_unscale(t->scaler, t->opt);
    if (limit > 0) ok = ok && ct_optim_clip_grad_norm_tensor(t->opt, limit) != NULL;
    return ok && (t->scaler ? ct_scaler_step(t->scaler, t->opt) && ct_scaler_update(t->scaler) : ct_optim_step(t->opt));
}

static void end(training *t) {
    ct_optim_free(t->opt);
    ct_scaler_free(t->scaler);
}

/* As near as the rounding of so many steps lets them be; a half rounds to its own neighbours. */
static bool near(ct_tensor *a, ct_tensor *b) {
    if (ct_numel(a) == 0) return true;
    const ct_dtype dtype = ct_dtype_of(a);
    const double eps = dtype == CT_BF16  ? 0x1p-7
                       : dtype == CT_F16 ? 0x1p-10
                       : dtype == CT_F64 ? 1e-13
                                         : STEPS * 0x1p-22;
    a = ct_cast(ct_to(a, cpu), CT_F64), b = ct_cast(ct_to(b, cpu), CT_F64);
    ct_tensor *apart = ct_abs(ct_sub(a, b)), *limit = ct_mul_s(ct_add_s(ct_abs(b), 0.1), eps);
    return ct_ok() && ct_item(ct_amax(ct_sub(apart, limit))) <= 0;
}

static void compare(const char *name, bool mixed, bool scaled, double limit, ct_device d) {
    const ct_optim_info *info = ct_optim_find(name);
    training here, there;
    REQUIRE(info && begin(&here, info, mixed, scaled, cpu) && begin(&there, info, mixed, scaled, d));
    bool ok = true;
    for (int i = 0; ok && i < STEPS; i++)
        ct_scope {
            const bool bad = scaled && i == 4;
            ok = step(&here, i, mixed, bad ? 0 : limit, bad, cpu) && step(&there, i, mixed, bad ? 0 : limit, bad, d);
        }
    harness_check(ok && ct_ok(), __FILE__, __LINE__, "%s: %s", name, ct_ok() ? "" : ct_error());
    for (int i = 0; i < MANY; i++)
        ct_scope {
            harness_check(near(there.x[i], here.x[i]), __FILE__, __LINE__, "%s: parameter %d is not the CPU's", name,
                          i);
        }
    CHECK(ct_optim_steps(there.opt) == ct_optim_steps(here.opt));
    if (scaled)
        CHECK(ct_optim_steps(there.opt) == STEPS - 1 && ct_scaler_value(there.scaler) == ct_scaler_value(here.scaler));
    end(&here);
    end(&there);
}

static const char *const all[] = {"sgd",     "adam",     "adamw", "radam", "nadam", "rmsprop",
                                  "adagrad", "adadelta", "lamb",  "lars",  "lion"};
enum { ALL = sizeof all / sizeof *all };

TEST_LIMIT(twenty_steps_of_every_optimizer_are_those_of_the_cpu, 300) {
    CUDA(d);
    for (int i = 0; i < ALL; i++) compare(all[i], false, false, 0, d);
}

TEST_LIMIT(so_are_steps_of_mixed_dtypes_and_layouts, 300) {
    CUDA(d);
    for (int i = 0; i < ALL; i++) compare(all[i], true, false, 0, d);
}

TEST_LIMIT(so_are_steps_with_clipping_and_a_loss_scaler, 300) {
    CUDA(d);
    compare("adamw", true, true, 0.5, d);
    compare("sgd", false, true, 0.5, d);
    compare("lamb", false, true, 0.5, d);
}

TEST_LIMIT(a_shut_gate_leaves_everything_as_it_was, 120) {
    CUDA(d);
    for (int k = 0; k < ALL; k++) {
        training t;
        REQUIRE(begin(&t, ct_optim_find(all[k]), true, true, d));
        bool ok = true;
        for (int i = 0; ok && i < 3; i++)
            ct_scope {
                ok = step(&t, i, true, 0, false, d);
            }
        ct_scope {
            ct_tensor *before[MANY];
            ct_state *states[2] = {ct_state_new(), ct_state_new()};
            for (int i = 0; i < MANY; i++) before[i] = ct_clone(ct_detach(t.x[i]));
            ok = ok && ct_optim_put_state(t.opt, states[0], "o");
            ct_tensor *kept[3 * MANY];
            int n = 0;
            for (int i = 0; ok && i < ct_state_count(states[0]) && n < 3 * MANY; i++)
                kept[n++] = ct_clone(ct_state_at(states[0], i));
            ok = ok && step(&t, 3, true, 0, true, d) && ct_scaler_skipped(t.scaler);
            ok = ok && ct_optim_put_state(t.opt, states[1], "o");
            CHECK(ok && ct_ok() && ct_optim_steps(t.opt) == 3);
            for (int i = 0; i < MANY; i++)
                CHECK(harness_same_bits(ct_to(ct_detach(t.x[i]), cpu), ct_to(before[i], cpu)));
            for (int i = 0; i < n; i++) {
                const char *name = ct_state_name(states[0], i);
                ct_tensor *now = ct_state_get(states[1], name);
                harness_check(now && harness_same_bits(ct_to(now, cpu), ct_to(kept[i], cpu)), __FILE__, __LINE__,
                              "%s: %s has changed", all[k], name);
            }
            ct_state_free(states[0]);
            ct_state_free(states[1]);
        }
        end(&t);
    }
}

TEST_LIMIT(norms_and_averages_of_long_lists_are_those_of_the_cpu, 120) {
    CUDA(d);
    const ct_optim_info *info = ct_optim_find("sgd");
    training here, there;
    REQUIRE(begin(&here, info, true, false, cpu) && begin(&there, info, true, false, d));
    CHECK(give_gradients(&here, 0, true, false, cpu) && give_gradients(&there, 0, true, false, d));
    const double kinds[] = {2, 1, 3, (double)INFINITY};
    for (int i = 0; i < 4; i++) {
        const double a = ct_optim_clip_grad_norm(here.opt, (double)INFINITY, .norm_type = kinds[i]);
        const double b = ct_optim_clip_grad_norm(there.opt, (double)INFINITY, .norm_type = kinds[i]);
        CHECK_NEAR(b, a, 1e-12 * a);
    }
    const double first = ct_optim_grad_norm(there.opt);
    for (int i = 0; i < 5; i++) CHECK(ct_optim_grad_norm(there.opt) == first);
    end(&here);
    end(&there);
}
