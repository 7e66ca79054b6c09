// Products by tiles, for any operands: C [m, n] = A [m, k] B [k, n], `batches` times. The loop order is that of every
// fast product on a GPU: a workgroup of 256 has a tile of C in registers, 4 or 8 rows by 4 or 8 columns an invocation,
// walks along k by 16, and keeps what it needs of A and B for that in workgroup memory, as f32 or i32: 16 KiB of it at
// most. The loads for the next 16 are under way while it multiplies.
//
// This text stands beside that of a unit, which says what A, B and C are:
//
//   alias E                          the type of sums
//   struct Params                    begins with m, n, k, part, tiles_m, tiles_n, batches, parts: u32
//   begin(z)                         from now on it is product z
//   a_fix(slot, row), b_fix(slot, column)   what an invocation will read: slot is 0 or 1
//   a_quad(slot, k) -> vec4<E>       along k (A_ALONG_K): elements k to k + 3 of the row of that slot; else k of four
//                                    rows from the one of slot 0 on. 0 outside of A
//   b_quad(slot, k)                  likewise
//                                    Of both, a_quad(0, ...) is called first; where both are along k, all of them with
//                                    the same k
//   put(row, column, v)              takes four sums of a row, of which those from column n on are none
//
// Where there are few tiles, k is divided into `parts`, whose sums go to scratch and are added in their order by
// `finish`: the same bits at every run. `part`, how long one is, is a multiple of 16.
//
// In workgroup memory quads of rows (columns) lie side by side, those of one k after those of another. Quad q of line k
// is at q ^ (k / 4 * 2): where elements come along k, four invocations write into four lines at once, which are then in
// four banks.

const TILE_K = 16u;
const TILE_M = 64u * ROW_QUADS;
const TILE_N = 64u * COLUMN_QUADS;
const A_LINE = 16u * ROW_QUADS; // quads
const B_LINE = 16u * COLUMN_QUADS;
const BAND = 8u; // rows of tiles that are walked together, so that their operands stay in cache

var<workgroup> a_tile: array<vec4<E>, TILE_K * A_LINE>;
var<workgroup> b_tile: array<vec4<E>, TILE_K * B_LINE>;

var<private> a_next0: vec4<E>;
var<private> a_next1: vec4<E>;
var<private> b_next0: vec4<E>;
var<private> b_next1: vec4<E>;

fn fix(local: u32, row: u32, column: u32) {
    if (A_ALONG_K == 1u) {
        a_fix(0u, row + local / 4u);
        if (ROW_QUADS == 2u) { a_fix(1u, row + local / 4u + 64u); }
    } else {
        a_fix(0u, row + local % A_LINE * 4u);
    }
    if (B_ALONG_K == 1u) {
        b_fix(0u, column + local / 4u);
        if (COLUMN_QUADS == 2u) { b_fix(1u, column + local / 4u + 64u); }
    } else {
        b_fix(0u, column + local % B_LINE * 4u);
    }
}

fn fetch(local: u32, k: u32) {
    if (A_ALONG_K == 1u) {
        a_next0 = a_quad(0u, k + local % 4u * 4u);
        if (ROW_QUADS == 2u) { a_next1 = a_quad(1u, k + local % 4u * 4u); }
    } else {
        a_next0 = a_quad(0u, k + local / A_LINE);
        if (ROW_QUADS == 2u) { a_next1 = a_quad(0u, k + local / A_LINE + 8u); }
    }
    if (B_ALONG_K == 1u) {
        b_next0 = b_quad(0u, k + local % 4u * 4u);
        if (COLUMN_QUADS == 2u) { b_next1 = b_quad(1u, k + local % 4u * 4u); }
    } else {
        b_next0 = b_quad(0u, k + local / B_LINE);
        if (COLUMN_QUADS == 2u) { b_next1 = b_quad(0u, k + local / B_LINE + 8u); }
    }
}

fn place_of(line: u32, quad: u32, k: u32) -> u32 { return k * line + (quad ^ (k / 4u * 2u)); }

