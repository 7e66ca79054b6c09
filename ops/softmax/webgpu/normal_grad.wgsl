// y (g - sum g y / sum y): a is g, b is y
fn filler_a() -> vec4<f32> {
    return vec4<f32>();
}

fn filler_b() -> vec4<f32> {
    return vec4<f32>();
}

alias State = vec2<f32>; // of products, of y
alias Scale = f32;

fn nothing() -> State {
    return State();
}

fn take(state: State, a: vec4<f32>, b: vec4<f32>) -> State {
    return state + vec2<f32>(dot(a, b), (b.x + b.y) + (b.z + b.w));
}

fn merge(a: State, b: State) -> State {
    return a + b;
}

fn scale_of(state: State) -> Scale {
    return state.x / state.y;
}

fn result(mean: Scale, a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return b * (a - mean);
}
