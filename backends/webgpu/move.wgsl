// Copies and fills of memory, whatever it holds. Operands are words; where bytes at the ends share a word with others, the operand `part` is
// written, whose elements are bytes.

struct Params {
    n: u32, // words, or bytes
    shift: u32, // bits by which the source lies behind the destination in a word; 0: not at all
    period: u32, // words of the pattern
    phase: u32, // byte of the pattern that the first byte is
    pattern: vec4<u32>,
}

fn copy_words(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.n; i += groups * THREADS) {
        var w = from_word(i);
        if (p.shift != 0u) { w = (w >> p.shift) | (from_word(i + 1u) << (32u - p.shift)); }
        to_put(i, w);
    }
}

fn copy_bytes(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.n; i += groups * THREADS) { to_store(i, from_load(i)); }
}

fn fill_words(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.n; i += groups * THREADS) { to_put(i, p.pattern[i % p.period]); }
}

fn fill_bytes(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.n; i += groups * THREADS) {
        let at = (i + p.phase) % (4u * p.period);
        to_store(i, i32((p.pattern[at >> 2u] >> (8u * (at & 3u))) & 0xffu));
    }
}
