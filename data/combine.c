/* Datasets made of others: a choice of items, one after the other, two random parts. */
#include "data/data.h"

/* ---- Subset ---- */

typedef struct subset {
    ct_dataset *base;
    int64_t *indices; /* NULL: a range */
    int64_t begin;
} subset;

static int64_t subset_index(const subset *set, int64_t i) { return set->indices ? set->indices[i] : set->begin + i; }

static bool subset_get(ct_dataset *self, int64_t index, ct_draw *draw, ct_tensor **fields) {
    const subset *set = ct_dataset_data(self);
    return ct__dataset_get(set->base, subset_index(set, index), draw, fields);
}

static bool subset_get_many(ct_dataset *self, const int64_t *indices, int64_t n, ct_tensor **fields) {
    const subset *set = ct_dataset_data(self);
    int64_t *inner = ct__zeroed("dataset_subset", n, sizeof *inner);
    if (!inner) return false;
    for (int64_t i = 0; i < n; i++) inner[i] = subset_index(set, indices[i]);
    const bool ok = set->base->type->get_many(set->base, inner, n, fields);
    ct_free(inner);
    return ok;
}

static int64_t subset_label(ct_dataset *self, int64_t index) {
    const subset *set = ct_dataset_data(self);
    return ct_dataset_label(set->base, subset_index(set, index));
}

static void subset_release(ct_dataset *self) {
    subset *set = ct_dataset_data(self);
    ct_dataset_free(set->base);
    ct_free(set->indices);
}

/* Two classes: get_many is there where the base has it. */
static const ct_dataset_class subset_class = {.size = sizeof(ct_dataset_class),
                                              .name = "subset",
                                              .state = sizeof(subset),
                                              .get_drawn = subset_get,
                                              .label = subset_label,
                                              .release = subset_release};
static const ct_dataset_class subset_many_class = {.size = sizeof(ct_dataset_class),
                                                   .name = "subset",
                                                   .state = sizeof(subset),
                                                   .get_drawn = subset_get,
                                                   .get_many = subset_get_many,
                                                   .label = subset_label,
                                                   .release = subset_release};

static ct_dataset *new_subset(const char *op, ct_dataset *base, int64_t count) {
    ct_dataset *dataset =
        ct__dataset_over(op, base->type->get_many ? &subset_many_class : &subset_class, count, &base, 1);
    if (!dataset) return NULL;
    ((subset *)ct_dataset_data(dataset))->base = ct_dataset_keep(base);
    ct__dataset_copy_classes(dataset, base);
    return dataset;
}

ct_dataset *ct_dataset_subset(ct_dataset *base, const int64_t *indices, int64_t n) {
    if (!base || (!indices && n > 0)) {
        ct__null("dataset_subset", base ? "indices" : "dataset");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        if (indices[i] < 0 || indices[i] >= base->count) {
            ct_fail(CT_ERR_INDEX, "dataset_subset", "index %lld at position %lld; the dataset has %lld items",
                    (long long)indices[i], (long long)i, (long long)base->count);
            return NULL;
        }
    int64_t *copy = ct__zeroed("dataset_subset", n, sizeof *copy);
    if (!copy) return NULL;
    if (n) memcpy(copy, indices, (size_t)n * sizeof *copy);
    ct_dataset *dataset = new_subset("dataset_subset", base, n);
    if (!dataset) {
        ct_free(copy);
        return NULL;
    }
    ((subset *)ct_dataset_data(dataset))->indices = copy;
    return dataset;
}

ct_dataset *ct_dataset_range(ct_dataset *base, int64_t begin, int64_t end) {
    if (!base) {
        ct__null("dataset_range", "dataset");
        return NULL;
    }
    if (begin < 0 || end < begin || end > base->count) {
        ct_fail(CT_ERR_INDEX, "dataset_range", "items %lld to %lld of %lld", (long long)begin, (long long)end,
                (long long)base->count);
        return NULL;
    }
    ct_dataset *dataset = new_subset("dataset_range", base, end - begin);
    if (dataset) ((subset *)ct_dataset_data(dataset))->begin = begin;
    return dataset;
}

bool ct_dataset_split(ct_dataset *base, double fraction, uint64_t seed, ct_dataset **first, ct_dataset **second) {
    if (first) *first = NULL;
    if (second) *second = NULL;
    if (!base || !first || !second) return ct__null("dataset_split", !base ? "dataset" : first ? "second" : "first");
    if (!(fraction >= 0 && fraction <= 1))
        return ct_fail(CT_ERR_VALUE, "dataset_split", "fraction is %g; expected 0 to 1", fraction);
    int64_t *order = ct__zeroed("dataset_split", base->count, sizeof *order);
    if (!order) return false;
    for (int64_t i = 0; i < base->count; i++) order[i] = i;
    ct_draw draw = ct__draw_begin(seed, CT__DRAW_SPLIT, 0, 0);
    ct__shuffle(order, base->count, &draw);
    /* A little more than exact, so that 0.7 of 10, which is 6.999..., is 7. */
    int64_t count = (int64_t)((double)base->count * fraction + 1e-6);
    if (count > base->count) count = base->count;
    *first = ct_dataset_subset(base, order, count);
    *second = *first ? ct_dataset_subset(base, order + count, base->count - count) : NULL;
    ct_free(order);
    if (*second) return true;
    ct_dataset_free(*first);
    *first = NULL;
    return false;
}

/* ---- One after the other ---- */

typedef struct concat {
    ct_dataset **parts;
    int64_t *begin; /* of each part, and the end */
    int n;
} concat;

static ct_dataset *part_of(ct_dataset *self, int64_t *index) {
    const concat *set = ct_dataset_data(self);
    int low = 0, high = set->n;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (set->begin[middle] <= *index) low = middle;
        else high = middle;
    }
    *index -= set->begin[low];
    return set->parts[low];
}

