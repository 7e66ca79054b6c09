// 64-bit integers as pairs of words, the low one first: exact, and they wrap.

fn ct_i64_from_i32(x: i32) -> ct_i64 {
    return ct_i64(u32(x), u32(x >> 31u));
}
fn ct_i64_is_negative(a: ct_i64) -> bool {
    return a.y >= 0x80000000u;
}
fn ct_i64_is_zero(a: ct_i64) -> bool {
    return (a.x | a.y) == 0u;
}

// ---- Order ----

fn ct_i64_eq(a: ct_i64, b: ct_i64) -> bool {
    return a.x == b.x && a.y == b.y;
}
fn ct_i64_below(a: ct_i64, b: ct_i64) -> bool { // without signs
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}
fn ct_i64_lt(a: ct_i64, b: ct_i64) -> bool {
    return ct_i64_below(ct_i64(a.x, a.y ^ 0x80000000u), ct_i64(b.x, b.y ^ 0x80000000u));
}
fn ct_i64_le(a: ct_i64, b: ct_i64) -> bool {
    return !ct_i64_lt(b, a);
}
fn ct_i64_min(a: ct_i64, b: ct_i64) -> ct_i64 {
    return select(b, a, ct_i64_lt(a, b));
}
fn ct_i64_max(a: ct_i64, b: ct_i64) -> ct_i64 {
    return select(b, a, ct_i64_lt(b, a));
}

// ---- Arithmetic ----

fn ct_i64_add(a: ct_i64, b: ct_i64) -> ct_i64 {
    let low = a.x + b.x;
    return ct_i64(low, a.y + b.y + u32(low < a.x));
}
fn ct_i64_sub(a: ct_i64, b: ct_i64) -> ct_i64 {
    return ct_i64(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}
fn ct_i64_neg(a: ct_i64) -> ct_i64 {
    return ct_i64_sub(ct_i64(0u, 0u), a);
}
fn ct_i64_abs(a: ct_i64) -> ct_i64 {
    return select(a, ct_i64_neg(a), ct_i64_is_negative(a));
}
// The whole product of two words.
fn ct_wide_product(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let one = ah * bl + (low >> 16u);
    let two = al * bh + (one & 0xffffu);
    return vec2<u32>((two << 16u) | (low & 0xffffu), ah * bh + (one >> 16u) + (two >> 16u));
}
fn ct_i64_mul(a: ct_i64, b: ct_i64) -> ct_i64 {
    let p = ct_wide_product(a.x, b.x);
    return ct_i64(p.x, p.y + a.x * b.y + a.y * b.x);
}
// Shifts by 0 to 63.
fn ct_i64_shl(a: ct_i64, n: u32) -> ct_i64 {
    if (n >= 32u) {
        return ct_i64(0u, a.x << (n - 32u));
    }
    return ct_i64(a.x << n, (a.y << n) | ((a.x >> 1u) >> (31u - n)));
}
fn ct_i64_shr_logical(a: ct_i64, n: u32) -> ct_i64 {
    if (n >= 32u) {
        return ct_i64(a.y >> (n - 32u), 0u);
    }
    return ct_i64((a.x >> n) | ((a.y << 1u) << (31u - n)), a.y >> n);
}
fn ct_i64_shr(a: ct_i64, n: u32) -> ct_i64 {
    let high = bitcast<i32>(a.y);
    if (n >= 32u) {
        return ct_i64(u32(high >> (n - 32u)), u32(high >> 31u));
    }
    return ct_i64((a.x >> n) | ((a.y << 1u) << (31u - n)), u32(high >> n));
}
// Quotient (xy) and remainder (zw) without signs, b other than 0: by words where both are words, else bit by bit.
fn ct_i64_divide_unsigned(a: ct_i64, b: ct_i64) -> vec4<u32> {
    if ((a.y | b.y) == 0u) {
        return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u);
    }
    var quotient = ct_i64(0u, 0u);
    var rest = ct_i64(0u, 0u);
    for (var i = 0u; i < 64u; i++) {
        let next = select(a.x >> (31u - (i & 31u)), a.y >> (31u - (i & 31u)), i < 32u) & 1u;
        let carry = rest.y >> 31u;
        rest = ct_i64((rest.x << 1u) | next, (rest.y << 1u) | (rest.x >> 31u));
        quotient = ct_i64(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
        if (carry == 1u || !ct_i64_below(rest, b)) {
            rest = ct_i64_sub(rest, b);
            quotient.x |= 1u;
        }
    }
    return vec4<u32>(quotient, rest);
}
// It has the sign of a; of b = 0 it is 0.
fn ct_i64_rem(a: ct_i64, b: ct_i64) -> ct_i64 {
    if (ct_i64_is_zero(b)) {
        return b;
    }
    let r = ct_i64_divide_unsigned(ct_i64_abs(a), ct_i64_abs(b)).zw;
    return select(r, ct_i64_neg(r), ct_i64_is_negative(a));
}

// ---- To and from f32 ----

// The leading 32 bits, the last of which also says whether any was lost, round as all of them would.
fn ct_i64_to_f32(x: ct_i64) -> f32 {
    let a = ct_i64_abs(x);
    let shift = countLeadingZeros(a.y);
    if (a.y == 0u) {
        let y = f32(a.x);
        return select(y, -y, ct_i64_is_negative(x));
    }
    let m = ct_i64_shl(a, shift);
    let y = f32(m.y | u32(m.x != 0u)) * bitcast<f32>((127u + 32u - shift) << 23u);
    return select(y, -y, ct_i64_is_negative(x));
}
// Towards zero; what lies outside is the nearest end, NaN 0.
fn ct_i64_from_f32(x: f32) -> ct_i64 {
    let bits = bitcast<u32>(x);
    let exponent = i32((bits >> 23u) & 0xffu) - 127;
    if (exponent < 0 || (bits & 0x7fffffffu) > 0x7f800000u) {
        return ct_i64(0u, 0u);
    }
    let negative = bits >= 0x80000000u;
    if (exponent >= 63) {
        return select(ct_i64(0xffffffffu, 0x7fffffffu), ct_i64(0u, 0x80000000u), negative);
    }
    let m = (bits & 0x7fffffu) | 0x800000u;
    var y = ct_i64(m >> u32(max(23 - exponent, 0)), 0u);
    if (exponent > 23) {
        y = ct_i64_shl(ct_i64(m, 0u), u32(exponent - 23));
    }
    return select(y, ct_i64_neg(y), negative);
}
