/* vmath_pow.h - pow and hypot. f32 goes through f64; f64 carries the logarithm as an unevaluated sum
   of two f64, since an error of 2^-53 in it would be multiplied by up to 745. */

/* log2 |x| = e + log2 m from the odd series in s = (m - 1) / (m + 1), fit 2^-42; then 2^(y log2 x),
   fit 2^-40. The rounding to f32 is the only error that shows. */
SIMD_INLINE vf64 vf64_pow_for_f32(vf64 x, vf64 y) {
    static const double log_c[] = {0x1.71547652b7e94p1,  0x1.ec709dcb590a4p-1, 0x1.2776bc50023cap-1,
                                   0x1.a61e9da66abb2p-2, 0x1.46f2b90994699p-2, 0x1.29cefb9c915e8p-2};
    static const double exp_c[] = {0x1.62e42fef89d1fp-1,  0x1.ebfbdff8ede83p-3,  0x1.c6b08dced33e3p-5,
                                   0x1.3b2ab5ed6fdfp-7,   0x1.5d874d07141f8p-10, 0x1.430aa882a3b6ep-13,
                                   0x1.00d8533617c35p-16, 0x1.61c4f0e5d3034p-20};
    vf64 e, m = vf64_log_split(x, &e), one = vf64_set1(1);
    vf64 s = vf64_div(vf64_sub(m, one), vf64_add(m, one));
    vf64 log2_x = vf64_fma(vf64_horner(vf64_mul(s, s), log_c, 6), s, e);
    vf64 w = vf64_clamp(vf64_mul(y, log2_x), -200, 200), place = vf64_set1(VF64_PLACE + VF64_BIAS);
    vf64 t = vf64_add(w, place), f = vf64_sub(w, vf64_sub(t, place));
    vf64 power = vf64_from_bits(vi64_shl(vf64_bits(t), 52));
    return vf64_fma(power, vf64_mul(vf64_horner(f, exp_c, 8), f), power);
}

SIMD_INLINE vf32 vf32_pow(vf32 x, vf32 y) {
    vf32 a = vf32_abs(x);
    vf64 lo = vf64_pow_for_f32(vf64_from_f32_lo(a), vf64_from_f32_lo(y));
    vf64 hi = vf64_pow_for_f32(vf64_from_f32_hi(a), vf64_from_f32_hi(y));
    vf32 r = vf32_from_f64(lo, hi);
    mf32 plain = mf32_and(vf32_gt(x, vf32_zero()), vf32_isfinite(x));
    plain = mf32_and(plain, vf32_isfinite(y));
    return __builtin_expect(mf32_all(plain), 1) ? r : vf32_pow_special(x, y, r);
}

/* *low + return value = log x to about 2^-64, x = m 2^e > 0:
   log m = 2 s (1 + z A(z)), s = f / (2 + f), f = m - 1, z = s^2, A = 1/3 + z/5 + z^2/7 + ...
   s, z, the leading term of A and the products are pairs; the rest of A is a fit of error 2^-53,
   weighted by z^2. */
SIMD_INLINE vf64 vf64_log_pair(vf64 x, vf64 *low) {
    static const double c[] = {0x1.9999999999999p-3, 0x1.2492492492a53p-3, 0x1.c71c71c5baebcp-4, 0x1.745d185120fe4p-4,
                               0x1.3b134cf399599p-4, 0x1.11258c69e30cap-4, 0x1.dd42a86948adp-5,  0x1.f3ca0901dba6bp-5};
    vf64 e, f = vf64_sub(vf64_log_split(x, &e), vf64_set1(1)), two = vf64_set1(2), t;
    vf64 den = vf64_add(two, f), den_low = vf64_sub(f, vf64_sub(den, two));
    vf64 inv = vf64_recip(den), s = vf64_mul(f, inv), p = vf64_two_prod(s, den, &t);
    vf64 rest = vf64_fnma(s, den_low, vf64_sub(vf64_sub(f, p), t)), s_low = vf64_mul(rest, inv);

    vf64 z = vf64_two_prod(s, s, &t), z_low = vf64_fma(vf64_add(s, s), s_low, t);
    vf64 third = vf64_set1(0x1.5555555555555p-2), u = vf64_mul(z, vf64_horner(z, c, 8));
    vf64 a = vf64_add(third, u);
    vf64 a_low = vf64_add(vf64_add(vf64_sub(third, a), u), vf64_set1(0x1.5555555555555p-56));
    vf64 w = vf64_two_prod(z, a, &t), w_low = vf64_add(t, vf64_fma(z, a_low, vf64_mul(z_low, a)));

    s = vf64_add(s, s), s_low = vf64_add(s_low, s_low);
    vf64 q = vf64_two_prod(s, w, &t), q_low = vf64_add(t, vf64_fma(s, w_low, vf64_mul(s_low, w)));
    vf64 log_m = vf64_add(s, q);
    vf64 m_low = vf64_add(vf64_add(vf64_sub(s, log_m), q), vf64_add(q_low, s_low));

    vf64 scale = vf64_mul(e, vf64_set1(VF64_LOG2_HEAD)), sum = vf64_add(scale, log_m);
    vf64 lost = vf64_add(vf64_sub(scale, sum), log_m);
    *low = vf64_add(lost, vf64_fma(e, vf64_set1(VF64_LOG2_TAIL), m_low));
    return sum;
}

