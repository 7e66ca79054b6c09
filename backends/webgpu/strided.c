/* The host side of strided copies and fills: which way is the best for the views. */
#include "backends/webgpu/strided.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { THREADS = 256 };

/* ---- Walks ---- */

void ct_wgpu_walk_add(ct_wgpu_walk *walk, int64_t size, const int64_t *strides) {
    walk->total *= size;
    if (size == 1) return;
    int d = walk->ndim - 1;
    bool joins = d >= 0;
    for (int k = 0; joins && k < walk->n; k++) joins = walk->strides[k][d] == size * strides[k];
    if (joins) walk->dims[d] *= size;
    else walk->dims[d = walk->ndim++] = size;
    for (int k = 0; k < walk->n; k++) walk->strides[k][d] = strides[k];
}

void ct_wgpu_walk_dims(const ct_wgpu_walk *walk, uint32_t dims[CT_WGPU_DIMS]) {
    for (int d = 0; d < CT_WGPU_DIMS; d++) dims[d] = d < walk->ndim ? (uint32_t)walk->dims[d] : 1;
}

void ct_wgpu_walk_strides(const ct_wgpu_walk *walk, int operand, uint32_t strides[CT_WGPU_DIMS]) {
    for (int d = 0; d < CT_WGPU_DIMS; d++) strides[d] = d < walk->ndim ? (uint32_t)walk->strides[operand][d] : 0;
}

/* Elements twice as wide. */
static bool widen(ct_wgpu_walk *w, size_t size, uint64_t to, uint64_t from, int64_t *along) {
    const int last = w->ndim - 1;
    if (last < 0 || w->dims[last] % 2 || (to | from) % (2 * size) || (along && *along % 2)) return false;
    if (w->strides[0][last] != 1 || w->strides[1][last] != 1 || (w->n > 2 && w->strides[2][last])) return false;
    for (int d = 0; d < last; d++)
        if (w->strides[0][d] % 2 || w->strides[1][d] % 2) return false;
    for (int d = 0; d < last; d++) w->strides[0][d] /= 2, w->strides[1][d] /= 2;
    for (int k = 2; k < w->n; k++) w->strides[k][last] *= 2;
    w->dims[last] /= 2, w->total /= 2;
    if (along) *along /= 2;
    return true;
}

size_t ct_wgpu_widen(ct_wgpu_walk *walk, size_t size, uint64_t to, uint64_t from, int64_t *along) {
    while (size < 16 && widen(walk, size, to, from, along)) size *= 2;
    return size;
}

bool ct_wgpu_word_runs(const ct_wgpu_walk *walk, size_t size, uint64_t to, uint32_t *length) {
    const int64_t pack = (int64_t)(4 / size);
    int d = walk->ndim;
    int64_t run = 1;
    if (size >= 4 || to % 4) return false;
    for (; d > 0 && walk->strides[0][d - 1] == run; d--) run *= walk->dims[d - 1];
    if (run < pack && walk->ndim) return false;
    for (; d > 0; d--)
        if (walk->strides[0][d - 1] % pack) return false;
    *length = (uint32_t)run;
    return true;
}

/* ---- Operands ---- */

static const char move_one[] = "fn move_unit(to: u32, source: u32) { to_store(to, from_load(source)); }\n";
static const char move_quad[] = "fn move_unit(to: u32, source: u32) { to_store4(4u * to, from_load4(4u * source)); }\n";

void ct_wgpu_bits_operand(ct_wgpu_launch *launch, const char *name, const ct_view *view, size_t size, unsigned mode) {
    ct_wgpu_operand_of(launch, name, view, mode);
    launch->operands[launch->n - 1].dtype = (uint8_t)(size == 16 ? CT_I32 : ct_wgpu_dtype_of_size(size));
}

void ct_wgpu_move_operands(ct_wgpu_launch *launch, const ct_view *to, const ct_view *from, size_t size) {
    const unsigned quads = size == 16 ? CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY : 0;
    ct_wgpu_bits_operand(launch, "to", to, size, CT_WGPU_WRITTEN | quads);
    ct_wgpu_bits_operand(launch, "from", from, size, quads);
    launch->more = size == 16 ? move_quad : move_one;
}

