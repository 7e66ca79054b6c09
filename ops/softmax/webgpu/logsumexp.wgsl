// log of the sum of exp(x), a formula of ops/reduce/webgpu/reduce.wgsl: the greatest element so far and the sum of
// exp(x - greatest); of infinite ones exp(x) itself is summed, so that they come out as they are.
alias Sum = ct_level;

fn base_of(top: f32) -> f32 {
    return select(top, 0.0, ct_is_inf(top));
}

fn nothing() -> Sum {
    return ct_no_level();
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    var of_all = sum;
    if (x > of_all.top) {
        of_all.sum *= ct_exp(of_all.top - x);
        of_all.top = x;
    }
    return ct_level(of_all.top, of_all.sum + ct_exp(x - base_of(of_all.top)));
}

fn merge(a: Sum, b: Sum) -> Sum {
    let top = select(a.top, b.top, b.top > a.top);
    let base = base_of(top);
    var sum = 0.0;
    if (!(a.sum == 0.0)) {
        sum += a.sum * ct_exp(a.top - base);
    }
    if (!(b.sum == 0.0)) {
        sum += b.sum * ct_exp(b.top - base);
    }
    return ct_level(top, sum);
}

fn put(at: u32, sum: Sum) {
    out_store(at, ct_log(sum.sum) + base_of(sum.top));
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(sum.top), bitcast<u32>(sum.sum), 0u, 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return ct_level(bitcast<f32>(words.x), bitcast<f32>(words.y));
}
