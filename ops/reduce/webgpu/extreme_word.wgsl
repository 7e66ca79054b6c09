// The greatest or (GREATEST 0) the least of elements that are loaded as f32 (REAL) or i32, as their rank. NaN wins.
alias Sum = u32;

fn nothing() -> Sum {
    return 0u;
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    return max(sum, ct_rank(bitcast<u32>(x), REAL == 1u, GREATEST == 1u));
}

fn merge(a: Sum, b: Sum) -> Sum {
    return max(a, b);
}

fn put(at: u32, sum: Sum) {
    out_store(at, bitcast<out_t>(ct_rank_bits(sum, REAL == 1u, GREATEST == 1u)));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(sum, 0u, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return words.x;
}
