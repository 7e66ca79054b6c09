/* Area under the ROC curve: the chance that an item of the class scores higher than another, from the sum of ranks
 * (Mann and Whitney), where equal scores share their mean rank. Exact: every score is kept. */
#include "metrics/metrics.h"

#include <math.h>

struct ct_auc {
    int64_t classes; /* 2: one score an item */
    int64_t columns; /* scores an item */
    int64_t count, room;
    double *score;   /* (count, columns) */
    int64_t *target; /* (count) */
};

ct_auc *ct_auc_new(int64_t classes) {
    if (classes < 1 || classes > 1 << 20) {
        ct_fail(CT_ERR_VALUE, "auc_new", "%lld classes; expected 1 or more", (long long)classes);
        return NULL;
    }
    ct_auc *auc = ct__metric_room("auc_new", 1, sizeof *auc);
    if (!auc) return NULL;
    auc->classes = classes < 2 ? 2 : classes;
    auc->columns = auc->classes == 2 ? 1 : auc->classes;
    return auc;
}

void ct_auc_free(ct_auc *auc) {
    if (!auc) return;
    ct_free(auc->score);
    ct_free(auc->target);
    ct_free(auc);
}

void ct_auc_clear(ct_auc *auc) {
    if (auc) auc->count = 0;
}

static bool grow(ct_auc *auc, int64_t more) {
    if (auc->count + more <= auc->room) return true;
    const int64_t room = 2 * auc->room + more;
    double *score = ct_realloc(auc->score, (size_t)(room * auc->columns) * sizeof *score);
    if (score) auc->score = score;
    int64_t *target = ct_realloc(auc->target, (size_t)room * sizeof *target);
    if (target) auc->target = target;
    if (!score || !target)
        return ct_fail(CT_ERR_MEMORY, "auc_add", "out of memory: %lld scores could not be kept",
                       (long long)(room * auc->columns));
    auc->room = room;
    return true;
}

bool ct_auc_add(ct_auc *auc, ct_tensor *scores, ct_tensor *target) {
    if (!auc || !scores || !target) return ct__metric_null("auc_add", !auc ? "auc" : scores ? "target" : "scores");
    if (!ct_ok()) return false;
    const ct_dims shape = ct_shape(scores);
    const int64_t n = ct_numel(target), given = shape.n == 2 ? shape.d[1] : 1;
    const bool binary = auc->columns == 1;
    if (shape.n < 1 || shape.n > 2 || shape.d[0] != n || (binary ? given != 1 && given != 2 : given != auc->columns))
        return ct_fail(CT_ERR_SHAPE, "auc_add", "%lld scores for %lld targets; expected %s for each",
                       (long long)ct_numel(scores), (long long)n, binary ? "1 or 2" : "one of every class");
    if (!ct_dtype_is_int(ct_dtype_of(target)) && ct_dtype_of(target) != CT_BOOL)
        return ct_fail(CT_ERR_DTYPE, "auc_add", "the targets are %s; expected class numbers",
                       ct_dtype_name(ct_dtype_of(target)));
    double *s = ct__metric_doubles("auc_add", scores);
    int64_t *t = s ? ct__metric_integers("auc_add", target) : NULL;
    bool ok = t && grow(auc, n);
    for (int64_t i = 0; ok && i < n; i++) {
        if (t[i] >= auc->classes)
            ok = ct_fail(CT_ERR_INDEX, "auc_add", "the target %lld of %lld classes", (long long)t[i],
                         (long long)auc->classes);
        const double *at = s + i * given;
        for (int64_t c = 0; ok && c < given; c++)
            if (isnan(at[c])) ok = ct_fail(CT_ERR_VALUE, "auc_add", "score %lld is NaN", (long long)i);
        if (ok && binary && given == 2 && isnan(at[1] - at[0]))
            ok = ct_fail(CT_ERR_VALUE, "auc_add", "the two scores of %lld are both %g and have no difference",
                         (long long)i, at[0]);
    }
    for (int64_t i = 0; ok && i < n; i++) {
        if (t[i] < 0) continue;
        double *to = auc->score + auc->count * auc->columns;
        if (binary) to[0] = given == 2 ? s[2 * i + 1] - s[2 * i] : s[i];
        else memcpy(to, s + i * given, (size_t)given * sizeof *to);
        auc->target[auc->count++] = t[i];
    }
    ct_free(s);
    ct_free(t);
    return ok;
}

typedef struct scored {
    double score;
    bool mine;
} scored;

static int compare(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score < y->score ? -1 : x->score > y->score;
}

double ct_auc_class(const ct_auc *auc, int64_t label) {
    if (!auc || label < 0 || label >= auc->classes) return NAN;
    const bool binary = auc->columns == 1;
    scored *list = ct__metric_room("auc_class", auc->count, sizeof *list);
    if (!list) return NAN;
    int64_t mine = 0;
    for (int64_t i = 0; i < auc->count; i++) {
        const double score = binary ? auc->score[i] * (label ? 1 : -1) : auc->score[i * auc->columns + label];
        list[i] = (scored){score, auc->target[i] == label};
        mine += list[i].mine;
    }
    if (auc->count) qsort(list, (size_t)auc->count, sizeof *list, compare);
    double ranks = 0;
    for (int64_t i = 0, end; i < auc->count; i = end) {
        int64_t here = 0;
        for (end = i; end < auc->count && list[end].score == list[i].score; end++) here += list[end].mine;
        ranks += (double)here * ((double)(i + 1 + end) / 2); /* ranks i + 1 .. end share their mean */
    }
    ct_free(list);
    const double a = (double)mine, b = (double)(auc->count - mine);
    return a > 0 && b > 0 ? (ranks - a * (a + 1) / 2) / (a * b) : NAN;
}

double ct_auc_value(const ct_auc *auc) {
    if (!auc) return NAN;
    if (auc->columns == 1) return ct_auc_class(auc, 1);
    double sum = 0;
    int64_t n = 0;
    for (int64_t c = 0; c < auc->classes; c++) {
        const double one = ct_auc_class(auc, c);
        if (isnan(one)) continue;
        sum += one;
        n++;
    }
    return n ? sum / (double)n : NAN;
}
