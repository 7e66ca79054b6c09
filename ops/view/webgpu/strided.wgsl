// strided_grad: an element of the result by an invocation, which finds all elements of g whose place it is and adds
// them in order. The dimensions of g come by falling stride in the result; `reach` is how far those behind one go, so
// that of each only the indices are tried that can lead there.
struct Params {
    total: u32,
    rank: u32, // of y
    g_rank: u32,
    offset: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 1>,
    g_dims: array<vec4<u32>, 2>,
    g_to: array<vec4<u32>, 2>, // strides in the result, as if it were dense
    g_strides: array<vec4<u32>, 2>,
    reach: array<vec4<u32>, 2>,
}

// The indices of dimension d that can bridge a distance, first and last; none where the first is greater.
fn candidates(d: u32, distance: u32) -> vec2<u32> {
    let size = p.g_dims[d >> 2u][d & 3u];
    let stride = p.g_to[d >> 2u][d & 3u];
    let reach = p.reach[d >> 2u][d & 3u];
    if (stride == 0u) {
        return select(vec2<u32>(0u, size - 1u), vec2<u32>(1u, 0u), distance > reach);
    }
    let first = select(0u, (distance - reach + stride - 1u) / stride, distance > reach);
    return vec2<u32>(first, min(distance / stride, size - 1u));
}

fn sum_at(distance: u32) -> f32 {
    if (p.g_rank == 0u) {
        return select(0.0, g_load(0u), distance == 0u);
    }
    var rest: array<u32, 9>;
    var at: array<u32, 9>;
    var tried: array<vec2<u32>, 8>;
    var sum = 0.0;
    var d = 0u;
    rest[0] = distance;
    at[0] = 0u;
    tried[0] = candidates(0u, distance);
    loop {
        if (tried[d].x > tried[d].y) {
            if (d == 0u) {
                break;
            }
            d--;
            tried[d].x++;
            continue;
        }
        let place = at[d] + tried[d].x * p.g_strides[d >> 2u][d & 3u];
        if (d + 1u == p.g_rank) {
            sum += g_load(place);
            tried[d].x++;
            continue;
        }
        let left = rest[d] - tried[d].x * p.g_to[d >> 2u][d & 3u];
        d++;
        rest[d] = left;
        at[d] = place;
        tried[d] = candidates(d, left);
    }
    return sum;
}

fn strided_grad(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        var sum = 0.0;
        if (e >= p.offset) {
            sum = sum_at(e - p.offset);
        }
        y_store(ct_place1(e), sum);
    }
}
