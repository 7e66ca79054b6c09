// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), bit for bit as the CPU's.

// The low and the high word of a product, from those of the 16-bit halves.
fn ct_philox_product(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let low = a0 * b0;
    let cross = a1 * b0 + (low >> 16u); // below 2^32: (2^16 - 1)^2 + 2^16 - 1
    let other = a0 * b1 + (cross & 0xffffu);
    return vec2<u32>(a * b, a1 * b1 + (cross >> 16u) + (other >> 16u));
}

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
        let first = ct_philox_product(0xD2511F53u, c.x);
        let second = ct_philox_product(0xCD9E8D57u, c.z);
        c = vec4<u32>(second.y ^ c.y ^ k.x, second.x, first.y ^ c.w ^ k.y, first.x);
        k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}
