// Reductions over any axes. A formula (the other files here) says what is done:
//   Sum                      what elements are gathered in, from nothing() on
//   add(sum, element, place) of an element of x and its place among those that are reduced
//   merge(sum, sum)
//   put(at, sum)             stores the result
//   to_words, from_words     a sum as four words, in which parts of results are kept
struct Params {
    results: u32,
    n: u32,     // reduced elements
    parts: u32, // of a result, of `chunk` elements each
    chunk: u32,
    lanes: u32,  // rows: invocations per row. columns: side by side. A power of two
    blocks: u32, // columns: workgroups side by side
    kept: array<vec4<u32>, 2>,
    kept_x: array<vec4<u32>, 2>,
    kept_out: array<vec4<u32>, 2>,
    reduced: array<vec4<u32>, 2>,
    reduced_x: array<vec4<u32>, 2>,
}

var<workgroup> shared_sums: array<Sum, THREADS>;

// Invocations go along rows.
fn rows(group: u32, local: u32, groups: u32) {
    let lanes = p.lanes;
    let job = group * (THREADS / lanes) + local / lanes;
    let result = job / p.parts;
    let part = job % p.parts;
    var sum = nothing();
    if (result < p.results) {
        let x = ct_kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        for (var i = part * p.chunk + (local & (lanes - 1u)); i < to; i += lanes) {
            sum = add(sum, x_load(x + ct_reduced_at(i)), i);
        }
    }
    sum = ct_merge_lanes(sum, local, lanes);
    if ((local & (lanes - 1u)) == 0u && result < p.results) {
        ct_put_sum(sum, result, part);
    }
}

// Invocations stand side by side at results, in groups that take every so-manieth element.
fn columns(group: u32, local: u32, groups: u32) {
    let side = p.lanes;
    let deep = THREADS / side;
    let part = group / p.blocks;
    let result = (group % p.blocks) * side + (local & (side - 1u));
    let inside = result < p.results;
    var sum = nothing();
    if (inside) {
        let x = ct_kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        for (var i = part * p.chunk + local / side; i < to; i += deep) {
            sum = add(sum, x_load(x + ct_reduced_at(i)), i);
        }
    }
    shared_sums[local] = sum;
    workgroupBarrier();
    for (var half = deep / 2u; half > 0u; half /= 2u) {
        if (local / side < half) {
            shared_sums[local] = merge(shared_sums[local], shared_sums[local + half * side]);
        }
        workgroupBarrier();
    }
    if (local < side && inside) {
        ct_put_sum(shared_sums[local], result, part);
    }
}

// Results of their parts.
fn parts(group: u32, local: u32, groups: u32) {
    let lanes = p.lanes;
    let result = group * (THREADS / lanes) + local / lanes;
    var sum = nothing();
    if (result < p.results) {
        for (var part = local & (lanes - 1u); part < p.parts; part += lanes) {
            let at = 2u * (result * p.parts + part);
            sum = merge(sum, from_words(vec4<u32>(partial_load(at), partial_load(at + 1u))));
        }
    }
    sum = ct_merge_lanes(sum, local, lanes);
    if ((local & (lanes - 1u)) == 0u && result < p.results) {
        put(ct_kept_at(result).y, sum);
    }
}
