/* Datasets that lie in memory: tensors whose first axes are the items. MNIST, CIFAR and CSV end up here as well. */
#include "data/memory.h"

typedef struct memory_set {
    ct_tensor *field[CT_MAX_FIELDS];   /* kept, dense */
    const char *bytes[CT_MAX_FIELDS];  /* their elements */
    size_t item_bytes[CT_MAX_FIELDS];  /* of one item */
    ct_dims item_shape[CT_MAX_FIELDS]; /* without the first axis */
    void *extra;                       /* of the kind that is built on this */
    void (*release_extra)(void *extra);
} memory_set;

static bool get(ct_dataset *self, int64_t index, ct_tensor **fields) {
    const memory_set *set = ct_dataset_data(self);
    for (int f = 0; f < self->fields; f++)
        fields[f] = ct_from_data(set->bytes[f] + (size_t)index * set->item_bytes[f], set->item_shape[f],
                                 ct_dtype_of(set->field[f]));
    return ct_ok();
}

static bool get_many(ct_dataset *self, const int64_t *indices, int64_t n, ct_tensor **fields) {
    const memory_set *set = ct_dataset_data(self);
    for (int f = 0; f < self->fields; f++) {
        ct_dims shape = set->item_shape[f];
        memmove(shape.d + 1, shape.d, (size_t)shape.n * sizeof *shape.d);
        shape.d[0] = n;
        shape.n++;
        void *to;
        fields[f] = ct__blank(shape, ct_dtype_of(set->field[f]), &to);
        if (!fields[f]) return false;
        const size_t bytes = set->item_bytes[f];
        if (bytes == sizeof(int64_t) && ct_dtype_of(set->field[f]) == CT_I64) { /* labels */
            const int64_t *from = (const int64_t *)(const void *)set->bytes[f];
            for (int64_t i = 0; i < n; i++) ((int64_t *)to)[i] = from[indices[i]];
        } else {
            for (int64_t i = 0; bytes && i < n; i++)
                memcpy((char *)to + (size_t)i * bytes, set->bytes[f] + (size_t)indices[i] * bytes, bytes);
        }
    }
    return true;
}

static int64_t label(ct_dataset *self, int64_t index) {
    const memory_set *set = ct_dataset_data(self);
    if (self->fields > 1 && set->item_shape[1].n == 0 && ct_dtype_of(set->field[1]) == CT_I64)
        return ((const int64_t *)(const void *)set->bytes[1])[index];
    ct_fail(CT_ERR_VALUE, "dataset_label", "%s has no class numbers in field 1", self->type->name);
    return -1;
}

static void release(ct_dataset *self) {
    memory_set *set = ct_dataset_data(self);
    for (int f = 0; f < CT_MAX_FIELDS; f++) ct_drop(set->field[f]);
    if (set->release_extra) set->release_extra(set->extra);
}

static const ct_dataset_class memory_class = {.size = sizeof(ct_dataset_class),
                                              .name = "tensors",
                                              .state = sizeof(memory_set),
                                              .get = get,
                                              .get_many = get_many,
                                              .label = label,
                                              .release = release};
static const ct_dataset_class csv_class = {.size = sizeof(ct_dataset_class),
                                           .name = "csv",
                                           .state = sizeof(memory_set),
                                           .get = get,
                                           .get_many = get_many,
                                           .label = label,
                                           .release = release};

bool ct__memory_is_csv(const ct_dataset *dataset) { return dataset && dataset->type == &csv_class; }
void *ct__memory_extra(const ct_dataset *dataset) {
    return dataset && dataset->type == &csv_class ? ((memory_set *)ct_dataset_data(dataset))->extra : NULL;
}

/* Takes one tensor in: on the CPU, dense, and integer labels as i64 so that label() reads them. */
static bool take_field(ct_dataset *dataset, int f, ct_tensor *x) {
    memory_set *set = ct_dataset_data(dataset);
    ct_tensor *dense = ct_detach(x);
    if (dense && !ct_is_contiguous(dense)) dense = ct_contiguous(dense);
    if (dense && f == 1 && ct_ndim(dense) == 1 && ct_dtype_is_int(ct_dtype_of(dense))) dense = ct_cast(dense, CT_I64);
    if (!dense) return false;
    set->bytes[f] = ct_data(dense);
    if (!set->bytes[f] && ct_numel(dense)) return false;
    set->field[f] = ct_keep(dense);
    ct_dims shape = ct_shape(dense), item = {.n = shape.n - 1};
    memcpy(item.d, shape.d + 1, (size_t)item.n * sizeof *item.d);
    set->item_shape[f] = item;
    set->item_bytes[f] = ct_dtype_size(ct_dtype_of(dense));
    for (int i = 0; i < item.n; i++) set->item_bytes[f] *= (size_t)item.d[i];
    return true;
}

static ct_dataset *build(const ct_dataset_class *type, ct_tensor *const *fields, int n, const char *op, void *extra,
                         void (*release_extra)(void *)) {
    for (int f = 0; fields && f < n; f++)
        if (!fields[f]) {
            ct__null(op, "fields");
            return NULL;
        }
    if (!fields || !ct_ok()) {
        ct__null(op, "fields");
        return NULL;
    }
    if (n < 1 || n > CT_MAX_FIELDS) {
        ct_fail(CT_ERR_VALUE, op, "%d tensors; expected 1 to %d", n, CT_MAX_FIELDS);
        return NULL;
    }
    for (int f = 0; f < n; f++) {
        if (ct_ndim(fields[f]) < 1) {
            ct_fail(CT_ERR_SHAPE, op, "tensor %d has no dimensions; its first one is to be the items", f);
            return NULL;
        }
        if (ct_dim(fields[f], 0) != ct_dim(fields[0], 0)) {
            ct_fail(CT_ERR_SHAPE, op, "tensor %d has %lld items, tensor 0 has %lld", f, (long long)ct_dim(fields[f], 0),
                    (long long)ct_dim(fields[0], 0));
            return NULL;
        }
    }
    ct_dataset *dataset = ct__dataset_new(type, ct_dim(fields[0], 0), n);
    if (!dataset) return NULL;
    bool ok = true;
    ct_scope {
        for (int f = 0; ok && f < n; f++) ok = take_field(dataset, f, fields[f]);
    }
    if (!ok) {
        ct_dataset_free(dataset);
        return NULL;
    }
    memory_set *set = ct_dataset_data(dataset);
    set->extra = extra;
    set->release_extra = release_extra;
    if (n > 1 && set->item_shape[1].n == 0 && ct_dtype_of(set->field[1]) == CT_I64)
        dataset->classes = ct__count_classes((const int64_t *)(const void *)set->bytes[1], dataset->count);
    return dataset;
}

ct_dataset *ct_dataset_tensors(ct_tensor *const *fields, int n) {
    return build(&memory_class, fields, n, "dataset_tensors", NULL, NULL);
}

ct_dataset *ct__memory_csv(ct_tensor *const *fields, int n, void *extra, void (*release_extra)(void *)) {
    return build(&csv_class, fields, n, "dataset_csv", extra, release_extra);
}
