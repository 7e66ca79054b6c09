// multinomial. The CPU computes in f64; here integers of 64 bits have as many digits, so that the same categories are
// drawn. With replacement: weights become multiples of a power of two so small that the greatest has 40 bits and more,
// and their sums are exact. Without: the n smallest of the keys -log2(1 - u) / weight (Efraimidis and Spirakis, 2006),
// as the bits of positive numbers of f64.
struct Params {
    rows: u32,
    k: u32, // categories
    n: u32, // draws
    room: u32, // bits that the greatest weight may have
    step: vec4<u32>, // of weights, y
    seed: vec2<u32>,
    stream: vec2<u32>,
    call: vec2<u32>,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 3>,
}

const MOST = 0x1.fffffep+127f; // all finite numbers are right
const LEAST = 0x1p-126f; // all above 0 are

var<workgroup> greatest: array<u32, THREADS>;
var<workgroup> sums: array<vec2<u32>, THREADS>;

// 53 random bits.
fn random_bits(element: u32) -> vec2<u32> {
    let words = ct_philox(ct_position(p.seed, p.stream, p.call), element / 2u);
    let pair = select(words.xy, words.zw, (element & 1u) == 1u);
    return vec2<u32>((pair.x >> 11u) | (pair.y << 21u), pair.y >> 11u);
}

// The bits of a weight; 0 where it is wrong, which is noted.
fn weight_bits(row: u32, at: u32, j: u32) -> u32 {
    let w = weights_load(at + j * p.step.x);
    let bits = bitcast<u32>(w);
    if (bits >= 0x7f800000u && bits != 0x80000000u) { // negative, infinite or NaN
        ct_wrong_value(0u, 0u, i32(row * p.k + j), w, 0.0, MOST);
        return 0u;
    }
    return select(bits, 0u, bits == 0x80000000u);
}

// A weight is x 2^y, x in [2^23, 2^24).
fn digits_of(bits: u32) -> vec2<i32> {
    let exponent = i32(bits >> 23u);
    if (exponent == 0) {
        let zeros = countLeadingZeros(bits) - 8u;
        return vec2<i32>(i32(bits << zeros), -149 - i32(zeros));
    }
    return vec2<i32>(i32((bits & 0x7fffffu) | 0x800000u), exponent - 150);
}

// ---- With replacement ----

fn whole_weight(bits: u32, top: i32) -> ct_i64 {
    if (bits == 0u) {
        return ct_i64(0u, 0u);
    }
    let d = digits_of(bits);
    let shift = d.y - top + i32(p.room) - 24; // top: the power of the greatest weight, which has 24 bits
    if (shift >= 0) {
        return ct_i64_shl(ct_i64(u32(d.x), 0u), u32(shift));
    }
    return ct_i64(select(u32(d.x) >> u32(min(-shift, 31)), 0u, shift <= -24), 0u);
}

// A workgroup per row.
fn sum_weights(group: u32, local: u32, groups: u32) {
    let at = ct_line_at(group).x;
    var best = 0u;
    for (var j = local; j < p.k; j += THREADS) {
        best = max(best, weight_bits(group, at, j));
    }
    greatest[local] = best;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (local < half) {
            greatest[local] = max(greatest[local], greatest[local + half]);
        }
        workgroupBarrier();
    }
    if (greatest[0] == 0u && local == 0u) {
        ct_wrong_value(0u, 1u, i32(group), 0.0, LEAST, MOST);
    }
    let top = digits_of(max(greatest[0], 1u)).y;
    var carry = ct_i64(0u, 0u);
    for (var first = 0u; first < p.k; first += THREADS) {
        let j = first + local;
        var own = ct_i64(0u, 0u);
        if (j < p.k) {
            own = whole_weight(weight_bits(group, at, j), top);
        }
        workgroupBarrier();
        sums[local] = own;
        workgroupBarrier();
        for (var distance = 1u; distance < THREADS; distance *= 2u) {
            var through = sums[local];
            if (local >= distance) {
                through = ct_i64_add(sums[local - distance], through);
            }
            workgroupBarrier();
            sums[local] = through;
            workgroupBarrier();
        }
        if (j < p.k) {
            kept_store(group * p.k + j, ct_i64_add(carry, sums[local]));
        }
        carry = ct_i64_add(carry, sums[THREADS - 1u]);
    }
}

// u total / 2^53, downwards.
fn part_of(u: vec2<u32>, total: vec2<u32>) -> vec2<u32> {
    let low = ct_wide_product(u.x, total.x);
    let one = ct_wide_product(u.y, total.x);
    let two = ct_wide_product(u.x, total.y);
    let middle = ct_i64_add(ct_i64_add(vec2<u32>(one.x, 0u), vec2<u32>(two.x, 0u)), vec2<u32>(low.y, 0u));
    var high = ct_i64_add(ct_wide_product(u.y, total.y), ct_i64_add(vec2<u32>(one.y, 0u), vec2<u32>(two.y, 0u)));
    high = ct_i64_add(high, vec2<u32>(middle.y, 0u));
    return vec2<u32>((middle.x >> 21u) | (high.x << 11u), (high.x >> 21u) | (high.y << 11u));
}

