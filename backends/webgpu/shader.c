/* The text of a shader. Memory is words of 32 bits to it: every dtype is unpacked from them and packed into them here, so that what a
 * kernel computes does not depend on the features of a device. */
#include "backends/webgpu/shader.h"

#include <stdlib.h>

enum { PLAIN = CT_WGPU_PLAIN, QUAD = CT_WGPU_QUAD, PAIR = CT_WGPU_PAIR, ATOMIC = CT_WGPU_ATOMIC };

/* Pairs of words. */
static bool is_wide(ct_dtype dtype) { return dtype == CT_I64 || dtype == CT_U64; }

/* Types without arithmetic are their bits. */
const char *ct_wgpu_type_of(ct_dtype dtype) { return dtype <= CT_BF16 ? "f32" : is_wide(dtype) ? "vec2<u32>" : "i32"; }

/* ---- Bindings ---- */

/* Word w of a range: a binding, or the one of several that it lies in. */
static void put_read(ct_wgpu_text *t, const ct_wgpu_range *r, int k) {
    if (r->kind == QUAD) ct_wgpu_put(t, "ct_b%d[w >> 2u][w & 3u]", r->first + k);
    else if (r->kind == PAIR) ct_wgpu_put(t, "ct_b%d[w >> 1u][w & 1u]", r->first + k);
    else if (r->kind == ATOMIC) ct_wgpu_put(t, "atomicLoad(&ct_b%d[w])", r->first + k);
    else ct_wgpu_put(t, "ct_b%d[w]", r->first + k);
}

static void put_write(ct_wgpu_text *t, const ct_wgpu_range *r, int k, const char *how) {
    if (r->kind == ATOMIC) ct_wgpu_put(t, "%s(&ct_b%d[w], v);", how, r->first + k);
    else if (r->kind == QUAD) ct_wgpu_put(t, "ct_b%d[w >> 2u][w & 3u] = v;", r->first + k);
    else if (r->kind == PAIR) ct_wgpu_put(t, "ct_b%d[w >> 1u][w & 1u] = v;", r->first + k);
    else ct_wgpu_put(t, "ct_b%d[w] = v;", r->first + k);
}

static void put_bindings(ct_wgpu_text *t, const ct_wgpu_plan *plan) {
    static const char *const element[] = {"u32", "vec4<u32>", "vec2<u32>", "atomic<u32>"};
    for (int i = 0; i < plan->n_ranges; i++)
        for (int k = 0; k < plan->ranges[i].n; k++)
            ct_wgpu_put(t, "@group(0) @binding(%d) var<storage, read_write> ct_b%d: array<%s>;\n",
                        plan->ranges[i].first + k + 1, plan->ranges[i].first + k, element[plan->ranges[i].kind]);
}

/* fn ct_NAME_K(at, ...): the body for one binding, or for each of several. */
static void put_cases(ct_wgpu_text *t, const ct_wgpu_plan *plan, const ct_wgpu_range *r, const char *how) {
    for (int k = 0; k < r->n; k++) {
        if (r->n > 1 && k < r->n - 1) ct_wgpu_put(t, "    if (at >> %uu == %uu) { ", plan->window, (unsigned)k);
        else ct_wgpu_put(t, "    { ");
        if (r->n > 1) ct_wgpu_put(t, "let w = at & %uu; ", (1u << plan->window) - 1);
        else ct_wgpu_put(t, "let w = at; ");
        if (how) put_write(t, r, k, how);
        else {
            ct_wgpu_put(t, "return ");
            put_read(t, r, k);
            ct_wgpu_put(t, ";");
        }
        ct_wgpu_put(t, "%s }\n", how && k < r->n - 1 ? " return;" : "");
    }
}

static void put_range(ct_wgpu_text *t, const ct_wgpu_plan *plan, int i, bool written) {
    const ct_wgpu_range *r = &plan->ranges[i];
    ct_wgpu_put(t, "fn ct_read_%d(at: u32) -> u32 {\n", i);
    put_cases(t, plan, r, NULL);
    ct_wgpu_put(t, "}\n");
    if (!written) return;
    ct_wgpu_put(t, "fn ct_write_%d(at: u32, v: u32) {\n", i);
    put_cases(t, plan, r, "atomicStore");
    ct_wgpu_put(t, "}\n");
    if (r->kind != ATOMIC) return;
    ct_wgpu_put(t, "fn ct_and_%d(at: u32, v: u32) {\n", i);
    put_cases(t, plan, r, "atomicAnd");
    ct_wgpu_put(t, "}\nfn ct_or_%d(at: u32, v: u32) {\n", i);
    put_cases(t, plan, r, "atomicOr");
    ct_wgpu_put(t, "}\n");
}

/* ---- Operands ---- */

