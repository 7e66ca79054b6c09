/* Optimizers against trajectories that PyTorch computed (tests/refs/optim.txt, written by tools/refs/optim.py), each built by
 * its name. */
#include <cotangent/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { VALUES = 7, WORDS = 16, STEPS = 24 };

typedef struct given_case {
    char name[32], words[WORDS][64];
    int n_words;
    ct_dtype dtype;
} given_case;

static FILE *open_refs(const char *name) {
    const char *root = getenv("CT_SOURCE_DIR");
    char path[4096];
    if (root) snprintf(path, sizeof path, "%s/tests/refs/%s", root, name);
    else snprintf(path, sizeof path, "%.*s/refs/%s", (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__, name);
    return fopen(path, "r");
}

static void parse_case(const char *line, given_case *c) {
    char dtype[8] = "";
    int at = 0;
    memset(c, 0, sizeof *c);
    if (sscanf(line, "case %31s %7s%n", c->name, dtype, &at) < 2) return;
    ct_dtype_parse(dtype, &c->dtype);
    int used;
    while (c->n_words < WORDS && sscanf(line + at, "%63s%n", c->words[c->n_words], &used) == 1) {
        at += used;
        c->n_words++;
    }
}

/* The value of a setting that the case names, or missing. */
static double word(const given_case *c, const char *name, double missing) {
    const size_t n = strlen(name);
    for (int i = 0; i < c->n_words; i++)
        if (strncmp(c->words[i], name, n) == 0 && c->words[i][n] == '=') return strtod(c->words[i] + n + 1, NULL);
    return missing;
}

static ct_optim *build(const given_case *c) {
    const ct_optim_info *info = ct_optim_find(c->name);
    double values[16];
    if (!CHECK(info != NULL)) return NULL;
    for (int i = 0; i < info->count; i++) values[i] = word(c, info->settings[i].name, info->settings[i].value);
    return ct_optim_build(info, NULL, values);
}

/* The parameters and gradients of tools/refs/optim.py. */
static void make_parameters(ct_dtype dtype, ct_tensor **ps) {
    ps[0] = ct_set_requires_grad(TENSOR(dtype, CT_DIMS(3), -0.75, -0.25, 0.25), true);
    ps[1] = ct_set_requires_grad(TENSOR(dtype, CT_DIMS(2, 2), 1, -2, 0.25, 3), true);
}

static void set_gradients(ct_tensor **ps, int t) {
    for (int which = 0; which < 2; which++) {
        const int n = (int)ct_numel(ps[which]);
        double values[4] = {0};
        for (int i = 0; i < n; i++)
            values[i] = 0.3 * harness_at(ps[which], i) + ((7 * t + 13 * i + 5 * which) % 17 - 8) / 8.0;
        ct_set_grad(ps[which], harness_tensor(ct_dtype_of(ps[which]), ct_shape(ps[which]), values, n));
    }
}

/* Compares with a line of the file. Each step rounds the parameter and a handful of intermediate results that are at most about
 * as large: eight roundings a step are more than enough. */
static bool compare(const given_case *c, const char *line, int t, ct_tensor **ps) {
    const double unit = c->dtype == CT_F64 ? 0x1p-53 : 0x1p-24;
    char *at;
    strtol(line, &at, 10);
    for (int k = 0; k < VALUES; k++) {
        const double expected = strtod(at, &at);
        const double got = k < 3 ? harness_at(ps[0], k) : harness_at(ps[1], k - 3);
        const double tolerance = 8 * t * unit * fmax(4, fabs(expected));
        if (!harness_check(fabs(got - expected) <= tolerance, c->name, t, "%s %s at %d is %.17g, not %.17g",
                           c->words[0], ct_dtype_name(c->dtype), k, got, expected))
            return false;
    }
    return true;
}

static void run_case(const given_case *c, FILE *refs) {
    char line[1024];
    ct_tensor *ps[2];
    ct_scope {
        make_parameters(c->dtype, ps);
        ct_optim *opt = build(c);
        ct_optim_add_tensor(opt, "a", ps[0]);
        ct_optim_add_tensor(opt, "b", ps[1]);
        if (word(c, "group.lr", -1) >= 0)
            ct_optim_group(opt, "b", .lr = word(c, "group.lr", 0),
                           .weight_decay = CT_SET(word(c, "group.weight_decay", 0)));
        if (word(c, "lookahead.k", 0) > 0)
            opt = ct_lookahead(opt, .alpha = CT_SET(word(c, "lookahead.alpha", 0)),
                               .k = (int64_t)word(c, "lookahead.k", 0));
        int t = 0;
        while (t < STEPS && fgets(line, sizeof line, refs)) {
            const int shown = atoi(line);
            while (t < shown) {
                set_gradients(ps, ++t);
                if (!CHECK(ct_optim_step(opt))) break;
            }
            if (!ct_ok() || !compare(c, line, t, ps)) break;
        }
        CHECK(ct_optim_steps(opt) == t);
        CHECK(ct_ok());
        ct_error_clear();
        ct_optim_free(opt);
    }
}

/* Runs every case whose name is given; returns how many there were. */
static int run_cases(const char *name) {
    FILE *refs = open_refs("optim.txt");
    char line[1024];
    int count = 0;
    if (!CHECK(refs != NULL)) return 0;
    while (fgets(line, sizeof line, refs)) {
        given_case c;
        if (strncmp(line, "case ", 5) != 0) continue;
        parse_case(line, &c);
        if (strcmp(c.name, name) != 0) continue;
        run_case(&c, refs);
        count++;
    }
    fclose(refs);
    return count;
}

TEST(sgd_follows_the_reference) { CHECK(run_cases("sgd") == 14); }
TEST(adam_follows_the_reference) { CHECK(run_cases("adam") == 11); }
TEST(adamw_follows_the_reference) { CHECK(run_cases("adamw") == 7); }
TEST(radam_follows_the_reference) { CHECK(run_cases("radam") == 8); }
TEST(nadam_follows_the_reference) { CHECK(run_cases("nadam") == 6); }
TEST(rmsprop_follows_the_reference) { CHECK(run_cases("rmsprop") == 10); }
TEST(adagrad_follows_the_reference) { CHECK(run_cases("adagrad") == 8); }
TEST(adadelta_follows_the_reference) { CHECK(run_cases("adadelta") == 6); }
TEST(lamb_follows_the_paper) { CHECK(run_cases("lamb") == 4); }
TEST(lars_follows_the_paper) { CHECK(run_cases("lars") == 4); }
TEST(lion_follows_the_paper) { CHECK(run_cases("lion") == 4); }

/* ---- L-BFGS ---- */

static ct_tensor *bowl(void *context) {
    ct_tensor *x = context, *c = F64(CT_DIMS(4), 1, 2, 5, 10), *b = F64(CT_DIMS(4), 1, -1, 2, 0.5);
    return ct_add(ct_sum(ct_mul(c, ct_square(ct_sub(x, b)))), ct_mul_s(ct_sum(ct_square(ct_square(x))), 0.1));
}

TEST(lbfgs_follows_the_reference) {
    FILE *refs = open_refs("optim.txt");
    char line[1024];
    int count = 0;
    REQUIRE(refs != NULL);
    while (fgets(line, sizeof line, refs)) {
        given_case c;
        if (strncmp(line, "case lbfgs", 10) != 0) continue;
        parse_case(line, &c);
        count++;
        ct_scope {
            ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(4), 0.5, 0.25, -1, 2), true);
            ct_optim *opt = build(&c);
            ct_optim_add_tensor(opt, "x", x);
            for (int t = 1; t <= 8 && fgets(line, sizeof line, refs); t++) {
                char *at;
                strtol(line, &at, 10);
                CHECK(isfinite(ct_optim_step_with(opt, bowl, x)));
                /* near the minimum differences of gradients lose digits, and the step with them */
                for (int k = 0; k < 4; k++) {
                    const double expected = strtod(at, &at);
                    harness_check(fabs(harness_at(x, k) - expected) <= 1e-8, "lbfgs", t, "%s at %d is %.17g, not %.17g",
                                  c.words[1], k, harness_at(x, k), expected);
                }
            }
            ct_optim_free(opt);
        }
    }
    fclose(refs);
    CHECK(count == 3);
}

