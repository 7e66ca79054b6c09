// Random tensors: element i, in row-major order, is made of word i of the call's stream, integers of the words 2i and
// 2i + 1. An invocation makes four elements. Values travel as the bits of their two words; put1 and put4, which the
// host gives, store them as what the result is.
struct Params {
    total: u32, rank: u32, ct_a: u32, ct_b: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>, // of y, and of chance
    seed: vec2<u32>, stream: vec2<u32>,
    call: vec2<u32>, lo: vec2<u32>,
    range: vec2<u32>, shift: u32, bound: u32,
    unit: f32, low: f32, width: f32, most: f32,
    from_scaled: f32, width_scaled: f32, above: f32, width_above: f32,
    // step: words from one part of the position to the next; one: bits of 1
    scale: f32, log_scale: f32, step: u32, one: u32,
}

const WORDS = 0u;
const UNIFORM = 1u;
const NORMAL = 2u;
const TRUNCATED = 3u;
const INTEGERS = 4u;
const BERNOULLI = 5u;
const BERNOULLI_FULL = 6u;

fn position_part(i: u32) -> vec2<u32> {
    let low = bitcast<u32>(position_load(i * p.step));
    if (WIDE == 1u) { return vec2<u32>(low, bitcast<u32>(position_load(i * p.step + 1u))); }
    return vec2<u32>(low, select(0u, 0xffffffffu, (low >> 31u) == 1u));
}

fn position_of_call() -> ct_position {
    if (position_given) { return ct_position(position_part(0u), position_part(1u), position_part(2u)); }
    return ct_position(p.seed, p.stream, p.call);
}

fn place(e: u32, k: u32) -> u32 {
    var rest = e;
    var at = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let i = d - 1u;
        let size = p.dims[i >> 2u][i & 3u];
        let whole = rest / size;
        at += (rest - whole * size) * p.strides[k][i >> 2u][i & 3u];
        rest = whole;
    }
    return at;
}

// ---- Normal numbers ----

// Sine and cosine of the turn that 32 bits are a fraction of. The top bits, rounded, count the quarters; what is left
// lies within an eighth of a turn of zero, where short polynomials (minimax, error below 2^-28 of the sine) do.
fn turned(word: u32) -> vec2<f32> {
    let quarter = (word + 0x20000000u) >> 30u;
    let x = f32(bitcast<i32>(word << 2u)) * 0x1.921fb6p-32f; // pi/2 2^-32
    let z = x * x;
    let s = fma(z * x, fma(z, fma(z, -0x1.994eb2p-13f, 0x1.11076p-7f), -0x1.555546p-3f), x);
    let c = fma(z * z, fma(z, fma(z, 0x1.9a025ap-16f, -0x1.6c0c8cp-10f), 0x1.55554ap-5f), fma(z, -0.5, 1.0));
    let odd = (quarter & 1u) == 1u;
    let sine = select(s, c, odd);
    let cosine = select(c, s, odd);
    return vec2<f32>(select(cosine, -cosine, ((quarter + 1u) & 2u) != 0u), select(sine, -sine, (quarter & 2u) != 0u));
}

// The nearest number, whichever way a device rounds when it converts: both halves and the product are exact.
fn nearest(word: u32) -> f32 { return fma(f32(word >> 8u), 256.0, f32(word & 0xffu)); }

// Box and Muller: two normal numbers of two words.
fn normals(words: vec2<u32>) -> vec2<f32> {
    let u = fma(nearest(words.x), 0x1p-32f, 0x1p-33f); // never zero
    let r = sqrt(-2.0 * min(ct_log(u), 0.0)) * p.width;
    return fma(vec2<f32>(r), turned(words.y), vec2<f32>(p.low));
}

fn ratio(r: f32, a: array<f32, 8>, b: array<f32, 8>) -> f32 {
    let over = fma(fma(fma(fma(fma(fma(fma(a[7], r, a[6]), r, a[5]), r, a[4]), r, a[3]), r, a[2]), r, a[1]), r, a[0]);
    let under = fma(fma(fma(fma(fma(fma(fma(b[7], r, b[6]), r, b[5]), r, b[4]), r, b[3]), r, b[2]), r, b[1]), r, b[0]);
    return over / under;
}

