// Lists of items: steps in which every element goes by itself, moving averages, products with a number, norms. A
// workgroup takes one chunk of an item, which it finds in the table in p; an invocation takes quads of elements, or
// single ones as the first of four. The arithmetic is that of ops/optim/cpu/lanes.h.
//
// Tensors: x0 what is learned, x1 the gradient, x2 to x4 the states, r the parameter that is rounded from x0. The host
// gives *_load4 and *_store4 of them where it is not quads that are taken, and put_rounded.
struct Params {
    items: u32, chunk: u32, before: u32, rank: u32, // before: chunks of the lists before this one
    number: f32, partials: u32, rate_stride: u32, finish_at: u32,
    // by item: first chunk, elements, then where each tensor begins; or, of one strided item, see places
    table: array<vec4<u32>, 36>,
}

const SGD = 0u;
const ADAM = 1u;
const RMSPROP = 2u;
const ADAGRAD = 3u;
const ADADELTA = 4u;
const LION = 5u;
const LAMB = 6u;
const LARS = 7u;
const AVERAGE = 8u;
const CLIP = 9u;
const UNSCALE = 10u;
const NORM_2 = 11u;
const NORM_MOST = 12u;
const NORM_POWERS = 13u;

struct Item {
    p: vec4<f32>,
    g: vec4<f32>,
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
}

struct Part {
    row: u32, // of the table
    start: u32,
    end: u32, // elements
    first: u32, // chunk of its item
    chunks: u32, // of its item
}

fn word(i: u32) -> u32 { return p.table[i >> 2u][i & 3u]; }

fn part_of(chunk: u32) -> Part {
    if (STRIDED == 1u) {
        return Part(0u, chunk * p.chunk, min(chunk * p.chunk + p.chunk, word(1u)), 0u,
                (word(1u) + p.chunk - 1u) / p.chunk);
    }
    var low = 0u;
    var high = p.items;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (word(middle * ROW) <= chunk) { low = middle; } else { high = middle; }
    }
    let row = low * ROW;
    let first = word(row);
    let count = word(row + 1u);
    let start = (chunk - first) * p.chunk;
    return Part(row, start, min(start + p.chunk, count), first, (count + p.chunk - 1u) / p.chunk);
}

// Where element e of an item lies in tensor k. A strided item has 8 sizes from word 2 on, and 8 strides for each tensor
// after them.
fn place(row: u32, k: u32, e: u32) -> u32 {
    if (STRIDED == 0u) { return word(row + 2u + k) + e; }
    var rest = e;
    var at = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let size = word(1u + d);
        let whole = rest / size;
        at += (rest - whole * size) * word(9u + 8u * k + d);
        rest = whole;
    }
    return at;
}

fn number(i: u32) -> vec4<f32> { return vec4<f32>(numbers_load(i)); }

fn load(row: u32, e: u32) -> Item {
    var x: Item;
    if (x0_given) { x.p = x0_load4(place(row, X0, e)); }
    if (x1_given) { x.g = x1_load4(place(row, X0 + 1u, e)); }
    if (x2_given) { x.a = x2_load4(place(row, X0 + 2u, e)); }
    if (x3_given) { x.b = x3_load4(place(row, X0 + 3u, e)); }
    if (x4_given) { x.c = x4_load4(place(row, X0 + 4u, e)); }
    return x;
}

fn store(row: u32, e: u32, x: Item) {
    if (x0_given) { x0_store4(place(row, X0, e), x.p); }
    if (x2_given) { x2_store4(place(row, X0 + 2u, e), x.a); }
    if (x3_given) { x3_store4(place(row, X0 + 3u, e), x.b); }
    if (x4_given) { x4_store4(place(row, X0 + 4u, e), x.c); }
}

// Which of the four elements from e on there are. What lies beyond is stored as it was loaded.
fn there_are(e: u32, end: u32) -> vec4<bool> {
    if (LANES == 1u) { return vec4<bool>(true, false, false, false); }
    return vec4<u32>(0u, 1u, 2u, 3u) + e < vec4<u32>(end);
}

fn kept(old: Item, new_one: Item, valid: vec4<bool>) -> Item {
    return Item(select(old.p, new_one.p, valid), old.g, select(old.a, new_one.a, valid),
                select(old.b, new_one.b, valid), select(old.c, new_one.c, valid));
}

// ---- Steps ----

// a keep + b rest
fn mixed(a: vec4<f32>, b: vec4<f32>, keep: vec4<f32>, rest: vec4<f32>) -> vec4<f32> { return fma(b, rest, a * keep); }

