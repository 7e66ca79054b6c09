/* The driver of elementwise kernels: collapses the dimensions of strided views, cuts the work into chunks (no sum goes over
 * them, so their size may depend on the number of threads), and feeds inner functions with contiguous elements, by way of small buffers where
 * an operand is strided, repeated or of a half type. */
#include "backends/cpu/elementwise.h"

#include <stdalign.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/strided.h"
#include "core/dtype.h"
#include "core/hot.h"
#include "core/threads.h"

enum {
    BUFFER_BYTES = 4096, /* of one operand, so that all of them fit in the first-level cache */
    FEW = 32,            /* elements that are gathered without a plan */
    SHORT_ROW = 128,     /* elements; shorter rows are gathered into blocks that span several */
    TILE_COLUMNS = 32,   /* of the tiles that transposed operands are read by; */
    TILE_ROWS = 64,      /* of elements up to 4 bytes, and half as many of 8 */
    TILE_BYTES = 8192,
    PANEL_COLUMNS = 8, /* columns read at a time: at a stride of 4096 bytes, more would fall out of the cache */
    STREAM_BYTES = 16 * 1024 * 1024, /* an output this large would not stay in the caches: it is written past them */
    STREAM_ROW = 4096,               /* elements; rows shorter than this cost more at their ends than streaming gains */
    LIGHT = 8,                       /* the most that an element costs of an op that waits for memory alone */
    NEAR_BYTES = 256 * 1024,         /* of an input that is read over and over */
    STREAM_PART = 512,               /* bytes that are written between two groups of prefetches */
    OPERANDS = CT_ELEMENTWISE_INPUTS + 1,
};

/* How the inner function sees an operand: in place; as one value; as a pattern that a buffer holds once for all; in a
 * buffer filled anew for each call. */
typedef enum { DIRECT, SPLAT, PATTERN, BUFFER } access;

typedef struct operand {
    ct_strided at; /* over the collapsed dimensions */
    bool linear;   /* contiguous over all dimensions */
    access access;
    int64_t period; /* elements of a pattern */
    bool far;       /* an input that is read in place and does not stay near */
} operand;

typedef struct plan {
    const ct_elementwise *op;
    ct_elementwise_fn fn;
    const void *attrs;
    operand operands[OPERANDS]; /* the output, then the inputs */
    int n;
    int ndim;
    int64_t dims[CT_MAX_DIMS];
    int64_t total, chunk;
    int64_t block; /* the most elements of a call when a buffer is in use, else INT64_MAX */
    bool rows;     /* no call goes beyond the innermost dimension */
    int tiled;     /* the dimension whose rows make tiles with the innermost one; -1: none */
    int64_t tile_rows;
    bool stream;
    int ahead; /* blocks by which the inputs of a light op are prefetched while a block goes past the caches; 0: not */
    ct_dtype half; /* CT_F16 or CT_BF16 when operands are converted, else CT_F32 */
} plan;

/* ---- Plan ---- */

static bool is_dense(const ct_view *v) {
    int64_t expected = 1;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->dims[d] != 1 && v->strides[d] != expected) return false;
        expected *= v->dims[d];
    }
    return true;
}

/* Work of about ten microseconds for an op that waits for memory; for many threads less, since what others have in their caches they read
 * sooner than one thread does. */
static int64_t chunk_size(const ct_elementwise *op) {
    const int64_t light = ct__threads() > CT__FEW_THREADS ? 8192 : 32768;
    return ct__grain(op->cost > 64 ? 2048 : op->cost > LIGHT ? 8192 : light);
}

static void exchange(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b;
    *b = t;
}

/* Dimensions of size 1 go, the rest are ordered by the output's strides, and neighbors that every operand walks as one
 * become one. */
