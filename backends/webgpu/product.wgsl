// Products of strided matrices, by the tiles of tile.wgsl: c = activation(a b + bias), bias one number a column. Two
// things that gradients of dense layers need come with it. If y is given, a is multiplied, element by element, by the
// derivative of the activation `slope` where its result is y. And a last column of b that is all ones, if n is
// `columns` + 1: its sums go to `extra`.
//
// `each` is for small ones: an invocation computes an element.
//
// INSIDE: quads alone, all of them inside of A and B, and neither y nor that column: then nothing is asked.

struct Params {
    m: u32, n: u32, k: u32, part: u32, tiles_m: u32, tiles_n: u32, batches: u32, parts: u32,
    columns: u32, batch_dims: u32, a_row: u32, a_col: u32, b_row: u32, b_col: u32, c_row: u32, c_col: u32,
    y_row: u32, y_col: u32, bias_step: u32, extra_step: u32,
    activation: u32, slope: u32, pad_a: u32, pad_b: u32,
    batch: array<vec4<u32>, 2>, a_batch: array<vec4<u32>, 2>,
    b_batch: array<vec4<u32>, 2>, c_batch: array<vec4<u32>, 2>,
}

alias E = a_t;

var<private> a_base: u32; // of the matrices of this product of the batch
var<private> b_base: u32;
var<private> c_base: u32;
var<private> a_fixed: vec2<u32>;
var<private> b_fixed: vec2<u32>;

fn begin(z: u32) {
    a_base = 0u;
    b_base = 0u;
    c_base = 0u;
    var rest = z;
    for (var i = p.batch_dims; i > 0u; i--) {
        let d = i - 1u;
        let size = p.batch[d / 4u][d % 4u];
        let at = rest % size;
        rest /= size;
        a_base += at * p.a_batch[d / 4u][d % 4u];
        b_base += at * p.b_batch[d / 4u][d % 4u];
        c_base += at * p.c_batch[d / 4u][d % 4u];
    }
}

fn a_fix(slot: u32, row: u32) {
    if (slot == 0u) { a_fixed.x = row; } else { a_fixed.y = row; }
}
fn b_fix(slot: u32, column: u32) {
    if (slot == 0u) { b_fixed.x = column; } else { b_fixed.y = column; }
}

// `count` elements, at least one, from at on.
fn a_some(at: u32, step: u32, count: u32) -> vec4<E> {
    var v = vec4<E>();
    v.x = a_load(at);
    if (count > 1u) { v.y = a_load(at + step); }
    if (count > 2u) { v.z = a_load(at + 2u * step); }
    if (count > 3u) { v.w = a_load(at + 3u * step); }
    return v;
}
fn b_some(at: u32, step: u32, count: u32) -> vec4<E> {
    var v = vec4<E>();
    v.x = b_load(at);
    if (count > 1u) { v.y = b_load(at + step); }
    if (count > 2u) { v.z = b_load(at + 2u * step); }
    if (count > 3u) { v.w = b_load(at + 3u * step); }
    return v;
}
fn y_some(at: u32, step: u32, count: u32) -> vec4<E> {
    var v = vec4<E>();
    v.x = y_load(at);
    if (count > 1u) { v.y = y_load(at + step); }
    if (count > 2u) { v.z = y_load(at + 2u * step); }
    if (count > 3u) { v.w = y_load(at + 3u * step); }
    return v;
}

fn sloped_one(g: E, y: E) -> E { return E(ct_activation_grad(p.slope, f32(y), f32(g))); }
fn sloped(g: vec4<E>, y: vec4<E>) -> vec4<E> {
    return vec4<E>(sloped_one(g.x, y.x), sloped_one(g.y, y.y), sloped_one(g.z, y.z), sloped_one(g.w, y.w));
}

fn a_quad(slot: u32, k: u32) -> vec4<E> { return a_at(select(a_fixed.y, a_fixed.x, slot == 0u), k); }
fn b_quad(slot: u32, k: u32) -> vec4<E> { return b_at(select(b_fixed.y, b_fixed.x, slot == 0u), k); }

fn a_at(row: u32, k: u32) -> vec4<E> {
    if (INSIDE == 1u) { return a_load4(a_base + row * p.a_row + k * p.a_col); }
    if (row >= p.m || k >= p.k) { return vec4<E>(); }
    let at = a_base + row * p.a_row + k * p.a_col;
    let y_at = row * p.y_row + k * p.y_col;
    if (A_ALONG_K == 1u) {
        let count = p.k - k;
        var v: vec4<E>;
        if (A_QUADS == 1u) { v = a_load4(at); } else { v = a_some(at, p.a_col, count); }
        if (y_given) { v = sloped(v, y_some(y_at, p.y_col, count)); }
        return v;
    }
    let count = p.m - row;
    var v: vec4<E>;
    if (A_QUADS == 1u) { v = a_load4(at); } else { v = a_some(at, p.a_row, count); }
    if (y_given) { v = sloped(v, y_some(y_at, p.y_row, count)); }
    return v;
}

fn b_at(column: u32, k: u32) -> vec4<E> {
    if (INSIDE == 1u) { return b_load4(b_base + k * p.b_row + column * p.b_col); }
    if (column >= p.n || k >= p.k) { return vec4<E>(); }
    let at = b_base + k * p.b_row + column * p.b_col;
    if (B_ALONG_K == 1u) {
        if (column == p.columns) { return vec4<E>(E(1)); } // beyond k a is 0
        if (B_QUADS == 1u) { return b_load4(at); }
        return b_some(at, p.b_row, p.k - k);
    }
    if (column == p.columns) { return vec4<E>(E(1), E(), E(), E()); }
    if (B_QUADS == 1u) { return b_load4(at); }
    let count = p.columns - column;
    var v = b_some(at, p.b_col, count);
    if (count < 4u && column + count < p.n) { v[count] = E(1); }
    return v;
}

fn finished(sum: E, column: u32) -> E {
    var v = sum;
    if (bias_given) { v += bias_load(column * p.bias_step); }
    if (ACTIVATED == 1u) { v = E(ct_activate(p.activation, f32(v))); }
    return v;
}

fn put(row: u32, column: u32, v: vec4<E>) {
    let at = c_base + row * p.c_row + column * p.c_col;
    if (C_QUADS == 1u && column < p.columns) {
        c_store4(at, vec4<E>(finished(v.x, column), finished(v.y, column + 1u), finished(v.z, column + 2u),
                             finished(v.w, column + 3u)));
        return;
    }
    for (var i = 0u; i < min(4u, p.n - column); i++) {
        if (column + i < p.columns) {
            c_store(at + i * p.c_col, finished(v[i], column + i));
        } else {
            extra_store(row * p.extra_step, v[i]);
        }
    }
}

fn each(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.m * p.n * p.batches; e += groups * THREADS) {
        let column = e % p.n;
        let row = e / p.n % p.m;
        begin(e / (p.n * p.m));
        var sum = E();
        for (var k = 0u; k < p.k; k++) {
            var a = a_load(a_base + row * p.a_row + k * p.a_col);
            if (y_given) { a = sloped_one(a, y_load(row * p.y_row + k * p.y_col)); }
            if (column < p.columns) { a *= b_load(b_base + k * p.b_row + column * p.b_col); }
            sum += a;
        }
        if (column < p.columns) {
            c_store(c_base + row * p.c_row + column * p.c_col, finished(sum, column));
        } else {
            extra_store(row * p.extra_step, sum);
        }
    }
}
