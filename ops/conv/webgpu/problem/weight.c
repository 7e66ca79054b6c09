/* The host's side of weight.wgsl. */
#include "ops/conv/webgpu/problem/problem.h"

CT_WGPU_UNIT(conv_weight);
extern const char ct_wgsl_conv_weight_padded[];

typedef struct params {
    ct_wgpu_tile_head head;
    uint32_t columns, channels, positions, bias_step;
    uint32_t x_n, x_c, x_group, extent_x, g_n, g_c, g_group, w_c, w_o, w_group, extent_y, extent_z;
    uint32_t size[4], source[4], step[4], offset[4], spacing[4], x_s[4], g_s[4], w_k[4];
} params;

/* How it is done: from a padded source (weight_padded.wgsl), or not. */
typedef struct plan {
    ct_wgpu_conv_padding padding;
    bool padded;
    int64_t line, positions;
    ct_wgpu_tiles tiles;
} plan;
static int64_t columns_of(const ct_wgpu_conv *c) { return c->w ? c->in_each * c->taps : 0; }

/* Blocks of 8 by 8 for each invocation, and the sum in parts where those are few. */
static ct_wgpu_tiles padded_tiles(int64_t m, int64_t n, int64_t k, int64_t groups) {
    enum { TILE = 64, WANTED = 8, LEAST_QUADS = 64 };
    static const ct_wgpu_tile_text own = {ct_wgsl_conv_weight_padded, "multiply_padded", 64};
    const int64_t tiles_m = ct_wgpu_ceil_div(m, TILE), tiles_n = ct_wgpu_ceil_div(n, TILE), quads = k / 4;
    int64_t parts = WANTED / (tiles_m * tiles_n * groups);
    if (parts > quads / LEAST_QUADS) parts = quads / LEAST_QUADS;
    if (parts < 1) parts = 1;
    const int64_t part = ct_wgpu_ceil_div(quads, parts);
    parts = ct_wgpu_ceil_div(quads, part);
    return (ct_wgpu_tiles){.head = {.m = (uint32_t)m,
                                    .n = (uint32_t)n,
                                    .k = (uint32_t)k,
                                    .part = (uint32_t)part,
                                    .tiles_m = (uint32_t)tiles_m,
                                    .tiles_n = (uint32_t)tiles_n,
                                    .batches = (uint32_t)groups,
                                    .parts = (uint32_t)parts},
                           .own = &own,
                           .row_quads = 2,
                           .column_quads = 2,
                           .scratch = parts > 1 ? (size_t)(parts * groups * m * ((n + 3) / 4 * 4)) * 4 : 0};
}

static plan plan_of(const ct_call *call, const ct_wgpu_conv *c) {
    plan p = {.padding = ct_wgpu_conv_padding_of(call, c)};
    p.padded = c->w && p.padding.quads > 0;
    p.line = p.padded ? p.padding.line : c->last ? c->out[2] : ct_wgpu_conv_line(c->out[2]);
    p.positions = c->out[0] * c->out[1] * p.line;
    const int64_t m = c->out_each, n = columns_of(c) + (c->bias_grad != NULL), k = c->batch * p.positions;
    p.tiles = p.padded ? padded_tiles(m, n, k, c->groups) : ct_wgpu_tiles_of(call, m, n, k, c->groups);
    return p;
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
    const plan p = plan_of(call, &c);
    return p.tiles.scratch + (p.padded ? (size_t)p.padding.quads * 16 : 0);
}

bool ct_wgpu_conv_weight_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_conv c = ct_wgpu_conv_of(call);
    const plan p = plan_of(call, &c);
    params s = {.head = p.tiles.head,
                .columns = (uint32_t)columns_of(&c),
                .channels = (uint32_t)c.in_each,
                .positions = (uint32_t)p.positions,
                .bias_step = c.bias_grad ? (uint32_t)c.bias_grad->strides[0] : 0,
                .x_n = (uint32_t)c.x_n,
                .x_c = (uint32_t)c.x_c,
                .x_group = (uint32_t)(c.in_each * c.x_c),
                .g_n = (uint32_t)c.y_n,
                .g_c = (uint32_t)c.y_c,
                .g_group = (uint32_t)(c.out_each * c.y_c),
                .w_c = (uint32_t)c.w_i,
                .w_o = (uint32_t)c.w_o,
                .w_group = (uint32_t)(c.out_each * c.w_o),
                .extent_x = (uint32_t)p.padding.extent[0],
                .extent_y = (uint32_t)p.padding.extent[1],
                .extent_z = (uint32_t)p.padding.extent[2]};
    for (int d = 0; d < 3; d++) {
        s.size[d] = (uint32_t)c.out[d], s.source[d] = (uint32_t)c.in[d], s.step[d] = (uint32_t)c.stride[d];
        s.offset[d] = (uint32_t)-c.before[d], s.spacing[d] = (uint32_t)c.dilation[d];
        s.x_s[d] = (uint32_t)c.x_s[d], s.g_s[d] = (uint32_t)c.y_s[d], s.w_k[d] = (uint32_t)c.w_k[d];
    }
    s.size[2] = (uint32_t)p.line, s.size[3] = (uint32_t)c.out[2];
    const bool row4 = p.line % 4 == 0, whole = c.out[2] % 4 == 0;
    const bool plain_line = whole && c.kernel[2] == 1 && c.stride[2] == 1 && c.before[2] == 0 && c.in[2] >= c.out[2];
    const bool g_quads =
        (c.last ? c.out_each % 4 == 0 && !p.padded : whole) && image_quads(c.y, c.last, c.y_n, c.y_c, c.y_s);
    const bool x_quads = (c.last ? c.in_each % 4 == 0 : plain_line) && image_quads(c.x, c.last, c.x_n, c.x_c, c.x_s);

    ct_wgpu_launch launch = ct_wgpu_begin(&unit, NULL, CT_WGPU_TILE_THREADS);
    if (p.padded) {
        if (!ct_wgpu_conv_pad(call, &c, p.tiles.scratch)) return false;
        ct_wgpu_scratch(&launch, "x", call, CT_F32, p.tiles.scratch, (size_t)p.padding.quads * 16, CT_WGPU_TILE_READ);
    } else {
        ct_wgpu_operand_of(&launch, "x", c.x, CT_WGPU_TILE_READ);
    }
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
    return ct_wgpu_tiles_run(call, &launch, &p.tiles, 2, !c.last, !c.last, &s, sizeof s, CT_F32, 0);
}
