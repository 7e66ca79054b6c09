// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), bit for bit as the CPU's.

// A position in the random stream: pairs of words, low ones first.
struct ct_position {
    seed: vec2<u32>,
    stream: vec2<u32>,
    call: vec2<u32>,
}

// The four words of block `block` of a call.
fn ct_philox(at: ct_position, block: u32) -> vec4<u32> {
    var c = vec4<u32>(block, at.stream.x << 16u, at.call.x, at.call.y ^ ((at.stream.x >> 16u) | (at.stream.y << 16u)));
    var k = at.seed;
    for (var round = 0u; round < 10u; round++) {
        let first = ct_wide_product(0xD2511F53u, c.x);
        let second = ct_wide_product(0xCD9E8D57u, c.z);
        c = vec4<u32>(second.y ^ c.y ^ k.x, second.x, first.y ^ c.w ^ k.y, first.x);
        k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}
