// Normalization by channels, once statistics (or the sums of gradients) are known. x is (items, channels, places), with
// LAST (items, places, channels), as are all operands of its shape.
struct Params {
    total: u32, // elements of x
    places: u32,
    items: u32,
    sets: u32,
    count: f32, // elements of a set
}

struct Where {
    channel: u32,
    stat: u32,
}

fn where_of(i: u32) -> Where {
    let channel = select(i / p.places % CHANNELS, i % CHANNELS, LAST == 1u);
    if (GROUPS == 0u) {
        return Where(channel, channel);
    }
    return Where(channel, i / (p.places * CHANNELS) * GROUPS + channel / WIDTH);
}

// Results of four elements from i on: they have one channel, or neighboring ones.
fn where_of_four(i: u32) -> array<Where, 4> {
    let first = where_of(i);
    if (LAST == 0u) {
        return array<Where, 4>(first, first, first, first);
    }
    return array<Where, 4>(first, where_of(i + 1u), where_of(i + 2u), where_of(i + 3u));
}

// ---- Forward ----

fn normalized(x: f32, residual: f32, at: Where) -> f32 {
    let y = (x - mean_load(at.stat)) * ct_channel_scale(at.channel, at.stat) + bias_load(at.channel) + residual;
    // a NaN stays one
    return select(y, 0.0, RELU == 1u && y <= 0.0);
}

fn normalize(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.total; i += groups * THREADS) {
        y_store(i, normalized(x_load(i), residual_load(i), where_of(i)));
    }
}

fn normalize_quads(group: u32, local: u32, groups: u32) {
    for (var i = 4u * (group * THREADS + local); i < p.total; i += 4u * groups * THREADS) {
        let at = where_of_four(i);
        let x = x_load4(i);
        let residual = residual_load4(i);
        y_store4(i, vec4<f32>(normalized(x.x, residual.x, at[0]), normalized(x.y, residual.y, at[1]),
                              normalized(x.z, residual.z, at[2]), normalized(x.w, residual.w, at[3])));
    }
}

// ---- Gradients ----

// Of a set, what its elements' gradients are made of, with h = g weight:
//   rest         the mean of the deviations from the given mean
//   mean, along  of h, and of h xhat
//   extra, slope from the cotangents of its mean and variance
fn settle(group: u32, local: u32, groups: u32) {
    let stat = group * THREADS + local;
    if (stat >= p.sets) {
        return;
    }
    var h = 0.0;
    var h_apart = 0.0;
    var apart = 0.0;
    let results = select(p.sets / max(GROUPS, 1u) * CHANNELS, CHANNELS, GROUPS == 0u);
    // of its channels: those of an item follow those of the one before
    let first = select(stat * WIDTH, stat, GROUPS == 0u);
    for (var k = 0u; k < WIDTH; k++) {
        var weight = 1.0;
        if (weight_given) {
            weight = weight_load((first + k) % CHANNELS);
        }
        h += weight * sums_load(first + k);
        h_apart += weight * sums_load(results + first + k);
        apart += sums_load(2u * results + first + k);
    }
    let rest = apart / p.count;
    settled_store(stat, rest);
    settled_store(p.sets + stat, h / p.count);
    settled_store(2u * p.sets + stat, ct_channel_rstd(stat) * (h_apart - rest * h) / p.count);
    settled_store(3u * p.sets + stat, g_mean_load(stat) / p.count);
    settled_store(4u * p.sets + stat, 2.0 * g_var_load(stat) / p.count);
}

// Gradients of weight and bias.
fn settle_channels(group: u32, local: u32, groups: u32) {
    let channel = group * THREADS + local;
    if (channel >= CHANNELS) {
        return;
    }
    let items = select(p.items, 1u, GROUPS == 0u);
    let results = items * CHANNELS;
    var by_weight = 0.0;
    var by_bias = 0.0;
    for (var item = 0u; item < items; item++) {
        let at = item * CHANNELS + channel;
        let stat = select(item * max(GROUPS, 1u) + channel / WIDTH, channel, GROUPS == 0u);
        var rest = 0.0;
        if (FIXED == 0u) {
            rest = sums_of_set(stat, results) / p.count;
        }
        let g = sums_load(at);
        by_weight += ct_channel_rstd(stat) * (sums_load(results + at) - rest * g);
        by_bias += g;
    }
    dweight_store(channel, by_weight);
    dbias_store(channel, by_bias);
}

// Of the deviations.
fn sums_of_set(stat: u32, results: u32) -> f32 {
    let first = select(stat * WIDTH, stat, GROUPS == 0u);
    var apart = 0.0;
    for (var k = 0u; k < WIDTH; k++) {
        apart += sums_load(2u * results + first + k);
    }
    return apart;
}

struct Gradient {
    dx: f32,
    passed: f32, // by relu
}

fn gradient_of(g: f32, x: f32, i: u32, at: Where) -> Gradient {
    let apart = x - mean_load(at.stat);
    let passed = ct_behind_relu(g, apart, i, at.channel, at.stat);
    var h = passed;
    if (weight_given) {
        h *= weight_load(at.channel);
    }
    let rstd = ct_channel_rstd(at.stat);
    if (FIXED == 1u) {
        return Gradient(h * rstd, passed);
    }
    let centred = apart - settled_load(at.stat);
    let dx = (h - settled_load(p.sets + at.stat) - centred * rstd * settled_load(2u * p.sets + at.stat)) * rstd;
    return Gradient(dx + settled_load(3u * p.sets + at.stat) + centred * settled_load(4u * p.sets + at.stat), passed);
}

fn gradients(group: u32, local: u32, groups: u32) {
    for (var i = group * THREADS + local; i < p.total; i += groups * THREADS) {
        let gradient = gradient_of(g_load(i), x_load(i), i, where_of(i));
        dx_store(i, gradient.dx);
        passed_store(i, gradient.passed);
    }
}

fn gradients_quads(group: u32, local: u32, groups: u32) {
    for (var i = 4u * (group * THREADS + local); i < p.total; i += 4u * groups * THREADS) {
        let at = where_of_four(i);
        let x = x_load4(i);
        let g = g_load4(i);
        let a = gradient_of(g.x, x.x, i, at[0]);
        let b = gradient_of(g.y, x.y, i + 1u, at[1]);
        let c = gradient_of(g.z, x.z, i + 2u, at[2]);
        let d = gradient_of(g.w, x.w, i + 3u, at[3]);
        dx_store4(i, vec4<f32>(a.dx, b.dx, c.dx, d.dx));
        passed_store4(i, vec4<f32>(a.passed, b.passed, c.passed, d.passed));
    }
}
