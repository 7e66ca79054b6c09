// Whole quads of words filled with a pattern.
struct Params {
    total: u32, // quads
    rank: u32,
    keep: u32,
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 1>,
    pattern: vec4<u32>,
}

fn fill(group: u32, local: u32, groups: u32) {
    for (var q = group * THREADS + local; q < p.total; q += groups * THREADS) {
        to_store4(4u * q, bitcast<vec4<i32>>(p.pattern));
    }
}