/* x_unpack: element k of a word. x_bits: the bits that it is stored as. */
void ct_wgpu_put_coding(ct_wgpu_text *t, const char *x, ct_dtype dtype) {
    const char *unpack = "", *bits = "";
    switch (dtype) {
    case CT_F32: unpack = "bitcast<f32>(w)", bits = "bitcast<u32>(v)"; break;
    case CT_F16: unpack = "unpack2x16float(w)[k]", bits = "ct_f16_bits(v)"; break;
    case CT_BF16: unpack = "bitcast<f32>((w >> (16u * k)) << 16u)", bits = "ct_bf16_bits(v)"; break;
    case CT_U32:
    case CT_I32: unpack = "bitcast<i32>(w)", bits = "bitcast<u32>(v)"; break;
    case CT_I16: unpack = "extractBits(bitcast<i32>(w), 16u * k, 16u)", bits = "bitcast<u32>(v) & 0xffffu"; break;
    case CT_I8: unpack = "extractBits(bitcast<i32>(w), 8u * k, 8u)", bits = "bitcast<u32>(v) & 0xffu"; break;
    case CT_U16: unpack = "i32(extractBits(w, 16u * k, 16u))", bits = "bitcast<u32>(v) & 0xffffu"; break;
    case CT_F8E4M3:
    case CT_F8E5M2:
    case CT_U8: unpack = "i32(extractBits(w, 8u * k, 8u))", bits = "bitcast<u32>(v) & 0xffu"; break;
    case CT_BOOL: unpack = "select(0, 1, extractBits(w, 8u * k, 8u) != 0u)", bits = "select(0u, 1u, v != 0)"; break;
    default: return;
    }
    ct_wgpu_put(t, "fn %s_unpack(w: u32, k: u32) -> %s { return %s; }\nfn %s_bits(v: %s) -> u32 { return %s; }\n", x,
                ct_wgpu_type_of(dtype), unpack, x, ct_wgpu_type_of(dtype), bits);
}

/* x_load4 and x_store4. x_load4 in two steps, for texts that load early and unpack late: x_load_words gives the words of four elements,
 * x_of_words the elements. */
static void put_quads(ct_wgpu_text *t, const ct_wgpu_operand *o, int range, int kind, int i, unsigned pack) {
    const char *x = o->name, *type = ct_wgpu_type_of((ct_dtype)o->dtype);
    const bool written = o->mode & CT_WGPU_WRITTEN;
    const char *const which = (const char *const[]){"x", "y", "z", "w"}[i & 3];
    const char *const words = pack == 1 ? "vec4<u32>" : pack == 2 ? "vec2<u32>" : "u32";
    ct_wgpu_put(t,
                "alias %s_words = %s;\nfn %s_load_words(i: u32) -> %s {\n    let at = (i + p.ct_base[%d].%s) / %uu;\n",
                x, words, x, words, i / 4, which, pack);
    if (kind == QUAD || kind == PAIR)
        ct_wgpu_put(t, "    return ct_b%d[at >> %uu];\n}\n", range, kind == QUAD ? 2 : 1); /* one binding */
    else if (pack == 1)
        ct_wgpu_put(
            t,
            "    return vec4<u32>(ct_read_%d(at), ct_read_%d(at + 1u), ct_read_%d(at + 2u), ct_read_%d(at + 3u));\n}\n",
            range, range, range, range);
    else if (pack == 2) ct_wgpu_put(t, "    return vec2<u32>(ct_read_%d(at), ct_read_%d(at + 1u));\n}\n", range, range);
    else ct_wgpu_put(t, "    return ct_read_%d(at);\n}\n", range);
    ct_wgpu_put(t, "fn %s_of_words(w: %s) -> vec4<%s> { return ", x, words, type);
    if (pack == 1) ct_wgpu_put(t, "bitcast<vec4<%s>>(w); }\n", type);
    else if (pack == 2)
        ct_wgpu_put(t, "vec4<%s>(%s_unpack(w.x, 0u), %s_unpack(w.x, 1u), %s_unpack(w.y, 0u), %s_unpack(w.y, 1u)); }\n",
                    type, x, x, x, x);
    else
        ct_wgpu_put(t, "vec4<%s>(%s_unpack(w, 0u), %s_unpack(w, 1u), %s_unpack(w, 2u), %s_unpack(w, 3u)); }\n", type, x,
                    x, x, x);
    ct_wgpu_put(t, "fn %s_load4(i: u32) -> vec4<%s> { return %s_of_words(%s_load_words(i)); }\n", x, type, x, x);
    if (!written) return;
    ct_wgpu_put(t, "fn %s_store4(i: u32, v: vec4<%s>) {\n    let at = (i + p.ct_base[%d].%s) / %uu;\n", x, type, i / 4,
                which, pack);
    if (kind == QUAD) ct_wgpu_put(t, "    ct_b%d[at >> 2u] = bitcast<vec4<u32>>(v);\n}\n", range);
    else if (pack == 1)
        ct_wgpu_put(
            t,
            "    ct_write_%d(at, %s_bits(v.x));\n    ct_write_%d(at + 1u, %s_bits(v.y));\n    ct_write_%d(at + 2u, "
            "%s_bits(v.z));\n    ct_write_%d(at + 3u, %s_bits(v.w));\n}\n",
            range, x, range, x, range, x, range, x);
    else if (kind == PAIR)
        ct_wgpu_put(
            t,
            "    ct_b%d[at >> 1u] = vec2<u32>(%s_bits(v.x) | (%s_bits(v.y) << 16u), %s_bits(v.z) | (%s_bits(v.w) << "
            "16u));\n}\n",
            range, x, x, x, x);
    else if (pack == 2)
        ct_wgpu_put(
            t,
            "    ct_write_%d(at, %s_bits(v.x) | (%s_bits(v.y) << 16u));\n    ct_write_%d(at + 1u, %s_bits(v.z) | "
            "(%s_bits(v.w) << 16u));\n}\n",
            range, x, x, range, x, x);
    else
        ct_wgpu_put(
            t,
            "    ct_write_%d(at, %s_bits(v.x) | (%s_bits(v.y) << 8u) | (%s_bits(v.z) << 16u) | (%s_bits(v.w) << "
            "24u));\n}\n",
            range, x, x, x, x);
}

