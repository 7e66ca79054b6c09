// Sums of floats.
alias State = f32;

fn none() -> State {
    return 0.0;
}

fn state_of(x: x_t, third: third_t, i: u32) -> State {
    return x;
}

fn step(a: State, b: State) -> State {
    return a + b;
}

fn join(a: State, b: State) -> State {
    return a + b;
}

fn value_of(state: State) -> f32 {
    return state;
}

fn put(at: vec3<u32>, start: vec3<u32>, state: State) {
    y_store(at.y, value_of(state));
}

fn to_words(state: State) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(state), 0u, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> State {
    return bitcast<f32>(words.x);
}
