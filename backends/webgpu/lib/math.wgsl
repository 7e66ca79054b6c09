// Functions of f32 to a few units in the last place, from +, *, / and sqrt alone: the builtins of WGSL are allowed errors that would show
// (sin 2^-11, exp 3 + 2 |x| ulp). Reductions and polynomials are those of backends/cpu/simd/, where the error of each fit is given.
//
// A compiler for the device may fuse products with sums, or not; take (a + b) - a for b and a b + a c for a (b + c); and assume that
// nothing is NaN or infinite. So numbers are split by a mask on their bits, of which it knows nothing, and ct_opaque keeps apart what
// must not be joined. What is NaN or infinite is told from its bits, and chosen last.

// ---- Bits ----

fn ct_inf() -> f32 {
    var bits = 0x7f800000u; // a constant expression may not be infinite
    return bitcast<f32>(bits);
}
fn ct_nan() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}
fn ct_is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
fn ct_is_inf(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}
fn ct_is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
// |x| with the sign of s.
// By a choice: where two such are nested, lavapipe's compiler (LLVM 15, AVX-512) loses exponents of (x & magnitude) | (s & sign).
fn ct_copysign(x: f32, s: f32) -> f32 {
    return select(abs(x), -abs(x), bitcast<i32>(s) < 0);
}
// x, of which a compiler knows nothing: p.ct_zero is 0.
fn ct_opaque(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.ct_zero);
}
// The leading 12 bits of x, whose product with another such number is exact.
fn ct_head(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}
// 2^n, n in -126..127.
fn ct_power_of_two(n: i32) -> f32 {
    return bitcast<f32>(u32(n + 127) << 23u);
}
// x 2^n, n in -252..254.
fn ct_scale(x: f32, n: i32) -> f32 {
    let half = n >> 1u;
    return x * ct_power_of_two(half) * ct_power_of_two(n - half);
}

// ---- Exponentials ----

const ct_log2_head = 0x1.62e4p-1f; // 15 bits: the product with an exponent is exact
const ct_log2_tail = 0x1.7f7d1cp-20f;
const ct_inv_log2 = 0x1.715476p0f;

