// Max and average pooling and their gradients, for 1 to 3 axes (always three here, leading ones of size 1), any strides
// and both layouts. Gradients are gathered: an element looks for the windows that it is in, in their order, so nothing
// is added to memory.
//
// Planes: a workgroup takes a tile of TW columns, TH rows and as many planes as there are invocations left, so that
// neighbors load and store neighbors. Forward an invocation makes four results of a column, whose windows share rows;
// backward four elements of a row. Channels last: an invocation makes four channels of one place.
//
// Rows of planes by quads, where windows are small: forward an invocation makes four results of a row from whole quads,
// backward the S1 rows of 4 S2 elements that as many results were made from.
struct Params {
    // divisor 0: what is counted; total: quads of channels, or winners
    total: u32, planes: u32, channels: u32, divisor: f32,
    size_in: vec4<i32>, size_out: vec4<i32>, before: vec4<i32>, after: vec4<i32>, // by axis
    from_s: vec4<u32>, to_s: vec4<u32>, at_s: vec4<u32>, // strides: three axes, channel
    batch: vec4<u32>, // strides of from, to and at by item
    tiles: vec2<u32>, tiles_inverse: vec2<f32>,
    exclude_pad: u32, quads: u32, plane: u32, ct_c: u32, // quads of channels; plane: results in one
}

// What taps are stored by: TAPS_NONE, words of whole planes, words of rows, single elements.
const WHOLE = 1u;
const ROWS = 2u;
const SINGLE = 3u;

const PLANES = 256u / (TW * TH); // of a tile

// n / d for n below 2^24.
fn quotient(n: u32, d: u32, inverse: f32) -> u32 {
    var q = u32(f32(n) * inverse);
    let rest = bitcast<i32>(n - q * d);
    if (rest < 0) { q--; } else if (rest >= bitcast<i32>(d)) { q++; }
    return q;
}

struct Place {
    item: u32,
    channel: u32,
    s: vec3<i32>,
}

// Column and row of an invocation in units, and its plane.
fn tile_place(group: u32, local: u32) -> vec3<u32> {
    let upper = quotient(group, p.tiles.x, p.tiles_inverse.x);
    let plane = quotient(upper, p.tiles.y, p.tiles_inverse.y);
    let column = (group - upper * p.tiles.x) * TW + (local & (TW - 1u));
    let row = (upper - plane * p.tiles.y) * TH + ((local / TW) & (TH - 1u));
    return vec3<u32>(column, row, plane * PLANES + local / (TW * TH));
}

fn place_in(plane: u32, depth: i32, row: i32, column: i32) -> Place {
    if (FLAT == 1u) { return Place(0u, plane, vec3<i32>(0, row, column)); } // items and channels as one
    let upper = plane / u32(depth);
    let item = upper / p.channels;
    return Place(item, upper - item * p.channels, vec3<i32>(i32(plane - upper * u32(depth)), row, column));
}

fn base(strides: vec4<u32>, batch: u32, at: Place) -> u32 { return at.item * batch + at.channel * strides.w; }

fn offset(strides: vec4<u32>, batch: u32, at: Place) -> u32 {
    let s = bitcast<vec3<u32>>(at.s) * strides.xyz;
    return base(strides, batch, at) + s.x + s.y + s.z;
}

fn is_inside(i: i32, axis: u32) -> bool { return i >= 0 && i < p.size_in[axis]; }

// How many elements along an axis the mean of window o counts.
fn count_of(axis: u32, o: i32, kernel: u32, stride: u32) -> f32 {
    let start = o * i32(stride) - p.before[axis];
    let limit = p.size_in[axis] + select(p.after[axis], 0, p.exclude_pad != 0u);
    return f32(min(start + i32(kernel), limit) - select(start, 0, p.exclude_pad != 0u && start < 0));
}

// ---- Forward, planes ----

struct Best {
    value: vec4<f32>,
    tap: vec4<u32>,
}

const NO_TAP = 0xffffffffu;

fn is_nan4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

