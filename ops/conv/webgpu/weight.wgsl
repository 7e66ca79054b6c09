// Gradients of convolutions for the weight as products by tiles (backends/webgpu/tile.wgsl): rows are channels of g,
// columns channels of x and taps, and the sum goes over images and positions. A last column that is all ones makes the
// bias gradient, if n is `columns` + 1.
//
// Channels first (LAST 0) both operands are read along positions, channels last along channels; columns count taps, or
// channels (LAST), innermost. With ROW4 four positions are always of one line: lines are counted as if they were a
// multiple of four long, with zeros at their end.

struct Params {
    m: u32, n: u32, k: u32, part: u32, tiles_m: u32, tiles_n: u32, batches: u32, parts: u32,
    columns: u32, channels: u32, positions: u32, bias_step: u32, // channels of x in a group
    x_n: u32, x_c: u32, x_group: u32, extent_x: u32, // of the padded source
    g_n: u32, g_c: u32, g_group: u32, w_c: u32,
    w_o: u32, w_group: u32, extent_y: u32, extent_z: u32,
    size: vec4<u32>, source: vec4<u32>, // of the three axes; size.w: how long lines are
    step: vec4<u32>, offset: vec4<u32>, spacing: vec4<u32>,
    x_s: vec4<u32>, g_s: vec4<u32>, w_k: vec4<u32>,
}

alias E = x_t;

const TAPS = J0 * J1 * J2;
const FAR = -0x40000000i; // a place that no position gets inside from

var<private> z: u32; // the group of channels
// The place of the k that g was last read at, and, channels last, of the one that x was.
var<private> g_k: u32 = 0x80000000u;
var<private> g_place: vec4<u32>;
var<private> x_k: u32 = 0x80000000u;
var<private> x_place: vec4<u32>;
var<private> g_fixed: vec2<u32>;
// Of four columns, or of one for each slot: what the tap adds to places, as an offset too; and whether it is the column
// of ones.
var<private> x_base: vec4<u32>;
var<private> x_0: vec4<i32>;
var<private> x_1: vec4<i32>;
var<private> x_2: vec4<i32>;
var<private> x_one: vec4<bool>;

fn begin(group: u32) { z = group; }

fn place(at: u32) -> vec4<u32> {
    let image = at / p.positions;
    let within = at - image * p.positions;
    let line = within / p.size.z;
    return vec4<u32>(image, line / p.size.y, line % p.size.y, within % p.size.z);
}

// The same from a place that is known; the next is 16 further on.
fn reach(k: u32, known_k: u32, known: vec4<u32>) -> vec4<u32> {
    if (k - known_k > 16u) { return place(k); }
    return ct_onward(known, k - known_k, p.size.xyz);
}

fn total(v: vec3<u32>) -> u32 { return v.x + v.y + v.z; }

// Channel and taps of a column.
fn walk(column: u32) -> vec4<u32> {
    var channel = column / TAPS;
    var tap = column % TAPS;
    if (LAST == 1u) {
        tap = column / p.channels;
        channel = column - tap * p.channels;
    }
    return vec4<u32>(channel, tap / (J1 * J2), tap / J2 % J1, tap % J2);
}

// ---- g ----

fn a_fix(slot: u32, row: u32) {
    if (slot == 0u) { g_fixed.x = row; } else { g_fixed.y = row; }
}

fn g_at(to: vec4<u32>, row: u32) -> u32 {
    return to.x * p.g_n + total(to.yzw * p.g_s.xyz) + z * p.g_group + row * p.g_c;
}

fn a_quad(slot: u32, k: u32) -> vec4<E> {
    let row = select(g_fixed.y, g_fixed.x, slot == 0u);
    var v = vec4<E>();
    if (slot == 0u) {
        g_place = reach(k, g_k, g_place);
        g_k = k;
    }
    if (row >= p.m || k >= p.k) { return v; }
    let at = g_at(g_place, row);
    if (G_QUADS == 1u) { return g_load4(at); }
    v.x = g_load(at);
    if (LAST == 1u) {
        if (row + 1u < p.m) { v.y = g_load(at + p.g_c); }
        if (row + 2u < p.m) { v.z = g_load(at + 2u * p.g_c); }
        if (row + 3u < p.m) { v.w = g_load(at + 3u * p.g_c); }
    } else if (ROW4 == 1u) {
        if (g_place.w + 1u < p.size.w) { v.y = g_load(at + p.g_s.z); }
        if (g_place.w + 2u < p.size.w) { v.z = g_load(at + 2u * p.g_s.z); }
        if (g_place.w + 3u < p.size.w) { v.w = g_load(at + 3u * p.g_s.z); }
    } else {
        if (k + 1u < p.k) { v.y = g_load(g_at(ct_onward(g_place, 1u, p.size.xyz), row)); }
        if (k + 2u < p.k) { v.z = g_load(g_at(ct_onward(g_place, 2u, p.size.xyz), row)); }
        if (k + 3u < p.k) { v.w = g_load(g_at(ct_onward(g_place, 3u, p.size.xyz), row)); }
    }
    return v;
}

// ---- x ----

fn look(column: u32) -> vec4<u32> {
    if (column >= p.columns) { return vec4<u32>(bitcast<u32>(FAR)); }
    let t = walk(column);
    let by = t.yzw * p.spacing.xyz + p.offset.xyz;
    return vec4<u32>(by, total(by * p.x_s.xyz) + z * p.x_group + t.x * p.x_c);
}

