// The problems of gather.wgsl on drivers that compute on a CPU, where workgroup memory is ordinary memory, and a branch
// or a division costs more than what it saves. Three dispatches:
//
//   pad         the source with zeros around it, [image][channel][extent.x][extent.y][extent.z], as much of it as taps
//               look at, from where the first one looks
//   arrange     the weight as [group][channel][taps][results], the taps of an axis that are looked at backwards in
//               reverse, so that all are looked at forwards; results to a multiple of 8, TAPS_HELD taps along a line
//   multiply_padded   an invocation has 8 channels of the result at 8 positions, two quads of neighbors in a line, and
//               walks over channels and taps without asking anything. Where a line's taps look at neighbors (SLIDES),
//               quads of the source serve four taps each.
//
// To the last, x is what pad has made and w what arrange has made.

const LINES = J0 * J1;
const RUN = select(1u, 4u, SLIDES == 1u); // taps at a time
const RUNS = (J2 + RUN - 1u) / RUN;

fn results_held() -> u32 { return (p.results + 7u) / 8u * 8u; }

// Along an axis: by how much places are less than what tap 0 looks at.
fn first_look() -> vec3<i32> {
    let by = bitcast<vec3<i32>>(p.spacing.xyz) * vec3<i32>(i32(J0) - 1, i32(J1) - 1, i32(J2) - 1);
    return bitcast<vec3<i32>>(p.offset.xyz) + min(by, vec3<i32>());
}

fn pad(group: u32, local: u32, groups: u32) {
    let quads = p.extent_z / 4u;
    let channels = p.batches * p.channels;
    let first = first_look();
    for (var e = group * THREADS + local; e < p.images * channels * p.extent_x * p.extent_y * quads;
         e += groups * THREADS) {
        let line = e / quads;
        let plane = line / (p.extent_x * p.extent_y);
        let at = vec3<i32>(i32(line / p.extent_y % p.extent_x), i32(line % p.extent_y), i32(e % quads * 4u)) + first;
        let begins = plane / channels * p.x_n + plane % channels * p.x_c + u32(at.x) * p.x_s.x + u32(at.y) * p.x_s.y;
        let inside = u32(at.x) < p.source.x && u32(at.y) < p.source.y;
        var v = vec4<f32>();
        for (var i = 0; i < 4; i++) {
            let column = u32(at.z + i);
            if (inside && column < p.source.z) { v[i] = x_load(begins + column * p.x_s.z); }
        }
        to_store4(e * 4u, v);
    }
}

// Tap j of J in the order in which they are looked at forwards.
fn forwards(j: u32, taps: u32, spacing: u32) -> u32 { return select(j, taps - 1u - j, bitcast<i32>(spacing) < 0); }

fn arrange(group: u32, local: u32, groups: u32) {
    let quads = results_held() / 4u;
    for (var e = group * THREADS + local; e < p.batches * p.channels * J0 * J1 * TAPS_HELD * quads;
         e += groups * THREADS) {
        let tap = e / quads;
        let channel = tap / (J0 * J1 * TAPS_HELD);
        let j0 = forwards(tap / (J1 * TAPS_HELD) % J0, J0, p.spacing.x);
        let j1 = forwards(tap / TAPS_HELD % J1, J1, p.spacing.y);
        let j2 = forwards(tap % TAPS_HELD, J2, p.spacing.z);
        let begins = p.w_base + channel / p.channels * p.w_group + channel % p.channels * p.w_c + j0 * p.w_k.x +
                   j1 * p.w_k.y + j2 * p.w_k.z;
        let result = e % quads * 4u;
        var v = vec4<f32>();
        for (var i = 0u; i < 4u; i++) {
            if (j2 < J2 && result + i < p.results) { v[i] = w_load(begins + (result + i) * p.w_r); }
        }
        to_store4(e * 4u, v);
    }
}

fn quad_at(position: u32) -> u32 {
    let to = place(min(position, p.positions * p.images - 4u));
    return (((to.x * p.batches * p.channels + z * p.channels) * p.extent_x + to.y * p.step.x) * p.extent_y +
            to.z * p.step.y) * p.extent_z + to.w * p.step.z;
}

fn add_tap(x0: vec4<E>, x1: vec4<E>, w: u32) {
    let w0 = w_load4(w);
    let w1 = w_load4(w + 4u);
    if (LAST == 1u) { ct_sums_add(x0, x1, w0, w1); } else { ct_sums_add(w0, w1, x0, x1); }
}

fn four_apart(at: u32, step: u32) -> vec4<E> {
    return vec4<E>(x_load(at), x_load(at + step), x_load(at + 2u * step), x_load(at + 3u * step));
}

fn multiply_padded(group: u32, local: u32, groups: u32) {
    let octets = (p.positions * p.images + 7u) / 8u;
    let held = results_held();
    let blocks = held / 8u;
    let e = group * THREADS + local;
    if (e >= octets * blocks * p.batches) { return; }
    let position = e % octets * 8u;
    let channel = e / octets % blocks * 8u;
    begin(e / (octets * blocks));
    let q0 = quad_at(position);
    let q1 = quad_at(position + 4u);
    let plane = p.extent_x * p.extent_y * p.extent_z;
    let by0 = u32(abs(bitcast<i32>(p.spacing.x))) * p.extent_y * p.extent_z;
    let by1 = u32(abs(bitcast<i32>(p.spacing.y))) * p.extent_z;
    let by2 = u32(abs(bitcast<i32>(p.spacing.z)));
    let step = p.step.z;
    var w = z * p.channels * J0 * J1 * TAPS_HELD * held + channel;
    // One loop for all: at the borders of loops such drivers move all the sums.
    for (var i = 0u; i < p.channels * LINES * RUNS; i++) {
        let j = i / RUNS % LINES;
        let t = i % RUNS * RUN;
        let line = i / (RUNS * LINES) * plane + j / J1 * by0 + j % J1 * by1;
        let at0 = q0 + line + t * by2;
        let at1 = q1 + line + t * by2;
        if (SLIDES == 1u) {
            let v0 = x_load4(at0);
            let v1 = x_load4(at1);
            add_tap(v0, v1, w);
            if (J2 > 1u) {
                let n0 = x_load4(at0 + 4u);
                let n1 = x_load4(at1 + 4u);
                add_tap(vec4<E>(v0.yzw, n0.x), vec4<E>(v1.yzw, n1.x), w + held);
                if (J2 > 2u) { add_tap(vec4<E>(v0.zw, n0.xy), vec4<E>(v1.zw, n1.xy), w + 2u * held); }
                if (J2 > 3u) { add_tap(vec4<E>(v0.w, n0.xyz), vec4<E>(v1.w, n1.xyz), w + 3u * held); }
            }
        } else {
            add_tap(four_apart(at0, step), four_apart(at1, step), w);
        }
        w += min(RUN, TAPS_HELD) * held;
    }
    let row = select(channel, position, LAST == 1u);
    let column = select(position, channel, LAST == 1u);
    for (var i = 0u; i < 16u; i++) {
        let i_row = row + i / 2u;
        let i_column = column + i % 2u * 4u;
        let at = select(i_column, i_row, LAST == 1u);
        if (i_row < p.m && i_column < p.n && at % p.size.z < p.size.w) { put(i_row, i_column, ct_sum_of(i)); }
    }
}