// The better ones in those lanes that count: of equals the first wins, and NaN over numbers.
fn better(best: Best, value: vec4<f32>, tap: vec4<u32>, counts: vec4<bool>) -> Best {
    let is_first = best.tap == vec4<u32>(NO_TAP);
    let wins = counts & (is_first | (value > best.value) | (is_nan4(value) & !is_nan4(best.value)));
    return Best(select(best.value, value, wins), select(best.tap, tap, wins));
}

// The best of one row of a window, and its tap along the row.
fn best_of_row(row: u32, column: i32) -> vec2<u32> {
    var value = 0.0;
    var tap = NO_TAP;
    for (var k = 0u; k < K2; k++) {
        let i = column + i32(k * D2);
        if (!is_inside(i, 2u)) { continue; }
        let x = from_load(row + u32(i) * p.from_s.z);
        if (tap == NO_TAP || x > value || (ct_is_nan(x) && !ct_is_nan(value))) {
            value = x;
            tap = k;
        }
    }
    return vec2<u32>(bitcast<u32>(value), tap);
}

fn sum_of_row(row: u32, column: i32) -> f32 {
    var sum = 0.0;
    for (var k = 0u; k < K2; k++) {
        let i = column + i32(k);
        if (is_inside(i, 2u)) { sum += from_load(row + u32(i) * p.from_s.z); }
    }
    return sum;
}

// Rows of four windows of a column, from the first row of the first on.
const COLUMN = 3u * S1 + (K1 - 1u) * D1 + 1u;

// Which tap row r is in each of the four windows, or negative.
fn taps_of_row(r: u32) -> vec4<i32> {
    let away = vec4<i32>(i32(r)) - vec4<i32>(0, 1, 2, 3) * i32(S1);
    let k = away / i32(D1);
    return select(k, vec4<i32>(-1), (away < vec4<i32>()) | (k * i32(D1) != away) | (k >= vec4<i32>(i32(K1))));
}

fn best_of_column(at: Place) -> Best {
    var best = Best(vec4<f32>(), vec4<u32>(NO_TAP));
    let start = at.s * vec3<i32>(i32(S0), i32(S1), i32(S2)) - p.before.xyz;
    let plane = base(p.from_s, p.batch.x, at);
    for (var k0 = 0u; k0 < K0; k0++) {
        let i0 = start.x + i32(k0 * D0);
        if (!is_inside(i0, 0u)) { continue; }
        for (var r = 0u; r < COLUMN; r++) {
            let k1 = taps_of_row(r);
            let i1 = start.y + i32(r);
            let counts = k1 >= vec4<i32>();
            if (!any(counts) || !is_inside(i1, 1u)) { continue; }
            let found = best_of_row(plane + u32(i0) * p.from_s.x + u32(i1) * p.from_s.y, start.z);
            let tap = (k0 * K1 + bitcast<vec4<u32>>(k1)) * K2 + found.y;
            best = better(best, vec4<f32>(bitcast<f32>(found.x)), tap, counts);
        }
    }
    return best;
}

fn mean_of_column(at: Place) -> vec4<f32> {
    var sum = vec4<f32>();
    let start = at.s * vec3<i32>(i32(S0), i32(S1), i32(S2)) - p.before.xyz;
    let plane = base(p.from_s, p.batch.x, at);
    for (var k0 = 0u; k0 < K0; k0++) {
        let i0 = start.x + i32(k0);
        if (!is_inside(i0, 0u)) { continue; }
        for (var r = 0u; r < COLUMN; r++) {
            let counts = taps_of_row(r) >= vec4<i32>();
            let i1 = start.y + i32(r);
            if (!any(counts) || !is_inside(i1, 1u)) { continue; }
            // rows by themselves: fewer digits are lost in a long sum
            let line = sum_of_row(plane + u32(i0) * p.from_s.x + u32(i1) * p.from_s.y, start.z);
            sum += select(vec4<f32>(), vec4<f32>(line), counts);
        }
    }
    if (p.divisor != 0.0) { return sum / p.divisor; }
    let outer = count_of(0u, at.s.x, K0, S0) * count_of(2u, at.s.z, K2, S2);
    var divisor = vec4<f32>();
    for (var k = 0; k < 4; k++) { divisor[k] = outer * count_of(1u, at.s.y + k, K1, S1); }
    return sum / divisor;
}

