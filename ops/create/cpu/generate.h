/* The frame of kernels whose result is a function of the element's index alone: it cuts the work, and carries values that
 * are made in dense blocks to wherever the result lies. */
#ifndef COTANGENT_OPS_CREATE_GENERATE_H
#define COTANGENT_OPS_CREATE_GENERATE_H

#include <string.h>

#include "backends/cpu/kernel.h"
#include "ops/create/cpu/rows.h"

enum { GENERATE_BLOCK = 256, GENERATE_CHUNK = 64 * GENERATE_BLOCK };

/* Writes elements first to first + n - 1 densely to `to`. first is a multiple of GENERATE_BLOCK, n at most that. */
typedef void (*generate_fn)(const void *spec, int64_t first, int n, void *to);

typedef struct generate_job {
    rows rows;
    char *y;
    size_t size;
    int64_t chunk;
    generate_fn make;
    const void *spec;
} generate_job;

static inline void generate_copy(const generate_job *j, int64_t first, int64_t end, const char *from) {
    while (first < end) {
        rows_run run = rows_at(&j->rows, first, end);
        char *to = j->y + run.at[0] * (int64_t)j->size;
        int64_t step = run.step[0] * (int64_t)j->size;
        for (int64_t i = 0; i < run.n; i++) memcpy(to + i * step, from + i * (int64_t)j->size, j->size);
        from += run.n * (int64_t)j->size;
        first += run.n;
    }
}

static void generate_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const generate_job *j = context;
    bool dense = j->rows.ndim == 1 && j->rows.strides[0][0] == 1;
    int64_t end = ct__min64((chunk + 1) * j->chunk, j->rows.count);
    for (int64_t first = chunk * j->chunk; first < end; first += GENERATE_BLOCK) {
        uint64_t block[GENERATE_BLOCK]; /* room for the widest dtype */
        int64_t last = ct__min64(first + GENERATE_BLOCK, end);
        void *to = dense ? j->y + first * (int64_t)j->size : (char *)block;
        j->make(j->spec, first, (int)(last - first), to);
        if (!dense) generate_copy(j, first, last, to);
    }
}

static inline bool generate(const ct_view *y, generate_fn make, const void *spec) {
    size_t size = ct_dtype_size(y->dtype);
    generate_job j = {.rows = rows_of(y, NULL), .y = ct__address(y, size), .size = size, .make = make, .spec = spec};
    int64_t grain = ct__grain(GENERATE_CHUNK);
    j.chunk = (grain + GENERATE_BLOCK - 1) / GENERATE_BLOCK * GENERATE_BLOCK;
    ct__parallel((j.rows.count + j.chunk - 1) / j.chunk, generate_chunk, &j);
    return true;
}

#endif
