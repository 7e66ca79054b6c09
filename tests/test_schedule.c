/* Schedules against PyTorch's (tests/refs/schedule.txt, written by tools/refs/optim.py), their state, and what they refuse. */
#include <cotangent/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { STEPS = 30 };

/* ---- The reference ---- */

static double given_metric(int t) { return t < 6 ? 1.0 / (t + 1) : 0.2 + 0.01 * ((t * 7) % 5); }

static double word(const char *line, const char *name, double missing) {
    char key[64];
    snprintf(key, sizeof key, " %s=", name);
    const char *at = strstr(line, key);
    return at ? strtod(at + strlen(key), NULL) : missing;
}

static double hyperbola(void *context, int64_t t) { return 1 / (1 + *(double *)context * (double)t); }

/* The schedules that the file marks with !: made by their functions. */
static ct_schedule *make_own(const char *name, ct_optim *opt) {
    static double half = 0.5;
    if (strcmp(name, "warmup") == 0) return ct_schedule_warmup(opt, 10);
    if (strcmp(name, "constant") == 0) return ct_schedule_constant(opt, 0.25, 5);
    if (strcmp(name, "lambda") == 0) return ct_schedule_lambda(opt, hyperbola, &half);
    if (strcmp(name, "cyclic_momentum") == 0) return ct_schedule_cyclic(opt, 0.1, 0.5, .up = 5, .cycle_momentum = true);
    if (strcmp(name, "chain") == 0)
        return ct_schedule_chain(
            (ct_schedule *[]){ct_schedule_constant(opt, 0.1, 8), ct_schedule_exponential(opt, 0.9)}, 2);
    if (strcmp(name, "sequence") == 0)
        return ct_schedule_sequence((ct_schedule *[]){ct_schedule_warmup(opt, 5, .start = 0.1),
                                                      ct_schedule_cosine(opt, 10), ct_schedule_exponential(opt, 0.8)},
                                    3, (int64_t[]){5, 15});
    return NULL;
}

static ct_schedule *make(const char *line, const char *name, ct_optim *opt) {
    if (name[0] == '!') return make_own(name + 1, opt);
    const ct_schedule_info *info = ct_schedule_find(name);
    double values[16];
    if (!CHECK(info != NULL)) return NULL;
    for (int i = 0; i < info->count; i++) {
        const bool milestone = strncmp(info->settings[i].name, "milestone", 9) == 0;
        values[i] = word(line, info->settings[i].name, milestone ? 0 : info->settings[i].value);
    }
    return ct_schedule_build(info, opt, values, STEPS);
}

/* PyTorch goes from each rate to the next by a factor, and rounds at every step; ours are closed forms. */
static void compare(const char *name, const char *what, int t, double got, double expected) {
    harness_check(fabs(got - expected) <= 64 * 0x1p-53 * fmax(fabs(expected), 0.1), name, t, "%s is %.17g, not %.17g",
                  what, got, expected);
}

