// The words of elementwise lines on floats; those that only floats have are in math.wgsl. A number may be NaN to each of them, which a
// comparison would not always tell: compilers turn a choice between two numbers by their order into min or max.

alias T = f32;
fn ct_from_words(w: vec2<u32>) -> T { return bitcast<f32>(w.x); }
fn ct_number(x: f32) -> T { return x; }

fn ct_add(a: T, b: T) -> T { return a + b; }
fn ct_sub(a: T, b: T) -> T { return a - b; }
fn ct_mul(a: T, b: T) -> T { return a * b; }
fn ct_div(a: T, b: T) -> T { return a / b; }
fn ct_neg(a: T) -> T { return -a; }
fn ct_fma(a: T, b: T, c: T) -> T { return fma(a, b, c); }
fn ct_square(a: T) -> T { return a * a; }
fn ct_recip(a: T) -> T { return 1.0 / a; }
fn ct_sqrt(a: T) -> T { return sqrt(a); }
fn ct_rsqrt(a: T) -> T { return 1.0 / sqrt(a); }
fn ct_abs(a: T) -> T { return bitcast<f32>(bitcast<u32>(a) & 0x7fffffffu); }
fn ct_sign(a: T) -> T { return select(ct_copysign(1.0, a), a, ct_is_nan(a) || a == 0.0); }
fn ct_floor(a: T) -> T { return floor(a); }
fn ct_ceil(a: T) -> T { return ceil(a); }
fn ct_round(a: T) -> T { return round(a); }
fn ct_trunc(a: T) -> T { return trunc(a); }
fn ct_max(a: T, b: T) -> T { return select(max(a, b), ct_nan(), ct_is_nan(a) || ct_is_nan(b)); }
fn ct_min(a: T, b: T) -> T { return select(min(a, b), ct_nan(), ct_is_nan(a) || ct_is_nan(b)); }
fn ct_fmax(a: T, b: T) -> T { return select(select(max(a, b), a, ct_is_nan(b)), b, ct_is_nan(a)); }
fn ct_fmin(a: T, b: T) -> T { return select(select(min(a, b), a, ct_is_nan(b)), b, ct_is_nan(a)); }
fn ct_pow(a: T, b: T) -> T { return ct_pow_f32(a, b); }
fn ct_fmod(a: T, b: T) -> T { return ct_fmod_f32(a, b); }
fn ct_remainder(a: T, b: T) -> T { return ct_remainder_f32(a, b); }
fn ct_floor_div(a: T, b: T) -> T { return ct_floor_div_f32(a, b); }

fn ct_eq(a: T, b: T) -> bool { return a == b; }
fn ct_ne(a: T, b: T) -> bool { return !(a == b); } // != of NaN may be false
fn ct_lt(a: T, b: T) -> bool { return a < b; }
fn ct_le(a: T, b: T) -> bool { return a <= b; }
fn ct_gt(a: T, b: T) -> bool { return a > b; }
fn ct_ge(a: T, b: T) -> bool { return a >= b; }
fn ct_isnan(a: T) -> bool { return ct_is_nan(a); }
fn ct_isinf(a: T) -> bool { return ct_is_inf(a); }
fn ct_isfinite(a: T) -> bool { return ct_is_finite(a); }