fn sgd(old: Item) -> Item {
    var x = old;
    var g = fma(x.p, number(5u), x.g * number(0u));
    if (x2_given) {
        x.a = mixed(x.a, g, number(2u), number(3u));
        if (NESTEROV == 1u) { g = fma(x.a, number(4u), g); } else { g = x.a; }
    }
    x.p = fma(-g, number(1u), x.p);
    return x;
}

fn adam(old: Item) -> Item {
    var x = old;
    let g = fma(x.p, number(6u), x.g * number(0u));
    x.a = mixed(x.a, g, number(1u), number(2u));
    x.b = mixed(x.b, g * g, number(3u), number(4u));
    var v = x.b;
    if (x4_given) { // amsgrad; NaN stays
        x.c = select(x.c, x.b, (x.b > x.c) | (x.b != x.b));
        v = x.c;
    }
    var u = fma(g, number(8u), x.a * number(9u));
    if (numbers_load(11u) == 0.0) { u = u / fma(sqrt(v), number(10u), number(5u)); }
    x.p = x.p * number(7u) - u;
    return x;
}

fn rmsprop(old: Item) -> Item {
    var x = old;
    let g = fma(x.p, number(5u), x.g * number(0u));
    x.a = mixed(x.a, g * g, number(2u), number(3u));
    var v = x.a;
    if (CENTERED == 1u) {
        x.b = mixed(x.b, g, number(2u), number(3u));
        v = fma(-x.b, x.b, v);
    }
    var u = g / (sqrt(v) + number(4u));
    if (CENTERED == 1u && x4_given) {
        x.c = fma(x.c, number(6u), u);
        u = x.c;
    }
    if (CENTERED == 0u && x3_given) {
        x.b = fma(x.b, number(6u), u);
        u = x.b;
    }
    x.p = fma(-u, number(1u), x.p);
    return x;
}

fn adagrad(old: Item) -> Item {
    var x = old;
    let g = fma(x.p, number(3u), x.g * number(0u));
    x.a = fma(g, g, x.a);
    x.p = x.p - g * number(1u) / (sqrt(x.a) + number(2u));
    return x;
}

fn adadelta(old: Item) -> Item {
    var x = old;
    let g = fma(x.p, number(5u), x.g * number(0u));
    x.a = mixed(x.a, g * g, number(2u), number(3u));
    let u = sqrt(x.b + number(4u)) / sqrt(x.a + number(4u)) * g;
    x.b = mixed(x.b, u * u, number(2u), number(3u));
    x.p = fma(-u, number(1u), x.p);
    return x;
}

fn lion(old: Item) -> Item {
    var x = old;
    let g = x.g * number(0u);
    let c = mixed(x.a, g, number(2u), number(3u));
    x.p = fma(-select(sign(c), c, c != c), number(1u), x.p * number(6u));
    x.a = mixed(x.a, g, number(4u), number(5u));
    return x;
}

// From the one that counts more, by half the difference: equal ones stay.
fn averaged(old: Item, keep: f32, rest: f32) -> Item {
    var x = old;
    if (keep == 0.0) {
        x.p = x.g;
    } else {
        let is_older = keep >= 0.5;
        let heavy = select(x.g, x.p, vec4<bool>(is_older));
        let light = select(x.p, x.g, vec4<bool>(is_older));
        x.p = fma(-fma(heavy, vec4<f32>(0.5), light * -0.5), vec4<f32>(2.0 * select(keep, rest, is_older)), heavy);
    }
    return x;
}

fn lamb_direction(x: Item) -> vec4<f32> {
    return fma(x.p, number(7u), x.a * number(8u) / fma(sqrt(x.b), number(9u), number(6u)));
}

fn stepped(x: Item) -> Item {
    if (KIND == SGD) { return sgd(x); }
    if (KIND == ADAM) { return adam(x); }
    if (KIND == RMSPROP) { return rmsprop(x); }
    if (KIND == ADAGRAD) { return adagrad(x); }
    if (KIND == ADADELTA) { return adadelta(x); }
    if (KIND == LION) { return lion(x); }
    if (KIND == AVERAGE) { return averaged(x, rate_load(0u), rate_load(p.rate_stride)); }
    var y = x; // CLIP
    y.p = x.p * (p.number / (rate_load(0u) + 1e-6));
    return y;
}

