// x within a frame of one value, or cut: an element of the result, of up to 16 bytes, is one of x or the frame's.
struct Params {
    total: u32,
    rank: u32,
    pad_a: u32,
    pad_b: u32,
    dims: array<vec4<u32>, 2>, // of the result
    before: array<vec4<u32>, 2>, // where x begins in it, modulo 2^32
    sizes: array<vec4<u32>, 2>, // of x
    to_strides: array<vec4<u32>, 2>,
    from_strides: array<vec4<u32>, 2>,
    pattern: vec4<u32>,
}

fn frame(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        var rest = e;
        var to = 0u;
        var source = 0u;
        var inside = true;
        for (var i = p.rank; i > 0u; i--) {
            let h = (i - 1u) >> 2u;
            let l = (i - 1u) & 3u;
            let next = rest / p.dims[h][l];
            let place = rest - next * p.dims[h][l];
            let k = place - p.before[h][l];
            rest = next;
            inside = inside && k < p.sizes[h][l];
            to += place * p.to_strides[h][l];
            source += k * p.from_strides[h][l];
        }
        if (inside) {
            move_unit(to, source);
        } else {
            put_frame(to);
        }
    }
}
