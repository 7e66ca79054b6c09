// Convolutions and their gradients for the input as products by tiles (backends/webgpu/tile.wgsl), whose operand from
// the source is gathered: the implicit product of cuDNN (Chetlur and others, 2014). Source and result are images;
// position q of the result looks, along each axis, at places q * step + offset + j * spacing of the source, for each of
// J0, J1, J2 taps j. A convolution is one such problem. Its input gradient is one for each phase of its strides, in
// which taps that would look between the elements of the source do not occur.
//
// Channels first (LAST 0) rows are channels of the result and columns its positions, so that neighbors are neighbors in
// memory; channels last it is the other way round. k counts channels of the source and taps, the channels innermost if
// INNER. With ROW4 four positions are always of one line: lines are counted as if they were a multiple of four long,
// and what comes out behind their end is dropped.

struct Params {
    m: u32, n: u32, k: u32, part: u32, tiles_m: u32, tiles_n: u32, batches: u32, parts: u32,
    channels: u32, results: u32, images: u32, positions: u32, // channels of the source and of the result in a group
    x_n: u32, x_c: u32, x_group: u32, w_base: u32,
    w_r: u32, w_c: u32, w_group: u32, w_step: u32, // by channels of the result, of the source; by k, where it is linear
    y_n: u32, y_c: u32, y_group: u32, y_base: u32,
    r_n: u32, r_c: u32, r_group: u32, bias_step: u32, // of the residual
    activation: u32, extent_x: u32, extent_y: u32, extent_z: u32, // of the padded source
    size: vec4<u32>, source: vec4<u32>, // of the three axes; size.w: how long lines are
    step: vec4<u32>, offset: vec4<u32>, spacing: vec4<u32>,
    x_s: vec4<u32>, w_k: vec4<u32>, y_s: vec4<u32>, r_s: vec4<u32>,
}

alias E = x_t;

const TAPS = J0 * J1 * J2;
const FAR = -0x40000000i; // a place that no tap gets inside from

var<private> z: u32; // the group of channels
var<private> w_fixed: vec2<u32>;
var<private> x_base: vec4<u32>; // of four positions, or of one for each slot: where tap 0 of channel 0 looks
var<private> x_0: vec4<i32>;
var<private> x_1: vec4<i32>;
var<private> x_2: vec4<i32>;

fn begin(group: u32) { z = group; }

// Image and place of a position of the result.
fn place(at: u32) -> vec4<u32> {
    let image = at / p.positions;
    let within = at - image * p.positions;
    let line = within / p.size.z;
    return vec4<u32>(image, line / p.size.y, line % p.size.y, within % p.size.z);
}

// Channel and taps.
fn walk(k: u32) -> vec4<u32> {
    var channel = k / TAPS;
    var tap = k % TAPS;
    if (INNER == 1u) {
        tap = k / p.channels;
        channel = k - tap * p.channels;
    }
    return vec4<u32>(channel, tap / (J1 * J2), tap / J2 % J1, tap % J2);
}

// ---- The weight ----

fn w_at(k: u32) -> u32 {
    let base = p.w_base + z * p.w_group;
    if (WEIGHTS != 0u) { return base + k * p.w_step; }
    let t = walk(k);
    return base + t.x * p.w_c + t.y * p.w_k.x + t.z * p.w_k.y + t.w * p.w_k.z;
}

fn weight_fix(slot: u32, channel: u32) {
    if (slot == 0u) { w_fixed.x = channel; } else { w_fixed.y = channel; }
}

fn weight_quad(slot: u32, k: u32, along_k: bool) -> vec4<E> {
    let channel = select(w_fixed.y, w_fixed.x, slot == 0u);
    var v = vec4<E>();
    if (channel >= p.results || k >= p.k) { return v; }
    let at = channel * p.w_r;
    if (WEIGHTS == 2u) { return w_load4(at + w_at(k)); }
    if (along_k) {
        v.x = w_load(at + w_at(k));
        if (k + 1u < p.k) { v.y = w_load(at + w_at(k + 1u)); }
        if (k + 2u < p.k) { v.z = w_load(at + w_at(k + 2u)); }
        if (k + 3u < p.k) { v.w = w_load(at + w_at(k + 3u)); }
        return v;
    }
    let seen = at + w_at(k);
    v.x = w_load(seen);
    if (channel + 1u < p.results) { v.y = w_load(seen + p.w_r); }
    if (channel + 2u < p.results) { v.z = w_load(seen + 2u * p.w_r); }
    if (channel + 3u < p.results) { v.w = w_load(seen + 3u * p.w_r); }
    return v;
}