static void collapse(plan *p, const ct_view *const *views) {
    int n = 0;
    for (int d = 0; d < views[0]->ndim; d++) {
        if (views[0]->dims[d] == 1) continue;
        p->dims[n] = views[0]->dims[d];
        for (int i = 0; i < p->n; i++) p->operands[i].at.strides[n] = views[i]->strides[d];
        for (int k = n; k > 0 && p->operands[0].at.strides[k - 1] < p->operands[0].at.strides[k]; k--) {
            exchange(&p->dims[k - 1], &p->dims[k]);
            for (int i = 0; i < p->n; i++) exchange(&p->operands[i].at.strides[k - 1], &p->operands[i].at.strides[k]);
        }
        n++;
    }
    int last = 0; /* the dimension that further ones may merge into */
    for (int d = 1; d < n; d++) {
        bool merges = true;
        for (int i = 0; i < p->n; i++)
            merges &= p->operands[i].at.strides[last] == p->operands[i].at.strides[d] * p->dims[d];
        if (!merges) last++;
        p->dims[last] = merges ? p->dims[last] * p->dims[d] : p->dims[d];
        for (int i = 0; i < p->n; i++) p->operands[i].at.strides[last] = p->operands[i].at.strides[d];
    }
    p->ndim = last + 1;
    if (n == 0) {
        p->dims[0] = 1;
        for (int i = 0; i < p->n; i++) p->operands[i].at.strides[0] = 1;
    }
}

static bool is_linear(const plan *p, const operand *o) {
    int64_t expected = 1;
    for (int d = p->ndim - 1; d >= 0; d--) {
        if (o->at.strides[d] != expected) return false;
        expected *= p->dims[d];
    }
    return true;
}

/* Read again and again, and small enough to stay in the cache meanwhile. */
static bool stays_near(const plan *p, const operand *o) {
    int64_t bytes = o->at.size;
    for (int d = 0; d < p->ndim; d++) bytes *= o->at.strides[d] ? p->dims[d] : 1;
    return !o->linear && bytes <= NEAR_BYTES;
}

/* The length after which the elements repeat, when the inner dimensions are dense and the others have stride 0; else 0. */
static int64_t period_of(const plan *p, const operand *o) {
    int64_t period = 1;
    int d = p->ndim - 1;
    for (; d >= 0 && o->at.strides[d] == period; d--) period *= p->dims[d];
    for (; d >= 0; d--)
        if (o->at.strides[d] != 0) return 0;
    return period * o->at.size <= BUFFER_BYTES / 2 ? period : 0;
}

/* A transposed operand, whose stride 1 is in another dimension than the innermost: that dimension, else -1. */
static int transposed_dim(const plan *p) {
    const int last = p->ndim - 1;
    for (int i = 1; i < p->n; i++) {
        if (p->operands[i].at.strides[last] <= 1 || p->dims[last] < 8) continue;
        for (int d = 0; d < last; d++)
            if (p->operands[i].at.strides[d] == 1 && p->dims[d] >= 8) return d;
    }
    return -1;
}

static bool is_mask(const plan *p, int i) { return i == 0 ? p->op->to_bool : p->op->masks >> (i - 1) & 1; }

