// y = factor * y + more is what a piece does to what comes into it. The factor of a long piece may be any power of two.
struct State {
    factor: ct_scaled,
    more: f32,
}

fn none() -> State {
    return State(ct_scaled(1.0, 0), 0.0);
}

fn state_of(x: x_t, third: third_t, i: u32) -> State {
    return State(ct_scaled_of(x), third);
}

fn step(a: State, b: State) -> State {
    return State(ct_scaled_mul(a.factor, b.factor), ct_scaled_value(b.factor) * a.more + b.more);
}

fn join(a: State, b: State) -> State {
    let brought = ct_scaled_value(ct_scaled_mul(b.factor, ct_scaled_of(a.more)));
    return State(ct_scaled_mul(a.factor, b.factor), brought + b.more);
}

fn put(at: vec3<u32>, start: vec3<u32>, state: State) {
    y_store(at.y, state.more);
}

fn to_words(state: State) -> vec4<u32> {
    let factor = state.factor;
    return vec4<u32>(bitcast<u32>(factor.fraction), bitcast<u32>(factor.power), bitcast<u32>(state.more), 0u);
}

fn from_words(words: vec4<u32>) -> State {
    return State(ct_scaled(bitcast<f32>(words.x), bitcast<i32>(words.y)), bitcast<f32>(words.z));
}
