// Large products of product.wgsl, as in tile.wgsl, but by workgroups of 128 invocations, each of which has 16 rows by 8
// columns of a tile of 128 by 128. Fewer invocations wait for each other, a multiprocessor has several such workgroups,
// and an element of workgroup memory is used for twice as many products: on an H200 a fifth faster than 256 of 8 by 8.

const LINE = 32u; // quads of a line of 128
var<workgroup> a_large: array<vec4<E>, 16u * LINE>;
var<workgroup> b_large: array<vec4<E>, 16u * LINE>;
var<private> large: array<vec4<E>, 32>; // [row][quad of columns], at constant places alone

// What is loaded for the next 16 of k: as its words (A_WORDS, B_WORDS), which are unpacked on their way to workgroup
// memory, since to unpack them at once is to wait for them; or as numbers, where more is done to them than that.
var<private> a_packed: array<a_words, 4>;
var<private> b_packed: array<b_words, 4>;
var<private> a_next: array<vec4<E>, 4>;
var<private> b_next: array<vec4<E>, 4>;

fn large_at(quad: u32, k: u32) -> u32 { return k * LINE + (quad ^ (k / 4u * 2u)); }

// Row (column) and k of quad i of the 512 of a tile: along k of a row (column), or of four rows (columns) of one k.
fn a_place(i: u32, row: u32, k: u32) -> vec2<u32> {
    if (A_ALONG_K == 1u) { return vec2<u32>(row + i / 4u, k + i % 4u * 4u); }
    return vec2<u32>(row + i % LINE * 4u, k + i / LINE);
}
fn b_place(i: u32, column: u32, k: u32) -> vec2<u32> {
    if (B_ALONG_K == 1u) { return vec2<u32>(column + i / 4u, k + i % 4u * 4u); }
    return vec2<u32>(column + i % LINE * 4u, k + i / LINE);
}
fn a_words_at(at: vec2<u32>) -> a_words {
    if (INSIDE == 0u && (at.x >= p.m || at.y >= p.k)) { return a_words(); }
    return a_load_words(a_base + at.x * p.a_row + at.y * p.a_col);
}
fn b_words_at(at: vec2<u32>) -> b_words {
    if (INSIDE == 0u && (at.x >= p.n || at.y >= p.k)) { return b_words(); }
    return b_load_words(b_base + at.y * p.b_row + at.x * p.b_col);
}

fn fetch_large(local: u32, row: u32, column: u32, k: u32) {
    let a0 = a_place(local, row, k);
    let a1 = a_place(local + 128u, row, k);
    let a2 = a_place(local + 256u, row, k);
    let a3 = a_place(local + 384u, row, k);
    if (A_WORDS == 1u) {
        a_packed[0] = a_words_at(a0);
        a_packed[1] = a_words_at(a1);
        a_packed[2] = a_words_at(a2);
        a_packed[3] = a_words_at(a3);
    } else {
        a_next[0] = a_at(a0.x, a0.y);
        a_next[1] = a_at(a1.x, a1.y);
        a_next[2] = a_at(a2.x, a2.y);
        a_next[3] = a_at(a3.x, a3.y);
    }
    let b0 = b_place(local, column, k);
    let b1 = b_place(local + 128u, column, k);
    let b2 = b_place(local + 256u, column, k);
    let b3 = b_place(local + 384u, column, k);
    if (B_WORDS == 1u) {
        b_packed[0] = b_words_at(b0);
        b_packed[1] = b_words_at(b1);
        b_packed[2] = b_words_at(b2);
        b_packed[3] = b_words_at(b3);
    } else {
        b_next[0] = b_at(b0.x, b0.y);
        b_next[1] = b_at(b1.x, b1.y);
        b_next[2] = b_at(b2.x, b2.y);
        b_next[3] = b_at(b3.x, b3.y);
    }
}

fn a_keep(i: u32, v: vec4<E>) {
    if (A_ALONG_K == 1u) {
        let at = large_at(i / 16u, i % 4u * 4u);
        let element = i / 4u % 4u;
        a_large[at][element] = v.x;
        a_large[at + LINE][element] = v.y;
        a_large[at + 2u * LINE][element] = v.z;
        a_large[at + 3u * LINE][element] = v.w;
    } else {
        a_large[large_at(i % LINE, i / LINE)] = v;
    }
}
fn b_keep(i: u32, v: vec4<E>) {
    if (B_ALONG_K == 1u) {
        let at = large_at(i / 16u, i % 4u * 4u);
        let element = i / 4u % 4u;
        b_large[at][element] = v.x;
        b_large[at + LINE][element] = v.y;
        b_large[at + 2u * LINE][element] = v.z;
        b_large[at + 3u * LINE][element] = v.w;
    } else {
        b_large[large_at(i % LINE, i / LINE)] = v;
    }
}

fn keep_large(local: u32) {
    if (A_WORDS == 1u) {
        a_keep(local, a_of_words(a_packed[0]));
        a_keep(local + 128u, a_of_words(a_packed[1]));
        a_keep(local + 256u, a_of_words(a_packed[2]));
        a_keep(local + 384u, a_of_words(a_packed[3]));
    } else {
        a_keep(local, a_next[0]);
        a_keep(local + 128u, a_next[1]);
        a_keep(local + 256u, a_next[2]);
        a_keep(local + 384u, a_next[3]);
    }
    if (B_WORDS == 1u) {
        b_keep(local, b_of_words(b_packed[0]));
        b_keep(local + 128u, b_of_words(b_packed[1]));
        b_keep(local + 256u, b_of_words(b_packed[2]));
        b_keep(local + 384u, b_of_words(b_packed[3]));
    } else {
        b_keep(local, b_next[0]);
        b_keep(local + 128u, b_next[1]);
        b_keep(local + 256u, b_next[2]);
        b_keep(local + 384u, b_next[3]);
    }
}

