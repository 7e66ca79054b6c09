// Sines, angles and what is made of them, to a few units in the last place; see math.wgsl.

// 96 bits of 2 / pi from bit `from` on, of which the first 32 are zeros.
fn ct_two_over_pi(from_bit: u32) -> vec3<u32> {
    var words = array<u32, 7>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u);
    let w = from_bit >> 5u;
    let n = from_bit & 31u;
    let high = vec3<u32>(words[w], words[w + 1u], words[w + 2u]);
    let low = vec3<u32>(words[w + 1u], words[w + 2u], words[w + 3u]);
    return (high << vec3<u32>(n)) | ((low >> vec3<u32>(1u)) >> vec3<u32>(31u - n));
}
// Payne and Hanek's reduction, in integers: a = 2^(e-31) m with 32 bits of m, and a / (2 pi) modulo 1 needs no bits of 2 / pi that would
// make whole turns. 64 bits of it: two are the quadrant, and the others, centred, r / (pi/2).
fn ct_reduce_large(a: f32) -> vec2<f32> {
    let bits = bitcast<u32>(a);
    let m = ((bits & 0x7fffffu) | 0x800000u) << 8u;
    let w = ct_two_over_pi((bits >> 23u) - 128u);
    let low = ct_wide_product(m, w.z);
    let middle = ct_wide_product(m, w.y);
    var turn = ct_i64_add(vec2<u32>(middle.x, middle.y + m * w.x), vec2<u32>(low.y, 0u));
    let quadrant = (turn.y >> 30u) + ((turn.y >> 29u) & 1u);
    turn = ct_i64_shl(turn, 2u);
    return vec2<f32>(ct_i64_to_f32(turn) * 0x1.921fb6p-64f, f32(quadrant & 3u));
}
// a = n pi/2 + r, |r| <= pi/4, a >= 0: (r, n modulo 4). The first three pieces of pi/2 have 11 bits, so that products with n are exact.
fn ct_reduce_pi2(a: f32) -> vec2<f32> {
    if (a > 8192.0) {
        return ct_reduce_large(a);
    }
    let n = round(a * 0x1.45f306p-1f);
    var r = ct_opaque(fma(n, -0x1.92p0f, a));
    r = ct_opaque(fma(n, -0x1.fb4p-12f, r));
    r = ct_opaque(fma(n, -0x1.444p-24f, r));
    r = fma(n, -0x1.68c234p-39f, r);
    return vec2<f32>(r, f32(u32(n) & 3u));
}
// sin r and cos r for |r| <= pi/4.
fn ct_sin_cos(r: f32) -> vec2<f32> {
    let z = r * r;
    let s = fma(fma(-0x1.9953fep-13f, z, 0x1.110778p-7f), z, -0x1.555546p-3f);
    let c = fma(fma(0x1.99e91p-16f, z, -0x1.6c0c2ap-10f), z, 0x1.55554ap-5f);
    return vec2<f32>(fma(s, z * r, r), fma(z, fma(z, c, -0.5), 1.0));
}
// The sine n quarters of a turn behind |x|.
fn ct_sin_quadrant(a: f32, n: u32) -> f32 {
    let reduced = ct_reduce_pi2(a);
    let both = ct_sin_cos(reduced.x);
    let quadrant = u32(reduced.y) + n;
    let y = select(both.x, both.y, (quadrant & 1u) == 1u);
    return select(y, -y, (quadrant & 2u) == 2u);
}
fn ct_sin(x: f32) -> f32 {
    let y = ct_sin_quadrant(abs(x), 0u);
    return select(ct_nan(), select(y, -y, x < 0.0), ct_is_finite(x));
}
fn ct_cos(x: f32) -> f32 {
    return select(ct_nan(), ct_sin_quadrant(abs(x), 1u), ct_is_finite(x));
}
fn ct_tan(x: f32) -> f32 {
    let reduced = ct_reduce_pi2(abs(x));
    let both = ct_sin_cos(reduced.x);
    let odd = (u32(reduced.y) & 1u) == 1u;
    let y = select(both.x, -both.y, odd) / select(both.y, both.x, odd);
    return select(ct_nan(), select(y, -y, x < 0.0), ct_is_finite(x));
}

// ---- Inverses ----

const ct_half_pi = 0x1.921fb6p0f;
const ct_half_pi_tail = -0x1.777a5cp-25f;

