/* Convolution of so few numbers that the other candidates take longer to begin than this one to end: plain loops in f32, on the
 * thread of the caller, without tables, copies or scratch. Sums are in f64, in the order of the loops. */
#include "backends/cpu/cpu.h"
#include "ops/conv/cpu/kernels.h"

/* Products above which another candidate is faster: the implicit product, or what takes one channel or one tap, which begins sooner. */
enum { MOST_IMPLICIT = 512, MOST_SPECIAL = 128 };

const char *ct__conv_small_can(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    const ct_window *s = &g->window;
    if (p.dtype != CT_F32) return "not f32";
    const int64_t channels = g->in_channels / g->groups, taps = ct__window_taps(s),
                  sums = ct__mul(ct__mul(g->batch, g->out_channels), ct__window_pixels_out(s)),
                  most = channels > 1 && taps > 1 ? MOST_IMPLICIT : MOST_SPECIAL,
                  products = ct__mul(sums, ct__mul(channels, taps));
    if (products == 0) return "there is nothing to multiply";
    return products > most ? "too many products" : NULL;
}

/* Whether no tap of any window lies beside x. */
static bool is_whole(const ct_window *s) {
    bool whole = true;
    for (int a = 0; a < 3; a++)
        whole &= s->before[a] <= 0 &&
                 (s->out[a] - 1) * s->stride[a] + (s->kernel[a] - 1) * s->dilation[a] - s->before[a] < s->in[a];
    return whole;
}

/* The sum over the `channels` of a group, and over those taps of a window that lie inside x: at is where its tap (0, 0, 0) looks. */
static inline __attribute__((always_inline)) double window_sum(const ct_conv_geometry *g, int64_t channels,
                                                               const float *x, const float *w, const int64_t *at,
                                                               const bool whole) {
    const ct_window *s = &g->window;
    double total = 0;
    for (int64_t c = 0; c < channels; c++, x += g->x.c, w += g->w.i)
        for (int64_t i = 0; i < s->kernel[0]; i++) {
            const int64_t slice = at[0] + i * s->dilation[0];
            if (!whole && (slice < 0 || slice >= s->in[0])) continue;
            for (int64_t j = 0; j < s->kernel[1]; j++) {
                const int64_t row = at[1] + j * s->dilation[1];
                if (!whole && (row < 0 || row >= s->in[1])) continue;
                const float *line = x + slice * g->x.s[0] + row * g->x.s[1];
                const float *taps = w + i * g->w.k[0] + j * g->w.k[1];
                for (int64_t k = 0; k < s->kernel[2]; k++) {
                    const int64_t column = at[2] + k * s->dilation[2];
                    if (!whole && (column < 0 || column >= s->in[2])) continue;
                    total += (double)line[column * g->x.s[2]] * (double)taps[k * g->w.k[2]];
                }
            }
        }
    return total;
}

/* y[n][o][...]: one output channel of one image. */
static inline __attribute__((always_inline)) void plane(const ct_conv_geometry *g, const float *x, const float *w,
                                                        float *y, double start, const bool whole) {
    const ct_window *s = &g->window;
    const int64_t channels = g->in_channels / g->groups;
    int64_t at[3];
    for (int64_t i = 0; i < s->out[0]; i++) {
        at[0] = i * s->stride[0] - s->before[0];
        for (int64_t j = 0; j < s->out[1]; j++) {
            at[1] = j * s->stride[1] - s->before[1];
            float *line = y + i * g->y.s[0] + j * g->y.s[1];
            for (int64_t k = 0; k < s->out[2]; k++) {
                at[2] = k * s->stride[2] - s->before[2];
                line[k * g->y.s[2]] = (float)(start + window_sum(g, channels, x, w, at, whole));
            }
        }
    }
}

bool ct__conv_small_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    const int64_t outs = g->out_channels / g->groups, ins = g->in_channels / g->groups;
    const float *x = p.x, *w = p.w, *bias = p.bias;
    float *y = p.y;
    const bool whole = is_whole(&g->window);
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t group = 0; group < g->groups; group++)
            for (int64_t o = group * outs; o < (group + 1) * outs; o++) {
                const float *from = x + n * g->x.n + group * ins * g->x.c, *taps = w + o * g->w.o;
                float *to = y + n * g->y.n + o * g->y.c;
                const double start = bias ? (double)bias[o * p.bias_stride] : 0;
                if (whole) plane(g, from, taps, to, start, true);
                else plane(g, from, taps, to, start, false);
            }
    return true;
}
