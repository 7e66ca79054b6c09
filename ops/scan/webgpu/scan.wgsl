// Scans along an axis. A formula (the other files here) says which:
//   State                what some elements in a row come to; none() is that of no element
//   state_of(x, third, i) the state of element i alone
//   step(state, element) of an element behind others, as a loop over the line would have it
//   join(first, second)  of two pieces, in this order
//   put(at, start, state) stores it; at: where its elements of the three operands lie, start: where the first ones of
//                        its line do
//   to_words, from_words a state as four words, in which those of chunks are kept
// A line is cut into chunks where there are too few lines: then a first dispatch finds what each chunk comes to, and
// the second begins each with what lies before it.
struct Params {
    lines: u32,
    n: u32,
    chunks: u32,
    chunk: u32,
    totals: u32, // only find what chunks come to
    first: vec4<u32>, // of x, y and the third: where a line begins in the order of the scan, and its steps
    step: vec4<u32>,
    dims: array<vec4<u32>, 2>,
    strides: array<array<vec4<u32>, 2>, 3>,
}

const EACH = 8u;

var<workgroup> shared_states: array<State, THREADS>;

fn element(at: vec3<u32>, i: u32) -> State {
    let here = at + i * p.step.xyz;
    return state_of(x_load(here.x), third_load(here.z), i);
}

fn total_of(job: u32) -> State {
    return from_words(vec4<u32>(partial_load(2u * job), partial_load(2u * job + 1u)));
}

fn put_total(job: u32, state: State) {
    let words = to_words(state);
    partial_store(2u * job, words.xy);
    partial_store(2u * job + 1u, words.zw);
}

const RUN = 16u; // states that an invocation goes along

// What all invocations before this one come to, and what all of them do: within runs first, then over runs, since a
// barrier costs more than a few joins.
struct Before {
    own: State,
    all: State,
}

fn before_of(own: State, local: u32) -> Before {
    workgroupBarrier();
    shared_states[local] = own;
    workgroupBarrier();
    if (local < THREADS / RUN) {
        var through = shared_states[local * RUN];
        for (var i = 1u; i < RUN; i++) {
            through = join(through, shared_states[local * RUN + i]);
            shared_states[local * RUN + i] = through;
        }
    }
    workgroupBarrier();
    var before = none();
    var all = none();
    for (var run = 0u; run < THREADS / RUN; run++) {
        if (run == local / RUN) {
            before = all;
        }
        all = join(all, shared_states[run * RUN + RUN - 1u]);
    }
    if (local % RUN > 0u) {
        before = join(before, shared_states[local - 1u]);
    }
    return Before(before, all);
}

// What lies before a chunk. There are no more chunks than invocations.
fn carried(number: u32, chunk: u32, local: u32) -> State {
    if (p.chunks == 1u || p.totals == 1u) {
        return none();
    }
    var before = none();
    if (local < chunk) {
        before = total_of(number * p.chunks + local);
    }
    return before_of(before, local).all;
}

// The elements of one invocation, or what the line comes to at each of them.
struct Piece {
    s: array<State, EACH>,
}

fn total_of_piece(piece: Piece) -> State {
    var total = piece.s[0];
    for (var k = 1u; k < EACH; k++) {
        total = step(total, piece.s[k]);
    }
    return total;
}

fn through(piece: Piece, before: State) -> Piece {
    var states: Piece;
    var state = before;
    for (var k = 0u; k < EACH; k++) {
        state = step(state, piece.s[k]);
        states.s[k] = state;
    }
    return states;
}

fn piece_of(at: vec3<u32>, first: u32, to: u32) -> Piece {
    var piece: Piece;
    for (var k = 0u; k < EACH; k++) {
        piece.s[k] = none();
        if (first + k < to) {
            piece.s[k] = element(at, first + k);
        }
    }
    return piece;
}

// A workgroup per chunk: invocations take neighboring pieces of it.
fn blocks(group: u32, local: u32, groups: u32) {
    let number = group / p.chunks;
    let chunk = group % p.chunks;
    let to = min((chunk + 1u) * p.chunk, p.n);
    let at = ct_line_at(number) + p.first.xyz;
    var carry = carried(number, chunk, local);
    for (var next = chunk * p.chunk; next < to; next += THREADS * EACH) {
        let first = next + local * EACH;
        let piece = piece_of(at, first, to);
        let before = before_of(total_of_piece(piece), local);
        if (p.totals == 0u) {
            let states = through(piece, join(carry, before.own));
            for (var k = 0u; k < EACH; k++) {
                if (first + k < to) {
                    put(at + (first + k) * p.step.xyz, at, states.s[k]);
                }
            }
        }
        carry = join(carry, before.all);
    }
    if (p.totals == 1u && local == 0u) {
        put_total(group, carry);
    }
}

// The same of x and y in aligned quads. The formula has value_of(state) as well.
fn quad_of(at: u32, first: u32, to: u32) -> vec4<f32> {
    if (first < to) {
        return x_load4(at + first);
    }
    return vec4<f32>();
}

fn quad_blocks(group: u32, local: u32, groups: u32) {
    let number = group / p.chunks;
    let chunk = group % p.chunks;
    let to = min((chunk + 1u) * p.chunk, p.n);
    let at = ct_line_at(number) + p.first.xyz;
    var carry = carried(number, chunk, local);
    for (var next = chunk * p.chunk; next < to; next += THREADS * EACH) {
        let first = next + local * EACH;
        let a = quad_of(at.x, first, to);
        let b = quad_of(at.x, first + 4u, to);
        var piece: Piece;
        for (var k = 0u; k < 4u; k++) {
            piece.s[k] = none();
            piece.s[k + 4u] = none();
            if (first < to) {
                piece.s[k] = state_of(a[k], third_t(), 0u);
            }
            if (first + 4u < to) {
                piece.s[k + 4u] = state_of(b[k], third_t(), 0u);
            }
        }
        let before = before_of(total_of_piece(piece), local);
        if (p.totals == 0u) {
            let y = through(piece, join(carry, before.own));
            var values: array<f32, EACH>;
            for (var k = 0u; k < EACH; k++) {
                values[k] = value_of(y.s[k]);
            }
            if (first < to) {
                y_store4(at.y + first, vec4<f32>(values[0], values[1], values[2], values[3]));
            }
            if (first + 4u < to) {
                y_store4(at.y + first + 4u, vec4<f32>(values[4], values[5], values[6], values[7]));
            }
        }
        carry = join(carry, before.all);
    }
    if (p.totals == 1u && local == 0u) {
        put_total(group, carry);
    }
}

// An invocation per chunk; neighbors stand at neighboring lines.
fn threads(group: u32, local: u32, groups: u32) {
    let job = group * THREADS + local;
    let chunk = job / p.lines;
    let number = job % p.lines;
    if (chunk >= p.chunks) {
        return;
    }
    let begin = chunk * p.chunk;
    let to = min(begin + p.chunk, p.n);
    let at = ct_line_at(number) + p.first.xyz;
    var state = none();
    if (p.chunks > 1u && p.totals == 0u) {
        for (var c = 0u; c < chunk; c++) {
            state = join(state, total_of(c * p.lines + number));
        }
    }
    for (var i = begin; i < to; i++) {
        state = step(state, element(at, i));
        if (p.totals == 0u) {
            put(at + i * p.step.xyz, at, state);
        }
    }
    if (p.totals == 1u) {
        put_total(job, state);
    }
}
