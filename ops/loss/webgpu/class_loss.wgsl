// class_loss and its gradient. x is (items, classes, places); a target is one of items * places. Logits of one target
// are a row, for a group of invocations, where places is 1; otherwise every invocation has targets of its own, beside
// those of its neighbours.
struct Params {
    targets: u32,
    classes: u32,
    places: u32,
    lanes: u32, // invocations of a row, a power of two
    ignored_low: u32,
    ignored_high: u32,
    reduction: u32, // 0 none, 1 mean, 2 sum
    smoothing: f32,
    parts: u32, // of the sums over targets
}

const NONE = 0xffffffffu;

var<workgroup> pairs: array<vec2<f32>, THREADS>;

// The class of target i; NONE: it is ignored, or no class, which is noted as a wrong value of that argument.
fn class_of(i: u32, argument: u32, notes: bool) -> u32 {
    let t = ct_widen(vec2<i32>(goal_load(i)), WIDE == 1u);
    if (all(t == vec2<u32>(p.ignored_low, p.ignored_high))) {
        return NONE;
    }
    if (t.y == 0u && t.x < p.classes) {
        return t.x;
    }
    if (notes) {
        ct_wrong_index(argument, i, t, p.classes);
    }
    return NONE;
}

fn weight_of(c: u32) -> f32 {
    if (!weight_given) {
        return 1.0;
    }
    return weight_load(c);
}

const FEW = 16u; // pairs that every invocation puts together for itself

// Over the invocations of each row. In two rounds, since a barrier costs more than a few sums.
fn sum_row(own: vec2<f32>, local: u32, lanes: u32) -> vec2<f32> {
    let lane = local % lanes;
    let first = local - lane;
    workgroupBarrier();
    pairs[local] = own;
    workgroupBarrier();
    if (lanes > FEW) {
        if (lane < FEW) {
            var few = own;
            for (var i = lane + FEW; i < lanes; i += FEW) {
                few += pairs[first + i];
            }
            pairs[local] = few;
        }
        workgroupBarrier();
    }
    var all = pairs[first];
    for (var i = 1u; i < min(lanes, FEW); i++) {
        all += pairs[first + i];
    }
    return all;
}

fn merge_pairs(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let both = ct_merge_levels(ct_level(a.x, a.y), ct_level(b.x, b.y));
    return vec2<f32>(both.top, both.sum);
}

// The greatest logit, and the logarithm of the sum of exp(x - greatest): the logarithms of probabilities are x less
// both.
fn normalizer_of_row(own: ct_level, local: u32) -> vec2<f32> {
    let lane = local % p.lanes;
    let first = local - lane;
    workgroupBarrier();
    pairs[local] = vec2<f32>(own.top, own.sum);
    workgroupBarrier();
    if (p.lanes > FEW) {
        if (lane < FEW) {
            var few = pairs[local];
            for (var i = lane + FEW; i < p.lanes; i += FEW) {
                few = merge_pairs(few, pairs[first + i]);
            }
            pairs[local] = few;
        }
        workgroupBarrier();
    }
    var all = pairs[first];
    for (var i = 1u; i < min(p.lanes, FEW); i++) {
        all = merge_pairs(all, pairs[first + i]);
    }
    return vec2<f32>(all.x, ct_log(all.y));
}

// Of the n logits from `at` on, those of one lane.
fn level_of_quads(at: u32, n: u32, lane: u32) -> ct_level {
    let step = 4u * p.lanes;
    var level = ct_no_level();
    var i = 4u * lane;
    for (; i + 3u * step < n; i += 4u * step) {
        let a = x_load4(at + i);
        let b = x_load4(at + i + step);
        let c = x_load4(at + i + 2u * step);
        let d = x_load4(at + i + 3u * step);
        level = ct_raise_level_by(level, a, b, c, d);
    }
    for (; i < n; i += step) {
        level = ct_raise_level(level, x_load4(at + i));
    }
    return level;
}

fn level_of(at: u32, n: u32, step: u32, lane: u32, lanes: u32) -> ct_level {
    var level = ct_no_level();
    for (var i = lane; i < n; i += 4u * lanes) {
        var v = vec4<f32>(-ct_inf());
        for (var k = 0u; k < 4u; k++) {
            if (i + k * lanes < n) {
                v[k] = x_load(at + (i + k * lanes) * step);
            }
        }
        level = ct_raise_level(level, v);
    }
    return level;
}

// Sums over the classes of weight (x - top) and of weight, those of one lane.
fn spread_of(at: u32, n: u32, step: u32, lane: u32, lanes: u32, top: f32) -> vec2<f32> {
    var sum = vec2<f32>();
    for (var c = lane; c < n; c += lanes) {
        let weight = weight_of(c);
        sum += vec2<f32>((x_load(at + c * step) - top) * weight, weight);
    }
    return sum;
}

