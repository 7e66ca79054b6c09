// The place of the first greatest or (GREATEST 0) first least of elements that are i64.
struct Sum {
    rank: ct_i64,
    place: u32, // 0xffffffff: of nothing
}

fn nothing() -> Sum {
    return Sum(ct_i64(0u, 0u), 0xffffffffu);
}

fn merge(a: Sum, b: Sum) -> Sum {
    if (ct_i64_below(a.rank, b.rank) || (all(a.rank == b.rank) && b.place < a.place)) {
        return b;
    }
    return a;
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    return merge(sum, Sum(ct_rank_i64(x, GREATEST == 1u), place));
}

fn put(at: u32, sum: Sum) {
    out_store(at, ct_i64(sum.place, 0u));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(sum.rank, sum.place, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return Sum(words.xy, words.z);
}
