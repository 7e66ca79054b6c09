// Convolutions without tiles, which take everything and are best where a group has few channels (depthwise) or strides
// have many phases. A result for each invocation; of weight gradients one for each workgroup, over a part of the
// positions, or LANES of them side by side.

struct Params {
    images: u32, groups: u32, channels: u32, results: u32, // of a group, of the source and of the result
    positions: u32, x_n: u32, x_c: u32, w_r: u32,
    w_c: u32, w_group: u32, y_n: u32, y_c: u32,
    r_n: u32, r_c: u32, bias_step: u32, parts: u32,
    part: u32, rests: u32, activation: u32, taps: u32,
    size: vec4<u32>, source: vec4<u32>, kernel: vec4<u32>, // of the three axes
    stride: vec4<u32>, before: vec4<u32>, dilation: vec4<u32>,
    x_s: vec4<u32>, w_k: vec4<u32>, y_s: vec4<u32>, r_s: vec4<u32>,
}

fn total(v: vec3<u32>) -> u32 { return v.x + v.y + v.z; }

fn place(within: u32) -> vec3<u32> {
    let line = within / p.size.z;
    return vec3<u32>(line / p.size.y, line % p.size.y, within % p.size.z);
}

// Where a position looks through a tap, along one axis: beyond the source if nowhere. Adjoint: which window sees it
// through the tap.
fn looks(at: u32, tap: u32, stride: u32, before: u32, dilation: u32) -> u32 {
    if (ADJOINT == 0u) { return at * stride + tap * dilation - before; }
    let seen = bitcast<i32>(at + before - tap * dilation);
    if (stride == 1u) { return bitcast<u32>(seen); } // below 0 it is beyond the source as well
    if (seen < 0 || seen % bitcast<i32>(stride) != 0) { return 0xffffffffu; }
    return bitcast<u32>(seen) / stride;
}

fn direct(group: u32, local: u32, groups: u32) {
    let outs = p.groups * p.results;
    for (var e = group * THREADS + local; e < p.images * p.positions * outs; e += groups * THREADS) {
        var result = e / p.positions % outs;
        var image = e / (p.positions * outs);
        var within = e % p.positions;
        if (LAST == 1u) {
            result = e % outs;
            image = e / (p.positions * outs);
            within = e / outs % p.positions;
        }
        let z = result / p.results;
        let at = place(within);
        let x_base = image * p.x_n + z * p.channels * p.x_c;
        let w_base = z * p.w_group + (result - z * p.results) * p.w_r;
        var sum = 0.0;
        for (var i = 0u; i < p.kernel.x; i++) {
            let at0 = looks(at.x, i, p.stride.x, p.before.x, p.dilation.x);
            if (at0 >= p.source.x) { continue; }
            for (var j = 0u; j < p.kernel.y; j++) {
                let at1 = looks(at.y, j, p.stride.y, p.before.y, p.dilation.y);
                if (at1 >= p.source.y) { continue; }
                for (var k = 0u; k < p.kernel.z; k++) {
                    let at2 = looks(at.z, k, p.stride.z, p.before.z, p.dilation.z);
                    if (at2 >= p.source.z) { continue; }
                    let x_at = x_base + total(vec3<u32>(at0, at1, at2) * p.x_s.xyz);
                    let w_at = w_base + total(vec3<u32>(i, j, k) * p.w_k.xyz);
                    for (var c = 0u; c < p.channels; c++) {
                        sum += x_load(x_at + c * p.x_c) * w_load(w_at + c * p.w_c);
                    }
                }
            }
        }
        if (bias_given) { sum += bias_load(result * p.bias_step); }
        if (residual_given) { sum += residual_load(image * p.r_n + result * p.r_c + total(at * p.r_s.xyz)); }
        if (ACTIVATED == 1u) { sum = ct_activate(p.activation, sum); }
        y_store(image * p.y_n + result * p.y_c + total(at * p.y_s.xyz), sum);
    }
}

// ---- Weights: y is read, w is written. `rests` counts channels of x and taps, and one more for the bias ----

var<workgroup> shares: array<f32, THREADS>;

