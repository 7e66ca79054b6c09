// Moving averages, changed in place.
struct Params {
    channels: u32,
    kept: f32, // 1 - momentum
    momentum: f32,
    unbiased: f32, // momentum, for variances
}

fn running(group: u32, local: u32, groups: u32) {
    let channel = group * THREADS + local;
    if (channel >= p.channels) {
        return;
    }
    if (running_mean_given) {
        running_mean_store(channel, p.kept * running_mean_load(channel) + p.momentum * mean_load(channel));
    }
    if (running_var_given) {
        running_var_store(channel, p.kept * running_var_load(channel) + p.unbiased * variance_load(channel));
    }
}
