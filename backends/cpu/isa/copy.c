/* The strided copy. A copy is first made simple (dimensions in the order of dst, merged where both sides allow it),
 * then cut into planes of two dimensions, and the planes into blocks for the threads. A plane is copied run by run,
 * or transposed by tiles. */
#include "backends/cpu/copy.h"

#include <string.h>

#include "backends/cpu/isa/transpose.h"
#include "core/threads.h"

enum {
    BLOCK = 64 << 10,   /* bytes that stay on one thread at the least */
    CHUNK = 256 << 10,  /* bytes of a chunk */
    STREAM = 4 << 20,   /* from here on the result would only push others out of the caches */
    TILE_COLUMNS = 256, /* bytes of a row of dst that a transposed tile covers: a few lines one after the other */
    TILE_ROWS = 4096,   /* bytes of a row of src: a page */
};

typedef uint8_t any8;
typedef uint16_t any16 __attribute__((may_alias, aligned(1)));
typedef uint32_t any32 __attribute__((may_alias, aligned(1)));
typedef uint64_t any64 __attribute__((may_alias, aligned(1)));

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- Rows; strides in bytes ---- */

#define STRIDED_ROW(name, T)                                                                   \
    static void name(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n) {          \
        const int64_t size = (int64_t)sizeof(T);                                               \
        if (ds == size && ss == -size) {                                                       \
            T *d = (T *)dst;                                                                   \
            const T *s = (const T *)src - (n - 1);                                             \
            for (int64_t i = 0; i < n; i++) d[i] = s[n - 1 - i];                               \
        } else if (ds == size) {                                                               \
            T *d = (T *)dst;                                                                   \
            for (int64_t i = 0; i < n; i++) d[i] = *(const T *)(src + i * ss);                 \
        } else {                                                                               \
            for (int64_t i = 0; i < n; i++) *(T *)(dst + i * ds) = *(const T *)(src + i * ss); \
        }                                                                                      \
    }
STRIDED_ROW(strided8, any8)
STRIDED_ROW(strided16, any16)
STRIDED_ROW(strided32, any32)
STRIDED_ROW(strided64, any64)

static void strided_row(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n, int size) {
    switch (size) {
    case 1: strided8(dst, ds, src, ss, n); break;
    case 2: strided16(dst, ds, src, ss, n); break;
    case 4: strided32(dst, ds, src, ss, n); break;
    default: strided64(dst, ds, src, ss, n); break;
    }
}

#define FILL_ROW(name, T)                                     \
    static void name(char *dst, const char *src, int64_t n) { \
        T *d = (T *)dst;                                      \
        const T value = *(const T *)src;                      \
        for (int64_t i = 0; i < n; i++) d[i] = value;         \
    }
FILL_ROW(fill16, any16)
FILL_ROW(fill32, any32)
FILL_ROW(fill64, any64)

static void fill_row(char *dst, const char *src, int64_t n, int size) {
    switch (size) {
    case 1: memset(dst, *(const unsigned char *)src, (size_t)n); break;
    case 2: fill16(dst, src, n); break;
    case 4: fill32(dst, src, n); break;
    default: fill64(dst, src, n); break;
    }
}

static void stream_fill(char *dst, const char *src, int64_t n, int size) {
    enum { LINE = 64, STEP = VF32_LANES * 4 };
    const int64_t bytes = n * size, head = (int64_t)(-(uintptr_t)dst & (LINE - 1));
    if (bytes < 4 * LINE || head % size) {
        fill_row(dst, src, n, size);
        return;
    }
    fill_row(dst, src, head / size, size);
    char pattern[STEP];
    for (int k = 0; k < STEP; k++) pattern[k] = src[k % size];
    const vf32 value = vf32_load((const float *)(const void *)pattern);
    int64_t i = head;
    for (; i + LINE <= bytes; i += LINE)
        for (int k = 0; k < LINE; k += STEP) vf32_stream((float *)(void *)(dst + i + k), value);
    fill_row(dst + i, src, (bytes - i) / size, size);
}