// ---- The source ----

// Where tap 0 of a position looks: along the three axes, and as an offset.
fn look(at: u32) -> vec4<u32> {
    if (at >= p.positions * p.images) { return vec4<u32>(bitcast<u32>(FAR)); }
    let to = place(at);
    let seen = to.yzw * p.step.xyz + p.offset.xyz;
    let offset = seen * p.x_s.xyz;
    return vec4<u32>(seen, to.x * p.x_n + z * p.x_group + offset.x + offset.y + offset.z);
}

fn source_fix(slot: u32, at: u32) {
    let first = look(at);
    if (slot == 1u) {
        x_base.y = first.w;
        x_0.y = bitcast<i32>(first.x);
        x_1.y = bitcast<i32>(first.y);
        x_2.y = bitcast<i32>(first.z);
        return;
    }
    x_base.x = first.w;
    x_0.x = bitcast<i32>(first.x);
    x_1.x = bitcast<i32>(first.y);
    x_2.x = bitcast<i32>(first.z);
    if (LAST == 1u || ROW4 == 1u) { return; }
    let b = look(at + 1u);
    let c = look(at + 2u);
    let d = look(at + 3u);
    x_base = vec4<u32>(first.w, b.w, c.w, d.w);
    x_0 = bitcast<vec4<i32>>(vec4<u32>(first.x, b.x, c.x, d.x));
    x_1 = bitcast<vec4<i32>>(vec4<u32>(first.y, b.y, c.y, d.y));
    x_2 = bitcast<vec4<i32>>(vec4<u32>(first.z, b.z, c.z, d.z));
}

fn element(base: u32, at0: i32, at1: i32, at2: i32) -> E {
    let at = bitcast<vec3<u32>>(vec3<i32>(at0, at1, at2));
    if (at.x >= p.source.x || at.y >= p.source.y || at.z >= p.source.z) { return E(); }
    return x_load(base);
}

fn element_of(slot: u32, k: u32) -> E {
    if (k >= p.k) { return E(); }
    let t = walk(k);
    let moved = t.yzw * p.spacing.xyz;
    let by = bitcast<vec3<i32>>(moved);
    let offset = moved * p.x_s.xyz;
    let seen = offset.x + offset.y + offset.z + t.x * p.x_c;
    if (slot == 0u) { return element(x_base.x + seen, x_0.x + by.x, x_1.x + by.y, x_2.x + by.z); }
    return element(x_base.y + seen, x_0.y + by.x, x_1.y + by.y, x_2.y + by.z);
}

fn source_quad(slot: u32, k: u32) -> vec4<E> {
    var v = vec4<E>();
    if (k >= p.k) { return v; }
    if (LAST == 1u && SOURCE_QUADS == 0u) {
        return vec4<E>(element_of(slot, k), element_of(slot, k + 1u), element_of(slot, k + 2u),
                       element_of(slot, k + 3u));
    }
    let t = walk(k);
    let moved = t.yzw * p.spacing.xyz;
    let by = bitcast<vec3<i32>>(moved);
    let offset = moved * p.x_s.xyz;
    let seen = offset.x + offset.y + offset.z + t.x * p.x_c;
    if (LAST == 1u) {
        var base = x_base.x;
        var at = vec3<i32>(x_0.x, x_1.x, x_2.x);
        if (slot == 1u) {
            base = x_base.y;
            at = vec3<i32>(x_0.y, x_1.y, x_2.y);
        }
        let inside = bitcast<vec3<u32>>(at + by) < p.source.xyz;
        if (all(inside)) { v = x_load4(base + seen); }
        return v;
    }
    if (ROW4 == 0u) {
        return vec4<E>(element(x_base.x + seen, x_0.x + by.x, x_1.x + by.y, x_2.x + by.z),
                       element(x_base.y + seen, x_0.y + by.x, x_1.y + by.y, x_2.y + by.z),
                       element(x_base.z + seen, x_0.z + by.x, x_1.z + by.y, x_2.z + by.z),
                       element(x_base.w + seen, x_0.w + by.x, x_1.w + by.y, x_2.w + by.z));
    }
    // four results of one line
    if (bitcast<u32>(x_0.x + by.x) >= p.source.x || bitcast<u32>(x_1.x + by.y) >= p.source.y) { return v; }
    let at = x_base.x + seen;
    if (SOURCE_QUADS == 1u) { return x_load4(at); } // a single tap along the line, and no padding
    let column = bitcast<u32>(x_2.x + by.z);
    let step = p.step.z * p.x_s.z;
    if (column < p.source.z) { v.x = x_load(at); }
    if (column + p.step.z < p.source.z) { v.y = x_load(at + step); }
    if (column + 2u * p.step.z < p.source.z) { v.z = x_load(at + 2u * step); }
    if (column + 3u * p.step.z < p.source.z) { v.w = x_load(at + 3u * step); }
    return v;
}

