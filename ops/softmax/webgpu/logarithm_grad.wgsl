// g - exp(y) sum g: a is g, b is y
fn filler_a() -> vec4<f32> {
    return vec4<f32>();
}

fn filler_b() -> vec4<f32> {
    return vec4<f32>();
}

alias State = f32;
alias Scale = f32;

fn nothing() -> State {
    return 0.0;
}

fn take(state: State, a: vec4<f32>, b: vec4<f32>) -> State {
    return state + ((a.x + a.y) + (a.z + a.w));
}

fn merge(a: State, b: State) -> State {
    return a + b;
}

fn scale_of(state: State) -> Scale {
    return state;
}

fn result(sum: Scale, a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return a - ct_exp_of_four(b) * sum;
}
