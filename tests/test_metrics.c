/* Metrics against scikit-learn and NumPy (tests/refs/metrics.inc), and what they refuse. Results are sums of at most 80
 * terms in double, so a relative 1e-13 is more than rounding makes. */
#include "tests/harness.h"

#include <cotangent/metrics.h>

#include <math.h>

#include "tests/refs/metrics.inc"

enum { N = 60, C = 5 };
#define NEAR(got, expected) CHECK_NEAR(got, expected, 1e-13 * (1 + fabs(expected)))

static ct_tensor *doubles(const double *values, int64_t begin, int64_t n, int64_t columns) {
    return ct_from_data(values + begin * columns, columns > 1 ? CT_DIMS(n, columns) : CT_DIMS(n), CT_F64);
}
static ct_tensor *numbers(const int64_t *values, int64_t begin, int64_t n) {
    return ct_from_data(values + begin, CT_DIMS(n), CT_I64);
}

/* In batches of 7, the last one smaller, so that running sums are tested too. */
#define BATCHES(i, n, total) for (int64_t i = 0, n; (n = total - i < 7 ? total - i : 7) > 0; i += n)

TEST(accuracy_and_top_k_agree_with_scikit_learn) {
    ct_accuracy best = {0}, second = {.top = 2}, all = {.top = 9}, given = {0};
    BATCHES(i, n, N) {
        ct_tensor *x = doubles(class_logits, i, n, C), *y = numbers(class_target, i, n);
        CHECK(ct_accuracy_add(&best, x, y) && ct_accuracy_add(&second, ct_cast(x, CT_F32), ct_cast(y, CT_I32)));
        CHECK(ct_accuracy_add(&all, x, y) && ct_accuracy_add(&given, ct_argmax(x, .axis = CT_SET(1)), y));
    }
    NEAR(ct_accuracy_value(&best), class_accuracy[0]);
    NEAR(ct_accuracy_value(&given), class_accuracy[0]);
    NEAR(ct_accuracy_value(&second), class_top2[0]);
    CHECK(best.count == N && ct_accuracy_value(&all) == 1);
    CHECK(isnan(ct_accuracy_value(&(ct_accuracy){0})) && isnan(ct_accuracy_value(NULL)));
}

TEST(accuracy_takes_soft_targets_further_axes_and_leaves_out_negative_ones) {
    ct_accuracy a = {0};
    /* [batch 1, classes 2, 3 positions]: predictions 1 0 1 */
    ct_tensor *x = F32(CT_DIMS(1, 2, 3), 0, 2, -1, 1, 1, 5);
    CHECK(ct_accuracy_add(&a, x, I64(CT_DIMS(1, 3), 1, 1, -100)));
    CHECK(a.right == 1 && a.count == 2);
    a = (ct_accuracy){0};
    CHECK(ct_accuracy_add(&a, F32(CT_DIMS(2, 2), 0, 1, 3, 2), F32(CT_DIMS(2, 2), 0.3, 0.7, 0.4, 0.6)));
    CHECK(a.right == 1 && a.count == 2);
    a = (ct_accuracy){0};
    CHECK(ct_accuracy_add(&a, F32(CT_DIMS(2, 2), 1, 1, 1, 1), I64(CT_DIMS(2), 0, 1))); /* of equals the first */
    CHECK(a.right == 1);
}

