// Sums of integers, that wrap. WIDE: x is i64.
alias State = ct_i64;

fn none() -> State {
    return ct_i64(0u, 0u);
}

fn state_of(x: x_t, third: third_t, i: u32) -> State {
    return ct_widen(vec2<i32>(x), WIDE == 1u);
}

fn step(a: State, b: State) -> State {
    return ct_i64_add(a, b);
}

fn join(a: State, b: State) -> State {
    return ct_i64_add(a, b);
}

fn put(at: vec3<u32>, start: vec3<u32>, state: State) {
    y_store(at.y, state);
}

fn to_words(state: State) -> vec4<u32> {
    return vec4<u32>(state, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> State {
    return words.xy;
}