// The loss of target i, and its weight, from the normalizer and the spread of its logits.
fn put_loss(i: u32, t: u32, logit: f32, normalizer: vec2<f32>, spread: vec2<f32>) -> vec2<f32> {
    var loss = 0.0;
    var weight = 0.0;
    if (t != NONE) {
        weight = weight_of(t);
        loss = weight * (normalizer.y - (logit - normalizer.x));
        if (SMOOTHED == 1u) {
            loss = loss * (1.0 - p.smoothing) + p.smoothing / f32(p.classes) * (spread.y * normalizer.y - spread.x);
        }
    }
    level_store(i, select(normalizer.x, 0.0, t == NONE));
    level_store(p.targets + i, select(normalizer.y, 0.0, t == NONE));
    if (p.reduction == 0u) {
        y_store(i, loss);
    }
    return vec2<f32>(loss, weight);
}

fn put_sums(sum: vec2<f32>) {
    if (p.reduction == 1u) {
        y_store(0u, sum.x / select(sum.y, 1.0, sum.y == 0.0));
    }
    if (p.reduction == 2u) {
        y_store(0u, sum.x);
    }
    total_store(0u, sum.y);
}

// The sums of a workgroup; those of the only one are the result.
fn gather_sums(own: vec2<f32>, group: u32, local: u32, groups: u32) {
    let sum = sum_row(own, local, THREADS);
    if (local == 0u) {
        if (groups == 1u) {
            put_sums(sum);
        } else {
            partial_store(2u * group, sum.x);
            partial_store(2u * group + 1u, sum.y);
        }
    }
}

fn loss_total(group: u32, local: u32, groups: u32) {
    var sum = vec2<f32>();
    for (var part = local; part < p.parts; part += THREADS) {
        sum += vec2<f32>(partial_load(2u * part), partial_load(2u * part + 1u));
    }
    sum = sum_row(sum, local, THREADS);
    if (local == 0u) {
        put_sums(sum);
    }
}

// ---- Rows ----

fn loss_of_row(i: u32, t: u32, own: ct_level, local: u32) -> vec2<f32> {
    let lane = local % p.lanes;
    let at = min(i, p.targets - 1u) * p.classes;
    let normalizer = normalizer_of_row(own, local);
    var spread = vec2<f32>();
    if (SMOOTHED == 1u) {
        let n = select(p.classes, 0u, t == NONE);
        spread = sum_row(spread_of(at, n, 1u, lane, p.lanes, normalizer.x), local, p.lanes);
    }
    if (i >= p.targets || lane != 0u) {
        return vec2<f32>();
    }
    return put_loss(i, t, x_load(at + select(t, 0u, t == NONE)), normalizer, spread);
}

fn loss_quads(group: u32, local: u32, groups: u32) {
    let sides = THREADS / p.lanes;
    var sum = vec2<f32>();
    for (var first = group * sides; first < p.targets; first += groups * sides) {
        let i = first + local / p.lanes;
        let row = min(i, p.targets - 1u);
        let t = class_of(row, 1u, i < p.targets && local % p.lanes == 0u);
        let level = level_of_quads(row * p.classes, select(p.classes, 0u, t == NONE), local % p.lanes);
        sum += loss_of_row(i, t, level, local);
    }
    gather_sums(sum, group, local, groups);
}

fn loss_rows(group: u32, local: u32, groups: u32) {
    let sides = THREADS / p.lanes;
    var sum = vec2<f32>();
    for (var first = group * sides; first < p.targets; first += groups * sides) {
        let i = first + local / p.lanes;
        let row = min(i, p.targets - 1u);
        let t = class_of(row, 1u, i < p.targets && local % p.lanes == 0u);
        let level = level_of(row * p.classes, select(p.classes, 0u, t == NONE), 1u, local % p.lanes, p.lanes);
        sum += loss_of_row(i, t, level, local);
    }
    gather_sums(sum, group, local, groups);
}

// dx = factor p - each w, and less own at the target: own is the cotangent of a target's own loss, each that of the sum
// over all classes, factor own + each sum w.
struct Cotangents {
    own: f32,
    each: f32,
    factor: f32,
}

fn cotangents_of(i: u32, t: u32, all_weights: f32) -> Cotangents {
    var g = g_load(select(0u, i, p.reduction == 0u));
    if (p.reduction == 1u) {
        let total = total_load(0u);
        g /= select(total, 1.0, total == 0.0);
    }
    let own = g * (1.0 - p.smoothing) * weight_of(select(t, 0u, t == NONE));
    let each = g * (p.smoothing / f32(p.classes));
    return Cotangents(own, each, own + each * all_weights);
}

// Probabilities; those that are rounded to a half need not be exact.
fn probabilities(x: vec4<f32>, normalizer: vec2<f32>) -> vec4<f32> {
    let logarithms = (x - normalizer.x) - normalizer.y;
    if (HALF == 1u) {
        return ct_exp_terms(logarithms);
    }
    return ct_exp_of_four(logarithms);
}

// Of the logits x of four classes from c on, `apart` from one to the next; those of an ignored target are 0.
fn gradients_of(g: Cotangents, normalizer: vec2<f32>, c: u32, apart: u32, t: u32, x: vec4<f32>) -> vec4<f32> {
    if (t == NONE) {
        return vec4<f32>();
    }
    let classes = vec4<u32>(c) + apart * vec4<u32>(0u, 1u, 2u, 3u);
    var d = probabilities(x, normalizer) * g.factor;
    if (SMOOTHED == 1u) {
        d -= g.each * vec4<f32>(weight_of(classes.x), weight_of(classes.y), weight_of(classes.z), weight_of(classes.w));
    }
    return select(d, d - g.own, classes == vec4<u32>(t));
}

