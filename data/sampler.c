/* Samplers: functions that list the items of an epoch. */
#include "data/data.h"

#include <math.h>

static bool in_order(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw) {
    (void)context, (void)dataset, (void)draw;
    for (int64_t i = 0; i < n; i++) indices[i] = i;
    return true;
}

static bool shuffled(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw) {
    in_order(context, dataset, indices, n, draw);
    ct__shuffle(indices, n, draw);
    return true;
}

ct_sampler *ct_sampler_call(ct_sampler_fn fn, void *context, int64_t items, void (*release)(void *context)) {
    ct_sampler *sampler = NULL;
    if (!fn) ct__null("sampler_call", "fn");
    else if (items < 0) ct_fail(CT_ERR_VALUE, "sampler_call", "%lld items; expected 0 or more", (long long)items);
    else sampler = ct__zeroed("sampler_call", 1, sizeof *sampler);
    if (sampler) *sampler = (ct_sampler){fn, items, context, release, fn == in_order || fn == shuffled};
    else if (release) release(context);
    return sampler;
}

void ct_sampler_free(ct_sampler *sampler) {
    if (!sampler) return;
    if (sampler->release) sampler->release(sampler->context);
    ct_free(sampler);
}

static bool replaced(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw) {
    (void)context;
    for (int64_t i = 0; i < n; i++) indices[i] = ct_draw_below(draw, dataset->count);
    return true;
}

ct_sampler *ct_sampler_sequential(void) { return ct_sampler_call(in_order, NULL, 0, NULL); }
ct_sampler *ct_sampler_random(void) { return ct_sampler_call(shuffled, NULL, 0, NULL); }
ct_sampler *ct_sampler_replacement(int64_t items) { return ct_sampler_call(replaced, NULL, items, NULL); }

/* ---- By weight ---- */

typedef struct weight_list {
    int64_t count;
    double sum[]; /* of the weights up to and with each */
} weight_list;

/* The first item whose sum of weights is above x: a search by halves. */
static int64_t find_weight(const weight_list *list, double x) {
    int64_t low = 0, high = list->count - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (list->sum[middle] > x) high = middle;
        else low = middle + 1;
    }
    return low;
}

static bool by_weight(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw) {
    const weight_list *list = context;
    if (list->count != dataset->count)
        return ct_fail(CT_ERR_VALUE, "sampler_weighted", "%lld weights for %lld items", (long long)list->count,
                       (long long)dataset->count);
    for (int64_t i = 0; i < n; i++) indices[i] = find_weight(list, ct_draw_uniform(draw) * list->sum[list->count - 1]);
    return true;
}

ct_sampler *ct_sampler_weighted(const double *weights, int64_t count, int64_t items) {
    if (!weights || count < 1) {
        if (!weights) ct__null("sampler_weighted", "weights");
        else ct_fail(CT_ERR_VALUE, "sampler_weighted", "%lld weights", (long long)count);
        return NULL;
    }
    double total = 0;
    weight_list *list = ct__zeroed("sampler_weighted", 1, sizeof *list + (size_t)count * sizeof *list->sum);
    if (!list) return NULL;
    list->count = count;
    for (int64_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i])) {
            ct_fail(CT_ERR_VALUE, "sampler_weighted", "weight %lld is %g; expected 0 or more", (long long)i,
                    weights[i]);
            ct_free(list);
            return NULL;
        }
        list->sum[i] = total += weights[i];
    }
    if (!(total > 0) || isinf(total)) {
        ct_fail(CT_ERR_VALUE, "sampler_weighted", "the sum of the weights is %g", total);
        ct_free(list);
        return NULL;
    }
    return ct_sampler_call(by_weight, list, items, ct_free);
}

/* ---- Every class alike ---- */

static bool balanced(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw) {
    (void)context;
    if (dataset->classes < 1)
        return ct_fail(CT_ERR_VALUE, "sampler_balanced", "the dataset does not say how many classes it has");
    const int64_t count = dataset->count, classes = dataset->classes;
    /* Items in order of their classes: begin[c] .. begin[c + 1] of `sorted`. Empty classes are left out in
     * `present`. */
    int64_t *begin = ct__zeroed("sampler_balanced", classes + 1, sizeof *begin);
    int64_t *present = begin ? ct__zeroed("sampler_balanced", classes, sizeof *present) : NULL;
    int64_t *sorted = present ? ct__zeroed("sampler_balanced", 2 * count, sizeof *sorted) : NULL;
    int64_t *label = sorted ? sorted + count : NULL, kinds = 0;
    bool ok = sorted != NULL;
    for (int64_t i = 0; ok && i < count; i++) {
        label[i] = ct_dataset_label(dataset, i);
        ok = ct_ok() &&
             ((label[i] >= 0 && label[i] < classes) ||
              ct_fail(CT_ERR_INDEX, "sampler_balanced", "the label of item %lld is %lld; there are %lld classes",
                      (long long)i, (long long)label[i], (long long)classes));
        if (ok) begin[label[i] + 1]++;
    }
    for (int64_t c = 0; ok && c < classes; c++) {
        if (begin[c + 1]) present[kinds++] = c;
        begin[c + 1] += begin[c];
    }
    for (int64_t i = count - 1; ok && i >= 0; i--)
        sorted[--begin[label[i] + 1]] = i; /* moves begin[c + 1] to begin[c] */
    for (int64_t i = 0; ok && i < n; i++) {
        const int64_t c = present[ct_draw_below(draw, kinds)], from = begin[c + 1];
        const int64_t to = c + 1 < classes ? begin[c + 2] : count;
        indices[i] = sorted[from + ct_draw_below(draw, to - from)];
    }
    ct_free(begin);
    ct_free(present);
    ct_free(sorted);
    return ok;
}

ct_sampler *ct_sampler_balanced(int64_t items) { return ct_sampler_call(balanced, NULL, items, NULL); }

/* ---- These ---- */

static bool chosen(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw) {
    (void)dataset;
    if (n) memcpy(indices, context, (size_t)n * sizeof *indices);
    ct__shuffle(indices, n, draw);
    return true;
}

ct_sampler *ct_sampler_subset(const int64_t *indices, int64_t n) {
    if (!indices || n < 1) {
        if (!indices) ct__null("sampler_subset", "indices");
        else ct_fail(CT_ERR_VALUE, "sampler_subset", "%lld items; expected 1 or more", (long long)n);
        return NULL;
    }
    int64_t *copy = ct__zeroed("sampler_subset", n, sizeof *copy);
    if (!copy) return NULL;
    memcpy(copy, indices, (size_t)n * sizeof *copy);
    return ct_sampler_call(chosen, copy, n, ct_free);
}