fn b_fix(slot: u32, column: u32) {
    let first = look(column);
    let one = column == p.columns;
    if (slot == 1u) {
        x_base.y = first.w;
        x_0.y = bitcast<i32>(first.x);
        x_1.y = bitcast<i32>(first.y);
        x_2.y = bitcast<i32>(first.z);
        x_one.y = one;
        return;
    }
    x_base.x = first.w;
    x_0.x = bitcast<i32>(first.x);
    x_1.x = bitcast<i32>(first.y);
    x_2.x = bitcast<i32>(first.z);
    x_one.x = one;
    if (LAST == 0u || X_QUADS == 1u) { return; }
    let b = look(column + 1u);
    let c = look(column + 2u);
    let d = look(column + 3u);
    x_base = vec4<u32>(first.w, b.w, c.w, d.w);
    x_0 = bitcast<vec4<i32>>(vec4<u32>(first.x, b.x, c.x, d.x));
    x_1 = bitcast<vec4<i32>>(vec4<u32>(first.y, b.y, c.y, d.y));
    x_2 = bitcast<vec4<i32>>(vec4<u32>(first.z, b.z, c.z, d.z));
    x_one = vec4<bool>(one, column + 1u == p.columns, column + 2u == p.columns, column + 3u == p.columns);
}

fn element(base: u32, at0: i32, at1: i32, at2: i32, one: bool) -> E {
    if (one) { return E(1); }
    let at = bitcast<vec3<u32>>(vec3<i32>(at0, at1, at2));
    if (at.x >= p.source.x || at.y >= p.source.y || at.z >= p.source.z) { return E(); }
    return x_load(base);
}

// Of the column of a slot.
fn element_of(slot: u32, k: u32, to: vec4<u32>) -> E {
    if (k >= p.k) { return E(); }
    let seen = to.yzw * p.step.xyz;
    let at = bitcast<vec3<i32>>(seen);
    let base = to.x * p.x_n + total(seen * p.x_s.xyz);
    if (slot == 0u) { return element(x_base.x + base, x_0.x + at.x, x_1.x + at.y, x_2.x + at.z, x_one.x); }
    return element(x_base.y + base, x_0.y + at.x, x_1.y + at.y, x_2.y + at.z, x_one.y);
}

fn b_quad(slot: u32, k: u32) -> vec4<E> {
    var v = vec4<E>();
    if (k >= p.k) { return v; }
    if (LAST == 0u && ROW4 == 0u) {
        let b = ct_onward(g_place, 1u, p.size.xyz);
        let c = ct_onward(b, 1u, p.size.xyz);
        let d = ct_onward(c, 1u, p.size.xyz);
        return vec4<E>(element_of(slot, k, g_place), element_of(slot, k + 1u, b), element_of(slot, k + 2u, c),
                       element_of(slot, k + 3u, d));
    }
    var to = g_place;
    if (LAST == 1u) {
        to = reach(k, x_k, x_place);
        x_place = to;
        x_k = k;
    }
    let seen = to.yzw * p.step.xyz;
    let at = bitcast<vec3<i32>>(seen);
    let base = to.x * p.x_n + total(seen * p.x_s.xyz);
    if (LAST == 1u) {
        if (X_QUADS == 0u) {
            return vec4<E>(element(x_base.x + base, x_0.x + at.x, x_1.x + at.y, x_2.x + at.z, x_one.x),
                           element(x_base.y + base, x_0.y + at.x, x_1.y + at.y, x_2.y + at.z, x_one.y),
                           element(x_base.z + base, x_0.z + at.x, x_1.z + at.y, x_2.z + at.z, x_one.z),
                           element(x_base.w + base, x_0.w + at.x, x_1.w + at.y, x_2.w + at.z, x_one.w));
        }
        if (x_one.x) { return vec4<E>(E(1), E(), E(), E()); }
        let inside = bitcast<vec3<u32>>(vec3<i32>(x_0.x, x_1.x, x_2.x) + at) < p.source.xyz;
        if (all(inside)) { v = x_load4(base + x_base.x); }
        return v;
    }
    var tap = vec3<i32>(x_0.x, x_1.x, x_2.x);
    var first = base + x_base.x;
    var one = x_one.x;
    if (slot == 1u) {
        tap = vec3<i32>(x_0.y, x_1.y, x_2.y);
        first = base + x_base.y;
        one = x_one.y;
    }
    if (one) { return vec4<E>(E(1)); }
    // four positions of one line
    let looks = bitcast<vec3<u32>>(tap + at);
    if (looks.x >= p.source.x || looks.y >= p.source.y) { return v; }
    if (X_QUADS == 1u) { return x_load4(first); } // a single tap along the line, and no padding
    let step = p.step.z * p.x_s.z;
    if (looks.z < p.source.z) { v.x = x_load(first); }
    if (to.w + 1u < p.size.w && looks.z + p.step.z < p.source.z) { v.y = x_load(first + step); }
    if (to.w + 2u < p.size.w && looks.z + 2u * p.step.z < p.source.z) { v.z = x_load(first + 2u * step); }
    if (to.w + 3u < p.size.w && looks.z + 3u * p.step.z < p.source.z) { v.w = x_load(first + 3u * step); }
    return v;
}

// ---- The result ----

fn put(row: u32, column: u32, v: vec4<E>) {
    for (var i = 0u; i < min(4u, p.n - column); i++) {
        if (column + i == p.columns) {
            bias_store((z * p.m + row) * p.bias_step, v[i]);
        } else {
            let t = walk(column + i);
            w_store(row * p.w_o + z * p.w_group + t.x * p.w_c + total(t.yzw * p.w_k.xyz), v[i]);
        }
    }
}
