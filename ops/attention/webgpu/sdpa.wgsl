// Attention without a matrix of scores in memory, forward and backward, after FlashAttention (Dao, Fu, Ermon, Rudra and
// Re, 2022): a workgroup takes 64 rows, of queries or, for the gradients of keys and values, of keys, and goes over the
// other side in tiles of 64. An invocation has 4 x 4 elements of every matrix of 64 x 64 in registers: rows
// 4 y to 4 y + 3 as the members of vectors, columns 4 x to 4 x + 3 as those of a matrix. Products go through workgroup
// memory in depths of 16, whose elements are vectors of 4 rows. A workgroup makes 64 columns of its result; where a head has
// more, others compute the same scores for the rest.
struct Params {
    batch: u32, heads: u32, kv_heads: u32, heads_each: u32, // heads of q for each of k and v
    tq: u32, tk: u32, d: u32, d_v: u32,
    blocks: u32, chunks: u32, ahead: i32, scale: f32,
    causal: u32, threshold: u32, keep: f32, stream_step: u32,
    // strides: batch, head, row, column
    q: vec4<u32>, k: vec4<u32>, v: vec4<u32>, mask: vec4<u32>, y: vec4<u32>, lse: vec4<u32>,
    g: vec4<u32>, g_lse: vec4<u32>, dq: vec4<u32>, dk: vec4<u32>, dv: vec4<u32>, dmask: vec4<u32>,
}

const SIDE = 64u;
const DEPTH = 16u;
const APART = 17u; // vectors from one k to the next, without conflicts of banks
const SECOND = 272u; // where the second operand begins

var<workgroup> tile: array<vec4<f32>, 544>;

// Which matrix rows come from.
const Q = 0u;
const K = 1u;
const V = 2u;
const G = 3u;

fn element(which: u32, base: u32, row: u32, column: u32) -> f32 {
    if (which == Q) { return q_load(base + row * p.q.z + column * p.q.w); }
    if (which == K) { return k_load(base + row * p.k.z + column * p.k.w); }
    if (which == V) { return v_load(base + row * p.v.z + column * p.v.w); }
    return g_load(base + row * p.g.z + column * p.g.w);
}

// Rows row to row + 3 of a column, and columns column to column + 3 of a row; 0 outside.
fn rows4(which: u32, base: u32, row: u32, rows: u32, column: u32, columns: u32) -> vec4<f32> {
    var x = vec4<f32>();
    if (column < columns) {
        for (var r = 0u; r < ct_times(4u); r++) {
            if (row + r < rows) { x[r] = element(which, base, row + r, column); }
        }
    }
    return x;
}

fn columns4(which: u32, base: u32, row: u32, rows: u32, column: u32, columns: u32) -> vec4<f32> {
    var x = vec4<f32>();
    if (row < rows) {
        for (var c = 0u; c < ct_times(4u); c++) {
            if (column + c < columns) { x[c] = element(which, base, row, column + c); }
        }
    }
    return x;
}

fn added(sum: mat4x4<f32>, a: vec4<f32>, b: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(fma(a, vec4<f32>(b.x), sum[0]), fma(a, vec4<f32>(b.y), sum[1]), fma(a, vec4<f32>(b.z), sum[2]),
                       fma(a, vec4<f32>(b.w), sum[3]));
}

// Rows of one matrix times rows of another, over all n columns.
fn products(local: u32, a: u32, a_base: u32, a_row: u32, a_rows: u32, b: u32, b_base: u32, b_row: u32, b_rows: u32,
            n: u32) -> mat4x4<f32> {
    var sum = mat4x4<f32>();
    let k = local % DEPTH;
    let four = local / DEPTH;
    for (var k0 = 0u; k0 < n; k0 += DEPTH) {
        workgroupBarrier();
        tile[k * APART + four] = rows4(a, a_base, a_row + 4u * four, a_rows, k0 + k, n);
        tile[SECOND + k * APART + four] = rows4(b, b_base, b_row + 4u * four, b_rows, k0 + k, n);
        workgroupBarrier();
        for (var i = 0u; i < ct_times(DEPTH); i++) {
            sum = added(sum, tile[i * APART + local % 16u], tile[SECOND + i * APART + local / 16u]);
        }
    }
    return sum;
}