static void put_operand(ct_wgpu_text *t, const ct_wgpu_plan *plan, const ct_wgpu_operand *o, int i) {
    const char *x = o->name, *type = ct_wgpu_type_of((ct_dtype)o->dtype);
    const bool given = plan->of[i] != 255, written = o->mode & CT_WGPU_WRITTEN, wide = is_wide((ct_dtype)o->dtype);
    const unsigned size = (unsigned)ct_wgpu_dtype_size((ct_dtype)o->dtype), pack = size < 4 ? 4 / size : 1;
    ct_wgpu_put(t, "alias %s_t = %s;\nconst %s_given = %s;\nconst %s_pack = %uu;\n", x, type, x,
                given ? "true" : "false", x, pack);
    if (!given) {
        ct_wgpu_put(t, "fn %s_load(i: u32) -> %s_t { return %s_t(); }\n", x, x, x);
        if (written) ct_wgpu_put(t, "fn %s_store(i: u32, v: %s_t) {}\n", x, x);
        if (o->mode & CT_WGPU_QUADS) {
            ct_wgpu_put(t, "fn %s_load4(i: u32) -> vec4<%s_t> { return vec4<%s_t>(); }\n", x, x, x);
            if (written) ct_wgpu_put(t, "fn %s_store4(i: u32, v: vec4<%s_t>) {}\n", x, x);
        }
        return;
    }
    const int range = plan->of[i], kind = plan->ranges[range].kind;
    const char *const which = (const char *const[]){"x", "y", "z", "w"}[i & 3];
    ct_wgpu_put_coding(t, x, (ct_dtype)o->dtype);
    if (wide)
        ct_wgpu_put(t,
                    "fn %s_load(i: u32) -> vec2<u32> {\n    let at = 2u * (i + p.ct_base[%d].%s);\n    return "
                    "vec2<u32>(ct_read_%d(at), ct_read_%d(at + 1u));\n}\n",
                    x, i / 4, which, range, range);
    else
        ct_wgpu_put(t,
                    "fn %s_load(i: u32) -> %s {\n    let at = i + p.ct_base[%d].%s;\n    return "
                    "%s_unpack(ct_read_%d(at / %uu), "
                    "at %% %uu);\n}\n",
                    x, type, i / 4, which, x, range, pack, pack);
    if (o->mode & CT_WGPU_WORDS && !wide) {
        ct_wgpu_put(t, "fn %s_word(w: u32) -> u32 { return ct_read_%d(w + p.ct_base[%d].%s / %uu); }\n", x, range,
                    i / 4, which, pack);
        if (written)
            ct_wgpu_put(t, "fn %s_put(w: u32, bits: u32) { ct_write_%d(w + p.ct_base[%d].%s / %uu, bits); }\n", x,
                        range, i / 4, which, pack);
    }
    if (o->mode & CT_WGPU_QUADS && !wide)
        put_quads(t, o, kind == QUAD || kind == PAIR ? plan->ranges[range].first : range, kind, i, pack);
    if (!written) return;
    if (o->mode & CT_WGPU_QUADS_ONLY) { /* for texts that know otherwise that they will not call it */
        ct_wgpu_put(t, "fn %s_store(i: u32, v: %s) {}\n", x, type);
        return;
    }
    if (wide)
        ct_wgpu_put(
            t,
            "fn %s_store(i: u32, v: vec2<u32>) {\n    let at = 2u * (i + p.ct_base[%d].%s);\n    ct_write_%d(at, "
            "v.x);\n    ct_write_%d(at + 1u, v.y);\n}\n",
            x, i / 4, which, range, range);
    else if (pack == 1)
        ct_wgpu_put(t, "fn %s_store(i: u32, v: %s) { ct_write_%d(i + p.ct_base[%d].%s, %s_bits(v)); }\n", x, type,
                    range, i / 4, which, x);
    else if (kind == ATOMIC)
        ct_wgpu_put(
            t,
            "fn %s_store(i: u32, v: %s) {\n    let at = i + p.ct_base[%d].%s;\n    let shift = (at %% %uu) * %uu;\n    "
            "ct_and_%d(at / %uu, ~(%uu << shift));\n    ct_or_%d(at / %uu, %s_bits(v) << shift);\n}\n",
            x, type, i / 4, which, pack, 32 / pack, range, pack, (1u << (32 / pack)) - 1, range, pack, x);
}

