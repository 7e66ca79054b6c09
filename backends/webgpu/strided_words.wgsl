// Copies of elements narrower than a word into runs of neighbours: a word by an invocation. The last word of a run
// keeps what is not of it.
struct Params {
    total: u32,
    rank: u32,
    length: u32, // of a run
    pad: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 2>,
}

fn copy(group: u32, local: u32, groups: u32) {
    let words = (p.length + to_pack - 1u) / to_pack;
    let width = 32u / to_pack;
    let all = p.total / p.length * words;
    for (var w = group * THREADS + local; w < all; w += groups * THREADS) {
        let run = w / words;
        let first = (w - run * words) * to_pack;
        let count = min(to_pack, p.length - first);
        let word = (ct_place2(run * p.length).x + first) / to_pack;
        var bits = 0u;
        for (var k = 0u; k < count; k++) {
            bits |= from_bits(from_load(ct_place2(run * p.length + first + k).y)) << (k * width);
        }
        if (count < to_pack) {
            bits |= to_word(word) & (0xffffffffu << (count * width));
        }
        to_put(word, bits);
    }
}