static bool concat_get(ct_dataset *self, int64_t index, ct_draw *draw, ct_tensor **fields) {
    ct_dataset *part = part_of(self, &index);
    return ct__dataset_get(part, index, draw, fields);
}

static int64_t concat_label(ct_dataset *self, int64_t index) {
    ct_dataset *part = part_of(self, &index);
    return ct_dataset_label(part, index);
}

static void concat_release(ct_dataset *self) {
    concat *set = ct_dataset_data(self);
    for (int i = 0; set->parts && i < set->n; i++) ct_dataset_free(set->parts[i]);
    ct_free(set->parts);
    ct_free(set->begin);
}

static const ct_dataset_class concat_class = {.size = sizeof(ct_dataset_class),
                                              .name = "concat",
                                              .state = sizeof(concat),
                                              .get_drawn = concat_get,
                                              .label = concat_label,
                                              .release = concat_release};

ct_dataset *ct_dataset_concat(ct_dataset *const *datasets, int n) {
    if (!datasets || n < 1) {
        if (!datasets) ct__null("dataset_concat", "datasets");
        else ct_fail(CT_ERR_VALUE, "dataset_concat", "%d datasets; expected 1 or more", n);
        return NULL;
    }
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        if (!datasets[i]) {
            ct__null("dataset_concat", "datasets");
            return NULL;
        }
        if (datasets[i]->fields != datasets[0]->fields) {
            ct_fail(CT_ERR_VALUE, "dataset_concat", "dataset %d has %d fields, dataset 0 has %d", i,
                    datasets[i]->fields, datasets[0]->fields);
            return NULL;
        }
        if (__builtin_add_overflow(count, datasets[i]->count, &count)) {
            ct_fail(CT_ERR_VALUE, "dataset_concat", "more items than can be counted");
            return NULL;
        }
    }
    ct_dataset *dataset = ct__dataset_over("dataset_concat", &concat_class, count, datasets, n);
    if (!dataset) return NULL;
    concat *set = ct_dataset_data(dataset);
    set->parts = ct__zeroed("dataset_concat", n, sizeof *set->parts);
    set->begin = set->parts ? ct__zeroed("dataset_concat", n + 1, sizeof *set->begin) : NULL;
    if (!set->begin) {
        ct_dataset_free(dataset);
        return NULL;
    }
    set->n = n;
    const ct_dataset *most = datasets[0];
    for (int i = 0; i < n; i++) {
        set->parts[i] = ct_dataset_keep(datasets[i]);
        set->begin[i + 1] = set->begin[i] + datasets[i]->count;
        if (datasets[i]->classes > most->classes) most = datasets[i];
    }
    ct__dataset_copy_classes(dataset, most);
    return dataset;
}
