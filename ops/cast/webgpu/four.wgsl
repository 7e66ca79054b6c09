// Conversion into a dense output, four elements at a time. read_one(i) and write_four(i, v) come with the launch: elements as bits, in one word
// or two.

struct Params {
    total: u32,
    rank: u32,
    linear: u32, // 1: x is dense as well, and of whole fours
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>,
}

fn four(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        if (p.linear == 1u) {
            let v = read_four(i);
            write_four(i, array<vec2<u32>, 4>(ct_convert(v[0]), ct_convert(v[1]), ct_convert(v[2]), ct_convert(v[3])));
        } else {
            var v: array<vec2<u32>, 4>;
            for (var k = 0u; k < 4u; k++) {
                v[k] = ct_convert(read_one(ct_place2(min(i + k, p.total - 1u)).y));
            }
            write_four(i, v);
        }
    }
}
