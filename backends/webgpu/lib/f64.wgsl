// Numbers of 64 bits where results have to be those of f64: positions and steps that the other backends compute in it.
// A number is its bits, low word first. Numbers too small to be normal are 0.

alias ct_f64 = vec2<u32>;

fn ct_f64_left(a: vec2<u32>, n: u32) -> vec2<u32> {
    if (n == 0u) { return a; }
    if (n >= 64u) { return vec2<u32>(0u, 0u); }
    if (n >= 32u) { return vec2<u32>(0u, a.x << (n - 32u)); }
    return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}

fn ct_f64_right(a: vec2<u32>, n: u32) -> vec2<u32> {
    if (n == 0u) { return a; }
    if (n >= 64u) { return vec2<u32>(0u, 0u); }
    if (n >= 32u) { return vec2<u32>(a.y >> (n - 32u), 0u); }
    return vec2<u32>((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}

fn ct_f64_exponent(a: ct_f64) -> i32 { return i32((a.y >> 20u) & 0x7ffu); }
// The significand with its leading one, in 53 bits.
fn ct_f64_digits(a: ct_f64) -> vec2<u32> { return vec2<u32>(a.x, (a.y & 0xfffffu) | 0x100000u); }
fn ct_f64_is_zero(a: ct_f64) -> bool { return ct_f64_exponent(a) == 0; }
fn ct_f64_neg(a: ct_f64) -> ct_f64 { return ct_f64(a.x, a.y ^ 0x80000000u); }

// A significand whose leading one is the highest of 64 bits, and whether there is more behind them, to the nearest,
// ties to even.
fn ct_f64_round(sign: u32, exponent: i32, digits: vec2<u32>, more: bool) -> ct_f64 {
    if (exponent <= 0) { return ct_f64(0u, sign); }
    if (exponent >= 2047) { return ct_f64(0u, sign | 0x7ff00000u); }
    let kept = ct_f64_right(digits, 11u);
    let rest = digits.x & 0x7ffu;
    let up = rest > 0x400u || (rest == 0x400u && (more || (kept.x & 1u) == 1u));
    // the leading one and a carry run into the exponent
    let all = ct_i64_add(vec2<u32>(kept.x, kept.y + (u32(exponent - 1) << 20u)), vec2<u32>(select(0u, 1u, up), 0u));
    return ct_f64(all.x, all.y | sign);
}

fn ct_f64_mul(a: ct_f64, b: ct_f64) -> ct_f64 {
    let sign = (a.y ^ b.y) & 0x80000000u;
    if (ct_f64_is_zero(a) || ct_f64_is_zero(b)) { return ct_f64(0u, sign); }
    let x = ct_f64_left(ct_f64_digits(a), 11u);
    let y = ct_f64_left(ct_f64_digits(b), 11u);
    let low = ct_wide_product(x.x, y.x);
    let one = ct_wide_product(x.y, y.x);
    let two = ct_wide_product(x.x, y.y);
    // the words of the product from the second on
    let middle = ct_i64_add(ct_i64_add(vec2<u32>(one.x, 0u), vec2<u32>(two.x, 0u)), vec2<u32>(low.y, 0u));
    var high = ct_i64_add(ct_wide_product(x.y, y.y), ct_i64_add(vec2<u32>(one.y, 0u), vec2<u32>(two.y, 0u)));
    high = ct_i64_add(high, vec2<u32>(middle.y, 0u));
    var below = vec2<u32>(low.x, middle.x);
    var exponent = ct_f64_exponent(a) + ct_f64_exponent(b) - 1022;
    if ((high.y & 0x80000000u) == 0u) {
        high = vec2<u32>((high.x << 1u) | (below.y >> 31u), (high.y << 1u) | (high.x >> 31u));
        below = ct_f64_left(below, 1u);
        exponent--;
    }
    return ct_f64_round(sign, exponent, high, (below.x | below.y) != 0u);
}

fn ct_f64_add(first: ct_f64, second: ct_f64) -> ct_f64 {
    if (ct_f64_is_zero(first)) { return second; }
    if (ct_f64_is_zero(second)) { return first; }
    let one = first.y & 0x7fffffffu;
    let two = second.y & 0x7fffffffu;
    let swap = two > one || (two == one && second.x > first.x);
    let a = select(first, second, swap);
    let b = select(second, first, swap);
    let sign = a.y & 0x80000000u;
    // room for a carry above, 10 bits below
    let x = ct_f64_left(ct_f64_digits(a), 10u);
    let whole = ct_f64_left(ct_f64_digits(b), 10u);
    let shift = u32(ct_f64_exponent(a) - ct_f64_exponent(b));
    let y = ct_f64_right(whole, shift);
    let back = ct_f64_left(y, shift);
    let more = shift >= 64u || back.x != whole.x || back.y != whole.y;
    var sum = ct_i64_add(x, y);
    if (((a.y ^ b.y) & 0x80000000u) != 0u) {
        sum = ct_i64_sub(x, y);
        if (more) { sum = ct_i64_sub(sum, vec2<u32>(1u, 0u)); }
        if ((sum.x | sum.y) == 0u) { return ct_f64(0u, 0u); }
    }
    let zeros = select(countLeadingZeros(sum.y), 32u + countLeadingZeros(sum.x), sum.y == 0u);
    return ct_f64_round(sign, ct_f64_exponent(a) + 1 - i32(zeros), ct_f64_left(sum, zeros), more);
}

fn ct_f64_of_u32(v: u32) -> ct_f64 {
    if (v == 0u) { return ct_f64(0u, 0u); }
    let zeros = countLeadingZeros(v);
    return ct_f64_round(0u, 1054 - i32(zeros), vec2<u32>(0u, v << zeros), false);
}

fn ct_f64_of_i32(v: i32) -> ct_f64 {
    let a = ct_f64_of_u32(select(u32(v), 0u - u32(v), v < 0));
    return ct_f64(a.x, a.y | (u32(v) & 0x80000000u));
}

fn ct_f64_to_f32(a: ct_f64) -> f32 {
    let sign = a.y & 0x80000000u;
    let exponent = ct_f64_exponent(a) - 896; // as f32 has it
    if (exponent <= -23) { return bitcast<f32>(sign); }
    if (exponent >= 255) { return bitcast<f32>(sign | 0x7f800000u); }
    let digits = ct_f64_left(ct_f64_digits(a), 11u);
    let shift = select(8u, u32(9 - exponent), exponent <= 0);
    let kept = digits.y >> shift;
    let rest = digits.y & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    let up = rest > middle || (rest == middle && (digits.x != 0u || (kept & 1u) == 1u));
    let above = select(u32(exponent - 1) << 23u, 0u, exponent <= 0);
    return bitcast<f32>(sign | (above + kept + select(0u, 1u, up)));
}

// Towards 0; what is too large is the largest.
fn ct_f64_to_i64(a: ct_f64) -> ct_i64 {
    let exponent = ct_f64_exponent(a) - 1023;
    let negative = (a.y & 0x80000000u) != 0u;
    if (exponent < 0) { return ct_i64(0u, 0u); }
    if (exponent >= 63) { return select(ct_i64(0xffffffffu, 0x7fffffffu), ct_i64(0u, 0x80000000u), negative); }
    let whole = ct_f64_right(ct_f64_left(ct_f64_digits(a), 11u), u32(63 - exponent));
    return select(whole, ct_i64_sub(vec2<u32>(0u, 0u), whole), negative);
}

fn ct_f64_to_i32(a: ct_f64, least: i32, most: i32) -> i32 {
    let v = ct_f64_to_i64(a);
    let low = bitcast<i32>(v.x);
    if (bitcast<i32>(v.y) != low >> 31u) { return select(most, least, (v.y & 0x80000000u) != 0u); }
    return clamp(low, least, most);
}

// The greatest integer that is not above it, within 31 bits.
fn ct_f64_floor(a: ct_f64) -> i32 {
    let whole = ct_f64_to_i32(a, -0x7fffffff, 0x7fffffff);
    let rest = ct_f64_add(a, ct_f64_neg(ct_f64_of_i32(whole)));
    return whole - select(0, 1, !ct_f64_is_zero(rest) && (rest.y & 0x80000000u) != 0u);
}
