/* Convolution and its gradients as they are defined, one result at a time, for every dtype and any strides: the candidate
 * of last resort, and the one to read first. Sums are in f64, in the order of the loops. */
#include <math.h>

#include "backends/cpu/cpu.h"
#include "core/dtype.h"
#include "core/threads.h"
#include "ops/conv/cpu/kernels.h"

static double get(const ct_conv_problem *p, const void *data, int64_t at) {
    return ct__dtype_get(p->dtype, (const char *)data + at * (int64_t)ct_dtype_size(p->dtype));
}

static void put(const ct_conv_problem *p, void *data, int64_t at, double value) {
    ct__dtype_put(p->dtype, (char *)data + at * (int64_t)ct_dtype_size(p->dtype), value);
}

static double activate(double x, int activation) {
    switch (activation) {
    case CT_ACT_RELU: return x > 0 || x != x ? x : 0;
    case CT_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case CT_ACT_TANH: return tanh(x);
    case CT_ACT_GELU: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case CT_ACT_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}

static int64_t place(const int64_t *index, const int64_t *strides) {
    return index[0] * strides[0] + index[1] * strides[1] + index[2] * strides[2];
}

/* The next of all indices below sizes, the last fastest; false after the last. */
static bool next(int64_t *index, const int64_t *sizes) {
    for (int a = 2; a >= 0; a--) {
        if (++index[a] < sizes[a]) return true;
        index[a] = 0;
    }
    return false;
}

static bool none(const int64_t *sizes) { return sizes[0] == 0 || sizes[1] == 0 || sizes[2] == 0; }

/* Where tap k of the window at out looks; false: beside x. */
static bool looks_at(const ct_window *s, const int64_t *out, const int64_t *k, int64_t *in) {
    bool inside = true;
    for (int a = 0; a < 3; a++) {
        in[a] = out[a] * s->stride[a] + k[a] * s->dilation[a] - s->before[a];
        inside &= in[a] >= 0 && in[a] < s->in[a];
    }
    return inside;
}

/* y[n][o][out] = sum over i, k of x[n][group of o: i][out * stride + k * dilation - before] w[o][i][k] */
static void forward(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const ct_conv_problem *p = ctx;
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    const int64_t n = chunk / g->out_channels, o = chunk % g->out_channels, ins = g->in_channels / g->groups,
                  first = o / (g->out_channels / g->groups) * ins;
    int64_t out[3] = {0}, k[3];
    if (none(s->out)) return;
    do {
        double total = 0;
        for (int64_t i = 0; i < ins; i++) {
            k[0] = k[1] = k[2] = 0;
            do {
                int64_t in[3];
                if (!looks_at(s, out, k, in)) continue;
                total += get(p, p->x, n * g->x.n + (first + i) * g->x.c + place(in, g->x.s)) *
                         get(p, p->w, o * g->w.o + i * g->w.i + place(k, g->w.k));
            } while (next(k, s->kernel));
        }
        if (p->bias) total += get(p, p->bias, o * p->bias_stride);
        if (p->residual)
            total += get(p, p->residual,
                         n * p->residual_strides.n + o * p->residual_strides.c + place(out, p->residual_strides.s));
        put(p, p->y, n * g->y.n + o * g->y.c + place(out, g->y.s), activate(total, p->activation));
    } while (next(out, s->out));
}

/* x[n][c][in] = sum over o, k of y[n][o][out] w[o][c][k] where out * stride + k * dilation - before = in */
static void input_grad(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const ct_conv_problem *p = ctx;
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    const int64_t n = chunk / g->in_channels, c = chunk % g->in_channels, ins = g->in_channels / g->groups,
                  outs = g->out_channels / g->groups, first = c / ins * outs;
    int64_t in[3] = {0}, k[3];
    if (none(s->in)) return;
    do {
        double total = p->bias ? get(p, p->bias, c * p->bias_stride) : 0;
        for (int64_t o = first; o < first + outs; o++) {
            k[0] = k[1] = k[2] = 0;
            do {
                int64_t out[3];
                bool hit = true;
                for (int a = 0; a < 3; a++) {
                    const int64_t from = in[a] + s->before[a] - k[a] * s->dilation[a];
                    out[a] = from / s->stride[a];
                    hit &= from >= 0 && from % s->stride[a] == 0 && out[a] < s->out[a];
                }
                if (!hit) continue;
                total += get(p, p->y, n * g->y.n + o * g->y.c + place(out, g->y.s)) *
                         get(p, p->w, o * g->w.o + c % ins * g->w.i + place(k, g->w.k));
            } while (next(k, s->kernel));
        }
        put(p, p->x, n * g->x.n + c * g->x.c + place(in, g->x.s), total);
    } while (next(in, s->in));
}

/* w[o][i][k] = sum over n, out of y[n][o][out] x[n][group of o: i][out * stride + k * dilation - before] */
static void weight_grad(void *ctx, int64_t o, int worker) {
    (void)worker;
    const ct_conv_problem *p = ctx;
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    const int64_t ins = g->in_channels / g->groups, first = o / (g->out_channels / g->groups) * ins;
    const bool empty = none(s->out);
    int64_t out[3] = {0}, k[3];
    for (int64_t i = 0; p->w && i < ins; i++) {
        k[0] = k[1] = k[2] = 0;
        do {
            double total = 0;
            for (int64_t n = 0; n < g->batch && !empty; n++) {
                do {
                    int64_t in[3];
                    if (!looks_at(s, out, k, in)) continue;
                    total += get(p, p->x, n * g->x.n + (first + i) * g->x.c + place(in, g->x.s)) *
                             get(p, p->y, n * g->y.n + o * g->y.c + place(out, g->y.s));
                } while (next(out, s->out));
            }
            put(p, p->w, o * g->w.o + i * g->w.i + place(k, g->w.k), total);
        } while (next(k, s->kernel));
    }
    if (!p->bias_grad) return;
    double total = 0;
    for (int64_t n = 0; n < g->batch && !empty; n++) do
            total += get(p, p->y, n * g->y.n + o * g->y.c + place(out, g->y.s));
        while (next(out, s->out));
    put(p, p->bias_grad, o, total);
}

bool ct__conv_direct_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    switch (p.kind) {
    case CT_CONV_FORWARD: ct__parallel(g->batch * g->out_channels, forward, &p); break;
    case CT_CONV_INPUT_GRAD: ct__parallel(g->batch * g->in_channels, input_grad, &p); break;
    case CT_CONV_WEIGHT_GRAD: ct__parallel(g->out_channels, weight_grad, &p); break;
    }
    return true;
}
