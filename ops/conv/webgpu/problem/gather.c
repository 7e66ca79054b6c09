/* The host's side of gather.wgsl: forward convolutions as they are, input gradients as one such problem for each phase
 * of the strides. */
#include "ops/conv/webgpu/problem/problem.h"

CT_WGPU_UNIT(conv_gather);
extern const char ct_wgsl_conv_gather_padded[];

enum { MOST_PHASES = 16 };

/* Position q of an axis of the result looks at q * step + offset + j * spacing of the source, for each of `taps` j. */
typedef struct axis {
    int64_t size, source, step, offset, spacing, taps;
    int64_t x_s, w_k, y_s,
        r_s; /* strides in elements by places of the source, taps, positions of the result and of the residual */
} axis;

typedef struct problem {
    const ct_view *x, *w, *y; /* source, weight, result */
    axis axis[3];
    int64_t width; /* of a line; the size of the last axis may be more, so that it can be divided by four */
    bool padded;   /* gather_padded.wgsl does it, with a source of these extents */
    int64_t extent[3];
    int64_t images, channels, results, groups;
    int64_t x_n, x_c, w_base, w_r, w_c, w_group, y_n, y_c, y_base, r_n, r_c;
} problem;

typedef struct params {
    ct_wgpu_tile_head head;
    uint32_t channels, results, images, positions;
    uint32_t x_n, x_c, x_group, w_base, w_r, w_c, w_group, w_step;
    uint32_t y_n, y_c, y_group, y_base, r_n, r_c, r_group, bias_step;
    uint32_t activation, extent[3];
    uint32_t size[4], source[4], step[4], offset[4], spacing[4], x_s[4], w_k[4], y_s[4], r_s[4];
} params;

/* ---- Problems ---- */

static problem forward_of(const ct_wgpu_conv *c) {
    problem p = {.x = c->x,
                 .w = c->w,
                 .y = c->y,
                 .images = c->batch,
                 .channels = c->in_each,
                 .results = c->out_each,
                 .groups = c->groups,
                 .x_n = c->x_n,
                 .x_c = c->x_c,
                 .w_r = c->w_o,
                 .w_c = c->w_i,
                 .w_group = c->out_each * c->w_o,
                 .y_n = c->y_n,
                 .y_c = c->y_c,
                 .r_n = c->r_n,
                 .r_c = c->r_c};
    for (int d = 0; d < 3; d++)
        p.axis[d] = (axis){.size = c->out[d],
                           .source = c->in[d],
                           .step = c->stride[d],
                           .offset = -c->before[d],
                           .spacing = c->dilation[d],
                           .taps = c->kernel[d],
                           .x_s = c->x_s[d],
                           .w_k = c->w_k[d],
                           .y_s = c->y_s[d],
                           .r_s = c->r_s[d]};
    return p;
}

static int64_t common(int64_t a, int64_t b) { return b ? common(b, a % b) : a; }

/* Positions r, r + stride, ... of x: they are seen through every `by`-th tap from the first one on whose window begins
 * at a multiple of the stride. */
static axis phase_of(const ct_wgpu_conv *c, int d, int64_t r, int64_t *w_base) {
    const int64_t stride = c->stride[d], dilation = c->dilation[d], by = stride / common(stride, dilation);
    int64_t first = 0;
    while (first < by && (r + c->before[d] - first * dilation) % stride) first++;
    const int64_t taps = first < by && first < c->kernel[d] ? (c->kernel[d] - 1 - first) / by + 1 : 0;
    *w_base += first * c->w_k[d];
    return (axis){.size = ct_wgpu_ceil_div(c->in[d] - r, stride),
                  .source = c->out[d],
                  .step = 1,
                  .offset = (r + c->before[d] - first * dilation) / stride,
                  .spacing = -by * dilation / stride,
                  .taps = taps,
                  .x_s = c->y_s[d],
                  .w_k = by * c->w_k[d],
                  .y_s = stride * c->x_s[d]};
}

static int64_t phases_of(const ct_wgpu_conv *c) {
    int64_t n = 1;
    for (int d = 0; c->kind == CT_WGPU_CONV_INPUT_GRAD && d < 3 && n <= MOST_PHASES; d++)
        n *= c->stride[d] < c->in[d] ? c->stride[d] : c->in[d];
    return n;
}

