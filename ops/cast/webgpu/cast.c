/* Conversion between dtypes: the host side. Elements go to the device as bits, integers of their size; to its own dtype it is a copy. */
#include "backends/webgpu/strided.h"

#include "gen/cast.attrs.h"

_Static_assert(CT_F32 == 0 && CT_F16 == 2 && CT_BF16 == 3 && CT_I8 == 4 && CT_BOOL == 9 && CT_U16 == 10 &&
                   CT_U64 == 12 && CT_F8E4M3 == 13 && CT_F8E5M2 == 14 && CT_COMPLEX64 == 15,
               "backends/webgpu/lib/convert.wgsl has the same numbers");

enum { THREADS = 256, QUAD = CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY };

/* How elements are read and written: x or y of a word and less, or of two. */
#define GET      "fn read_one(i: u32) -> vec2<u32> { return vec2<u32>(u32(x_load(i)), 0u); }\n"
#define GET_WIDE "fn read_one(i: u32) -> vec2<u32> { return x_load(i); }\n"
#define FOUR                                                                                                     \
    "fn read_four(i: u32) -> array<vec2<u32>, 4> {\n"                                                            \
    "    let v = vec4<u32>(x_load4(i));\n"                                                                       \
    "    return array<vec2<u32>, 4>(vec2<u32>(v.x, 0u), vec2<u32>(v.y, 0u), vec2<u32>(v.z, 0u), vec2<u32>(v.w, " \
    "0u));\n"                                                                                                    \
    "}\n"
#define FOUR_WIDE                                                                                      \
    "fn read_four(i: u32) -> array<vec2<u32>, 4> {\n"                                                  \
    "    let last = p.total - 1u;\n"                                                                   \
    "    return array<vec2<u32>, 4>(x_load(i), x_load(min(i + 1u, last)), x_load(min(i + 2u, last)), " \
    "x_load(min(i + 3u, last)));\n"                                                                    \
    "}\n"
#define PUT      "fn write_one(i: u32, v: vec2<u32>) { y_store(i, i32(v.x)); }\n"
#define PUT_WIDE "fn write_one(i: u32, v: vec2<u32>) { y_store(i, v); }\n"
#define PUT_FOUR                                                                      \
    "fn write_four(i: u32, v: array<vec2<u32>, 4>) {\n"                               \
    "    let four = vec4<y_t>(i32(v[0].x), i32(v[1].x), i32(v[2].x), i32(v[3].x));\n" \
    "    ct_store_results(i, four);\n"                                                \
    "}\n"
#define PUT_FOUR_WIDE                                                                            \
    "fn write_four(i: u32, v: array<vec2<u32>, 4>) {\n"                                          \
    "    for (var k = 0u; k < min(p.total - i, 4u); k++) { var w = v; y_store(i + k, w[k]); }\n" \
    "}\n"

static const char *const fours[2][2] = {{GET FOUR PUT_FOUR, GET FOUR PUT_FOUR_WIDE},
                                        {GET_WIDE FOUR_WIDE PUT_FOUR, GET_WIDE FOUR_WIDE PUT_FOUR_WIDE}};
static const char *const ones[2][2] = {{GET PUT, GET PUT_WIDE}, {GET_WIDE PUT, GET_WIDE PUT_WIDE}};

static ct_view bits_of(const ct_view *view) {
    static const uint8_t by_size[] = {[1] = CT_U8, [2] = CT_U16, [4] = CT_I32, [8] = CT_I64};
    ct_view bits = *view;
    bits.dtype = (ct_dtype)by_size[ct_wgpu_dtype_size(view->dtype)];
    return bits;
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    extern const char ct_wgsl_cast_four[], ct_wgsl_cast_one[];
    static const ct_wgpu_unit four = {"cast_four", ct_wgsl_cast_four}, one = {"cast_one", ct_wgsl_cast_one};
    if (call->in[0]->dtype == call->out[0]->dtype) return ct_wgpu_copy_view(call, call->out[0], call->in[0]);
    const ct_view x = bits_of(call->in[0]), y = bits_of(call->out[0]);
    const bool quads = ct_wgpu_is_dense(&y) && ct_wgpu_fits(&y, 4);
    const bool x_wide = x.dtype == CT_I64, y_wide = y.dtype == CT_I64;
    ct_wgpu_nest nest;
    ct_wgpu_nest_of(&nest, (const ct_view *const[]){&y, &x}, 2);
    if (ct_wgpu_count(&y) == 0) return true;
    nest.pad[0] = ct_wgpu_is_dense(&x) && (x_wide || ct_wgpu_fits(&x, 4));
    ct_wgpu_launch l = ct_wgpu_begin(quads ? &four : &one, quads ? "four" : "one", THREADS);
    l.more = quads ? fours[x_wide][y_wide] : ones[x_wide][y_wide];
    ct_wgpu_operand_of(&l, "y", &y, (quads && !y_wide ? QUAD : 0) | CT_WGPU_WRITTEN);
    ct_wgpu_operand_of(&l, "x", &x, quads ? QUAD : 0);
    for (int i = 0; i < l.n && quads; i++)
        l.operands[i].high = (l.operands[i].high + 15) & ~(uint64_t)15; /* storages are padded */
    ct_wgpu_constant(&l, "FROM", call->in[0]->dtype);
    ct_wgpu_constant(&l, "TO", call->out[0]->dtype);
    const int64_t items = quads ? ct_wgpu_ceil_div(nest.total, 4) : nest.total;
    return ct_wgpu_enqueue(call, &l, ct_wgpu_groups(items, THREADS), &nest, sizeof nest);
}

/* To its own dtype the lowering hands x on; half types it would run in f32, so a copy is cheaper there. */
static const char *can_cast(const ct_call *call) {
    const ct_dtype from = call->in[0]->dtype;
    if (from == call->out[0]->dtype && from != CT_F16 && from != CT_BF16) return "x has the dtype already";
    return ct_wgpu_refuses(call);
}

CT_WGPU_KERNELS(cast_cast) = {
    CT_CANDIDATES(cast, {"convert", can_cast, NULL, run}),
    CT_CANDIDATES(convert, {"convert", ct_wgpu_refuses, NULL, run}),
    {0},
};