// What was fetched goes to workgroup memory.
fn keep(local: u32) {
    let k = local % 4u * 4u;
    let element = local / 4u % 4u;
    if (A_ALONG_K == 1u) {
        let at = place_of(A_LINE, local / 16u, k);
        a_tile[at][element] = a_next0.x;
        a_tile[at + A_LINE][element] = a_next0.y;
        a_tile[at + 2u * A_LINE][element] = a_next0.z;
        a_tile[at + 3u * A_LINE][element] = a_next0.w;
        if (ROW_QUADS == 2u) {
            a_tile[at + 16u][element] = a_next1.x;
            a_tile[at + 16u + A_LINE][element] = a_next1.y;
            a_tile[at + 16u + 2u * A_LINE][element] = a_next1.z;
            a_tile[at + 16u + 3u * A_LINE][element] = a_next1.w;
        }
    } else {
        a_tile[place_of(A_LINE, local % A_LINE, local / A_LINE)] = a_next0;
        if (ROW_QUADS == 2u) { a_tile[place_of(A_LINE, local % A_LINE, local / A_LINE + 8u)] = a_next1; }
    }
    if (B_ALONG_K == 1u) {
        let at = place_of(B_LINE, local / 16u, k);
        b_tile[at][element] = b_next0.x;
        b_tile[at + B_LINE][element] = b_next0.y;
        b_tile[at + 2u * B_LINE][element] = b_next0.z;
        b_tile[at + 3u * B_LINE][element] = b_next0.w;
        if (COLUMN_QUADS == 2u) {
            b_tile[at + 16u][element] = b_next1.x;
            b_tile[at + 16u + B_LINE][element] = b_next1.y;
            b_tile[at + 16u + 2u * B_LINE][element] = b_next1.z;
            b_tile[at + 16u + 3u * B_LINE][element] = b_next1.w;
        }
    } else {
        b_tile[place_of(B_LINE, local % B_LINE, local / B_LINE)] = b_next0;
        if (COLUMN_QUADS == 2u) { b_tile[place_of(B_LINE, local % B_LINE, local / B_LINE + 8u)] = b_next1; }
    }
}

// One k of the tile: 4 or 8 rows from quad y times 4 or 8 columns from quad x.
fn step(k: u32, x: u32, y: u32) {
    let a0 = a_tile[place_of(A_LINE, y, k)];
    let b0 = b_tile[place_of(B_LINE, x, k)];
    var a1 = vec4<E>();
    var b1 = vec4<E>();
    if (ROW_QUADS == 2u) { a1 = a_tile[place_of(A_LINE, y, k) + 16u]; }
    if (COLUMN_QUADS == 2u) { b1 = b_tile[place_of(B_LINE, x, k) + 16u]; }
    ct_sums_add(a0, a1, b0, b1);
}

fn line_of_parts() -> u32 { return (p.n + 3u) / 4u * 4u; }

fn multiply(group: u32, local: u32, groups: u32) {
    let tiles = p.tiles_m * p.tiles_n;
    let tile = group % tiles;
    let z = group / tiles % p.batches;
    let part = group / (tiles * p.batches);
    let band = tile / (BAND * p.tiles_n);
    let within = tile % (BAND * p.tiles_n);
    let height = min(BAND, p.tiles_m - band * BAND);
    let row = (band * BAND + within % height) * TILE_M;
    let column = within / height * TILE_N;
    // a subgroup of 32 has 8 by 4 of the 16 by 16 blocks: it reads fewer places of both operands than 16 by 2 would
    let x = local / 32u % 2u * 8u + local % 8u;
    let y = local / 64u * 4u + local / 8u % 4u;
    let first = part * p.part;
    let end = min(p.k, first + p.part);
    begin(z);
    fix(local, row, column);
    if (first < end) { fetch(local, first); }
    for (var k = first; k < end; k += TILE_K) {
        keep(local);
        workgroupBarrier();
        if (k + TILE_K < end) { fetch(local, k + TILE_K); }
        for (var line = 0u; line < TILE_K; line += 4u) {
            step(line, x, y);
            step(line + 1u, x, y);
            step(line + 2u, x, y);
            step(line + 3u, x, y);
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 8u * ROW_QUADS; i++) {
        let i_column = column + x * 4u + i % 2u * 64u;
        let i_row = row + y * 4u + i / 2u % 4u + i / 8u * 64u;
        if ((COLUMN_QUADS == 1u && i % 2u == 1u) || i_row >= p.m || i_column >= p.n) { continue; }
        if (PARTS == 1u) {
            parts_store4(((part * p.batches + z) * p.m + i_row) * line_of_parts() + i_column, ct_sum_of(i));
        } else {
            put(i_row, i_column, ct_sum_of(i));
        }
    }
}

fn finish(group: u32, local: u32, groups: u32) {
    let quads = line_of_parts() / 4u;
    let all = p.batches * p.m * quads;
    for (var i = group * THREADS + local; i < all; i += groups * THREADS) {
        var sum = vec4<E>();
        for (var part = 0u; part < p.parts; part++) { sum += parts_load4((part * all + i) * 4u); }
        begin(i / (p.m * quads));
        put(i / quads % p.m, i % quads * 4u, sum);
    }
}
