// The sums of products that an invocation has in registers: 4 or 8 rows (ROW_QUADS) by 4 or 8 columns (COLUMN_QUADS), as
// [row][quad of columns], of which rows 4 to 7 may lie anywhere else than behind the first four. 0 at first; only ever at
// constant places, so that they are registers.
var<private> ct_sums: array<vec4<E>, 16>;

// Products of one k: a0 and a1 are quads of rows, b0 and b1 of columns.
fn ct_sums_add(a0: vec4<E>, a1: vec4<E>, b0: vec4<E>, b1: vec4<E>) {
    ct_sums[0] += a0.x * b0;
    ct_sums[2] += a0.y * b0;
    ct_sums[4] += a0.z * b0;
    ct_sums[6] += a0.w * b0;
    if (COLUMN_QUADS == 2u) {
        ct_sums[1] += a0.x * b1;
        ct_sums[3] += a0.y * b1;
        ct_sums[5] += a0.z * b1;
        ct_sums[7] += a0.w * b1;
    }
    if (ROW_QUADS == 2u) {
        ct_sums[8] += a1.x * b0;
        ct_sums[10] += a1.y * b0;
        ct_sums[12] += a1.z * b0;
        ct_sums[14] += a1.w * b0;
        if (COLUMN_QUADS == 2u) {
            ct_sums[9] += a1.x * b1;
            ct_sums[11] += a1.y * b1;
            ct_sums[13] += a1.z * b1;
            ct_sums[15] += a1.w * b1;
        }
    }
}

// Sum i, without a variable place.
fn ct_sum_of(i: u32) -> vec4<E> {
    switch (i) {
        case 0u: { return ct_sums[0]; }
        case 1u: { return ct_sums[1]; }
        case 2u: { return ct_sums[2]; }
        case 3u: { return ct_sums[3]; }
        case 4u: { return ct_sums[4]; }
        case 5u: { return ct_sums[5]; }
        case 6u: { return ct_sums[6]; }
        case 7u: { return ct_sums[7]; }
        case 8u: { return ct_sums[8]; }
        case 9u: { return ct_sums[9]; }
        case 10u: { return ct_sums[10]; }
        case 11u: { return ct_sums[11]; }
        case 12u: { return ct_sums[12]; }
        case 13u: { return ct_sums[13]; }
        case 14u: { return ct_sums[14]; }
        default: { return ct_sums[15]; }
    }
}