var<workgroup> tile_taps: array<u32, 1024>;

fn max_planes(group: u32, local: u32, groups: u32) {
    let tile = tile_place(group, local);
    let at = place_in(tile.z, p.size_out.x, i32(4u * tile.y), i32(tile.x));
    if (tile.z < p.planes && at.s.y < p.size_out.y && at.s.z < p.size_out.z) {
        let best = best_of_column(at);
        let to = offset(p.to_s, p.batch.y, at);
        for (var k = 0u; k < 4u; k++) {
            if (at.s.y + i32(k) >= p.size_out.y) { break; }
            to_store(to + k * p.to_s.y, best.value[k]);
            if (TAPS == SINGLE) { put_tap(offset(p.at_s, p.batch.z, at) + k * p.at_s.y, bitcast<i32>(best.tap[k])); }
            if (TAPS == WHOLE) {
                tile_taps[(tile.z % PLANES) * p.plane + (4u * tile.y + k) * u32(p.size_out.z) + tile.x] = best.tap[k];
            }
            if (TAPS == ROWS) {
                tile_taps[((tile.z % PLANES) * 4u * TH + 4u * (tile.y % TH) + k) * TW + tile.x % TW] = best.tap[k];
            }
        }
    }
    if (TAPS == WHOLE || TAPS == ROWS) {
        workgroupBarrier();
        put_taps(group, local);
    }
}

fn packed_taps(i: u32, n: u32) -> u32 {
    var word = 0u;
    for (var k = 0u; k < n; k++) { word |= tile_taps[i + k] << (8u * k); }
    return word;
}

// Taps of bytes: an invocation stores a word, of four neighbors of the tile.
fn put_taps(group: u32, local: u32) {
    if (TAPS == WHOLE) {
        let first = group * PLANES;
        let end = min(PLANES, p.planes - first) * p.plane;
        if (4u * local < end) {
            let n = min(4u, end - 4u * local);
            let w = first * p.plane / 4u + local;
            var word = packed_taps(4u * local, n);
            if (n < 4u) { word |= tap_word(w) & (0xffffffffu << (8u * n)); }
            put_tap_word(w, word);
        }
    } else {
        let units = TW / 4u;
        let row = local / units; // of the tile, with its planes
        let corner = tile_place(group, 0u);
        let column = corner.x + 4u * (local & (units - 1u));
        let at = place_in(corner.z + row / (4u * TH), p.size_out.x, i32(4u * corner.y + row % (4u * TH)), i32(column));
        if (corner.z + row / (4u * TH) < p.planes && at.s.y < p.size_out.y && at.s.z < p.size_out.z) {
            put_tap_word(offset(p.at_s, p.batch.z, at) / 4u, packed_taps(row * TW + 4u * (local & (units - 1u)), 4u));
        }
    }
}

fn mean_planes(group: u32, local: u32, groups: u32) {
    let tile = tile_place(group, local);
    let at = place_in(tile.z, p.size_out.x, i32(4u * tile.y), i32(tile.x));
    if (tile.z >= p.planes || at.s.y >= p.size_out.y || at.s.z >= p.size_out.z) { return; }
    let mean = mean_of_column(at);
    let to = offset(p.to_s, p.batch.y, at);
    for (var k = 0u; k < 4u; k++) {
        if (at.s.y + i32(k) < p.size_out.y) { to_store(to + k * p.to_s.y, mean[k]); }
    }
}

// ---- Gradients, planes ----

// The windows [x, y) that elements i to i + n - 1 of an axis may be in.
fn windows_of(axis: u32, i: i32, n: i32, kernel: u32, stride: u32, dilation: u32) -> vec2<i32> {
    let low = i + p.before[axis] - i32((kernel - 1u) * dilation);
    let first = select((low + i32(stride) - 1) / i32(stride), 0, low <= 0);
    return vec2<i32>(first, min((i + n - 1 + p.before[axis]) / i32(stride) + 1, p.size_out[axis]));
}

