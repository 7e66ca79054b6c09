// Rows that groups of invocations have, `lanes` of them each, a power of two: what the invocations of a row have
// gathered becomes one, which all of them get. For those that normalize rows.

const ct_few_lanes = 16u; // sums that every invocation adds up for itself

var<workgroup> ct_row_sums: array<vec4<f32>, THREADS>;

// In two rounds, since a barrier costs more than a few sums.
fn ct_sum_row(own: vec4<f32>, local: u32, lanes: u32) -> vec4<f32> {
    let lane = local % lanes;
    let first = local - lane;
    workgroupBarrier();
    ct_row_sums[local] = own;
    workgroupBarrier();
    if (lanes > ct_few_lanes) {
        if (lane < ct_few_lanes) {
            var few = own;
            for (var i = lane + ct_few_lanes; i < lanes; i += ct_few_lanes) {
                few += ct_row_sums[first + i];
            }
            ct_row_sums[local] = few;
        }
        workgroupBarrier();
    }
    var all = ct_row_sums[first];
    for (var i = 1u; i < min(lanes, ct_few_lanes); i++) {
        all += ct_row_sums[first + i];
    }
    return all;
}

// The same of sums of exponentials (level.wgsl).
fn ct_level_at(i: u32) -> ct_level {
    return ct_level(ct_row_sums[i].x, ct_row_sums[i].y);
}
fn ct_level_of_row(own: ct_level, local: u32, lanes: u32) -> ct_level {
    let lane = local % lanes;
    let first = local - lane;
    workgroupBarrier();
    ct_row_sums[local] = vec4<f32>(own.top, own.sum, 0.0, 0.0);
    workgroupBarrier();
    if (lanes > ct_few_lanes) {
        if (lane < ct_few_lanes) {
            var few = own;
            for (var i = lane + ct_few_lanes; i < lanes; i += ct_few_lanes) {
                few = ct_merge_levels(few, ct_level_at(first + i));
            }
            ct_row_sums[local] = vec4<f32>(few.top, few.sum, 0.0, 0.0);
        }
        workgroupBarrier();
    }
    var all = ct_level_at(first);
    for (var i = 1u; i < min(lanes, ct_few_lanes); i++) {
        all = ct_merge_levels(all, ct_level_at(first + i));
    }
    return all;
}

fn ct_sum_four(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

// ---- Moments ----

// Which norm it is, of rows of n elements.
struct ct_norm {
    n: u32,
    inverse: f32, // 1 / n
    eps: f32,
    rms: u32, // 1: without a mean
}

// The mean of the quads that some invocations begin with: as near to that of the row as deviations have to be counted
// from.
fn ct_sampled_centre(kind: ct_norm, own: vec4<f32>, local: u32, lanes: u32) -> f32 {
    let lane = local % lanes;
    let first = local - lane;
    let count = min(lanes, min(ct_few_lanes, kind.n / 4u));
    workgroupBarrier();
    if (lane < ct_few_lanes) {
        ct_row_sums[local] = own;
    }
    workgroupBarrier();
    var all = ct_row_sums[first];
    for (var i = 1u; i < count; i++) {
        all += ct_row_sums[first + i];
    }
    let centre = ct_sum_four(all) / f32(4u * count);
    return select(0.0, centre, ct_is_finite(centre));
}

struct ct_moments {
    centre: f32,
    rstd: f32,
    rest: f32, // xhat is (x - centre) rstd - rest
}

// From the sums of deviations from the centre and of their squares.
fn ct_moments_of(kind: ct_norm, centre: f32, deviations: f32, squares: f32) -> ct_moments {
    let rest = select(deviations * kind.inverse, 0.0, kind.rms == 1u);
    let variance = squares * kind.inverse - rest * rest;
    let rstd = 1.0 / sqrt(select(variance, 0.0, variance < 0.0) + kind.eps);
    return ct_moments(centre, rstd, rest * rstd);
}

// With h = g weight: dx = (h - mean - xhat along) scale. Without a mean of x there is no mean of h.
struct ct_projection {
    mean: f32,
    along: f32,
    scale: f32,
}

// sums: of deviations, their squares, h, and h times deviations.
fn ct_projection_of(kind: ct_norm, m: ct_moments, of_row: vec4<f32>) -> ct_projection {
    if (kind.rms == 1u && kind.n == 1u) { // 1 - xhat^2 = eps rstd^2, of which a difference would leave nothing
        return ct_projection(0.0, 0.0, m.rstd * (kind.eps * m.rstd * m.rstd));
    }
    if (kind.n == 1u) { // a difference of equals, which a fused product would not leave as 0
        return ct_projection(0.0, 0.0, 0.0);
    }
    let along = (m.rstd * of_row.w - m.rest * of_row.z) * kind.inverse;
    return ct_projection(select(of_row.z * kind.inverse, 0.0, kind.rms == 1u), along, m.rstd);
}
