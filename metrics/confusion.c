/* The confusion matrix, and what is computed from it: precision, recall, F1, intersection over union. */
#include "metrics/metrics.h"

#include <math.h>

struct ct_confusion {
    int64_t classes;
    int64_t count[]; /* (target, prediction) */
};

enum { MOST_CLASSES = 1 << 15 };

ct_confusion *ct_confusion_new(int64_t classes) {
    if (classes < 1 || classes > MOST_CLASSES) {
        ct_fail(CT_ERR_VALUE, "confusion_new", "%lld classes; expected 1 to %d", (long long)classes, MOST_CLASSES);
        return NULL;
    }
    ct_confusion *confusion =
        ct__metric_room("confusion_new", 1, sizeof *confusion + (size_t)(classes * classes) * sizeof *confusion->count);
    if (confusion) confusion->classes = classes;
    return confusion;
}

void ct_confusion_free(ct_confusion *confusion) { ct_free(confusion); }
void ct_confusion_clear(ct_confusion *confusion) {
    if (confusion)
        memset(confusion->count, 0, (size_t)(confusion->classes * confusion->classes) * sizeof *confusion->count);
}

bool ct_confusion_add(ct_confusion *confusion, ct_tensor *predictions, ct_tensor *target) {
    ct__pairs pairs;
    if (!confusion) return ct__metric_null("confusion_add", "confusion");
    if (!ct__pairs_take("confusion_add", predictions, target, confusion->classes, &pairs)) return false;
    bool ok = true;
    for (int pass = 0; ok && pass < 2; pass++) /* nothing is counted before everything is known to be in range */
        for (int64_t o = 0; ok && o < pairs.outer; o++)
            for (int64_t i = 0; ok && i < pairs.inner; i++) {
                const int64_t t = pairs.target[o * pairs.inner + i];
                if (t < 0) continue;
                const int64_t p = ct__pairs_best(&pairs, o, i);
                if (t >= confusion->classes || p < 0 || p >= confusion->classes)
                    ok = ct_fail(CT_ERR_INDEX, "confusion_add", "target %lld, prediction %lld; there are %lld classes",
                                 (long long)t, (long long)p, (long long)confusion->classes);
                else if (pass) confusion->count[t * confusion->classes + p]++;
            }
    ct__pairs_free(&pairs);
    return ok;
}

int64_t ct_confusion_classes(const ct_confusion *confusion) { return confusion ? confusion->classes : 0; }
int64_t ct_confusion_count(const ct_confusion *confusion, int64_t target, int64_t prediction) {
    const int64_t n = ct_confusion_classes(confusion);
    return target < 0 || prediction < 0 || target >= n || prediction >= n ? 0
                                                                          : confusion->count[target * n + prediction];
}

int64_t ct_confusion_total(const ct_confusion *confusion) {
    const int64_t n = ct_confusion_classes(confusion);
    int64_t sum = 0;
    for (int64_t i = 0; i < n * n; i++) sum += confusion->count[i];
    return sum;
}

ct_tensor *ct_confusion_tensor(const ct_confusion *confusion) {
    if (!confusion) {
        ct__metric_null("confusion_tensor", "confusion");
        return NULL;
    }
    return ct_from_data(confusion->count, CT_DIMS(confusion->classes, confusion->classes), CT_I64);
}

/* Of a class: hits, all predictions of it, all targets of it. */
typedef struct tally {
    int64_t hits, predicted, targets;
} tally;

static tally tally_of(const ct_confusion *confusion, int64_t label) {
    const int64_t n = ct_confusion_classes(confusion);
    tally t = {0};
    if (label < 0 || label >= n) return t;
    t.hits = confusion->count[label * n + label];
    for (int64_t i = 0; i < n; i++) {
        t.predicted += confusion->count[i * n + label];
        t.targets += confusion->count[label * n + i];
    }
    return t;
}

static double ratio(double a, double b, double otherwise) { return b > 0 ? a / b : otherwise; }

static ct_scores scores_of(tally t) {
    const double hits = (double)t.hits;
    return (ct_scores){.precision = ratio(hits, (double)t.predicted, 0),
                       .recall = ratio(hits, (double)t.targets, 0),
                       .f1 = ratio(2 * hits, (double)(t.predicted + t.targets), 0),
                       .iou = ratio(hits, (double)(t.predicted + t.targets - t.hits), NAN),
                       .support = t.targets};
}

ct_scores ct_confusion_scores(const ct_confusion *confusion, int64_t label) {
    return scores_of(tally_of(confusion, label));
}

ct_scores ct_confusion_macro(const ct_confusion *confusion) {
    ct_scores sum = {0};
    int64_t present = 0;
    for (int64_t c = 0; c < ct_confusion_classes(confusion); c++) {
        const tally t = tally_of(confusion, c);
        if (t.predicted + t.targets == 0) continue;
        const ct_scores s = scores_of(t);
        present++;
        sum.precision += s.precision;
        sum.recall += s.recall;
        sum.f1 += s.f1;
        sum.iou += s.iou;
        sum.support += s.support;
    }
    sum.precision = ratio(sum.precision, (double)present, NAN);
    sum.recall = ratio(sum.recall, (double)present, NAN);
    sum.f1 = ratio(sum.f1, (double)present, NAN);
    sum.iou = ratio(sum.iou, (double)present, NAN);
    return sum;
}

ct_scores ct_confusion_micro(const ct_confusion *confusion) {
    tally all = {0};
    for (int64_t c = 0; c < ct_confusion_classes(confusion); c++) {
        const tally t = tally_of(confusion, c);
        all.hits += t.hits;
        all.predicted += t.predicted;
        all.targets += t.targets;
    }
    if (all.targets) return scores_of(all);
    return (ct_scores){.precision = NAN, .recall = NAN, .f1 = NAN, .iou = NAN};
}

double ct_confusion_accuracy(const ct_confusion *confusion) { return ct_confusion_micro(confusion).recall; }
