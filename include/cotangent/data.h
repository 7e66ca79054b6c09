/* Data: datasets, transforms, and the loader that turns them into batches on threads of its own. Everything random here is
 * drawn from (seed, epoch, item), so batches are the same at any number of loader threads.
 *
 *     ct_dataset *train = ct_dataset_idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz");
 *     ct_loader *batches = ct_batches(train, 128, .shuffle = true, .seed = 1);
 *     for (int epoch = 0; epoch < 10; epoch++)
 *         for (ct_batch b; ct_next(batches, &b);) ct_scope { ... b.x, b.y ... }
 */
#ifndef COTANGENT_DATA_H
#define COTANGENT_DATA_H

#include <cotangent.h>
#include <cotangent/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Items by index, each of one or more tensors of the same shapes and dtypes for every item unless a transform makes them
 * so. Read from several threads at once. Counted like modules: a loader keeps its dataset. */
typedef struct ct_dataset ct_dataset;

typedef struct ct_dataset_class {
    const char *name;
    size_t state; /* bytes of plain data, zeroed at first */
    int fields;   /* tensors an item: x; x, y; ... */
    /* The item, as tensors of the current scope. Called from several threads at once. */
    bool (*get)(ct_dataset *self, int64_t index, ct_tensor **fields);
    /* Several at once, stacked, where that is faster; may be NULL. */
    bool (*get_many)(ct_dataset *self, const int64_t *indices, int64_t n, ct_tensor **fields);
    void (*release)(ct_dataset *self);
} ct_dataset_class;
CT_API ct_dataset *ct_dataset_new(const ct_dataset_class *type, int64_t count);
CT_API ct_dataset *ct_dataset_keep(ct_dataset *dataset);
CT_API void ct_dataset_free(ct_dataset *dataset);
CT_API void *ct_dataset_data(const ct_dataset *dataset);
CT_API int64_t ct_dataset_count(const ct_dataset *dataset);
CT_API int ct_dataset_fields(const ct_dataset *dataset);
CT_API bool ct_dataset_get(ct_dataset *dataset, int64_t index, ct_tensor **fields, int n);
/* Names of the classes, where the data has them: NULL past the end or when it has none. */
CT_API const char *ct_dataset_class_name(const ct_dataset *dataset, int64_t label);
CT_API int64_t ct_dataset_classes(const ct_dataset *dataset); /* 0: not a classification */

/* (the kinds of datasets, transforms: see data/) */

typedef struct ct_loader ct_loader;
typedef struct ct_batch {
    int64_t n;            /* items in it */
    ct_tensor *x, *y;     /* field[0] and field[1]: the loader's until the next ct_next */
    ct_tensor *field[4];
    const int64_t *index; /* which items, n of them */
    int64_t epoch, position; /* of this batch: epoch from 0, batches before it in the epoch */
} ct_batch;

/* True with the next batch; false at the end of an epoch (the next call begins another one) and on an error. */
CT_API bool ct_next(ct_loader *loader, ct_batch *batch);
CT_API void ct_loader_free(ct_loader *loader);
CT_API int64_t ct_loader_batches(const ct_loader *loader); /* an epoch */

CT_API bool ct_loader_put_state(ct_loader *loader, ct_state *state, const char *prefix); /* where the next ct_next begins */
CT_API bool ct_loader_take_state(ct_loader *loader, const ct_state *state, const char *prefix);

#ifdef __cplusplus
}
#endif
#endif
