// row_norm and its gradients. A row's variance is taken of deviations from a centre that is near its mean; what it is
// off by is taken out again. Rows that come in aligned quads, and are not too long, are read once and kept.
struct Params {
    rows: u32,
    n: u32,
    lanes: u32, // invocations of a row, a power of two
    rms: u32,
    eps: f32,
    inverse: f32, // 1 / n
    parts: u32, // of the sums over rows
    chunk: u32, // rows of a part, where they are summed apart
}

struct Moments {
    centre: f32,
    rstd: f32,
    rest: f32, // xhat is (x - centre) rstd - rest
}

var<workgroup> sums: array<vec4<f32>, THREADS>;

const FEW = 16u; // sums that every invocation adds up for itself

// Over the invocations of each row. In two rounds, since a barrier costs more than a few sums.
fn sum_row(own: vec4<f32>, local: u32) -> vec4<f32> {
    let lane = local % p.lanes;
    let first = local - lane;
    workgroupBarrier();
    sums[local] = own;
    workgroupBarrier();
    if (p.lanes > FEW) {
        if (lane < FEW) {
            var few = own;
            for (var i = lane + FEW; i < p.lanes; i += FEW) {
                few += sums[first + i];
            }
            sums[local] = few;
        }
        workgroupBarrier();
    }
    var all = sums[first];
    for (var i = 1u; i < min(p.lanes, FEW); i++) {
        all += sums[first + i];
    }
    return all;
}

// The mean of the quads that some invocations begin with: as near to that of the row as deviations have to be counted
// from.
fn sampled_centre(own: vec4<f32>, local: u32) -> f32 {
    let lane = local % p.lanes;
    let first = local - lane;
    let count = min(p.lanes, min(FEW, p.n / 4u));
    workgroupBarrier();
    if (lane < FEW) {
        sums[local] = own;
    }
    workgroupBarrier();
    var all = sums[first];
    for (var i = 1u; i < count; i++) {
        all += sums[first + i];
    }
    let centre = sum_four(all) / f32(4u * count);
    return select(0.0, centre, ct_is_finite(centre));
}