static ct_tensor *rosenbrock(void *context) {
    ct_tensor *x = ct_narrow(context, 0, 0, 1), *y = ct_narrow(context, 0, 1, 1);
    return ct_sum(ct_add(ct_square(ct_rsub_s(x, 1)), ct_mul_s(ct_square(ct_sub(y, ct_square(x))), 100)));
}

TEST(lbfgs_minimises_rosenbrock) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), -1.2, 1), true);
    ct_optim *opt = ct_lbfgs(NULL, .strong_wolfe = true, .history_size = 10);
    ct_optim_add_tensor(opt, "x", x);
    double loss = 1;
    for (int i = 0; i < 10; i++) loss = ct_optim_step_with(opt, rosenbrock, x);
    CHECK(loss < 1e-12);
    CHECK_NEAR(harness_at(x, 0), 1, 1e-6); /* |1 - x| <= sqrt(loss), |y - x^2| <= sqrt(loss) / 10 */
    CHECK_NEAR(harness_at(x, 1), 1, 3e-6);
    ct_optim_free(opt);
}

static ct_tensor *fails_later(void *context) {
    static int calls;
    if (++calls > 3) {
        ct_fail(CT_ERR_VALUE, "my_loss", "call %d", calls);
        return NULL;
    }
    return rosenbrock(context);
}

