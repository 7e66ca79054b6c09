// Elementwise ops whose operands lie in different ways: broadcast, transposed, cut out.

struct Params {
    total: u32,
    rank: u32,
    whole: u32, // 1: rows are whole fours
    dense: u32, // bit k: of input k, of m, a, b, c, d, e, a whole four can be read at once
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>, // y, m, a, b, c, d, e
    still: u32, // bit k: input k has one value along the last dimension, of rows that are whole fours
    single: u32,
    given: u32,
    highest: f32,
    attrs: array<vec4<u32>, 2>,
    numbers: array<vec4<u32>, 3>,
}

// ---- Four elements at a time, into an output that is dense ----

fn m_four(at: vec4<u32>) -> vec4<bool> {
    if (!m_given) { return vec4<bool>(p.numbers[0].x != 0u); }
    if ((p.dense & 1u) != 0u) { return m_load4(at.x) != vec4<m_t>(); }
    if ((p.still & 1u) != 0u) { return vec4<bool>(m_load(at.x) != 0); }
    return vec4<bool>(m_load(at.x) != 0, m_load(at.y) != 0, m_load(at.z) != 0, m_load(at.w) != 0);
}
fn a_four(at: vec4<u32>) -> vec4<T> {
    if (!a_given) { return vec4<T>(ct_from_words(p.numbers[0].zw)); }
    if ((p.dense & 2u) != 0u) { return a_load4(at.x); }
    if ((p.still & 2u) != 0u) { return vec4<T>(a_load(at.x)); }
    return vec4<T>(a_load(at.x), a_load(at.y), a_load(at.z), a_load(at.w));
}
fn b_four(at: vec4<u32>) -> vec4<T> {
    if (!b_given) { return vec4<T>(ct_from_words(p.numbers[1].xy)); }
    if ((p.dense & 4u) != 0u) { return b_load4(at.x); }
    if ((p.still & 4u) != 0u) { return vec4<T>(b_load(at.x)); }
    return vec4<T>(b_load(at.x), b_load(at.y), b_load(at.z), b_load(at.w));
}
fn c_four(at: vec4<u32>) -> vec4<T> {
    if (!c_given) { return vec4<T>(ct_from_words(p.numbers[1].zw)); }
    if ((p.dense & 8u) != 0u) { return c_load4(at.x); }
    if ((p.still & 8u) != 0u) { return vec4<T>(c_load(at.x)); }
    return vec4<T>(c_load(at.x), c_load(at.y), c_load(at.z), c_load(at.w));
}
fn d_four(at: vec4<u32>) -> vec4<T> {
    if (!d_given) { return vec4<T>(ct_from_words(p.numbers[2].xy)); }
    if ((p.dense & 16u) != 0u) { return d_load4(at.x); }
    if ((p.still & 16u) != 0u) { return vec4<T>(d_load(at.x)); }
    return vec4<T>(d_load(at.x), d_load(at.y), d_load(at.z), d_load(at.w));
}
fn e_four(at: vec4<u32>) -> vec4<T> {
    if (!e_given) { return vec4<T>(ct_from_words(p.numbers[2].zw)); }
    if ((p.dense & 32u) != 0u) { return e_load4(at.x); }
    if ((p.still & 32u) != 0u) { return vec4<T>(e_load(at.x)); }
    return vec4<T>(e_load(at.x), e_load(at.y), e_load(at.z), e_load(at.w));
}

// Where the rows along the last dimension consist of whole fours, an input that is dense there is read so too.
fn rows(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        var at: ct_fours;
        if (p.whole == 1u) {
            at = ct_row_places(i);
        } else {
            at = ct_four_places(i);
        }
        let y = ct_formula_of_four(i, m_four(at.m), a_four(at.a), b_four(at.b), c_four(at.c), d_four(at.d), e_four(at.e));
        ct_store_results(i, y);
    }
}

// ---- One element at a time: of 64-bit integers, and into outputs that are not dense ----

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