// The first category whose sum exceeds u times the whole.
fn draw(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.rows * p.n; i += groups * THREADS) {
        let row = i / p.n;
        let first = row * p.k;
        let goal = part_of(random_bits(i), kept_load(first + p.k - 1u));
        var low = 0u;
        var high = p.k - 1u;
        while (low < high) {
            let middle = (low + high) / 2u;
            if (ct_i64_below(goal, kept_load(first + middle))) {
                high = middle;
            } else {
                low = middle + 1u;
            }
        }
        y_store(ct_line_at(row).y + i % p.n * p.step.y, ct_i64(low, 0u));
    }
}

// ---- Without replacement ----

// The upper 64 bits of a square.
fn square_high(a: vec2<u32>) -> vec3<u32> {
    let low = ct_wide_product(a.x, a.x);
    let cross = ct_wide_product(a.x, a.y);
    let middle = ct_i64_add(ct_i64_add(vec2<u32>(cross.x, 0u), vec2<u32>(cross.x, 0u)), vec2<u32>(low.y, 0u));
    var high = ct_i64_add(ct_wide_product(a.y, a.y), ct_i64_add(vec2<u32>(cross.y, 0u), vec2<u32>(cross.y, 0u)));
    high = ct_i64_add(high, vec2<u32>(middle.y, 0u));
    return vec3<u32>(middle.x, high); // and the word below
}

// -log2(m / 2^53) in units of 2^-52, m in 1 to 2^53: digit after digit, each by a square (Briggs, 1624).
fn minus_log2(m: vec2<u32>) -> vec2<u32> {
    let zeros = select(countLeadingZeros(m.y), 32u + countLeadingZeros(m.x), m.y == 0u);
    var f = ct_i64_shl(m, zeros); // in [1, 2), in units of 2^-63
    var digits = vec2<u32>(0u, 0u);
    for (var i = 0u; i < 52u; i++) {
        let s = square_high(f);
        let two = s.z >> 31u;
        f = select(vec2<u32>((s.y << 1u) | (s.x >> 31u), (s.z << 1u) | (s.y >> 31u)), s.yz, two == 1u);
        digits = vec2<u32>((digits.x << 1u) | two, (digits.y << 1u) | (digits.x >> 31u));
    }
    // 53 - (63 - zeros) whole ones
    return ct_i64_sub(vec2<u32>(0u, (zeros - 10u) << 20u), digits);
}

fn key_of(u: vec2<u32>, bits: u32) -> ct_i64 {
    if (bits == 0u) {
        return ct_i64(0u, 0x7ff00000u);
    }
    let a = minus_log2(ct_i64_sub(vec2<u32>(0u, 0x200000u), u));
    if (ct_i64_is_zero(a)) {
        return a;
    }
    let zeros = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
    let over = ct_i64_shr_logical(ct_i64_shl(a, zeros), 1u);
    let d = digits_of(bits);
    let under = u32(d.x);
    // over 2^24 / under, byte by byte
    var quotient = vec2<u32>(0u, 0u);
    var rest = 0u;
    for (var i = 0u; i < 11u; i++) {
        var byte = 0u;
        if (i < 8u) {
            byte = (select(over.x, over.y, i < 4u) >> (24u - 8u * (i & 3u))) & 0xffu;
        }
        let next = (rest << 8u) | byte;
        quotient = vec2<u32>((quotient.x << 8u) | (next / under), (quotient.y << 8u) | (quotient.x >> 24u));
        rest = next % under;
    }
    let more = select(1u, 0u, quotient.y >> 31u == 1u);
    let normal = ct_i64_shr_logical(ct_i64_shl(quotient, more), 11u);
    let exponent = 1023 + 63 - 23 - 52 - i32(zeros) - d.y - i32(more);
    return vec2<u32>(normal.x, (normal.y & 0xfffffu) | (u32(exponent) << 20u));
}

fn make_keys(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.rows * p.k; i += groups * THREADS) {
        let row = i / p.k;
        kept_store(i, key_of(random_bits(i), weight_bits(row, ct_line_at(row).x, i % p.k)));
    }
}

// A workgroup per row: there have to be as many weights above 0 as draws.
fn count_weights(group: u32, local: u32, groups: u32) {
    let at = ct_line_at(group).x;
    var count = 0u;
    for (var j = local; j < p.k; j += THREADS) {
        count += select(0u, 1u, weight_bits(group, at, j) != 0u);
    }
    greatest[local] = count;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (local < half) {
            greatest[local] += greatest[local + half];
        }
        workgroupBarrier();
    }
    if (local == 0u && greatest[0] < p.n) {
        ct_wrong_count(0u, 1u, i32(group), ct_i64(greatest[0], 0u), ct_i64(p.n, 0u), ct_i64(0xffffffffu, 0x7fffffffu));
    }
}
