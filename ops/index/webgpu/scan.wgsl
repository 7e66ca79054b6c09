// An element of the result, for which all indices are looked through that could send something there, in order. For few
// of them. Elements narrower than a word are made by an invocation for a whole one, where the result is dense.
struct Params {
    total: u32,
    rank: u32,
    length: u32, // indices of a lane
    bound: u32,
    dims: array<vec4<u32>, 2>,
    limits: array<vec4<u32>, 2>, // of index, which may end before the result does
    strides: array<array<vec4<u32>, 2>, 6>, // y, x, index, src, the place in index that errors name, and along the axis
    index_axis: u32,
    src_axis: u32,
    place_axis: u32,
    skip: u32, // an index that is left out
    alpha: vec2<u32>,
}

struct Found {
    to: u32,
    value: y_t,
}

fn found_at(e: u32) -> Found {
    var rest = e;
    var inside = true;
    var at = vec4<u32>(0u, 0u, 0u, 0u); // y, x, index, src
    var place = 0u;
    var key = 0u;
    for (var i = p.rank; i > 0u; i--) {
        let h = (i - 1u) >> 2u;
        let l = (i - 1u) & 3u;
        let next = rest / p.dims[h][l];
        let k = rest - next * p.dims[h][l];
        rest = next;
        inside = inside && k < p.limits[h][l];
        at += k * vec4<u32>(p.strides[0][h][l], p.strides[1][h][l], p.strides[2][h][l], p.strides[3][h][l]);
        place += k * p.strides[4][h][l];
        key += k * p.strides[5][h][l];
    }
    var value = x_load(at.y);
    if (inside) {
        for (var i = 0u; i < p.length; i++) {
            let k = ct_index_at(at.z + i * p.index_axis, p.bound);
            if (k == key && k != p.skip) {
                value = fold(value, scaled(src_load(at.w + i * p.src_axis)));
            } else if (k == ct_no_index && key == 0u) {
                ct_wrong_index(1u, place + i * p.place_axis, ct_index_value(at.z + i * p.index_axis), p.bound);
            }
        }
    }
    return Found(at.x, value);
}
