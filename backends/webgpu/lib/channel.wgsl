// What texts of ops/norm/webgpu/ share. Constants: CHANNELS, GROUPS (0: statistics are of the whole batch), WIDTH
// (channels of a group), RELU; eps is EPS, the bits of an f32.

fn ct_channel_rstd(stat: u32) -> f32 {
    return 1.0 / sqrt(variance_load(stat) + bitcast<f32>(EPS));
}

fn ct_channel_scale(channel: u32, stat: u32) -> f32 {
    let rstd = ct_channel_rstd(stat);
    if (!weight_given) {
        return rstd;
    }
    return rstd * weight_load(channel);
}

// What relu let pass of a cotangent: by the result, where it is given, else by what it was computed from.
fn ct_behind_relu(g: f32, apart: f32, at: u32, channel: u32, stat: u32) -> f32 {
    if (RELU == 0u) {
        return g;
    }
    if (y_given) {
        return select(0.0, g, y_load(at) > 0.0);
    }
    return select(0.0, g, apart * ct_channel_scale(channel, stat) + bias_load(channel) > 0.0);
}
