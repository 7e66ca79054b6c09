// g - exp(x - top) / sum exp(x - top) sum g: a is g, b is x
fn filler_a() -> vec4<f32> {
    return vec4<f32>();
}

fn filler_b() -> vec4<f32> {
    return vec4<f32>(-ct_inf());
}

struct State {
    level: ct_level,
    cotangents: f32,
}
alias Scale = ct_level;

fn nothing() -> State {
    return State(ct_no_level(), 0.0);
}

fn take(state: State, a: vec4<f32>, b: vec4<f32>) -> State {
    return State(ct_raise_level(state.level, b), state.cotangents + ((a.x + a.y) + (a.z + a.w)));
}

fn merge(a: State, b: State) -> State {
    return State(ct_merge_levels(a.level, b.level), a.cotangents + b.cotangents);
}

fn scale_of(state: State) -> Scale {
    return ct_level(state.level.top, state.cotangents / state.level.sum);
}

fn result(scale: Scale, a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return a - ct_exp_of_four(b - scale.top) * scale.sum;
}