/* A row that is dense in dst alone, gathered block by block. */
static void stream_strided(char *dst, const char *src, int64_t ss, int64_t n, int size) {
    _Alignas(64) char stage[4096];
    const int64_t most = (int64_t)sizeof stage / size;
    for (int64_t i = 0; i < n; i += most) {
        const int64_t count = min64(most, n - i);
        strided_row(stage, size, src + i * ss, ss, count, size);
        stream_row(dst + i * size, stage, count * size);
    }
}

/* Runs of a few bytes: a call of memcpy would cost more than the copy. */
static inline void short_run(char *dst, const char *src, int64_t bytes) {
    for (; bytes >= 8; bytes -= 8, dst += 8, src += 8) *(any64 *)dst = *(const any64 *)src;
    for (; bytes > 0; bytes--) *dst++ = *src++;
}

/* Rows too short for a loop of their own: interleaving a few planes, repeating elements. */
#define FEW(bits)                                                                                       \
    static void few##bits(char *dst, int64_t dr, const char *src, int64_t sr, int64_t sc, int64_t rows, \
                          int64_t columns) {                                                            \
        for (int64_t r = 0; r < rows; r++)                                                              \
            for (int64_t c = 0; c < columns; c++)                                                       \
                ((any##bits *)(dst + r * dr))[c] = *(const any##bits *)(src + r * sr + c * sc);         \
    }
FEW(8)
FEW(16)
FEW(32)
FEW(64)

static void few_columns(char *dst, int64_t dr, const char *src, int64_t sr, int64_t sc, int64_t rows, int64_t columns,
                        int size) {
    switch (size) {
    case 1: few8(dst, dr, src, sr, sc, rows, columns); break;
    case 2: few16(dst, dr, src, sr, sc, rows, columns); break;
    case 4: few32(dst, dr, src, sr, sc, rows, columns); break;
    default: few64(dst, dr, src, sr, sc, rows, columns); break;
    }
}

void ct__copy_run(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, int64_t n, size_t element) {
    const int64_t size = (int64_t)element;
    if (dst_stride == 1 && src_stride == 1) memcpy(dst, src, (size_t)n * element);
    else if (dst_stride == 1 && src_stride == 0 && n) fill_row(dst, src, n, (int)size);
    else strided_row(dst, dst_stride * size, src, src_stride * size, n, (int)size);
}

void ct__fill_run(void *dst, int64_t dst_stride, int64_t n, const void *value, size_t element) {
    if (n) ct__copy_run(dst, dst_stride, value, 0, n, element);
}

bool ct__stream_worth(int64_t bytes) { return bytes > STREAM; }
void ct__stream_run(void *dst, const void *src, int64_t n, size_t element) {
    stream_row(dst, src, n * (int64_t)element);
}
void ct__stream_fill_run(void *dst, int64_t n, const void *value, size_t element) {
    if (n) stream_fill(dst, value, n, (int)element);
}
void ct__stream_end(void) { simd_fence(); }

/* ---- Planes ---- */

typedef struct job {
    int outer;                                                   /* dimensions before the plane */
    int64_t dims[CT_MAX_DIMS], ds[CT_MAX_DIMS], ss[CT_MAX_DIMS]; /* the plane is the last two; strides in bytes */
    char *dst;
    const char *src;
    int size; /* of an element */
    bool transposed, stream;
    int64_t rows, columns; /* of a block of the plane */
    int64_t row_blocks, column_blocks, blocks_per_plane, blocks, blocks_per_chunk;
} job;

static void copy_block(const job *j, char *dst, const char *src, int64_t rows, int64_t columns) {
    const int64_t dr = j->ds[j->outer], dc = j->ds[j->outer + 1], sr = j->ss[j->outer], sc = j->ss[j->outer + 1];
    const int size = j->size;
    if (j->transposed) {
        transpose_tile(dst, dr, src, sc, rows, columns, size, j->stream);
    } else if (dc == size && sc == size) {
        const int64_t bytes = columns * size;
        if (bytes <= 64)
            for (int64_t r = 0; r < rows; r++) short_run(dst + r * dr, src + r * sr, bytes);
        else if (j->stream)
            for (int64_t r = 0; r < rows; r++) stream_row(dst + r * dr, src + r * sr, bytes);
        else
            for (int64_t r = 0; r < rows; r++) memcpy(dst + r * dr, src + r * sr, (size_t)bytes);
    } else if (columns <= 8 && dc == size) {
        few_columns(dst, dr, src, sr, sc, rows, columns, size);
    } else if (dc == size && sc == 0) {
        for (int64_t r = 0; r < rows; r++) {
            if (j->stream) stream_fill(dst + r * dr, src + r * sr, columns, size);
            else fill_row(dst + r * dr, src + r * sr, columns, size);
        }
    } else if (j->stream && dc == size && columns * size >= 512) {
        for (int64_t r = 0; r < rows; r++) stream_strided(dst + r * dr, src + r * sr, sc, columns, size);
    } else if (columns >= 16 || columns >= rows) {
        for (int64_t r = 0; r < rows; r++) strided_row(dst + r * dr, dc, src + r * sr, sc, columns, size);
    } else { /* the long side inside; the block is in the cache after the first pass */
        for (int64_t c = 0; c < columns; c++) strided_row(dst + c * dc, dr, src + c * sc, sr, rows, size);
    }
}

static void copy_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    const int64_t end = min64((chunk + 1) * j->blocks_per_chunk, j->blocks);
    for (int64_t block = chunk * j->blocks_per_chunk; block < end; block++) {
        int64_t plane = block / j->blocks_per_plane, rest = block % j->blocks_per_plane;
        /* tiles go on along the rows of src, which the processor is fetching ahead */
        const int64_t row = (j->transposed ? rest % j->row_blocks : rest / j->column_blocks) * j->rows,
                      column = (j->transposed ? rest / j->row_blocks : rest % j->column_blocks) * j->columns;
        int64_t to = row * j->ds[j->outer] + column * j->ds[j->outer + 1],
                from = row * j->ss[j->outer] + column * j->ss[j->outer + 1];
        for (int d = j->outer - 1; d >= 0; d--) {
            const int64_t i = plane % j->dims[d];
            plane /= j->dims[d];
            to += i * j->ds[d];
            from += i * j->ss[d];
        }
        copy_block(j, j->dst + to, j->src + from, min64(j->rows, j->dims[j->outer] - row),
                   min64(j->columns, j->dims[j->outer + 1] - column));
    }
    if (j->stream) simd_fence();
}

/* ---- Making it simple ---- */

static void swap_dims(job *j, int a, int b) {
    const int64_t dim = j->dims[a], ds = j->ds[a], ss = j->ss[a];
    j->dims[a] = j->dims[b], j->ds[a] = j->ds[b], j->ss[a] = j->ss[b];
    j->dims[b] = dim, j->ds[b] = ds, j->ss[b] = ss;
}

/* Returns how many dimensions are left. */
static int simplify(job *j, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (j->dims[i] == 1) continue;
        if (j->ds[i] < 0) { /* the same elements, counted from the other end */
            j->dst += (j->dims[i] - 1) * j->ds[i];
            j->src += (j->dims[i] - 1) * j->ss[i];
            j->ds[i] = -j->ds[i];
            j->ss[i] = -j->ss[i];
        }
        swap_dims(j, kept, i);
        for (int k = kept++; k > 0 && j->ds[k - 1] < j->ds[k]; k--) swap_dims(j, k - 1, k);
    }
    n = 0;
    for (int i = 0; i < kept; i++) {
        if (n && j->ds[n - 1] == j->ds[i] * j->dims[i] && j->ss[n - 1] == j->ss[i] * j->dims[i]) {
            j->dims[n - 1] *= j->dims[i];
            j->ds[n - 1] = j->ds[i];
            j->ss[n - 1] = j->ss[i];
        } else {
            swap_dims(j, n++, i);
        }
    }
    /* A last dimension of two or four small elements, side by side in both, is one larger element. */
    if (n > 1 && j->ds[n - 1] == j->size && j->ss[n - 1] == j->size) {
        const int64_t bytes = j->dims[n - 1] * j->size;
        if (bytes == 2 || bytes == 4 || bytes == 8) {
            j->size = (int)bytes;
            n--;
        }
    }
    return n;
}