TEST(the_confusion_matrix_agrees_with_scikit_learn) {
    ct_confusion *m = ct_confusion_new(C);
    BATCHES(i, n, N) {
        ct_tensor *x = doubles(class_logits, i, n, C), *y = numbers(class_target, i, n);
        CHECK(ct_confusion_add(m, i % 2 ? x : ct_argmax(x, .axis = CT_SET(1)), y));
    }
    CHECK(ct_confusion_total(m) == N && ct_confusion_classes(m) == C);
    for (int t = 0; t < C; t++) {
        for (int p = 0; p < C; p++) CHECK(ct_confusion_count(m, t, p) == class_confusion[t * C + p]);
        const ct_scores s = ct_confusion_scores(m, t);
        NEAR(s.precision, class_precision[t]);
        NEAR(s.recall, class_recall[t]);
        NEAR(s.f1, class_f1[t]);
        NEAR(s.iou, class_iou[t]);
        CHECK(s.support == class_support[t]);
    }
    const ct_scores macro = ct_confusion_macro(m), micro = ct_confusion_micro(m);
    NEAR(macro.precision, class_macro[0]);
    NEAR(macro.recall, class_macro[1]);
    NEAR(macro.f1, class_macro[2]);
    NEAR(macro.iou, class_macro[3]);
    NEAR(micro.precision, class_micro[0]);
    NEAR(micro.recall, class_micro[1]);
    NEAR(micro.f1, class_micro[2]);
    NEAR(micro.iou, class_micro[3]);
    NEAR(ct_confusion_accuracy(m), class_accuracy[0]);
    ct_tensor *tensor = ct_confusion_tensor(m);
    CHECK(harness_at(tensor, 7) == (double)class_confusion[7] && ct_dtype_of(tensor) == CT_I64);
    ct_confusion_clear(m);
    CHECK(ct_confusion_total(m) == 0 && isnan(ct_confusion_accuracy(m)) && isnan(ct_confusion_macro(m).f1));
    ct_confusion_free(m);
}

TEST(auc_agrees_with_scikit_learn_also_with_ties) {
    ct_auc *binary = ct_auc_new(2), *pairs = ct_auc_new(2), *many = ct_auc_new(C);
    BATCHES(i, n, 80) {
        ct_tensor *s = doubles(binary_score, i, n, 1), *y = numbers(binary_target, i, n);
        CHECK(ct_auc_add(binary, s, y));
        CHECK(ct_auc_add(pairs, ct_stack((ct_tensor *[]){ct_mul_s(s, -1), s}, 2, 1), y));
    }
    NEAR(ct_auc_value(binary), binary_auc[0]);
    NEAR(ct_auc_value(pairs), binary_auc[0]);
    NEAR(ct_auc_class(binary, 0), binary_auc[0]);
    double sum = 0;
    BATCHES(i, n, N) CHECK(ct_auc_add(many, doubles(class_logits, i, n, C), numbers(class_target, i, n)));
    for (int c = 0, k = 0; c < C; c++) {
        if (c == 3) CHECK(isnan(ct_auc_class(many, c))); /* never a target */
        else {
            NEAR(ct_auc_class(many, c), class_auc[k]);
            sum += class_auc[k++];
        }
    }
    NEAR(ct_auc_value(many), sum / 4);
    ct_auc_clear(many);
    CHECK(isnan(ct_auc_value(many)));
    ct_auc_free(binary);
    ct_auc_free(pairs);
    ct_auc_free(many);
}

TEST(regression_agrees_with_scikit_learn) {
    ct_regression r = {0};
    BATCHES(i, n, 50)
    CHECK(ct_regression_add(&r, doubles(regression_guess, i, n, 1), doubles(regression_target, i, n, 1)));
    NEAR(ct_regression_mae(&r), regression_results[0]);
    NEAR(ct_regression_mse(&r), regression_results[1]);
    NEAR(ct_regression_rmse(&r), regression_results[2]);
    /* 1 - a / b with b about values of 1000: their squares lose 1e6 of the 1e16 */
    CHECK_NEAR(ct_regression_r2(&r), regression_results[3], 1e-10);
    CHECK(isnan(ct_regression_r2(&(ct_regression){0})) && isnan(ct_regression_mae(NULL)));
}

TEST(the_running_mean_is_stable_and_gives_the_perplexity) {
    ct_running_mean m = {0}, loss = {0};
    for (int i = 0; i < 30; i++) {
        CHECK(ct_running_mean_add(&m, mean_values[i], mean_weights[i]));
        CHECK(ct_running_mean_add(&loss, mean_values[i] - 1e6 + 3, mean_weights[i]));
    }
    CHECK(ct_running_mean_add(&m, 5, 0) && m.count == 30);
    NEAR(ct_running_mean_value(&m), mean_results[0]);
    CHECK_NEAR(ct_running_mean_std(&m), mean_results[1], 1e-8); /* values of 1e6 have steps of 1e-10 */
    CHECK_NEAR(ct_perplexity(&loss), mean_results[2], 1e-8 * mean_results[2]);
    CHECK(isnan(ct_running_mean_value(&(ct_running_mean){0})));
    CHECK(!ct_running_mean_add(&m, 1, -1));
    CHECK_ERROR(CT_ERR_VALUE, "running_mean_add: the weight is -1; expected 0 or more");
}

