// Reductions of elements that lie in aligned quads: as reduce.wgsl, whose formulas these are, four elements at a time.
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

struct Four {
    s: array<Sum, 4>,
}

var<workgroup> shared_sums: array<Sum, 4 * THREADS>;

fn no_four() -> Four {
    return Four(array<Sum, 4>(nothing(), nothing(), nothing(), nothing()));
}

// Invocations go along rows; i and what follows are multiples of four. Loads are issued four at a time.
fn rows(group: u32, local: u32, groups: u32) {
    let lanes = p.lanes;
    let lane = local & (lanes - 1u);
    let job = group * (THREADS / lanes) + local / lanes;
    let result = job / p.parts;
    let part = job % p.parts;
    var sums = no_four();
    if (result < p.results) {
        let x = ct_kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        let step = 4u * lanes;
        var i = part * p.chunk + 4u * lane;
        for (; i + 3u * step < to; i += 4u * step) {
            let v0 = x_load4(x + ct_reduced_at(i));
            let v1 = x_load4(x + ct_reduced_at(i + step));
            let v2 = x_load4(x + ct_reduced_at(i + 2u * step));
            let v3 = x_load4(x + ct_reduced_at(i + 3u * step));
            for (var k = 0u; k < 4u; k++) {
                var s = add(sums.s[k], v0[k], i + k);
                s = add(s, v1[k], i + step + k);
                s = add(s, v2[k], i + 2u * step + k);
                sums.s[k] = add(s, v3[k], i + 3u * step + k);
            }
        }
        for (; i < to; i += step) {
            let v = x_load4(x + ct_reduced_at(i));
            for (var k = 0u; k < 4u; k++) {
                sums.s[k] = add(sums.s[k], v[k], i + k);
            }
        }
    }
    let sum = ct_merge_lanes(merge(merge(sums.s[0], sums.s[1]), merge(sums.s[2], sums.s[3])), local, lanes);
    if (lane == 0u && result < p.results) {
        ct_put_sum(sum, result, part);
    }
}

// Invocations stand side by side at four results each.
fn columns(group: u32, local: u32, groups: u32) {
    let side = p.lanes;
    let deep = THREADS / side;
    let part = group / p.blocks;
    let result = 4u * ((group % p.blocks) * side + (local & (side - 1u)));
    let inside = result < p.results;
    var sums = no_four();
    if (inside) {
        let x = ct_kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        var i = part * p.chunk + local / side;
        for (; i + 3u * deep < to; i += 4u * deep) {
            let v0 = x_load4(x + ct_reduced_at(i));
            let v1 = x_load4(x + ct_reduced_at(i + deep));
            let v2 = x_load4(x + ct_reduced_at(i + 2u * deep));
            let v3 = x_load4(x + ct_reduced_at(i + 3u * deep));
            for (var k = 0u; k < 4u; k++) {
                var s = add(sums.s[k], v0[k], i);
                s = add(s, v1[k], i + deep);
                s = add(s, v2[k], i + 2u * deep);
                sums.s[k] = add(s, v3[k], i + 3u * deep);
            }
        }
        for (; i < to; i += deep) {
            let v = x_load4(x + ct_reduced_at(i));
            for (var k = 0u; k < 4u; k++) {
                sums.s[k] = add(sums.s[k], v[k], i);
            }
        }
    }
    for (var k = 0u; k < 4u; k++) {
        shared_sums[k * THREADS + local] = sums.s[k];
    }
    workgroupBarrier();
    for (var half = deep / 2u; half > 0u; half /= 2u) {
        if (local / side < half) {
            for (var at = local; at < 4u * THREADS; at += THREADS) {
                shared_sums[at] = merge(shared_sums[at], shared_sums[at + half * side]);
            }
        }
        workgroupBarrier();
    }
    if (local < side && inside) {
        for (var k = 0u; k < 4u; k++) {
            ct_put_sum(shared_sums[k * THREADS + local], result + k, part);
        }
    }
}
