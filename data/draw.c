/* Random numbers of one item, batch or epoch: a 64-bit mix of a key and a counter. No op is called for a single
 * number. */
#include "data/data.h"

#include <math.h>

/* A bijection of 64 bits whose outputs for neighboring inputs look independent (multiply and shift, three rounds). */
static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xe9846af9b1a615d;
    x ^= x >> 32;
    x *= 0xe9846af9b1a615d;
    x ^= x >> 28;
    return x;
}

ct_draw ct__draw_begin(uint64_t seed, int stream, int64_t epoch, int64_t item) {
    const uint64_t odd = 0x9e3779b97f4a7c15u; /* 2^64 over the golden ratio: sums of its multiples spread evenly */
    uint64_t key = mix(seed + odd);
    key = mix(key ^ ((uint64_t)stream * odd));
    key = mix(key + (uint64_t)epoch * odd + 1);
    key = mix(key + (uint64_t)item * odd + 2);
    return (ct_draw){.key = key};
}

void ct__draw_end(ct_draw *draw) {
    ct_rng_free(draw->rng);
    draw->rng = NULL;
}

static uint64_t next(ct_draw *draw) { return mix(draw->key + 0x9e3779b97f4a7c15u * ++draw->count); }

double ct_draw_uniform(ct_draw *draw) { return draw ? (double)(next(draw) >> 11) * 0x1p-53 : 0; }

int64_t ct_draw_below(ct_draw *draw, int64_t n) {
    if (!draw || n < 1) return 0;
    /* The upper half of a 128-bit product: without a rejection the bias is below n / 2^64. */
    const uint64_t a = next(draw), b = (uint64_t)n;
    const uint64_t low = (a & 0xffffffff) * (b & 0xffffffff), cross = (a >> 32) * (b & 0xffffffff) + (low >> 32);
    const uint64_t other = (a & 0xffffffff) * (b >> 32) + (cross & 0xffffffff);
    return (int64_t)((a >> 32) * (b >> 32) + (cross >> 32) + (other >> 32));
}

double ct_draw_normal(ct_draw *draw) {
    const double u = 1 - ct_draw_uniform(draw), v = ct_draw_uniform(draw);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* The logarithm of a number of the gamma distribution (Marsaglia and Tsang 2000). For a shape below 1 it is taken from
 * shape + 1, times u^(1/shape): in logarithms nothing underflows. */
static double log_gamma_draw(ct_draw *draw, double shape) {
    double extra = 0;
    if (shape < 1) {
        extra = log(1 - ct_draw_uniform(draw)) / shape;
        shape += 1;
    }
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = ct_draw_normal(draw), v = 1 + c * x;
        if (v <= 0) continue;
        const double cube = v * v * v, u = 1 - ct_draw_uniform(draw);
        if (log(u) < 0.5 * x * x + d - d * cube + d * log(cube)) return log(d * cube) + extra;
    }
}

double ct_draw_beta(ct_draw *draw, double alpha) {
    if (!draw || !(alpha > 0) || isinf(alpha)) return 0.5;
    const double a = log_gamma_draw(draw, alpha), b = log_gamma_draw(draw, alpha);
    return 1 / (1 + exp(b - a));
}

ct_rng *ct_draw_rng(ct_draw *draw) {
    if (!draw) {
        ct__null("draw_rng", "draw");
        return NULL;
    }
    if (!draw->rng) draw->rng = ct_rng_new(draw->key, 0);
    return draw->rng;
}

void ct__shuffle(int64_t *values, int64_t n, ct_draw *draw) {
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = ct_draw_below(draw, i + 1), value = values[i];
        values[i] = values[j];
        values[j] = value;
    }
}
