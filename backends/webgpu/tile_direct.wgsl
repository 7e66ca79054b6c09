// Products of product.wgsl on drivers that compute on a CPU: an invocation has 8 rows by 8 columns of C, and loads what
// it needs of A and B by itself. Workgroup memory is ordinary memory there, and filling it is work that caches do for
// free. Branches cost more there than what they branch around, and take long to compile: `multiply_inside` is for what
// is INSIDE, by quads; `multiply_direct` loads, beyond the last row and column, those again, and nobody takes the sums.

struct Block { row: u32, column: u32, none: bool }

fn block_of(group: u32, local: u32) -> Block {
    let tiles = p.tiles_m * p.tiles_n;
    let tile = group % tiles;
    let row = (tile / p.tiles_n * 8u + local / 8u) * 8u;
    let column = (tile % p.tiles_n * 8u + local % 8u) * 8u;
    begin(group / tiles);
    return Block(row, column, row >= p.m || column >= p.n);
}

fn put_block(row: u32, column: u32) {
    for (var i = 0u; i < 16u; i++) {
        let i_row = row + i / 2u;
        let i_column = column + i % 2u * 4u;
        if (i_row < p.m && i_column < p.n) { put(i_row, i_column, ct_sum_of(i)); }
    }
}

// A by quads of rows for each of four k, B by quads of columns.
fn multiply_inside(group: u32, local: u32, groups: u32) {
    let block = block_of(group, local);
    if (block.none) { return; }
    let row = block.row;
    let column = block.column;
    for (var k = 0u; k < p.k; k += 4u) {
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
            let r0 = a_at(row + 0u, k);
            let r1 = a_at(row + 1u, k);
            let r2 = a_at(row + 2u, k);
            let r3 = a_at(row + 3u, k);
            let r4 = a_at(row + 4u, k);
            let r5 = a_at(row + 5u, k);
            let r6 = a_at(row + 6u, k);
            let r7 = a_at(row + 7u, k);
            a00 = vec4<E>(r0.x, r1.x, r2.x, r3.x);
            a01 = vec4<E>(r4.x, r5.x, r6.x, r7.x);
            a10 = vec4<E>(r0.y, r1.y, r2.y, r3.y);
            a11 = vec4<E>(r4.y, r5.y, r6.y, r7.y);
            a20 = vec4<E>(r0.z, r1.z, r2.z, r3.z);
            a21 = vec4<E>(r4.z, r5.z, r6.z, r7.z);
            a30 = vec4<E>(r0.w, r1.w, r2.w, r3.w);
            a31 = vec4<E>(r4.w, r5.w, r6.w, r7.w);
        } else {
            a00 = a_at(row + 0u, k + 0u);
            a01 = a_at(row + 4u, k + 0u);
            a10 = a_at(row + 0u, k + 1u);
            a11 = a_at(row + 4u, k + 1u);
            a20 = a_at(row + 0u, k + 2u);
            a21 = a_at(row + 4u, k + 2u);
            a30 = a_at(row + 0u, k + 3u);
            a31 = a_at(row + 4u, k + 3u);
        }
        if (B_ALONG_K == 1u) {
            let r0 = b_at(column + 0u, k);
            let r1 = b_at(column + 1u, k);
            let r2 = b_at(column + 2u, k);
            let r3 = b_at(column + 3u, k);
            let r4 = b_at(column + 4u, k);
            let r5 = b_at(column + 5u, k);
            let r6 = b_at(column + 6u, k);
            let r7 = b_at(column + 7u, k);
            b00 = vec4<E>(r0.x, r1.x, r2.x, r3.x);
            b01 = vec4<E>(r4.x, r5.x, r6.x, r7.x);
            b10 = vec4<E>(r0.y, r1.y, r2.y, r3.y);
            b11 = vec4<E>(r4.y, r5.y, r6.y, r7.y);
            b20 = vec4<E>(r0.z, r1.z, r2.z, r3.z);
            b21 = vec4<E>(r4.z, r5.z, r6.z, r7.z);
            b30 = vec4<E>(r0.w, r1.w, r2.w, r3.w);
            b31 = vec4<E>(r4.w, r5.w, r6.w, r7.w);
        } else {
            b00 = b_at(column + 0u, k + 0u);
            b01 = b_at(column + 4u, k + 0u);
            b10 = b_at(column + 0u, k + 1u);
            b11 = b_at(column + 4u, k + 1u);
            b20 = b_at(column + 0u, k + 2u);
            b21 = b_at(column + 4u, k + 2u);
            b30 = b_at(column + 0u, k + 3u);
            b31 = b_at(column + 4u, k + 3u);
        }
        ct_sums_add(a00, a01, b00, b01);
        ct_sums_add(a10, a11, b10, b11);
        ct_sums_add(a20, a21, b20, b21);
        ct_sums_add(a30, a31, b30, b31);
    }
    put_block(row, column);
}

