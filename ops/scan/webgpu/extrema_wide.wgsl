// The place of the last greatest or (GREATEST 0) last least so far of elements that are i64.
struct State {
    rank: ct_i64,
    place: u32, // 0xffffffff: of nothing
}

fn none() -> State {
    return State(ct_i64(0u, 0u), 0xffffffffu);
}

fn state_of(x: x_t, third: third_t, i: u32) -> State {
    return State(ct_rank_i64(x, GREATEST == 1u), i);
}

fn join(a: State, b: State) -> State {
    if (b.place != 0xffffffffu && (a.place == 0xffffffffu || !ct_i64_below(b.rank, a.rank))) {
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
    return vec4<u32>(state.rank, state.place, 0u);
}

fn from_words(words: vec4<u32>) -> State {
    return State(words.xy, words.z);
}
