// Means and variances, of pieces that come together (Welford, 1962; Chan, Golub and LeVeque, 1983). KIND 0: means go to
// out and variances to second. 1: variances go to out, of squares over the count less CORRECTION (the bits of an f32).
// 2: their square roots do.
struct Sum {
    count: f32,
    mean: f32,
    squares: f32,
}

fn nothing() -> Sum {
    return Sum(0.0, 0.0, 0.0);
}

fn add(sum: Sum, x: x_t, place: u32, at: u32, result: u32) -> Sum {
    let count = sum.count + 1.0;
    let apart = x - sum.mean;
    let mean = sum.mean + apart / count;
    return Sum(count, mean, sum.squares + apart * (x - mean));
}

fn merge(a: Sum, b: Sum) -> Sum {
    let count = a.count + b.count;
    if (b.count == 0.0) {
        return a;
    }
    if (a.count == 0.0) {
        return b;
    }
    let apart = b.mean - a.mean;
    let share = b.count / count;
    return Sum(count, a.mean + apart * share, a.squares + b.squares + apart * apart * (a.count * share));
}

fn put(at: u32, sum: Sum) {
    if (KIND == 0u) {
        out_store(at, select(sum.mean, ct_nan(), p.n == 0u));
        second_store(at, select(sum.squares / sum.count, ct_nan(), p.n == 0u));
    } else {
        let variance = sum.squares / max(f32(p.n) - bitcast<f32>(CORRECTION), 0.0);
        out_store(at, select(variance, sqrt(variance), KIND == 2u));
    }
}

fn to_words(sum: Sum) -> vec4<u32> {
    return vec4<u32>(bitcast<u32>(sum.count), bitcast<u32>(sum.mean), bitcast<u32>(sum.squares), 0u);
}

fn from_words(words: vec4<u32>) -> Sum {
    return Sum(bitcast<f32>(words.x), bitcast<f32>(words.y), bitcast<f32>(words.z));
}
