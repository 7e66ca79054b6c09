// Conversion between dtypes. convert and what reads and writes come with the launch: elements as bits, in one word or
// two, low and high.

struct Params {
    total: u32,
    rank: u32,
    pad_a: u32,
    pad_b: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>,
}

// Into an output that is dense. The end of the inner loop is no constant, so that the conversion is compiled once.
fn four(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        var low: vec4<u32>;
        var high: vec4<u32>;
        for (var k = 0u; k < min(p.total - i, 4u); k++) {
            let y = convert(read_one(ct_place2(i + k).y));
            low[k] = y.x;
            high[k] = y.y;
        }
        write_four(i, low, high);
    }
}
// The same where x is dense, too: fast, and longer to compile.
fn linear(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        let low = read_low(i);
        let high = read_high(i);
        let a = convert(vec2<u32>(low.x, high.x));
        let b = convert(vec2<u32>(low.y, high.y));
        let c = convert(vec2<u32>(low.z, high.z));
        let d = convert(vec2<u32>(low.w, high.w));
        write_four(i, vec4<u32>(a.x, b.x, c.x, d.x), vec4<u32>(a.y, b.y, c.y, d.y));
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
