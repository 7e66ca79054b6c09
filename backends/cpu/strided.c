/* Elements of strided operands in and out of dense buffers. */
#include "backends/cpu/strided.h"

#include <string.h>

#include "backends/cpu/elementwise.h"
#include "core/hot.h"

enum { LONG_ROW = 64 }; /* elements that memcpy is worth its call for */

#define DEFINE_COPY_BOX(T)                                                                                           \
    static void copy_box_##T(T *to, const T *from, int64_t rows, int64_t n, int64_t to_outer, int64_t to_inner,      \
                             int64_t from_outer, int64_t from_inner) {                                               \
        for (int64_t r = 0; r < rows; r++)                                                                           \
            for (int64_t i = 0; i < n; i++) to[r * to_outer + i * to_inner] = from[r * from_outer + i * from_inner]; \
    }
DEFINE_COPY_BOX(uint8_t)
DEFINE_COPY_BOX(uint16_t)
DEFINE_COPY_BOX(uint32_t)
DEFINE_COPY_BOX(uint64_t)

CT__HOT void ct__copy_box(int size, void *to, const void *from, int64_t rows, int64_t n, int64_t to_outer,
                          int64_t to_inner, int64_t from_outer, int64_t from_inner) {
    switch (size) {
    case 1: copy_box_uint8_t(to, from, rows, n, to_outer, to_inner, from_outer, from_inner); break;
    case 2: copy_box_uint16_t(to, from, rows, n, to_outer, to_inner, from_outer, from_inner); break;
    case 4: copy_box_uint32_t(to, from, rows, n, to_outer, to_inner, from_outer, from_inner); break;
    default: copy_box_uint64_t(to, from, rows, n, to_outer, to_inner, from_outer, from_inner); break;
    }
}

/* The same with a dense buffer, either way. */
static void copy_rows(int size, char *place, char *buffer, int64_t rows, int64_t n, int64_t outer, int64_t inner,
                      bool out) {
    if (inner == 1 && (rows == 1 || outer == n || n >= LONG_ROW)) {
        if (outer == n) n *= rows, rows = 1;
        for (; rows > 0; rows--, place += outer * size, buffer += n * size)
            memcpy(out ? place : buffer, out ? buffer : place, (size_t)(n * size));
    } else if (out) {
        ct__copy_box(size, place, buffer, rows, n, outer, inner, n, 1);
    } else {
        ct__copy_box(size, buffer, place, rows, n, n, 1, outer, inner);
    }
}

void ct__strided_move(int ndim, const int64_t *dims, const ct_strided *o, const int64_t *index, int64_t n, char *buffer,
                      bool out) {
    int64_t at[CT_MAX_DIMS];
    const int last = ndim - 1;
    const int64_t inner = dims[last];
    memcpy(at, index, (size_t)ndim * sizeof *at);
    while (n > 0) {
        int64_t run = inner - at[last], rows = 1;
        if (run > n) {
            run = n;
        } else if (at[last] == 0 && last > 0) {
            rows = dims[last - 1] - at[last - 1];
            if (rows * inner > n) rows = n / inner;
        }
        copy_rows(o->size, ct__strided_address(ndim, o, at), buffer, rows, run, last > 0 ? o->strides[last - 1] : 0,
                  o->strides[last], out);
        buffer += rows * run * o->size;
        n -= rows * run;
        at[last] += run;
        if (at[last] == inner) {
            at[last] = 0;
            if (last > 0) at[last - 1] += rows;
            for (int d = last - 1; d > 0 && at[d] == dims[d]; d--) {
                at[d] = 0;
                at[d - 1]++;
            }
        }
    }
}

#define DEFINE_SPLAT(T)                                                         \
    static void splat_##T(T *to, const char *value) {                           \
        T v;                                                                    \
        memcpy(&v, value, sizeof v);                                            \
        for (size_t k = 0; k < CT_ELEMENTWISE_SPLAT / sizeof v; k++) to[k] = v; \
    }
DEFINE_SPLAT(uint8_t)
DEFINE_SPLAT(uint16_t)
DEFINE_SPLAT(uint32_t)
DEFINE_SPLAT(uint64_t)

void ct__splat(char *to, const char *value, int size) {
    switch (size) {
    case 1: splat_uint8_t((uint8_t *)(void *)to, value); break;
    case 2: splat_uint16_t((uint16_t *)(void *)to, value); break;
    case 4: splat_uint32_t((uint32_t *)(void *)to, value); break;
    default: splat_uint64_t((uint64_t *)(void *)to, value); break;
    }
}
