// Batches of matrices that are dense along columns where they are written and along rows where they are read, by tiles
// in workgroup memory. Rows of a tile are one longer than it, so that neighbours meet in different banks.
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

const SIDE = 32u;
var<workgroup> tile: array<to_t, 1056>; // by column: SIDE * (SIDE + 1)

fn transpose(group: u32, local: u32, groups: u32) {
    let tiles = p.row_tiles * p.column_tiles;
    let x = local % SIDE;
    for (var t = group; t < tiles * p.total; t += groups) {
        let batch = t / tiles;
        let row_tile = (t - batch * tiles) / p.column_tiles;
        let row = row_tile * SIDE;
        let column = (t - batch * tiles - row_tile * p.column_tiles) * SIDE;
        let at = ct_place2(batch);
        for (var c = local / SIDE; c < SIDE; c += THREADS / SIDE) {
            if (row + x < p.rows && column + c < p.columns) {
                tile[c * (SIDE + 1u) + x] = from_load(at.y + row + x + (column + c) * p.from_column);
            }
        }
        workgroupBarrier();
        for (var r = local / SIDE; r < SIDE; r += THREADS / SIDE) {
            if (row + r < p.rows && column + x < p.columns) {
                to_store(at.x + (row + r) * p.to_row + column + x, tile[x * (SIDE + 1u) + r]);
            }
        }
        workgroupBarrier();
    }
}
