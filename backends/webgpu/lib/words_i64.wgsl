// The words of elementwise lines on 64-bit integers.

alias T = ct_i64;
fn ct_from_words(w: vec2<u32>) -> T { return w; }
fn ct_number(x: f32) -> T { return ct_i64_from_i32(i32(x)); }

fn ct_add(a: T, b: T) -> T { return ct_i64_add(a, b); }
fn ct_sub(a: T, b: T) -> T { return ct_i64_sub(a, b); }
fn ct_mul(a: T, b: T) -> T { return ct_i64_mul(a, b); }
fn ct_neg(a: T) -> T { return ct_i64_neg(a); }
fn ct_fma(a: T, b: T, c: T) -> T { return ct_i64_add(ct_i64_mul(a, b), c); }
fn ct_square(a: T) -> T { return ct_i64_mul(a, a); }
fn ct_abs(a: T) -> T { return ct_i64_abs(a); }
fn ct_sign(a: T) -> T {
    return select(ct_i64(u32(!ct_i64_is_zero(a)), 0u), ct_i64(0xffffffffu, 0xffffffffu), ct_i64_is_negative(a));
}
fn ct_floor(a: T) -> T { return a; }
fn ct_ceil(a: T) -> T { return a; }
fn ct_round(a: T) -> T { return a; }
fn ct_trunc(a: T) -> T { return a; }
fn ct_max(a: T, b: T) -> T { return ct_i64_max(a, b); }
fn ct_min(a: T, b: T) -> T { return ct_i64_min(a, b); }
fn ct_fmax(a: T, b: T) -> T { return ct_i64_max(a, b); }
fn ct_fmin(a: T, b: T) -> T { return ct_i64_min(a, b); }
fn ct_fmod(a: T, b: T) -> T { return ct_i64_rem(a, b); }
fn ct_remainder(a: T, b: T) -> T {
    let r = ct_i64_rem(a, b);
    return select(r, ct_i64_add(r, b), !ct_i64_is_zero(r) && ct_i64_is_negative(r) != ct_i64_is_negative(b));
}
fn ct_floor_div(a: T, b: T) -> T {
    if (ct_i64_is_zero(b)) {
        return b;
    }
    let d = ct_i64_divide_unsigned(ct_i64_abs(a), ct_i64_abs(b));
    if (ct_i64_is_negative(a) == ct_i64_is_negative(b)) {
        return d.xy;
    }
    return ct_i64_sub(ct_i64_neg(d.xy), ct_i64(u32(!ct_i64_is_zero(d.zw)), 0u));
}
// a^-n is 1 / a^n towards zero: 0 but for a = 1 and a = -1.
fn ct_pow(a: T, b: T) -> T {
    let one = ct_i64(1u, 0u);
    if (ct_i64_is_negative(b)) {
        if (ct_i64_eq(a, one)) {
            return one;
        }
        let minus = ct_i64(0xffffffffu, 0xffffffffu);
        return select(ct_i64(0u, 0u), select(one, minus, (b.x & 1u) == 1u), ct_i64_eq(a, minus));
    }
    var power = one;
    var square = a;
    for (var n = b; !ct_i64_is_zero(n); n = ct_i64_shr_logical(n, 1u)) {
        if ((n.x & 1u) == 1u) {
            power = ct_i64_mul(power, square);
        }
        square = ct_i64_mul(square, square);
    }
    return power;
}

fn ct_eq(a: T, b: T) -> bool { return ct_i64_eq(a, b); }
fn ct_ne(a: T, b: T) -> bool { return !ct_i64_eq(a, b); }
fn ct_lt(a: T, b: T) -> bool { return ct_i64_lt(a, b); }
fn ct_le(a: T, b: T) -> bool { return !ct_i64_lt(b, a); }
fn ct_gt(a: T, b: T) -> bool { return ct_i64_lt(b, a); }
fn ct_ge(a: T, b: T) -> bool { return !ct_i64_lt(a, b); }
fn ct_isnan(a: T) -> bool { return false; }
fn ct_isinf(a: T) -> bool { return false; }
fn ct_isfinite(a: T) -> bool { return true; }

fn ct_band(a: T, b: T) -> T { return a & b; }
fn ct_bor(a: T, b: T) -> T { return a | b; }
fn ct_bxor(a: T, b: T) -> T { return a ^ b; }
fn ct_bnot(a: T) -> T { return ~a; }
fn ct_shl(a: T, b: T) -> T {
    if (b.y != 0u || b.x > 63u) {
        return ct_i64(0u, 0u);
    }
    return ct_i64_shl(a, b.x);
}
fn ct_shr(a: T, b: T) -> T { return ct_i64_shr(a, select(63u, min(b.x, 63u), b.y == 0u)); }
