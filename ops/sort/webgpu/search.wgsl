// searchsorted: a binary search per value. Keys (Key, key_of, below) order as the elements do; NaN is the greatest and
// equals NaN.
struct Params {
    total: u32,
    m: u32, // values of a line
    n: u32, // elements of a sorted line
    right: u32, // behind equals
    step: vec4<u32>, // of values, sorted, out
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 3>,
}

fn search(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.total; i += groups * THREADS) {
        let at = ct_line_at(i / p.m) + i % p.m * vec3<u32>(p.step.x, 0u, p.step.z);
        let key = key_of(values_load(at.x));
        var low = 0u;
        var high = p.n;
        while (low < high) {
            let middle = (low + high) / 2u;
            let other = key_of(sorted_load(at.y + middle * p.step.y));
            if (select(below(other, key), !below(key, other), p.right == 1u)) {
                low = middle + 1u;
            } else {
                high = middle;
            }
        }
        out_store(at.z, ct_i64(low, 0u));
    }
}
