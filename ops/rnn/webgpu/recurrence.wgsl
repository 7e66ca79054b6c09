// One layer of a recurrent network in one direction, forward and backward: a dispatch per step, with the product by the
// recurrent weights in it. A workgroup makes 16 hidden units of 16 sequences, an invocation one of each; operands of
// the product go through workgroup memory in tiles of 32.
//
// Scratch holds what one step leaves to the next, [rows, units] each: h twice, by turns, and c; backward dh, dc, the
// initial h or c, and the gates' gradients twice, by turns, [rows, GATES units].
struct Params {
    steps: u32, rows: u32, units: u32, step: i32,
    reverse: u32, product: u32, before: u32, after: u32, // where the turns begin, in elements of scratch
    // strides
    gx: vec4<u32>, w: vec4<u32>, y: vec4<u32>, states: vec4<u32>, gy: vec4<u32>, dgx: vec4<u32>, dgh: vec4<u32>,
    first: vec4<u32>, second: vec4<u32>, third: vec4<u32>, // strides of what begins and ends
    lengths_stride: u32, argument: u32, bias_stride: u32, tiles: u32,
}

const TILE = 16u;
const DEPTH = 32u;
const ROW = 33u; // without conflicts of banks

var<workgroup> row_tile: array<f32, 528>;
var<workgroup> weight_tile: array<f32, 2112>;

// ---- What begins and ends ----

fn length_of(row: u32) -> u32 {
    if (!lengths_given) { return p.steps; }
    let low = bitcast<u32>(lengths_load(row * p.lengths_stride));
    var high = select(0u, 0xffffffffu, (low >> 31u) == 1u);
    if (WIDE == 1u) { high = bitcast<u32>(lengths_load(row * p.lengths_stride + 1u)); }
    if (high == 0u && low <= p.steps) { return low; }
    ct_wrong_index(p.argument, row, ct_i64(low, high), p.steps + 1u);
    return select(p.steps, 0u, (high >> 31u) == 1u);
}

// a, b and c go to the first three areas of scratch.
fn begin(group: u32, local: u32, groups: u32) {
    let area = p.rows * p.units;
    for (var e = group * THREADS + local; e < area; e += groups * THREADS) {
        let row = e / p.units;
        let unit = e - row * p.units;
        kept_store(p.before + e, a_load(row * p.first.x + unit * p.first.y));
        kept_store(2u * area + e, b_load(row * p.second.x + unit * p.second.y));
        if (FOURTH == 1u) { kept_store(3u * area + e, c_load(row * p.third.x + unit * p.third.y)); }
        if (unit == 0u) { ends_store(row, bitcast<i32>(length_of(row))); }
    }
}

// The two states that are left.
fn end(group: u32, local: u32, groups: u32) {
    let area = p.rows * p.units;
    for (var e = group * THREADS + local; e < area; e += groups * THREADS) {
        let row = e / p.units;
        let unit = e - row * p.units;
        a_store(row * p.first.x + unit * p.first.y, kept_load(p.before + e));
        b_store(row * p.second.x + unit * p.second.y, kept_load(2u * area + e));
    }
}

// ---- Forward ----

struct Unit {
    row: u32,
    unit: u32,
    t: u32, // the time of this step
}

fn unit_of(group: u32, local: u32) -> Unit {
    let tile = group / p.tiles;
    let t = select(u32(p.step), p.steps - 1u - u32(p.step), p.reverse != 0u);
    return Unit(tile * TILE + local / TILE, (group - tile * p.tiles) * TILE + local % TILE, t);
}

// Of h [rows, units] from p.before on and the rows of w: one sum for each gate.
fn forward_product(group: u32, local: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    let corner = unit_of(group, 0u);
    let r = local / TILE;
    let u = local % TILE;
    for (var k0 = 0u; k0 < p.units; k0 += DEPTH) {
        let k = k0 + local % DEPTH;
        for (var i = local / DEPTH; i < ct_times(TILE); i += THREADS / DEPTH) {
            var x = 0.0;
            if (corner.row + i < p.rows && k < p.units) { x = kept_load(p.before + (corner.row + i) * p.units + k); }
            row_tile[i * ROW + local % DEPTH] = x;
        }
        for (var i = local / DEPTH; i < ct_times(GATES * TILE); i += THREADS / DEPTH) {
            let unit = corner.unit + i % TILE;
            var x = 0.0;
            if (unit < p.units && k < p.units) { x = w_load(((i / TILE) * p.units + unit) * p.w.x + k * p.w.y); }
            weight_tile[i * ROW + local % DEPTH] = x;
        }
        workgroupBarrier();
        for (var j = 0u; j < ct_times(DEPTH); j++) {
            let x = row_tile[r * ROW + j];
            sum.x = fma(x, weight_tile[u * ROW + j], sum.x);
            if (GATES > 1u) {
                sum.y = fma(x, weight_tile[(TILE + u) * ROW + j], sum.y);
                sum.z = fma(x, weight_tile[(2u * TILE + u) * ROW + j], sum.z);
            }
            if (GATES > 3u) { sum.w = fma(x, weight_tile[(3u * TILE + u) * ROW + j], sum.w); }
        }
        workgroupBarrier();
    }
    return sum;
}

