// The gradients of weight.wgsl on drivers that compute on a CPU, from the source that gather_padded.wgsl has padded
// (which x is here): an invocation has 8 channels of g by 8 columns, and walks along lines by quads of positions, in
// one loop and without asking anything of the source. Parts are counted in quads.

// Where a column looks at from the first position, in the padded source.
fn column_at(column: u32) -> u32 {
    let t = walk(min(column, max(p.columns, 1u) - 1u));
    let tap = t.yzw * p.spacing.xyz;
    return (((z * p.channels + t.x) * p.extent_x + tap.x) * p.extent_y + tap.y) * p.extent_z + tap.z;
}

fn g_four(at: u32, count: u32) -> vec4<E> {
    if (G_QUADS == 1u) { return g_load4(at); }
    let last = count - 1u; // what is behind the end of the line: the last one again, times 0
    let v = vec4<E>(g_load(at), g_load(at + min(1u, last) * p.g_s.z), g_load(at + min(2u, last) * p.g_s.z),
                    g_load(at + min(3u, last) * p.g_s.z));
    return select(vec4<E>(), v, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count));
}

fn x_four(at: u32, step: u32, one: bool) -> vec4<E> {
    let v = vec4<E>(x_load(at), x_load(at + step), x_load(at + 2u * step), x_load(at + 3u * step));
    return select(v, vec4<E>(E(1)), one);
}

fn multiply_padded(group: u32, local: u32, groups: u32) {
    let tiles = p.tiles_m * p.tiles_n;
    let tile = group % tiles;
    let product = group / tiles % p.batches;
    let part = group / (tiles * p.batches);
    let row = (tile / p.tiles_n * 8u + local / 8u) * 8u;
    let column = (tile % p.tiles_n * 8u + local % 8u) * 8u;
    if (row >= p.m || column >= p.n) { return; }
    begin(product);
    let quads = p.size.z / 4u;
    let end = min((part + 1u) * p.part, p.k / 4u);
    let g0 = min(row + 0u, p.m - 1u) * p.g_c;
    let g1 = min(row + 1u, p.m - 1u) * p.g_c;
    let g2 = min(row + 2u, p.m - 1u) * p.g_c;
    let g3 = min(row + 3u, p.m - 1u) * p.g_c;
    let g4 = min(row + 4u, p.m - 1u) * p.g_c;
    let g5 = min(row + 5u, p.m - 1u) * p.g_c;
    let g6 = min(row + 6u, p.m - 1u) * p.g_c;
    let g7 = min(row + 7u, p.m - 1u) * p.g_c;
    let x0 = column_at(column + 0u);
    let x1 = column_at(column + 1u);
    let x2 = column_at(column + 2u);
    let x3 = column_at(column + 3u);
    let x4 = column_at(column + 4u);
    let x5 = column_at(column + 5u);
    let x6 = column_at(column + 6u);
    let x7 = column_at(column + 7u);
    let step = p.step.z;
    for (var i = part * p.part; i < end; i++) {
        let line = i / quads;
        let at = i % quads * 4u;
        let image = line / (p.size.x * p.size.y);
        let y = line / p.size.y % p.size.x;
        let x = line % p.size.y;
        let g = image * p.g_n + z * p.g_group + y * p.g_s.x + x * p.g_s.y + at * p.g_s.z;
        let count = p.size.w - at;
        let seen = ((image * p.batches * p.channels * p.extent_x + y * p.step.x) * p.extent_y + x * p.step.y) *
                   p.extent_z + at * step;
        let a0 = g_four(g + g0, count);
        let a1 = g_four(g + g1, count);
        let a2 = g_four(g + g2, count);
        let a3 = g_four(g + g3, count);
        let a4 = g_four(g + g4, count);
        let a5 = g_four(g + g5, count);
        let a6 = g_four(g + g6, count);
        let a7 = g_four(g + g7, count);
        let b0 = x_four(seen + x0, step, column + 0u == p.columns);
        let b1 = x_four(seen + x1, step, column + 1u == p.columns);
        let b2 = x_four(seen + x2, step, column + 2u == p.columns);
        let b3 = x_four(seen + x3, step, column + 3u == p.columns);
        let b4 = x_four(seen + x4, step, column + 4u == p.columns);
        let b5 = x_four(seen + x5, step, column + 5u == p.columns);
        let b6 = x_four(seen + x6, step, column + 6u == p.columns);
        let b7 = x_four(seen + x7, step, column + 7u == p.columns);
        ct_sums_add(vec4<E>(a0.x, a1.x, a2.x, a3.x), vec4<E>(a4.x, a5.x, a6.x, a7.x),
                    vec4<E>(b0.x, b1.x, b2.x, b3.x), vec4<E>(b4.x, b5.x, b6.x, b7.x));
        ct_sums_add(vec4<E>(a0.y, a1.y, a2.y, a3.y), vec4<E>(a4.y, a5.y, a6.y, a7.y),
                    vec4<E>(b0.y, b1.y, b2.y, b3.y), vec4<E>(b4.y, b5.y, b6.y, b7.y));
        ct_sums_add(vec4<E>(a0.z, a1.z, a2.z, a3.z), vec4<E>(a4.z, a5.z, a6.z, a7.z),
                    vec4<E>(b0.z, b1.z, b2.z, b3.z), vec4<E>(b4.z, b5.z, b6.z, b7.z));
        ct_sums_add(vec4<E>(a0.w, a1.w, a2.w, a3.w), vec4<E>(a4.w, a5.w, a6.w, a7.w),
                    vec4<E>(b0.w, b1.w, b2.w, b3.w), vec4<E>(b4.w, b5.w, b6.w, b7.w));
    }
    for (var i = 0u; i < 16u; i++) {
        let i_row = row + i / 2u;
        let i_column = column + i % 2u * 4u;
        if (i_row >= p.m || i_column >= p.n) { continue; }
        if (PARTS == 1u) {
            parts_store4(((part * p.batches + z) * p.m + i_row) * ((p.n + 3u) / 4u * 4u) + i_column, ct_sum_of(i));
        } else {
            put(i_row, i_column, ct_sum_of(i));
        }
    }
}
