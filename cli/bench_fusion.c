/* What fusion is for: chains of elementwise ops, and what lies between the products of a transformer, forward and backward, called one by one and
 * captured. */
#include "cli/bench.h"

typedef struct chain {
    ct_tensor *x, *a, *b, *cotangent;
} chain;

/* Ten ops. The gradient is left behind, and made anew each time. */
static bool run_chain(void *context) {
    chain *c = context;
    bool ok = false;
    ct_scope {
        ct_set_grad(c->x, NULL);
        ct_tensor *h = ct_tanh(ct_add(ct_mul(c->x, c->a), c->b));
        h = ct_add(ct_sigmoid(ct_mul(h, c->a)), c->b);
        h = ct_sub(ct_silu(ct_mul(ct_relu(h), c->a)), c->b);
        ok = ct_backward_from(h, c->cotangent, 0);
    }
    return ok;
}

static bool measure_chain(int64_t n, bool captured, double min_time, bench_result *result) {
    ct_dims shape = CT_DIMS(n);
    chain c = {.x = ct_set_requires_grad(ct_randn(shape), true),
               .a = ct_randn(shape),
               .b = ct_randn(shape),
               .cotangent = ct_randn(shape)};
    return (captured ? bench_replays : bench_measure)(run_chain, &c, min_time, result);
}

bool bench_chain(double min_time, bench_result *result) { return measure_chain(1 << 20, false, min_time, result); }
bool bench_long_chain(double min_time, bench_result *result) { return measure_chain(1 << 24, false, min_time, result); }
bool bench_chain_graph(double min_time, bench_result *result) { return measure_chain(1 << 20, true, min_time, result); }
bool bench_long_chain_graph(double min_time, bench_result *result) {
    return measure_chain(1 << 24, true, min_time, result);
}

/* ---- Bias, gelu, dropout, residual, layer norm ---- */

enum { ROWS = 2048, WIDTH = 768 };

typedef struct block {
    ct_tensor *x, *residual;          /* (ROWS, WIDTH) */
    ct_tensor *bias, *weight, *shift; /* (WIDTH) */
    ct_tensor *cotangent;
} block;

static bool run_block(void *context) {
    block *b = context;
    bool ok = false;
    ct_scope {
        ct_tensor *leaves[] = {b->x, b->residual, b->bias, b->weight, b->shift};
        for (int i = 0; i < 5; i++) ct_set_grad(leaves[i], NULL);
        ct_tensor *h = ct_add(ct_dropout(ct_gelu(ct_add(b->x, b->bias)), 0.1), b->residual);
        h = ct_layer_norm(h, CT_DIMS(WIDTH), .weight = b->weight, .bias = b->shift);
        ok = ct_backward_from(h, b->cotangent, 0);
    }
    return ok;
}

static ct_tensor *leaf(ct_dims shape) { return ct_set_requires_grad(ct_randn(shape), true); }

static bool measure_block(bool captured, double min_time, bench_result *result) {
    const ct_dims shape = CT_DIMS(ROWS, WIDTH), row = CT_DIMS(WIDTH);
    block b = {.x = leaf(shape), .residual = leaf(shape), .bias = leaf(row), .weight = leaf(row), .shift = leaf(row)};
    b.cotangent = ct_randn(shape);
    return (captured ? bench_replays : bench_measure)(run_block, &b, min_time, result);
}

bool bench_block(double min_time, bench_result *result) { return measure_block(false, min_time, result); }
bool bench_block_graph(double min_time, bench_result *result) { return measure_block(true, min_time, result); }
