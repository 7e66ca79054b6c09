// How many elements are not zero.
alias Sum = u32;

fn nothing() -> Sum {
    return 0u;
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    return sum + select(1u, 0u, all(x == x_t()));
}

fn merge(a: Sum, b: Sum) -> Sum {
    return a + b;
}

fn put(at: u32, sum: Sum) {
    out_store(at, ct_i64(sum, 0u));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(sum, 0u, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return words.x;
}
