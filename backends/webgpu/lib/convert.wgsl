// One element from a dtype to another, as the CPU converts: floats to integers truncate and saturate with NaN as 0, integers wrap, and types
// of fewer than 32 bits of float meet f32 on the way. Elements are bits, one word or two; FROM and TO are the dtypes' numbers.

const ct_f32 = 0u;
const ct_f16 = 2u;
const ct_bf16 = 3u;
const ct_i8 = 4u;
const ct_i16 = 5u;
const ct_i32 = 6u;
const ct_i64_type = 7u;
const ct_u8 = 8u;
const ct_bool = 9u;
const ct_u16 = 10u;
const ct_u32 = 11u;
const ct_u64 = 12u;
const ct_f8e4m3 = 13u;
const ct_f8e5m2 = 14u;
const ct_complex64 = 15u;

// ---- Floats ----

fn ct_is_float(dtype: u32) -> bool {
    return dtype <= ct_bf16 || dtype >= ct_f8e4m3;
}
// exponent and significand bits of a small float, of which shift bits are the significand, with the exponent's bias. Subnormal numbers are
// multiples of the least one, which f32 has as normal numbers.
fn ct_small_float(bits: u32, shift: u32, bias: u32) -> f32 {
    let magnitude = bits & ((1u << (shift + 5u)) - 1u);
    let exponent = magnitude >> shift;
    if (exponent == 0u) {
        return f32(magnitude) * bitcast<f32>((128u - bias - shift) << 23u);
    }
    return bitcast<f32>((magnitude << (23u - shift)) + ((127u - bias) << 23u));
}
fn ct_f16_value(bits: u32) -> f32 {
    let y = bitcast<u32>(ct_small_float(bits & 0x7fffu, 10u, 15u));
    let special = 0x7f800000u | ((bits & 0x3ffu) << 13u);
    return bitcast<f32>(select(y, special, (bits & 0x7c00u) == 0x7c00u) | ((bits & 0x8000u) << 16u));
}
// e4m3 has no infinity, and one NaN.
fn ct_f8e4m3_value(bits: u32) -> f32 {
    let magnitude = bits & 0x7fu;
    let exponent = magnitude >> 3u;
    var y = bitcast<u32>(f32(magnitude) * 0x1p-9f);
    if (exponent != 0u) {
        y = (magnitude << 20u) + (120u << 23u);
    }
    return bitcast<f32>(select(y, 0x7fc00000u, magnitude == 0x7fu) | ((bits & 0x80u) << 24u));
}
fn ct_f8e5m2_value(bits: u32) -> f32 {
    let y = bitcast<u32>(ct_small_float(bits & 0x7fu, 2u, 15u));
    let special = select(0x7fc00000u, 0x7f800000u, (bits & 0x7fu) == 0x7cu);
    return bitcast<f32>(select(y, special, (bits & 0x7cu) == 0x7cu) | ((bits & 0x80u) << 24u));
}
// The magnitude of an f32 to nearest, ties to even, as one with `shift` bits of significand and this bias.
fn ct_rounded(a: u32, shift: u32, bias: u32) -> u32 {
    let drop = 23u - shift;
    let exponent = a >> 23u;
    let least = 128u - bias; // of a normal number, biased as in f32
    if (exponent >= least) {
        return (a + ((1u << (drop - 1u)) - 1u) + ((a >> drop) & 1u) - ((127u - bias) << 23u)) >> drop;
    }
    let more = drop + least - exponent; // bits that fall off a subnormal one
    if (more > 24u) {
        return 0u;
    }
    let m = (a & 0x7fffffu) | 0x800000u;
    let whole = m >> more;
    let rest = m & ((1u << more) - 1u);
    let middle = 1u << (more - 1u);
    return whole + select(0u, 1u, rest > middle || (rest == middle && (whole & 1u) == 1u));
}
fn ct_f8e4m3_bits(v: f32) -> u32 {
    let u = bitcast<u32>(v);
    let a = u & 0x7fffffffu;
    let r = select(ct_rounded(a, 3u, 7u), 0x7fu, a > 0x43e80000u); // above 464, or NaN
    return ((u >> 24u) & 0x80u) | r;
}
fn ct_f8e5m2_bits(v: f32) -> u32 {
    let u = bitcast<u32>(v);
    let a = u & 0x7fffffffu;
    let r = select(select(ct_rounded(a, 2u, 15u), 0x7cu, a >= 0x47700000u), 0x7eu, a > 0x7f800000u); // 61440 and more
    return ((u >> 24u) & 0x80u) | r;
}

// ---- In ----