TEST(schedules_follow_the_reference) {
    const char *root = getenv("CT_SOURCE_DIR");
    char path[4096], line[4096];
    if (root) snprintf(path, sizeof path, "%s/tests/refs/schedule.txt", root);
    else snprintf(path, sizeof path, "%.*s/refs/schedule.txt", (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__);
    FILE *refs = fopen(path, "r");
    REQUIRE(refs != NULL);
    int count = 0;
    char name[64] = "";
    double rates[STEPS], momenta[STEPS];
    while (fgets(line, sizeof line, refs)) {
        if (strncmp(line, "case ", 5) == 0) {
            sscanf(line, "case %63s", name);
            ct_optim *opt = ct_sgd(NULL, .lr = 0.4, .momentum = CT_SET(0.9));
            ct_schedule *s = make(line, name, opt);
            if (!CHECK(s != NULL)) printf("%s: %s\n", name, ct_error());
            const bool metric = ct_schedule_needs_metric(s);
            for (int t = 0; t < STEPS; t++) {
                CHECK(ct_schedule_steps(s) == t);
                rates[t] = ct_optim_lr(opt);
                momenta[t] = ct_optim_momentum(opt);
                CHECK(metric ? ct_schedule_step_metric(s, given_metric(t)) : ct_schedule_step(s));
            }
            ct_schedule_free(s);
            ct_optim_free(opt);
            count++;
            continue;
        }
        const bool is_rate = strncmp(line, "lr ", 3) == 0;
        char *at = line + (is_rate ? 3 : 9);
        for (int t = 0; t < STEPS && line[0] != '#'; t++)
            compare(name, is_rate ? "lr" : "momentum", t, is_rate ? rates[t] : momenta[t], strtod(at, &at));
    }
    fclose(refs);
    CHECK(count == 25);
}

/* ---- Behaviours ---- */

TEST(groups_keep_their_proportion) {
    ct_tensor *a = ct_set_requires_grad(F64(CT_DIMS(1), 1), true), *b = ct_set_requires_grad(F64(CT_DIMS(1), 1), true);
    ct_optim *opt = ct_sgd(NULL, .lr = 0.1);
    ct_optim_add_tensor(opt, "a", a);
    ct_optim_add_tensor(opt, "b", b);
    ct_optim_group(opt, "b", .lr = 0.5);
    ct_schedule *s = ct_schedule_cosine(opt, 10, .min_lr = 0.01);
    for (int i = 0; i < 10; i++) CHECK(ct_schedule_step(s));
    CHECK_NEAR(ct_optim_lr(opt), 0.01, 1e-17);
    ct_set_grad(a, F64(CT_DIMS(1), 1));
    ct_set_grad(b, F64(CT_DIMS(1), 1));
    CHECK(ct_optim_step(opt));
    CHECK_NEAR(harness_at(a, 0), 1 - 0.01, 1e-15);
    CHECK_NEAR(harness_at(b, 0), 1 - 0.05, 1e-15);
    ct_schedule_free(s);
    ct_optim_free(opt);
}

TEST(a_warm_up_goes_before_any_schedule_by_name) {
    ct_optim *opt = ct_sgd(NULL, .lr = 1);
    ct_schedule *s = ct_schedule_build(ct_schedule_find("cosine"), opt, (double[]){0.2, 0, 0}, 20);
    REQUIRE(s != NULL);
    for (int t = 0; t <= 20; t++) {
        const double expected = t < 4 ? (t + 1) / 5.0 : (1 + cos(3.14159265358979323846 * (t - 4) / 16)) / 2;
        CHECK_NEAR(ct_optim_lr(opt), expected, 1e-15);
        CHECK(ct_schedule_step(s));
    }
    ct_schedule_free(s);
    ct_optim_free(opt);
}

TEST(every_schedule_by_name_has_defaults_that_work) {
    for (int i = 0; ct_schedule_info_at(i); i++) {
        const ct_schedule_info *info = ct_schedule_info_at(i);
        ct_optim *opt = ct_adam(NULL, .lr = 0.1);
        ct_schedule *s = ct_schedule_build(info, opt, NULL, 100);
        CHECK(s != NULL);
        CHECK(ct_schedule_needs_metric(s) == info->needs_metric);
        for (int t = 0; t < 100; t++) CHECK(ct_schedule_step_metric(s, 1));
        CHECK(ct_optim_lr(opt) >= 0 && ct_optim_lr(opt) <= 0.1 + 1e-15);
        ct_schedule_free(s);
        ct_optim_free(opt);
    }
}

/* A sequence with a plateau inside, so that every number of the state counts. */
static ct_schedule *deep(ct_optim *opt) {
    ct_schedule *parts[] = {ct_schedule_plateau(opt, .factor = CT_SET(0.5), .patience = CT_SET(1), .cooldown = 1),
                            ct_schedule_step_decay(opt, 4)};
    ct_schedule *whole[] = {ct_schedule_warmup(opt, 3), ct_schedule_chain(parts, 2)};
    return ct_schedule_sequence(whole, 2, (int64_t[]){3});
}

TEST(a_resumed_schedule_goes_on_to_the_same_bits) {
    for (int stop = 0; stop < 20; stop += 3) {
        ct_optim *a = ct_sgd(NULL, .lr = 0.3), *b = ct_sgd(NULL, .lr = 0.3);
        ct_schedule *s = deep(a), *r = deep(b);
        ct_state *state = ct_state_new();
        for (int t = 0; t < stop; t++) CHECK(ct_schedule_step_metric(s, given_metric(t)));
        CHECK(ct_schedule_put_state(s, state, "schedule."));
        CHECK(ct_schedule_take_state(r, state, "schedule."));
        for (int t = stop; t < 25; t++) {
            CHECK(ct_optim_lr(a) == ct_optim_lr(b));
            CHECK(ct_schedule_step_metric(s, given_metric(t)));
            CHECK(ct_schedule_step_metric(r, given_metric(t)));
        }
        ct_state_free(state);
        ct_schedule_free(s);
        ct_schedule_free(r);
        ct_optim_free(a);
        ct_optim_free(b);
    }
}

TEST(a_state_that_does_not_fit_changes_nothing) {
    ct_optim *opt = ct_sgd(NULL, .lr = 0.3);
    ct_schedule *s = ct_schedule_step_decay(opt, 2), *other = ct_schedule_exponential(opt, 0.5), *whole = deep(opt);
    ct_state *state = ct_state_new(), *part = ct_state_new();
    for (int i = 0; i < 5; i++) ct_schedule_step_metric(whole, 1);
    CHECK(ct_schedule_put_state(other, state, ""));
    const double lr = ct_optim_lr(opt);
    CHECK(!ct_schedule_take_state(s, state, ""));
    CHECK_ERROR(CT_ERR_STATE,
                "schedule_take_state: the state is that of schedule_exponential, the schedule is schedule_step_decay");
    CHECK(!ct_schedule_take_state(s, state, "x."));
    CHECK_ERROR(CT_ERR_STATE, "schedule_take_state: there is no schedule under x.schedule");
    /* the top is there, its parts are not */
    ct_state_put_text(part, "schedule.kind", "schedule_sequence");
    ct_state_put_numbers(part, "schedule", (double[]){9, 1, 0, 0, 0}, 5);
    CHECK(!ct_schedule_take_state(whole, part, ""));
    CHECK_ERROR(CT_ERR_STATE, "schedule_take_state: there is no schedule under 0.schedule");
    CHECK(ct_schedule_steps(whole) == 5);
    CHECK(ct_optim_lr(opt) == lr);
    ct_state_free(state);
    ct_state_free(part);
    ct_schedule_free(s);
    ct_schedule_free(other);
    ct_schedule_free(whole);
    ct_optim_free(opt);
}

TEST(schedules_say_what_is_wrong) {
    ct_optim *opt = ct_adagrad(NULL), *other = ct_sgd(NULL);
    CHECK(!ct_schedule_cosine(opt, 0));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_cosine: steps is 0; it has to be above 0");
    CHECK(!ct_schedule_cosine(NULL, 5));
    CHECK_ERROR(CT_ERR_NULL, "schedule_cosine: argument optim is NULL");
    CHECK(!ct_schedule_one_cycle(opt, 1.0, 10));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_one_cycle: adagrad has no momentum to move");
    CHECK(!ct_schedule_one_cycle(other, 1.0, 10, .pct_start = 2));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_one_cycle: pct_start is 2; it has to be between 0 and 1");
    CHECK(!ct_schedule_cyclic(opt, 1.0, 0.5));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_cyclic: max_lr is 0.5 and base_lr 1; they have to be in order");
    CHECK(!ct_schedule_plateau(opt, .factor = CT_SET(1)));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_plateau: factor is 1; it has to be from 0 to below 1");
    CHECK(!ct_schedule_lambda(opt, NULL, NULL));
    CHECK_ERROR(CT_ERR_NULL, "schedule_lambda: argument fn is NULL");
    CHECK(!ct_schedule_warmup(opt, 5, .start = -1));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_warmup: start is -1; it has to be above 0");
    /* the parts are freed with what failed */
    CHECK(!ct_schedule_chain((ct_schedule *[]){ct_schedule_cosine(opt, 5), ct_schedule_cosine(other, 5)}, 2));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_chain: part 1 is of another optimizer than part 0");
    CHECK(!ct_schedule_chain((ct_schedule *[]){ct_schedule_cosine(opt, 5), ct_schedule_cosine(opt, -5)}, 2));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_cosine: steps is -5; it has to be above 0");
    CHECK(!ct_schedule_sequence(
        (ct_schedule *[]){ct_schedule_cosine(opt, 5), ct_schedule_cosine(opt, 5), ct_schedule_cosine(opt, 5)}, 3,
        (int64_t[]){5, 5}));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_sequence: milestone 1 is 5; milestones have to be above 0 and grow");
    ct_schedule *s = ct_schedule_plateau(opt);
    CHECK(!ct_schedule_step(s));
    CHECK_ERROR(CT_ERR_STATE, "schedule_step: schedule_plateau needs a metric: ct_schedule_step_metric");
    ct_schedule_free(s);
    CHECK(!ct_schedule_build(ct_schedule_find("cosine"), opt, (double[]){10, 0, 0}, 10));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_build: the warm-up takes 10 of 10 steps");
    CHECK(!ct_schedule_build(ct_schedule_find("cosine"), opt, (double[]){0, -1, 0}, 10));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_build: cosine: steps is -1; it has to be 0 or more");
    CHECK(!ct_schedule_build(ct_schedule_find("cosine"), opt, (double[]){0, 1e300, 0}, 10));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_build: cosine: steps is 1e+300; it has to be a whole number of at most 2^53");
    CHECK(!ct_schedule_build(ct_schedule_find("cosine"), opt, (double[]){1.5, 0, 0}, 10));
    CHECK_ERROR(CT_ERR_VALUE,
                "schedule_build: cosine: warmup is 1.5; it has to be a whole number, or below 1 a part of all steps");
    CHECK(!ct_schedule_build(ct_schedule_find("cyclic"), opt, (double[]){0, 0, 0, 0, 0, 4294967296.0, 1}, 10));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_cyclic: mode: 3 is not a value of its enum");
    CHECK(!ct_schedule_build(ct_schedule_find("plateau"), opt, (double[]){0, 2, 0.1, 10, 1e-4, 0, 0}, 10));
    CHECK_ERROR(CT_ERR_VALUE, "schedule_build: plateau: maximize is 2; it has to be 0 or 1");
    CHECK(!ct_schedule_find("sine"));
    CHECK(ct_ok());
    ct_optim_free(opt);
    ct_optim_free(other);
    ct_schedule_free(NULL);
}

TEST(a_pending_error_stops_a_schedule) {
    ct_optim *opt = ct_sgd(NULL, .lr = 1);
    ct_schedule *s = ct_schedule_exponential(opt, 0.5);
    ct_fail(CT_ERR_VALUE, "test", "pending");
    CHECK(!ct_schedule_step(s));
    CHECK_ERROR(CT_ERR_VALUE, "test: pending");
    CHECK(ct_optim_lr(opt) == 1 && ct_schedule_steps(s) == 0);
    ct_schedule_free(s);
    ct_optim_free(opt);
}
