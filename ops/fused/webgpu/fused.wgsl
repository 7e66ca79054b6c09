// What the kernels of fused calls share. The text of each call (ops/fused/webgpu/text) comes beside it: for kernels
// over elements load_four(i) and finish_four(four), the elements i to i + 3 from memory through all steps and back; for
// kernels with steps along rows the whole function fused_rows, which calls the steps that stand here.

struct Params {
    total: u32, // elements
    rows: u32,
    pad_a: u32,
    pad_b: u32,
    draws: array<vec4<u32>, 32>, // positions in the random stream: seed and stream, call and nothing
}

// ---- Over elements ----

fn quads(group: u32, local: u32, groups: u32) {
    let step = groups * THREADS * 4u;
    for (var i = (group * THREADS + local) * 4u; i < p.total; i += step) {
        finish_four(load_four(i));
    }
}

// Twice four, of which all is read before anything is computed: more is under way in memory.
fn octets(group: u32, local: u32, groups: u32) {
    let apart = THREADS * 4u;
    let step = groups * apart * 2u;
    for (var i = group * apart * 2u + local * 4u; i < p.total; i += step) {
        let two = i + apart < p.total;
        let first = load_four(i);
        let second = load_four(select(i, i + apart, two));
        finish_four(first);
        if (two) {
            finish_four(second);
        }
    }
}

// ---- Along rows ----

// What an invocation has of a row of N elements: quads lane, lane + LANES, ... of it. The arithmetic is that of
// ops/softmax/webgpu and ops/norm/webgpu, and in their order.
alias Row = array<vec4<f32>, KEPT>;

fn in_row(k: u32, local: u32) -> bool {
    return 4u * (local % LANES + k * LANES) < N;
}

fn row_softmax(x: ptr<function, Row>, y: ptr<function, Row>, local: u32) {
    var peaks = vec4<f32>(-ct_inf());
    for (var k = 0u; k < KEPT; k++) {
        if (in_row(k, local)) {
            peaks = max(peaks, (*x)[k]);
        }
    }
    let top = max(max(peaks.x, peaks.y), max(peaks.z, peaks.w));
    let base = ct_level_base(top);
    var sum = vec4<f32>();
    for (var k = 0u; k < KEPT; k++) {
        if (in_row(k, local)) {
            (*y)[k] = ct_exp_of_four((*x)[k] - base);
            sum += (*y)[k];
        }
    }
    let all = ct_level_of_row(ct_level(top, ct_sum_four(sum)), local, LANES);
    let share = ct_exp(top - all.top) / all.sum;
    for (var k = 0u; k < KEPT; k++) {
        (*y)[k] *= share;
    }
}

fn row_level(x: ptr<function, Row>, local: u32) -> ct_level {
    var level = ct_no_level();
    for (var k = 0u; k < KEPT; k++) {
        if (in_row(k, local)) {
            level = ct_raise_level(level, (*x)[k]);
        }
    }
    return ct_level_of_row(level, local, LANES);
}

fn row_log_softmax(x: ptr<function, Row>, y: ptr<function, Row>, local: u32) {
    let level = row_level(x, local);
    let log_sum = ct_log(level.sum);
    for (var k = 0u; k < KEPT; k++) {
        (*y)[k] = ((*x)[k] - level.top) - log_sum;
    }
}

// y (g - sum g y / sum y)
fn row_softmax_grad(g: ptr<function, Row>, y: ptr<function, Row>, dx: ptr<function, Row>, local: u32) {
    var own = vec2<f32>();
    for (var k = 0u; k < KEPT; k++) {
        if (in_row(k, local)) {
            own += vec2<f32>(dot((*g)[k], (*y)[k]), ct_sum_four((*y)[k]));
        }
    }
    let all = ct_sum_row(vec4<f32>(own, 0.0, 0.0), local, LANES);
    let mean = all.x / all.y;
    for (var k = 0u; k < KEPT; k++) {
        (*dx)[k] = (*y)[k] * ((*g)[k] - mean);
    }
}

