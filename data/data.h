/* What the files of data/ share: the bodies of the counted objects, small helpers for options, errors and memory. */
#ifndef COTANGENT_DATA_DATA_H
#define COTANGENT_DATA_DATA_H

#include <cotangent/data.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/options.h"
#include "support/text.h"

/* ---- Random numbers ---- */

/* Counter-based, as the library's generators are: number i is a mix of key and i. */
struct ct_draw {
    uint64_t key, count;
    ct_rng *rng; /* made when it is asked for */
};
/* Streams that must never meet although their seed and numbers are the same. */
enum { CT__DRAW_ITEM = 1, CT__DRAW_ORDER, CT__DRAW_BATCH, CT__DRAW_SPLIT, CT__DRAW_SHAPES, CT__DRAW_SHAPE_MASKS };
ct_draw ct__draw_begin(uint64_t seed, int stream, int64_t epoch, int64_t item);
void ct__draw_end(ct_draw *draw);
void ct__shuffle(int64_t *values, int64_t n, ct_draw *draw);

/* ---- Objects ---- */

struct ct_dataset {
    const ct_dataset_class *type;  /* the whole of it: given, or own where that is shorter */
    const ct_dataset_class *given; /* as it was handed over */
    ct_dataset_class own;
    _Atomic int refs;
    int fields, depth; /* depth: of the datasets below it, within one another */
    int64_t count, classes;
    char **names; /* of the classes, or NULL */
    void *data;
};
/* As ct_dataset_new, for kinds whose number of fields differs from one dataset to the next; -1: as many as the class says. */
ct_dataset *ct__dataset_new(const ct_dataset_class *given, int64_t count, int fields);
/* The same, for one that is made of others. An item is had, and the dataset freed, by recursion: too many datasets within one
 * another are an error. */
ct_dataset *ct__dataset_over(const char *op, const ct_dataset_class *type, int64_t count, ct_dataset *const *bases,
                             int n);
void ct__dataset_copy_classes(ct_dataset *to, const ct_dataset *from);
/* Field 1 as class numbers: how many classes its n labels make. Negative labels: 0. */
int64_t ct__count_classes(const int64_t *labels, int64_t n);
/* An item with its random numbers; every result is checked. The tensors belong to the current scope. */
bool ct__dataset_get(ct_dataset *dataset, int64_t index, ct_draw *draw, ct_tensor **fields);

struct ct_transform {
    const ct_transform_class *type; /* the whole of it: as given, or own where that is shorter */
    ct_transform_class own;
    _Atomic int refs;
    void *data;
};
bool ct__transform_item(ct_transform *transform, ct_tensor **fields, int n, ct_draw *draw);
bool ct__transform_batch(ct_transform *transform, ct_tensor **fields, int n, int64_t classes, ct_draw *draw);
bool ct__transform_has(const ct_transform *transform, bool batch); /* something to do for items, or for batches */
/* Where the last thing that happens to an item is to be normalized, that can be done for a whole batch: then *last is
 * that transform, and the result, to be freed, is what is left for the items (NULL: nothing, or no memory, with an
 * error). */
ct_transform *ct__transform_cut(ct_transform *transform, ct_transform **last);
/* x, an item or a batch, as f32: u8 divided by 255, and normalized where `by` is not NULL. In the current scope. */
ct_tensor *ct__normalize(ct_tensor *x, const ct_transform *by);

struct ct_sampler {
    ct_sampler_fn fill;
    int64_t items; /* 0: as many as the dataset has */
    void *context;
    void (*release)(void *context);
    bool once; /* no item comes twice in an epoch */
};

/* ---- Small things ---- */

/* Data is made on the CPU, whatever the current device of the thread is: it is that between these two. */
static inline ct_device ct__host_begin(void) {
    const ct_device before = ct_get_device();
    ct_set_device((ct_device){CT_CPU, 0});
    return before;
}
static inline void ct__host_end(ct_device before) { ct_set_device(before); }

static inline bool ct__null(const char *op, const char *argument) {
    return ct_ok() ? ct_fail(CT_ERR_NULL, op, "argument %s is NULL", argument) : false;
}
static inline bool ct__no_memory(const char *op, size_t bytes) {
    return ct_fail(CT_ERR_MEMORY, op, "out of memory: %zu bytes could not be had", bytes);
}
/* count * each bytes, zeroed; NULL with an error. Never of size 0, so that NULL means failure. */
static inline void *ct__zeroed(const char *op, int64_t count, size_t each) {
    void *p = count < 0 ? NULL : ct_calloc(count ? (size_t)count : 1, each ? each : 1);
    if (!p) ct__no_memory(op, (size_t)count * each);
    return p;
}
static inline char *ct__copy_text(const char *op, const char *text, size_t length) {
    char *copy = ct__text_copy(text, length);
    if (!copy) ct__no_memory(op, length + 1);
    return copy;
}

/* The elements of x as a dense array of its dtype, whatever its layout; x itself or a copy in the current scope. NULL
 * with an error. */
const void *ct__dense(ct_tensor *x, ct_tensor **holder);
/* A new tensor of the current scope, to be filled in by hand. */
ct_tensor *ct__blank(ct_dims shape, ct_dtype dtype, void **data);

#endif
