// The place of the last greatest or (GREATEST 0) last least so far of elements that are loaded as f32 (REAL) or i32.
struct State {
    rank: u32,
    place: u32, // 0xffffffff: of nothing
}

fn none() -> State {
    return State(0u, 0xffffffffu);
}

fn state_of(x: x_t, third: third_t, i: u32) -> State {
    return State(ct_rank(ct_one_zero(bitcast<u32>(x), REAL == 1u), REAL == 1u, GREATEST == 1u), i);
}

fn join(a: State, b: State) -> State {
    if (b.place != 0xffffffffu && (a.place == 0xffffffffu || b.rank >= a.rank)) {
        return b;
    }
    return a;
}

fn step(a: State, b: State) -> State {
    return join(a, b);
}

fn put(at: vec3<u32>, start: vec3<u32>, state: State) {
    if (y_given) {
        y_store(at.y, x_load(start.x + state.place * p.step.x));
    }
    third_store(at.z, ct_i64(state.place, 0u));
}

fn to_words(state: State) -> vec4<u32> {
    return vec4<u32>(state.rank, state.place, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> State {
    return State(words.x, words.y);
}
