// Powers, roots and remainders of f32; see math.wgsl.

// |x| = b 2^(3q), b in [3/8, 3). z -> b^(-1/3) from a fit by a step that cubes its error, y = b z^2, and one Newton step on y^3 = b.
fn ct_cbrt(x: f32) -> f32 {
    let s = ct_log_split(x);
    let q = round(s.y * 0x1.555556p-2f);
    let left = s.y - 3.0 * q;
    let b = s.x * select(select(1.0, 2.0, left > 0.0), 0.5, left < 0.0);
    var z = fma(0x1.5039e2p-5f, b, -0x1.5db2f2p-2f);
    z = fma(z, b, 0x1.11ea16p0f);
    z = fma(z, b, -0x1.a152dap0f);
    z = fma(z, b, 0x1.dae2a8p0f);
    let h = fma(-b, z * z * z, 1.0);
    z = fma(z * h, fma(h, 0x1.c71c72p-3f, 0x1.555556p-2f), z);
    let y = b * z * z;
    // y^3, y in halves of 12 bits: exact where it matters, since all but the rest cancels
    let y_head = ct_head(y);
    let y_tail = y - y_head;
    let square = y_head * y_head;
    let square_head = ct_head(square);
    let rest = (ct_opaque(b - square_head * y_head) - (square - square_head) * y_head) - 3.0 * square * y_tail;
    let r = ct_scale(fma(rest * z * z, 0x1.555556p-2f, y), i32(q));
    return select(ct_copysign(r, x), x, !ct_is_finite(x) || x == 0.0);
}
fn ct_hypot(x: f32, y: f32) -> f32 {
    let a = abs(x);
    let b = abs(y);
    let high = max(a, b);
    let scale = select(select(1.0, 0x1p100f, high < 0x1p-40f), 0x1p-100f, high > 0x1p40f);
    let back = select(select(1.0, 0x1p-100f, high < 0x1p-40f), 0x1p100f, high > 0x1p40f);
    let u = a * scale;
    let v = b * scale;
    let r = sqrt(fma(u, u, v * v)) * back;
    if (ct_is_inf(x) || ct_is_inf(y)) {
        return ct_inf();
    }
    return select(r, ct_nan(), ct_is_nan(x) || ct_is_nan(y));
}

// ---- pow ----

// log2 |x| as a sum of two, of which the first has 12 bits, to about 2^-36: m = 1 + f, s = f / (2 + f), log m = 2 s (1 + s^2/3 + ...). s,
// s^2 and the sum in brackets are carried as heads, whose products are exact, and tails.
fn ct_log2_pair(x: f32) -> vec2<f32> {
    let split = ct_log_split(x);
    let f = split.x - 1.0;
    let d = f + 2.0;
    let d_head = ct_head(d);
    let d_tail = f - (d_head - 2.0);
    let s = f / d;
    let s_head = ct_head(s);
    let s_tail = (ct_opaque(f - s_head * d_head) - s_head * d_tail) / d;
    let z_head = s_head * s_head;
    let z_tail = s_tail * (s_head + s);
    let z = z_head + z_tail;
    // 3 (1/5 + z/7 + z^2/9 + ...), 2^-34
    var more = fma(0x1.02ee3cp-2f, z, 0x1.166ef2p-2f);
    more = fma(more, z, 0x1.55588ep-2f);
    more = fma(more, z, 0x1.b6db6ap-2f);
    more = fma(more, z, 0x1.333334p-1f);
    let rest = fma(more, z * z, z_tail);
    let t_head = ct_head(3.0 + z_head + rest);
    let t_tail = rest - ((t_head - 3.0) - z_head);
    let u = s_head * t_head;
    let v = s_tail * t_head + t_tail * s;
    let p_head = ct_head(u + v);
    let p_tail = v - (p_head - u);
    // times 2 / (3 log 2) = 0x1.ec709dc3a03fdp-1
    let head = p_head * 0x1.ec6p-1f;
    let tail = p_head * 0x1.09dc3ap-13f + p_tail * 0x1.ec709ep-1f;
    let sum = ct_head(split.y + head + tail);
    return vec2<f32>(sum, tail - ((sum - split.y) - head));
}
// An integral exponent keeps the base's sign if it is odd; then the special values of C99 Annex F.
fn ct_pow_f32(x: f32, y: f32) -> f32 {
    let e = clamp(y, -0x1p40f, 0x1p40f);
    let log2 = ct_log2_pair(x);
    let e_head = ct_head(e);
    let p_head = e_head * log2.x;
    let p_tail = (e - e_head) * log2.x + e * log2.y;
    let sum = clamp(p_head + p_tail, -200.0, 200.0);
    let n = round(sum);
    let f = select((p_head - n) + p_tail, 0.0, abs(sum) == 200.0);
    var r = ct_scale(1.0 + ct_exp2m1_reduced(f), i32(n));
    let one = x == 1.0 || y == 0.0 || (x == -1.0 && ct_is_inf(y));
    if (one) {
        return 1.0;
    }
    if (ct_is_nan(x) || ct_is_nan(y)) {
        return ct_nan();
    }
    if (x == 0.0) {
        r = select(0.0, ct_inf(), y < 0.0);
    }
    if (ct_is_inf(x)) {
        r = select(ct_inf(), 0.0, y < 0.0);
    }
    let half = y * 0.5;
    let integral = round(y) == y;
    if (integral && round(half) != half) {
        return ct_copysign(r, x);
    }
    return select(r, ct_nan(), x < 0.0 && !ct_is_inf(x) && !integral);
}

// ---- Remainders ----

// a - b trunc(a / b), exact: the significands as integers, 8 bits of the quotient at a time.
fn ct_fmod_f32(x: f32, y: f32) -> f32 {
    let a = bitcast<u32>(x) & 0x7fffffffu;
    let b = bitcast<u32>(y) & 0x7fffffffu;
    if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) {
        return ct_nan();
    }
    if (a < b) {
        return x;
    }
    let a_exponent = max(a >> 23u, 1u);
    let b_exponent = max(b >> 23u, 1u);
    var rest = (a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u);
    let divisor = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
    rest = rest % divisor;
    var n = a_exponent - b_exponent;
    while (n > 0u) {
        let step = min(n, 8u);
        rest = (rest << step) % divisor;
        n -= step;
    }
    if (rest == 0u) {
        return ct_copysign(0.0, x);
    }
    // back to a float of b's exponent: bits, since a small one may not survive arithmetic
    let shift = min(countLeadingZeros(rest) - 8u, b_exponent - 1u);
    let significand = rest << shift;
    let exponent = select(0u, b_exponent - shift, significand >= 0x800000u);
    return bitcast<f32>((bitcast<u32>(x) & 0x80000000u) | (exponent << 23u) | (significand & 0x7fffffu));
}
fn ct_remainder_is_off(r: f32, y: f32) -> bool {
    return r != 0.0 && (r < 0.0) != (y < 0.0);
}
fn ct_remainder_f32(x: f32, y: f32) -> f32 {
    let r = ct_fmod_f32(x, y);
    return select(r, r + y, ct_remainder_is_off(r, y));
}
fn ct_floor_div_f32(x: f32, y: f32) -> f32 {
    let ratio = x / y;
    if (y == 0.0) {
        return ratio;
    }
    let r = ct_fmod_f32(x, y);
    let q = round((x - r) / y) - select(0.0, 1.0, ct_remainder_is_off(r, y));
    return select(select(q, ct_copysign(0.0, ratio), q == 0.0), ct_nan(), ct_is_nan(r));
}
