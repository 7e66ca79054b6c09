/* The host's side of direct.wgsl. */
#include "ops/conv/webgpu/problem/problem.h"

CT_WGPU_UNIT(conv_direct);

enum { THREADS = 256 };

typedef struct params {
    uint32_t images, groups, channels, results, positions, x_n, x_c, w_r, w_c, w_group, y_n, y_c, r_n, r_c, bias_step;
    uint32_t parts, part, rests, activation, taps;
    uint32_t size[4], source[4], kernel[4], stride[4], before[4], dilation[4], x_s[4], w_k[4], y_s[4], r_s[4];
} params;

bool ct_wgpu_conv_is_thin(const ct_wgpu_conv *p) {
    enum { FEW_RESULTS = 8, FEW_WEIGHTS = 170, FEW_PRODUCTS = 1 << 20 }; /* a tile has 64 by 64 */
    const double pixels = (double)p->out[0] * (double)p->out[1] * (double)p->out[2] * (double)p->batch;
    const double weights = (double)p->groups * (double)p->out_each * (double)p->in_each * (double)p->taps;
    if (pixels * weights <= FEW_PRODUCTS) return true;
    if (p->kind == CT_WGPU_CONV_FORWARD) return p->out_each < FEW_RESULTS;
    if (p->kind == CT_WGPU_CONV_INPUT_GRAD) return p->in_each < FEW_RESULTS;
    return p->out_each * p->in_each * p->taps < FEW_WEIGHTS;
}

static params params_of(const ct_wgpu_conv *c, bool adjoint) {
    const ct_view *bias = c->kind == CT_WGPU_CONV_WEIGHT_GRAD ? c->bias_grad : c->bias;
    params s = {.images = (uint32_t)c->batch,
                .groups = (uint32_t)c->groups,
                .channels = (uint32_t)(adjoint ? c->out_each : c->in_each),
                .results = (uint32_t)(adjoint ? c->in_each : c->out_each),
                .x_n = (uint32_t)(adjoint ? c->y_n : c->x_n),
                .x_c = (uint32_t)(adjoint ? c->y_c : c->x_c),
                .w_r = (uint32_t)(adjoint ? c->w_i : c->w_o),
                .w_c = (uint32_t)(adjoint ? c->w_o : c->w_i),
                .w_group = (uint32_t)(c->out_each * c->w_o),
                .y_n = (uint32_t)(adjoint ? c->x_n : c->y_n),
                .y_c = (uint32_t)(adjoint ? c->x_c : c->y_c),
                .r_n = (uint32_t)c->r_n,
                .r_c = (uint32_t)c->r_c,
                .bias_step = bias ? (uint32_t)bias->strides[0] : 0,
                .activation = (uint32_t)c->activation,
                .taps = (uint32_t)c->taps};
    s.positions = 1;
    for (int d = 0; d < 3; d++) {
        s.size[d] = (uint32_t)(adjoint ? c->in : c->out)[d];
        s.source[d] = (uint32_t)(adjoint ? c->out : c->in)[d];
        s.kernel[d] = (uint32_t)c->kernel[d];
        s.stride[d] = (uint32_t)c->stride[d], s.before[d] = (uint32_t)c->before[d],
        s.dilation[d] = (uint32_t)c->dilation[d];
        s.x_s[d] = (uint32_t)(adjoint ? c->y_s : c->x_s)[d], s.y_s[d] = (uint32_t)(adjoint ? c->x_s : c->y_s)[d];
        s.w_k[d] = (uint32_t)c->w_k[d], s.r_s[d] = (uint32_t)c->r_s[d];
        s.positions *= s.size[d];
    }
    return s;
}

static void set_constants(ct_wgpu_launch *launch, const ct_wgpu_conv *c, bool adjoint) {
    ct_wgpu_constant(launch, "LAST", c->last);
    ct_wgpu_constant(launch, "ADJOINT", adjoint);
    ct_wgpu_constant(launch, "ACTIVATED", c->activation != CT_ACT_NONE);
}

const char *ct_wgpu_conv_direct_can(const ct_call *call) { return ct_wgpu_refuses(call); }

