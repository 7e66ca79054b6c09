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

fn norm() -> ct_norm {
    return ct_norm(p.n, p.inverse, p.eps, p.rms);
}

// Any number does, so long as it is one.
fn centre_of(sum: f32) -> f32 {
    let mean = sum * p.inverse;
    return select(0.0, mean, p.rms == 0u && ct_is_finite(mean));
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
        centre = ct_sampled_centre(norm(), x[0], local, p.lanes);
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
    let of_row = ct_sum_row(vec4<f32>(ct_sum_four(deviations), ct_sum_four(squares), 0.0, 0.0), local, p.lanes);
    let m = ct_moments_of(norm(), centre, of_row.x, of_row.y);
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
            centre = ct_sampled_centre(norm(), x[0], local, p.lanes);
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
        let own = vec4<f32>(ct_sum_four(few[0]), ct_sum_four(few[1]), ct_sum_four(few[2]), ct_sum_four(few[3]));
        let of_row = ct_sum_row(own, local, p.lanes);
        let m = ct_moments_of(norm(), centre, of_row.x, of_row.y);
        let onto = ct_projection_of(norm(), m, of_row);
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
    let centre = centre_of(ct_sum_row(vec4<f32>(sum, 0.0, 0.0, 0.0), local, p.lanes).x);
    var few = vec4<f32>();
    for (var i = lane; i < p.n; i += p.lanes) {
        let d = x_load(at + i) - centre;
        few += vec4<f32>(d, d * d, 0.0, 0.0);
    }
    let of_row = ct_sum_row(few, local, p.lanes);
    let m = ct_moments_of(norm(), centre, of_row.x, of_row.y);
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
    let centre = centre_of(ct_sum_row(vec4<f32>(sum, 0.0, 0.0, 0.0), local, p.lanes).x);
    var few = vec4<f32>();
    for (var i = lane; i < p.n; i += p.lanes) {
        let d = x_load(at + i) - centre;
        let h = g_load(at + i) * weight_of(i);
        few += vec4<f32>(d, d * d, h, h * d);
    }
    let of_row = ct_sum_row(few, local, p.lanes);
    let m = ct_moments_of(norm(), centre, of_row.x, of_row.y);
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
    let onto = ct_projection_of(norm(), m, of_row);
    for (var i = lane; i < p.n; i += p.lanes) {
        let xhat = (x_load(at + i) - m.centre) * m.rstd - m.rest;
        dx_store(at + i, (g_load(at + i) * weight_of(i) - onto.mean - xhat * onto.along) * onto.scale);
    }
}

// ---- Sums over rows ----

const SIDE = 32u; // columns of a workgroup

// Over the invocations that stand at a column.
fn sum_column(own: vec2<f32>, local: u32) -> vec2<f32> {
    ct_row_sums[local] = vec4<f32>(own, 0.0, 0.0);
    workgroupBarrier();
    for (var half = THREADS / SIDE / 2u; half > 0u; half /= 2u) {
        if (local / SIDE < half) {
            ct_row_sums[local] += ct_row_sums[local + half * SIDE];
        }
        workgroupBarrier();
    }
    return ct_row_sums[local].xy;
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