// A number below 2^22 plus this is rounded to an integer, which is then in its low bits: faster than round() and a conversion.
const ct_place = 12582912.0f;
fn ct_low_bits(n: f32) -> i32 {
    return bitcast<i32>(n) - 0x4b400000;
}
// x = n log 2 + r, |r| <= log(2)/2: (n + ct_place, r).
fn ct_reduce_log2(x: f32) -> vec2<f32> {
    let place = ct_opaque(fma(x, ct_inv_log2, ct_place));
    let n = place - ct_place;
    return vec2<f32>(place, fma(n, -ct_log2_tail, ct_opaque(fma(n, -ct_log2_head, x))));
}
// e^r - 1 on |r| <= log(2)/2.
fn ct_expm1_reduced(r: f32) -> f32 {
    var p = fma(0x1.6b73ap-10f, r, 0x1.1227aap-7f);
    p = fma(p, r, 0x1.555716p-5f);
    p = fma(p, r, 0x1.5554bp-3f);
    p = fma(p, r, 0x1.fffffep-2f);
    return fma(p, r * r, r);
}
fn ct_exp(x: f32) -> f32 {
    let n = ct_reduce_log2(clamp(x, -104.0, 89.0));
    let y = ct_scale(1.0 + ct_expm1_reduced(n.y), ct_low_bits(n.x));
    return select(y, x, ct_is_nan(x));
}
// 2^f - 1 on |f| <= 1/2.
fn ct_exp2m1_reduced(f: f32) -> f32 {
    var p = fma(0x1.3fa206p-13f, f, 0x1.5f0b82p-10f);
    p = fma(p, f, 0x1.3b30ap-7f);
    p = fma(p, f, 0x1.c6af76p-5f);
    p = fma(p, f, 0x1.ebfbd8p-3f);
    p = fma(p, f, 0x1.62e43p-1f);
    return p * f;
}
fn ct_exp2(x: f32) -> f32 {
    let c = clamp(x, -151.0, 129.0);
    let n = round(c);
    let y = ct_scale(1.0 + ct_exp2m1_reduced(c - n), i32(n));
    return select(y, x, ct_is_nan(x));
}
// e^x - 1 = 2 (2^(n-1) p + (2^(n-1) - 1/2)), p = e^r - 1: 2^(n-1) is finite wherever the result is.
fn ct_expm1(x: f32) -> f32 {
    let n = ct_reduce_log2(clamp(x, -18.0, 89.0));
    let half = ct_power_of_two(ct_low_bits(n.x) - 1);
    let y = fma(half, ct_expm1_reduced(n.y), half - 0.5);
    return select(ct_copysign(y + y, x), x, ct_is_nan(x));
}
// With e = exp(-|x|): 1 / (1 + e), or e / (1 + e) for x < 0.
fn ct_sigmoid(x: f32) -> f32 {
    let e = ct_exp(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}
// |x| <= 5/8: x + x^3 P(x^2). Above: 1 - 2 / (e^(2|x|) + 1).
fn ct_tanh(x: f32) -> f32 {
    let a = min(abs(x), 9.1);
    let z = a * a;
    var p = fma(-0x1.758cap-8f, z, 0x1.521152p-6f);
    p = fma(p, z, -0x1.b83898p-5f);
    p = fma(p, z, 0x1.110704p-3f);
    p = fma(p, z, -0x1.555532p-2f);
    let near = fma(p, z * a, a);
    let n = ct_reduce_log2(a + a);
    let power = ct_power_of_two(ct_low_bits(n.x));
    let far = 1.0 - 2.0 / fma(power, ct_expm1_reduced(n.y), power + 1.0);
    return select(ct_copysign(select(far, near, a <= 0.625), x), x, ct_is_nan(x));
}
// e^x / 2 for x in [0, 90].
fn ct_exp_half(x: f32) -> f32 {
    let n = ct_reduce_log2(x);
    return ct_scale(1.0 + ct_expm1_reduced(n.y), ct_low_bits(n.x) - 1);
}
fn ct_cosh(x: f32) -> f32 {
    let e = ct_exp_half(min(abs(x), 90.0));
    return select(e + 0.25 / e, x, ct_is_nan(x));
}
fn ct_sinh(x: f32) -> f32 {
    let a = min(abs(x), 90.0);
    let z = a * a;
    let e = ct_exp_half(a);
    var p = fma(0x1.767726p-19f, z, 0x1.a01c22p-13f);
    p = fma(p, z, 0x1.1110eap-7f);
    p = fma(p, z, 0x1.555556p-3f);
    let y = select(e - 0.25 / e, fma(p, z * a, a), a < 1.0);
    return select(ct_copysign(y, x), x, ct_is_nan(x));
}

// ---- Logarithms ----

// x = m 2^e, m in [3/4, 3/2), x > 0 and finite: (m, e). Subnormal numbers are told from their bits, since arithmetic may take them for 0.
fn ct_log_split(x: f32) -> vec2<f32> {
    let given = bitcast<u32>(x) & 0x7fffffffu;
    let small = given < 0x00800000u;
    let bits = select(given, bitcast<u32>(f32(given)), small);
    let k = (bits + 0x00400000u) >> 23u;
    return vec2<f32>(bitcast<f32>(bits - (k << 23u) + 0x3f800000u), f32(k) - select(127.0, 276.0, small));
}
// log(1 + f) - f, f in [-1/4, 1/2].
fn ct_log1p_tail(f: f32) -> f32 {
    var p = fma(-0x1.713e36p-5f, f, 0x1.aca08ep-4f);
    p = fma(p, f, -0x1.0d93f4p-3f);
    p = fma(p, f, 0x1.2886b8p-3f);
    p = fma(p, f, -0x1.54ef16p-3f);
    p = fma(p, f, 0x1.996966p-3f);
    p = fma(p, f, -0x1.000042p-2f);
    p = fma(p, f, 0x1.5555a4p-2f);
    return f * f * fma(p, f, -0.5);
}
// y where x is positive and finite, else what every logarithm of x is.
fn ct_log_of(x: f32, y: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits - 1u < 0x7f7fffffu) {
        return y;
    }
    if ((bits & 0x7fffffffu) == 0u) {
        return -ct_inf();
    }
    return select(ct_nan(), x, bits == 0x7f800000u);
}
fn ct_log_join(e: f32, f: f32) -> f32 {
    return fma(e, ct_log2_head, fma(e, ct_log2_tail, ct_log1p_tail(f)) + f);
}
fn ct_log(x: f32) -> f32 {
    let s = ct_log_split(x);
    return ct_log_of(x, ct_log_join(s.y, s.x - 1.0));
}
fn ct_log2(x: f32) -> f32 {
    let s = ct_log_split(x);
    let f = s.x - 1.0;
    let log_m = f + ct_log1p_tail(f);
    return ct_log_of(x, fma(log_m, ct_inv_log2, log_m * 0x1.4ae0cp-26f) + s.y);
}
fn ct_log10(x: f32) -> f32 {
    let s = ct_log_split(x);
    let f = s.x - 1.0;
    let t = fma(f + ct_log1p_tail(f), 0x1.bcb7b2p-2f, ct_opaque(s.y * 0x1.3509f8p-18f));
    return ct_log_of(x, fma(s.y, 0x1.344p-2f, t));
}
// u is 1 + x cut to 23 bits, c what it lacks. u = m 2^e, and 1 + x = 2^e (m + c 2^-e); where e = 0 that is 1 + x itself.
fn ct_log1p(x: f32) -> f32 {
    let u = bitcast<f32>(bitcast<u32>(1.0 + x) & 0xfffffffeu);
    let c = select(x - (u - 1.0), 0.0, x > 0x1p22f);
    let s = ct_log_split(u);
    let f = fma(c, ct_power_of_two(i32(-min(s.y, 100.0))), s.x - 1.0);
    let y = ct_log_of(u, ct_log_join(s.y, select(f, x, s.y == 0.0)));
    return select(ct_copysign(y, x), ct_nan(), x < -1.0 || ct_is_nan(x));
}
