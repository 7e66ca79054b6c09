/* The dataset as an object: counting references, classes and their names, and checked access to an item. */
#include "data/data.h"

ct_dataset *ct__dataset_new(const ct_dataset_class *given, int64_t count, int fields) {
    ct_dataset_class own;
    const ct_dataset_class *type = given ? ct__take_class("ct_dataset_class", &own, sizeof own, given) : NULL;
    if (given && !type) return NULL;
    if (fields < 0) fields = type ? type->fields : 0;
    if (!type || !(type->get || type->get_drawn)) {
        ct__null("dataset_new", type ? "get" : "type");
        return NULL;
    }
    if (count < 0 || fields < 1 || fields > CT_MAX_FIELDS) {
        ct_fail(CT_ERR_VALUE, "dataset_new", "%s: %lld items of %d fields; expected 0 or more, of 1 to %d",
                type->name ? type->name : "a dataset", (long long)count, fields, CT_MAX_FIELDS);
        return NULL;
    }
    ct_dataset *dataset = ct__zeroed("dataset_new", 1, sizeof *dataset);
    if (!dataset) return NULL;
    dataset->given = given;
    dataset->own = *type;
    dataset->type = type == given ? given : &dataset->own;
    atomic_init(&dataset->refs, 1);
    dataset->fields = fields;
    dataset->count = count;
    dataset->data = ct__zeroed("dataset_new", 1, type->state);
    if (!dataset->data) {
        ct_free(dataset);
        return NULL;
    }
    return dataset;
}

ct_dataset *ct__dataset_over(const char *op, const ct_dataset_class *type, int64_t count, ct_dataset *const *bases,
                             int n) {
    int depth = 0;
    for (int i = 0; i < n; i++)
        if (bases[i]->depth >= depth) depth = bases[i]->depth + 1;
    if (depth > CT__MOST_DEPTH) {
        ct_fail(CT_ERR_VALUE, op, "more than %d datasets within one another", CT__MOST_DEPTH);
        return NULL;
    }
    ct_dataset *dataset = ct__dataset_new(type, count, bases[0]->fields);
    if (dataset) dataset->depth = depth;
    return dataset;
}

ct_dataset *ct_dataset_new(const ct_dataset_class *type, int64_t count) { return ct__dataset_new(type, count, -1); }

ct_dataset *ct_dataset_keep(ct_dataset *dataset) {
    if (dataset) atomic_fetch_add_explicit(&dataset->refs, 1, memory_order_relaxed);
    return dataset;
}

static void drop_names(ct_dataset *dataset) {
    for (int64_t i = 0; dataset->names && i < dataset->classes; i++) ct_free(dataset->names[i]);
    ct_free(dataset->names);
    dataset->names = NULL;
}

void ct_dataset_free(ct_dataset *dataset) {
    if (!dataset || atomic_fetch_sub_explicit(&dataset->refs, 1, memory_order_acq_rel) != 1) return;
    if (dataset->type->release) dataset->type->release(dataset);
    drop_names(dataset);
    ct_free(dataset->data);
    ct_free(dataset);
}

void *ct_dataset_data(const ct_dataset *dataset) { return dataset ? dataset->data : NULL; }
const ct_dataset_class *ct_dataset_type(const ct_dataset *dataset) { return dataset ? dataset->given : NULL; }
int64_t ct_dataset_count(const ct_dataset *dataset) { return dataset ? dataset->count : 0; }
int ct_dataset_fields(const ct_dataset *dataset) { return dataset ? dataset->fields : 0; }
int64_t ct_dataset_classes(const ct_dataset *dataset) { return dataset ? dataset->classes : 0; }

const char *ct_dataset_class_name(const ct_dataset *dataset, int64_t label) {
    return dataset && dataset->names && label >= 0 && label < dataset->classes ? dataset->names[label] : NULL;
}

bool ct_dataset_set_classes(ct_dataset *dataset, int64_t classes, const char *const *names) {
    if (!dataset) return ct__null("dataset_set_classes", "dataset");
    if (!ct_ok()) return false;
    if (classes < 0) return ct_fail(CT_ERR_VALUE, "dataset_set_classes", "%lld classes", (long long)classes);
    char **copies = NULL;
    if (names) {
        copies = ct__zeroed("dataset_set_classes", classes, sizeof *copies);
        for (int64_t i = 0; copies && i < classes; i++) {
            const char *name = names[i] ? names[i] : "";
            copies[i] = ct__copy_text("dataset_set_classes", name, strlen(name));
            if (copies[i]) continue;
            while (i > 0) ct_free(copies[--i]);
            ct_free(copies);
            copies = NULL;
        }
        if (!copies) return false;
    }
    drop_names(dataset);
    dataset->classes = classes;
    dataset->names = copies;
    return true;
}

