// Two values made one: 0 their sum, 1 their product, 2 the larger, 3 the smaller, where NaN wins, 4 the second.

fn ct_fold_f32(fold: u32, a: f32, b: f32) -> f32 {
    let none = (bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u;
    switch (fold) {
        case 0u: { return a + b; }
        case 1u: { return a * b; }
        case 2u: { return select(a, b, b > a || none); }
        case 3u: { return select(a, b, b < a || none); }
        default: { return b; }
    }
}

fn ct_fold_i32(fold: u32, a: i32, b: i32) -> i32 {
    switch (fold) {
        case 0u: { return a + b; }
        case 1u: { return a * b; }
        case 2u: { return max(a, b); }
        case 3u: { return min(a, b); }
        default: { return b; }
    }
}

fn ct_fold_i64(fold: u32, a: ct_i64, b: ct_i64) -> ct_i64 {
    switch (fold) {
        case 0u: { return ct_i64_add(a, b); }
        case 1u: { return ct_i64_mul(a, b); }
        case 2u: { return ct_i64_max(a, b); }
        case 3u: { return ct_i64_min(a, b); }
        default: { return b; }
    }
}
