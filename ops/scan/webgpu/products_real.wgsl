// Products of floats; what is between them neither overflows nor vanishes.
alias State = ct_scaled;

fn none() -> State {
    return ct_scaled(1.0, 0);
}

fn state_of(x: x_t, third: third_t, i: u32) -> State {
    return ct_scaled_of(x);
}

fn step(a: State, b: State) -> State {
    return ct_scaled_mul(a, b);
}

fn join(a: State, b: State) -> State {
    return ct_scaled_mul(a, b);
}

fn value_of(state: State) -> f32 {
    return ct_scaled_value(state);
}

fn put(at: vec3<u32>, start: vec3<u32>, state: State) {
    y_store(at.y, value_of(state));
}

fn to_words(state: State) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(state.fraction), bitcast<u32>(state.power), 0u, 0u);
}

fn from_words(words: vec4<u32>) -> State {
    return ct_scaled(bitcast<f32>(words.x), bitcast<i32>(words.y));
}
