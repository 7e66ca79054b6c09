// Sorts along an axis: bitonic sorts of tiles (Batcher, 1968), and merges that are cut into tiles along the path of the
// merge (Odeh, Green and Birk, 2012). Elements become items (narrow.wgsl, wide.wgsl): an unsigned key that orders as
// they do, with their place. No two items are equal, so every correct sort is the stable one.
struct Params {
    n: u32, // elements of a line
    tiles: u32, // of a line
    first_line: u32,
    line_count: u32,
    kept: u32, // items of a line that are stored
    room: u32, // items that the tile of a line has, a power of two
    run: u32, // items in a sorted run of `source`
    last: u32, // this pass writes the results
    descending: u32,
    step: vec4<u32>, // of x, values, indices
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 3>,
}

const TILE = 4u * THREADS;

var<workgroup> items: array<Item, TILE>;
var<workgroup> splits: array<u32, 2>;

// Item i of the line-th line at once: into the results, or for the next pass.
fn put(row: u32, i: u32, item: Item) {
    if (p.last == 0u) {
        item_store(row * p.n + i, item);
        return;
    }
    if (i >= p.kept) {
        return;
    }
    let at = ct_line_at(p.first_line + row);
    if (values_given) {
        values_store(at.y + i * p.step.y, x_load(at.x + item.place * p.step.x));
    }
    indices_store(at.z + i * p.step.z, ct_i64(item.place, 0u));
}

// As many tiles side by side as fit, each a line or a part of one.
fn tiles(group: u32, local: u32, groups: u32) {
    let room = p.room;
    let first = group * (TILE / room);
    for (var k = local; k < TILE; k += THREADS) {
        let job = first + k / room;
        let row = job / p.tiles;
        let i = (job % p.tiles) * room + (k & (room - 1u));
        items[k] = last_item();
        if (row < p.line_count && i < p.n) {
            items[k] = item_of(x_load(ct_line_at(p.first_line + row).x + i * p.step.x), i);
        }
    }
    workgroupBarrier();
    for (var run = 2u; run <= room; run *= 2u) {
        for (var distance = run / 2u; distance > 0u; distance /= 2u) {
            for (var t = local; t < TILE / 2u; t += THREADS) {
                let k = 2u * t - (t & (distance - 1u));
                let ascending = (k & (room - 1u) & run) == 0u;
                let low = items[k];
                let high = items[k + distance];
                if (less(high, low) == ascending) {
                    items[k] = high;
                    items[k + distance] = low;
                }
            }
            workgroupBarrier();
        }
    }
    for (var k = local; k < TILE; k += THREADS) {
        let job = first + k / room;
        let row = job / p.tiles;
        let i = (job % p.tiles) * room + (k & (room - 1u));
        if (row < p.line_count && i < p.n) {
            put(row, i, items[k]);
        }
    }
}

// How many of the first `count` items of a merge come from the first of its two runs, of n and m items.
fn split_of(one: u32, n: u32, m: u32, count: u32) -> u32 {
    var low = max(count, m) - m;
    var high = min(count, n);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (less(item_load(one + middle), item_load(one + n + count - 1u - middle))) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

// The same of runs in `items`.
fn split_of_items(n: u32, m: u32, count: u32) -> u32 {
    var low = max(count, m) - m;
    var high = min(count, n);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (less(items[middle], items[n + count - 1u - middle])) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

fn merge(group: u32, local: u32, groups: u32) {
    let row = group / p.tiles;
    let start = (group % p.tiles) * TILE;
    let end = min(start + TILE, p.n);
    let pair = start / (2u * p.run) * (2u * p.run);
    let n = min(p.run, p.n - pair);
    let m = min(p.run, p.n - pair - n);
    let one = row * p.n + pair;
    if (local < 2u) {
        splits[local] = split_of(one, n, m, select(end, start, local == 0u) - pair);
    }
    workgroupBarrier();
    let of_one = splits[0];
    let of_two = start - pair - of_one;
    let count = end - start;
    let ones = splits[1] - of_one;
    let twos = count - ones;
    for (var k = local; k < count; k += THREADS) {
        items[k] = item_load(select(one + n + of_two + k - ones, one + of_one + k, k < ones));
    }
    workgroupBarrier();
    var merged: array<Item, 4>;
    let first = min(local * 4u, count);
    var i = split_of_items(ones, twos, first);
    var j = first - i;
    for (var k = 0u; k < 4u; k++) {
        if (first + k < count) {
            var takes_one = j >= twos;
            if (i < ones && j < twos) {
                takes_one = less(items[i], items[ones + j]);
            }
            merged[k] = items[select(ones + j, i, takes_one)];
            i += select(0u, 1u, takes_one);
            j += select(1u, 0u, takes_one);
        }
    }
    for (var k = 0u; k < 4u; k++) {
        if (first + k < count) {
            put(row, start + first + k, merged[k]);
        }
    }
}