fn a_row_at(row: u32) -> u32 { return a_base + min(row, p.m - 1u) * p.a_row; }
fn b_column_at(column: u32) -> u32 { return b_base + min(column, max(p.columns, 1u) - 1u) * p.b_col; }
fn y_row_at(row: u32) -> u32 { return min(row, p.m - 1u) * p.y_row; }

fn multiply_direct(group: u32, local: u32, groups: u32) {
    let block = block_of(group, local);
    if (block.none) { return; }
    let row = block.row;
    let column = block.column;
    var a0 = a_row_at(row + 0u);
    var a1 = a_row_at(row + 1u);
    var a2 = a_row_at(row + 2u);
    var a3 = a_row_at(row + 3u);
    var a4 = a_row_at(row + 4u);
    var a5 = a_row_at(row + 5u);
    var a6 = a_row_at(row + 6u);
    var a7 = a_row_at(row + 7u);
    var b0 = b_column_at(column + 0u);
    var b1 = b_column_at(column + 1u);
    var b2 = b_column_at(column + 2u);
    var b3 = b_column_at(column + 3u);
    var b4 = b_column_at(column + 4u);
    var b5 = b_column_at(column + 5u);
    var b6 = b_column_at(column + 6u);
    var b7 = b_column_at(column + 7u);
    let ones0 = vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(p.columns);
    let ones1 = vec4<u32>(column) + vec4<u32>(4u, 5u, 6u, 7u) == vec4<u32>(p.columns);
    let a_step = p.a_col;
    let b_step = p.b_row;
    for (var k = 0u; k < p.k; k++) {
        var rows0 = vec4<E>(a_load(a0), a_load(a1), a_load(a2), a_load(a3));
        var rows1 = vec4<E>(a_load(a4), a_load(a5), a_load(a6), a_load(a7));
        if (y_given) {
            let at = k * p.y_col;
            rows0 = sloped(rows0, vec4<E>(y_load(y_row_at(row) + at), y_load(y_row_at(row + 1u) + at),
                                          y_load(y_row_at(row + 2u) + at), y_load(y_row_at(row + 3u) + at)));
            rows1 = sloped(rows1, vec4<E>(y_load(y_row_at(row + 4u) + at), y_load(y_row_at(row + 5u) + at),
                                          y_load(y_row_at(row + 6u) + at), y_load(y_row_at(row + 7u) + at)));
        }
        var columns0 = vec4<E>(b_load(b0), b_load(b1), b_load(b2), b_load(b3));
        var columns1 = vec4<E>(b_load(b4), b_load(b5), b_load(b6), b_load(b7));
        if (ONES == 1u) {
            columns0 = select(columns0, vec4<E>(E(1)), ones0);
            columns1 = select(columns1, vec4<E>(E(1)), ones1);
        }
        ct_sums_add(rows0, rows1, columns0, columns1);
        a0 += a_step;
        a1 += a_step;
        a2 += a_step;
        a3 += a_step;
        a4 += a_step;
        a5 += a_step;
        a6 += a_step;
        a7 += a_step;
        b0 += b_step;
        b1 += b_step;
        b2 += b_step;
        b3 += b_step;
        b4 += b_step;
        b5 += b_step;
        b6 += b_step;
        b7 += b_step;
    }
    put_block(row, column);
}