// sum + weights times rows row to row + 63 of a matrix, of which 64 columns from column on.
fn accumulated(sum_before: mat4x4<f32>, local: u32, weights: mat4x4<f32>, which: u32, base: u32, row: u32, rows: u32,
               column: u32, columns: u32) -> mat4x4<f32> {
    var sum = sum_before;
    let y = local % 16u;
    let x = local / 16u;
    for (var part = 0u; part < 4u; part++) {
        if (row + part * DEPTH >= rows) { break; }
        workgroupBarrier();
        if (x / 4u == part) {
            let at = (x % 4u) * 4u * 16u + y;
            tile[at] = weights[0];
            tile[at + 16u] = weights[1];
            tile[at + 32u] = weights[2];
            tile[at + 48u] = weights[3];
        }
        tile[SECOND + local] = columns4(which, base, row + part * DEPTH + local / 16u, rows,
                column + 4u * (local % 16u), columns);
        workgroupBarrier();
        for (var i = 0u; i < ct_times(DEPTH); i++) { sum = added(sum, tile[i * 16u + y], tile[SECOND + i * 16u + x]); }
    }
    return sum;
}

// ---- Scores ----

fn exp4(x: vec4<f32>) -> vec4<f32> {
    var y = vec4<f32>();
    for (var i = 0u; i < ct_times(4u); i++) { y[i] = ct_exp(x[i]); }
    return y;
}

fn is_seen(i: vec4<i32>, j: vec4<i32>) -> vec4<bool> {
    return (i < vec4<i32>(i32(p.tq))) & (j < vec4<i32>(i32(p.tk))) & (vec4<bool>(p.causal == 0u) | (j <= i + p.ahead));
}

// How many keys query i sees at most.
fn seen(i: u32) -> u32 {
    if (p.causal == 0u) { return p.tk; }
    return u32(clamp(i32(i) + p.ahead + 1, 0, i32(p.tk)));
}

// From products of queries i and keys j; -inf where the key takes no part.
fn scored(product: vec4<f32>, i: vec4<i32>, j: vec4<i32>, mask_base: u32) -> vec4<f32> {
    let there = is_seen(i, j);
    var s = product * p.scale;
    if (MASK == 1u) {
        let at = vec4<u32>(mask_base) + bitcast<vec4<u32>>(i) * p.mask.z + bitcast<vec4<u32>>(j) * p.mask.w;
        for (var k = 0u; k < ct_times(4u); k++) {
            if (there[k]) { s[k] += mask_at(at[k]); }
        }
    }
    return select(vec4<f32>(-ct_inf()), s, there);
}

fn stream_part(i: u32) -> vec2<u32> {
    let low = bitcast<u32>(stream_load(i * p.stream_step));
    if (WIDE == 1u) { return vec2<u32>(low, bitcast<u32>(stream_load(i * p.stream_step + 1u))); }
    return vec2<u32>(low, select(0u, 0xffffffffu, (low >> 31u) == 1u));
}

// What dropout multiplies the weights of four neighboring keys by; first is the number of the first among all scores.
fn factors(first: u32) -> vec4<f32> {
    let at = ct_position(stream_part(0u), stream_part(1u), stream_part(2u));
    let words = ct_philox(at, first / 4u);
    let more = ct_philox(at, first / 4u + 1u);
    var kept = vec4<u32>();
    for (var c = 0u; c < ct_times(4u); c++) {
        let n = first % 4u + c;
        kept[c] = select(words[n % 4u], more[n % 4u], n >= 4u);
    }
    return select(vec4<f32>(), vec4<f32>(p.keep), kept >= vec4<u32>(p.threshold));
}

