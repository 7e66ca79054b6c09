/* Tensors and their storage: values and lifetimes, nothing of mathematics. */
#ifndef COTANGENT_CORE_TENSOR_H
#define COTANGENT_CORE_TENSOR_H

#include <cotangent/backend.h>
#include <stdatomic.h>
#include <string.h>

typedef struct ct_node ct_node;

/* Memory shared by views. The version counts changes in place: backward checks that what it saved is still there. */
typedef struct ct_storage {
    _Atomic int refs;
    _Atomic uint32_t version;
    ct_device device;
    size_t bytes;
    void *buffer; /* on the CPU behind this header, in the same block, unless the memory is wrapped */
    bool wrapped; /* the memory is somebody else's: how it is given back lies behind this header */
    bool read_only;
    _Atomic bool known; /* to a graph that does not hold it: it was made by a function that is captured (capture.c) */
    struct ct_block *block; /* of a device other than the CPU: where it lies in buffer, and who uses it (arena.h) */
} ct_storage;

/* How memory that is not the library's is given back. */
typedef struct ct_wrapped {
    void (*release)(void *context, void *data); /* may be NULL */
    void *context, *data;
} ct_wrapped;

/* What every tensor uses comes first, so that a small one takes few cache lines. */
struct ct_tensor {
    uint32_t magic;
    _Atomic int refs;
    ct_storage *storage;  /* NULL: the shape alone is known, or it is a number (number.h) */
    ct_node *node;        /* what computed it, or its leaf; NULL: no gradient */
    ct_node *unwanted;    /* its leaf of before ct_set_requires_grad: graphs may lead to it still */
    struct ct_user *user; /* what ct_set_user gave it, or NULL */
    /* A view knows the tensor whose storage it shares: a recorded change in place of either reaches the other (inplace.c). */
    ct_tensor *base;  /* NULL: not a view. Else it is the base that holds the storage, and the view the base */
    uint32_t changes; /* of a base: recorded changes so far. Of a view: those that its node knows of */
    int node_output;
    ct_view view;                                       /* kernels get a pointer to it */
    _Alignas(16) unsigned char number[CT_NUMBER_BYTES]; /* the value of a number */
};

enum { CT__ALIVE = 0x7e4507ae, CT__DEAD = 0x5ead7e45 };

ct_storage *ct__storage_new(ct_device device, size_t bytes, const char *op); /* NULL after an error */
/* Storage on memory of somebody else, which is given back when it ends, and at once where this fails. */
ct_storage *ct__storage_wrap(ct_device device, void *buffer, size_t bytes, ct_wrapped wrapped, const char *op);
/* Copies bytes into it, and out of it (which waits). False after an error. */
bool ct__storage_put(ct_storage *storage, size_t offset, const void *data, size_t bytes);
bool ct__storage_fill(ct_storage *storage, const void *pattern, size_t size); /* with elements of that size; enqueued */
bool ct__storage_get(const ct_storage *storage, size_t offset, void *data, size_t bytes);
void ct__storage_retain(ct_storage *storage);
void ct__storage_release(ct_storage *storage);

/* A new tensor with one reference, the caller's. view.buffer and origin are taken from the storage; storage is retained (NULL: a
 * shape without data). NULL after an error. */
ct_tensor *ct__tensor_new(const ct_view *view, ct_storage *storage);
/* A new tensor on of's storage, with one reference. */
ct_tensor *ct__tensor_view(const ct_view *view, ct_tensor *of);
/* Dense storage for view's shape (strides and offset are filled in). */
ct_tensor *ct__tensor_dense(ct_view *view, ct_device device, const char *op);
void ct__tensor_release(ct_tensor *x);
static inline ct_tensor *ct__tensor_retain(ct_tensor *x) {
    atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

/* Adds a reference that the caller owns to the current scope. On failure x is released, an error raised, NULL returned. */
ct_tensor *ct__scope_adopt(ct_tensor *x);

/* Not NULL and, in debug builds, not released; else an error. */
bool ct__invalid(const ct_tensor *x, const char *op, const char *argument); /* raises that error, returns false */
static inline bool ct__valid(const ct_tensor *x, const char *op, const char *argument) {
#ifdef CT_DEBUG
    if (x && x->magic == CT__ALIVE) return true;
#else
    if (x) return true;
#endif
    return ct__invalid(x, op, argument);
}
/* The elements of a shape; -1: a size is negative, or not even the bytes of the others can be counted. No tensor has such a
 * shape, so sizes of tensors and their products need no further check. */
enum { CT__LARGEST_ELEMENT = 16 };
int64_t ct__count(int ndim, const int64_t *dims);
/* Copies the numbers of a list or shape. They are few, and often just written one by one: a wider load would wait for that. */
static inline void ct__copy_dims(int64_t *to, const int64_t *from, int n) {
    if (n > 4) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    if (n > 0) to[0] = from[0];
    if (n > 1) to[1] = from[1];
    if (n > 2) to[2] = from[2];
    if (n > 3) to[3] = from[3];
}
bool ct__fail_count(const char *op, const ct_view *view); /* raises an error: view would be such a shape */
int64_t ct__view_count(const ct_view *view);              /* of a tensor, so without that check */
static inline bool ct__view_same_shape(const ct_view *a, const ct_view *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}
/* The view of a shape, dense; false after an error. */
bool ct__view_of_shape(const char *op, ct_dims shape, ct_dtype dtype, ct_view *view);
/* How far, in elements, the first and the last element of a view lie from element [0, 0, ...]: *low <= 0 <= *high. False: not to
 * be counted. */
bool ct__view_reach(const ct_view *view, int64_t *low, int64_t *high);
/* Sets the offset of a view whose element [0, 0, ...] is at an address, for a buffer that begins with its lowest element: where
 * that is, and up to the highest how many bytes. False: it reaches beyond what can be addressed. */
bool ct__view_place(ct_view *view, void *first, char **lowest, size_t *bytes);
bool ct__view_inside(const ct_view *view, const ct_storage *storage); /* every element lies in the storage */
bool ct__view_overlaps(const ct_view *view); /* two elements share memory: fine to read, not to be written */
bool ct__view_is_dense(const ct_view *view);
void ct__view_dense_strides(ct_view *view);
/* The sizes and strides of a dense view with elements in another shape of as many; false: it is none, or not of another shape. */
bool ct__view_reshaped(const ct_view *x, int n, const int64_t *dims, ct_view *to);
bool ct__view_same_layout(const ct_view *a, const ct_view *b); /* shape, strides, offset, buffer and dtype */
/* A tensor of no dimensions, on a device, in the scope: an element as it lies in memory; an integer that the dtype has to hold. */
ct_tensor *ct__scalar_raw(const void *element, ct_dtype dtype, ct_device device, const char *op);
ct_tensor *ct__scalar_exact(int64_t value, ct_dtype dtype, ct_device device, const char *op);
void ct__user_release(ct_tensor *x);

#endif
