/* Moving elements without looking into them: the strided copy that clone, cat, pad, flip, casts of layout and
 * gradients share. Included by kernel files; each ISA level has its own compilation. */
#ifndef COTANGENT_BACKENDS_CPU_COPY_H
#define COTANGENT_BACKENDS_CPU_COPY_H

#include <cotangent/backend.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/simd/simd.h"

#define ct__copy            CT_ISA_FN(ct__copy)
#define ct__copy_view       CT_ISA_FN(ct__copy_view)
#define ct__copy_run        CT_ISA_FN(ct__copy_run)
#define ct__fill_run        CT_ISA_FN(ct__fill_run)
#define ct__fill            CT_ISA_FN(ct__fill)
#define ct__stream_worth    CT_ISA_FN(ct__stream_worth)
#define ct__stream_run      CT_ISA_FN(ct__stream_run)
#define ct__stream_fill_run CT_ISA_FN(ct__stream_fill_run)
#define ct__stream_end      CT_ISA_FN(ct__stream_end)

/* dst[i, j, ...] = src[i, j, ...] over dims. Elements of 1, 2, 4 or 8 bytes; strides in elements, of any sign; those
 * of src may be 0 or overlap, those of dst must not, and dst must not overlap src. Runs on all threads. */
void ct__copy(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides, int ndim,
              const int64_t *dims, size_t element);
/* The same for two views of one shape and element size. */
void ct__copy_view(const ct_view *dst, const ct_view *src);
/* dst[i, j, ...] = the one element at value. */
void ct__fill(void *dst, const int64_t *dst_strides, int ndim, const int64_t *dims, const void *value, size_t element);

/* One row, on the caller's thread. */
void ct__copy_run(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, int64_t n, size_t element);
void ct__fill_run(void *dst, int64_t dst_stride, int64_t n, const void *value, size_t element);

/* One dense row written past the caches, for results too large to stay there (ct__stream_worth of all their bytes). A
 * chunk that has done so ends with ct__stream_end. */
bool ct__stream_worth(int64_t bytes);
void ct__stream_run(void *dst, const void *src, int64_t n, size_t element);
void ct__stream_fill_run(void *dst, int64_t n, const void *value, size_t element);
void ct__stream_end(void);

#endif