struct Head {
    b: u32,
    h: u32,
    first: u32, // row
    chunk: u32,
}

// The longest rows of a causal mask come first.
fn head_of(group: u32, heads: u32, reversed: bool) -> Head {
    let upper = group / p.chunks;
    let head = upper / p.blocks;
    let b = head / heads;
    var block = upper - head * p.blocks;
    if (reversed) { block = p.blocks - 1u - block; }
    return Head(b, head - b * heads, block * SIDE, group - upper * p.chunks);
}

// ---- Forward ----

// Of a vector that each invocation has, the largest or the sum over those with the same rows.
fn most_of_rows(local: u32, x: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    tile[local] = x;
    workgroupBarrier();
    var most = x;
    for (var i = 0u; i < 16u; i++) { most = max(most, tile[i * 16u + local % 16u]); }
    return most;
}

fn sum_of_rows(local: u32, x: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    tile[local] = x;
    workgroupBarrier();
    var sum = vec4<f32>();
    for (var i = 0u; i < 16u; i++) { sum += tile[i * 16u + local % 16u]; }
    return sum;
}

// Weights of rows i and keys j to j + 3 with dropout.
fn dropped(w: mat4x4<f32>, row: u32, j: u32) -> mat4x4<f32> {
    if (DROPS == 0u) { return w; }
    var x = w;
    for (var r = 0u; r < ct_times(4u); r++) {
        let by = factors((row + r) * p.tk + j);
        for (var c = 0u; c < ct_times(4u); c++) { x[c][r] *= by[c]; }
    }
    return x;
}

fn forward(group: u32, local: u32, groups: u32) {
    let head = head_of(group, p.heads, true);
    let hk = head.h / p.heads_each;
    let q_base = head.b * p.q.x + head.h * p.q.y;
    let k_base = head.b * p.k.x + hk * p.k.y;
    let v_base = head.b * p.v.x + hk * p.v.y;
    let mask_base = head.b * p.mask.x + head.h * p.mask.y;
    let row = head.first + 4u * (local % 16u);
    let i = vec4<i32>(i32(row)) + vec4<i32>(0, 1, 2, 3);
    var o = mat4x4<f32>();
    var top = vec4<f32>(-ct_inf());
    var sum = vec4<f32>();
    let end = seen(min(head.first + SIDE, p.tq) - 1u);
    for (var j0 = 0u; j0 < end; j0 += SIDE) {
        let j = j0 + 4u * (local / 16u);
        var s = products(local, Q, q_base, head.first, p.tq, K, k_base, j0, p.tk, p.d);
        for (var c = 0u; c < ct_times(4u); c++) { s[c] = scored(s[c], i, vec4<i32>(i32(j + c)), mask_base); }
        let now = max(top, most_of_rows(local, max(max(s[0], s[1]), max(s[2], s[3]))));
        let level = select(now, vec4<f32>(), now == vec4<f32>(-ct_inf()));
        let down = exp4(top - level);
        top = now;
        sum *= down;
        var w = mat4x4<f32>();
        for (var c = 0u; c < ct_times(4u); c++) {
            w[c] = exp4(s[c] - level);
            sum += w[c];
            o[c] *= down;
        }
        w = dropped(w, (head.b * p.heads + head.h) * p.tq + row, j);
        o = accumulated(o, local, w, V, v_base, j0, end, head.chunk * SIDE, p.d_v);
    }
    let all_of_it = sum_of_rows(local, sum);
    let column = head.chunk * SIDE + 4u * (local / 16u);
    let y_base = head.b * p.y.x + head.h * p.y.y;
    for (var r = 0u; r < ct_times(4u); r++) {
        if (row + r >= p.tq) { break; }
        let share = select(1.0 / all_of_it[r], 0.0, all_of_it[r] == 0.0);
        for (var c = 0u; c < ct_times(4u); c++) {
            if (column + c < p.d_v) { y_store(y_base + (row + r) * p.y.z + (column + c) * p.y.w, o[c][r] * share); }
        }
        if (lse_given && head.chunk == 0u && local < 16u) {
            var level = ct_inf();
            if (all_of_it[r] != 0.0) { level = top[r] + ct_log(all_of_it[r]); }
            lse_store(head.b * p.lse.x + head.h * p.lse.y + (row + r) * p.lse.z, level);
        }
    }
}

