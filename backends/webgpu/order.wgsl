// The stable order of keys by a radix sort, least digit first, with 8 bits to a digit (Satish, Harris, Garland: Designing Efficient Sorting
// Algorithms for Manycore GPUs, 2009). A workgroup takes a block of keys. count: how often each digit is in each block; scan: of each digit, how
// often it is in the blocks before; place: a block is sorted by its digit, a bit at a time, in workgroup memory, and its runs go where they
// belong. order: all of it for a single block.
struct Params {
    n: u32,
    blocks: u32,
    shift: u32,
    bits: u32,
}

const EACH = 4u; // keys of an invocation
const BLOCK = 1024u; // THREADS * EACH
const DIGITS = 256u;
var<workgroup> block_keys: array<u32, 1024>;
var<workgroup> block_places: array<u32, 1024>;
var<workgroup> sums: array<u32, 512>; // twice THREADS
var<workgroup> digit_counts: array<atomic<u32>, 256>;
var<workgroup> digit_starts: array<u32, 256>;

fn digit_of(key: u32) -> u32 { return (key >> p.shift) & (DIGITS - 1u); }

// The sum of the values of all invocations before this one; that of all is then in sums[511].
fn sum_before(local: u32, value: u32) -> u32 {
    sums[local] = value;
    workgroupBarrier();
    var half = 0u;
    for (var distance = 1u; distance < THREADS; distance *= 2u) {
        var sum = sums[half + local];
        if (local >= distance) {
            sum += sums[half + local - distance];
        }
        half = THREADS - half;
        sums[half + local] = sum;
        workgroupBarrier();
    }
    // after 8 steps the sums are in the first half again
    let own = sums[local];
    if (local == THREADS - 1u) {
        sums[511] = own;
    }
    workgroupBarrier();
    return own - value;
}

fn count(group: u32, local: u32, groups: u32) {
    for (var block = group; block < p.blocks; block += groups) {
        atomicStore(&digit_counts[local], 0u);
        workgroupBarrier();
        for (var i = local; i < BLOCK; i += THREADS) {
            let e = block * BLOCK + i;
            if (e < p.n) {
                atomicAdd(&digit_counts[digit_of(u32(keys_load(e)))], 1u);
            }
        }
        workgroupBarrier();
        counts_store(local * p.blocks + block, i32(atomicLoad(&digit_counts[local])));
        workgroupBarrier();
    }
}

fn scan(group: u32, local: u32, groups: u32) {
    for (var digit = group; digit < DIGITS; digit += groups) {
        var before = 0u;
        for (var first = 0u; first < p.blocks; first += THREADS) {
            var value = 0u;
            if (first + local < p.blocks) {
                value = u32(counts_load(digit * p.blocks + first + local));
            }
            let sum = sum_before(local, value);
            if (first + local < p.blocks) {
                counts_store(digit * p.blocks + first + local, i32(before + sum));
            }
            before += sums[511];
            workgroupBarrier();
        }
        if (local == 0u) {
            totals_store(digit, i32(before));
        }
    }
}

fn load_block(block: u32, local: u32) {
    for (var i = local; i < BLOCK; i += THREADS) {
        let e = block * BLOCK + i;
        block_keys[i] = 0xffffffffu; // behind all others
        block_places[i] = 0u;
        if (e < p.n) {
            block_keys[i] = u32(keys_load(e));
            block_places[i] = u32(places_load(e));
        }
    }
    workgroupBarrier();
}

// The block by `bits` bits from shift on: for each of them, those with a 0 go before those with a 1.
fn sort_block(local: u32) {
    for (var bit = p.shift; bit < p.shift + p.bits; bit++) {
        var keys: array<u32, 4>;
        var places: array<u32, 4>;
        var zeros = 0u;
        for (var k = 0u; k < EACH; k++) {
            keys[k] = block_keys[local * EACH + k];
            places[k] = block_places[local * EACH + k];
            zeros += 1u - ((keys[k] >> bit) & 1u);
        }
        var low = sum_before(local, zeros);
        var high = sums[511] + local * EACH - low;
        for (var k = 0u; k < EACH; k++) {
            let one = ((keys[k] >> bit) & 1u) == 1u;
            let to = select(low, high, one);
            low += select(1u, 0u, one);
            high += select(0u, 1u, one);
            block_keys[to] = keys[k];
            block_places[to] = places[k];
        }
        workgroupBarrier();
    }
}

fn place(group: u32, local: u32, groups: u32) {
    for (var block = group; block < p.blocks; block += groups) {
        load_block(block, local);
        sort_block(local);
        let before = sum_before(local, u32(totals_load(local)));
        for (var i = local; i < BLOCK; i += THREADS) {
            let digit = digit_of(block_keys[i]);
            if (i == 0u || digit_of(block_keys[i - 1u]) != digit) {
                digit_starts[digit] = i;
            }
        }
        workgroupBarrier();
        // where an element that is first in the block would go, modulo 2^32
        digit_starts[local] = before + u32(counts_load(local * p.blocks + block)) - digit_starts[local];
        workgroupBarrier();
        for (var i = local; i < min(BLOCK, p.n - block * BLOCK); i += THREADS) {
            let to = digit_starts[digit_of(block_keys[i])] + i;
            to_keys_store(to, i32(block_keys[i]));
            to_places_store(to, i32(block_places[i]));
        }
        workgroupBarrier();
    }
}

fn order(group: u32, local: u32, groups: u32) {
    load_block(0u, local);
    sort_block(local);
    for (var i = local; i < p.n; i += THREADS) {
        to_keys_store(i, i32(block_keys[i]));
        to_places_store(i, i32(block_places[i]));
    }
}
