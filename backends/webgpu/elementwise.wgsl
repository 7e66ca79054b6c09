// Elementwise ops of which every operand lies as the output does, or is one value: four elements at a time. The formula is
// `formula(m, a, b, c, d, e)`, a mask and five numbers of which an op uses some (gen/webgpu/elementwise.inc).

struct Params {
    total: u32,
    single: u32,   // bit k: input k, of m, a, b, c, d, e, is one value
    given: u32,    // bit k: attribute k was set
    highest: f32,  // the largest finite number of the dtype
    attrs: array<vec4<u32>, 2>,   // two words each
    numbers: array<vec4<u32>, 3>, // the same of m, a, b, c, d, e, where the host has the value
}

fn m_four(i: u32) -> vec4<bool> {
    if (!m_given) { return vec4<bool>(p.numbers[0].x != 0u); }
    if ((p.single & 1u) != 0u) { return vec4<bool>(m_load(0u) != 0); }
    return m_load4(i) != vec4<m_t>();
}
fn a_four(i: u32) -> vec4<T> {
    if (!a_given) { return vec4<T>(ct_from_words(p.numbers[0].zw)); }
    if ((p.single & 2u) != 0u) { return vec4<T>(a_load(0u)); }
    return a_load4(i);
}
fn b_four(i: u32) -> vec4<T> {
    if (!b_given) { return vec4<T>(ct_from_words(p.numbers[1].xy)); }
    if ((p.single & 4u) != 0u) { return vec4<T>(b_load(0u)); }
    return b_load4(i);
}
fn c_four(i: u32) -> vec4<T> {
    if (!c_given) { return vec4<T>(ct_from_words(p.numbers[1].zw)); }
    if ((p.single & 8u) != 0u) { return vec4<T>(c_load(0u)); }
    return c_load4(i);
}
fn d_four(i: u32) -> vec4<T> {
    if (!d_given) { return vec4<T>(ct_from_words(p.numbers[2].xy)); }
    if ((p.single & 16u) != 0u) { return vec4<T>(d_load(0u)); }
    return d_load4(i);
}
fn e_four(i: u32) -> vec4<T> {
    if (!e_given) { return vec4<T>(ct_from_words(p.numbers[2].zw)); }
    if ((p.single & 32u) != 0u) { return vec4<T>(e_load(0u)); }
    return e_load4(i);
}

fn quads(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        ct_store_results(i, ct_formula_of_four(i, m_four(i), a_four(i), b_four(i), c_four(i), d_four(i), e_four(i)));
    }
}

// Twice four, of which all is read before anything is computed: more is under way in memory.
fn octets(group: u32, local: u32, groups: u32) {
    let apart = THREADS * 4u;
    let step = groups * apart * 2u;
    for (var i = group * apart * 2u + local * 4u; i < p.total; i += step) {
        let two = i + apart < p.total;
        let j = select(i, i + apart, two);
        let m = m_four(i);
        let a = a_four(i);
        let b = b_four(i);
        let c = c_four(i);
        let d = d_four(i);
        let e = e_four(i);
        let n = m_four(j);
        let f = a_four(j);
        let g = b_four(j);
        let h = c_four(j);
        let k = d_four(j);
        let l = e_four(j);
        ct_store_results(i, ct_formula_of_four(i, m, a, b, c, d, e));
        if (two) {
            ct_store_results(j, ct_formula_of_four(j, n, f, g, h, k, l));
        }
    }
}
