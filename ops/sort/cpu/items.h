/* Sorting and selecting items: an element turned into an unsigned key that orders as the element does, with its
 * place. Every item is different from every other, so any correct sort gives the same, stable, order. */
#ifndef COTANGENT_OPS_SORT_ITEMS_H
#define COTANGENT_OPS_SORT_ITEMS_H

#include <cotangent.h>

/* Keys of up to 32 bits: the key in the upper half of a word, the place in the lower. */
typedef uint64_t ct_narrow_item;
/* Keys of 64 bits, and lines of 2^32 elements and more. */
typedef struct ct_wide_item {
    uint64_t key, place;
} ct_wide_item;

/* Whether lines of n elements of that dtype need wide items; bytes an item; bits of a key. */
bool ct__items_wide(ct_dtype dtype, int64_t n);
size_t ct__item_size(ct_dtype dtype, int64_t n);
int ct__key_bits(ct_dtype dtype);

/* items[i], i < n, from x[i * step], which are the elements `first`, `first` + 1, ... of their line. NaN is the
 * greatest, -0 equals 0. Descending keys are complements. */
void ct__items_make(void *items, bool wide, ct_dtype dtype, const void *x, int64_t step, int64_t n, int64_t first,
                    bool descending);
/* y[i * y_step] = x[place * x_step] and y[i * step] = place, for n items. */
void ct__items_values(const void *items, bool wide, int64_t n, const void *x, int64_t x_step, void *y, int64_t y_step,
                      size_t element);
void ct__items_places(const void *items, bool wide, int64_t n, int64_t *y, int64_t step);

/* Sorts n items that are in the order of their places; spare has room for n more. Returns items or spare, wherever
 * the result has come to lie. The second spreads one long line over the threads, and needs ct__sort_counts(n) more
 * bytes. */
void *ct__sort_items(void *items, void *spare, bool wide, int key_bits, int64_t n);
void *ct__sort_items_parallel(void *items, void *spare, void *counts, bool wide, int key_bits, int64_t n);
size_t ct__sort_counts(int64_t n);

/* Sorts items that are in no order, ties by place; spare has room for n more. */
void ct__order_items(void *items, void *spare, bool wide, int64_t n);
/* Appends to the `count` items in kept those of more[0..n) that are less than kept[bar] (bar -1: all); returns the
 * new count. */
int64_t ct__items_keep(void *kept, int64_t count, const void *more, int64_t n, bool wide, int64_t bar);
/* The first item that is a NaN of a floating dtype, or -1. */
int64_t ct__items_first_nan(const void *items, bool wide, ct_dtype dtype, int64_t n);

/* Moves the k least items to the front, in no order but that the greatest of them comes last; 1 <= k <= n. */
void ct__select_items(void *items, bool wide, int64_t n, int64_t k);

#endif
