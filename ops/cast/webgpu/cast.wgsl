// Conversion between dtypes. convert, read_one, read_four, write_one and write_four come with the launch:
// elements as bits, in one word or two.

struct Params {
    total: u32,
    rank: u32,
    pad_a: u32,
    pad_b: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>,
}

// Into an output that is dense.
fn four(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        var v: array<vec2<u32>, 4>;
        for (var k = 0u; k < 4u; k++) {
            v[k] = convert(read_one(ct_place2(min(i + k, p.total - 1u)).y));
        }
        write_four(i, v);
    }
}
// The same where x is dense, too: fast, and longer to compile.
fn linear(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        let v = read_four(i);
        write_four(i, array<vec2<u32>, 4>(convert(v[0]), convert(v[1]), convert(v[2]), convert(v[3])));
    }
}
// Into any output.
fn one(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS;
    for (var i = group * THREADS + local; i < p.total; i += step) {
        let at = ct_place2(i);
        write_one(at.x, convert(read_one(at.y)));
    }
}
