// searchsorted: a binary search per value. Keys (Key, key_of, below) order as the elements do; NaN is the greatest and equals NaN.
struct Params {
    total: u32,
    m: u32, // values of a line
    n: u32, // elements of a sorted line
    right: u32, // behind equals
    step: vec4<u32>, // of values, sorted, out
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 3>,
}

fn row_at(i: u32) -> vec3<u32> {
    var rest = i;
    var at = vec3<u32>(0u, 0u, 0u);
    for (var d = RANK - 1u; d > 0u; d--) {
        let size = p.dims[d / 4u][d % 4u];
        let place = rest % size;
        rest /= size;
        at += place * vec3<u32>(p.strides[0][d / 4u][d % 4u], p.strides[1][d / 4u][d % 4u], p.strides[2][d / 4u][d % 4u]);
    }
    return at + rest * vec3<u32>(p.strides[0][0].x, p.strides[1][0].x, p.strides[2][0].x);
}

fn search(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.total; i += groups * THREADS) {
        let at = row_at(i / p.m) + i % p.m * vec3<u32>(p.step.x, 0u, p.step.z);
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
