// Sums of exponentials while the greatest element is not known yet (Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018): the greatest so far and the sum of exp(x - greatest), which shrinks when a greater
// one comes.
struct ct_level {
    top: f32,
    sum: f32,
}

fn ct_no_level() -> ct_level {
    return ct_level(-ct_inf(), 0.0);
}

// What is subtracted from elements: of nothing but -inf anything else.
fn ct_level_base(top: f32) -> f32 {
    return select(top, 0.0, top == -ct_inf());
}

fn ct_exp_of_four(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(ct_exp(v.x), ct_exp(v.y), ct_exp(v.z), ct_exp(v.w));
}

// exp of what is at most 0, as a term of a sum that is at least 1: there the builtin's error, (3 + 2 |x|) exp(x) units,
// is 3 units at most. It may take nothing infinite, and lose a NaN.
fn ct_exp_terms(v: vec4<f32>) -> vec4<f32> {
    let terms = exp(max(v, vec4<f32>(-104.0)));
    return select(terms, v, (bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u));
}

fn ct_exp_term(x: f32) -> f32 {
    return select(exp(max(x, -104.0)), x, ct_is_nan(x));
}

// With a greater element, if it is one.
fn ct_lift_level(level: ct_level, greatest: f32) -> ct_level {
    if (greatest > level.top) {
        return ct_level(greatest, level.sum * ct_exp_term(level.top - greatest));
    }
    return level;
}

// With four more elements. What is missing of them is -inf.
fn ct_raise_level(level: ct_level, v: vec4<f32>) -> ct_level {
    let lifted = ct_lift_level(level, max(max(v.x, v.y), max(v.z, v.w)));
    let e = ct_exp_terms(v - ct_level_base(lifted.top));
    return ct_level(lifted.top, lifted.sum + ((e.x + e.y) + (e.z + e.w)));
}

// With sixteen.
fn ct_raise_level_by(level: ct_level, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> ct_level {
    let m = max(max(a, b), max(c, d));
    let lifted = ct_lift_level(level, max(max(m.x, m.y), max(m.z, m.w)));
    let base = ct_level_base(lifted.top);
    let e = (ct_exp_terms(a - base) + ct_exp_terms(b - base)) + (ct_exp_terms(c - base) + ct_exp_terms(d - base));
    return ct_level(lifted.top, lifted.sum + ((e.x + e.y) + (e.z + e.w)));
}

fn ct_merge_levels(a: ct_level, b: ct_level) -> ct_level {
    let top = select(a.top, b.top, b.top > a.top);
    let base = ct_level_base(top);
    return ct_level(top, a.sum * ct_exp_term(a.top - base) + b.sum * ct_exp_term(b.top - base));
}