static void choose_access(plan *p, ct_dtype dtype) {
    const int last = p->ndim - 1;
    const int64_t inner = p->dims[last];
    const bool vector = dtype <= CT_BF16 && !p->op->plain; /* the inner function takes a single value */
    operand *out = &p->operands[0];
    p->half = dtype == CT_F16 || dtype == CT_BF16 ? dtype : CT_F32;
    p->tiled = transposed_dim(p);
    p->rows = p->ndim == 1 || inner >= SHORT_ROW;
    int widest = p->half != CT_F32 ? 4 : 1;
    int64_t pattern = 0;
    bool buffered = false;
    int runs = 0, far = 0; /* inputs that are read in place, and those that come from far */
    for (int i = 0; i < p->n; i++) {
        operand *o = &p->operands[i];
        const bool converted = p->half != CT_F32 && !is_mask(p, i);
        const int64_t stride = o->at.strides[last];
        o->linear = is_linear(p, o);
        o->period = i > 0 && !p->rows && p->tiled < 0 && !converted ? period_of(p, o) : 0;
        if (i > 0 && vector && stride == 0 && (p->rows || p->tiled >= 0)) o->access = SPLAT;
        else if (converted) o->access = BUFFER;
        else if (p->tiled >= 0) o->access = stride == 1 ? DIRECT : BUFFER;
        else if (o->linear || (p->rows && stride == 1)) o->access = DIRECT;
        else o->access = o->period ? PATTERN : BUFFER;
        if (o->access == PATTERN && o->period * o->at.size > pattern) pattern = o->period * o->at.size;
        if (o->at.size > widest) widest = o->at.size;
        buffered |= o->access >= PATTERN;
        o->far = i > 0 && o->access == DIRECT && !stays_near(p, o);
        far += o->far;
        runs += i > 0 && o->access == DIRECT;
    }
    /* in place, the cache line is in the cache already */
    p->stream = p->half == CT_F32 && p->tiled < 0 && out->linear && p->total * out->at.size >= STREAM_BYTES &&
                (p->ndim == 1 || inner >= STREAM_ROW);
    for (int i = 1; i < p->n; i++) p->stream &= p->operands[i].at.base != out->at.base;
    if (p->stream) out->access = BUFFER;
    p->block = buffered || p->stream ? (BUFFER_BYTES - pattern) / widest : INT64_MAX;
    /* beside an input that is read again and again the processor does not prefetch the others as far by itself */
    p->ahead = !p->stream || p->op->cost > LIGHT ? 0 : far == 1 && runs > 1 ? 2 : 1;
    if (p->ahead && !buffered && runs > 1) p->block /= 2;
    p->tile_rows = widest > 4 ? TILE_ROWS / 2 : TILE_ROWS;
}

/* ---- Elements in and out of buffers ---- */

static char *address(const plan *p, const operand *o, const int64_t *index) {
    return ct__strided_address(p->ndim, &o->at, index);
}

static void advance(const plan *p, int64_t *index, int64_t n) { ct__strided_advance(p->ndim, p->dims, index, n); }

static void move(const plan *p, const operand *o, const int64_t *index, int64_t n, char *buffer, bool out) {
    ct__strided_move(p->ndim, p->dims, &o->at, index, n, buffer, out);
}

static void widen(const plan *p, float *to, const void *from, int64_t n) {
    (p->half == CT_F16 ? p->op->isa->load_f16 : p->op->isa->load_bf16)(to, from, n);
}

static void narrow(const plan *p, void *to, const float *from, int64_t n) {
    (p->half == CT_F16 ? p->op->isa->store_f16 : p->op->isa->store_bf16)(to, from, n);
}

static bool in_one_row(const plan *p, const operand *o) {
    return o->linear || (p->rows && o->at.strides[p->ndim - 1] == 1);
}

/* ---- Run ---- */

typedef struct buffers {
    alignas(64) char data[OPERANDS][BUFFER_BYTES];
    alignas(64) char raw[BUFFER_BYTES]; /* half elements before and after conversion */
    alignas(64) char splat[OPERANDS][CT_ELEMENTWISE_SPLAT];
} buffers;

static char *splat(const plan *p, const char *value, int size, char *to) {
    float wide;
    if (p->half != CT_F32) {
        widen(p, &wide, value, 1);
        value = (const char *)&wide;
        size = 4;
    }
    ct__splat(to, value, size);
    return to;
}

/* Patterns are laid out once for a range of elements. */
static void lay_patterns(const plan *p, buffers *b) {
    for (int i = 1; i < p->n; i++) {
        const operand *o = &p->operands[i];
        if (o->access != PATTERN) continue;
        int64_t have = o->period * o->at.size;
        memcpy(b->data[i], o->at.base, (size_t)have);
        for (; have < BUFFER_BYTES; have *= 2)
            memcpy(b->data[i] + have, b->data[i], (size_t)(2 * have <= BUFFER_BYTES ? have : BUFFER_BYTES - have));
    }
}

