// A strided view filled with one element.
struct Params {
    total: u32,
    rank: u32,
    keep: u32,
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 1>,
    pattern: vec4<u32>,
}

fn fill(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        to_store(ct_place1(e), element());
    }
}