// ---- Which is which ----

fn a_fix(slot: u32, row: u32) {
    if (LAST == 1u) { source_fix(slot, row); } else { weight_fix(slot, row); }
}
fn b_fix(slot: u32, column: u32) {
    if (LAST == 1u) { weight_fix(slot, column); } else { source_fix(slot, column); }
}
fn a_quad(slot: u32, k: u32) -> vec4<E> {
    if (LAST == 1u) { return source_quad(slot, k); }
    return weight_quad(slot, k, A_ALONG_K == 1u);
}
fn b_quad(slot: u32, k: u32) -> vec4<E> {
    if (LAST == 1u) { return weight_quad(slot, k, B_ALONG_K == 1u); }
    return source_quad(slot, k);
}

// ---- The result ----

fn finished(sum: E, channel: u32, residual_at: u32) -> E {
    var v = sum;
    if (bias_given) { v += bias_load((z * p.results + channel) * p.bias_step); }
    if (residual_given) { v += residual_load(residual_at); }
    if (ACTIVATED == 1u) { v = ct_activate(p.activation, v); }
    return v;
}

// Four of one channel, or of one position, whose strides are given.
fn put_four(count: u32, v: vec4<E>, channel: u32, channel_step: u32, at: u32, step: u32, r_at: u32, r_step: u32) {
    if (RESULT_QUADS == 1u) {
        y_store4(at, vec4<E>(finished(v.x, channel, r_at), finished(v.y, channel + channel_step, r_at + r_step),
                             finished(v.z, channel + 2u * channel_step, r_at + 2u * r_step),
                             finished(v.w, channel + 3u * channel_step, r_at + 3u * r_step)));
        return;
    }
    for (var i = 0u; i < min(4u, count); i++) {
        y_store(at + i * step, finished(v[i], channel + i * channel_step, r_at + i * r_step));
    }
}

fn put(row: u32, column: u32, v: vec4<E>) {
    let at = select(column, row, LAST == 1u);
    let channel = select(row, column, LAST == 1u);
    var to = place(at);
    for (var i = 0u; i < select(4u, 1u, LAST == 1u || ROW4 == 1u); i++) { // each position by itself, or all at once
        if (at + i >= p.positions * p.images) { return; }
        let y_to = to.yzw * p.y_s.xyz;
        let r_to = to.yzw * p.r_s.xyz;
        let y_at = p.y_base + to.x * p.y_n + y_to.x + y_to.y + y_to.z + z * p.y_group + channel * p.y_c;
        let r_at = to.x * p.r_n + r_to.x + r_to.y + r_to.z + z * p.r_group + channel * p.r_c;
        if (LAST == 1u) {
            put_four(p.n - column, v, channel, 1u, y_at, p.y_c, r_at, p.r_c);
        } else if (ROW4 == 1u) {
            put_four(p.size.w - to.w, v, channel, 0u, y_at, p.y_s.z, r_at, p.r_s.z);
        } else {
            y_store(y_at, finished(v[i], channel, r_at));
            to = ct_onward(to, 1u, p.size.xyz);
        }
    }
}