/* ---- The whole ---- */

static const char head[] = "ct_base: array<vec4<u32>, 4>, ct_groups: u32, ct_call: u32, ct_zero: u32, ct_pad: u32, ";
static const char begins[] = "struct Params {";

static void put_params(ct_wgpu_text *t, const char *unit) {
    const char *params = strstr(unit, begins);
    ct_wgpu_put(t, "%s %s", begins, head);
    if (!params) {
        ct_wgpu_put(t, "}\n");
        return;
    }
    params += sizeof begins - 1;
    const char *end = strchr(params, '}'); /* its members are without braces */
    if (end) ct_wgpu_put_bytes(t, params, (size_t)(end + 1 - params));
    ct_wgpu_put_bytes(t, "\n", 1);
}

/* While the error word is set, calls that change lasting state do nothing. One invocation reads it for all: a value from storage is not
 * uniform to a compiler, and barriers follow. */
static void put_entry(ct_wgpu_text *t, const ct_wgpu_launch *launch, bool lasting) {
    if (lasting) ct_wgpu_put(t, "var<workgroup> ct_stop: u32;\n");
    ct_wgpu_put(
        t,
        "@compute @workgroup_size(%u)\nfn main(@builtin(workgroup_id) ct_w: vec3<u32>, @builtin(num_workgroups) ct_n: "
        "vec3<u32>, @builtin(local_invocation_index) ct_local: u32) {\n    let ct_group = ct_w.y * ct_n.x + ct_w.x;\n"
        "    if (ct_group >= p.ct_groups) { return; }\n",
        launch->threads);
    if (lasting)
        ct_wgpu_put(t, "    if (ct_local == 0u) { ct_stop = atomicLoad(&ct_error[0]); }\n"
                       "    if (workgroupUniformLoad(&ct_stop) != 0u) { return; }\n");
    ct_wgpu_put(t, "    %s(ct_group, ct_local, p.ct_groups);\n}\n", launch->function);
}

char *ct_wgpu_shader(const ct_wgpu_launch *launch, const ct_wgpu_plan *plan, bool lasting, bool *notes) {
    ct_wgpu_text t = {0};
    ct_wgpu_put(&t, "// %s of %s\nalias ct_i64 = vec2<u32>;\n@group(0) @binding(0) var<uniform> p: Params;\n",
                launch->function, launch->unit->name);
    put_bindings(&t, plan);
    for (int i = 0; i < launch->n_constants; i++)
        ct_wgpu_put(&t, "const %s = %uu;\n", launch->constants[i].name, launch->constants[i].value);
    ct_wgpu_put(&t, "const THREADS = %uu;\n", launch->threads);
    for (int r = 0; r < plan->n_ranges; r++) {
        bool written = false;
        for (int i = 0; i < launch->n; i++) written |= plan->of[i] == r && launch->operands[i].mode & CT_WGPU_WRITTEN;
        put_range(&t, plan, r, written);
    }
    for (int i = 0; i < launch->n; i++) put_operand(&t, plan, &launch->operands[i], i);
    put_entry(&t, launch, lasting);
    put_params(&t, launch->unit->text);
    ct_wgpu_link(&t, launch->unit->text, launch->more, launch->words);
    *notes = !t.failed && strstr(t.s, "ct_error");
    if (*notes)
        ct_wgpu_put(&t, "@group(0) @binding(%d) var<storage, read_write> ct_error: array<atomic<u32>>;\n",
                    plan->n_slots + 1);
    if (t.failed) {
        free(t.s);
        return NULL;
    }
    return t.s;
}