fn each(group: u32, local: u32, groups: u32) {
    if (KIND < AVERAGE) {
        if (numbers_load(15u) == 0.0) { return; } // the gate is shut
    }
    if (KIND == CLIP) {
        if (p.number / (rate_load(0u) + 1e-6) >= 1.0) { return; } // NaN goes on
    }
    let part = part_of(group);
    for (var e = part.start + local * LANES; e < part.end; e += THREADS * LANES) {
        let x = load(part.row, e);
        let y = kept(x, stepped(x), there_are(e, part.end));
        store(part.row, e, y);
        put_rounded(place(part.row, 0u, e), y.p, part.end - e);
    }
}

// ---- Sums ----
//
// A length by the sums of squares of Blue (1978): of small, of middle and of large elements, the outer ones scaled, so
// that none is lost and none is infinite.

const SMALL = 0x1p-63f;
const LARGE = 0x1p52f;
const SCALE_SMALL = 0x1p75f;
const SCALE_LARGE = 0x1p-76f;

fn squares(x: vec4<f32>) -> vec3<f32> {
    let m = abs(x);
    let is_small = m < vec4<f32>(SMALL);
    let is_large = m > vec4<f32>(LARGE);
    let s = select(vec4<f32>(), x * SCALE_SMALL, is_small);
    let l = select(vec4<f32>(), x * SCALE_LARGE, is_large);
    let m1 = select(x, vec4<f32>(), is_small | is_large);
    return vec3<f32>(dot(s, s), dot(m1, m1), dot(l, l));
}

fn length_of(sums: vec3<f32>) -> f32 {
    if (sums.z > 0.0) { return sqrt(sums.z + sums.y * SCALE_LARGE * SCALE_LARGE) / SCALE_LARGE; }
    if (sums.x > 0.0) {
        let small = sqrt(sums.x) / SCALE_SMALL;
        if (sums.y == 0.0) { return small; }
        let middle = sqrt(sums.y);
        if (small <= middle) { return middle * sqrt(1.0 + (small / middle) * (small / middle)); }
        return small * sqrt(1.0 + (middle / small) * (middle / small));
    }
    return sqrt(sums.y);
}

var<workgroup> shared_sums: array<vec3<f32>, THREADS>;
var<workgroup> is_open: u32;

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

// Of two partial results: NaN is the largest of all.
fn joined(a: vec3<f32>, b: vec3<f32>) -> vec3<f32> {
    if (KIND == NORM_MOST) { return vec3<f32>(select(a.x, b.x, b.x > a.x || is_nan(b.x)), 0.0, 0.0); }
    return a + b;
}

// Of all invocations of the workgroup, always in the same order.
fn total(local: u32, x: vec3<f32>) -> vec3<f32> {
    workgroupBarrier();
    shared_sums[local] = x;
    workgroupBarrier();
    for (var n = THREADS / 2u; n > 0u; n /= 2u) {
        if (local < n) { shared_sums[local] = joined(shared_sums[local], shared_sums[local + n]); }
        workgroupBarrier();
    }
    return shared_sums[0];
}

fn put_sum(i: u32, x: vec3<f32>) { sums_store4(4u * i, vec4<f32>(x, 0.0)); }

fn sum_at(i: u32) -> vec3<f32> { return sums_load4(4u * i).xyz; }

fn sum_of(local: u32, first: u32, n: u32, stride: u32) -> vec3<f32> {
    var sum = vec3<f32>();
    for (var i = local; i < n; i += THREADS) { sum = joined(sum, sum_at(first + i * stride)); }
    return total(local, sum);
}

fn opened(local: u32) -> bool {
    if (local == 0u) { is_open = select(1u, 0u, numbers_load(15u) == 0.0); }
    return workgroupUniformLoad(&is_open) != 0u;
}

// The first pass of LAMB and LARS: moments, and the squares of parameter and of direction or gradient, by chunk.
fn lengths(group: u32, local: u32, groups: u32) {
    if (!opened(local)) { return; }
    let part = part_of(group);
    var weight = vec3<f32>();
    var other = vec3<f32>();
    for (var e = part.start + local * LANES; e < part.end; e += THREADS * LANES) {
        let x = load(part.row, e);
        let valid = there_are(e, part.end);
        var y = x;
        var u = x.g;
        if (KIND == LAMB) {
            let g = x.g * number(0u);
            y.a = mixed(x.a, g, number(2u), number(3u));
            y.b = mixed(x.b, g * g, number(4u), number(5u));
            u = lamb_direction(y);
            y = kept(x, y, valid);
            x2_store4(place(part.row, X0 + 2u, e), y.a);
            x3_store4(place(part.row, X0 + 3u, e), y.b);
        }
        weight += squares(select(vec4<f32>(), x.p, valid));
        other += squares(select(vec4<f32>(), u, valid));
    }
    let weights = total(local, weight);
    let others = total(local, other);
    if (local == 0u) {
        put_sum(2u * (p.before + group), weights);
        put_sum(2u * (p.before + group) + 1u, others);
    }
}

