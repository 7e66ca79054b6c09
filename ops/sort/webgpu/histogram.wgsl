// The part of lo..hi that each element falls into, in the arithmetic of f64, so that it is the same one everywhere.
struct Params {
    total: u32,
    bins: u32,
    out_step: u32,
    lo: vec2<u32>,
    hi: vec2<u32>,
    width: vec2<u32>, // hi - lo
    scale: vec2<u32>, // bins / width
    dims: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}

fn element_at(i: u32) -> u32 {
    var rest = i;
    var at = 0u;
    for (var d = RANK - 1u; d > 0u; d--) {
        let size = p.dims[d / 4u][d % 4u];
        at += rest % size * p.strides[d / 4u][d % 4u];
        rest /= size;
    }
    return at + rest * p.strides[0].x;
}

// Where part k begins.
fn edge_of(k: u32) -> ct_f64 {
    return ct_f64_add(p.lo, ct_f64_mul(p.width, ct_f64_div(ct_f64_of_u32(k), ct_f64_of_u32(p.bins))));
}

// `bins` for none. Division rounds: the part is corrected by its own edges.
fn part_of(v: ct_f64) -> u32 {
    if ((v.y & 0x7ff00000u) == 0x7ff00000u || ct_f64_less(v, p.lo) || ct_f64_less(p.hi, v)) {
        return p.bins;
    }
    let whole = ct_f64_to_i64(ct_f64_mul(ct_f64_add(v, ct_f64_neg(p.lo)), p.scale));
    let k = select(min(whole.x, p.bins - 1u), p.bins - 1u, whole.y != 0u);
    if (k > 0u && ct_f64_less(v, edge_of(k))) {
        return k - 1u;
    }
    if (k + 1u < p.bins && !ct_f64_less(v, edge_of(k + 1u))) {
        return k + 1u;
    }
    return k;
}

fn parts(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.total; i += groups * THREADS) {
        out_store(i * p.out_step, ct_i64(part_of(number_of(x_load(element_at(i)))), 0u));
    }
}
