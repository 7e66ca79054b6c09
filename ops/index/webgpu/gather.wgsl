// Elements chosen along one axis. Where neighbours are chosen together, as in rows, an element is up to 16 bytes of
// them.
struct Params {
    total: u32,
    rank: u32,
    bound: u32, // of the axis in from: size and stride
    along: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 4>, // to, from (0 at the axis), index, the row-major place in index
}

fn gather(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = ct_place4(e);
        let k = ct_index_at(at.z, p.bound);
        if (k == ct_no_index) {
            ct_wrong_index(1u, at.w, ct_index_value(at.z), p.bound);
        } else {
            move_unit(at.x, at.y + k * p.along);
        }
    }
}
