// a - top - log(sum)
fn filler_a() -> vec4<f32> {
    return vec4<f32>(-ct_inf());
}

fn filler_b() -> vec4<f32> {
    return vec4<f32>();
}

alias State = ct_level;
alias Scale = ct_level;

fn nothing() -> State {
    return ct_no_level();
}

fn take(state: State, a: vec4<f32>, b: vec4<f32>) -> State {
    return ct_raise_level(state, a);
}

fn merge(a: State, b: State) -> State {
    return ct_merge_levels(a, b);
}

fn scale_of(state: State) -> Scale {
    return ct_level(state.top, ct_log(state.sum));
}

fn result(scale: Scale, a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return (a - scale.top) - scale.sum;
}