// Which tap of window o element i is, or -1.
fn tap_of(axis: u32, o: i32, i: i32, stride: u32, dilation: u32) -> i32 {
    let away = i + p.before[axis] - o * i32(stride);
    let k = away / i32(dilation);
    return select(-1, k, k * i32(dilation) == away);
}

// Of four elements of a row, from at on.
fn gathered_row(at: Place) -> vec4<f32> {
    var sum = vec4<f32>();
    let lanes = vec4<i32>(0, 1, 2, 3);
    let w0 = windows_of(0u, at.s.x, 1, K0, S0, D0);
    let w1 = windows_of(1u, at.s.y, 1, K1, S1, D1);
    let w2 = windows_of(2u, at.s.z, 4, K2, S2, D2);
    let plane = base(p.from_s, p.batch.x, at);
    let taps = base(p.at_s, p.batch.z, at);
    for (var o0 = w0.x; o0 < w0.y; o0++) {
        let k0 = tap_of(0u, o0, at.s.x, S0, D0);
        if (k0 < 0) { continue; }
        for (var o1 = w1.x; o1 < w1.y; o1++) {
            let k1 = tap_of(1u, o1, at.s.y, S1, D1);
            if (k1 < 0) { continue; }
            let number = (k0 * i32(K1) + k1) * i32(K2);
            let row = plane + u32(o0) * p.from_s.x + u32(o1) * p.from_s.y;
            let tap_row = taps + u32(o0) * p.at_s.x + u32(o1) * p.at_s.y;
            var count = p.divisor;
            if (MAX == 0u && p.divisor == 0.0) { count = count_of(0u, o0, K0, S0) * count_of(1u, o1, K1, S1); }
            for (var o2 = w2.x; o2 < w2.y; o2++) {
                let start = o2 * i32(S2) - p.before.z - at.s.z;
                if (MAX == 1u) { // the tap of this row that won, if any
                    let k2 = at_load(tap_row + u32(o2) * p.at_s.z) - number;
                    if (k2 >= 0 && k2 < i32(K2)) {
                        let x = from_load(row + u32(o2) * p.from_s.z);
                        sum += select(vec4<f32>(), vec4<f32>(x), lanes == vec4<i32>(start + k2 * i32(D2)));
                    }
                } else {
                    var over = count;
                    if (p.divisor == 0.0) { over *= count_of(2u, o2, K2, S2); }
                    let x = from_load(row + u32(o2) * p.from_s.z) / over;
                    let covers = (lanes >= vec4<i32>(start)) & (lanes < vec4<i32>(start + i32(K2)));
                    sum += select(vec4<f32>(), vec4<f32>(x), covers);
                }
            }
        }
    }
    return sum;
}

fn grad_planes(group: u32, local: u32, groups: u32) {
    let tile = tile_place(group, local);
    let at = place_in(tile.z, p.size_in.x, i32(tile.y), i32(4u * tile.x));
    if (tile.z >= p.planes || at.s.y >= p.size_in.y || at.s.z >= p.size_in.z) { return; }
    put_row(offset(p.to_s, p.batch.y, at), gathered_row(at), u32(p.size_in.z - at.s.z));
}

// ---- Rows of planes by quads ----

const BEFORE1 = i32(B1);
const BEFORE2 = i32(B2);

// Column in quads of results, row and plane of an invocation; `tiles` are how many of the first two there are.
fn unit_place(e: u32) -> vec3<u32> {
    let row = e / p.tiles.x;
    let plane = row / p.tiles.y;
    return vec3<u32>(e - row * p.tiles.x, row - plane * p.tiles.y, plane);
}

// Quads that four windows of a row reach into: from QUADS_BEFORE before those that they would begin with.
const QUADS_BEFORE = (B2 + 3u) / 4u;
const QUADS_READ = (4u * QUADS_BEFORE + 3u * S2 + K2 - B2 + 3u) / 4u;