// asin(a) up to 1/2, and asin(sqrt((1 - a)/2)) above.
fn ct_asin_near(a: f32) -> f32 {
    let big = a > 0.5;
    let z = select(a * a, (1.0 - a) * 0.5, big);
    let s = select(a, sqrt(z), big);
    var p = fma(0x1.596a7ep-5f, z, 0x1.8c30b4p-6f);
    p = fma(p, z, 0x1.747cbep-5f);
    p = fma(p, z, 0x1.3301fep-4f);
    p = fma(p, z, 0x1.5555c8p-3f);
    return fma(p, z * s, s);
}
fn ct_asin(x: f32) -> f32 {
    let a = abs(x);
    let near = ct_asin_near(min(a, 1.0));
    let y = select(near, fma(-2.0, near, ct_half_pi) + ct_half_pi_tail, a > 0.5);
    return select(ct_copysign(y, x), ct_nan(), a > 1.0 || ct_is_nan(x));
}
fn ct_acos(x: f32) -> f32 {
    let a = abs(x);
    let near = ct_asin_near(min(a, 1.0));
    let twice = near + near;
    let far = select(twice, (2.0 * ct_half_pi - twice) + 2.0 * ct_half_pi_tail, x < 0.0);
    let y = select(ct_half_pi - (ct_copysign(near, x) - ct_half_pi_tail), far, a > 0.5);
    return select(y, ct_nan(), a > 1.0 || ct_is_nan(x));
}
// The angle of the point (b, a), both >= 0. With n <= d the two in order, t = n / d, or (n - d) / (n + d) = tan(angle - pi/4) where that
// is nearer to 0: |t| <= tan(pi/8).
fn ct_angle(a: f32, b: f32) -> f32 {
    let steep = a > b;
    let huge = max(a, b) > 0x1p126f;
    var n = select(a, b, steep) * select(1.0, 0.25, huge);
    var d = select(b, a, steep) * select(1.0, 0.25, huge);
    if (ct_is_inf(d)) {
        n = select(0.0, 1.0, ct_is_inf(n));
        d = 1.0;
    }
    d = select(d, 1.0, d == 0.0);
    let middle = n > d * 0.41421356;
    let t = select(n, n - d, middle) / select(d, n + d, middle);
    let z = t * t;
    var p = fma(-0x1.f2f1b6p-5f, z, 0x1.b226f2p-4f);
    p = fma(p, z, -0x1.23b9dp-3f);
    p = fma(p, z, 0x1.9991e4p-3f);
    p = fma(p, z, -0x1.55554ap-2f);
    var y = z * t * p;
    y = select(y, y + 0.5 * ct_half_pi_tail, middle) + t + select(0.0, 0.5 * ct_half_pi, middle);
    return select(y, (ct_half_pi - y) + ct_half_pi_tail, steep);
}
fn ct_atan(x: f32) -> f32 {
    return select(ct_copysign(ct_angle(abs(x), 1.0), x), x, ct_is_nan(x));
}
fn ct_atan2(y: f32, x: f32) -> f32 {
    let r = ct_angle(abs(y), abs(x));
    let left = bitcast<u32>(x) >= 0x80000000u;
    let angle = ct_copysign(select(r, (2.0 * ct_half_pi - r) + 2.0 * ct_half_pi_tail, left), y);
    return select(angle, ct_nan(), ct_is_nan(x) || ct_is_nan(y));
}
fn ct_asinh(x: f32) -> f32 {
    let a = abs(x);
    let big = a > 0x1p30f;
    let z = select(a * a, 0.0, big);
    let y = ct_log1p(select(a + z / (1.0 + sqrt(1.0 + z)), a, big)) + select(0.0, 0x1.62e43p-1f, big);
    return select(ct_copysign(y, x), x, ct_is_nan(x));
}
fn ct_acosh(x: f32) -> f32 {
    let big = x > 0x1p30f;
    let t = select(x - 1.0, 0.0, big);
    let y = ct_log1p(select(t + sqrt(max(t * (t + 2.0), 0.0)), x, big)) + select(0.0, 0x1.62e43p-1f, big);
    return select(y, ct_nan(), x < 1.0 || ct_is_nan(x));
}
fn ct_atanh(x: f32) -> f32 {
    let a = abs(x);
    let w = select((a + a) / (1.0 - a), ct_inf(), a == 1.0);
    return select(ct_copysign(0.5 * ct_log1p(w), x), ct_nan(), a > 1.0 || ct_is_nan(x));
}