// ---- Backward ----

// Of each row lse and delta = sum(g y) - g_lse: 16 invocations for a row.
fn levels(group: u32, local: u32, groups: u32) {
    let row = group * 16u + local / 16u;
    let i = row % p.tq;
    let h = (row / p.tq) % p.heads;
    let b = row / p.tq / p.heads;
    let is_there = b < p.batch;
    var sum = 0.0;
    if (is_there) {
        let y = b * p.y.x + h * p.y.y + i * p.y.z;
        let g = b * p.g.x + h * p.g.y + i * p.g.z;
        for (var c = local % 16u; c < p.d_v; c += 16u) { sum = fma(y_load(y + c * p.y.w), g_load(g + c * p.g.w), sum); }
    }
    tile[local].x = sum;
    workgroupBarrier();
    if (!is_there || local % 16u != 0u) { return; }
    for (var k = 1u; k < 16u; k++) { sum += tile[local + k].x; }
    if (g_lse_given) { sum -= g_lse_load(b * p.g_lse.x + h * p.g_lse.y + i * p.g_lse.z); }
    rows_store(2u * row, lse_load(b * p.lse.x + h * p.lse.y + i * p.lse.z));
    rows_store(2u * row + 1u, sum);
}

// The weight where the key takes part, else 0.
fn weight(product: vec4<f32>, i: vec4<i32>, j: vec4<i32>, mask_base: u32, level: vec4<f32>) -> vec4<f32> {
    return select(vec4<f32>(), exp4(scored(product, i, j, mask_base) - level), is_seen(i, j));
}

fn queries_backward(group: u32, local: u32, groups: u32) {
    let head = head_of(group, p.heads, true);
    let hk = head.h / p.heads_each;
    let q_base = head.b * p.q.x + head.h * p.q.y;
    let g_base = head.b * p.g.x + head.h * p.g.y;
    let k_base = head.b * p.k.x + hk * p.k.y;
    let v_base = head.b * p.v.x + hk * p.v.y;
    let mask_base = head.b * p.mask.x + head.h * p.mask.y;
    let row = head.first + 4u * (local % 16u);
    let first_row = (head.b * p.heads + head.h) * p.tq;
    let i = vec4<i32>(i32(row)) + vec4<i32>(0, 1, 2, 3);
    var level = vec4<f32>();
    var delta = vec4<f32>();
    for (var r = 0u; r < ct_times(4u); r++) {
        if (row + r < p.tq) {
            level[r] = rows_load(2u * (first_row + row + r));
            delta[r] = rows_load(2u * (first_row + row + r) + 1u);
        }
    }
    var dq = mat4x4<f32>();
    var end = seen(min(head.first + SIDE, p.tq) - 1u);
    if (dmask_given) { end = p.tk; } // its gradient is written everywhere
    for (var j0 = 0u; j0 < end; j0 += SIDE) {
        let j = j0 + 4u * (local / 16u);
        let s = products(local, Q, q_base, head.first, p.tq, K, k_base, j0, p.tk, p.d);
        let dp = dropped(products(local, G, g_base, head.first, p.tq, V, v_base, j0, p.tk, p.d_v), first_row + row, j);
        var ds = mat4x4<f32>();
        for (var c = 0u; c < ct_times(4u); c++) {
            ds[c] = weight(s[c], i, vec4<i32>(i32(j + c)), mask_base, level) * (dp[c] - delta);
        }
        if (dmask_given && head.chunk == 0u) {
            for (var r = 0u; r < ct_times(4u); r++) {
                for (var c = 0u; c < ct_times(4u); c++) {
                    if (row + r < p.tq && j + c < p.tk) {
                        let at = head.b * p.dmask.x + head.h * p.dmask.y;
                        dmask_store(at + (row + r) * p.dmask.z + (j + c) * p.dmask.w, ds[c][r]);
                    }
                }
            }
        }
        dq = accumulated(dq, local, ds, K, k_base, j0, p.tk, head.chunk * SIDE, p.d);
    }
    if (!dq_given) { return; }
    let column = head.chunk * SIDE + 4u * (local / 16u);
    for (var r = 0u; r < ct_times(4u); r++) {
        for (var c = 0u; c < ct_times(4u); c++) {
            if (row + r < p.tq && column + c < p.d) {
                dq_store(head.b * p.dq.x + head.h * p.dq.y + (row + r) * p.dq.z + (column + c) * p.dq.w,
                        dq[c][r] * p.scale);
            }
        }
    }
}