/* ---- Copies ---- */

typedef struct move_params {
    uint32_t total, rank, length, pad;
    uint32_t dims[CT_WGPU_DIMS], strides[2][CT_WGPU_DIMS];
} move_params;

typedef struct transpose_params {
    uint32_t total, rank, row_tiles, column_tiles;
    uint32_t dims[CT_WGPU_DIMS], strides[2][CT_WGPU_DIMS];
    uint32_t rows, columns, to_row, from_column;
} transpose_params;

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* The dimensions in the order in which they lie in to, so that neighbouring invocations write neighbouring elements. */
static ct_wgpu_walk walk_of(const ct_view *to, const ct_view *from) {
    int order[CT_WGPU_DIMS];
    ct_wgpu_walk walk = ct_wgpu_walk_begin(2);
    for (int i = 0; i < to->ndim; i++) {
        int k = i;
        for (; k > 0 && magnitude(to->strides[order[k - 1]]) < magnitude(to->strides[i]); k--) order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < to->ndim; i++) {
        const int d = order[i];
        ct_wgpu_walk_add(&walk, to->dims[d], (const int64_t[]){to->strides[d], from->strides[d]});
    }
    return walk;
}

/* The dimension along which from is dense while to is dense along the last; -1: it is no transpose. */
static int transposed(const ct_wgpu_walk *w, size_t size) {
    enum { LEAST = 8, WORTH = 1 << 14 }; /* sides below it leave most of a tile idle; what is small is cached anyway */
    const int last = w->ndim - 1;
    if (size < 2 || size > 8 || last < 1 || w->strides[0][last] != 1 || magnitude(w->strides[1][last]) <= 1) return -1;
    if (w->dims[last] < LEAST || w->total < WORTH) return -1;
    for (int d = 0; d < last; d++)
        if (w->strides[1][d] == 1 && w->dims[d] >= LEAST) return d;
    return -1;
}

static bool transpose(const ct_call *call, const ct_view *to, const ct_view *from, const ct_wgpu_walk *w, int row,
                      size_t size, bool words) {
    CT_WGPU_UNIT(backend_transpose);
    extern const char ct_wgsl_backend_transpose_pairs[];
    static const ct_wgpu_unit pairs = {"backend_transpose_pairs", ct_wgsl_backend_transpose_pairs};
    enum { SIDE = 32 };
    const int last = w->ndim - 1;
    const int64_t side = words ? 2 * SIDE : SIDE; /* of columns */
    ct_wgpu_walk batch = ct_wgpu_walk_begin(2);
    for (int d = 0; d < last; d++)
        if (d != row) ct_wgpu_walk_add(&batch, w->dims[d], (const int64_t[]){w->strides[0][d], w->strides[1][d]});
    transpose_params p = {.total = (uint32_t)batch.total,
                          .rank = (uint32_t)batch.ndim,
                          .row_tiles = (uint32_t)ct_wgpu_ceil_div(w->dims[row], SIDE),
                          .column_tiles = (uint32_t)ct_wgpu_ceil_div(w->dims[last], side),
                          .rows = (uint32_t)w->dims[row],
                          .columns = (uint32_t)w->dims[last],
                          .to_row = (uint32_t)w->strides[0][row],
                          .from_column = (uint32_t)w->strides[1][last]};
    ct_wgpu_walk_dims(&batch, p.dims);
    for (int k = 0; k < 2; k++) ct_wgpu_walk_strides(&batch, k, p.strides[k]);
    ct_wgpu_launch launch = ct_wgpu_begin(words ? &pairs : &unit, "transpose", THREADS);
    ct_wgpu_bits_operand(&launch, "to", to, size, CT_WGPU_WRITTEN | (words ? CT_WGPU_WORDS : 0));
    ct_wgpu_bits_operand(&launch, "from", from, size, 0);
    const int64_t tiles = (int64_t)p.row_tiles * p.column_tiles * batch.total;
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(tiles, 1), &p, sizeof p);
}

