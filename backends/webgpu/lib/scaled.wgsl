// Products of many f32 that neither overflow nor vanish on their way: a fraction, whose size is in [1, 2) or which is
// 0, infinite or NaN, and a power of two.
struct ct_scaled {
    fraction: f32,
    power: i32,
}

fn ct_scaled_of(x: f32) -> ct_scaled {
    let bits = bitcast<u32>(x);
    let exponent = (bits >> 23u) & 0xffu;
    if (exponent == 0u || exponent == 0xffu) {
        if (exponent == 0u && (bits & 0x7fffffu) != 0u) {
            // below the least normal number, which a product may take for 0
            let shift = countLeadingZeros(bits & 0x7fffffu) - 8u;
            let fraction = (bits & 0x80000000u) | 0x3f800000u | (((bits & 0x7fffffu) << shift) & 0x7fffffu);
            return ct_scaled(bitcast<f32>(fraction), -126 - i32(shift));
        }
        return ct_scaled(x, 0);
    }
    return ct_scaled(bitcast<f32>((bits & 0x807fffffu) | 0x3f800000u), i32(exponent) - 127);
}

fn ct_scaled_mul(a: ct_scaled, b: ct_scaled) -> ct_scaled {
    let product = ct_scaled_of(a.fraction * b.fraction);
    return ct_scaled(product.fraction, clamp(a.power + b.power + product.power, -0x10000000, 0x10000000));
}

fn ct_scaled_value(a: ct_scaled) -> f32 {
    let bits = bitcast<u32>(a.fraction);
    let exponent = (bits >> 23u) & 0xffu;
    if (exponent == 0u || exponent == 0xffu) {
        return a.fraction;
    }
    // in two steps: a power below the normal ones is only reached by rounding once
    if (a.power > 127) {
        return bitcast<f32>((bits & 0x80000000u) | 0x7f800000u);
    }
    if (a.power >= -126) {
        return bitcast<f32>((bits & 0x807fffffu) | (u32(a.power + 127) << 23u));
    }
    if (a.power < -150) {
        return bitcast<f32>(bits & 0x80000000u);
    }
    let whole = (bits & 0x7fffffu) | 0x800000u;
    let shift = u32(-126 - a.power); // 1 to 24
    let half = 1u << (shift - 1u);
    let rest = whole & ((half << 1u) - 1u);
    var kept = whole >> shift;
    if (rest > half || (rest == half && (kept & 1u) == 1u)) {
        kept += 1u;
    }
    return bitcast<f32>((bits & 0x80000000u) | kept);
}