static problem input_grad_of(const ct_wgpu_conv *c, int64_t phase) {
    problem p = {.x = c->y,
                 .w = c->w,
                 .y = c->x,
                 .images = c->batch,
                 .channels = c->out_each,
                 .results = c->in_each,
                 .groups = c->groups,
                 .x_n = c->y_n,
                 .x_c = c->y_c,
                 .w_r = c->w_i,
                 .w_c = c->w_o,
                 .w_group = c->out_each * c->w_o,
                 .y_n = c->x_n,
                 .y_c = c->x_c};
    for (int d = 2; d >= 0; d--) {
        const int64_t n = c->stride[d] < c->in[d] ? c->stride[d] : c->in[d], r = n ? phase % n : 0;
        phase = n ? phase / n : 0;
        p.axis[d] = phase_of(c, d, r, &p.w_base);
        p.y_base += r * c->x_s[d];
    }
    return p;
}

/* Where every position looks at one place of the source, the same, axes that lie evenly are one. */
static void join_axes(problem *p, bool residual) {
    for (int d = 0; d < 2; d++) {
        axis *a = &p->axis[d], *b = &p->axis[d + 1];
        const bool plain = a->taps == 1 && b->taps == 1 && a->step == 1 && b->step == 1 && a->offset == 0 &&
                           b->offset == 0 && a->source == a->size && b->source == b->size;
        const bool even = a->size == 1 || (a->x_s == b->x_s * b->size && a->y_s == b->y_s * b->size &&
                                           (!residual || a->r_s == b->r_s * b->size));
        if (!plain || !even) continue;
        b->size *= a->size;
        b->source = b->size;
        *a = (axis){.size = 1, .source = 1, .step = 1, .taps = 1};
    }
}

static int64_t positions_of(const problem *p) { return p->axis[0].size * p->axis[1].size * p->axis[2].size; }
static int64_t taps_of(const problem *p) { return p->axis[0].taps * p->axis[1].taps * p->axis[2].taps; }

/* ---- Padded sources, on drivers that compute on a CPU ---- */

enum { PADDED_THREADS = 64 };

static bool slides(const problem *p) {
    return p->axis[2].step == 1 && (p->axis[2].spacing == 1 || p->axis[2].spacing == -1 || p->axis[2].taps == 1);
}
/* Taps along a line that the arranged weight has: quads of them, where there are more than a quad. */
static int64_t taps_held(const problem *p) {
    const int64_t taps = p->axis[2].taps;
    return slides(p) && taps > 4 ? ct_wgpu_ceil_div(taps, 4) * 4 : taps;
}

static void set_extents(problem *p) {
    for (int d = 0; d < 3; d++) {
        const axis *a = &p->axis[d];
        p->extent[d] = (a->size - 1) * a->step + (a->taps - 1) * (a->spacing < 0 ? -a->spacing : a->spacing) + 1;
    }
    const int64_t loaded = p->axis[2].size + ct_wgpu_ceil_div(p->axis[2].taps, 4) * 4;
    if (slides(p) && p->extent[2] < loaded) p->extent[2] = loaded;
    p->extent[2] = ct_wgpu_ceil_div(p->extent[2], 4) * 4;
}

static int64_t source_quads_of(const problem *p) {
    return p->images * p->groups * p->channels * p->extent[0] * p->extent[1] * (p->extent[2] / 4);
}
static int64_t weight_quads_of(const problem *p) {
    return p->groups * p->channels * p->axis[0].taps * p->axis[1].taps * taps_held(p) *
           ct_wgpu_ceil_div(p->results, 8) * 2;
}
static size_t padded_bytes(const problem *p) { return (size_t)(source_quads_of(p) + weight_quads_of(p)) * 16; }

enum { MOST_BYTES = 64 << 20 };

static problem problem_of(const ct_call *call, const ct_wgpu_conv *c, int64_t phase) {
    problem p = c->kind == CT_WGPU_CONV_FORWARD ? forward_of(c) : input_grad_of(c, phase);
    join_axes(&p, c->residual != NULL);
    p.width = p.axis[2].size;
    if (ct_wgpu_limits_of(call)->software && p.channels * taps_of(&p) > 0 && p.images * positions_of(&p) > 0) {
        p.axis[2].size = ct_wgpu_ceil_div(p.width, 4) * 4;
        set_extents(&p);
        p.padded = padded_bytes(&p) <= MOST_BYTES;
        if (!p.padded) p.axis[2].size = p.width;
    }
    if (!p.padded && !c->last) p.axis[2].size = ct_wgpu_conv_line(p.width);
    return p;
}

