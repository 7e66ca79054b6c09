/* Metrics: small counters that are fed batch by batch and give their results as doubles. A zeroed struct begins anew:
 *
 *     ct_accuracy right = {0};
 *     for (ct_batch b; ct_next(test, &b);) ct_scope { ct_accuracy_add(&right, ct_forward(net, b.x), b.y); }
 *     printf("%.2f %%\n", 100 * ct_accuracy_value(&right));
 *
 * Where logits are wanted they are [batch, classes] or [batch, classes, ...], with targets (integers) of that shape
 * without the classes, as for ct_cross_entropy_loss. Targets below 0 are not counted. Of equal logits the first wins. A
 * result of nothing is NaN. Each _add returns false, and counts nothing, on an error and while one is pending. It counts on the
 * host, so it waits for the device that its tensors are on.
 *
 * Threads: a counter is a plain struct without a lock. Each thread feeds its own; one that nobody feeds meanwhile may be read. */
#ifndef COTANGENT_METRICS_H
#define COTANGENT_METRICS_H

#include <cotangent.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The weighted mean of numbers, and their deviation; stable for long runs. */
typedef struct ct_running_mean {
    double mean, weight, squares;
    int64_t count;
    int64_t reserved[4]; /* zero: for later versions, as in the structs below */
} ct_running_mean;
CT_API bool ct_running_mean_add(ct_running_mean *metric, double value, double weight); /* weight >= 0 */
CT_API double ct_running_mean_value(const ct_running_mean *metric);
CT_API double ct_running_mean_std(const ct_running_mean *metric); /* of the weights, not of count - 1 */
/* e to the mean: the perplexity when the numbers are mean cross entropies, weighted by their tokens. */
CT_API double ct_perplexity(const ct_running_mean *loss);

/* How many targets are the largest logit, or among the `top` largest. Predictions may also be given as class numbers,
 * integers of the shape of the target (top 1 only), and targets as probabilities of the shape of the logits (their
 * largest). */
typedef struct ct_accuracy {
    int top; /* 0 is 1 */
    int64_t right, count;
    int64_t reserved[5];
} ct_accuracy;
CT_API bool ct_accuracy_add(ct_accuracy *metric, ct_tensor *predictions, ct_tensor *target);
CT_API double ct_accuracy_value(const ct_accuracy *metric);

/* Counts of (target, prediction). Predictions are logits, or class numbers of the shape of the target. */
typedef struct ct_confusion ct_confusion;
CT_API ct_confusion *ct_confusion_new(int64_t classes);
CT_API void ct_confusion_free(ct_confusion *confusion);
CT_API bool ct_confusion_add(ct_confusion *confusion, ct_tensor *predictions, ct_tensor *target);
CT_API void ct_confusion_clear(ct_confusion *confusion);
CT_API int64_t ct_confusion_classes(const ct_confusion *confusion);
CT_API int64_t ct_confusion_count(const ct_confusion *confusion, int64_t target,
                                  int64_t prediction); /* 0 out of range */
CT_API int64_t ct_confusion_total(const ct_confusion *confusion);
CT_API ct_tensor *ct_confusion_tensor(const ct_confusion *confusion); /* i64 [target, prediction] */
CT_API double ct_confusion_accuracy(const ct_confusion *confusion);
/* Of a class: right predictions by all predictions of it, by all targets of it, their harmonic mean, and intersection
 * over union. What would be 0 / 0 is 0 (iou: NaN). */
typedef struct ct_scores {
    double precision, recall, f1, iou;
    int64_t support; /* targets */
    double reserved[3];
} ct_scores;
CT_API ct_scores ct_confusion_scores(const ct_confusion *confusion, int64_t label);
/* The mean over the classes that occur as a target or a prediction; and that of all classes counted together. */
CT_API ct_scores ct_confusion_macro(const ct_confusion *confusion);
CT_API ct_scores ct_confusion_micro(const ct_confusion *confusion);

/* Area under the ROC curve, exact, with ties counted half; every score is kept. With two classes or fewer it is fed
 * scores [batch] or [batch, 1] (larger: rather class 1), or [batch, 2], whose difference counts; with more, [batch,
 * classes], each class against the rest. */
typedef struct ct_auc ct_auc;
CT_API ct_auc *ct_auc_new(int64_t classes);
CT_API void ct_auc_free(ct_auc *auc);
CT_API bool ct_auc_add(ct_auc *auc, ct_tensor *scores, ct_tensor *target);
CT_API void ct_auc_clear(ct_auc *auc);
CT_API double ct_auc_class(const ct_auc *auc, int64_t label); /* NaN when only one of the two sides occurs */
CT_API double ct_auc_value(const ct_auc *auc);                /* the mean over the classes that have one */

/* Numbers against numbers of the same count of elements. */
typedef struct ct_regression {
    int64_t count;
    double absolute, squared;       /* sums of errors */
    double target_mean, target_var; /* of the targets: mean, and sum of squares about it */
    int64_t reserved[3];
} ct_regression;
CT_API bool ct_regression_add(ct_regression *metric, ct_tensor *predictions, ct_tensor *target);
CT_API double ct_regression_mae(const ct_regression *metric);
CT_API double ct_regression_mse(const ct_regression *metric);
CT_API double ct_regression_rmse(const ct_regression *metric);
CT_API double ct_regression_r2(const ct_regression *metric); /* NaN when the targets are all the same */

#ifdef __cplusplus
}
#endif
#endif