TEST(lbfgs_takes_a_step_back_when_the_loss_fails) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), -1.2, 1), true);
    ct_optim *opt = ct_lbfgs(NULL, .strong_wolfe = true);
    ct_optim_add_tensor(opt, "x", x);
    CHECK(isnan(ct_optim_step_with(opt, fails_later, x)));
    CHECK_ERROR(CT_ERR_VALUE, "my_loss: call 4");
    CHECK_VALUES(x, CT_DIMS(2), 0, -1.2, 1);
    CHECK(ct_optim_steps(opt) == 0);
    ct_optim_free(opt);
}

static ct_tensor *entangled(void *context) {
    ct_tensor *const *x = context;
    return ct_add(ct_sum(ct_square(ct_sub_s(x[0], 3))), ct_sum(ct_square(ct_mul(x[0], ct_sub_s(x[1], 1)))));
}

TEST(lbfgs_leaves_a_parameter_that_is_frozen_on_the_way) {
    ct_tensor *x[2] = {ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true),
                       ct_set_requires_grad(F64(CT_DIMS(2), 4, 5), true)};
    ct_optim *opt = ct_lbfgs(NULL, .lr = 0.5, .max_iter = 3);
    CHECK(ct_optim_add_tensor(opt, "a", x[0]) && ct_optim_add_tensor(opt, "b", x[1]));
    CHECK(!isnan(ct_optim_step_with(opt, entangled, x)));
    CHECK(ct_set_requires_grad(x[1], false));
    ct_tensor *a = ct_clone(ct_detach(x[0])), *b = ct_clone(x[1]);
    CHECK(!isnan(ct_optim_step_with(opt, entangled, x)));
    CHECK(harness_same_bits(x[1], b) && !harness_same_bits(ct_detach(x[0]), a));
    ct_optim_free(opt);
}

static ct_tensor *quadratic(void *context) { return ct_sum(ct_square(context)); }

TEST(every_optimizer_steps_with_a_loss) {
    for (int i = 0; ct_optim_info_at(i); i++)
        ct_scope {
            const ct_optim_info *info = ct_optim_info_at(i);
            ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(3), 1, -2, 3), true);
            ct_optim *opt = ct_optim_build(info, NULL, NULL);
            ct_optim_add_tensor(opt, "x", x);
            const double first = ct_optim_step_with(opt, quadratic, x);
            CHECK_NEAR(first, 14, 0);
            double last = first;
            for (int k = 0; k < 3; k++) last = ct_optim_step_with(opt, quadratic, x);
            harness_check(last < first, __FILE__, __LINE__, "%s: the loss went from %g to %g", info->name, first, last);
            CHECK(strcmp(ct_optim_name(opt), info->name) == 0);
            ct_optim_free(opt);
        }
}
