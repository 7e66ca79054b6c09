// Products of i64, an element of the result for each invocation.

struct Params {
    m: u32, n: u32, k: u32, batches: u32, batch_dims: u32, a_row: u32,
    a_col: u32, b_row: u32, b_col: u32, c_row: u32, c_col: u32, pad: u32,
    batch: array<vec4<u32>, 2>, a_batch: array<vec4<u32>, 2>,
    b_batch: array<vec4<u32>, 2>, c_batch: array<vec4<u32>, 2>,
}

fn product(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.m * p.n * p.batches; e += groups * THREADS) {
        let column = e % p.n;
        let row = e / p.n % p.m;
        var rest = e / (p.n * p.m);
        var a_at = row * p.a_row;
        var b_at = column * p.b_col;
        var c_at = row * p.c_row + column * p.c_col;
        for (var i = p.batch_dims; i > 0u; i--) {
            let d = i - 1u;
            let at = rest % p.batch[d / 4u][d % 4u];
            rest /= p.batch[d / 4u][d % 4u];
            a_at += at * p.a_batch[d / 4u][d % 4u];
            b_at += at * p.b_batch[d / 4u][d % 4u];
            c_at += at * p.c_batch[d / 4u][d % 4u];
        }
        var sum = ct_i64();
        for (var k = 0u; k < p.k; k++) {
            sum = ct_i64_add(sum, ct_i64_mul(a_load(a_at + k * p.a_col), b_load(b_at + k * p.b_row)));
        }
        c_store(c_at, sum);
    }
}
