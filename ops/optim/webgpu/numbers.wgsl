// From rates, clock and gate to the numbers that a step computes with, and the clock moved on: ops/optim/numbers.h in
// f32. What comes after in the call reads them from scratch; number 15 is 0 where the gate is shut. Then the numbers of
// a loss scaler.
struct Params {
    rates_stride: u32, clock_stride: u32, gate_stride: u32, count: f32,
    growth: f32, backoff: f32, interval: f32, most: f32,
}

const SGD = 0u;
const ADAM = 1u;
const RMSPROP = 2u;
const ADAGRAD = 3u;
const ADADELTA = 4u;
const LION = 5u;
const LAMB = 6u;
const LARS = 7u;

fn rate(i: u32) -> f32 { return rates_load(i * p.rates_stride); }

// 1 - beta^t, from 1 - beta: beta itself has lost what matters. Near 0 by the series of the exponential.
fn bias(rest: f32, t: f32) -> f32 {
    let x = t * ct_log1p(-rest);
    if (x < -0.4) { return 1.0 - ct_exp(x); }
    var sum = 1.0;
    for (var k = 9.0; k > 1.0; k -= 1.0) { sum = fma(x / k, sum, 1.0); }
    return -x * sum;
}

// (b - r t) / r for b = 1 - (1 - r)^t. Where r t is small it is the rest of the binomial series, whose first term
// cancels.
fn curvature(rest: f32, t: f32, b: f32) -> f32 {
    if (rest * t >= 0.5) { return b / rest - t; }
    var term = -0.5 * t * (t - 1.0) * rest;
    var sum = term;
    for (var k = 2.0; k < 12.0; k += 1.0) {
        term *= -(t - k) * rest / (k + 1.0);
        sum += term;
    }
    return sum;
}

// RAdam's rho, 2 / r - 1 - 2 t (1 - b) / b, without the difference of two large numbers.
fn rectified_length(rest: f32, t: f32, b: f32) -> f32 {
    return (2.0 * curvature(rest, t, b) + b * (2.0 * t - 1.0)) / b;
}

// NAdam's momentum of step t.
fn momentum_at(t: f32) -> f32 { return rate(2u) * (1.0 - 0.5 * ct_exp(t * rate(8u) * -0.040821994520255)); }

fn put(i: u32, x: f32) { numbers_store(i, x); }

fn adam(t: f32, remembered: f32) -> f32 {
    let lr = rate(1u);
    let bias2 = bias(rate(5u), t);
    var moment = lr / bias(rate(3u), t);
    var root = 1.0 / sqrt(bias2);
    var gradient = 0.0;
    var plain = 0.0;
    var next = remembered;
    if (RECTIFIED == 1u) {
        let most = 2.0 / rate(5u) - 1.0;
        let rho = rectified_length(rate(5u), t, bias2);
        root = 1.0;
        plain = select(1.0, 0.0, rho > 5.0);
        if (rho > 5.0) {
            moment *= sqrt((rho - 4.0) * (rho - 2.0) * most / ((most - 4.0) * (most - 2.0) * rho)) * sqrt(bias2);
        }
    }
    if (NESTEROV == 1u) {
        let mu = momentum_at(t);
        let ahead = momentum_at(t + 1.0);
        next = remembered * mu;
        gradient = lr * (1.0 - mu) / (1.0 - next);
        moment = lr * ahead / (1.0 - next * ahead);
    }
    for (var i = 1u; i < 6u; i++) { put(i, rate(i + 1u)); } // beta1, its rest, beta2, its rest, eps
    put(6u, select(rate(7u), 0.0, DECOUPLED == 1u));
    put(7u, select(1.0, 1.0 - lr * rate(7u), DECOUPLED == 1u));
    put(8u, gradient);
    put(9u, moment);
    put(10u, root);
    put(11u, plain);
    return next;
}

// The numbers of a kind after the first; the result is what the clock remembers.
fn numbers_of(t: f32, remembered: f32) -> f32 {
    if (KIND == ADAM) { return adam(t, remembered); }
    if (KIND == SGD) {
        put(1u, rate(1u));
        put(2u, rate(2u) * (1.0 - remembered));
        put(3u, remembered + rate(3u) * (1.0 - remembered));
        put(4u, rate(2u));
        put(5u, rate(4u));
        return select(remembered, 0.0, MOMENTUM == 1u);
    }
    if (KIND == ADAGRAD) {
        put(1u, rate(1u) / (1.0 + (t - 1.0) * rate(2u)));
        put(2u, rate(3u));
        put(3u, rate(4u));
        return remembered;
    }
    if (KIND == LION) {
        for (var i = 1u; i < 6u; i++) { put(i, rate(i)); } // lr, beta1, its rest, beta2, its rest
        put(6u, 1.0 - rate(1u) * rate(6u));
        return remembered;
    }
    for (var i = 1u; i < RATES; i++) { put(i, rate(i)); } // as they are
    if (KIND == LAMB) {
        put(8u, 1.0 / bias(rate(3u), t));
        put(9u, 1.0 / sqrt(bias(rate(5u), t)));
    }
    return remembered;
}

fn step_numbers(group: u32, local: u32, groups: u32) {
    if (group != 0u || local != 0u) { return; }
    if (count_given) { count_store(0u, p.count); }
    let is_open = gate_load(p.gate_stride) != 0.0;
    put(15u, select(0.0, 1.0, is_open));
    if (!is_open) { return; }
    let t = clock_load(0u) + 1.0;
    put(0u, rate(0u) * gate_load(0u));
    let remembered = numbers_of(t, clock_load(p.clock_stride));
    clock_store(0u, t);
    clock_store(p.clock_stride, remembered);
}

fn put_count(group: u32, local: u32, groups: u32) {
    if (group == 0u && local == 0u) { count_store(0u, p.count); }
}

// ---- The loss scaler: rates is the scale, clock the good steps, gate what says whether the last one was clean ----

fn rescale(group: u32, local: u32, groups: u32) {
    if (group != 0u || local != 0u) { return; }
    if (count_given) { count_store(0u, p.count); }
    let scale = rates_load(0u);
    let good = clock_load(0u) + 1.0;
    let is_due = good >= p.interval;
    let is_clean = gate_load(0u) != 0.0;
    let larger = scale * p.growth;
    if (!is_clean) {
        rates_store(0u, scale * p.backoff);
    } else if (is_due && larger <= p.most) {
        rates_store(0u, larger);
    }
    clock_store(0u, select(0.0, good, is_clean && !is_due));
}

fn left_out(group: u32, local: u32, groups: u32) {
    if (group != 0u || local != 0u) { return; }
    if (count_given) { count_store(0u, p.count); }
    if (gate_load(p.gate_stride) == 0.0) { clock_store(0u, clock_load(0u) + 1.0); }
}