/* The inner function's pointer to n elements from index on, of which `start` come before. */
static char *load(const plan *p, int i, int64_t start, const int64_t *index, int64_t n, buffers *b) {
    const operand *o = &p->operands[i];
    switch (o->access) {
    case DIRECT: return address(p, o, index);
    case SPLAT: return splat(p, address(p, o, index), o->at.size, b->splat[i]);
    case PATTERN: return b->data[i] + start % o->period * o->at.size;
    case BUFFER: break;
    }
    if (p->half == CT_F32 || is_mask(p, i)) {
        move(p, o, index, n, b->data[i], false);
    } else if (in_one_row(p, o)) {
        widen(p, (float *)(void *)b->data[i], address(p, o, index), n);
    } else {
        move(p, o, index, n, b->raw, false);
        widen(p, (float *)(void *)b->data[i], b->raw, n);
    }
    return b->data[i];
}

/* A block past the caches. Where computing takes no time, what follows the inputs that come from far is prefetched meanwhile: the memory
 * would have nothing to read, and the next block wait for it. Of several inputs a block is half as long, so that little is read at a
 * time. `from` is where they were read. */
static void stream_block(const plan *p, char *to, const char *block, int64_t n, char *const *from) {
    const int64_t size = p->operands[0].at.size, bytes = n * size;
    if ((uintptr_t)to % 64) {
        memcpy(to, block, (size_t)bytes);
        return;
    }
    for (int64_t at = 0; at < bytes; at += STREAM_PART) {
        const int64_t part = bytes - at < STREAM_PART ? bytes - at : STREAM_PART;
        for (int i = 1; i < p->n && p->ahead; i++) {
            const operand *o = &p->operands[i];
            if (!o->far) continue;
            const char *next = from[i] + p->ahead * n * o->at.size + at / size * o->at.size;
            for (int64_t k = 0; k < part / size * o->at.size; k += 64) __builtin_prefetch(next + k, 0, 3);
        }
        p->op->isa->stream(to + at, block + at, part);
    }
}

static void store(const plan *p, const int64_t *index, int64_t n, buffers *b, char *const *from) {
    const operand *o = &p->operands[0];
    if (p->stream) {
        stream_block(p, address(p, o, index), b->data[0], n, from);
    } else if (p->half == CT_F32 || p->op->to_bool) {
        move(p, o, index, n, b->data[0], true);
    } else if (in_one_row(p, o)) {
        narrow(p, address(p, o, index), (const float *)(const void *)b->data[0], n);
    } else {
        narrow(p, b->raw, (const float *)(const void *)b->data[0], n);
        move(p, o, index, n, b->raw, true);
    }
}

static void run_range(const plan *p, int64_t start, int64_t end) {
    buffers b;
    char *ptr[OPERANDS];
    int64_t step[OPERANDS], index[CT_MAX_DIMS];
    const operand *out = &p->operands[0];
    for (int i = 0; i < p->n; i++) step[i] = p->operands[i].access != SPLAT;
    int64_t rest = start;
    for (int d = p->ndim - 1; d >= 0; d--) {
        index[d] = rest % p->dims[d];
        rest /= p->dims[d];
    }
    lay_patterns(p, &b);
    while (start < end) {
        int64_t n = end - start, row = p->dims[p->ndim - 1] - index[p->ndim - 1];
        if (p->rows && n > row) n = row;
        if (n > p->block) n = p->block;
        if (p->stream) { /* up to the next cache line first */
            int64_t past = (int64_t)((uintptr_t)address(p, out, index) % 64);
            if (past && n > (64 - past) / out->at.size) n = (64 - past) / out->at.size;
        }
        ptr[0] = out->access == DIRECT ? address(p, out, index) : b.data[0];
        for (int i = 1; i < p->n; i++) ptr[i] = load(p, i, start, index, n, &b);
        p->fn(n, ptr, step, p->attrs);
        if (out->access == BUFFER) store(p, index, n, &b, ptr);
        start += n;
        advance(p, index, n);
    }
    if (p->stream) p->op->isa->fence();
}

/* ---- Tiles: rows of one dimension by columns of the innermost, where an operand is transposed ---- */

typedef struct tile_buffers {
    alignas(64) char data[OPERANDS][TILE_BYTES];
    alignas(64) char raw[TILE_BYTES];
    alignas(64) char splat[OPERANDS][CT_ELEMENTWISE_SPLAT];
} tile_buffers;

