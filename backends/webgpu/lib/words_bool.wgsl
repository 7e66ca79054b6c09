// The words of elementwise lines on bool: integers of one bit, 0 or 1.

alias T = i32;
fn ct_from_words(w: vec2<u32>) -> T { return bitcast<i32>(w.x); }
fn ct_number(x: f32) -> T { return select(0, 1, x != 0.0); }

fn ct_add(a: T, b: T) -> T { return a | b; }
fn ct_mul(a: T, b: T) -> T { return a & b; }
fn ct_square(a: T) -> T { return a; }
fn ct_sign(a: T) -> T { return a; }
fn ct_max(a: T, b: T) -> T { return a | b; }
fn ct_min(a: T, b: T) -> T { return a & b; }
fn ct_fmax(a: T, b: T) -> T { return a | b; }
fn ct_fmin(a: T, b: T) -> T { return a & b; }

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
fn ct_bnot(a: T) -> T { return a ^ 1; }
fn ct_shl(a: T, b: T) -> T { return a & (b ^ 1); }
fn ct_shr(a: T, b: T) -> T { return a & (b ^ 1); }
