// Where element e of a nest (ct_wgpu_nest) lies in each of its operands. They read the nest in p: rank, dims and
// strides.

fn ct_place1(e: u32) -> u32 {
    var rest = e;
    var at = 0u;
    for (var d = p.rank; d > 1u;) {
        d--;
        let size = p.dims[d >> 2u][d & 3u];
        let next = rest / size;
        at += (rest - next * size) * p.strides[0][d >> 2u][d & 3u];
        rest = next;
    }
    return at + rest * p.strides[0][0].x;
}

fn ct_place2(e: u32) -> vec2<u32> {
    var rest = e;
    var at = vec2<u32>(0u, 0u);
    for (var d = p.rank; d > 1u;) {
        d--;
        let size = p.dims[d >> 2u][d & 3u];
        let next = rest / size;
        at += (rest - next * size) * vec2<u32>(p.strides[0][d >> 2u][d & 3u], p.strides[1][d >> 2u][d & 3u]);
        rest = next;
    }
    return at + rest * vec2<u32>(p.strides[0][0].x, p.strides[1][0].x);
}

fn ct_place4(e: u32) -> vec4<u32> {
    var rest = e;
    var at = vec4<u32>(0u, 0u, 0u, 0u);
    for (var d = p.rank; d > 1u;) {
        d--;
        let size = p.dims[d >> 2u][d & 3u];
        let next = rest / size;
        at += (rest - next * size) * vec4<u32>(p.strides[0][d >> 2u][d & 3u], p.strides[1][d >> 2u][d & 3u],
                                               p.strides[2][d >> 2u][d & 3u], p.strides[3][d >> 2u][d & 3u]);
        rest = next;
    }
    return at + rest * vec4<u32>(p.strides[0][0].x, p.strides[1][0].x, p.strides[2][0].x, p.strides[3][0].x);
}

// An index of 32 or 64 bits, read as words of the operand index: WIDE is 1 where there are two of them. What does not
// lie below bound is ct_no_index.
const ct_no_index = 0xffffffffu;
fn ct_index_at(at: u32, bound: u32) -> u32 {
    let low = u32(index_load(at));
    if (low >= bound || (WIDE == 1u && index_load(at + WIDE) != 0)) {
        return ct_no_index;
    }
    return low;
}
fn ct_index_value(at: u32) -> ct_i64 {
    let low = index_load(at);
    if (WIDE == 1u) {
        return ct_i64(u32(low), u32(index_load(at + WIDE)));
    }
    return ct_i64(u32(low), u32(low >> 31u));
}