// A value for each gate, of a tensor that has them side by side.
fn gates_of_x(at: Unit) -> vec4<f32> {
    let base = at.t * p.gx.x + at.row * p.gx.y + at.unit * p.gx.z;
    var x = vec4<f32>();
    for (var g = 0u; g < ct_times(GATES); g++) { x[g] = gx_load(base + g * p.units * p.gx.z); }
    return x;
}

fn gates_of_bias(at: Unit) -> vec4<f32> {
    var x = vec4<f32>();
    for (var g = 0u; g < ct_times(GATES); g++) { x[g] = bias_load((g * p.units + at.unit) * p.bias_stride); }
    return x;
}

fn put_states(at: Unit, values: vec4<f32>, fifth: f32) {
    let base = at.t * p.states.x + at.row * p.states.y + at.unit * p.states.z;
    let next = p.units * p.states.z;
    for (var k = 0u; k < ct_times(4u); k++) { states_store(base + k * next, values[k]); }
    if (GATES == 4u) { states_store(base + 4u * next, fifth); }
}

fn forward(group: u32, local: u32, groups: u32) {
    var s = vec4<f32>();
    if (p.product != 0u) { s = forward_product(group, local); }
    let at = unit_of(group, local);
    if (at.row >= p.rows || at.unit >= p.units) { return; }
    let e = at.row * p.units + at.unit;
    let area = p.rows * p.units;
    var h = kept_load(p.before + e);
    var result = 0.0;
    var c = kept_load(2u * area + e);
    var saved = vec4<f32>();
    if (at.t < u32(ends_load(at.row))) {
        let x = gates_of_x(at);
        s += gates_of_bias(at);
        if (GATES == 4u) {
            let a = x + s;
            saved = vec4<f32>(ct_sigmoid(a.x), ct_sigmoid(a.y), ct_tanh(a.z), ct_sigmoid(a.w)); // i f g o
            c = fma(saved.y, c, saved.x * saved.z);
            result = saved.w * ct_tanh(c);
        } else if (GATES == 3u) {
            let r = ct_sigmoid(x.x + s.x);
            let z = ct_sigmoid(x.y + s.y);
            let n = ct_tanh(fma(r, s.z, x.z));
            saved = vec4<f32>(r, z, n, s.z);
            result = fma(z, h - n, n); // (1 - z) n + z h
        } else if (RELU == 1u) {
            result = select(x.x + s.x, 0.0, x.x + s.x < 0.0);
        } else {
            result = ct_tanh(x.x + s.x);
        }
        h = result;
        kept_store(2u * area + e, c);
        if (GATES > 1u && states_given) { put_states(at, saved, c); }
    } else if (GATES > 1u && states_given) {
        put_states(at, vec4<f32>(), 0.0);
    }
    kept_store(p.after + e, h);
    y_store(at.t * p.y.x + at.row * p.y.y + at.unit * p.y.z, result);
}

// ---- Backward ----

// Of the gates' gradients [rows, GATES units] from p.before on and the columns of w.
fn backward_product(group: u32, local: u32) -> f32 {
    var sum = 0.0;
    let corner = unit_of(group, 0u);
    let depth = GATES * p.units;
    for (var k0 = 0u; k0 < depth; k0 += DEPTH) {
        for (var i = local / DEPTH; i < ct_times(TILE); i += THREADS / DEPTH) {
            let k = k0 + local % DEPTH;
            var x = 0.0;
            if (corner.row + i < p.rows && k < depth) { x = kept_load(p.before + (corner.row + i) * depth + k); }
            row_tile[i * ROW + local % DEPTH] = x;
        }
        for (var i = local / TILE; i < ct_times(DEPTH); i += THREADS / TILE) {
            let unit = corner.unit + local % TILE;
            var x = 0.0;
            if (unit < p.units && k0 + i < depth) { x = w_load((k0 + i) * p.w.x + unit * p.w.y); }
            weight_tile[i * TILE + local % TILE] = x;
        }
        workgroupBarrier();
        for (var j = 0u; j < ct_times(DEPTH); j++) {
            sum = fma(row_tile[(local / TILE) * ROW + j], weight_tile[j * TILE + local % TILE], sum);
        }
        workgroupBarrier();
    }
    return sum;
}

