/* The host's side of weight.wgsl. */
#include "ops/conv/webgpu/problem/problem.h"

CT_WGPU_UNIT(conv_weight);

typedef struct params {
    ct_wgpu_tile_head head;
    uint32_t columns, channels, positions, bias_step;
    uint32_t x_n, x_c, x_group, pad, g_n, g_c, g_group, w_c, w_o, w_group, pad_a, pad_b;
    uint32_t size[4], source[4], step[4], offset[4], spacing[4], x_s[4], g_s[4], w_k[4];
} params;

static int64_t line_of(const ct_wgpu_conv *c) { return c->last ? c->out[2] : ct_wgpu_conv_line(c->out[2]); }
static int64_t positions_of(const ct_wgpu_conv *c) { return c->out[0] * c->out[1] * line_of(c); }
static int64_t columns_of(const ct_wgpu_conv *c) { return c->w ? c->in_each * c->taps : 0; }

static ct_wgpu_tiles tiles_of(const ct_call *call, const ct_wgpu_conv *c) {
    return ct_wgpu_tiles_of(call, c->out_each, columns_of(c) + (c->bias_grad != NULL), c->batch * positions_of(c),
                            c->groups);
}

static bool image_quads(const ct_view *v, bool last, int64_t n, int64_t c, const int64_t *s) {
    const int64_t strides[] = {n, last ? s[2] : c, s[0], s[1]};
    return (last ? c : s[2]) == 1 && ct_wgpu_has_quads(v, strides, 4);
}

const char *ct_wgpu_conv_weight_can(const ct_call *call) {
    const char *reason = ct_wgpu_refuses(call);
    if (reason) return reason;
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    return ct_wgpu_conv_is_thin(&c) ? "it has few channels" : NULL;
}

size_t ct_wgpu_conv_weight_scratch(const ct_call *call) {
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    return tiles_of(call, &c).scratch;
}

bool ct_wgpu_conv_weight_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    const ct_wgpu_tiles tiles = tiles_of(call, &c);
    params s = {.head = tiles.head,
                .columns = (uint32_t)columns_of(&c),
                .channels = (uint32_t)c.in_each,
                .positions = (uint32_t)positions_of(&c),
                .bias_step = c.bias_grad ? (uint32_t)c.bias_grad->strides[0] : 0,
                .x_n = (uint32_t)c.x_n,
                .x_c = (uint32_t)c.x_c,
                .x_group = (uint32_t)(c.in_each * c.x_c),
                .g_n = (uint32_t)c.y_n,
                .g_c = (uint32_t)c.y_c,
                .g_group = (uint32_t)(c.out_each * c.y_c),
                .w_c = (uint32_t)c.w_i,
                .w_o = (uint32_t)c.w_o,
                .w_group = (uint32_t)(c.out_each * c.w_o)};
    for (int d = 0; d < 3; d++) {
        s.size[d] = (uint32_t)c.out[d], s.source[d] = (uint32_t)c.in[d], s.step[d] = (uint32_t)c.stride[d];
        s.offset[d] = (uint32_t)-c.before[d], s.spacing[d] = (uint32_t)c.dilation[d];
        s.x_s[d] = (uint32_t)c.x_s[d], s.g_s[d] = (uint32_t)c.y_s[d], s.w_k[d] = (uint32_t)c.w_k[d];
    }
    s.size[2] = (uint32_t)line_of(&c), s.size[3] = (uint32_t)c.out[2];
    const bool row4 = line_of(&c) % 4 == 0, whole = c.out[2] % 4 == 0;
    const bool plain_line = whole && c.kernel[2] == 1 && c.stride[2] == 1 && c.before[2] == 0 && c.in[2] >= c.out[2];
    const bool g_quads = (c.last ? c.out_each % 4 == 0 : whole) && image_quads(c.y, c.last, c.y_n, c.y_c, c.y_s);
    const bool x_quads = (c.last ? c.in_each % 4 == 0 : plain_line) && image_quads(c.x, c.last, c.x_n, c.x_c, c.x_s);

    ct_wgpu_launch launch = ct_wgpu_begin(&unit, NULL, CT_WGPU_TILE_THREADS);
    ct_wgpu_operand_of(&launch, "x", c.x, CT_WGPU_TILE_READ);
    ct_wgpu_operand_of(&launch, "g", c.y, CT_WGPU_TILE_READ);
    ct_wgpu_operand_of(&launch, "w", c.w, CT_WGPU_WRITTEN);
    ct_wgpu_operand_of(&launch, "bias", c.bias_grad, CT_WGPU_WRITTEN);
    for (int d = 0; d < 3; d++) {
        static const char *const names[] = {"J0", "J1", "J2"};
        ct_wgpu_constant(&launch, names[d], c.kernel[d] > 0 ? (uint32_t)c.kernel[d] : 1);
    }
    ct_wgpu_constant(&launch, "LAST", c.last);
    ct_wgpu_constant(&launch, "ROW4", row4);
    ct_wgpu_constant(&launch, "G_QUADS", g_quads);
    ct_wgpu_constant(&launch, "X_QUADS", x_quads);
    return ct_wgpu_tiles_run(call, &launch, &tiles, 2, !c.last, !c.last, &s, sizeof s, CT_F32, 0);
}
