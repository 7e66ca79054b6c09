// The error function and its kin, and the gamma family; see math.wgsl. Fits that are not the CPU's are minimax by Lawson's iteration, their
// relative errors beside them.

// |x| <= 1: x + x P(x^2). Above: 1 - e^Q(|x|), where Q is a fit of log erfc.
fn ct_erf(x: f32) -> f32 {
    let a = min(abs(x), 3.95);
    let z = a * a;
    var s = fma(0x1.4917a4p-14f, z, -0x1.a3d812p-11f);
    s = fma(s, z, 0x1.540172p-8f);
    s = fma(s, z, -0x1.b7f88cp-6f);
    s = fma(s, z, 0x1.ce2cf2p-4f);
    s = fma(s, z, -0x1.81273ep-2f);
    s = fma(s, z, 0x1.06eba8p-3f);
    var q = fma(0x1.b3319ep-20f, a, -0x1.7f780ap-15f);
    q = fma(q, a, 0x1.373c8ep-11f);
    q = fma(q, a, -0x1.36deaap-8f);
    q = fma(q, a, 0x1.b01322p-6f);
    q = fma(q, a, -0x1.c2814ep-4f);
    q = fma(q, a, -0x1.438ca8p-1f);
    q = fma(q, a, -0x1.21529ep0f);
    q = fma(q, a, 0x1.3d5eb8p-12f);
    let n = ct_reduce_log2(q);
    let power = ct_power_of_two(ct_low_bits(n.x));
    let far = 1.0 - fma(power, ct_expm1_reduced(n.y), power);
    return select(ct_copysign(select(far, fma(s, a, a), a <= 1.0), x), x, ct_is_nan(x));
}
// erfc a = e^(-a^2) Q(t) / (a + 2), t = (a - 2) / (a + 2); erfc(-a) = 2 - erfc a. With w = -1 / (a + 2) as computed, t = 1 + 4 w; e is what
// w falls short of, relatively, and enters the product through the exponent.
fn ct_erfc(x: f32) -> f32 {
    let a = min(abs(x), 10.1);
    let d = a + 2.0;
    let w = -1.0 / d;
    let w_head = ct_head(w);
    let d_head = ct_head(d);
    let e = (ct_opaque(1.0 + w_head * d_head) + w_head * (a - (d_head - 2.0))) + (w - w_head) * d;
    let t = fma(w * e, 4.0, fma(w, 4.0, 1.0));
    var q = fma(0x1.6e04dp-15f, t, 0x1.13595cp-11f);
    q = fma(q, t, 0x1.7e80b6p-11f);
    q = fma(q, t, -0x1.8e40a4p-9f);
    q = fma(q, t, -0x1.a5d1p-8f);
    q = fma(q, t, 0x1.604624p-6f);
    q = fma(q, t, 0x1.2a7c12p-5f);
    q = fma(q, t, -0x1.1e2db8p-2f);
    q = fma(q, t, 0x1.5fd38ep-1f);
    q = fma(q, t, -0x1.058672p0f);
    let head = ct_head(a);
    let n = round(a * a * -ct_inv_log2);
    let rest = fma(n, -ct_log2_tail, e) - (a - head) * (a + head);
    let y = q * w * ct_scale(1.0 + ct_expm1_reduced(ct_opaque(fma(n, -ct_log2_head, -(head * head))) + rest), i32(n));
    return select(select(y, 2.0 - y, x < 0.0), x, ct_is_nan(x));
}
// The normal distribution function: at -a it is e^(-a^2 / 2) t P(t) with t = 1 / (1 + 0.35 a), 3e-8. a^2 is not rounded, being made of
// a head and a tail. NaN gets into t, and from 13.2 on, where it is subnormal, it is 0.
fn ct_ndtr(x: f32) -> f32 {
    let t = 1.0 / fma(abs(x), 0.35, 1.0);
    var p = fma(-0.0291581007, t, 0.144031921);
    p = fma(p, t, -0.255840966);
    p = fma(p, t, 0.159321801);
    p = fma(p, t, -0.0232137000);
    p = fma(p, t, 0.105553025);
    p = fma(p, t, 0.119821168);
    p = fma(p, t, 0.139863530);
    p = fma(p, t, 0.139621306);
    let a = min(abs(x), 13.2);
    let head = ct_head(a);
    let half = -0.5 * head;
    let place = ct_opaque(fma(a * a, -0.5 * ct_inv_log2, ct_place));
    let n = place - ct_place;
    let rest = fma((a - head) * (a + head), -0.5, n * -ct_log2_tail);
    let e = 1.0 + ct_expm1_reduced(ct_opaque(fma(n, -ct_log2_head, head * half)) + rest);
    let tail = select(p * t * e * ct_power_of_two(ct_low_bits(place)), 0.0, abs(x) > 13.2);
    return select(1.0 - tail, tail, x < 0.0);
}
// x times a polynomial in w = -log(1 - x^2) below 5 (2^-27.4), in sqrt(w) above (2^-26.5).
fn ct_erfinv(x: f32) -> f32 {
    let a = abs(x);
    let w = -ct_log((1.0 - a) * (1.0 + a));
    var q: f32;
    if (w < 5.0) {
        let u = select(w, a * a, a < 0.0009765625) - 2.5;
        q = fma(-8.79105677e-9, u, 2.32326443e-8);
        q = fma(q, u, 4.66170661e-7);
        q = fma(q, u, -3.46270485e-6);
        q = fma(q, u, -4.96334769e-6);
        q = fma(q, u, 0.000218344445);
        q = fma(q, u, -0.0012527419);
        q = fma(q, u, -0.00417738687);
        q = fma(q, u, 0.24664028);
        q = fma(q, u, 1.50140941);
    } else {
        let u = sqrt(w) - 3.0;
        q = fma(0.000113640155, u, -0.000307747861);
        q = fma(q, u, -5.37634041e-5);
        q = fma(q, u, 0.00148285471);
        q = fma(q, u, -0.00359898782);
        q = fma(q, u, 0.00568780862);
        q = fma(q, u, -0.00763695547);
        q = fma(q, u, 0.00944519229);
        q = fma(q, u, 1.00167489);
        q = fma(q, u, 2.83297682);
    }
    let y = select(q * x, ct_copysign(ct_inf(), x), a == 1.0);
    return select(y, ct_nan(), a > 1.0 || ct_is_nan(x));
}

