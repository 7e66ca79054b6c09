/* Products on the host's side: which way operands lie, whether by quads, and what the text is told. */
#include "backends/webgpu/product.h"

#include <stdlib.h>

CT_WGPU_UNIT(backend_product);

typedef struct params {
    ct_wgpu_tile_head head;
    uint32_t columns, batch_dims, a_row, a_col, b_row, b_col, c_row, c_col;
    uint32_t y_row, y_col, bias_step, extra_step, activation, slope, pad_a, pad_b;
    uint32_t batch[CT_WGPU_DIMS], a_batch[CT_WGPU_DIMS], b_batch[CT_WGPU_DIMS], c_batch[CT_WGPU_DIMS];
} params;

void ct_wgpu_product_fold(ct_wgpu_product *p) {
    while (p->batch_dims > 0) {
        const int i = p->batch_dims - 1;
        const bool rows = p->b_batch[i] == 0 && p->a_batch[i] == p->m * p->a_row && p->c_batch[i] == p->m * p->c_row;
        if (p->batch[i] != 1 && !rows) break;
        p->m *= p->batch[i];
        p->batch_dims--;
    }
    int kept = 0;
    p->batches = 1;
    for (int i = 0; i < p->batch_dims; i++) {
        const int64_t size = p->batch[i];
        p->batches *= size;
        if (size == 1) continue;
        const bool joins = kept > 0 && p->a_batch[kept - 1] == size * p->a_batch[i] &&
                           p->b_batch[kept - 1] == size * p->b_batch[i] && p->c_batch[kept - 1] == size * p->c_batch[i];
        const int at = joins ? kept - 1 : kept++;
        p->batch[at] = joins ? p->batch[at] * size : size;
        p->a_batch[at] = p->a_batch[i];
        p->b_batch[at] = p->b_batch[i];
        p->c_batch[at] = p->c_batch[i];
    }
    p->batch_dims = kept;
}

const char *ct_wgpu_product_refuses(const ct_wgpu_product *p) {
    const ct_dtype dtype = p->a->dtype;
    if (dtype == CT_F64 || dtype == CT_I64 || dtype > CT_U8) return "there is no product of this dtype";
    const double most = 0x1p31;
    return (double)p->m < most && (double)p->n < most && (double)p->k < most && (double)p->batches < most
               ? NULL
               : "it is too large";
}

/* ---- Operands ---- */

/* Whether a matrix is read along its columns' direction (the first stride) or the other's, and whether by quads. */
typedef struct reading {
    bool along_first, quads;
} reading;

static reading reading_of(const ct_view *view, int64_t first, int64_t first_size, int64_t second, int64_t second_size,
                          const int64_t *batch, int batches) {
    int64_t strides[CT_WGPU_DIMS + 1];
    for (int i = 0; i < batches; i++) strides[i + 1] = batch[i];
    if (first == 1 || (second != 1 && llabs(first) <= llabs(second))) {
        strides[0] = second_size > 1 ? second : 0;
        return (reading){true, first == 1 && first_size % 4 == 0 && ct_wgpu_has_quads(view, strides, batches + 1)};
    }
    strides[0] = first_size > 1 ? first : 0;
    return (reading){false, second == 1 && second_size % 4 == 0 && ct_wgpu_has_quads(view, strides, batches + 1)};
}

/* One that may be missing: the text is compiled all the same. */
static void optional(ct_wgpu_launch *launch, const char *name, const ct_view *view, ct_dtype dtype, unsigned mode) {
    ct_wgpu_operand_of(launch, name, view, mode);
    if (!view) launch->operands[launch->n - 1].dtype = (uint8_t)dtype;
}

static void fill(uint32_t *to, const int64_t *from, int n) {
    for (int i = 0; i < CT_WGPU_DIMS; i++) to[i] = i < n ? (uint32_t)from[i] : 0;
}

static ct_wgpu_tiles tiles_of(const ct_call *call, const ct_wgpu_product *p) {
    return ct_wgpu_product_tiles_of(call, p->m, p->n + (p->extra != NULL), p->k, p->batches);
}

static ct_dtype sum_dtype(const ct_wgpu_product *p) { return p->a->dtype <= CT_BF16 ? CT_F32 : CT_I32; }

/* A tile would be mostly empty, or hardly begun. */
static bool is_small(const ct_wgpu_product *p) {
    enum { PRODUCTS = 1 << 15, DEPTH = 512 };
    return p->k <= DEPTH && (double)p->m * (double)(p->n + 1) * (double)p->k * (double)p->batches <= PRODUCTS;
}

size_t ct_wgpu_product_scratch(const ct_call *call, const ct_wgpu_product *p) {
    return is_small(p) ? 0 : tiles_of(call, p).scratch;
}