bool ct_wgpu_conv_direct_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    const bool adjoint = c.kind == CT_WGPU_CONV_INPUT_GRAD;
    const params s = params_of(&c, adjoint);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "direct", THREADS);
    launch.words = CT_WGPU_F32;
    ct_wgpu_in(&launch, "x", adjoint ? c.y : c.x);
    ct_wgpu_in(&launch, "w", c.w);
    ct_wgpu_out(&launch, "y", adjoint ? c.x : c.y);
    ct_wgpu_in(&launch, "bias", c.bias);
    ct_wgpu_in(&launch, "residual", c.residual);
    set_constants(&launch, &c, adjoint);
    const int64_t results = ct_wgpu_count(adjoint ? c.x : c.y);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(results, THREADS), &s, sizeof s);
}

/* ---- Weights ---- */

enum { LANES_LAST = 32, LEAST_EACH = 16, WANTED = 2048, MOST_PARTS = 64, MOST_TAPS = 25 };

typedef struct division {
    bool at_once;
    int64_t lanes, rests, groups, parts, part; /* groups: of one part */
} division;

static division division_of(const ct_wgpu_conv *c) {
    const int64_t outs = c->groups * c->out_each, all = c->batch * c->out[0] * c->out[1] * c->out[2];
    division d = {.lanes = c->last ? LANES_LAST : 1};
    d.at_once = c->w && c->in_each == 1 && c->taps <= MOST_TAPS;
    d.rests = (c->w ? c->in_each * c->taps : 0) + (d.at_once || c->bias_grad);
    d.groups = ct_wgpu_ceil_div(outs, d.lanes) * (d.at_once ? 1 : d.rests);
    const int64_t least = LEAST_EACH * (THREADS / d.lanes), most = ct_wgpu_ceil_div(all, least);
    d.parts = d.groups ? WANTED / d.groups : 1;
    if (d.parts > most) d.parts = most;
    if (d.parts > MOST_PARTS) d.parts = MOST_PARTS;
    if (d.parts < 1) d.parts = 1;
    d.part = ct_wgpu_ceil_div(all, d.parts);
    return d;
}

const char *ct_wgpu_conv_direct_weight_can(const ct_call *call) { return ct_wgpu_refuses(call); }

static size_t bytes_of(const ct_wgpu_conv *c, const division *d) {
    return d->parts > 1 ? (size_t)(d->parts * d->rests * c->groups * c->out_each) * 4 : 0;
}

size_t ct_wgpu_conv_direct_weight_scratch(const ct_call *call) {
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    const division d = division_of(&c);
    return bytes_of(&c, &d);
}

bool ct_wgpu_conv_direct_weight_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    const division d = division_of(&c);
    params s = params_of(&c, false);
    s.parts = (uint32_t)d.parts, s.part = (uint32_t)d.part, s.rests = (uint32_t)d.rests;
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, d.at_once ? "weight_all" : "weight", THREADS);
    ct_wgpu_in(&launch, "x", c.x);
    ct_wgpu_in(&launch, "y", c.y);
    ct_wgpu_out(&launch, "w", c.w);
    ct_wgpu_out(&launch, "bias", c.bias_grad);
    if (d.parts > 1) ct_wgpu_scratch(&launch, "parts", call, CT_F32, 0, bytes_of(&c, &d), CT_WGPU_WRITTEN);
    else ct_wgpu_out(&launch, "parts", NULL);
    set_constants(&launch, &c, false);
    ct_wgpu_constant(&launch, "LANES", (uint32_t)d.lanes);
    if (d.at_once) {
        ct_wgpu_constant(&launch, "J0", (uint32_t)c.kernel[0]);
        ct_wgpu_constant(&launch, "J1", (uint32_t)c.kernel[1]);
        ct_wgpu_constant(&launch, "J2", (uint32_t)c.kernel[2]);
    }
    ct_wgpu_constant(&launch, "PARTS", d.parts > 1);
    if (!ct_wgpu_enqueue(call, &launch, d.groups * d.parts, &s, sizeof s)) return false;
    if (d.parts == 1) return true;
    launch.function = "weight_finish";
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(d.rests * c.groups * c.out_each, THREADS), &s, sizeof s);
}
