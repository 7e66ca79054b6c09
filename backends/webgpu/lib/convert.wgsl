// Elements from one dtype to another, as the CPU converts: floats to integers truncate and saturate with NaN as 0, integers wrap, and
// floats that C lacks meet f32 on the way. Elements are bits, one word or two. Of each dtype there is ct_real_of_ or ct_whole_of_,
// which gives the f32 or the i64 that it is, and ct_real_to_ and ct_whole_to_.

// ---- Floats ----

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

fn ct_real_of_f32(v: vec2<u32>) -> f32 { return bitcast<f32>(v.x); }
fn ct_real_of_f16(v: vec2<u32>) -> f32 { return ct_f16_value(v.x); }
fn ct_real_of_bf16(v: vec2<u32>) -> f32 { return bitcast<f32>(v.x << 16u); }
fn ct_real_of_f8e4m3(v: vec2<u32>) -> f32 { return ct_f8e4m3_value(v.x); }
fn ct_real_of_f8e5m2(v: vec2<u32>) -> f32 { return ct_f8e5m2_value(v.x); }
fn ct_real_of_complex64(v: vec2<u32>) -> f32 { return bitcast<f32>(v.x); }
fn ct_whole_of_i8(v: vec2<u32>) -> ct_i64 { return ct_i64_from_i32(extractBits(bitcast<i32>(v.x), 0u, 8u)); }
fn ct_whole_of_i16(v: vec2<u32>) -> ct_i64 { return ct_i64_from_i32(extractBits(bitcast<i32>(v.x), 0u, 16u)); }
fn ct_whole_of_i32(v: vec2<u32>) -> ct_i64 { return ct_i64_from_i32(bitcast<i32>(v.x)); }
fn ct_whole_of_i64(v: vec2<u32>) -> ct_i64 { return v; }
fn ct_whole_of_u8(v: vec2<u32>) -> ct_i64 { return ct_i64(v.x & 0xffu, 0u); }
fn ct_whole_of_bool(v: vec2<u32>) -> ct_i64 { return ct_i64(select(0u, 1u, (v.x & 0xffu) != 0u), 0u); }
fn ct_whole_of_u16(v: vec2<u32>) -> ct_i64 { return ct_i64(v.x & 0xffffu, 0u); }
fn ct_whole_of_u32(v: vec2<u32>) -> ct_i64 { return ct_i64(v.x, 0u); }
fn ct_whole_of_u64(v: vec2<u32>) -> ct_i64 { return v; }

// ---- Out ----

// Towards zero, and the nearest end of what lies outside.
fn ct_clamped(x: f32, low: f32, high: f32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(select(i32(clamp(x, low, high)), 0, ct_is_nan(x))), 0u);
}
fn ct_real_to_f32(x: f32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(x), 0u); }
fn ct_real_to_f16(x: f32) -> vec2<u32> { return vec2<u32>(ct_f16_bits(x), 0u); }
fn ct_real_to_bf16(x: f32) -> vec2<u32> { return vec2<u32>(ct_bf16_bits(x), 0u); }
fn ct_real_to_f8e4m3(x: f32) -> vec2<u32> { return vec2<u32>(ct_f8e4m3_bits(x), 0u); }
fn ct_real_to_f8e5m2(x: f32) -> vec2<u32> { return vec2<u32>(ct_f8e5m2_bits(x), 0u); }
fn ct_real_to_complex64(x: f32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(x), 0u); }
fn ct_real_to_bool(x: f32) -> vec2<u32> { return vec2<u32>(select(0u, 1u, (bitcast<u32>(x) & 0x7fffffffu) != 0u), 0u); }
fn ct_real_to_i8(x: f32) -> vec2<u32> { return ct_clamped(x, -128.0, 127.0); }
fn ct_real_to_i16(x: f32) -> vec2<u32> { return ct_clamped(x, -32768.0, 32767.0); }
fn ct_real_to_u8(x: f32) -> vec2<u32> { return ct_clamped(x, 0.0, 255.0); }
fn ct_real_to_u16(x: f32) -> vec2<u32> { return ct_clamped(x, 0.0, 65535.0); }
fn ct_real_to_i32(x: f32) -> vec2<u32> {
    return select(ct_clamped(x, -0x1p31f, 0x1.fffffep30f), vec2<u32>(0x7fffffffu, 0u), x >= 0x1p31f);
}
fn ct_real_to_i64(x: f32) -> vec2<u32> { return ct_i64_from_f32(x); }
fn ct_real_to_u64(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    if (bits >= 0x80000000u || ct_is_nan(x)) { return ct_i64(0u, 0u); }
    if (bits >= 0x5f800000u) { return ct_i64(0xffffffffu, 0xffffffffu); } // from 2^64 on
    if (bits >= 0x5f000000u) { return ct_i64_shl(ct_i64((bits & 0x7fffffu) | 0x800000u, 0u), 40u); } // from 2^63 on
    return ct_i64_from_f32(x);
}
fn ct_real_to_u32(x: f32) -> vec2<u32> {
    let y = ct_real_to_u64(x);
    return vec2<u32>(select(y.x, 0xffffffffu, y.y != 0u), 0u);
}
// The words that are not stored are cut off.
fn ct_whole_to_integer(v: ct_i64) -> vec2<u32> { return v; }
fn ct_whole_to_bool(v: ct_i64) -> vec2<u32> { return vec2<u32>(select(1u, 0u, ct_i64_is_zero(v)), 0u); }
// As a number without a sign: of a large one its half, the last bit of which also stands for the one that is lost.
fn ct_u64_to_f32(v: ct_i64) -> f32 {
    if (ct_i64_is_negative(v)) {
        return 2.0 * ct_i64_to_f32(ct_i64_shr_logical(v, 1u) | ct_i64(v.x & 1u, 0u));
    }
    return ct_i64_to_f32(v);
}