static params params_of(const ct_wgpu_product *p, const ct_wgpu_tiles *tiles) {
    params s = {.head = tiles->head,
                .columns = (uint32_t)p->n,
                .batch_dims = (uint32_t)p->batch_dims,
                .a_row = (uint32_t)p->a_row,
                .a_col = (uint32_t)p->a_col,
                .b_row = (uint32_t)p->b_row,
                .b_col = (uint32_t)p->b_col,
                .c_row = (uint32_t)p->c_row,
                .c_col = (uint32_t)p->c_col,
                .y_row = (uint32_t)p->y_row,
                .y_col = (uint32_t)p->y_col,
                .bias_step = p->bias ? (uint32_t)p->bias->strides[0] : 0,
                .extra_step = p->extra ? (uint32_t)p->extra->strides[0] : 0,
                .activation = (uint32_t)p->activation,
                .slope = (uint32_t)p->slope};
    fill(s.batch, p->batch, p->batch_dims);
    fill(s.a_batch, p->a_batch, p->batch_dims);
    fill(s.b_batch, p->b_batch, p->batch_dims);
    fill(s.c_batch, p->c_batch, p->batch_dims);
    return s;
}

static void add_operands(ct_wgpu_launch *launch, const ct_wgpu_product *p, unsigned read, unsigned write) {
    const ct_dtype dtype = p->a->dtype;
    ct_wgpu_operand_of(launch, "a", p->a, read);
    ct_wgpu_operand_of(launch, "b", p->b, read);
    optional(launch, "y", p->y, dtype, read);
    ct_wgpu_operand_of(launch, "c", p->c, write);
    optional(launch, "bias", p->bias, dtype, read);
    optional(launch, "extra", p->extra, dtype, CT_WGPU_WRITTEN);
    ct_wgpu_constant(launch, "ACTIVATED", p->activation != CT_ACT_NONE);
}

/* Whether all that blocks of 8 by 8, or tiles of 128 by 128, load lies inside of A and B, and is loaded by quads. */
static bool is_inside(const ct_wgpu_product *p, ct_wgpu_tile_way way, bool quads, bool words) {
    if (p->y || p->extra) return false;
    if (way == CT_WGPU_DIRECT) return quads && p->m % 8 == 0 && p->n % 8 == 0 && p->k % 4 == 0;
    return way == CT_WGPU_LARGE && words && p->m % 128 == 0 && p->n % 128 == 0 && p->k % CT_WGPU_TILE_K == 0;
}

bool ct_wgpu_product_run(const ct_call *call, const ct_wgpu_product *p, size_t offset) {
    ct_wgpu_tiles tiles = tiles_of(call, p);
    const params s = params_of(p, &tiles);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "each", CT_WGPU_TILE_THREADS);
    if (is_small(p)) {
        launch.words = CT_WGPU_F32;
        add_operands(&launch, p, 0, CT_WGPU_WRITTEN);
        const int64_t elements = p->m * (p->n + (p->extra != NULL)) * p->batches;
        return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(elements, CT_WGPU_TILE_THREADS), &s, sizeof s);
    }
    const reading a = reading_of(p->a, p->a_col, p->k, p->a_row, p->m, p->a_batch, p->batch_dims);
    const reading b = reading_of(p->b, p->b_row, p->k, p->b_col, p->n, p->b_batch, p->batch_dims);
    const reading c = reading_of(p->c, p->c_col, p->n, p->c_row, p->m, p->c_batch, p->batch_dims);
    const bool c_quads = c.along_first && c.quads;
    add_operands(&launch, p, CT_WGPU_TILE_READ, c_quads ? CT_WGPU_TILE_WRITE_QUADS : CT_WGPU_TILE_WRITE);
    ct_wgpu_constant(&launch, "A_QUADS", a.quads);
    ct_wgpu_constant(&launch, "B_QUADS", b.quads);
    ct_wgpu_constant(&launch, "C_QUADS", c_quads);
    const bool narrow =
        ct_wgpu_dtype_size(p->a->dtype) < 4; /* words of f32 have nothing to be unpacked, and cost a tenth on an H200 */
    const bool a_words = narrow && a.quads && !p->y, b_words = narrow && b.quads && !p->extra;
    ct_wgpu_constant(&launch, "A_WORDS", a_words);
    ct_wgpu_constant(&launch, "B_WORDS", b_words);
    const bool inside = is_inside(p, tiles.way, a.quads && b.quads, a_words && b_words);
    ct_wgpu_constant(&launch, "INSIDE", inside);
    ct_wgpu_constant(&launch, "ONES", p->extra != NULL);
    if (tiles.way == CT_WGPU_DIRECT && inside) tiles.way = CT_WGPU_INSIDE;
    return ct_wgpu_tiles_run(call, &launch, &tiles, 3, a.along_first, b.along_first, &s, sizeof s, sum_dtype(p),
                             offset);
}