// The second pass, with each item's lengths from the squares of its chunks.
fn by_lengths(group: u32, local: u32, groups: u32) {
    if (!opened(local)) { return; }
    let part = part_of(group);
    let from_sum = 2u * (p.before + part.first);
    let weight = length_of(sum_of(local, from_sum, part.chunks, 2u));
    let other = length_of(sum_of(local, from_sum + 1u, part.chunks, 2u));
    var lr = numbers_load(1u);
    if (KIND == LAMB) {
        if (weight > 0.0 && other > 0.0) { lr *= weight / other; }
    } else {
        let gradient = other * abs(numbers_load(0u));
        if (weight > 0.0 && gradient > 0.0) {
            lr *= numbers_load(4u) * weight / (gradient + numbers_load(3u) * weight + numbers_load(5u));
        }
    }
    for (var e = part.start + local * LANES; e < part.end; e += THREADS * LANES) {
        let x = load(part.row, e);
        var y = x;
        if (KIND == LAMB) {
            y.p = fma(-lamb_direction(x), vec4<f32>(lr), x.p);
        } else {
            let u = fma(x.p, number(3u), x.g * number(0u)) * lr;
            y.a = fma(x.a, number(2u), u);
            if (NESTEROV == 1u) { y.p = x.p - fma(y.a, number(2u), u); } else { y.p = x.p - y.a; }
        }
        y = kept(x, y, there_are(e, part.end));
        x0_store4(place(part.row, X0, e), y.p);
        if (KIND == LARS) { x2_store4(place(part.row, X0 + 2u, e), y.a); }
        put_rounded(place(part.row, 0u, e), y.p, part.end - e);
    }
}

// Norms and the division by a scale: what each chunk has, then of all chunks.
fn sums_by_chunk(group: u32, local: u32, groups: u32) {
    let part = part_of(group);
    var sum = vec3<f32>();
    var by = 1.0;
    if (KIND == UNSCALE && LATE == 0u) { by = 1.0 / rate_load(0u); }
    if (KIND == NORM_POWERS) { by = numbers_load(0u); } // the largest magnitude
    for (var e = part.start + local * LANES; e < part.end; e += THREADS * LANES) {
        let valid = there_are(e, part.end);
        let at = place(part.row, X0, e);
        let x = x0_load4(at);
        let m = select(vec4<f32>(), abs(x), valid);
        if (KIND == NORM_2) { sum += squares(m); }
        if (KIND == NORM_MOST) {
            for (var k = 0u; k < 4u; k++) { sum = joined(sum, vec3<f32>(m[k], 0.0, 0.0)); }
        }
        if (KIND == NORM_POWERS && by > 0.0 && by <= 0x1.fffffep127f) { // else it is the norm already
            for (var k = 0u; k < 4u; k++) {
                if (m[k] > 0.0 || is_nan(m[k])) { sum.x += ct_exp(p.number * ct_log(m[k] / by)); }
            }
        }
        if (KIND == UNSCALE) {
            let y = x * by;
            let bad = valid & ((bitcast<vec4<u32>>(y) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u));
            if (any(bad)) { sum.x = 1.0; }
            if (LATE == 0u) { x0_store4(at, select(x, y, valid)); }
        }
    }
    let all_of_it = total(local, sum);
    if (local == 0u) { put_sum(p.before + group, all_of_it); }
}

// One workgroup: the largest magnitude goes to numbers, for the powers of the others.
fn finish(group: u32, local: u32, groups: u32) {
    let sum = sum_of(local, 0u, p.partials, 1u);
    if (local != 0u) { return; }
    if (KIND == NORM_2) { y_store(0u, length_of(sum)); }
    if (KIND == NORM_MOST) {
        y_store(0u, sum.x);
        numbers_store(0u, sum.x);
    }
    if (KIND == NORM_POWERS && (sum.x > 0.0 || is_nan(sum.x))) {
        y_store(0u, numbers_load(0u) * ct_exp(ct_log(sum.x) / p.number));
    }
    if (KIND == UNSCALE) {
        y_store(0u, select(1.0, 1.0 / rate_load(0u), LATE == 1u));
        y_store(p.finish_at, select(1.0, 0.0, sum.x > 0.0));
    }
}