/* Beyond +-1400 the exponential is 0 or infinity, and |y| beyond 2^100 cannot bring it back. */
SIMD_INLINE vf64 vf64_pow(vf64 x, vf64 y) {
    vf64 low, head = vf64_log_pair(vf64_abs(x), &low), lost;
    vf64 exponent = vf64_clamp(y, -0x1p100, 0x1p100);
    vf64 p = vf64_two_prod(exponent, head, &lost), bound = vf64_set1(1400);
    vf64 p_low = vf64_fma(exponent, low, lost);
    p_low = vf64_select(vf64_lt(vf64_abs(p), bound), p_low, vf64_zero());
    p = vf64_clamp(vf64_mul(exponent, head), -1400, 1400);

    vf64 place = vf64_set1(VF64_PLACE);
    vf64 n = vf64_sub(vf64_fma(p, vf64_set1(VF64_INV_LOG2), place), place);
    vf64 r = vf64_fnma(n, vf64_set1(VF64_LOG2_HEAD), p);
    r = vf64_add(r, vf64_fnma(n, vf64_set1(VF64_LOG2_TAIL), p_low));
    r = vf64_scalef(vf64_add(vf64_set1(1), vf64_expm1_reduced(r)), n);

    mf64 plain = mf64_and(vf64_gt(x, vf64_zero()), vf64_isfinite(x));
    plain = mf64_and(plain, vf64_isfinite(y));
    return __builtin_expect(mf64_all(plain), 1) ? r : vf64_pow_special(x, y, r);
}

/* The squares of f32 fit into f64 without loss or overflow. */
SIMD_INLINE vf64 vf64_hypot_plain(vf64 x, vf64 y) { return vf64_sqrt(vf64_fma(x, x, vf64_mul(y, y))); }
SIMD_INLINE vf32 vf32_hypot(vf32 x, vf32 y) {
    vf64 lo = vf64_hypot_plain(vf64_from_f32_lo(x), vf64_from_f32_lo(y));
    vf64 hi = vf64_hypot_plain(vf64_from_f32_hi(x), vf64_from_f32_hi(y));
    mf32 inf = mf32_or(vf32_isinf(x), vf32_isinf(y));
    return vf32_select(inf, vf32_set1(__builtin_inff()), vf32_from_f64(lo, hi));
}

/* A power of two moves the larger side away from overflow or the smaller from underflow. */
SIMD_INLINE vf64 vf64_hypot(vf64 x, vf64 y) {
    vf64 a = vf64_abs(x), b = vf64_abs(y), big = vf64_maxb(a, b), one = vf64_set1(1);
    mf64 huge = vf64_gt(big, vf64_set1(0x1p500)), tiny = vf64_lt(big, vf64_set1(0x1p-400));
    vf64 down = vf64_select(huge, vf64_set1(0x1p-600), one);
    vf64 up = vf64_select(huge, vf64_set1(0x1p600), one);
    down = vf64_select(tiny, vf64_set1(0x1p600), down);
    up = vf64_select(tiny, vf64_set1(0x1p-600), up);
    vf64 r = vf64_mul(vf64_hypot_plain(vf64_mul(a, down), vf64_mul(b, down)), up);
    mf64 inf = mf64_or(vf64_isinf(x), vf64_isinf(y));
    return vf64_select(inf, vf64_set1(__builtin_inf()), r);
}
