// Copies of strided views, an element by an invocation; the host has made elements as wide as can be, up to 16 bytes.
struct Params {
    total: u32,
    rank: u32,
    length: u32,
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 2>,
}

fn copy(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = ct_place2(e);
        move_unit(at.x, at.y);
    }
}
