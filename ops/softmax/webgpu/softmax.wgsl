// softmax, log_softmax and their gradients. A kind (the other files here) says what is done, of four elements at a
// time:
//   filler_a(), filler_b() elements that change nothing
//   State                  what is gathered of a line: from nothing() on, take(state, a, b), merge(a, b)
//   Scale                  what is computed of the state of the whole line, once, by scale_of(state)
//   result(scale, a, b)
// Lines whose elements are neighbours and come in aligned quads are rows, one for a group of invocations, which keeps
// them unless they are long. Otherwise neighbouring invocations have neighbouring lines, or neighbouring elements of
// one.
struct Params {
    lines: u32,
    n: u32, // elements of a line
    lanes: u32, // invocations of a line, a power of two
    columns: u32, // neighbouring invocations have neighbouring lines
    step: vec4<u32>, // of out, a, b
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 3>,
}

var<workgroup> states: array<State, THREADS>;

const FEW = 16u; // states that every invocation puts together for itself

// Of a workgroup that has `sides` lines; an invocation has one of them and is the lane-th of p.lanes there. In two
// rounds, since a barrier costs more than a few merges.
fn state_of_row(own: State, side: u32, sides: u32, lane: u32) -> State {
    states[lane * sides + side] = own;
    workgroupBarrier();
    if (p.lanes > FEW) {
        if (lane < FEW) {
            var few = own;
            for (var i = lane + FEW; i < p.lanes; i += FEW) {
                few = merge(few, states[i * sides + side]);
            }
            states[lane * sides + side] = few;
        }
        workgroupBarrier();
    }
    var all = states[side];
    for (var i = 1u; i < min(p.lanes, FEW); i++) {
        all = merge(all, states[i * sides + side]);
    }
    return all;
}

fn scale_of_row(own: State, side: u32, sides: u32, lane: u32) -> Scale {
    return scale_of(state_of_row(own, side, sides, lane));
}

// softmax: exponentials are taken once, from the greatest element of their invocation on.
fn kept_softmax(group: u32, local: u32, groups: u32) {
    let sides = THREADS / p.lanes;
    let side = local / p.lanes;
    let lane = local % p.lanes;
    let row = group * sides + side;
    let at = ct_line_at(min(row, p.lines - 1u));
    var a: array<vec4<f32>, KEPT>;
    var peaks = vec4<f32>(-ct_inf());
    for (var k = 0u; k < KEPT; k++) {
        let i = 4u * (lane + k * p.lanes);
        if (i < p.n) {
            a[k] = a_load4(at.y + i);
        }
    }
    for (var k = 0u; k < KEPT; k++) {
        if (4u * (lane + k * p.lanes) < p.n) {
            peaks = max(peaks, a[k]);
        }
    }
    let top = max(max(peaks.x, peaks.y), max(peaks.z, peaks.w));
    let base = ct_level_base(top);
    var sum = vec4<f32>();
    for (var k = 0u; k < KEPT; k++) {
        if (4u * (lane + k * p.lanes) < p.n) {
            a[k] = ct_exp_of_four(a[k] - base);
            sum += a[k];
        }
    }
    let all = state_of_row(ct_level(top, (sum.x + sum.y) + (sum.z + sum.w)), side, sides, lane);
    let share = ct_exp(top - all.top) / all.sum;
    for (var k = 0u; k < KEPT; k++) {
        let i = 4u * (lane + k * p.lanes);
        if (i < p.n && row < p.lines) {
            out_store4(at.x + i, a[k] * share);
        }
    }
}

// Up to KEPT quads of a row for each invocation.
fn kept_rows(group: u32, local: u32, groups: u32) {
    let sides = THREADS / p.lanes;
    let side = local / p.lanes;
    let lane = local % p.lanes;
    let row = group * sides + side;
    let at = ct_line_at(min(row, p.lines - 1u));
    var a: array<vec4<f32>, KEPT>;
    var b: array<vec4<f32>, KEPT>;
    for (var k = 0u; k < KEPT; k++) {
        let i = 4u * (lane + k * p.lanes);
        if (i < p.n) {
            a[k] = a_load4(at.y + i);
            b[k] = b_load4(at.z + i);
        }
    }
    var state = nothing();
    for (var k = 0u; k < KEPT; k++) {
        if (4u * (lane + k * p.lanes) < p.n) {
            state = take(state, a[k], b[k]);
        }
    }
    let scale = scale_of_row(state, side, sides, lane);
    for (var k = 0u; k < KEPT; k++) {
        let i = 4u * (lane + k * p.lanes);
        if (i < p.n && row < p.lines) {
            out_store4(at.x + i, result(scale, a[k], b[k]));
        }
    }
}

// Rows that are read twice.
fn long_rows(group: u32, local: u32, groups: u32) {
    let at = ct_line_at(group);
    let step = 4u * THREADS;
    var state = nothing();
    for (var i = 4u * local; i < p.n; i += step) {
        state = take(state, a_load4(at.y + i), b_load4(at.z + i));
    }
    let scale = scale_of_row(state, 0u, 1u, local);
    var i = 4u * local;
    for (; i + step < p.n; i += 2u * step) { // loads before stores, which they could not pass
        let a0 = a_load4(at.y + i);
        let a1 = a_load4(at.y + i + step);
        let b0 = b_load4(at.z + i);
        let b1 = b_load4(at.z + i + step);
        out_store4(at.x + i, result(scale, a0, b0));
        out_store4(at.x + i + step, result(scale, a1, b1));
    }
    for (; i < p.n; i += step) {
        out_store4(at.x + i, result(scale, a_load4(at.y + i), b_load4(at.z + i)));
    }
}

// Lines that lie anyhow.
fn any_lines(group: u32, local: u32, groups: u32) {
    let sides = THREADS / p.lanes;
    let side = select(local / p.lanes, local % sides, p.columns == 1u);
    let lane = select(local % p.lanes, local / sides, p.columns == 1u);
    let row = group * sides + side;
    let at = ct_line_at(min(row, p.lines - 1u));
    var state = nothing();
    for (var i = lane; i < p.n; i += 4u * p.lanes) {
        var a = filler_a();
        var b = filler_b();
        for (var k = 0u; k < 4u; k++) {
            let e = i + k * p.lanes;
            if (e < p.n) {
                a[k] = a_load(at.y + e * p.step.y);
                b[k] = b_load(at.z + e * p.step.z);
            }
        }
        state = take(state, a, b);
    }
    let scale = scale_of_row(state, side, sides, lane);
    if (row >= p.lines) {
        return;
    }
    for (var i = lane; i < p.n; i += p.lanes) {
        let a = a_load(at.y + i * p.step.y);
        let b = b_load(at.z + i * p.step.z);
        out_store(at.x + i * p.step.x, result(scale, vec4<f32>(a), vec4<f32>(b)).x);
    }
}
