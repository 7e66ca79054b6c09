/* Copies between strided views and fills, for every op that moves elements and for others on their way. Elements are
 * moved as bits: by their size, whatever their dtype. */
#ifndef COTANGENT_BACKENDS_WEBGPU_STRIDED_H
#define COTANGENT_BACKENDS_WEBGPU_STRIDED_H

#include "backends/webgpu/webgpu.h"

/* Enqueues the copy of from to to, of the same sizes and element size, as part of call. */
bool ct_wgpu_copy_view(const ct_call *call, const ct_view *to, const ct_view *from);
/* Enqueues a fill with an element, as its bits in one word or two. */
bool ct_wgpu_fill_view(const ct_call *call, const ct_view *to, const uint32_t bits[2]);
/* The bits of a number as an element of dtype, converted as ct_cast does. */
void ct_wgpu_bits_of(ct_dtype dtype, double value, uint32_t bits[2]);

/* The dtype that stands for all elements of a size, of which kernels that only move them are compiled once. */
static inline ct_dtype ct_wgpu_dtype_of_size(size_t size) {
    return size == 1 ? CT_U8 : size == 2 ? CT_I16 : size == 4 ? CT_I32 : CT_I64;
}

/* Dimensions with up to CT_WGPU_WALKS strides each, in the order in which they are walked; made in steps, from the
 * outermost one on. Sizes of 1 are left out, and neighbours that all operands walk as one are one. */
enum { CT_WGPU_WALKS = 6 };
typedef struct ct_wgpu_walk {
    int ndim, n;
    int64_t total;
    int64_t dims[CT_WGPU_DIMS], strides[CT_WGPU_WALKS][CT_WGPU_DIMS];
} ct_wgpu_walk;
static inline ct_wgpu_walk ct_wgpu_walk_begin(int n) { return (ct_wgpu_walk){.n = n, .total = 1}; }
void ct_wgpu_walk_add(ct_wgpu_walk *walk, int64_t size, const int64_t *strides);
/* As the device reads it: sizes, and of each operand its strides. */
void ct_wgpu_walk_dims(const ct_wgpu_walk *walk, uint32_t dims[CT_WGPU_DIMS]);
void ct_wgpu_walk_strides(const ct_wgpu_walk *walk, int operand, uint32_t strides[CT_WGPU_DIMS]);
/* Of operands 0, which is written, and 1, which is read: elements as wide as sizes, strides and places allow, up to
 * 16 bytes. They begin at these bytes and are of size bytes; what is returned is the size that they have in the walk
 * afterwards. Operand 2, if there is one, may not move along the last dimension. along: a stride of operand 1
 * besides those of the walk (NULL: none). */
size_t ct_wgpu_widen(ct_wgpu_walk *walk, size_t size, uint64_t to, uint64_t from, int64_t *along);
/* The byte at which a view begins. */
static inline uint64_t ct_wgpu_begin_of(const ct_view *view) {
    return (uint64_t)((int64_t)view->origin + view->offset * (int64_t)ct_wgpu_dtype_size(view->dtype));
}

/* A view as an operand of elements of another size, by their bits; 16 bytes are quads of words. */
void ct_wgpu_bits_operand(ct_wgpu_launch *launch, const char *name, const ct_view *view, size_t size, unsigned mode);
/* The operands to and from of a unit that moves elements of size bytes, and the text fn move_unit(to: u32, source:
 * u32) that moves one. */
void ct_wgpu_move_operands(ct_wgpu_launch *launch, const ct_view *to, const ct_view *from, size_t size);
/* Narrow elements that are written as whole words: runs of `length` neighbours in operand 0, each from a word on.
 * False: it has none. */
bool ct_wgpu_word_runs(const ct_wgpu_walk *walk, size_t size, uint64_t to, uint32_t *length);

#endif
