// The greatest or (GREATEST 0) the least of elements that are i64.
alias Sum = ct_i64;

fn nothing() -> Sum {
    return ct_i64(0u, 0u);
}

fn merge(a: Sum, b: Sum) -> Sum {
    return select(a, b, ct_i64_below(a, b));
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    return merge(sum, ct_rank_i64(x, GREATEST == 1u));
}

fn put(at: u32, sum: Sum) {
    out_store(at, ct_rank_i64_value(sum, GREATEST == 1u));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(sum, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return words.xy;
}
