// Sums of exponentials while the greatest element is not known yet (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018):
// the greatest so far and the sum of exp(x - greatest), which shrinks when a greater one comes.
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

// With four more elements. What is missing of them is -inf.
fn ct_raise_level(level: ct_level, v: vec4<f32>) -> ct_level {
    let greatest = max(max(v.x, v.y), max(v.z, v.w));
    var top = level.top;
    var sum = level.sum;
    if (greatest > top) {
        sum *= ct_exp(top - greatest);
        top = greatest;
    }
    let e = ct_exp_of_four(v - ct_level_base(top));
    return ct_level(top, sum + ((e.x + e.y) + (e.z + e.w)));
}

fn ct_merge_levels(a: ct_level, b: ct_level) -> ct_level {
    let top = select(a.top, b.top, b.top > a.top);
    let base = ct_level_base(top);
    return ct_level(top, a.sum * ct_exp(a.top - base) + b.sum * ct_exp(b.top - base));
}