/* A tile of a strided operand, dense in the buffer; or back. Narrow panels keep its cache lines until they are used up. */
static void copy_tile(const plan *p, const operand *o, char *place, char *buffer, int64_t rows, int64_t n, bool out) {
    const int64_t outer = o->at.strides[p->tiled], inner = o->at.strides[p->ndim - 1];
    for (int64_t c = 0; c < n; c += PANEL_COLUMNS) {
        const int64_t width = n - c < PANEL_COLUMNS ? n - c : PANEL_COLUMNS;
        char *at = place + c * inner * o->at.size, *dense = buffer + c * o->at.size;
        void *to = out ? at : dense, *from = out ? dense : at;
        int64_t to_outer = out ? outer : n, to_inner = out ? inner : 1, from_outer = out ? n : outer,
                from_inner = out ? 1 : inner;
        ct__copy_box(o->at.size, to, from, rows, width, to_outer, to_inner, from_outer, from_inner);
    }
}

static void run_tile(const plan *p, const int64_t *index, int64_t rows, int64_t n, tile_buffers *b) {
    const operand *out = &p->operands[0];
    char *first[OPERANDS], *ptr[OPERANDS];
    int64_t step[OPERANDS], row_bytes[OPERANDS];
    for (int i = 0; i < p->n; i++) {
        const operand *o = &p->operands[i];
        const bool converted = p->half != CT_F32 && !is_mask(p, i);
        first[i] = address(p, o, index);
        step[i] = o->access != SPLAT;
        row_bytes[i] = o->at.strides[p->tiled] * o->at.size;
        if (o->access != BUFFER) continue;
        if (i > 0) copy_tile(p, o, first[i], converted ? b->raw : b->data[i], rows, n, false);
        if (i > 0 && converted) widen(p, (float *)(void *)b->data[i], b->raw, rows * n);
        first[i] = b->data[i];
        row_bytes[i] = n * (converted ? 4 : o->at.size);
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int i = 0; i < p->n; i++) {
            ptr[i] = first[i] + r * row_bytes[i];
            if (step[i] == 0) ptr[i] = splat(p, ptr[i], p->operands[i].at.size, b->splat[i]);
        }
        p->fn(n, ptr, step, p->attrs);
    }
    if (out->access != BUFFER) return;
    const bool converted = p->half != CT_F32 && !is_mask(p, 0);
    if (converted) narrow(p, b->raw, (const float *)(const void *)b->data[0], rows * n);
    copy_tile(p, out, address(p, out, index), converted ? b->raw : b->data[0], rows, n, true);
}

static int64_t tile_side(const plan *p, int d) {
    return d == p->ndim - 1 ? TILE_COLUMNS : d == p->tiled ? p->tile_rows : 1;
}

static void run_tiles(const plan *p, int64_t start, int64_t end) {
    tile_buffers b;
    int64_t index[CT_MAX_DIMS];
    const int last = p->ndim - 1;
    for (int64_t tile = start; tile < end; tile++) {
        int64_t rest = tile;
        for (int d = last; d >= 0; d--) {
            int64_t count = (p->dims[d] + tile_side(p, d) - 1) / tile_side(p, d);
            index[d] = rest % count * tile_side(p, d);
            rest /= count;
        }
        int64_t rows = p->dims[p->tiled] - index[p->tiled], n = p->dims[last] - index[last];
        run_tile(p, index, rows < p->tile_rows ? rows : p->tile_rows, n < TILE_COLUMNS ? n : TILE_COLUMNS, &b);
    }
}

static int64_t count_tiles(const plan *p) {
    int64_t count = 1;
    for (int d = 0; d < p->ndim; d++) count *= (p->dims[d] + tile_side(p, d) - 1) / tile_side(p, d);
    return count;
}

static void run_chunk(void *ctx, int64_t chunk, int worker) {
    const plan *p = ctx;
    int64_t start = chunk * p->chunk, end = start + p->chunk;
    (void)worker;
    if (end > p->total) end = p->total;
    if (p->tiled >= 0) run_tiles(p, start, end);
    else run_range(p, start, end);
}

