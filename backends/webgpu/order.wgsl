// The stable order of keys by a radix sort, least digit first, with 8 bits to a digit (Satish, Harris, Garland:
// Designing Efficient Sorting Algorithms for Manycore GPUs, 2009). A workgroup takes a block of keys. count: how often
// each digit is in each block; scan: of each digit, how often it is in the blocks before; place: a block is sorted by
// its digit in workgroup memory, and its runs go where they belong. order: all of it for a single block. Barriers are
// what a sort of a block costs, so two bits go at a time.
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
var<workgroup> sums: array<vec2<u32>, 256>;
var<workgroup> group_sums: array<vec2<u32>, 16>; // of 16 neighbours each
var<workgroup> digit_counts: array<atomic<u32>, 256>;
var<workgroup> digit_starts: array<u32, 256>;

fn digit_of(key: u32) -> u32 { return (key >> p.shift) & (DIGITS - 1u); }

struct Sums {
    before: vec2<u32>, // of the values of all invocations before this one
    all: vec2<u32>,
}

fn sums_of(local: u32, value: vec2<u32>) -> Sums {
    sums[local] = value;
    workgroupBarrier();
    if (local < 16u) {
        var sum = vec2<u32>(0u, 0u);
        for (var i = 16u * local; i < 16u * local + 16u; i++) {
            let next = sum + sums[i];
            sums[i] = sum;
            sum = next;
        }
        group_sums[local] = sum;
    }
    workgroupBarrier();
    var result = Sums(sums[local], vec2<u32>(0u, 0u));
    for (var g = 0u; g < 16u; g++) {
        let sum = group_sums[g];
        result.all += sum;
        if (g < local / 16u) {
            result.before += sum;
        }
    }
    workgroupBarrier();
    return result;
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
            let found = sums_of(local, vec2<u32>(value, 0u));
            if (first + local < p.blocks) {
                counts_store(digit * p.blocks + first + local, i32(before + found.before.x));
            }
            before += found.all.x;
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

// The block by `bits` bits from shift on, two at a time: how often each of the four is, in 16 bits each, tells where
// its keys go.
fn sort_block(local: u32) {
    for (var bit = p.shift; bit < p.shift + p.bits; bit += 2u) {
        var keys: array<u32, 4>;
        var places: array<u32, 4>;
        var counts = vec2<u32>(0u, 0u);
        for (var k = 0u; k < EACH; k++) {
            keys[k] = block_keys[local * EACH + k];
            places[k] = block_places[local * EACH + k];
            let which = (keys[k] >> bit) & 3u;
            counts[which >> 1u] += 1u << (16u * (which & 1u));
        }
        let found = sums_of(local, counts);
        let one = found.all.x & 0xffffu;
        let two = one + (found.all.x >> 16u);
        let three = two + (found.all.y & 0xffffu);
        var to = found.before + vec2<u32>(one << 16u, two | (three << 16u));
        for (var k = 0u; k < EACH; k++) {
            let which = (keys[k] >> bit) & 3u;
            let shift = 16u * (which & 1u);
            let at = (to[which >> 1u] >> shift) & 0xffffu;
            to[which >> 1u] += 1u << shift;
            block_keys[at] = keys[k];
            block_places[at] = places[k];
        }
        workgroupBarrier();
    }
}

fn place(group: u32, local: u32, groups: u32) {
    for (var block = group; block < p.blocks; block += groups) {
        load_block(block, local);
        sort_block(local);
        let before = sums_of(local, vec2<u32>(u32(totals_load(local)), 0u)).before.x;
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