fn ct_real_of(v: vec2<u32>) -> f32 {
    if (FROM == ct_f16) { return ct_f16_value(v.x); }
    if (FROM == ct_bf16) { return bitcast<f32>(v.x << 16u); }
    if (FROM == ct_f8e4m3) { return ct_f8e4m3_value(v.x); }
    if (FROM == ct_f8e5m2) { return ct_f8e5m2_value(v.x); }
    return bitcast<f32>(v.x);
}
fn ct_whole_of(v: vec2<u32>) -> ct_i64 {
    let x = bitcast<i32>(v.x);
    if (FROM == ct_i8) { return ct_i64_from_i32(extractBits(x, 0u, 8u)); }
    if (FROM == ct_i16) { return ct_i64_from_i32(extractBits(x, 0u, 16u)); }
    if (FROM == ct_i32) { return ct_i64_from_i32(x); }
    if (FROM == ct_u8) { return ct_i64(v.x & 0xffu, 0u); }
    if (FROM == ct_bool) { return ct_i64(select(0u, 1u, (v.x & 0xffu) != 0u), 0u); }
    if (FROM == ct_u16) { return ct_i64(v.x & 0xffffu, 0u); }
    if (FROM == ct_u32) { return ct_i64(v.x, 0u); }
    return v;
}

// ---- Out ----

// Towards zero, and the nearest end of what lies outside.
fn ct_clamped(x: f32, low: f32, high: f32) -> u32 {
    return bitcast<u32>(select(i32(clamp(x, low, high)), 0, ct_is_nan(x)));
}
fn ct_u64_from_f32(x: f32) -> ct_i64 {
    let bits = bitcast<u32>(x);
    if (bits >= 0x80000000u || ct_is_nan(x)) { return ct_i64(0u, 0u); }
    if (bits >= 0x5f800000u) { return ct_i64(0xffffffffu, 0xffffffffu); }
    if (bits >= 0x5f000000u) { return ct_i64_shl(ct_i64((bits & 0x7fffffu) | 0x800000u, 0u), 40u); }
    return ct_i64_from_f32(x);
}
fn ct_from_real(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    if (TO == ct_f16) { return vec2<u32>(ct_f16_bits(x), 0u); }
    if (TO == ct_bf16) { return vec2<u32>(ct_bf16_bits(x), 0u); }
    if (TO == ct_f8e4m3) { return vec2<u32>(ct_f8e4m3_bits(x), 0u); }
    if (TO == ct_f8e5m2) { return vec2<u32>(ct_f8e5m2_bits(x), 0u); }
    if (TO == ct_i8) { return vec2<u32>(ct_clamped(x, -128.0, 127.0), 0u); }
    if (TO == ct_i16) { return vec2<u32>(ct_clamped(x, -32768.0, 32767.0), 0u); }
    if (TO == ct_u8) { return vec2<u32>(ct_clamped(x, 0.0, 255.0), 0u); }
    if (TO == ct_u16) { return vec2<u32>(ct_clamped(x, 0.0, 65535.0), 0u); }
    if (TO == ct_i32) { return vec2<u32>(select(ct_clamped(x, -0x1p31f, 0x1.fffffep30f), 0x7fffffffu, x >= 0x1p31f), 0u); }
    if (TO == ct_u32) {
        let y = ct_u64_from_f32(x);
        return vec2<u32>(select(y.x, 0xffffffffu, y.y != 0u), 0u);
    }
    if (TO == ct_i64_type) { return ct_i64_from_f32(x); }
    if (TO == ct_u64) { return ct_u64_from_f32(x); }
    if (TO == ct_bool) { return vec2<u32>(select(0u, 1u, (bits & 0x7fffffffu) != 0u), 0u); }
    return vec2<u32>(bits, 0u); // f32, and complex64
}
fn ct_from_whole(v: ct_i64) -> vec2<u32> {
    if (ct_is_float(TO)) {
        if (FROM == ct_u64 && ct_i64_is_negative(v)) {
            // half of it, the last bit of which also stands for the one that is lost
            return ct_from_real(2.0 * ct_i64_to_f32(ct_i64_shr_logical(v, 1u) | ct_i64(v.x & 1u, 0u)));
        }
        return ct_from_real(ct_i64_to_f32(v));
    }
    if (TO == ct_bool) { return vec2<u32>(select(1u, 0u, ct_i64_is_zero(v)), 0u); }
    return v;
}
fn ct_convert(v: vec2<u32>) -> vec2<u32> {
    if (FROM == ct_complex64 && TO == ct_bool) {
        return vec2<u32>(select(0u, 1u, ((v.x | v.y) & 0x7fffffffu) != 0u), 0u);
    }
    if (ct_is_float(FROM)) {
        return ct_from_real(ct_real_of(v));
    }
    return ct_from_whole(ct_whole_of(v));
}