/* A contiguous operand, or with step 0 one value for all elements. */
static bool is_simple(const ct_view *v, int64_t *step) {
    *step = 1;
    if (is_dense(v)) return true;
    *step = 0;
    for (int d = 0; d < v->ndim; d++)
        if (v->dims[d] != 1 && v->strides[d] != 0) return false;
    return true;
}

/* The elements of dimension d and those inside it, dense, from here on. Returns where they end. */
CT__HOT static char *gather(const ct_view *v, int d, const char *from, int size, char *to) {
    const int last = v->ndim - 1;
    if (d < last - 1) {
        for (int64_t i = 0; i < v->dims[d]; i++, from += v->strides[d] * size) to = gather(v, d + 1, from, size, to);
        return to;
    }
    const int64_t rows = d < last ? v->dims[d] : 1, outer = d < last ? v->strides[d] : 0;
    const int64_t n = last >= 0 ? v->dims[last] : 1, inner = last >= 0 ? v->strides[last] : 0;
    ct__copy_box(size, to, from, rows, n, n, 1, outer, inner);
    return to + rows * n * size;
}

CT__HOT bool ct__elementwise_run(const ct_call *call, const ct_elementwise *op) {
    const ct_dtype dtype = call->in[op->typed]->dtype;
    const ct_view *views[OPERANDS] = {call->out[0]};
    char *ptr[OPERANDS];
    int64_t step[OPERANDS];
    plan p;
    p.total = 1;
    p.chunk = chunk_size(op);
    p.n = op->n_in + 1;
    for (int d = 0; d < views[0]->ndim; d++) p.total *= views[0]->dims[d];
    if (p.total == 0) return true;

    bool simple = p.total <= p.chunk && dtype != CT_F16 && dtype != CT_BF16, repeats = false;
    const bool few = simple && p.total <= FEW;
    for (int i = 0; i < p.n; i++) {
        if (i > 0) views[i] = call->in[i - 1];
        p.operands[i].at.size = (int)ct__dtype_size(views[i]->dtype);
        p.operands[i].at.base = ptr[i] = ct__address(views[i], (size_t)p.operands[i].at.size);
        simple = simple && is_simple(views[i], &step[i]);
        repeats |= simple && step[i] == 0;
    }
    if (simple && !repeats) { /* small and dense: no plan */
        op->fn[dtype](p.total, ptr, step, call->attrs);
        return true;
    }
    if (few && is_dense(views[0])) { /* too few for a plan to pay: what is not dense is made so */
        alignas(64) char dense[OPERANDS][FEW * 8];
        for (int i = 0; i < p.n; i++) {
            step[i] = 1;
            if (i == 0 || is_dense(views[i])) continue;
            gather(views[i], 0, ptr[i], p.operands[i].at.size, dense[i]);
            ptr[i] = dense[i];
        }
        op->fn[dtype](p.total, ptr, step, call->attrs);
        return true;
    }
    if (simple && dtype <= CT_F64 && !op->plain) {
        alignas(64) char values[OPERANDS][CT_ELEMENTWISE_SPLAT];
        for (int i = 1; i < p.n; i++) {
            if (step[i]) continue;
            ct__splat(values[i], ptr[i], p.operands[i].at.size);
            ptr[i] = values[i];
        }
        op->fn[dtype](p.total, ptr, step, call->attrs);
        return true;
    }
    p.op = op;
    p.fn = op->fn[dtype];
    p.attrs = call->attrs;
    collapse(&p, views);
    choose_access(&p, dtype);
    if (p.tiled >= 0) { /* count tiles instead of elements */
        p.chunk = p.chunk / (p.tile_rows * TILE_COLUMNS) + 1;
        p.total = count_tiles(&p);
    }
    int64_t chunks = (p.total + p.chunk - 1) / p.chunk;
    if (chunks == 1) run_chunk(&p, 0, 0);
    else ct__parallel(chunks, run_chunk, &p);
    return true;
}