// One k: quads y, y + 8, y + 16, y + 24 of rows, x and x + 16 of columns.
fn step_large(k: u32, x: u32, y: u32) {
    let b0 = b_large[large_at(x, k)];
    let b1 = b_large[large_at(x + 16u, k)];
    let a0 = a_large[large_at(y + 0u, k)];
    large[0] = large[0] + a0.x * b0;
    large[1] = large[1] + a0.x * b1;
    large[2] = large[2] + a0.y * b0;
    large[3] = large[3] + a0.y * b1;
    large[4] = large[4] + a0.z * b0;
    large[5] = large[5] + a0.z * b1;
    large[6] = large[6] + a0.w * b0;
    large[7] = large[7] + a0.w * b1;
    let a1 = a_large[large_at(y + 8u, k)];
    large[8] = large[8] + a1.x * b0;
    large[9] = large[9] + a1.x * b1;
    large[10] = large[10] + a1.y * b0;
    large[11] = large[11] + a1.y * b1;
    large[12] = large[12] + a1.z * b0;
    large[13] = large[13] + a1.z * b1;
    large[14] = large[14] + a1.w * b0;
    large[15] = large[15] + a1.w * b1;
    let a2 = a_large[large_at(y + 16u, k)];
    large[16] = large[16] + a2.x * b0;
    large[17] = large[17] + a2.x * b1;
    large[18] = large[18] + a2.y * b0;
    large[19] = large[19] + a2.y * b1;
    large[20] = large[20] + a2.z * b0;
    large[21] = large[21] + a2.z * b1;
    large[22] = large[22] + a2.w * b0;
    large[23] = large[23] + a2.w * b1;
    let a3 = a_large[large_at(y + 24u, k)];
    large[24] = large[24] + a3.x * b0;
    large[25] = large[25] + a3.x * b1;
    large[26] = large[26] + a3.y * b0;
    large[27] = large[27] + a3.y * b1;
    large[28] = large[28] + a3.z * b0;
    large[29] = large[29] + a3.z * b1;
    large[30] = large[30] + a3.w * b0;
    large[31] = large[31] + a3.w * b1;
}

fn large_of(i: u32) -> vec4<E> {
    switch (i) {
        case 0u: { return large[0]; }
        case 1u: { return large[1]; }
        case 2u: { return large[2]; }
        case 3u: { return large[3]; }
        case 4u: { return large[4]; }
        case 5u: { return large[5]; }
        case 6u: { return large[6]; }
        case 7u: { return large[7]; }
        case 8u: { return large[8]; }
        case 9u: { return large[9]; }
        case 10u: { return large[10]; }
        case 11u: { return large[11]; }
        case 12u: { return large[12]; }
        case 13u: { return large[13]; }
        case 14u: { return large[14]; }
        case 15u: { return large[15]; }
        case 16u: { return large[16]; }
        case 17u: { return large[17]; }
        case 18u: { return large[18]; }
        case 19u: { return large[19]; }
        case 20u: { return large[20]; }
        case 21u: { return large[21]; }
        case 22u: { return large[22]; }
        case 23u: { return large[23]; }
        case 24u: { return large[24]; }
        case 25u: { return large[25]; }
        case 26u: { return large[26]; }
        case 27u: { return large[27]; }
        case 28u: { return large[28]; }
        case 29u: { return large[29]; }
        case 30u: { return large[30]; }
        default: { return large[31]; }
    }
}

fn multiply_large(group: u32, local: u32, groups: u32) {
    let tiles = p.tiles_m * p.tiles_n;
    let tile = group % tiles;
    let z = group / tiles % p.batches;
    let part = group / (tiles * p.batches);
    let band = tile / (8u * p.tiles_n); // rows of tiles that are walked together, so that their operands stay in cache
    let within = tile % (8u * p.tiles_n);
    let height = min(8u, p.tiles_m - band * 8u);
    let row = (band * 8u + within % height) * 128u;
    let column = within / height * 128u;
    let x = local / 32u % 2u * 8u + local % 8u; // a subgroup of 32 has 8 by 4 of the 16 by 8 blocks
    let y = local / 64u * 4u + local / 8u % 4u;
    let first = part * p.part;
    let end = min(p.k, first + p.part);
    begin(z);
    if (first < end) { fetch_large(local, row, column, first); }
    for (var k = first; k < end; k += 16u) {
        keep_large(local);
        workgroupBarrier();
        if (k + 16u < end) { fetch_large(local, row, column, k + 16u); }
        for (var line = 0u; line < 16u; line += 4u) {
            step_large(line, x, y);
            step_large(line + 1u, x, y);
            step_large(line + 2u, x, y);
            step_large(line + 3u, x, y);
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 32u; i++) {
        let i_row = row + (y + i / 8u * 8u) * 4u + i / 2u % 4u;
        let i_column = column + (x + i % 2u * 16u) * 4u;
        if (i_row >= p.m || i_column >= p.n) { continue; }
        if (PARTS == 1u) {
            parts_store4(((part * p.batches + z) * p.m + i_row) * line_of_parts() + i_column, large_of(i));
        } else {
            put(i_row, i_column, large_of(i));
        }
    }
}

fn line_of_parts() -> u32 { return (p.n + 3u) / 4u * 4u; }