fn max_rows(group: u32, local: u32, groups: u32) {
    let e = group * THREADS + local;
    if (e >= p.total) { return; }
    let unit = unit_place(e);
    let low = bitcast<f32>(p.ct_zero | 0xff800000u);
    // until something is greater the first element inside wins
    let row0 = i32(unit.y * S1) - BEFORE1;
    let column0 = vec4<i32>(vec4<u32>(0u, 1u, 2u, 3u) * S2 + 4u * S2 * unit.x) - BEFORE2;
    let first = vec4<i32>(max(0, -row0) * i32(K2)) + max(vec4<i32>(), -column0);
    var best = Best(vec4<f32>(low), bitcast<vec4<u32>>(first));
    let quads = p.size_in.z / 4;
    for (var k1 = 0u; k1 < K1; k1++) {
        let row = row0 + i32(k1);
        if (!is_inside(row, 1u)) { continue; }
        let line = unit.z * p.from_s.w + u32(row) * p.from_s.y;
        var x: array<f32, 4u * QUADS_READ>;
        for (var q = 0u; q < QUADS_READ; q++) {
            let quad = i32(S2 * unit.x + q) - i32(QUADS_BEFORE);
            var v = vec4<f32>(low);
            if (quad >= 0 && quad < quads) { v = from_load4(line + 4u * u32(quad)); }
            for (var i = 0u; i < 4u; i++) { x[4u * q + i] = v[i]; }
        }
        for (var k2 = 0u; k2 < K2; k2++) {
            let at = 4u * QUADS_BEFORE - B2 + k2;
            let v = vec4<f32>(x[at], x[at + S2], x[at + 2u * S2], x[at + 3u * S2]);
            let wins = (v > best.value) | (is_nan4(v) & !is_nan4(best.value));
            best = Best(select(best.value, v, wins), select(best.tap, vec4<u32>(k1 * K2 + k2), wins));
        }
    }
    to_store4(unit.z * p.to_s.w + unit.y * p.to_s.y + 4u * unit.x, best.value);
    put_tap_word((unit.z * p.at_s.w + unit.y * p.at_s.y) / 4u + unit.x,
        best.tap.x | (best.tap.y << 8u) | (best.tap.z << 16u) | (best.tap.w << 24u));
}

// Windows that reach into S1 rows from S1 y on: from y - ROWS_BEFORE on; and quads of windows into 4 S2 columns.
const ROWS_BEFORE = (K1 - 1u - B1) / S1;
const ROWS_READ = ROWS_BEFORE + (S1 - 1u + B1) / S1 + 1u;
const WINDOWS_BEFORE = ((K2 - 1u - B2) / S2 + 3u) / 4u;
const WINDOWS_READ = WINDOWS_BEFORE + (4u * S2 - 1u + B2) / S2 / 4u + 1u;

fn grad_rows(group: u32, local: u32, groups: u32) {
    let e = group * THREADS + local;
    if (e >= p.total) { return; }
    let unit = unit_place(e);
    var sums: array<f32, 4u * S1 * S2>;
    for (var i = 0u; i < 4u * S1 * S2; i++) { sums[i] = 0.0; }
    for (var o1 = 0u; o1 < ROWS_READ; o1++) {
        let row = i32(unit.y + o1) - i32(ROWS_BEFORE);
        if (row < 0 || row >= p.size_out.y) { continue; }
        for (var q = 0u; q < WINDOWS_READ; q++) {
            let quad = i32(unit.x + q) - i32(WINDOWS_BEFORE);
            if (quad < 0 || quad >= p.size_out.z / 4) { continue; }
            let g = from_load4(unit.z * p.from_s.w + u32(row) * p.from_s.y + 4u * u32(quad));
            let word = at_word((unit.z * p.at_s.w + u32(row) * p.at_s.y) / 4u + u32(quad));
            for (var i1 = 0u; i1 < S1; i1++) {
                let k1 = i32(i1) + BEFORE1 - (i32(o1) - i32(ROWS_BEFORE)) * i32(S1);
                if (k1 < 0 || k1 >= i32(K1)) { continue; }
                for (var o2 = 0u; o2 < 4u; o2++) {
                    let tap = i32((word >> (8u * o2)) & 255u) - k1 * i32(K2); // along the row, if it is of this one
                    let start = (i32(4u * q + o2) - 4 * i32(WINDOWS_BEFORE)) * i32(S2) - BEFORE2;
                    for (var k2 = 0; k2 < i32(K2); k2++) {
                        let i2 = start + k2;
                        if (i2 >= 0 && i2 < i32(4u * S2)) {
                            sums[i1 * 4u * S2 + u32(i2)] += select(0.0, g[o2], tap == k2);
                        }
                    }
                }
            }
        }
    }
    for (var i1 = 0u; i1 < S1; i1++) {
        let row = unit.y * S1 + i1;
        for (var q = 0u; q < S2; q++) {
            let column = 4u * (unit.x * S2 + q);
            if (row >= u32(p.size_in.y) || column >= u32(p.size_in.z)) { continue; }
            let s = 4u * (i1 * S2 + q);
            to_store4(unit.z * p.to_s.w + row * p.to_s.y + column,
                vec4<f32>(sums[s], sums[s + 1u], sums[s + 2u], sums[s + 3u]));
        }
    }
}

