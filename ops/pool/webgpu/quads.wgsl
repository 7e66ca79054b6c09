// Four neighbors at once: channels of a place, and elements of a row.
fn channels_at(i: u32, channel: u32) -> vec4<f32> { return from_load4(i); }

fn put_channels(i: u32, v: vec4<f32>, channel: u32) { to_store4(i, v); }

fn taps_at(i: u32, channel: u32) -> vec4<i32> { return at_load4(i); }

fn put_channel_taps(i: u32, v: vec4<i32>, channel: u32) { at_store4(i, v); }

fn put_row(i: u32, v: vec4<f32>, n: u32) { to_store4(i, v); }
