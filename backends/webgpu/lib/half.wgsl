// The bits of 16-bit floats, rounded to the nearest, ties to even. The packing that the language has may round either way.

fn ct_bf16_bits(v: f32) -> u32 {
    let u = bitcast<u32>(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) { return (u >> 16u) | 0x40u; }
    return (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;
}

fn ct_f16_bits(v: f32) -> u32 {
    let u = bitcast<u32>(v);
    let sign = (u >> 16u) & 0x8000u;
    let a = u & 0x7fffffffu;
    if (a > 0x7f800000u) { return sign | 0x7e00u; }
    if (a >= 0x477ff000u) { return sign | 0x7c00u; } // 65520 and more
    if (a >= 0x38800000u) { return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u); }
    if (a < 0x33000001u) { return sign; } // half of the least, or less
    // Subnormal: the significand in units of 2^-24.
    let m = (a & 0x7fffffu) | 0x800000u;
    let shift = 126u - (a >> 23u); // 14 to 24
    let whole = m >> shift;
    let rest = m & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    let up = rest > middle || (rest == middle && (whole & 1u) == 1u);
    return sign | (whole + select(0u, 1u, up));
}
