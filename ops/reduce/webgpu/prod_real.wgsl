// Products of floats, which overflow only if their result does.
alias Sum = ct_scaled;

fn nothing() -> Sum {
    return ct_scaled(1.0, 0);
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    return ct_scaled_mul(sum, ct_scaled_of(x));
}

fn merge(a: Sum, b: Sum) -> Sum {
    return ct_scaled_mul(a, b);
}

fn put(at: u32, sum: Sum) {
    out_store(at, ct_scaled_value(sum));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(sum.fraction), bitcast<u32>(sum.power), 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return ct_scaled(bitcast<f32>(words.x), bitcast<i32>(words.y));
}
