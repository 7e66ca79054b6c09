/* The recurrence on CUDA step by step: a product, by cuBLASLt or tiles, and a kernel for the cells. */
#include "ops/rnn/cuda/steps/steps.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/product.h"
#include "ops/rnn/cells.h"

CT_CUDA_UNIT(rnn_steps);

static ct_cuda_function forward_functions[] = {
    [CT_F32] = CT_CUDA_FUNCTION("rnn_step_f32"),
    [CT_F64] = CT_CUDA_FUNCTION("rnn_step_f64"),
};
static ct_cuda_function backward_functions[] = {
    [CT_F32] = CT_CUDA_FUNCTION("rnn_step_back_f32"),
    [CT_F64] = CT_CUDA_FUNCTION("rnn_step_back_f64"),
};

/* ---- Scratch ---- */

static size_t whole(size_t bytes) { return (bytes + CT_CUDA_ALIGNMENT - 1) / CT_CUDA_ALIGNMENT * CT_CUDA_ALIGNMENT; }

typedef struct room {
    size_t gates, state; /* bytes of (N,G*H) and of (N,H) */
} room;

static room room_of(const ct_cuda_recurrence *p, ct_dtype dtype) {
    const size_t bytes = (size_t)p->n * (size_t)p->h * ct_cuda_dtype_size(dtype);
    return (room){.gates = whole(bytes * (size_t)ct__cell_gates(p->cell)), .state = whole(bytes)};
}

/* ---- Products ---- */

/* C (m,n), dense, = A (m,k) B (k,n); strides of A and B in elements. */
static ct_cuda_product product_of(char *c, int64_t m, int64_t n, int64_t k, const char *a, int64_t a_row, int64_t a_col,
                                  const char *b, int64_t b_row, int64_t b_col) {
    ct_cuda_product p;
    memset(&p, 0, sizeof p);
    p.a = a, p.b = b, p.c = c, p.m = m, p.n = n, p.k = k;
    p.a_row = a_row, p.a_col = a_col, p.b_row = b_row, p.b_col = b_col, p.c_row = n, p.c_col = 1;
    p.batches = 1;
    return p;
}
/* h W_hh^T, h being dense or the initial state; and backward, gates W_hh. */
static ct_cuda_product forward_product(const ct_cuda_recurrence *p, char *to, const char *h, int64_t row,
                                       int64_t column) {
    return product_of(to, p->n, ct__cell_gates(p->cell) * p->h, p->h, h, row, column, p->w.data, p->w.strides[1],
                      p->w.strides[0]);
}
static ct_cuda_product backward_product(const ct_cuda_recurrence *p, char *to, const char *gates) {
    const int64_t wide = ct__cell_gates(p->cell) * p->h;
    return product_of(to, p->n, p->h, wide, gates, wide, 1, p->w.data, p->w.strides[0], p->w.strides[1]);
}

static size_t workspace_of(const ct_call *call, const ct_cuda_product *p, ct_dtype dtype) {
    ct_cuda_blas_product blas;
    size_t bytes = 0;
    if (p->m > 0 && ct_cuda_product_to_blas(call, p, dtype, &blas)) ct_cuda_blas_takes(call, &blas, &bytes);
    return bytes;
}

static bool multiply(const ct_call *call, ct_cuda_product *p, ct_dtype dtype, char *workspace, size_t bytes) {
    ct_cuda_blas_product blas;
    bool refused = !ct_cuda_product_to_blas(call, p, dtype, &blas);
    const bool ok = !refused && ct_cuda_blas_multiply(call, &blas, workspace, bytes, &refused);
    return refused ? ct_cuda_product_tiles(call, p, dtype) : ok;
}

static bool launch(const ct_call *call, ct_cuda_function *functions, ct_cuda_rnn_step *a, ct_dtype dtype,
                   int64_t step) {
    a->step = (int32_t)step;
    const unsigned grid = ct_cuda_blocks(call, (int64_t)a->r.n * a->r.h, 256);
    return ct_cuda_launch(call, &functions[dtype], (ct_cuda_shape){.grid = grid, .block = 256}, a);
}

/* ---- Forward ---- */

size_t ct_rnn_forward_scratch(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype) {
    const room r = room_of(p, dtype);
    const ct_cuda_product product = forward_product(p, ct_cuda_scratch(call), ct_cuda_scratch(call), p->h, 1);
    return r.gates + 3 * r.state + workspace_of(call, &product, dtype);
}

bool ct_rnn_forward_run(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype) {
    if (p->n == 0 || p->h == 0) return true;
    const room r = room_of(p, dtype);
    char *const product = ct_cuda_scratch(call), *const held = product + r.gates, *const c = held + 2 * r.state,
                *const workspace = c + r.state;
    const size_t bytes = call->scratch.bytes - (size_t)(workspace - product);
    for (int64_t step = 0; step < p->steps || step == 0; step++) {
        ct_cuda_rnn_step a = {.r = *p, .dc = c};
        a.h_before = held + (step & 1 ? 0 : r.state), a.h_after = held + (step & 1 ? r.state : 0);
        if (step < p->steps && (step > 0 || p->h0.data)) {
            ct_cuda_product m = step ? forward_product(p, product, a.h_before, p->h, 1)
                                     : forward_product(p, product, p->h0.data, p->h0.strides[0], p->h0.strides[1]);
            if (!multiply(call, &m, dtype, workspace, bytes)) return false;
            a.product = product;
        }
        if (!launch(call, forward_functions, &a, dtype, step)) return false;
    }
    return true;
}

/* ---- Backward ---- */

size_t ct_rnn_backward_scratch(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype) {
    const room r = room_of(p, dtype);
    const ct_cuda_product product = backward_product(p, ct_cuda_scratch(call), ct_cuda_scratch(call));
    return r.gates + 3 * r.state + workspace_of(call, &product, dtype);
}

bool ct_rnn_backward_run(const ct_call *call, const ct_cuda_recurrence *p, ct_dtype dtype) {
    if (p->n == 0 || p->h == 0) return true;
    const room r = room_of(p, dtype);
    char *const gates = ct_cuda_scratch(call), *const product = gates + r.gates, *const dh = product + r.state,
                *const dc = dh + r.state, *const workspace = dc + r.state;
    const size_t bytes = call->scratch.bytes - (size_t)(workspace - gates);
    const bool initial = p->dh0.data || p->dc0.data;
    for (int64_t step = p->steps - 1; step >= (initial ? -1 : 0); step--) {
        ct_cuda_rnn_step a = {.r = *p, .dh = dh, .dc = dc, .gates = gates};
        if (step < p->steps - 1) {
            ct_cuda_product m = backward_product(p, product, gates);
            if (!multiply(call, &m, dtype, workspace, bytes)) return false;
            a.product = product;
        }
        if (!launch(call, backward_functions, &a, dtype, step)) return false;
    }
    return true;
}
