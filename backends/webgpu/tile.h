/* The host's side of products by tiles (tile.wgsl): how C is cut into tiles, k into parts, and the dispatches for it.
 * */
#ifndef COTANGENT_BACKENDS_WEBGPU_TILE_H
#define COTANGENT_BACKENDS_WEBGPU_TILE_H

#include "backends/webgpu/webgpu.h"

enum { CT_WGPU_TILE_THREADS = 256, CT_WGPU_TILE_K = 16 };

/* Texts that do it: by tiles in workgroup memory (any unit); of product.wgsl alone, by larger ones, or without workgroup
 * memory, of which CT_WGPU_INSIDE asks nothing. */
typedef enum ct_wgpu_tile_way { CT_WGPU_TILED, CT_WGPU_LARGE, CT_WGPU_DIRECT, CT_WGPU_INSIDE } ct_wgpu_tile_way;

/* What Params of every unit that stands beside tile.wgsl begin with. */
typedef struct ct_wgpu_tile_head {
    uint32_t m, n, k, part, tiles_m, tiles_n, batches, parts;
} ct_wgpu_tile_head;

typedef struct ct_wgpu_tile_text {
    const char *text, *function;
    uint32_t threads;
} ct_wgpu_tile_text;

typedef struct ct_wgpu_tiles {
    ct_wgpu_tile_head head;
    ct_wgpu_tile_way way;
    const ct_wgpu_tile_text *own;     /* of the unit, instead of the way's; NULL: none */
    uint32_t row_quads, column_quads; /* a tile has 64 times as many rows and columns */
    size_t scratch;                   /* bytes for the sums of parts */
} ct_wgpu_tiles;

/* Modes of operands: read, by quads or not; written by quads alone; or by elements as well. */
enum {
    CT_WGPU_TILE_READ = CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY,
    CT_WGPU_TILE_WRITE = CT_WGPU_WRITTEN | CT_WGPU_QUADS,
    CT_WGPU_TILE_WRITE_QUADS = CT_WGPU_TILE_WRITE | CT_WGPU_QUADS_ONLY
};
/* Whether quads can be loaded from a view that is dense in one direction and has these strides in the others. */
bool ct_wgpu_has_quads(const ct_view *view, const int64_t *strides, int n);

/* How a product is divided: by its sizes and the call's flags alone, so that bits depend on nothing else. */
ct_wgpu_tiles ct_wgpu_tiles_of(const ct_call *call, int64_t m, int64_t n, int64_t k, int64_t batches);
/* The same for product.wgsl, which knows other ways. */
ct_wgpu_tiles ct_wgpu_product_tiles_of(const ct_call *call, int64_t m, int64_t n, int64_t k, int64_t batches);
/* Enqueues it. The launch has the unit, constants of its own and operands: first those that products are made of
 * (n_read), then those that results need. params begin with the head of tiles. Sums of parts are of sum_dtype, and lie
 * in the call's scratch from `offset` on, a multiple of 16. */
bool ct_wgpu_tiles_run(const ct_call *call, ct_wgpu_launch *launch, const ct_wgpu_tiles *tiles, int n_read,
                       bool a_along_k, bool b_along_k, const void *params, size_t params_bytes, ct_dtype sum_dtype,
                       size_t offset);

#endif