fn state_at(t: u32, at: Unit, k: u32) -> f32 {
    return states_load(t * p.states.x + at.row * p.states.y + (k * p.units + at.unit) * p.states.z);
}

fn y_at(t: u32, at: Unit) -> f32 { return y_load(t * p.y.x + at.row * p.y.y + at.unit * p.y.z); }

fn slope_sigmoid(y: f32) -> f32 { return y * (1.0 - y); }

fn slope_tanh(y: f32) -> f32 { return 1.0 - y * y; }

fn put_gates(at: Unit, dx: vec4<f32>, ds: vec4<f32>) {
    let next = p.units;
    for (var g = 0u; g < ct_times(GATES); g++) {
        let column = g * p.units + at.unit;
        kept_store(p.after + at.row * GATES * p.units + column, ds[g]);
        dgx_store(at.t * p.dgx.x + at.row * p.dgx.y + column * p.dgx.z, dx[g]);
        if (dgh_given) { dgh_store(at.t * p.dgh.x + at.row * p.dgh.y + column * p.dgh.z, ds[g]); }
    }
}

// dh and dc lie in the first and the third area, the initial h or c in the fourth.
fn backward(group: u32, local: u32, groups: u32) {
    var sum = 0.0;
    if (p.product != 0u) { sum = backward_product(group, local); }
    let at = unit_of(group, local);
    if (at.row >= p.rows || at.unit >= p.units) { return; }
    let e = at.row * p.units + at.unit;
    let area = p.rows * p.units;
    var dh = kept_load(e) + sum;
    if (p.step < 0) { // only what the first step's gates give
        kept_store(e, dh);
        return;
    }
    var dx = vec4<f32>();
    var ds = vec4<f32>();
    let length = u32(ends_load(at.row));
    if (at.t < length) {
        let last = select(at.t - 1u, at.t + 1u, p.reverse != 0u);
        let is_first = select(at.t == 0u, last >= length, p.reverse != 0u);
        dh += gy_load(at.t * p.gy.x + at.row * p.gy.y + at.unit * p.gy.z);
        if (GATES == 4u) {
            let i = state_at(at.t, at, 0u);
            let f = state_at(at.t, at, 1u);
            let g = state_at(at.t, at, 2u);
            let o = state_at(at.t, at, 3u);
            let tc = ct_tanh(state_at(at.t, at, 4u));
            var c = 0.0;
            if (is_first) { c = kept_load(3u * area + e); } else { c = state_at(last, at, 4u); }
            let d = fma(dh * o, slope_tanh(tc), kept_load(2u * area + e));
            dx = vec4<f32>(d * g * slope_sigmoid(i), d * c * slope_sigmoid(f), d * i * slope_tanh(g),
                    dh * tc * slope_sigmoid(o));
            ds = dx;
            kept_store(2u * area + e, d * f);
            dh = 0.0;
        } else if (GATES == 3u) {
            let r = state_at(at.t, at, 0u);
            let z = state_at(at.t, at, 1u);
            let n = state_at(at.t, at, 2u);
            var h = 0.0;
            if (is_first) { h = kept_load(3u * area + e); } else { h = y_at(last, at); }
            let dn = dh * (1.0 - z) * slope_tanh(n);
            dx = vec4<f32>(dn * state_at(at.t, at, 3u) * slope_sigmoid(r), dh * (h - n) * slope_sigmoid(z), dn, 0.0);
            ds = vec4<f32>(dx.x, dx.y, dn * r, 0.0);
            dh *= z;
        } else {
            let y = y_at(at.t, at);
            if (RELU == 1u) { dx.x = select(0.0, dh, y > 0.0); } else { dx.x = dh * slope_tanh(y); }
            ds = dx;
            dh = 0.0;
        }
    }
    kept_store(e, dh);
    put_gates(at, dx, ds);
}
