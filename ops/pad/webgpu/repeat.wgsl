// Frames that repeat x: an element of the result, from where it stands in x.
struct Params {
    total: u32,
    rank: u32,
    mode: u32, // 1 reflect, 2 replicate, 3 circular
    pad: u32,
    sizes: array<vec4<u32>, 2>, // of x
    before: array<vec4<u32>, 2>,
    widths: array<vec4<u32>, 2>, // of the result
    small: array<vec4<u32>, 2>, // strides of x
    large: array<vec4<u32>, 2>, // and of the result
}

fn source_of(place: u32, before: u32, size: u32) -> u32 {
    let at = i32(place) - i32(before);
    let last = i32(size) - 1;
    if (p.mode == 1u) {
        return u32(last - abs(last - abs(at)));
    }
    if (p.mode == 2u) {
        return u32(clamp(at, 0, last));
    }
    return u32(select(select(at, at - i32(size), at > last), at + i32(size), at < 0));
}

fn repeat(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        var rest = e;
        var to = 0u;
        var source = 0u;
        for (var i = p.rank; i > 0u; i--) {
            let h = (i - 1u) >> 2u;
            let l = (i - 1u) & 3u;
            let next = rest / p.widths[h][l];
            let place = rest - next * p.widths[h][l];
            rest = next;
            to += place * p.large[h][l];
            source += source_of(place, p.before[h][l], p.sizes[h][l]) * p.small[h][l];
        }
        move_unit(to, source);
    }
}
