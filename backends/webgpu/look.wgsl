// A look at indices alone: those that choose or send nothing have to be in range all the same, and calls that last know
// before they write.
struct Params {
    total: u32,
    rank: u32,
    bound: u32,
    place: u32, // of errors: from one index to the next
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 1>,
}

fn look(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = ct_place1(e);
        if (ct_index_at(at, p.bound) == ct_no_index) {
            ct_wrong_index(1u, e * p.place, ct_index_value(at), p.bound);
        }
    }
}
