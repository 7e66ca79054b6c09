/* Conversion between dtypes: the host side. Elements go to the device as bits, integers of their size; to its own dtype it is a copy. */
#include <stdio.h>
#include <stdlib.h>

#include "backends/webgpu/strided.h"
#include "ops/cast/webgpu/cast.h"

#include "gen/cast.attrs.h"

enum { THREADS = 256, LONG = 1 << 20, QUAD = CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY };

/* How elements are read and written: x or y of a word and less, or of two. */
static const char *const reads[2] = {
    "fn read_one(i: u32) -> vec2<u32> { return vec2<u32>(u32(x_load(i)), 0u); }\n"
    "fn read_low(i: u32) -> vec4<u32> { return vec4<u32>(x_load4(i)); }\n"
    "fn read_high(i: u32) -> vec4<u32> { return vec4<u32>(); }\n",
    "fn read_one(i: u32) -> vec2<u32> { return x_load(i); }\n"
    "fn read_low(i: u32) -> vec4<u32> {\n"
    "    return vec4<u32>(read_one(i).x, read_one(i + 1u).x, read_one(i + 2u).x, read_one(i + 3u).x);\n"
    "}\n"
    "fn read_high(i: u32) -> vec4<u32> {\n"
    "    return vec4<u32>(read_one(i).y, read_one(i + 1u).y, read_one(i + 2u).y, read_one(i + 3u).y);\n"
    "}\n",
};
static const char *const writes[2] = {
    "fn write_one(i: u32, v: vec2<u32>) { y_store(i, i32(v.x)); }\n"
    "fn write_four(i: u32, low: vec4<u32>, high: vec4<u32>) { ct_store_results(i, vec4<i32>(low)); }\n",
    "fn write_one(i: u32, v: vec2<u32>) { y_store(i, v); }\n"
    "fn write_four(i: u32, low: vec4<u32>, high: vec4<u32>) {\n"
    "    for (var k = 0u; k < min(p.total - i, 4u); k++) { y_store(i + k, vec2<u32>(low[k], high[k])); }\n"
    "}\n",
};

static const char *const names[CT_DTYPE_COUNT] = {
    [CT_F32] = "f32", [CT_F16] = "f16", [CT_BF16] = "bf16",     [CT_I8] = "i8",         [CT_I16] = "i16",
    [CT_I32] = "i32", [CT_I64] = "i64", [CT_U8] = "u8",         [CT_BOOL] = "bool",     [CT_U16] = "u16",
    [CT_U32] = "u32", [CT_U64] = "u64", [CT_F8E4M3] = "f8e4m3", [CT_F8E5M2] = "f8e5m2", [CT_COMPLEX64] = "complex64",
};

static bool is_float(ct_dtype dtype) {
    return dtype <= CT_BF16 || dtype == CT_F8E4M3 || dtype == CT_F8E5M2 || dtype == CT_COMPLEX64;
}

/* complex64 is true where either part is not zero; all else follows from the real part. */
void ct_wgpu_put_conversion(char *text, size_t room, ct_dtype from, ct_dtype to, const char *bits, const char *real) {
    char number[96];
    if (real) snprintf(number, sizeof number, "%s", real);
    else snprintf(number, sizeof number, "ct_real_of_%s(%s)", names[from], bits);
    if (from == CT_COMPLEX64 && to == CT_BOOL)
        snprintf(text, room, "vec2<u32>(select(0u, 1u, ((%s.x | %s.y) & 0x7fffffffu) != 0u), 0u)", bits, bits);
    else if (is_float(from)) snprintf(text, room, "ct_real_to_%s(%s)", names[to], number);
    else if (is_float(to))
        snprintf(text, room, "ct_real_to_%s(%s(ct_whole_of_%s(%s)))", names[to],
                 from == CT_U64 ? "ct_u64_to_f32" : "ct_i64_to_f32", names[from], bits);
    else
        snprintf(text, room, "ct_whole_to_%s(ct_whole_of_%s(%s))", to == CT_BOOL ? "bool" : "integer", names[from],
                 bits);
}

/* The text that a pair of dtypes adds, made at its first use: it is known by its address. */
static const char *text_of(ct_dtype from, ct_dtype to, bool x_wide, bool y_wide) {
    static _Atomic(char *) texts[CT_DTYPE_COUNT][CT_DTYPE_COUNT];
    char *text = atomic_load(&texts[from][to]), *made, conversion[128];
    if (text) return text;
    const size_t room = strlen(reads[x_wide]) + strlen(writes[y_wide]) + 256;
    made = malloc(room);
    if (!made) return NULL;
    ct_wgpu_put_conversion(conversion, sizeof conversion, from, to, "v", NULL);
    snprintf(made, room, "fn convert(v: vec2<u32>) -> vec2<u32> { return %s; }\n%s%s", conversion, reads[x_wide],
             writes[y_wide]);
    if (atomic_compare_exchange_strong(&texts[from][to], &text, made)) return made;
    free(made); /* another thread was first */
    return text;
}

static ct_view bits_of(const ct_view *view) {
    static const uint8_t by_size[] = {[1] = CT_U8, [2] = CT_U16, [4] = CT_I32, [8] = CT_I64};
    ct_view bits = *view;
    bits.dtype = (ct_dtype)by_size[ct_wgpu_dtype_size(view->dtype)];
    return bits;
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    CT_WGPU_UNIT(cast_cast);
    if (call->in[0]->dtype == call->out[0]->dtype) return ct_wgpu_copy_view(call, call->out[0], call->in[0]);
    const ct_view x = bits_of(call->in[0]), y = bits_of(call->out[0]);
    const bool quads = ct_wgpu_is_dense(&y) && ct_wgpu_fits(&y, 4);
    const bool x_wide = x.dtype == CT_I64, y_wide = y.dtype == CT_I64;
    ct_wgpu_nest nest;
    ct_wgpu_nest_of(&nest, (const ct_view *const[]){&y, &x}, 2);
    if (ct_wgpu_count(&y) == 0) return true;
    const bool linear = quads && nest.total >= LONG && ct_wgpu_is_dense(&x) && ct_wgpu_fits(&x, 4);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, linear ? "linear" : quads ? "four" : "one", THREADS);
    l.more = text_of(call->in[0]->dtype, call->out[0]->dtype, x_wide, y_wide);
    if (!l.more) return ct_wgpu_host->fail(CT_ERR_MEMORY, call->called, "no memory for a shader");
    ct_wgpu_operand_of(&l, "y", &y, (quads && !y_wide ? QUAD : 0) | CT_WGPU_WRITTEN);
    ct_wgpu_operand_of(&l, "x", &x, quads ? QUAD : 0);
    for (int i = 0; i < l.n && quads; i++)
        l.operands[i].high = (l.operands[i].high + 15) & ~(uint64_t)15; /* storages are padded */
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