bool ct_wgpu_copy_view(const ct_call *call, const ct_view *to, const ct_view *from) {
    CT_WGPU_UNIT(backend_strided);
    extern const char ct_wgsl_backend_strided_words[];
    static const ct_wgpu_unit by_words = {"backend_strided_words", ct_wgsl_backend_strided_words};
    ct_wgpu_walk walk = walk_of(to, from);
    if (walk.total == 0) return true;
    const size_t size =
        ct_wgpu_widen(&walk, ct_wgpu_dtype_size(to->dtype), ct_wgpu_begin_of(to), ct_wgpu_begin_of(from), NULL);
    move_params p = {.rank = (uint32_t)walk.ndim, .total = (uint32_t)walk.total};
    const bool words = ct_wgpu_word_runs(&walk, size, ct_wgpu_begin_of(to), &p.length);
    const int row = transposed(&walk, size);
    bool pairs = words && size == 2; /* all rows of to begin on words, also those that are one run */
    for (int d = 0; d < walk.ndim - 1; d++) pairs &= walk.strides[0][d] % 2 == 0;
    if (row >= 0 && (size > 2 || pairs)) return transpose(call, to, from, &walk, row, size, size == 2);
    ct_wgpu_walk_dims(&walk, p.dims);
    for (int k = 0; k < 2; k++) ct_wgpu_walk_strides(&walk, k, p.strides[k]);
    ct_wgpu_launch launch = ct_wgpu_begin(words ? &by_words : &unit, "copy", THREADS);
    int64_t items = walk.total;
    if (words) {
        ct_wgpu_bits_operand(&launch, "to", to, size, CT_WGPU_WRITTEN | CT_WGPU_WORDS);
        ct_wgpu_bits_operand(&launch, "from", from, size, 0);
        items = walk.total / p.length * ct_wgpu_ceil_div(p.length, (int64_t)(4 / size));
    } else {
        ct_wgpu_move_operands(&launch, to, from, size);
    }
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(items, THREADS), &p, sizeof p);
}

/* ---- Fills ---- */

typedef struct fill_params {
    uint32_t total, rank, keep, pad;
    uint32_t dims[CT_WGPU_DIMS], strides[1][CT_WGPU_DIMS];
    uint32_t pattern[4];
} fill_params;

static const char one_word[] = "fn element() -> to_t { return i32(p.pattern.x); }\n";
static const char two_words[] = "fn element() -> to_t { return p.pattern.xy; }\n";

bool ct_wgpu_fill_view(const ct_call *call, const ct_view *to, const uint32_t bits[2]) {
    CT_WGPU_UNIT(backend_strided_fill);
    extern const char ct_wgsl_backend_strided_fill_words[], ct_wgsl_backend_strided_fill_quads[];
    static const ct_wgpu_unit by_words = {"backend_strided_fill_words", ct_wgsl_backend_strided_fill_words},
                              by_quads = {"backend_strided_fill_quads", ct_wgsl_backend_strided_fill_quads};
    const size_t size = ct_wgpu_dtype_size(to->dtype);
    ct_wgpu_walk walk = ct_wgpu_walk_begin(1);
    for (int d = 0; d < to->ndim; d++) ct_wgpu_walk_add(&walk, to->dims[d], &to->strides[d]);
    if (walk.total == 0) return true;
    fill_params p = {.total = (uint32_t)walk.total, .rank = (uint32_t)walk.ndim};
    uint32_t word = bits[0];
    if (size == 1) word = (word & 0xff) * 0x01010101u;
    if (size == 2) word = (word & 0xffff) * 0x00010001u;
    p.pattern[0] = p.pattern[2] = word, p.pattern[1] = p.pattern[3] = size == 8 ? bits[1] : word;
    const bool dense = walk.ndim == 0 || (walk.ndim == 1 && walk.strides[0][0] == 1);
    const int64_t bytes = walk.total * (int64_t)size;
    if (dense && ct_wgpu_begin_of(to) % 16 == 0 && bytes % 16 == 0) {
        ct_wgpu_launch launch = ct_wgpu_begin(&by_quads, "fill", THREADS);
        ct_wgpu_bits_operand(&launch, "to", to, 16, CT_WGPU_WRITTEN | CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY);
        p.total = (uint32_t)(bytes / 16);
        return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.total, THREADS), &p, sizeof p);
    }
    if (dense && ct_wgpu_begin_of(to) % 4 == 0) {
        ct_wgpu_launch launch = ct_wgpu_begin(&by_words, "fill", THREADS);
        ct_wgpu_bits_operand(&launch, "to", to, 4, CT_WGPU_WRITTEN | CT_WGPU_WORDS);
        p.total = (uint32_t)ct_wgpu_ceil_div(bytes, 4);
        p.keep = bytes % 4 ? ~0u << (8 * (bytes % 4)) : 0; /* of the last word, what is not of to */
        return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.total, THREADS), &p, sizeof p);
    }
    ct_wgpu_walk_dims(&walk, p.dims);
    ct_wgpu_walk_strides(&walk, 0, p.strides[0]);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "fill", THREADS);
    ct_wgpu_bits_operand(&launch, "to", to, size, CT_WGPU_WRITTEN);
    launch.more = size == 8 ? two_words : one_word;
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(walk.total, THREADS), &p, sizeof p);
}