fn gradient_of(g: Cotangents, normalizer: vec2<f32>, c: u32, t: u32, x: f32) -> f32 {
    return gradients_of(g, normalizer, c, 0u, t, vec4<f32>(x)).x;
}

fn sum_of_weights(local: u32, lanes: u32) -> f32 {
    if (SMOOTHED == 0u || !weight_given) {
        return f32(p.classes);
    }
    var sum = 0.0;
    for (var c = local % lanes; c < p.classes; c += lanes) {
        sum += weight_of(c);
    }
    return sum_row(vec2<f32>(sum, 0.0), local, lanes).x;
}

fn grad_quads(group: u32, local: u32, groups: u32) {
    let lane = local % p.lanes;
    let i = group * (THREADS / p.lanes) + local / p.lanes;
    let row = min(i, p.targets - 1u);
    let at = row * p.classes;
    let all_weights = sum_of_weights(local, p.lanes);
    let t = class_of(row, 2u, i < p.targets && lane == 0u);
    var normalizer = vec2<f32>(level_load(row), level_load(p.targets + row));
    if (!level_given) {
        normalizer = normalizer_of_row(level_of_quads(at, p.classes, lane), local);
    }
    if (i >= p.targets) {
        return;
    }
    let g = cotangents_of(i, t, all_weights);
    let step = 4u * p.lanes;
    var c = 4u * lane;
    for (; c + 3u * step < p.classes; c += 4u * step) { // loads before stores, which they could not pass
        let x0 = x_load4(at + c);
        let x1 = x_load4(at + c + step);
        let x2 = x_load4(at + c + 2u * step);
        let x3 = x_load4(at + c + 3u * step);
        dx_store4(at + c, gradients_of(g, normalizer, c, 1u, t, x0));
        dx_store4(at + c + step, gradients_of(g, normalizer, c + step, 1u, t, x1));
        dx_store4(at + c + 2u * step, gradients_of(g, normalizer, c + 2u * step, 1u, t, x2));
        dx_store4(at + c + 3u * step, gradients_of(g, normalizer, c + 3u * step, 1u, t, x3));
    }
    for (; c < p.classes; c += step) {
        dx_store4(at + c, gradients_of(g, normalizer, c, 1u, t, x_load4(at + c)));
    }
}

fn grad_rows(group: u32, local: u32, groups: u32) {
    let lane = local % p.lanes;
    let i = group * (THREADS / p.lanes) + local / p.lanes;
    let row = min(i, p.targets - 1u);
    let at = row * p.classes;
    let all_weights = sum_of_weights(local, p.lanes);
    let t = class_of(row, 2u, i < p.targets && lane == 0u);
    var normalizer = vec2<f32>(level_load(row), level_load(p.targets + row));
    if (!level_given) {
        normalizer = normalizer_of_row(level_of(at, p.classes, 1u, lane, p.lanes), local);
    }
    if (i >= p.targets) {
        return;
    }
    let g = cotangents_of(i, t, all_weights);
    for (var c = lane; c < p.classes; c += p.lanes) {
        dx_store(at + c, gradient_of(g, normalizer, c, t, x_load(at + c)));
    }
}

// ---- Columns ----

fn column_at(i: u32) -> u32 {
    return i / p.places * p.classes * p.places + i % p.places;
}

fn loss_columns(group: u32, local: u32, groups: u32) {
    var sum = vec2<f32>();
    for (var i = group * THREADS + local; i < p.targets; i += groups * THREADS) {
        let t = class_of(i, 1u, true);
        let at = column_at(i);
        let n = select(p.classes, 0u, t == NONE);
        let level = level_of(at, n, p.places, 0u, 1u);
        var spread = vec2<f32>();
        if (SMOOTHED == 1u) {
            spread = spread_of(at, n, p.places, 0u, 1u, level.top);
        }
        let logit = x_load(at + select(t, 0u, t == NONE) * p.places);
        sum += put_loss(i, t, logit, vec2<f32>(level.top, ct_log(level.sum)), spread);
    }
    gather_sums(sum, group, local, groups);
}

fn grad_columns(group: u32, local: u32, groups: u32) {
    let all_weights = sum_of_weights(local, THREADS);
    for (var i = group * THREADS + local; i < p.targets; i += groups * THREADS) {
        let t = class_of(i, 2u, true);
        let at = column_at(i);
        var normalizer = vec2<f32>(level_load(i), level_load(p.targets + i));
        if (!level_given) {
            let level = level_of(at, p.classes, p.places, 0u, 1u);
            normalizer = vec2<f32>(level.top, ct_log(level.sum));
        }
        let g = cotangents_of(i, t, all_weights);
        for (var c = 0u; c < p.classes; c++) {
            dx_store(at + c * p.places, gradient_of(g, normalizer, c, t, x_load(at + c * p.places)));
        }
    }
}