// ---- The gamma family ----

// sin(pi x).
fn ct_sin_pi(x: f32) -> f32 {
    let n = round(x + x);
    let both = ct_sin_cos((x - 0.5 * n) * 0x1.921fb6p1f);
    let quadrant = u32(i32(n)) & 3u;
    let y = select(both.x, both.y, (quadrant & 1u) == 1u);
    return select(y, -y, quadrant >= 2u);
}
// log gamma of x > 0: near 2 as t Q(t), t = x - 2 (2^-28.7), where the recurrence brings what is below 8; Stirling's series from there on.
fn ct_lgamma_positive(x: f32) -> f32 {
    if (x >= 8.0) {
        let z = 1.0 / min(x * x, 0x1p100f);
        let series = fma(fma(0.000779972004, z, -0.00277769729), z, 0.0833333358) / x;
        let l = ct_log(x) - 1.0;
        return fma(x, l, fma(-0.5, l, 0.418938533 + series));
    }
    var y = x;
    var product = 1.0;
    if (x < 0.5) {
        product = x * (1.0 + x);
        y = x + 2.0;
    } else if (x < 1.5) {
        product = x;
        y = x + 1.0;
    }
    while (y >= 2.5) {
        y -= 1.0;
        product *= y;
    }
    let t = select(select(y - 2.0, x - 1.0, x < 1.5), x, x < 0.5);
    var q = fma(-0.000269848999, t, 0.000569821685);
    q = fma(q, t, -0.00117784319);
    q = fma(q, t, 0.00287905661);
    q = fma(q, t, -0.00738742715);
    q = fma(q, t, 0.0205816012);
    q = fma(q, t, -0.0673522204);
    q = fma(q, t, 0.322467029);
    q = fma(q, t, 0.422784328);
    let l = ct_log(product);
    return fma(q, t, select(l, -l, x < 1.5));
}
fn ct_lgamma(x: f32) -> f32 {
    if (ct_is_nan(x)) {
        return x;
    }
    let a = abs(x);
    if (ct_is_inf(x) || (x <= 0.0 && floor(x) == x)) {
        return ct_inf();
    }
    if (a < 0x1p-30f) {
        return -ct_log(a);
    }
    let y = ct_lgamma_positive(a);
    return select(y, 1.14472989 - ct_log(abs(a * ct_sin_pi(a))) - y, x < 0.0); // reflected
}
// The derivative of log gamma, x > 0: near its zero (x - zero) P(x - 3/2) on [1, 2] (2^-25.4), where the recurrence brings what is below 6.
fn ct_digamma_positive(x: f32) -> f32 {
    if (x >= 6.0) {
        let z = 1.0 / (x * x);
        return ct_log(x) - 0.5 / x - z * fma(fma(0.00380383455, z, -0.00833164342), z, 0.0833333284);
    }
    var y = x;
    var sum = 0.0;
    if (x < 1.0) {
        sum = -1.0 / x;
        y = x + 1.0;
    }
    while (y > 2.0) {
        y -= 1.0;
        sum += 1.0 / y;
    }
    let u = y - 1.5;
    var q = fma(-0.0162210651, u, 0.0239243265);
    q = fma(q, u, -0.0258725062);
    q = fma(q, u, 0.0393618196);
    q = fma(q, u, -0.0620399714);
    q = fma(q, u, 0.0951174051);
    q = fma(q, u, -0.148399964);
    q = fma(q, u, 0.240538388);
    q = fma(q, u, -0.423627466);
    q = fma(q, u, 0.951055884);
    return fma(q, ct_opaque(y - 0x1.762d86p0f) - 0x1.ab5f2p-27f, sum);
}
fn ct_digamma(x: f32) -> f32 {
    if (ct_is_nan(x) || x == 0.0) {
        return select(ct_copysign(ct_inf(), -x), x, ct_is_nan(x));
    }
    if (ct_is_inf(x)) {
        return select(x, ct_nan(), x < 0.0);
    }
    if (x > 0.0) {
        return ct_digamma_positive(x);
    }
    let fraction = x - round(x); // reflected
    if (fraction == 0.0) {
        return ct_nan();
    }
    return ct_digamma_positive(1.0 - x) - 0x1.921fb6p1f / ct_tan(0x1.921fb6p1f * fraction);
}
// q^s zeta(s, q) = sum over i >= 0 of (q / (q + i))^s, q > 0, s >= 2: terms up to q + i >= 10 + s/2, then Euler and Maclaurin.
fn ct_scaled_zeta(s: f32, q: f32) -> f32 {
    var sum = 0.0;
    var at = q;
    while (at < 10.0 + 0.5 * s) {
        let term = ct_pow_f32(q / at, s);
        sum += term;
        if (term <= 0x1p-30f * sum) {
            return sum;
        }
        at += 1.0;
    }
    let power = ct_pow_f32(q / at, s);
    let z = 1.0 / (at * at);
    let first = s / at;
    var tail = fma(-0.00138888889, (s + 1.0) * (s + 2.0) * z, 0.0833333333);
    tail = fma(3.30687831e-5, (s + 1.0) * (s + 2.0) * z * ((s + 3.0) * (s + 4.0) * z), tail);
    return sum + power * (at / (s - 1.0) + 0.5 + first * tail);
}
// psi^(n)(x) = (-1)^(n+1) n! zeta(n + 1, x); n! / q^n is a product of quotients, which stays as small or large as the result.
fn ct_polygamma_positive(n: f32, x: f32) -> f32 {
    var factor = 1.0;
    for (var k = 1.0; k <= n && factor > 0.0 && ct_is_finite(factor); k += 1.0) {
        factor *= k / x;
    }
    return factor * (ct_scaled_zeta(n + 1.0, x) / x);
}
// For x = f - m with f in (0, 1), the terms left of zero are those of two more zeta functions.
fn ct_polygamma(n: f32, x: f32) -> f32 {
    if (n == 0.0) {
        return ct_digamma(x);
    }
    if (n < 0.0 || ct_is_nan(x)) {
        return ct_nan();
    }
    let odd = n - 2.0 * floor(0.5 * n) == 1.0;
    if (ct_is_inf(x)) {
        return select(ct_nan(), 0.0, x > 0.0);
    }
    var value = 0.0;
    if (x > 0.0) {
        value = ct_polygamma_positive(n, x);
    } else {
        let f = x - floor(x);
        if (f == 0.0) {
            return select(ct_nan(), ct_inf(), odd);
        }
        let left = ct_polygamma_positive(n, (floor(x) + 1.0) - x) - ct_polygamma_positive(n, 1.0 - x);
        value = ct_polygamma_positive(n, f) + select(-left, left, odd);
    }
    return select(-value, value, odd);
}
