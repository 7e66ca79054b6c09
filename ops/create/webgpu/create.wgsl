// Values that follow from their index: from start on, and behind `middle` backwards from stop, so that both ends are
// met. They are computed as f64 computes them.
struct Params {
    total: u32,
    rank: u32,
    middle: u32,
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 1>,
    start: vec2<u32>,
    step: vec2<u32>,
    stop: vec2<u32>,
    least: i32, // of integers narrower than i64
    most: i32,
}

fn line_at(e: u32) -> ct_f64 {
    if (e <= p.middle) {
        return ct_f64_add(p.start, ct_f64_mul(ct_f64_of_u32(e), p.step));
    }
    return ct_f64_add(p.stop, ct_f64_neg(ct_f64_mul(ct_f64_of_u32(p.total - 1u - e), p.step)));
}

fn line(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        y_store(ct_place1(e), value_at(e));
    }
}
