/* Metrics that need no memory of their own: running mean, perplexity, accuracy, regression. */
#include "metrics/metrics.h"

#include <math.h>

/* West's update: no sum of squares is formed, so nothing cancels. */
bool ct_running_mean_add(ct_running_mean *metric, double value, double weight) {
    if (!metric) return ct__metric_null("running_mean_add", "metric");
    if (!ct_ok()) return false;
    if (!(weight >= 0) || isinf(weight))
        return ct_fail(CT_ERR_VALUE, "running_mean_add", "the weight is %g; expected 0 or more", weight);
    if (weight == 0) return true;
    const double total = metric->weight + weight, step = value - metric->mean;
    metric->mean += step * (weight / total);
    metric->squares += weight * step * (value - metric->mean);
    metric->weight = total;
    metric->count++;
    return true;
}

double ct_running_mean_value(const ct_running_mean *metric) {
    return metric && metric->weight > 0 ? metric->mean : NAN;
}
double ct_running_mean_std(const ct_running_mean *metric) {
    return metric && metric->weight > 0 ? sqrt(metric->squares / metric->weight) : NAN;
}
double ct_perplexity(const ct_running_mean *loss) { return exp(ct_running_mean_value(loss)); }

/* ---- Accuracy ---- */

/* How many logits come before that of the target: larger ones, and equal ones of smaller number. */
static int64_t rank(const ct__pairs *pairs, int64_t outer, int64_t inner, int64_t target) {
    const double *at = pairs->logits + outer * pairs->classes * pairs->inner + inner;
    const double own = at[target * pairs->inner];
    int64_t before = 0;
    for (int64_t c = 0; c < pairs->classes; c++) {
        const double other = at[c * pairs->inner];
        if (isnan(own)) before += isnan(other) && c < target;
        else before += isnan(other) || other > own || (other == own && c < target);
    }
    return before;
}

bool ct_accuracy_add(ct_accuracy *metric, ct_tensor *predictions, ct_tensor *target) {
    ct__pairs pairs;
    if (!metric) return ct__metric_null("accuracy_add", "metric");
    if (metric->top < 0) return ct_fail(CT_ERR_VALUE, "accuracy_add", "top is %d; expected 1 or more", metric->top);
    if (!ct__pairs_take("accuracy_add", predictions, target, 0, &pairs)) return false;
    const int64_t top = metric->top ? metric->top : 1;
    int64_t right = 0, count = 0;
    bool ok =
        top == 1 || pairs.logits ||
        ct_fail(CT_ERR_VALUE, "accuracy_add", "class numbers were given; the %lld largest need logits", (long long)top);
    for (int64_t o = 0; ok && o < pairs.outer; o++)
        for (int64_t i = 0; ok && i < pairs.inner; i++) {
            const int64_t t = pairs.target[o * pairs.inner + i];
            if (t < 0) continue;
            if (pairs.logits && t >= pairs.classes)
                ok = ct_fail(CT_ERR_INDEX, "accuracy_add", "the target %lld of %lld classes", (long long)t,
                             (long long)pairs.classes);
            else right += pairs.logits ? rank(&pairs, o, i, t) < top : ct__pairs_best(&pairs, o, i) == t;
            count++;
        }
    ct__pairs_free(&pairs);
    if (!ok) return false;
    metric->right += right;
    metric->count += count;
    return true;
}

double ct_accuracy_value(const ct_accuracy *metric) {
    return metric && metric->count ? (double)metric->right / (double)metric->count : NAN;
}

/* ---- Regression ---- */

bool ct_regression_add(ct_regression *metric, ct_tensor *predictions, ct_tensor *target) {
    if (!metric || !predictions || !target)
        return ct__metric_null("regression_add", !metric ? "metric" : predictions ? "target" : "predictions");
    if (!ct_ok()) return false;
    const int64_t n = ct_numel(predictions);
    if (n != ct_numel(target))
        return ct_fail(CT_ERR_SHAPE, "regression_add", "%lld predictions for %lld targets", (long long)n,
                       (long long)ct_numel(target));
    double *p = ct__metric_doubles("regression_add", predictions);
    double *t = p ? ct__metric_doubles("regression_add", target) : NULL;
    for (int64_t i = 0; t && i < n; i++) {
        const double error = p[i] - t[i], step = t[i] - metric->target_mean;
        metric->count++;
        metric->absolute += fabs(error);
        metric->squared += error * error;
        metric->target_mean += step / (double)metric->count;
        metric->target_var += step * (t[i] - metric->target_mean);
    }
    ct_free(p);
    const bool ok = t != NULL;
    ct_free(t);
    return ok;
}

double ct_regression_mae(const ct_regression *metric) {
    return metric && metric->count ? metric->absolute / (double)metric->count : NAN;
}
double ct_regression_mse(const ct_regression *metric) {
    return metric && metric->count ? metric->squared / (double)metric->count : NAN;
}
double ct_regression_rmse(const ct_regression *metric) { return sqrt(ct_regression_mse(metric)); }
double ct_regression_r2(const ct_regression *metric) {
    return metric && metric->target_var > 0 ? 1 - metric->squared / metric->target_var : NAN;
}