// The z with P(Z <= z) = part scale, at most 1/2, by the rational approximations of Wichura (1988, algorithm AS 241).
// The logarithm is taken of the part alone, so that a scale far below what f32 has still counts.
fn quantile(part: f32, scale: f32, log_scale: f32) -> f32 {
    let q = part * scale - 0.5;
    if (q >= -0.425) {
        return q * ratio(0.180625 - q * q,
            array<f32, 8>(3.3871328727963666, 133.14166789178438, 1971.5909503065514, 13731.693765509461,
                          45921.95393154987, 67265.7709270087, 33430.57558358813, 2509.0809287301227),
            array<f32, 8>(1.0, 42.31333070160091, 687.1870074920579, 5394.196021424751, 21213.794301586596,
                          39307.89580009271, 28729.085735721943, 5226.495278852855));
    }
    if (part <= 0.0) { return -3.0e38; } // the bound will have it
    let r = sqrt(-(ct_log(part) + log_scale));
    if (r <= 5.0) {
        return -ratio(r - 1.6,
            array<f32, 8>(1.4234371107496836, 4.630337846156546, 5.769497221460691, 3.6478483247632046,
                          1.2704582524523684, 0.2417807251774506, 0.022723844989269184, 0.0007745450142783414),
            array<f32, 8>(1.0, 2.053191626637759, 1.6763848301838038, 0.6897673349851, 0.14810397642748008,
                          0.015198666563616457, 0.0005475938084995345, 1.0507500716444169e-9));
    }
    return -ratio(r - 5.0,
        array<f32, 8>(6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487,
                      0.026532189526576124, 0.0012426609473880784, 2.7115555687434876e-5, 2.0103343992922881e-7),
        array<f32, 8>(1.0, 0.599832206555888, 0.1369298809227358, 0.014875361290850615, 0.0007868691311456133,
                      1.8463183175100547e-5, 1.421511758316446e-7, 2.0442631033899397e-15));
}

fn truncated(word: u32) -> f32 {
    let u = (f32(word) + 0.5) * 0x1p-32f;
    let v = (f32(~word) + 0.5) * 0x1p-32f; // 1 - u, to the last bit
    let below = fma(u, p.width_scaled, p.from_scaled);
    let above = fma(v, p.width_above, p.above);
    var z = 0.0;
    if (below * p.scale <= above) {
        z = quantile(below, p.scale, p.log_scale);
    } else {
        z = -quantile(above, 1.0, 0.0);
    }
    return clamp(fma(z, p.width, p.low), p.unit, p.most);
}

// ---- Integers ----

// lo plus the upper half of 64 random bits times the range.
fn integer(w: vec2<u32>) -> vec2<u32> {
    let low = ct_wide_product(w.x, p.range.x);
    let cross = ct_wide_product(w.y, p.range.x);
    let other = ct_wide_product(w.x, p.range.y);
    let carried = ct_i64_add(ct_i64_add(vec2<u32>(low.y, 0u), vec2<u32>(cross.x, 0u)), vec2<u32>(other.x, 0u));
    let sum = ct_i64_add(vec2<u32>(cross.y, 0u), vec2<u32>(other.y, 0u));
    return ct_i64_add(p.lo, ct_i64_add(ct_i64_add(sum, vec2<u32>(carried.y, 0u)), ct_wide_product(w.y, p.range.y)));
}

// ---- Four elements ----

fn is_drawn(word: u32, e: u32) -> bool {
    let x = chance_load(place(e, 1u));
    if ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u || x < 0.0 || x > 1.0) {
        ct_wrong_value(0u, 0u, bitcast<i32>(e), x, 0.0, 1.0);
    }
    return f32(word >> 8u) * 0x1p-24f < x;
}

fn generate(group: u32, local: u32, groups: u32) {
    let at = position_of_call();
    for (var b = group * THREADS + local; b < (p.total + 3u) / 4u; b += groups * THREADS) {
        let first = 4u * b;
        var low = vec4<u32>();
        var high = vec4<u32>();
        if (KIND == INTEGERS) {
            let w = ct_philox(at, 2u * b);
            let v = ct_philox(at, 2u * b + 1u);
            let a = integer(w.xy);
            let c = integer(w.zw);
            let d = integer(v.xy);
            let f = integer(v.zw);
            low = vec4<u32>(a.x, c.x, d.x, f.x);
            high = vec4<u32>(a.y, c.y, d.y, f.y);
        } else {
            let w = ct_philox(at, b);
            if (KIND == WORDS) { low = w; }
            if (KIND == UNIFORM) {
                let u = vec4<f32>(w >> vec4<u32>(p.shift)) * p.unit;
                low = bitcast<vec4<u32>>(min(vec4<f32>(p.low) + u * p.width, vec4<f32>(p.most)));
            }
            if (KIND == NORMAL) { low = bitcast<vec4<u32>>(vec4<f32>(normals(w.xy), normals(w.zw))); }
            if (KIND == TRUNCATED) {
                low = bitcast<vec4<u32>>(vec4<f32>(truncated(w.x), truncated(w.y), truncated(w.z), truncated(w.w)));
            }
            if (KIND == BERNOULLI) {
                for (var k = 0u; k < 4u && first + k < p.total; k++) {
                    low[k] = select(0u, p.one, is_drawn(w[k], first + k));
                }
            }
            if (KIND == BERNOULLI_FULL) {
                low = select(vec4<u32>(), vec4<u32>(p.one), (w >> vec4<u32>(8u)) < vec4<u32>(p.bound));
            }
        }
        if (DENSE == 1u && first + 4u <= p.total) {
            put4(first, low, high);
        } else {
            for (var k = 0u; k < 4u && first + k < p.total; k++) { put1(place(first + k, 0u), low[k], high[k]); }
        }
    }
}