void ct__dataset_copy_classes(ct_dataset *to, const ct_dataset *from) {
    ct_dataset_set_classes(to, from->classes, (const char *const *)from->names);
}

int64_t ct__count_classes(const int64_t *labels, int64_t n) {
    int64_t most = -1;
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] < 0) return 0;
        if (labels[i] > most) most = labels[i];
    }
    return most + 1;
}

bool ct__dataset_get(ct_dataset *dataset, int64_t index, ct_draw *draw, ct_tensor **fields) {
    for (int i = 0; i < dataset->fields; i++) fields[i] = NULL;
    const char *name = dataset->type->name ? dataset->type->name : "dataset";
    const ct_device before = ct__host_begin();
    const bool done = dataset->type->get_drawn ? dataset->type->get_drawn(dataset, index, draw, fields)
                                               : dataset->type->get(dataset, index, fields);
    ct__host_end(before);
    if (!ct_ok()) return false;
    if (!done)
        return ct_fail(CT_ERR_VALUE, "dataset_get", "item %lld of %s could not be had, without a reason given",
                       (long long)index, name);
    for (int i = 0; i < dataset->fields; i++)
        if (!fields[i])
            return ct_fail(CT_ERR_NULL, "dataset_get", "field %d of item %lld of %s is NULL", i, (long long)index,
                           name);
    return true;
}

bool ct_dataset_get(ct_dataset *dataset, int64_t index, ct_tensor **fields, int n) {
    for (int i = 0; fields && i < n; i++) fields[i] = NULL;
    if (!dataset || !fields) return ct__null("dataset_get", dataset ? "fields" : "dataset");
    if (!ct_ok()) return false;
    if (n < 0 || n > dataset->fields)
        return ct_fail(CT_ERR_VALUE, "dataset_get", "%d fields are wanted, an item of %s has %d", n,
                       dataset->type->name, dataset->fields);
    if (index < 0 || index >= dataset->count)
        return ct_fail(CT_ERR_INDEX, "dataset_get", "item %lld of %lld", (long long)index, (long long)dataset->count);
    ct_tensor *all[CT_MAX_FIELDS];
    bool ok = false;
    ct_scope {
        ct_draw draw = ct__draw_begin(0, CT__DRAW_ITEM, 0, index);
        ok = ct__dataset_get(dataset, index, &draw, all);
        ct__draw_end(&draw);
        for (int i = 0; ok && i < n; i++) fields[i] = ct_pass(all[i]);
    }
    return ok;
}

int64_t ct_dataset_label(ct_dataset *dataset, int64_t index) {
    if (!dataset) {
        ct__null("dataset_label", "dataset");
        return -1;
    }
    if (index < 0 || index >= dataset->count) {
        ct_fail(CT_ERR_INDEX, "dataset_label", "item %lld of %lld", (long long)index, (long long)dataset->count);
        return -1;
    }
    if (dataset->type->label) return dataset->type->label(dataset, index);
    if (dataset->fields < 2) {
        ct_fail(CT_ERR_VALUE, "dataset_label", "%s has no labels: its items have one field", dataset->type->name);
        return -1;
    }
    int64_t label = -1;
    ct_scope {
        ct_tensor *fields[CT_MAX_FIELDS];
        if (ct_dataset_get(dataset, index, fields, dataset->fields)) {
            if (ct_numel(fields[1]) == 1 && ct_dtype_is_int(ct_dtype_of(fields[1]))) label = ct_item_i64(fields[1]);
            else ct_fail(CT_ERR_VALUE, "dataset_label", "field 1 of %s is not a class number", dataset->type->name);
        }
    }
    return label;
}

const void *ct__dense(ct_tensor *x, ct_tensor **holder) {
    if (!x) return NULL;
    *holder = ct_is_contiguous(x) ? x : ct_contiguous(x);
    return *holder ? ct_data(*holder) : NULL;
}

ct_tensor *ct__blank(ct_dims shape, ct_dtype dtype, void **data) {
    ct_tensor *x = ct_empty(shape, .dtype = dtype, .device = {CT_CPU, 0});
    *data = x ? ct_data_mut(x) : NULL;
    return *data || (x && ct_numel(x) == 0) ? x : NULL;
}
