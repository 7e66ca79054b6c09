// Words filled with a pattern; of the last one the bits in keep stay.
struct Params {
    total: u32, // words
    rank: u32,
    keep: u32,
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 1>,
    pattern: vec4<u32>,
}

fn fill(group: u32, local: u32, groups: u32) {
    for (var w = group * THREADS + local; w < p.total; w += groups * THREADS) {
        var bits = select(p.pattern.x, p.pattern.y, (w & 1u) == 1u);
        if (w + 1u == p.total && p.keep != 0u) {
            bits = (bits & ~p.keep) | (to_word(w) & p.keep);
        }
        to_put(w, bits);
    }
}
