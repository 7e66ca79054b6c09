// The sums over a channel, of the whole batch or (groups > 0) of each item, that its gradients are made of: those of g,
// of g times the deviation from the given mean, and of the deviations. A formula of ops/reduce/webgpu/reduce.wgsl; x is
// dense, and g and y lie as it does.
alias Sum = vec3<f32>;

fn nothing() -> Sum {
    return Sum();
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    let channel = result % CHANNELS;
    let stat = select(result / CHANNELS * max(GROUPS, 1u) + channel / WIDTH, channel, GROUPS == 0u);
    let apart = x - mean_load(stat);
    let g = ct_behind_relu(g_load(at), apart, at, channel, stat);
    return sum + vec3<f32>(g, g * apart, apart);
}

fn merge(a: Sum, b: Sum) -> Sum {
    return a + b;
}

fn put(at: u32, sum: Sum) {
    out_store(at, sum.x);
    out_store(p.results + at, sum.y);
    out_store(2u * p.results + at, sum.z);
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(bitcast<vec3<u32>>(sum), 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return bitcast<vec3<f32>>(words.xyz);
}