static ct_wgpu_tiles tiles_of(const ct_call *call, const problem *p, bool last) {
    const int64_t pixels = p->images * positions_of(p), k = p->channels * taps_of(p);
    if (p->padded)
        return (ct_wgpu_tiles){.head = {.m = (uint32_t)(last ? pixels : p->results),
                                        .n = (uint32_t)(last ? p->results : pixels),
                                        .k = (uint32_t)k,
                                        .batches = (uint32_t)p->groups},
                               .scratch = padded_bytes(p)};
    return last ? ct_wgpu_tiles_of(call, pixels, p->results, k, p->groups)
                : ct_wgpu_tiles_of(call, p->results, pixels, k, p->groups);
}

/* ---- How operands are read ---- */

/* Whether the weight lies at even distances along k, and which. */
static bool is_linear(const problem *p, bool inner, int64_t *step) {
    const int64_t taps[3][2] = {
        {p->axis[2].taps, p->axis[2].w_k}, {p->axis[1].taps, p->axis[1].w_k}, {p->axis[0].taps, p->axis[0].w_k}};
    bool begun = false;
    int64_t walked = 0;
    *step = 1;
    for (int i = 0; i < 4; i++) {
        const bool channels = i == (inner ? 0 : 3);
        const int64_t *tap = taps[channels ? 0 : inner ? i - 1 : i];
        const int64_t size = channels ? p->channels : tap[0], stride = channels ? p->w_c : tap[1];
        if (size == 1) continue;
        if (!begun) *step = stride, walked = size * stride, begun = true;
        else if (stride != walked) return false;
        else walked *= size;
    }
    return true;
}

typedef struct reading {
    bool weight_along_k, row4, source_quads, result_quads;
    uint32_t weights; /* as WEIGHTS in the text */
    int64_t w_step;
} reading;

static bool weight_quads(const problem *p, const reading *r, int64_t k) {
    const int64_t strides[] = {p->w_group, p->w_base, p->w_r, r->w_step};
    if (r->weight_along_k) return r->w_step == 1 && k % 4 == 0 && ct_wgpu_has_quads(p->w, strides, 3);
    const int64_t across[] = {p->w_group, p->w_base, r->w_step};
    return p->w_r == 1 && p->results % 4 == 0 && ct_wgpu_has_quads(p->w, across, 3);
}

static bool image_quads(const ct_view *v, bool last, int64_t n, int64_t c, const int64_t *s, int64_t base) {
    const int64_t strides[] = {n, last ? s[2] : c, s[0], s[1], base};
    return (last ? c : s[2]) == 1 && ct_wgpu_has_quads(v, strides, 5);
}

static reading reading_of(const problem *p, bool last) {
    const axis *line = &p->axis[2];
    const int64_t x_s[] = {p->axis[0].x_s, p->axis[1].x_s, line->x_s},
                  y_s[] = {p->axis[0].y_s, p->axis[1].y_s, line->y_s};
    reading r = {.row4 = line->size % 4 == 0};
    const bool linear = is_linear(p, last, &r.w_step);
    r.weight_along_k = (linear && r.w_step == 1) || p->w_r != 1;
    r.weights = !linear ? 0 : weight_quads(p, &r, p->channels * taps_of(p)) ? 2 : 1;
    if (last) {
        r.source_quads = p->channels % 4 == 0 && image_quads(p->x, last, p->x_n, p->x_c, x_s, 0);
        r.result_quads = p->results % 4 == 0 && image_quads(p->y, last, p->y_n, p->y_c, y_s, p->y_base);
    } else {
        r.source_quads = r.row4 && line->taps == 1 && line->step == 1 && line->offset == 0 &&
                         line->source >= line->size && p->width % 4 == 0 &&
                         image_quads(p->x, last, p->x_n, p->x_c, x_s, 0);
        r.result_quads = p->width % 4 == 0 && image_quads(p->y, last, p->y_n, p->y_c, y_s, p->y_base);
    }
    return r;
}

/* ---- Dispatch ---- */

