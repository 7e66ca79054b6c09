// The place of the first greatest or (GREATEST 0) first least of elements that are loaded as f32 (REAL) or i32.
struct Sum {
    rank: u32,
    place: u32, // 0xffffffff: of nothing
}

fn nothing() -> Sum {
    return Sum(0u, 0xffffffffu);
}

fn merge(a: Sum, b: Sum) -> Sum {
    if (b.rank > a.rank || (b.rank == a.rank && b.place < a.place)) {
        return b;
    }
    return a;
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    let bits = ct_one_zero(bitcast<u32>(x), REAL == 1u);
    return merge(sum, Sum(ct_rank(bits, REAL == 1u, GREATEST == 1u), place));
}

fn put(at: u32, sum: Sum) {
    out_store(at, ct_i64(sum.place, 0u));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(sum.rank, sum.place, 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return Sum(words.x, words.y);
}
