// Elementwise ops in general, one element at a time: of 64-bit integers, and into outputs that are not dense.

struct Params {
    total: u32,
    rank: u32,
    whole: u32,
    dense: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>, // y, m, a, b, c, d, e
    count: u32,
    single: u32,
    given: u32,
    highest: f32,
    attrs: array<vec4<u32>, 2>,
    numbers: array<vec4<u32>, 3>,
}

fn m_one(at: u32) -> bool {
    if (!m_given) { return p.numbers[0].x != 0u; }
    return m_load(at) != 0;
}
fn a_one(at: u32) -> T {
    if (!a_given) { return ct_from_words(p.numbers[0].zw); }
    return a_load(at);
}
fn b_one(at: u32) -> T {
    if (!b_given) { return ct_from_words(p.numbers[1].xy); }
    return b_load(at);
}
fn c_one(at: u32) -> T {
    if (!c_given) { return ct_from_words(p.numbers[1].zw); }
    return c_load(at);
}
fn d_one(at: u32) -> T {
    if (!d_given) { return ct_from_words(p.numbers[2].xy); }
    return d_load(at);
}
fn e_one(at: u32) -> T {
    if (!e_given) { return ct_from_words(p.numbers[2].zw); }
    return e_load(at);
}

fn strided(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS;
    for (var i = group * THREADS + local; i < p.total; i += step) {
        let at = ct_places_of(i);
        y_store(at.y, formula(m_one(at.m), a_one(at.a), b_one(at.b), c_one(at.c), d_one(at.d), e_one(at.e)));
    }
}