static params params_of(const ct_wgpu_conv *c, const problem *p, const reading *r, const ct_wgpu_tiles *tiles) {
    params s = {.head = tiles->head,
                .channels = (uint32_t)p->channels,
                .results = (uint32_t)p->results,
                .images = (uint32_t)p->images,
                .positions = (uint32_t)positions_of(p),
                .x_n = (uint32_t)p->x_n,
                .x_c = (uint32_t)p->x_c,
                .x_group = (uint32_t)(p->channels * p->x_c),
                .w_base = (uint32_t)p->w_base,
                .w_r = (uint32_t)p->w_r,
                .w_c = (uint32_t)p->w_c,
                .w_group = (uint32_t)p->w_group,
                .w_step = (uint32_t)r->w_step,
                .y_n = (uint32_t)p->y_n,
                .y_c = (uint32_t)p->y_c,
                .y_group = (uint32_t)(p->results * p->y_c),
                .y_base = (uint32_t)p->y_base,
                .r_n = (uint32_t)p->r_n,
                .r_c = (uint32_t)p->r_c,
                .r_group = (uint32_t)(p->results * p->r_c),
                .bias_step = c->bias ? (uint32_t)c->bias->strides[0] : 0,
                .activation = (uint32_t)c->activation};
    for (int d = 0; d < 3; d++) {
        const axis *a = &p->axis[d];
        s.size[d] = (uint32_t)a->size, s.source[d] = (uint32_t)a->source, s.step[d] = (uint32_t)a->step;
        s.offset[d] = (uint32_t)a->offset, s.spacing[d] = (uint32_t)a->spacing;
        s.x_s[d] = (uint32_t)a->x_s, s.w_k[d] = (uint32_t)a->w_k, s.y_s[d] = (uint32_t)a->y_s,
        s.r_s[d] = (uint32_t)a->r_s;
    }
    s.size[3] = (uint32_t)p->width;
    for (int d = 0; d < 3; d++) s.extent[d] = (uint32_t)p->extent[d];
    return s;
}

static void add_taps(ct_wgpu_launch *launch, const problem *p) {
    static const char *const names[] = {"J0", "J1", "J2"};
    for (int d = 0; d < 3; d++) ct_wgpu_constant(launch, names[d], p->axis[d].taps > 0 ? (uint32_t)p->axis[d].taps : 1);
}

/* The preparing dispatches read x or w and write `to`, both in the call's scratch. */
static bool prepare(const ct_call *call, const problem *p, const params *s, const char *function, const ct_view *from,
                    size_t offset, int64_t quads) {
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, function, PADDED_THREADS);
    launch.more = ct_wgsl_conv_gather_padded;
    ct_wgpu_in(&launch, from == p->x ? "x" : "w", from);
    ct_wgpu_scratch(&launch, "to", call, CT_F32, offset, (size_t)quads * 16, CT_WGPU_TILE_WRITE_QUADS);
    add_taps(&launch, p);
    ct_wgpu_constant(&launch, "TAPS_HELD", (uint32_t)taps_held(p));
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(quads, PADDED_THREADS), s, sizeof *s);
}

static void add_results(ct_wgpu_launch *launch, const ct_wgpu_conv *c, const problem *p, const reading *r) {
    ct_wgpu_operand_of(launch, "y", p->y, r->result_quads ? CT_WGPU_TILE_WRITE_QUADS : CT_WGPU_TILE_WRITE);
    ct_wgpu_operand_of(launch, "bias", c->bias, CT_WGPU_TILE_READ);
    ct_wgpu_operand_of(launch, "residual", c->residual, CT_WGPU_TILE_READ);
    add_taps(launch, p);
    ct_wgpu_constant(launch, "LAST", c->last);
    ct_wgpu_constant(launch, "ROW4", r->row4);
    ct_wgpu_constant(launch, "RESULT_QUADS", r->result_quads);
    ct_wgpu_constant(launch, "ACTIVATED", c->activation != CT_ACT_NONE);
}

