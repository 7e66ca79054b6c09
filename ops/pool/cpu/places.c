/* Kernel of max_pool_places: where tap 0 of the window lies, plus what the winning tap is away from it. */
#include "backends/cpu/kernel.h"
#include "ops/pool/pool.h"

#include "gen/pool.attrs.h"

typedef struct job {
    ct_window w;
    const ct_view *at;
    ct_image_strides at_s, to_s;
    const char *from;
    int64_t *to;
    const int64_t *away; /* (taps) */
    int64_t taps, planes, channels, chunk;
    bool last;
} job;

static int64_t tap_number(const job *j, int64_t place) {
    switch (j->at->dtype) {
    case CT_U8: return ((const uint8_t *)(const void *)j->from)[place];
    case CT_I32: return ((const int32_t *)(const void *)j->from)[place];
    default: return ((const int64_t *)(const void *)j->from)[place];
    }
}

/* A tap beyond the kernel, which max_pool_nd never gives, has no place. */
static int64_t place_of(const job *j, int64_t corner, int64_t tap) {
    return (uint64_t)tap < (uint64_t)j->taps ? corner + j->away[tap] : -1;
}

static void places_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const ct_window *w = &j->w;
    (void)worker;
    const int64_t end = ct__min64((chunk + 1) * j->chunk, j->planes * w->out[0] * w->out[1]);
    for (int64_t row = chunk * j->chunk; row < end; row++) {
        const int64_t o1 = row % w->out[1], o0 = row / w->out[1] % w->out[0], plane = row / (w->out[0] * w->out[1]);
        const int64_t n = j->last ? plane : plane / j->channels, c = j->last ? 0 : plane % j->channels;
        const int64_t from = n * j->at_s.n + c * j->at_s.c + o0 * j->at_s.s[0] + o1 * j->at_s.s[1];
        const int64_t to = n * j->to_s.n + c * j->to_s.c + o0 * j->to_s.s[0] + o1 * j->to_s.s[1];
        const int64_t line =
            ((o0 * w->stride[0] - w->before[0]) * w->in[1] + o1 * w->stride[1] - w->before[1]) * w->in[2];
        for (int64_t o = 0; o < w->out[2]; o++) {
            const int64_t corner = line + o * w->stride[2] - w->before[2];
            for (int64_t i = 0; i < (j->last ? j->channels : 1); i++)
                j->to[to + o * j->to_s.s[2] + i * j->to_s.c] =
                    place_of(j, corner, tap_number(j, from + o * j->at_s.s[2] + i * j->at_s.c));
        }
    }
}

static ct_window window_of(const ct_call *call) {
    const max_pool_places_attrs *a = call->attrs;
    return ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, &a->dilations, a->ceil_mode);
}

static size_t scratch(const ct_call *call) {
    const ct_window w = window_of(call);
    return (size_t)ct__window_taps(&w) * sizeof(int64_t);
}

static bool run(const ct_call *call, ct_stream *stream) {
    const max_pool_places_attrs *a = call->attrs;
    const ct_view *at = call->in[0], *y = call->out[0];
    int64_t *away = ct__scratch(call);
    job j = {.w = window_of(call), .at = at, .to = CT_AT(int64_t, y), .away = away, .last = a->channels_last};
    const ct_window *w = &j.w;
    (void)stream;
    j.from = ct__address(at, ct_dtype_size(at->dtype));
    j.at_s = ct__image_strides(at, j.last);
    j.to_s = ct__image_strides(y, j.last);
    j.taps = ct__window_taps(w);
    j.channels = at->dims[ct__image_channel(at->ndim, j.last)];
    j.planes = j.last ? at->dims[0] : at->dims[0] * j.channels;
    for (int64_t t = 0; t < j.taps; t++) {
        const int64_t c = t % w->kernel[2], b = t / w->kernel[2] % w->kernel[1], d = t / w->kernel[2] / w->kernel[1];
        away[t] = (d * w->dilation[0] * w->in[1] + b * w->dilation[1]) * w->in[2] + c * w->dilation[2];
    }
    const int64_t rows = j.planes * w->out[0] * w->out[1], row = ct__max64(1, w->out[2] * (j.last ? j.channels : 1));
    j.chunk = ct__grain(ct__max64(1, (32 << 10) / row));
    if (rows > 0 && j.channels > 0) ct__parallel((rows + j.chunk - 1) / j.chunk, places_chunk, &j);
    return true;
}

CT_KERNELS(pool_places) = {
    CT_CANDIDATES(max_pool_places, {"max_pool_places_rows", NULL, scratch, run}),
    {0},
};
