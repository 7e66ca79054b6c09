// check_range: a look at every element. A workgroup names its first one that is wrong.
struct Params {
    total: u32,
    rank: u32,
    argument: u32,
    what: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 1>,
    low: vec2<u32>, // an f32, or an i64
    high: vec2<u32>,
    places: u32, // 1: the error names the element
    count: u32, // of an index: what it has to be below
}

var<workgroup> first: atomic<u32>;

fn check(group: u32, local: u32, groups: u32) {
    if (local == 0u) {
        atomicStore(&first, 0xffffffffu);
    }
    workgroupBarrier();
    for (var e = group * THREADS + local; e < p.total; e += groups * THREADS) {
        if (!is_right(x_load(ct_place1(e)))) {
            atomicMin(&first, e);
            break;
        }
    }
    workgroupBarrier();
    let e = atomicLoad(&first);
    if (local == 0u && e != 0xffffffffu) {
        note(x_load(ct_place1(e)), e);
    }
}

fn position_of(e: u32) -> i32 { return select(-1, i32(e), p.places == 1u); }