// ---- Channels last ----

fn place_last(e: u32, size: vec4<i32>) -> Place {
    let s = bitcast<vec4<u32>>(size);
    let upper = e / p.quads;
    let row = upper / s.z;
    let slab = row / s.y;
    var item = slab;
    var s0 = 0u;
    if (s.x > 1u) {
        item = slab / s.x;
        s0 = slab - item * s.x;
    }
    return Place(item, 4u * (e - upper * p.quads), vec3<i32>(i32(s0), i32(row - slab * s.y), i32(upper - row * s.z)));
}

fn max_last(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = place_last(e, p.size_out);
        let start = at.s * vec3<i32>(i32(S0), i32(S1), i32(S2)) - p.before.xyz;
        let image = base(p.from_s, p.batch.x, at);
        var best = Best(vec4<f32>(), vec4<u32>(NO_TAP));
        for (var k0 = 0u; k0 < K0; k0++) {
            let i0 = start.x + i32(k0 * D0);
            if (!is_inside(i0, 0u)) { continue; }
            for (var k1 = 0u; k1 < K1; k1++) {
                let i1 = start.y + i32(k1 * D1);
                if (!is_inside(i1, 1u)) { continue; }
                for (var k2 = 0u; k2 < K2; k2++) {
                    let i2 = start.z + i32(k2 * D2);
                    if (!is_inside(i2, 2u)) { continue; }
                    let x = channels_at(image + u32(i0) * p.from_s.x + u32(i1) * p.from_s.y + u32(i2) * p.from_s.z,
                            at.channel);
                    best = better(best, x, vec4<u32>((k0 * K1 + k1) * K2 + k2), vec4<bool>(true));
                }
            }
        }
        put_channels(offset(p.to_s, p.batch.y, at), best.value, at.channel);
        if (TAPS != 0u) { put_channel_taps(offset(p.at_s, p.batch.z, at), bitcast<vec4<i32>>(best.tap), at.channel); }
    }
}

fn mean_last(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = place_last(e, p.size_out);
        let start = at.s * vec3<i32>(i32(S0), i32(S1), i32(S2)) - p.before.xyz;
        let image = base(p.from_s, p.batch.x, at);
        var sum = vec4<f32>();
        for (var k0 = 0u; k0 < K0; k0++) {
            let i0 = start.x + i32(k0);
            if (!is_inside(i0, 0u)) { continue; }
            for (var k1 = 0u; k1 < K1; k1++) {
                let i1 = start.y + i32(k1);
                if (!is_inside(i1, 1u)) { continue; }
                var line = vec4<f32>();
                for (var k2 = 0u; k2 < K2; k2++) {
                    let i2 = start.z + i32(k2);
                    if (!is_inside(i2, 2u)) { continue; }
                    line += channels_at(image + u32(i0) * p.from_s.x + u32(i1) * p.from_s.y + u32(i2) * p.from_s.z,
                            at.channel);
                }
                sum += line;
            }
        }
        var divisor = p.divisor;
        if (divisor == 0.0) {
            divisor = count_of(0u, at.s.x, K0, S0) * count_of(1u, at.s.y, K1, S1) * count_of(2u, at.s.z, K2, S2);
        }
        put_channels(offset(p.to_s, p.batch.y, at), sum / divisor, at.channel);
    }
}

