// Where each element is sent, as a number that they are sorted by: a row, or the row-major place in the result.
struct Params {
    total: u32,
    rank: u32,
    bound: u32,
    none: u32, // the key of what is left out
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 2>, // of the key, at index 0; of index
    along: u32, // what the index counts for
    skip: u32,
    place: u32, // of errors: from one index to the next
}

fn find_keys(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = ct_place2(e);
        let k = ct_index_at(at.y, p.bound);
        var key = p.none;
        if (k == ct_no_index) {
            ct_wrong_index(1u, e * p.place, ct_index_value(at.y), p.bound);
        } else if (k != p.skip) {
            key = at.x + k * p.along;
        }
        keys_store(e, i32(key));
        places_store(e, i32(e));
    }
}
