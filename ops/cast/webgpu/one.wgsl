// Conversion into any output, an element at a time.

struct Params {
    total: u32,
    rank: u32,
    linear: u32,
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>,
}

fn one(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS;
    for (var i = group * THREADS + local; i < p.total; i += step) {
        let at = ct_place2(i);
        write_one(at.x, ct_convert(read_one(at.y)));
    }
}
