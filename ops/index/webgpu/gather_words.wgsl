// gather.wgsl for elements narrower than a word, into runs of neighbours that are written as whole words.
struct Params {
    total: u32,
    rank: u32,
    bound: u32,
    along: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 4>, // to, from (0 at the axis), index, the row-major place in index
    length: u32, // of a run
}

fn gather(group: u32, local: u32, groups: u32) {
    let words = (p.length + to_pack - 1u) / to_pack;
    let width = 32u / to_pack;
    let all = p.total / p.length * words;
    for (var w = group * THREADS + local; w < all; w += groups * THREADS) {
        let run = w / words;
        let first = (w - run * words) * to_pack;
        let count = min(to_pack, p.length - first);
        let word = (ct_place4(run * p.length).x + first) / to_pack;
        var bits = 0u;
        for (var i = 0u; i < count; i++) {
            let at = ct_place4(run * p.length + first + i);
            let k = ct_index_at(at.z, p.bound);
            if (k == ct_no_index) {
                ct_wrong_index(1u, at.w, ct_index_value(at.z), p.bound);
            } else {
                bits |= from_bits(from_load(at.y + k * p.along)) << (i * width);
            }
        }
        if (count < to_pack) {
            bits |= to_word(word) & (0xffffffffu << (count * width));
        }
        to_put(word, bits);
    }
}
