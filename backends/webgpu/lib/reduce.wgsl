// What the two texts of reductions share (ops/reduce/webgpu/reduce.wgsl and reduce_quads.wgsl): where elements lie, and how sums come together. p
// has their Params, shared_sums is their memory; Sum, merge and put are the formula's.

// Where result i begins in x, and where it lies in out.
fn ct_kept_at(i: u32) -> vec2<u32> {
    var rest = i;
    var at = vec2<u32>(0u, 0u);
    for (var d = KEPT_RANK - 1u; d > 0u; d--) {
        let size = p.kept[d / 4u][d % 4u];
        let place = rest % size;
        rest /= size;
        at += place * vec2<u32>(p.kept_x[d / 4u][d % 4u], p.kept_out[d / 4u][d % 4u]);
    }
    return at + rest * vec2<u32>(p.kept_x[0].x, p.kept_out[0].x);
}

// Where reduced element i lies, from the first one of its result.
fn ct_reduced_at(i: u32) -> u32 {
    var rest = i;
    var at = 0u;
    for (var d = REDUCED_RANK - 1u; d > 0u; d--) {
        let size = p.reduced[d / 4u][d % 4u];
        at += rest % size * p.reduced_x[d / 4u][d % 4u];
        rest /= size;
    }
    return at + rest * p.reduced_x[0].x;
}

// The sums of each run of `lanes` invocations, a power of two; the first of them has it.
fn ct_merge_lanes(own: Sum, local: u32, lanes: u32) -> Sum {
    shared_sums[local] = own;
    workgroupBarrier();
    for (var half = lanes / 2u; half > 0u; half /= 2u) {
        if ((local & (lanes - 1u)) < half) {
            shared_sums[local] = merge(shared_sums[local], shared_sums[local + half]);
        }
        workgroupBarrier();
    }
    return shared_sums[local];
}

fn ct_put_sum(sum: Sum, result: u32, part: u32) {
    if (p.parts == 1u) {
        put(ct_kept_at(result).y, sum);
    } else {
        let words = to_words(sum);
        let at = 2u * (result * p.parts + part);
        partial_store(at, words.xy);
        partial_store(at + 1u, words.zw);
    }
}
