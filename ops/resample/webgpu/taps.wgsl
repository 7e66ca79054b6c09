// Which elements of a line, with which weights, make element o of the resampled one: a first element and, by mode, the
// one behind the last, or the fraction by which the place lies behind the first. Places are computed as f64 computes
// them (ops/resample/taps.h).
struct Params {
    total: u32, // elements of the resampled line
    length: u32, // of the other
    mode: u32,
    kind: u32, // of places: 0 ratios of lengths, 1 corners aligned, 2 by step
    step: vec2<u32>,
}

// a * b / c: the quotient, which fits a word, and the rest.
fn ratio(a: u32, b: u32, c: u32) -> vec2<u32> {
    let product = ct_wide_product(a, b);
    var quotient = 0u;
    var rest = product.y; // below c
    for (var i = 32u; i > 0u; i--) {
        let carry = rest >> 31u;
        rest = (rest << 1u) | ((product.x >> (i - 1u)) & 1u);
        quotient = quotient << 1u;
        if (carry == 1u || rest >= c) {
            rest -= c;
            quotient |= 1u;
        }
    }
    return vec2<u32>(quotient, rest);
}

fn put(o: u32, first: i32, second: u32) {
    taps_store(2u * o, first);
    taps_store(2u * o + 1u, i32(second));
}

fn find_taps(group: u32, local: u32, groups: u32) {
    let last = i32(p.length) - 1;
    let half = ct_f64(0u, 0x3fe00000u);
    for (var o = group * THREADS + local; o < p.total; o += groups * THREADS) {
        if (p.kind == 0u) { // nearest, area
            let start = ratio(o, p.length, p.total);
            let end = ratio(o + 1u, p.length, p.total);
            put(o, i32(start.x), end.x + select(0u, 1u, end.y > 0u));
            continue;
        }
        var low = 0;
        var fraction = 0.0;
        if (p.kind == 1u) {
            if (p.total > 1u) {
                let at = ratio(o, p.length - 1u, p.total - 1u);
                low = i32(at.x);
                fraction = f32(at.y) / f32(p.total - 1u);
            }
        } else {
            var at = ct_f64_of_u32(o);
            if (p.mode != NEAREST) {
                at = ct_f64_add(at, half);
            }
            at = ct_f64_mul(at, p.step);
            if (p.mode != NEAREST && p.mode != NEAREST_EXACT) {
                at = ct_f64_add(at, ct_f64_neg(half));
            }
            low = ct_f64_floor(at);
            fraction = ct_f64_to_f32(ct_f64_add(at, ct_f64_neg(ct_f64_of_i32(low))));
        }
        if (p.mode == BICUBIC) {
            put(o, low, bitcast<u32>(fraction));
        } else if (low < 0) {
            put(o, 0, 0u);
        } else if (low >= last) {
            put(o, last, 0u);
        } else {
            put(o, low, bitcast<u32>(fraction));
        }
    }
}
