// Sums of floats, or (MEAN) their means: each invocation adds a few, and a tree adds these.
alias Sum = f32;

fn nothing() -> Sum {
    return 0.0;
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    return sum + x;
}

fn merge(a: Sum, b: Sum) -> Sum {
    return a + b;
}

fn put(at: u32, sum: Sum) {
    out_store(at, select(sum, sum / f32(p.n), MEAN == 1u));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(sum), 0u, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return bitcast<f32>(words.x);
}
