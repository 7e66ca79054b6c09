// transpose.wgsl for elements of 16 bits, which are written as whole words: a tile has two columns for each of the
// other's.
struct Params {
    total: u32, // matrices
    rank: u32,
    row_tiles: u32,
    column_tiles: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 2>,
    rows: u32,
    columns: u32,
    to_row: u32,
    from_column: u32,
}

const SIDE = 32u; // rows; columns are twice as many
var<workgroup> tile: array<u32, 2112>; // by column: 2 * SIDE * (SIDE + 1)

fn transpose(group: u32, local: u32, groups: u32) {
    let tiles = p.row_tiles * p.column_tiles;
    let x = local % SIDE;
    for (var t = group; t < tiles * p.total; t += groups) {
        let batch = t / tiles;
        let row_tile = (t - batch * tiles) / p.column_tiles;
        let row = row_tile * SIDE;
        let column = (t - batch * tiles - row_tile * p.column_tiles) * 2u * SIDE;
        let at = ct_place2(batch);
        for (var c = local / SIDE; c < 2u * SIDE; c += THREADS / SIDE) {
            if (row + x < p.rows && column + c < p.columns) {
                tile[c * (SIDE + 1u) + x] = from_bits(from_load(at.y + row + x + (column + c) * p.from_column));
            }
        }
        workgroupBarrier();
        for (var r = local / SIDE; r < SIDE; r += THREADS / SIDE) {
            let c = column + 2u * x;
            if (row + r < p.rows && c < p.columns) {
                let word = (at.x + (row + r) * p.to_row + c) / 2u;
                var high = tile[(2u * x + 1u) * (SIDE + 1u) + r] << 16u;
                if (c + 1u == p.columns) {
                    high = to_word(word) & 0xffff0000u;
                }
                to_put(word, tile[2u * x * (SIDE + 1u) + r] | high);
            }
        }
        workgroupBarrier();
    }
}