fn product(k: u32, out: u32, channel: u32, tap: vec3<u32>, ones: bool) -> f32 {
    let image = k / p.positions;
    let at = place(k % p.positions);
    let g = y_load(image * p.y_n + out * p.y_c + total(at * p.y_s.xyz));
    if (ones) { return g; }
    let seen = at * p.stride.xyz + tap * p.dilation.xyz - p.before.xyz;
    if (any(seen >= p.source.xyz)) { return 0.0; }
    return g * x_load(image * p.x_n + channel * p.x_c + total(seen * p.x_s.xyz));
}

fn put(out: u32, rest: u32, sum: f32) {
    if (rest == p.channels * p.taps || !w_given) {
        bias_store(out * p.bias_step, sum);
        return;
    }
    let channel = rest / p.taps;
    let tap = rest % p.taps;
    let at = vec3<u32>(tap / (p.kernel.y * p.kernel.z), tap / p.kernel.z % p.kernel.y, tap % p.kernel.z);
    w_store(out * p.w_r + channel * p.w_c + total(at * p.w_k.xyz), sum);
}

fn weight(group: u32, local: u32, groups: u32) {
    let outs = p.groups * p.results;
    let across = (outs + LANES - 1u) / LANES;
    let out = group % across * LANES + local % LANES;
    let rest = group / across % p.rests;
    let part = group / (across * p.rests);
    let ones = rest == p.channels * p.taps || !w_given;
    let tap = rest % p.taps;
    let taps = vec3<u32>(tap / (p.kernel.y * p.kernel.z), tap / p.kernel.z % p.kernel.y, tap % p.kernel.z);
    let channel = out / p.results * p.channels + rest / p.taps;
    var sum = 0.0;
    if (out < outs) {
        let end = min((part + 1u) * p.part, p.images * p.positions);
        for (var k = part * p.part + local / LANES; k < end; k += THREADS / LANES) {
            sum += product(k, out, channel, taps, ones);
        }
    }
    sum = gathered(local, sum);
    if (local >= LANES || out >= outs) { return; }
    if (PARTS == 1u) {
        parts_store((part * p.rests + rest) * outs + out, sum);
    } else {
        put(out, rest, sum);
    }
}

// The sum over all invocations that have the same of LANES, in those that are below LANES.
fn gathered(local: u32, share: f32) -> f32 {
    workgroupBarrier();
    shares[local] = share;
    for (var half = THREADS / 2u; half >= LANES; half /= 2u) {
        workgroupBarrier();
        if (local < half) { shares[local] += shares[local + half]; }
    }
    return shares[local];
}

// Of one channel of x for each of g's, with J0, J1, J2 taps, few in all: all of them at once, and the bias.
fn weight_all(group: u32, local: u32, groups: u32) {
    let outs = p.groups * p.results;
    let across = (outs + LANES - 1u) / LANES;
    let out = group % across * LANES + local % LANES;
    let part = group / across;
    let taps = J0 * J1 * J2;
    var sums: array<f32, J0 * J1 * J2 + 1u>;
    if (out < outs) {
        let end = min((part + 1u) * p.part, p.images * p.positions);
        for (var k = part * p.part + local / LANES; k < end; k += THREADS / LANES) {
            let image = k / p.positions;
            let at = place(k - image * p.positions);
            let g = y_load(image * p.y_n + out * p.y_c + total(at * p.y_s.xyz));
            let x_at = image * p.x_n + out / p.results * p.x_c;
            sums[taps] += g;
            for (var t = 0u; t < taps; t++) {
                let tap = vec3<u32>(t / (J1 * J2), t / J2 % J1, t % J2);
                let seen = at * p.stride.xyz + tap * p.dilation.xyz - p.before.xyz;
                if (all(seen < p.source.xyz)) { sums[t] += g * x_load(x_at + total(seen * p.x_s.xyz)); }
            }
        }
    }
    for (var t = 0u; t <= taps; t++) {
        let sum = gathered(local, sums[t]);
        if (local < LANES && out < outs) {
            if (PARTS == 1u) {
                parts_store((part * p.rests + t) * outs + out, sum);
            } else {
                put(out, t, sum);
            }
        }
    }
}

fn weight_finish(group: u32, local: u32, groups: u32) {
    let outs = p.groups * p.results;
    for (var e = group * THREADS + local; e < outs * p.rests; e += groups * THREADS) {
        var sum = 0.0;
        for (var part = 0u; part < p.parts; part++) { sum += parts_load(part * outs * p.rests + e); }
        put(e % outs, e / outs, sum);
    }
}
