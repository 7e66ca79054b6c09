// Lines times the sparse matrix of taps.wgsl, or its transposed: an element of the result by an invocation, in order of
// the taps.
struct Params {
    total: u32,
    rank: u32,
    length: u32, // of the line that is resampled
    results: u32, // of the resampled line
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 4>, // y, x (0 at the axis), the place along the axis, 0
    along: u32, // the stride of x at the axis
}

struct Taps {
    count: u32,
    first: i32,
    weights: vec4<f32>,
}

// The cubic convolution kernel of Keys with a = -3/4, at the distances f and 1 + f, by its zeros, where 32 bits lose
// nothing; r is 1 - f.
fn cubic_near(f: f32, r: f32) -> f32 { return r * (1.0 + f - 1.25 * f * f); }
fn cubic_far(f: f32, r: f32) -> f32 { return -0.75 * f * r * r; }

fn taps_at(o: u32) -> Taps {
    let first = taps_load(2u * o);
    let second = taps_load(2u * o + 1u);
    if (MODE == NEAREST || MODE == NEAREST_EXACT) {
        return Taps(1u, first, vec4<f32>(1.0, 0.0, 0.0, 0.0));
    }
    if (MODE == AREA) {
        return Taps(u32(second - first), first, vec4<f32>(1.0 / f32(second - first)));
    }
    let f = bitcast<f32>(second);
    if (MODE == BICUBIC) {
        let r = 1.0 - f;
        return Taps(4u, first - 1, vec4<f32>(cubic_far(f, r), cubic_near(f, r), cubic_near(r, f), cubic_far(r, f)));
    }
    return Taps(2u, first, vec4<f32>(1.0 - f, f, 0.0, 0.0));
}

fn element_of(taps: Taps, k: u32) -> u32 { return u32(clamp(taps.first + i32(k), 0, i32(p.length) - 1)); }
fn weight_of(taps: Taps, k: u32) -> f32 { return taps.weights[select(k, 0u, MODE == AREA)]; }

fn resample(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = ct_place4(e);
        let taps = taps_at(at.z);
        var sum = 0.0;
        for (var k = 0u; k < taps.count; k++) {
            sum += weight_of(taps, k) * x_load(at.y + element_of(taps, k) * p.along);
        }
        y_store(at.x, sum);
    }
}

// The first element of the resampled line whose first or last tap is not before i: both only ever move on.
fn search(i: u32, last: bool) -> u32 {
    var low = 0u;
    var high = p.results;
    while (low < high) {
        let middle = (low + high) / 2u;
        let taps = taps_at(middle);
        if (element_of(taps, select(0u, taps.count - 1u, last)) < i) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

fn resample_grad(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = ct_place4(e);
        let end = search(at.z + 1u, false);
        var sum = 0.0;
        for (var o = search(at.z, true); o < end; o++) {
            let taps = taps_at(o);
            for (var k = 0u; k < taps.count; k++) {
                if (element_of(taps, k) == at.z) {
                    sum += weight_of(taps, k) * x_load(at.y + o * p.along);
                }
            }
        }
        y_store(at.x, sum);
    }
}
