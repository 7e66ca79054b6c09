// What the loops of elementwise ops share (backends/webgpu/elementwise*.wgsl): they name its operands and Params.

// ---- The formula of four elements ----

// Of the four from i on. A costly formula is compiled once, in a loop whose end no compiler knows.
fn ct_formula_of_four(i: u32, m: vec4<bool>, a: vec4<T>, b: vec4<T>, c: vec4<T>, d: vec4<T>, e: vec4<T>) -> vec4<y_t> {
    if (COSTLY == 1u) {
        var y: vec4<y_t>;
        for (var k = 0u; k < min(p.total - i, 4u); k++) {
            y[k] = formula(m[k], a[k], b[k], c[k], d[k], e[k]);
        }
        return y;
    }
    return vec4<y_t>(formula(m.x, a.x, b.x, c.x, d.x, e.x), formula(m.y, a.y, b.y, c.y, d.y, e.y),
                     formula(m.z, a.z, b.z, c.z, d.z, e.z), formula(m.w, a.w, b.w, c.w, d.w, e.w));
}
// The last four may be fewer. What lies behind them is kept: nobody else writes it meanwhile.
fn ct_store_results(i: u32, v: vec4<y_t>) {
    if (i + 4u <= p.total) {
        y_store4(i, v);
    } else {
        y_store4(i, select(y_load4(i), v, i + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.total)));
    }
}

// ---- Where elements lie ----

struct ct_places {
    y: u32,
    m: u32,
    a: u32,
    b: u32,
    c: u32,
    d: u32,
    e: u32,
}
fn ct_stride_of(k: u32, dim: u32) -> u32 {
    return p.strides[k][dim >> 2u][dim & 3u];
}
// Places, moved by n steps along a dimension.
fn ct_moved(at: ct_places, n: u32, dim: u32) -> ct_places {
    var to = at;
    to.y += n * ct_stride_of(0u, dim);
    if (m_given) { to.m += n * ct_stride_of(1u, dim); }
    if (a_given) { to.a += n * ct_stride_of(2u, dim); }
    if (b_given) { to.b += n * ct_stride_of(3u, dim); }
    if (c_given) { to.c += n * ct_stride_of(4u, dim); }
    if (d_given) { to.d += n * ct_stride_of(5u, dim); }
    if (e_given) { to.e += n * ct_stride_of(6u, dim); }
    return to;
}
// Of element i of the nest.
fn ct_places_of(i: u32) -> ct_places {
    var at = ct_places(0u, 0u, 0u, 0u, 0u, 0u, 0u);
    var rest = i;
    for (var dim = p.rank - 1u; dim > 0u; dim--) {
        let size = p.dims[dim >> 2u][dim & 3u];
        let next = rest / size;
        at = ct_moved(at, rest - next * size, dim);
        rest = next;
    }
    return ct_moved(at, rest, 0u);
}

struct ct_fours {
    m: vec4<u32>,
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
    e: vec4<u32>,
}
// Of elements i to i + 3 of one row.
fn ct_row_places(i: u32) -> ct_fours {
    let at = ct_places_of(i);
    let dim = p.rank - 1u;
    let k = vec4<u32>(0u, 1u, 2u, 3u);
    return ct_fours(at.m + k * ct_stride_of(1u, dim), at.a + k * ct_stride_of(2u, dim), at.b + k * ct_stride_of(3u, dim),
                    at.c + k * ct_stride_of(4u, dim), at.d + k * ct_stride_of(5u, dim), at.e + k * ct_stride_of(6u, dim));
}
// Of elements i to i + 3 wherever they are.
fn ct_four_places(i: u32) -> ct_fours {
    var to: ct_fours;
    for (var k = 0u; k < min(p.total - i, 4u); k++) {
        let at = ct_places_of(i + k);
        to.m[k] = at.m;
        to.a[k] = at.a;
        to.b[k] = at.b;
        to.c[k] = at.c;
        to.d[k] = at.d;
        to.e[k] = at.e;
    }
    return to;
}
