// The gradient of repeat.wgsl: an element of x's gradient is the sum of all places that show it, axis by axis in the
// order in which these lie.
struct Params {
    total: u32,
    rank: u32,
    mode: u32,
    pad: u32,
    sizes: array<vec4<u32>, 2>, // of y
    before: array<vec4<u32>, 2>,
    widths: array<vec4<u32>, 2>, // of g
    small: array<vec4<u32>, 2>, // strides of y
    large: array<vec4<u32>, 2>, // and of g
}

// Along an axis, of one element: how many places may show it, and the first (replicate) or its own (the other modes,
// where it is the second of three).
struct Shown {
    first: i32,
    count: u32,
}

fn shown(d: u32, i: u32) -> Shown {
    let size = i32(p.sizes[d >> 2u][d & 3u]);
    let before = i32(p.before[d >> 2u][d & 3u]);
    let width = i32(p.widths[d >> 2u][d & 3u]);
    let own = before + i32(i);
    if (p.mode == 2u) {
        let first = select(own, 0, i == 0u);
        let end = select(own + 1, width, i32(i) == size - 1);
        return Shown(first, u32(end - first));
    }
    return Shown(own, 3u);
}

// Place k of three: what stands before x, x, and what stands behind it; -1: there is none.
fn place_of(d: u32, i: u32, s: Shown, k: u32) -> i32 {
    let size = i32(p.sizes[d >> 2u][d & 3u]);
    let before = i32(p.before[d >> 2u][d & 3u]);
    let width = i32(p.widths[d >> 2u][d & 3u]);
    let at = i32(i);
    if (p.mode == 2u) {
        return s.first + i32(k);
    }
    if (k == 1u) {
        return s.first;
    }
    if (k == 0u) {
        let left = before + select(at - size, -at, p.mode == 1u);
        return select(-1, left, left >= 0 && left < before);
    }
    let right = before + select(at + size, 2 * (size - 1) - at, p.mode == 1u);
    return select(-1, right, right < width && right >= before + size);
}

fn repeat_grad(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        var rest = e;
        var to = 0u;
        var at: array<u32, 8>;
        for (var d = p.rank; d > 0u;) {
            d--;
            let next = rest / p.sizes[d >> 2u][d & 3u];
            at[d] = rest - next * p.sizes[d >> 2u][d & 3u];
            rest = next;
            to += at[d] * p.small[d >> 2u][d & 3u];
        }
        var sum = 0.0;
        var tried: array<u32, 8>;
        var places: array<u32, 9>;
        var d = 0u;
        places[0] = 0u;
        tried[0] = 0u;
        loop {
            let s = shown(d, at[d]);
            if (tried[d] == s.count) {
                if (d == 0u) {
                    break;
                }
                d--;
                tried[d]++;
                continue;
            }
            let place = place_of(d, at[d], s, tried[d]);
            let from_here = places[d] + u32(place) * p.large[d >> 2u][d & 3u];
            if (place < 0) {
                tried[d]++;
            } else if (d + 1u == p.rank) {
                sum += g_load(from_here);
                tried[d]++;
            } else {
                d++;
                places[d] = from_here;
                tried[d] = 0u;
            }
        }
        y_store(to, sum);
    }
}
