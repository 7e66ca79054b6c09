// Elements as unsigned numbers that order as they do. A NaN is the greatest.

// Of the bits of an f32 (real) or an i32.
fn ct_key(bits: u32, real: bool) -> u32 {
    if (!real) {
        return bits ^ 0x80000000u;
    }
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0xffffffffu;
    }
    return select(bits | 0x80000000u, ~bits, bits >> 31u == 1u);
}

fn ct_key_bits(key: u32, real: bool) -> u32 {
    if (!real) {
        return key ^ 0x80000000u;
    }
    if (key == 0xffffffffu) {
        return 0x7fc00000u;
    }
    return select(~key, key ^ 0x80000000u, key >> 31u == 1u);
}

// Of -0 the bits of 0, so that the two are equal.
fn ct_one_zero(bits: u32, real: bool) -> u32 {
    return select(bits, 0u, real && (bits & 0x7fffffffu) == 0u);
}

// The better an element is in the search for the greatest, or the least, the greater its rank; nothing is better than a
// NaN.
fn ct_rank(bits: u32, real: bool, greatest: bool) -> u32 {
    let key = ct_key(bits, real);
    return select(~key, key, greatest || (real && key == 0xffffffffu));
}

fn ct_rank_bits(rank: u32, real: bool, greatest: bool) -> u32 {
    return ct_key_bits(select(~rank, rank, greatest || (real && rank == 0xffffffffu)), real);
}

fn ct_rank_i64(x: ct_i64, greatest: bool) -> ct_i64 {
    let key = vec2<u32>(x.x, x.y ^ 0x80000000u);
    return select(~key, key, greatest);
}

fn ct_rank_i64_value(rank: ct_i64, greatest: bool) -> ct_i64 {
    let key = select(~rank, rank, greatest);
    return vec2<u32>(key.x, key.y ^ 0x80000000u);
}

// An integer that was loaded as i32, or as a pair (wide), as i64.
fn ct_widen(words: vec2<i32>, wide: bool) -> ct_i64 {
    return vec2<u32>(u32(words.x), select(u32(words.x >> 31u), u32(words.y), wide));
}