/* ---- Elements ---- */

/* |value| to a multiple of the spacing of a format with e bits of exponent and m of mantissa, ties to even, overflow
 * left aside. */
static uint32_t small_float(double magnitude, int e, int m) {
    const int bias = (1 << (e - 1)) - 1;
    int exponent;
    if (magnitude == 0) return 0;
    frexp(magnitude, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    /* a carry runs into the exponent by itself */
    return (uint32_t)nearbyint(ldexp(magnitude, m - exponent)) + ((uint32_t)(exponent + bias - 1) << m);
}

/* of: where numbers are too large; nan: what is none. */
static uint32_t float_bits(float value, int e, int m, double least_over, uint32_t over, uint32_t nan) {
    const uint32_t sign = signbit(value) ? 1u << (e + m) : 0;
    const double magnitude = fabs((double)value);
    if (isnan(value)) return sign | nan;
    return sign | (magnitude >= least_over ? over : small_float(magnitude, e, m));
}

static int64_t saturated(double value, double low, double high) {
    if (isnan(value)) return 0;
    if (value <= low) return low <= -0x1p63 ? INT64_MIN : (int64_t)low;
    if (value >= high) return high >= 0x1p63 ? INT64_MAX : (int64_t)high;
    return (int64_t)value;
}

void ct_wgpu_bits_of(ct_dtype dtype, double value, uint32_t bits[2]) {
    const float single = (float)value; /* which narrower floats are made from, too */
    uint64_t all = 0;
    switch (dtype) {
    case CT_COMPLEX64:
    case CT_F32: memcpy(&all, &single, sizeof single); break;
    case CT_F16: all = float_bits(single, 5, 10, 65520, 0x7c00, 0x7e00); break;
    case CT_BF16: all = float_bits(single, 8, 7, 0x1.ffp127, 0x7f80, 0x7fc0); break;
    case CT_F8E4M3: all = float_bits(single, 4, 3, 0x1.d00002p8, 0x7f, 0x7f); break;
    case CT_F8E5M2: all = float_bits(single, 5, 2, 61440, 0x7c, 0x7e); break;
    case CT_I8: all = (uint64_t)saturated(value, -0x1p7, 0x1p7 - 1); break;
    case CT_I16: all = (uint64_t)saturated(value, -0x1p15, 0x1p15 - 1); break;
    case CT_I32: all = (uint64_t)saturated(value, -0x1p31, 0x1p31 - 1); break;
    case CT_I64: all = (uint64_t)saturated(value, -0x1p63, 0x1p63); break;
    case CT_U8: all = (uint64_t)saturated(value, 0, 0x1p8 - 1); break;
    case CT_U16: all = (uint64_t)saturated(value, 0, 0x1p16 - 1); break;
    case CT_U32: all = (uint64_t)saturated(value, 0, 0x1p32 - 1); break;
    case CT_U64: all = value >= 0x1p64 ? UINT64_MAX : value > 0 ? (uint64_t)value : 0; break;
    case CT_BOOL: all = value != 0; break;
    default: break;
    }
    bits[0] = (uint32_t)all, bits[1] = (uint32_t)(all >> 32);
}