static bool run_padded(const ct_call *call, const ct_wgpu_conv *c, const problem *p, const reading *r,
                       const params *s) {
    const int64_t source = source_quads_of(p), weight = weight_quads_of(p);
    const int64_t blocks = ct_wgpu_ceil_div(p->results, 8) * ct_wgpu_ceil_div(p->images * positions_of(p), 8);
    if (!prepare(call, p, s, "pad", p->x, 0, source)) return false;
    if (!prepare(call, p, s, "arrange", p->w, (size_t)source * 16, weight)) return false;
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "multiply_padded", PADDED_THREADS);
    launch.words = CT_WGPU_F32;
    launch.more = ct_wgsl_conv_gather_padded;
    ct_wgpu_scratch(&launch, "x", call, CT_F32, 0, (size_t)source * 16, CT_WGPU_TILE_READ);
    ct_wgpu_scratch(&launch, "w", call, CT_F32, (size_t)source * 16, (size_t)weight * 16, CT_WGPU_TILE_READ);
    add_results(&launch, c, p, r);
    ct_wgpu_constant(&launch, "SLIDES", slides(p));
    ct_wgpu_constant(&launch, "TAPS_HELD", (uint32_t)taps_held(p));
    ct_wgpu_constant(&launch, "ROW_QUADS", 2);
    ct_wgpu_constant(&launch, "COLUMN_QUADS", 2);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_ceil_div(blocks * p->groups, PADDED_THREADS), s, sizeof *s);
}

static bool run_one(const ct_call *call, const ct_wgpu_conv *c, const problem *p) {
    const ct_wgpu_tiles tiles = tiles_of(call, p, c->last);
    const reading r = reading_of(p, c->last);
    const params s = params_of(c, p, &r, &tiles);
    if (p->padded) return run_padded(call, c, p, &r, &s);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, NULL, CT_WGPU_TILE_THREADS);
    ct_wgpu_operand_of(&launch, "x", p->x, CT_WGPU_TILE_READ);
    ct_wgpu_operand_of(&launch, "w", p->w, CT_WGPU_TILE_READ);
    add_results(&launch, c, p, &r);
    ct_wgpu_constant(&launch, "INNER", c->last);
    ct_wgpu_constant(&launch, "WEIGHTS", r.weights);
    ct_wgpu_constant(&launch, "SOURCE_QUADS", r.source_quads);
    return ct_wgpu_tiles_run(call, &launch, &tiles, 2, c->last || r.weight_along_k, c->last && r.weight_along_k, &s,
                             sizeof s, CT_F32, 0);
}

/* ---- For weight gradients ---- */

static problem source_of(const ct_wgpu_conv *c) {
    problem p = forward_of(c);
    p.width = p.axis[2].size;
    p.axis[2].size = ct_wgpu_ceil_div(p.width, 4) * 4;
    set_extents(&p);
    return p;
}

ct_wgpu_conv_padding ct_wgpu_conv_padding_of(const ct_call *call, const ct_wgpu_conv *c) {
    const problem p = source_of(c);
    const bool any = ct_wgpu_limits_of(call)->software && taps_of(&p) > 0 && positions_of(&p) > 0;
    const int64_t quads = any ? source_quads_of(&p) : 0;
    return (ct_wgpu_conv_padding){.quads = quads * 16 <= MOST_BYTES ? quads : 0,
                                  .line = p.axis[2].size,
                                  .extent = {p.extent[0], p.extent[1], p.extent[2]}};
}

bool ct_wgpu_conv_pad(const ct_call *call, const ct_wgpu_conv *c, size_t offset) {
    const problem p = source_of(c);
    const params s = params_of(c, &p, &(reading){0}, &(ct_wgpu_tiles){.head = {.batches = (uint32_t)p.groups}});
    return prepare(call, &p, &s, "pad", p.x, offset, source_quads_of(&p));
}

/* ---- The candidate ---- */

const char *ct_wgpu_conv_gather_can(const ct_call *call) {
    const char *reason = ct_wgpu_refuses(call);
    if (reason) return reason;
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    if (ct_wgpu_conv_is_thin(&c)) return "it has few channels";
    return phases_of(&c) <= MOST_PHASES ? NULL : "its strides have many phases";
}

size_t ct_wgpu_conv_gather_scratch(const ct_call *call) {
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    size_t most = 0;
    for (int64_t i = 0; i < phases_of(&c); i++) {
        const problem p = problem_of(call, &c, i);
        const size_t bytes = tiles_of(call, &p, c.last).scratch;
        if (bytes > most) most = bytes;
    }
    return most;
}

bool ct_wgpu_conv_gather_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    bool ok = true;
    for (int64_t i = 0; ok && i < phases_of(&c); i++) {
        const problem p = problem_of(call, &c, i);
        ok = run_one(call, &c, &p);
    }
    return ok;
}