TEST(what_does_not_fit_is_refused_and_nothing_is_counted) {
    ct_accuracy a = {0};
    ct_confusion *m = ct_confusion_new(3);
    CHECK(!ct_accuracy_add(&a, ct_zeros(CT_DIMS(4, 3)), I64(CT_DIMS(3), 0, 1, 2)));
    CHECK_ERROR(CT_ERR_SHAPE,
                "accuracy_add: predictions are f32[4,3] and targets i64[3]; expected logits [batch, classes, "
                "...] or class numbers, with targets [batch, ...]");
    CHECK(!ct_accuracy_add(&a, ct_zeros(CT_DIMS(2, 3)), I64(CT_DIMS(2), 0, 3)));
    CHECK_ERROR(CT_ERR_INDEX, "accuracy_add: the target 3 of 3 classes");
    CHECK(a.count == 0);
    CHECK(!ct_confusion_add(m, I64(CT_DIMS(2), 1, 5), I64(CT_DIMS(2), 0, 1)));
    CHECK_ERROR(CT_ERR_INDEX, "confusion_add: target 1, prediction 5; there are 3 classes");
    CHECK(ct_confusion_total(m) == 0);
    CHECK(!ct_confusion_add(m, ct_zeros(CT_DIMS(2, 4)), I64(CT_DIMS(2), 0, 1)));
    CHECK_ERROR(CT_ERR_SHAPE, "confusion_add: the logits are of 4 classes; expected 3");
    CHECK(!ct_confusion_add(m, NULL, I64(CT_DIMS(2), 0, 1)));
    CHECK_ERROR(CT_ERR_NULL, "confusion_add: argument predictions is NULL");
    CHECK(!ct_accuracy_add(&(ct_accuracy){.top = 2}, I64(CT_DIMS(2), 1, 2), I64(CT_DIMS(2), 0, 1)));
    CHECK_ERROR(CT_ERR_VALUE, "accuracy_add: class numbers were given; the 2 largest need logits");
    ct_auc *auc = ct_auc_new(2);
    CHECK(!ct_auc_add(auc, ct_zeros(CT_DIMS(2, 3)), I64(CT_DIMS(2), 0, 1)));
    CHECK_ERROR(CT_ERR_SHAPE, "auc_add: 6 scores for 2 targets; expected 1 or 2 for each");
    CHECK(!ct_auc_add(auc, F32(CT_DIMS(2), 0, NAN), I64(CT_DIMS(2), 0, 1)));
    CHECK_ERROR(CT_ERR_VALUE, "auc_add: score 1 is NaN");
    CHECK(!ct_auc_add(auc, F32(CT_DIMS(2, 2), 0, 1, INFINITY, INFINITY), I64(CT_DIMS(2), 0, 1)));
    CHECK_ERROR(CT_ERR_VALUE, "auc_add: the two scores of 1 are both inf and have no difference");
    CHECK(isnan(ct_auc_value(auc)));
    CHECK(!ct_confusion_new(0));
    CHECK_ERROR(CT_ERR_VALUE, "confusion_new: 0 classes; expected 1 to 32768");
    /* while an error is pending nothing is counted */
    ct_fail(CT_ERR_VALUE, "test", "pending");
    CHECK(!ct_confusion_add(m, I64(CT_DIMS(1), 1), I64(CT_DIMS(1), 1)) && ct_confusion_total(m) == 0);
    CHECK_ERROR(CT_ERR_VALUE, "test: pending");
    ct_auc_free(auc);
    ct_confusion_free(m);
    ct_confusion_free(NULL);
    ct_auc_free(NULL);
}
