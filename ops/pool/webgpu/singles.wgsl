// Four neighbors one by one, as many as there are.
fn channels_at(i: u32, channel: u32) -> vec4<f32> {
    var x = vec4<f32>();
    for (var k = 0u; k < 4u && channel + k < p.channels; k++) { x[k] = from_load(i + k * p.from_s.w); }
    return x;
}

fn put_channels(i: u32, v: vec4<f32>, channel: u32) {
    for (var k = 0u; k < 4u && channel + k < p.channels; k++) { to_store(i + k * p.to_s.w, v[k]); }
}

fn taps_at(i: u32, channel: u32) -> vec4<i32> {
    var x = vec4<i32>();
    for (var k = 0u; k < 4u && channel + k < p.channels; k++) { x[k] = at_load(i + k * p.at_s.w); }
    return x;
}

fn put_channel_taps(i: u32, v: vec4<i32>, channel: u32) {
    for (var k = 0u; k < 4u && channel + k < p.channels; k++) { at_store(i + k * p.at_s.w, v[k]); }
}

fn put_row(i: u32, v: vec4<f32>, n: u32) {
    for (var k = 0u; k < min(n, 4u); k++) { to_store(i + k * p.to_s.z, v[k]); }
}

fn put_tap(i: u32, tap: i32) { at_store(i, tap); }

fn tap_word(w: u32) -> u32 { return 0u; }

fn put_tap_word(w: u32, word: u32) {}
