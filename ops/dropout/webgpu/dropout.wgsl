// Dropout: element i, in row-major order, is kept where word i of the position is at least p 2^32. An invocation takes
// the four elements of one block of words.
struct Params {
    total: u32, rank: u32, ct_a: u32, ct_b: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 7>, // of y and x
    seed: vec2<u32>, stream: vec2<u32>,
    call: vec2<u32>, threshold: u32, scale: f32, // scale 0: nothing is kept
    step: u32, kept_step: u32, // words from one part of the position to the next
}

fn position_part(i: u32) -> vec2<u32> {
    let low = bitcast<u32>(position_load(i * p.step));
    if (WIDE == 1u) { return vec2<u32>(low, bitcast<u32>(position_load(i * p.step + 1u))); }
    return vec2<u32>(low, select(0u, 0xffffffffu, (low >> 31u) == 1u));
}

fn position_of_call() -> ct_position {
    if (position_given) { return ct_position(position_part(0u), position_part(1u), position_part(2u)); }
    return ct_position(p.seed, p.stream, p.call);
}

fn put_position() {
    let words = array<u32, 6>(p.seed.x, p.seed.y, p.stream.x, p.stream.y, p.call.x, p.call.y);
    for (var i = 0u; i < 3u; i++) {
        kept_store(i * p.kept_step, bitcast<i32>(words[2u * i]));
        kept_store(i * p.kept_step + 1u, bitcast<i32>(words[2u * i + 1u]));
    }
}

fn places(e: u32) -> vec2<u32> {
    var rest = e;
    var at = vec2<u32>();
    for (var d = p.rank; d > 0u; d--) {
        let i = d - 1u;
        let size = p.dims[i >> 2u][i & 3u];
        let whole = rest / size;
        at += (rest - whole * size) * vec2<u32>(p.strides[0][i >> 2u][i & 3u], p.strides[1][i >> 2u][i & 3u]);
        rest = whole;
    }
    return at;
}

fn dropout(group: u32, local: u32, groups: u32) {
    if (kept_given && group == 0u && local == 0u) { put_position(); }
    let at = position_of_call();
    for (var b = group * THREADS + local; b < (p.total + 3u) / 4u; b += groups * THREADS) {
        let first = 4u * b;
        let words = ct_philox(at, b);
        let drops = (words < vec4<u32>(p.threshold)) | vec4<bool>(p.scale == 0.0);
        if (QUADS == 1u && first + 4u <= p.total) {
            put4(first, select(x4(first) * p.scale, vec4<f32>(), drops));
        } else {
            for (var k = 0u; k < 4u && first + k < p.total; k++) {
                let place = places(first + k);
                put1(place.x, select(x_load(place.y) * p.scale, 0.0, drops[k]));
            }
        }
    }
}