fn sum_four(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

// Any number does, so long as it is one.
fn centre_of(sum: f32) -> f32 {
    let mean = sum * p.inverse;
    return select(0.0, mean, p.rms == 0u && ct_is_finite(mean));
}

// From the sums of deviations from the centre and of their squares.
fn moments_of(centre: f32, deviations: f32, squares: f32) -> Moments {
    let rest = select(deviations * p.inverse, 0.0, p.rms == 1u);
    let variance = squares * p.inverse - rest * rest;
    let rstd = 1.0 / sqrt(select(variance, 0.0, variance < 0.0) + p.eps);
    return Moments(centre, rstd, rest * rstd);
}

// With h = g weight: dx = (h - mean - xhat along) scale. Without a mean of x there is no mean of h.
struct Projection {
    mean: f32,
    along: f32,
    scale: f32,
}

// sums: of deviations, their squares, h, and h times deviations.
fn projection_of(m: Moments, of_row: vec4<f32>) -> Projection {
    if (p.rms == 1u && p.n == 1u) { // 1 - xhat^2 = eps rstd^2, of which a difference would leave nothing
        return Projection(0.0, 0.0, m.rstd * (p.eps * m.rstd * m.rstd));
    }
    if (p.n == 1u) { // a difference of equals, which a fused product would not leave as 0
        return Projection(0.0, 0.0, 0.0);
    }
    let along = (m.rstd * of_row.w - m.rest * of_row.z) * p.inverse;
    return Projection(select(of_row.z * p.inverse, 0.0, p.rms == 1u), along, m.rstd);
}

fn weight_of_four(i: u32) -> vec4<f32> {
    if (!weight_given) {
        return vec4<f32>(1.0);
    }
    return weight_load4(i);
}

fn weight_of(i: u32) -> f32 {
    if (!weight_given) {
        return 1.0;
    }
    return weight_load(i);
}

// ---- In quads, KEPT of them at most for an invocation ----

fn kept_rows(group: u32, local: u32, groups: u32) {
    let lane = local % p.lanes;
    let row = group * (THREADS / p.lanes) + local / p.lanes;
    let at = min(row, p.rows - 1u) * p.n;
    var x: array<vec4<f32>, KEPT>;
    for (var k = 0u; k < KEPT; k++) {
        let i = 4u * (lane + k * p.lanes);
        if (i < p.n) {
            x[k] = x_load4(at + i);
        }
    }
    var centre = 0.0;
    if (p.rms == 0u) {
        centre = sampled_centre(x[0], local);
    }
    var deviations = vec4<f32>();
    var squares = vec4<f32>();
    for (var k = 0u; k < KEPT; k++) {
        if (4u * (lane + k * p.lanes) < p.n) {
            let d = x[k] - centre;
            deviations += d;
            squares += d * d;
        }
    }
    let of_row = sum_row(vec4<f32>(sum_four(deviations), sum_four(squares), 0.0, 0.0), local);
    let m = moments_of(centre, of_row.x, of_row.y);
    for (var k = 0u; k < KEPT; k++) {
        let i = 4u * (lane + k * p.lanes);
        if (i < p.n && row < p.rows) {
            let xhat = (x[k] - m.centre) * m.rstd - m.rest;
            y_store4(at + i, xhat * weight_of_four(i) + bias_load4(i));
        }
    }
}

// All gradients: a group of invocations goes from row to row and keeps the sums of its columns.
fn kept_gradients(group: u32, local: u32, groups: u32) {
    let lane = local % p.lanes;
    let sides = THREADS / p.lanes;
    var by_weight: array<vec4<f32>, KEPT>;
    var by_bias: array<vec4<f32>, KEPT>;
    for (var first = group * sides; first < p.rows; first += groups * sides) {
        let row = first + local / p.lanes;
        let inside = row < p.rows;
        let at = min(row, p.rows - 1u) * p.n;
        var x: array<vec4<f32>, KEPT>;
        var g: array<vec4<f32>, KEPT>;
        for (var k = 0u; k < KEPT; k++) {
            let i = 4u * (lane + k * p.lanes);
            if (i < p.n) {
                x[k] = x_load4(at + i);
                g[k] = g_load4(at + i);
            }
        }
        var centre = 0.0;
        if (p.rms == 0u) {
            centre = sampled_centre(x[0], local);
        }
        var few = array<vec4<f32>, 4>();
        for (var k = 0u; k < KEPT; k++) {
            let i = 4u * (lane + k * p.lanes);
            if (i < p.n) {
                let d = x[k] - centre;
                let h = g[k] * weight_of_four(i);
                few[0] += d;
                few[1] += d * d;
                few[2] += h;
                few[3] += h * d;
            }
        }
        let of_row =
            sum_row(vec4<f32>(sum_four(few[0]), sum_four(few[1]), sum_four(few[2]), sum_four(few[3])), local);
        let m = moments_of(centre, of_row.x, of_row.y);
        let onto = projection_of(m, of_row);
        for (var k = 0u; k < KEPT; k++) {
            let i = 4u * (lane + k * p.lanes);
            if (i < p.n && inside) {
                let xhat = (x[k] - m.centre) * m.rstd - m.rest;
                by_weight[k] += g[k] * xhat;
                by_bias[k] += g[k];
                if (dx_given) {
                    dx_store4(at + i, (g[k] * weight_of_four(i) - onto.mean - xhat * onto.along) * onto.scale);
                }
            }
        }
    }
    if (partial_given) {
        let part = 2u * p.n * (group * sides + local / p.lanes);
        for (var k = 0u; k < KEPT; k++) {
            let i = 4u * (lane + k * p.lanes);
            if (i < p.n) {
                partial_store4(part + i, by_weight[k]);
                partial_store4(part + p.n + i, by_bias[k]);
            }
        }
    }
}

// ---- Rows that lie anyhow, or are long: read again for each pass ----

fn any_rows(group: u32, local: u32, groups: u32) {
    let lane = local % p.lanes;
    let row = group * (THREADS / p.lanes) + local / p.lanes;
    let at = min(row, p.rows - 1u) * p.n;
    var sum = 0.0;
    if (p.rms == 0u) {
        for (var i = lane; i < p.n; i += p.lanes) {
            sum += x_load(at + i);
        }
    }
    let centre = centre_of(sum_row(vec4<f32>(sum, 0.0, 0.0, 0.0), local).x);
    var few = vec4<f32>();
    for (var i = lane; i < p.n; i += p.lanes) {
        let d = x_load(at + i) - centre;
        few += vec4<f32>(d, d * d, 0.0, 0.0);
    }
    let of_row = sum_row(few, local);
    let m = moments_of(centre, of_row.x, of_row.y);
    if (row >= p.rows) {
        return;
    }
    for (var i = lane; i < p.n; i += p.lanes) {
        y_store(at + i, ((x_load(at + i) - m.centre) * m.rstd - m.rest) * weight_of(i) + bias_load(i));
    }
}

// Gradients of x, and the moments of rows, with which those of weight are summed apart.
fn any_gradients(group: u32, local: u32, groups: u32) {
    let lane = local % p.lanes;
    let row = group * (THREADS / p.lanes) + local / p.lanes;
    let at = min(row, p.rows - 1u) * p.n;
    var sum = 0.0;
    if (p.rms == 0u) {
        for (var i = lane; i < p.n; i += p.lanes) {
            sum += x_load(at + i);
        }
    }
    let centre = centre_of(sum_row(vec4<f32>(sum, 0.0, 0.0, 0.0), local).x);
    var few = vec4<f32>();
    for (var i = lane; i < p.n; i += p.lanes) {
        let d = x_load(at + i) - centre;
        let h = g_load(at + i) * weight_of(i);
        few += vec4<f32>(d, d * d, h, h * d);
    }
    let of_row = sum_row(few, local);
    let m = moments_of(centre, of_row.x, of_row.y);
    if (row >= p.rows) {
        return;
    }
    if (lane == 0u) {
        moments_store(3u * row, m.centre);
        moments_store(3u * row + 1u, m.rstd);
        moments_store(3u * row + 2u, m.rest);
    }
    if (!dx_given) {
        return;
    }
    let onto = projection_of(m, of_row);
    for (var i = lane; i < p.n; i += p.lanes) {
        let xhat = (x_load(at + i) - m.centre) * m.rstd - m.rest;
        dx_store(at + i, (g_load(at + i) * weight_of(i) - onto.mean - xhat * onto.along) * onto.scale);
    }
}

// ---- Sums over rows ----

const SIDE = 32u; // columns of a workgroup

// Over the invocations that stand at a column.
fn sum_column(own: vec2<f32>, local: u32) -> vec2<f32> {
    sums[local] = vec4<f32>(own, 0.0, 0.0);
    workgroupBarrier();
    for (var half = THREADS / SIDE / 2u; half > 0u; half /= 2u) {
        if (local / SIDE < half) {
            sums[local] += sums[local + half * SIDE];
        }
        workgroupBarrier();
    }
    return sums[local].xy;
}

// Those of one part of the rows, from their moments.
fn sum_parts(group: u32, local: u32, groups: u32) {
    let sides = (p.n + SIDE - 1u) / SIDE;
    let part = group / sides;
    let column = (group % sides) * SIDE + local % SIDE;
    let end = min((part + 1u) * p.chunk, p.rows);
    var sum = vec2<f32>();
    if (column < p.n) {
        for (var row = part * p.chunk + local / SIDE; row < end; row += THREADS / SIDE) {
            let at = row * p.n + column;
            let g = g_load(at);
            let deviation = x_load(at) - moments_load(3u * row);
            sum += vec2<f32>(g * (deviation * moments_load(3u * row + 1u) - moments_load(3u * row + 2u)), g);
        }
    }
    sum = sum_column(sum, local);
    if (local < SIDE && column < p.n) {
        partial_store(2u * p.n * part + column, sum.x);
        partial_store(2u * p.n * part + p.n + column, sum.y);
    }
}

// Over all parts.
fn sum_total(group: u32, local: u32, groups: u32) {
    let column = group * SIDE + local % SIDE;
    var sum = vec2<f32>();
    if (column < p.n) {
        for (var part = local / SIDE; part < p.parts; part += THREADS / SIDE) {
            sum += vec2<f32>(partial_load(2u * p.n * part + column), partial_load(2u * p.n * part + p.n + column));
        }
    }
    sum = sum_column(sum, local);
    if (local < SIDE && column < p.n) {
        dweight_store(column, sum.x);
        dbias_store(column, sum.y);
    }
}