// Keys are the rows here, queries the columns.
fn keys_backward(group: u32, local: u32, groups: u32) {
    let head = head_of(group, p.kv_heads, false);
    let k_base = head.b * p.k.x + head.h * p.k.y;
    let v_base = head.b * p.v.x + head.h * p.v.y;
    let row = head.first + 4u * (local % 16u);
    let j = vec4<i32>(i32(row)) + vec4<i32>(0, 1, 2, 3);
    var begin = 0u;
    if (p.causal != 0u) { begin = min(u32(max(i32(head.first) - p.ahead, 0)) / SIDE * SIDE, p.tq); }
    var dk = mat4x4<f32>();
    var dv = mat4x4<f32>();
    for (var h = head.h * p.heads_each; h < (head.h + 1u) * p.heads_each; h++) {
        let q_base = head.b * p.q.x + h * p.q.y;
        let g_base = head.b * p.g.x + h * p.g.y;
        let mask_base = head.b * p.mask.x + h * p.mask.y;
        let first_row = (head.b * p.heads + h) * p.tq;
        for (var i0 = begin; i0 < p.tq; i0 += SIDE) {
            let s = products(local, K, k_base, head.first, p.tk, Q, q_base, i0, p.tq, p.d);
            let dp = products(local, V, v_base, head.first, p.tk, G, g_base, i0, p.tq, p.d_v);
            var w = mat4x4<f32>();
            var ds = mat4x4<f32>();
            for (var c = 0u; c < ct_times(4u); c++) {
                let i = i0 + 4u * (local / 16u) + c;
                if (i >= p.tq) { break; }
                let at = first_row + i;
                let x = weight(s[c], vec4<i32>(i32(i)), j, mask_base, vec4<f32>(rows_load(2u * at)));
                var kept = vec4<f32>(1.0);
                if (DROPS == 1u) { kept = factors(at * p.tk + row); }
                w[c] = x * kept;
                ds[c] = x * (dp[c] * kept - rows_load(2u * at + 1u));
            }
            dv = accumulated(dv, local, w, G, g_base, i0, p.tq, head.chunk * SIDE, p.d_v);
            dk = accumulated(dk, local, ds, Q, q_base, i0, p.tq, head.chunk * SIDE, p.d);
        }
    }
    let column = head.chunk * SIDE + 4u * (local / 16u);
    for (var r = 0u; r < ct_times(4u); r++) {
        for (var c = 0u; c < ct_times(4u); c++) {
            if (row + r >= p.tk) { continue; }
            if (dk_given && column + c < p.d) {
                dk_store(head.b * p.dk.x + head.h * p.dk.y + (row + r) * p.dk.z + (column + c) * p.dk.w,
                        dk[c][r] * p.scale);
            }
            if (dv_given && column + c < p.d_v) {
                dv_store(head.b * p.dv.x + head.h * p.dv.y + (row + r) * p.dv.z + (column + c) * p.dv.w, dv[c][r]);
            }
        }
    }
}
