// More of numbers of 64 bits (f64.wgsl): what finds the part of a range that a value falls into.

fn ct_f64_of_f32(v: f32) -> ct_f64 {
    let bits = bitcast<u32>(v);
    let sign = bits & 0x80000000u;
    let exponent = (bits >> 23u) & 0xffu;
    let digits = bits & 0x7fffffu;
    if (exponent == 0xffu) { return ct_f64(digits << 29u, sign | 0x7ff00000u | (digits >> 3u)); }
    if (exponent != 0u) { return ct_f64(digits << 29u, sign | ((exponent + 896u) << 20u) | (digits >> 3u)); }
    if (digits == 0u) { return ct_f64(0u, sign); }
    let zeros = countLeadingZeros(digits);
    return ct_f64_round(sign, 905 - i32(zeros), vec2<u32>(0u, digits << zeros), false);
}

fn ct_f64_of_i64(v: ct_i64) -> ct_f64 {
    let a = ct_i64_abs(v);
    if (ct_i64_is_zero(a)) { return ct_f64(0u, 0u); }
    let zeros = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
    return ct_f64_round(v.y & 0x80000000u, 1086 - i32(zeros), ct_f64_left(a, zeros), false);
}

// Of numbers: none is a NaN.
fn ct_f64_less(a: ct_f64, b: ct_f64) -> bool {
    if (ct_f64_is_zero(a) && ct_f64_is_zero(b)) { return false; }
    let negative = (a.y & 0x80000000u) != 0u;
    if (negative != ((b.y & 0x80000000u) != 0u)) { return negative; }
    return select(ct_i64_below(a, b), ct_i64_below(b, a), negative);
}

// b is not 0. Bit by bit.
fn ct_f64_div(a: ct_f64, b: ct_f64) -> ct_f64 {
    let sign = (a.y ^ b.y) & 0x80000000u;
    if (ct_f64_is_zero(a)) { return ct_f64(0u, sign); }
    let divisor = ct_f64_digits(b);
    var rest = ct_f64_digits(a);
    var exponent = ct_f64_exponent(a) - ct_f64_exponent(b) + 1023;
    if (ct_i64_below(rest, divisor)) {
        rest = ct_f64_left(rest, 1u);
        exponent--;
    }
    var quotient = vec2<u32>(0u, 0u);
    for (var i = 0u; i < 64u; i++) {
        quotient = ct_f64_left(quotient, 1u);
        if (!ct_i64_below(rest, divisor)) {
            rest = ct_i64_sub(rest, divisor);
            quotient.x |= 1u;
        }
        rest = ct_f64_left(rest, 1u);
    }
    return ct_f64_round(sign, exponent, quotient, !ct_i64_is_zero(rest));
}
