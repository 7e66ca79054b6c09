// Sums of integers, that wrap. WIDE: x is i64.
alias Sum = ct_i64;

fn nothing() -> Sum {
    return ct_i64(0u, 0u);
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    return ct_i64_add(sum, ct_widen(vec2<i32>(x), WIDE == 1u));
}

fn merge(a: Sum, b: Sum) -> Sum {
    return ct_i64_add(a, b);
}

fn put(at: u32, sum: Sum) {
    out_store(at, sum);
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(sum, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return words.xy;
}
