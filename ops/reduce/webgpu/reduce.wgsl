// Reductions over any axes. A formula (the other files here) says what is done:
//   Sum                      what elements are gathered in, from nothing() on
//   add(sum, element, place, at, result)
//                            of an element of x, its place among those that are reduced, where it lies in x, and
//                            whose it is
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

// Where result i begins in x, and where it lies in out.
fn kept_at(i: u32) -> vec2<u32> {
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
fn reduced_at(i: u32) -> u32 {
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
fn merge_lanes(own: Sum, local: u32, lanes: u32) -> Sum {
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

fn put_sum(sum: Sum, result: u32, part: u32) {
    if (p.parts == 1u) {
        put(kept_at(result).y, sum);
    } else {
        let words = to_words(sum);
        let at = 2u * (result * p.parts + part);
        partial_store(at, words.xy);
        partial_store(at + 1u, words.zw);
    }
}

// Invocations go along rows.
fn rows(group: u32, local: u32, groups: u32) {
    let lanes = p.lanes;
    let job = group * (THREADS / lanes) + local / lanes;
    let result = job / p.parts;
    let part = job % p.parts;
    var sum = nothing();
    if (result < p.results) {
        let x = kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        for (var i = part * p.chunk + (local & (lanes - 1u)); i < to; i += lanes) {
            let at = x + reduced_at(i);
            sum = add(sum, x_load(at), i, at, result);
        }
    }
    sum = merge_lanes(sum, local, lanes);
    if ((local & (lanes - 1u)) == 0u && result < p.results) {
        put_sum(sum, result, part);
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
        let x = kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        for (var i = part * p.chunk + local / side; i < to; i += deep) {
            let at = x + reduced_at(i);
            sum = add(sum, x_load(at), i, at, result);
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
        put_sum(shared_sums[local], result, part);
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
    sum = merge_lanes(sum, local, lanes);
    if ((local & (lanes - 1u)) == 0u && result < p.results) {
        put(kept_at(result).y, sum);
    }
}

// ---- Elements in aligned quads, four at a time ----

struct Four {
    s: array<Sum, 4>,
}

var<workgroup> shared_fours: array<Sum, 4 * THREADS>;

fn no_four() -> Four {
    return Four(array<Sum, 4>(nothing(), nothing(), nothing(), nothing()));
}

// Invocations go along rows; i and what follows are multiples of four. Loads are issued four at a time.
fn quad_rows(group: u32, local: u32, groups: u32) {
    let lanes = p.lanes;
    let lane = local & (lanes - 1u);
    let job = group * (THREADS / lanes) + local / lanes;
    let result = job / p.parts;
    let part = job % p.parts;
    var sums = no_four();
    if (result < p.results) {
        let x = kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        let step = 4u * lanes;
        var i = part * p.chunk + 4u * lane;
        for (; i + 3u * step < to; i += 4u * step) {
            let at0 = x + reduced_at(i);
            let at1 = x + reduced_at(i + step);
            let at2 = x + reduced_at(i + 2u * step);
            let at3 = x + reduced_at(i + 3u * step);
            let v0 = x_load4(at0);
            let v1 = x_load4(at1);
            let v2 = x_load4(at2);
            let v3 = x_load4(at3);
            for (var k = 0u; k < 4u; k++) {
                var s = add(sums.s[k], v0[k], i + k, at0 + k, result);
                s = add(s, v1[k], i + step + k, at1 + k, result);
                s = add(s, v2[k], i + 2u * step + k, at2 + k, result);
                sums.s[k] = add(s, v3[k], i + 3u * step + k, at3 + k, result);
            }
        }
        for (; i < to; i += step) {
            let at = x + reduced_at(i);
            let v = x_load4(at);
            for (var k = 0u; k < 4u; k++) {
                sums.s[k] = add(sums.s[k], v[k], i + k, at + k, result);
            }
        }
    }
    let sum = merge_lanes(merge(merge(sums.s[0], sums.s[1]), merge(sums.s[2], sums.s[3])), local, lanes);
    if (lane == 0u && result < p.results) {
        put_sum(sum, result, part);
    }
}

// Invocations stand side by side at four results each.
fn quad_columns(group: u32, local: u32, groups: u32) {
    let side = p.lanes;
    let deep = THREADS / side;
    let part = group / p.blocks;
    let result = 4u * ((group % p.blocks) * side + (local & (side - 1u)));
    let inside = result < p.results;
    var sums = no_four();
    if (inside) {
        let x = kept_at(result).x;
        let to = min((part + 1u) * p.chunk, p.n);
        var i = part * p.chunk + local / side;
        for (; i + 3u * deep < to; i += 4u * deep) {
            let at0 = x + reduced_at(i);
            let at1 = x + reduced_at(i + deep);
            let at2 = x + reduced_at(i + 2u * deep);
            let at3 = x + reduced_at(i + 3u * deep);
            let v0 = x_load4(at0);
            let v1 = x_load4(at1);
            let v2 = x_load4(at2);
            let v3 = x_load4(at3);
            for (var k = 0u; k < 4u; k++) {
                var s = add(sums.s[k], v0[k], i, at0 + k, result + k);
                s = add(s, v1[k], i + deep, at1 + k, result + k);
                s = add(s, v2[k], i + 2u * deep, at2 + k, result + k);
                sums.s[k] = add(s, v3[k], i + 3u * deep, at3 + k, result + k);
            }
        }
        for (; i < to; i += deep) {
            let at = x + reduced_at(i);
            let v = x_load4(at);
            for (var k = 0u; k < 4u; k++) {
                sums.s[k] = add(sums.s[k], v[k], i, at + k, result + k);
            }
        }
    }
    for (var k = 0u; k < 4u; k++) {
        shared_fours[k * THREADS + local] = sums.s[k];
    }
    workgroupBarrier();
    for (var half = deep / 2u; half > 0u; half /= 2u) {
        if (local / side < half) {
            for (var at = local; at < 4u * THREADS; at += THREADS) {
                shared_fours[at] = merge(shared_fours[at], shared_fours[at + half * side]);
            }
        }
        workgroupBarrier();
    }
    if (local < side && inside) {
        for (var k = 0u; k < 4u; k++) {
            put_sum(shared_fours[k * THREADS + local], result + k, part);
        }
    }
}