fn row_sum(g: ptr<function, Row>, local: u32) -> f32 {
    var own = 0.0;
    for (var k = 0u; k < KEPT; k++) {
        if (in_row(k, local)) {
            own += ct_sum_four((*g)[k]);
        }
    }
    return ct_sum_row(vec4<f32>(own, 0.0, 0.0, 0.0), local, LANES).x;
}

// g - exp(y) sum g
fn row_log_softmax_grad(g: ptr<function, Row>, y: ptr<function, Row>, dx: ptr<function, Row>, local: u32) {
    let sum = row_sum(g, local);
    for (var k = 0u; k < KEPT; k++) {
        (*dx)[k] = (*g)[k] - ct_exp_of_four((*y)[k]) * sum;
    }
}

// g - exp(x - top) / sum exp(x - top) sum g
fn row_log_softmax_half_grad(g: ptr<function, Row>, x: ptr<function, Row>, dx: ptr<function, Row>, local: u32) {
    let level = row_level(x, local);
    let scale = row_sum(g, local) / level.sum;
    for (var k = 0u; k < KEPT; k++) {
        (*dx)[k] = (*g)[k] - ct_exp_of_four((*x)[k] - level.top) * scale;
    }
}

fn row_centre(kind: ct_norm, first: vec4<f32>, local: u32) -> f32 {
    if (kind.rms == 1u) {
        return 0.0;
    }
    return ct_sampled_centre(kind, first, local, LANES);
}

fn row_norm(kind: ct_norm, x: ptr<function, Row>, weight: ptr<function, Row>, bias: ptr<function, Row>,
            y: ptr<function, Row>, local: u32) {
    let centre = row_centre(kind, (*x)[0], local);
    var deviations = vec4<f32>();
    var squares = vec4<f32>();
    for (var k = 0u; k < KEPT; k++) {
        if (in_row(k, local)) {
            let d = (*x)[k] - centre;
            deviations += d;
            squares += d * d;
        }
    }
    let of_row = ct_sum_row(vec4<f32>(ct_sum_four(deviations), ct_sum_four(squares), 0.0, 0.0), local, LANES);
    let m = ct_moments_of(kind, centre, of_row.x, of_row.y);
    for (var k = 0u; k < KEPT; k++) {
        let xhat = ((*x)[k] - m.centre) * m.rstd - m.rest;
        (*y)[k] = xhat * (*weight)[k] + (*bias)[k];
    }
}

// The sums of columns, by_weight and by_bias, are of the rows that are inside.
fn row_norm_grad(kind: ct_norm, g: ptr<function, Row>, x: ptr<function, Row>, weight: ptr<function, Row>,
                 dx: ptr<function, Row>, by_weight: ptr<function, Row>, by_bias: ptr<function, Row>, inside: bool,
                 local: u32) {
    let centre = row_centre(kind, (*x)[0], local);
    var few = array<vec4<f32>, 4>();
    for (var k = 0u; k < KEPT; k++) {
        if (in_row(k, local)) {
            let d = (*x)[k] - centre;
            let h = (*g)[k] * (*weight)[k];
            few[0] += d;
            few[1] += d * d;
            few[2] += h;
            few[3] += h * d;
        }
    }
    let own = vec4<f32>(ct_sum_four(few[0]), ct_sum_four(few[1]), ct_sum_four(few[2]), ct_sum_four(few[3]));
    let of_row = ct_sum_row(own, local, LANES);
    let m = ct_moments_of(kind, centre, of_row.x, of_row.y);
    let onto = ct_projection_of(kind, m, of_row);
    for (var k = 0u; k < KEPT; k++) {
        if (inside && in_row(k, local)) {
            let xhat = ((*x)[k] - m.centre) * m.rstd - m.rest;
            (*by_weight)[k] += (*g)[k] * xhat;
            (*by_bias)[k] += (*g)[k];
            (*dx)[k] = ((*g)[k] * (*weight)[k] - onto.mean - xhat * onto.along) * onto.scale;
        }
    }
}