/* Brings the dimension that is dense in src next to the last, if transposing tiles is better than walking in strides. */
static bool find_transposed(job *j, int n) {
    if (n < 2 || j->ds[n - 1] != j->size || j->ss[n - 1] == j->size || j->ss[n - 1] == 0 || j->dims[n - 1] < 4)
        return false;
    for (int i = 0; i < n - 1; i++) {
        if (j->ss[i] != j->size || j->dims[i] < 4) continue;
        for (int k = i; k < n - 2; k++) swap_dims(j, k, k + 1);
        return true;
    }
    return false;
}

void ct__copy(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides, int ndim,
              const int64_t *dims, size_t element) {
    job j = {.dst = dst, .src = src, .size = (int)element};
    int64_t bytes = (int64_t)element;
    for (int i = 0; i < ndim; i++) {
        bytes *= dims[i];
        j.dims[i] = dims[i];
        j.ds[i] = dst_strides[i] * (int64_t)element;
        j.ss[i] = src_strides[i] * (int64_t)element;
    }
    if (bytes == 0) return;
    int n = simplify(&j, ndim);
    j.transposed = find_transposed(&j, n);
    for (; n < 2; n++) { /* at least a plane */
        for (int i = n; i > 0; i--) swap_dims(&j, i - 1, i);
        j.dims[0] = 1;
        if (n == 0) j.ds[0] = j.ss[0] = j.size;
        else j.ds[0] = j.ss[0] = 0;
    }
    j.outer = n - 2;
    j.stream = bytes > STREAM;
    const int64_t rows = j.dims[n - 2], columns = j.dims[n - 1];
    if (j.transposed) {
        const bool whole_lines = j.size >= 4 && ((uintptr_t)j.dst | (uintptr_t)j.ds[n - 2]) % 64 == 0;
        j.rows = min64(rows, TILE_ROWS / j.size);
        j.columns = min64(columns, (j.stream && !whole_lines ? STAGE : TILE_COLUMNS) / j.size);
    } else {
        j.columns = min64(columns, BLOCK / j.size);
        j.rows = j.columns < columns ? 1 : min64(rows, 1 + (BLOCK - 1) / (columns * j.size));
    }
    j.row_blocks = (rows + j.rows - 1) / j.rows;
    j.column_blocks = (columns + j.columns - 1) / j.columns;
    j.blocks = j.blocks_per_plane = j.row_blocks * j.column_blocks;
    for (int i = 0; i < j.outer; i++) j.blocks *= j.dims[i];
    const int64_t block_bytes = j.rows * j.columns * j.size;
    j.blocks_per_chunk = ct__grain(block_bytes >= CHUNK ? 1 : CHUNK / block_bytes);
    if (j.blocks_per_chunk < 1) j.blocks_per_chunk = 1;
    ct__parallel((j.blocks + j.blocks_per_chunk - 1) / j.blocks_per_chunk, copy_chunk, &j);
}

void ct__fill(void *dst, const int64_t *dst_strides, int ndim, const int64_t *dims, const void *value, size_t element) {
    static const int64_t still[CT_MAX_DIMS];
    ct__copy(dst, dst_strides, value, still, ndim, dims, element);
}

void ct__copy_view(const ct_view *dst, const ct_view *src) {
    const size_t element = ct_dtype_size(dst->dtype);
    ct__copy((char *)dst->buffer + dst->offset * (int64_t)element, dst->strides,
             (const char *)src->buffer + src->offset * (int64_t)element, src->strides, dst->ndim, dst->dims, element);
}