fn grad_last(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = place_last(e, p.size_in);
        let w0 = windows_of(0u, at.s.x, 1, K0, S0, D0);
        let w1 = windows_of(1u, at.s.y, 1, K1, S1, D1);
        let w2 = windows_of(2u, at.s.z, 1, K2, S2, D2);
        let image = base(p.from_s, p.batch.x, at);
        let taps = base(p.at_s, p.batch.z, at);
        var sum = vec4<f32>();
        for (var o0 = w0.x; o0 < w0.y; o0++) {
            let k0 = tap_of(0u, o0, at.s.x, S0, D0);
            if (k0 < 0) { continue; }
            for (var o1 = w1.x; o1 < w1.y; o1++) {
                let k1 = tap_of(1u, o1, at.s.y, S1, D1);
                if (k1 < 0) { continue; }
                for (var o2 = w2.x; o2 < w2.y; o2++) {
                    let k2 = tap_of(2u, o2, at.s.z, S2, D2);
                    if (k2 < 0) { continue; }
                    let g = channels_at(image + u32(o0) * p.from_s.x + u32(o1) * p.from_s.y + u32(o2) * p.from_s.z,
                            at.channel);
                    if (MAX == 1u) {
                        let won = taps_at(taps + u32(o0) * p.at_s.x + u32(o1) * p.at_s.y + u32(o2) * p.at_s.z,
                                at.channel);
                        sum += select(vec4<f32>(), g, won == vec4<i32>((k0 * i32(K1) + k1) * i32(K2) + k2));
                    } else {
                        var over = p.divisor;
                        if (over == 0.0) {
                            over = count_of(0u, o0, K0, S0) * count_of(1u, o1, K1, S1) * count_of(2u, o2, K2, S2);
                        }
                        sum += g / over;
                    }
                }
            }
        }
        put_channels(offset(p.to_s, p.batch.y, at), sum, at.channel);
    }
}

// ---- Winners ----

fn place_of_winner(e: u32) -> Place {
    let s = bitcast<vec4<u32>>(p.size_out);
    let row = e / s.z;
    let slab = row / s.y;
    let upper = slab / s.x;
    let item = upper / p.channels;
    let place = vec3<u32>(slab - upper * s.x, row - slab * s.y, e - row * s.z);
    return Place(item, upper - item * p.channels, bitcast<vec3<i32>>(place));
}

// Where the winner of a window lies; its first member is negative for a tap that the kernel does not have.
fn winner_of(at: Place) -> vec3<i32> {
    let tap = at_load(offset(p.at_s, p.batch.z, at));
    if (tap < 0 || tap >= i32(K0 * K1 * K2)) { return vec3<i32>(-0x40000000); }
    let upper = u32(tap) / K2;
    let k = vec3<u32>(upper / K1, upper % K1, u32(tap) % K2) * vec3<u32>(D0, D1, D2);
    return at.s * vec3<i32>(i32(S0), i32(S1), i32(S2)) - p.before.xyz + bitcast<vec3<i32>>(k);
}

fn places(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = place_of_winner(e);
        let s = winner_of(at);
        let plane = select((s.x * p.size_in.y + s.y) * p.size_in.z + s.z, -1, s.x == -0x40000000);
        places_store(offset(p.to_s, p.batch.y, at), ct_i64(bitcast<u32>(plane), select(0u, 0xffffffffu, plane < 0)));
    }
}

fn take_winners(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        let at = place_of_winner(e);
        let s = winner_of(at);
        var x = 0.0;
        if (is_inside(s.x, 0u) && is_inside(s.y, 1u) && is_inside(s.z, 2u)) {
            x = from_load(offset(p.from_s, p.batch.x, Place(at.item, at.channel, s)));
        }
        to_store(offset(p.to_s, p.batch.y, at), x);
    }
}
