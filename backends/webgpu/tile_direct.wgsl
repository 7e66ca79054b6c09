// Products of product.wgsl on drivers that compute on a CPU: an invocation has 8 rows by 8 columns of C, and loads what it
// needs of A and B by itself. Workgroup memory is ordinary memory there, and filling it is work that caches do for free.

// INSIDE: quads alone, and all of them inside of A and B. Branches cost more there than what they branch around.
fn a_direct(row: u32, k: u32) -> vec4<E> {
    if (INSIDE == 1u) { return a_load4(a_base + row * p.a_row + k * p.a_col); }
    return a_at(row, k);
}
fn b_direct(column: u32, k: u32) -> vec4<E> {
    if (INSIDE == 1u) { return b_load4(b_base + k * p.b_row + column * p.b_col); }
    return b_at(column, k);
}

fn multiply_direct(group: u32, local: u32, groups: u32) {
    let tiles = p.tiles_m * p.tiles_n;
    let tile = group % tiles;
    let row = (tile / p.tiles_n * 8u + local / 8u) * 8u;
    let column = (tile % p.tiles_n * 8u + local % 8u) * 8u;
    if (row >= p.m || column >= p.n) { return; }
    begin(group / tiles);
    for (var k = 0u; k < p.k; k += 4u) {
        // A by quads of rows for each of four k, B by quads of columns
        var a00: vec4<E>;
        var a01: vec4<E>;
        var a10: vec4<E>;
        var a11: vec4<E>;
        var a20: vec4<E>;
        var a21: vec4<E>;
        var a30: vec4<E>;
        var a31: vec4<E>;
        var b00: vec4<E>;
        var b01: vec4<E>;
        var b10: vec4<E>;
        var b11: vec4<E>;
        var b20: vec4<E>;
        var b21: vec4<E>;
        var b30: vec4<E>;
        var b31: vec4<E>;
        if (A_ALONG_K == 1u) {
            let r0 = a_direct(row + 0u, k);
            let r1 = a_direct(row + 1u, k);
            let r2 = a_direct(row + 2u, k);
            let r3 = a_direct(row + 3u, k);
            let r4 = a_direct(row + 4u, k);
            let r5 = a_direct(row + 5u, k);
            let r6 = a_direct(row + 6u, k);
            let r7 = a_direct(row + 7u, k);
            a00 = vec4<E>(r0.x, r1.x, r2.x, r3.x);
            a01 = vec4<E>(r4.x, r5.x, r6.x, r7.x);
            a10 = vec4<E>(r0.y, r1.y, r2.y, r3.y);
            a11 = vec4<E>(r4.y, r5.y, r6.y, r7.y);
            a20 = vec4<E>(r0.z, r1.z, r2.z, r3.z);
            a21 = vec4<E>(r4.z, r5.z, r6.z, r7.z);
            a30 = vec4<E>(r0.w, r1.w, r2.w, r3.w);
            a31 = vec4<E>(r4.w, r5.w, r6.w, r7.w);
        } else {
            a00 = a_direct(row + 0u, k + 0u);
            a01 = a_direct(row + 4u, k + 0u);
            a10 = a_direct(row + 0u, k + 1u);
            a11 = a_direct(row + 4u, k + 1u);
            a20 = a_direct(row + 0u, k + 2u);
            a21 = a_direct(row + 4u, k + 2u);
            a30 = a_direct(row + 0u, k + 3u);
            a31 = a_direct(row + 4u, k + 3u);
        }
        if (B_ALONG_K == 1u) {
            let r0 = b_direct(column + 0u, k);
            let r1 = b_direct(column + 1u, k);
            let r2 = b_direct(column + 2u, k);
            let r3 = b_direct(column + 3u, k);
            let r4 = b_direct(column + 4u, k);
            let r5 = b_direct(column + 5u, k);
            let r6 = b_direct(column + 6u, k);
            let r7 = b_direct(column + 7u, k);
            b00 = vec4<E>(r0.x, r1.x, r2.x, r3.x);
            b01 = vec4<E>(r4.x, r5.x, r6.x, r7.x);
            b10 = vec4<E>(r0.y, r1.y, r2.y, r3.y);
            b11 = vec4<E>(r4.y, r5.y, r6.y, r7.y);
            b20 = vec4<E>(r0.z, r1.z, r2.z, r3.z);
            b21 = vec4<E>(r4.z, r5.z, r6.z, r7.z);
            b30 = vec4<E>(r0.w, r1.w, r2.w, r3.w);
            b31 = vec4<E>(r4.w, r5.w, r6.w, r7.w);
        } else {
            b00 = b_direct(column + 0u, k + 0u);
            b01 = b_direct(column + 4u, k + 0u);
            b10 = b_direct(column + 0u, k + 1u);
            b11 = b_direct(column + 4u, k + 1u);
            b20 = b_direct(column + 0u, k + 2u);
            b21 = b_direct(column + 4u, k + 2u);
            b30 = b_direct(column + 0u, k + 3u);
            b31 = b_direct(column + 4u, k + 3u);
        }
        ct_sums_add(a00, a01, b00, b01);
        ct_sums_add(a10, a11, b10, b11);
        ct_sums_add(a20, a21, b20, b21);
        ct_sums_add(a30, a31, b30, b31);
    }
    for (var i = 0u; i < 16u; i++) {
        let i_row = row + i / 2u;
        let i_column = column + i % 2u * 4u;
        if (i_row < p.m && i_column < p.n) { put(i_row, i_column, ct_sum_of(i)); }
    }
}
