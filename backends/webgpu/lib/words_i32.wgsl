// The words of elementwise lines on integers of 32 bits and fewer. Narrower ones are computed in all 32 and cut when they are stored: what
// lies above their bits never reaches them in sums and products, and the other words get no more than what was loaded.

alias T = i32;
fn ct_from_words(w: vec2<u32>) -> T { return bitcast<i32>(w.x); }
fn ct_number(x: f32) -> T { return i32(x); }

fn ct_add(a: T, b: T) -> T { return a + b; }
fn ct_sub(a: T, b: T) -> T { return a - b; }
fn ct_mul(a: T, b: T) -> T { return a * b; }
fn ct_neg(a: T) -> T { return 0 - a; }
fn ct_fma(a: T, b: T, c: T) -> T { return a * b + c; }
fn ct_square(a: T) -> T { return a * a; }
fn ct_abs(a: T) -> T { return select(a, 0 - a, a < 0); }
fn ct_sign(a: T) -> T { return sign(a); }
fn ct_floor(a: T) -> T { return a; }
fn ct_ceil(a: T) -> T { return a; }
fn ct_round(a: T) -> T { return a; }
fn ct_trunc(a: T) -> T { return a; }
fn ct_max(a: T, b: T) -> T { return max(a, b); }
fn ct_min(a: T, b: T) -> T { return min(a, b); }
fn ct_fmax(a: T, b: T) -> T { return max(a, b); }
fn ct_fmin(a: T, b: T) -> T { return min(a, b); }

// By 0 and by -1, where the quotient may not be there, both are 0 and -a.
fn ct_fmod(a: T, b: T) -> T {
    if (b == 0 || b == -1) {
        return 0;
    }
    return a % b;
}
fn ct_remainder(a: T, b: T) -> T {
    let r = ct_fmod(a, b);
    return select(r, r + b, r != 0 && (r < 0) != (b < 0));
}
fn ct_floor_div(a: T, b: T) -> T {
    if (b == 0) {
        return 0;
    }
    if (b == -1) {
        return 0 - a;
    }
    let q = a / b;
    let r = a - q * b;
    return select(q, q - 1, r != 0 && (r < 0) != (b < 0));
}
// a^-n is 1 / a^n towards zero: 0 but for a = 1 and a = -1.
fn ct_pow(a: T, b: T) -> T {
    if (b < 0) {
        return select(select(0, select(1, -1, (b & 1) == 1), a == -1), 1, a == 1);
    }
    var power = 1;
    var square = a;
    for (var n = b; n != 0; n >>= 1u) {
        if ((n & 1) == 1) {
            power *= square;
        }
        square *= square;
    }
    return power;
}

fn ct_eq(a: T, b: T) -> bool { return a == b; }
fn ct_ne(a: T, b: T) -> bool { return a != b; }
fn ct_lt(a: T, b: T) -> bool { return a < b; }
fn ct_le(a: T, b: T) -> bool { return a <= b; }
fn ct_gt(a: T, b: T) -> bool { return a > b; }
fn ct_ge(a: T, b: T) -> bool { return a >= b; }
fn ct_isnan(a: T) -> bool { return false; }
fn ct_isinf(a: T) -> bool { return false; }
fn ct_isfinite(a: T) -> bool { return true; }

fn ct_band(a: T, b: T) -> T { return a & b; }
fn ct_bor(a: T, b: T) -> T { return a | b; }
fn ct_bxor(a: T, b: T) -> T { return a ^ b; }
fn ct_bnot(a: T) -> T { return ~a; }
// A shift by more than the width of a narrow type cuts off all of it, or leaves its sign, as one by its width does.
fn ct_shl(a: T, b: T) -> T { return select(a << (u32(b) & 31u), 0, u32(b) > 31u); }
fn ct_shr(a: T, b: T) -> T { return a >> min(u32(b), 31u); }
