/* Products with a vector, m = 1 or n = 1: chunks of outputs for the gemv kernels, and the epilogue
 * on what each chunk leaves in cache. */
#include "backends/cpu/gemm/plan.h"

#include "core/threads.h"

enum { OUTPUTS = 1024 }; /* of a chunk, at most */

/* y[i] = sum_p A[i][p] x[p] */
typedef struct vector_product {
    const ct_gemm *g;
    bool column; /* n = 1: outputs run down C; else m = 1 */
    int64_t count, k;
    const char *a, *x;
    int64_t a_row, a_col, x_step, y_step;
    char *y;
    int64_t chunk;
    bool in_place; /* the kernels write C itself */
    bool finish;
    ct__finish end;
} vector_product;

static vector_product describe(const ct_gemm *g) {
    vector_product v = {.g = g, .column = g->n == 1, .k = g->k};
    if (v.column) {
        v.count = g->m;
        v.a = g->a, v.a_row = g->a_row, v.a_col = g->a_col;
        v.x = g->b, v.x_step = g->b_row;
        v.y_step = g->c_row;
    } else {
        v.count = g->n;
        v.a = g->b, v.a_row = g->b_col, v.a_col = g->b_row;
        v.x = g->a, v.x_step = g->a_col;
        v.y_step = g->c_col;
    }
    v.y = g->c;
    return v;
}

bool ct__gemm_is_vector(const ct_gemm *g) {
    if ((g->m != 1 && g->n != 1) || g->m <= 0 || g->n <= 0 || g->k <= 0) return false;
    if (g->batch_dims || g->pack_a || g->pack_b || g->packed_b || g->store) return false;
    if (g->a_type > CT_GEMM_F16 || g->a_type != g->b_type) return false;
    if ((g->a_type == CT_GEMM_F64) != (g->c_type == CT_GEMM_F64) || g->c_type > CT_GEMM_F16) return false;
    const vector_product v = describe(g);
    return (v.a_col == 1 && v.x_step == 1) || v.a_row == 1;
}

static void chunk_of_outputs(void *ctx, int64_t chunk, int worker) {
    const vector_product *v = (const vector_product *)ctx;
    const ct_gemm *g = v->g;
    const int64_t size = ct__type_size(g->a_type), first = chunk * v->chunk;
    const int64_t count = ct__min(v->chunk, v->count - first);
    const int64_t acc = g->a_type == CT_GEMM_F64 ? 8 : 4;
    char sums[OUTPUTS * 8] __attribute__((aligned(64)));
    char *y = v->in_place ? v->y + first * acc : sums;
    const char *a = v->a + first * v->a_row * size;
    const double alpha = g->scale ? g->alpha : 1.0;
    const bool accumulate = g->accumulate && v->in_place;
    (void)worker;
    if (v->a_col == 1 && v->x_step == 1)
        ct__gemm_isa->gemv_dot(g->a_type, a, v->a_row, v->x, y, count, v->k, alpha, accumulate);
    else ct__gemm_isa->gemv_axpy(g->a_type, a, v->a_col, v->x, v->x_step, y, count, v->k, alpha, accumulate);
    if (v->finish) ct__gemm_isa->finish(&v->end, y, count, 0, 1, first, count);
}

void ct__gemm_vector(const ct_gemm *g) {
    vector_product v = describe(g);
    const ct_gemm_type acc = g->a_type == CT_GEMM_F64 ? CT_GEMM_F64 : CT_GEMM_F32;
    v.in_place = v.y_step == 1 && g->c_type == acc;
    v.finish = !v.in_place || g->bias_row || g->bias_col || g->residual || g->activate;
    v.end = (ct__finish){.g = g,
                         .acc = acc,
                         .swapped = v.column,
                         .in_place = v.in_place,
                         .c = v.y,
                         .bias_row = g->bias_row,
                         .bias_col = g->bias_col,
                         .residual = g->residual};
    /* Along k: some 64 Ki products per chunk. Along the outputs: wide enough that rows are read in runs. */
    if (v.a_col == 1 && v.x_step == 1) v.chunk = 65536 / v.k + 1;
    else v.chunk = v.count >= 4 * OUTPUTS ? OUTPUTS : 256;
    v.chunk = ct__min(v.chunk, OUTPUTS);
    const int64_t chunks = ct__ceil_div(v.count, v.chunk);
    if (v.count * v.k > 100000 && chunks > 1) ct__parallel(chunks, chunk_of_outputs, &v);
    else
        for (int64_t chunk = 0; chunk < chunks; chunk++) chunk_of_outputs(&v, chunk, 0);
}
