// Where lines lie (backends/webgpu/lines.h): p has dims and strides of three operands, RANK is how many dims there are.

fn ct_line_at(i: u32) -> vec3<u32> {
    var rest = i;
    var at = vec3<u32>(0u, 0u, 0u);
    for (var d = RANK - 1u; d > 0u; d--) {
        let size = p.dims[d / 4u][d % 4u];
        let place = rest % size;
        rest /= size;
        let a = p.strides[0][d / 4u][d % 4u];
        let b = p.strides[1][d / 4u][d % 4u];
        let c = p.strides[2][d / 4u][d % 4u];
        at += place * vec3<u32>(a, b, c);
    }
    return at + rest * vec3<u32>(p.strides[0][0].x, p.strides[1][0].x, p.strides[2][0].x);
}
