// Scans along an axis. A formula (the other files here) says which:
//   State                what some elements in a row come to; none() is that of no element
//   state_of(x, third, i) the state of element i alone
//   step(state, element) of an element behind others, as a loop over the line would have it
//   join(first, second)  of two pieces, in this order
//   put(at, start, state) stores it; at: where its elements of the three operands lie, start: where the first ones of its line do
//   to_words, from_words a state as four words, in which those of chunks are kept
// A line is cut into chunks where there are too few lines: then a first dispatch finds what each chunk comes to, and the second begins each with
// what lies before it.
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

fn line_at(i: u32) -> vec3<u32> {
    var rest = i;
    var at = p.first.xyz;
    for (var d = RANK - 1u; d > 0u; d--) {
        let size = p.dims[d / 4u][d % 4u];
        let place = rest % size;
        rest /= size;
        at += place * vec3<u32>(p.strides[0][d / 4u][d % 4u], p.strides[1][d / 4u][d % 4u], p.strides[2][d / 4u][d % 4u]);
    }
    return at + rest * vec3<u32>(p.strides[0][0].x, p.strides[1][0].x, p.strides[2][0].x);
}

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

// Leaves in shared_states what all invocations up to each one come to (Hillis and Steele, 1986).
fn scan_shared(own: State, local: u32) {
    workgroupBarrier();
    shared_states[local] = own;
    workgroupBarrier();
    for (var distance = 1u; distance < THREADS; distance *= 2u) {
        var through = shared_states[local];
        if (local >= distance) {
            through = join(shared_states[local - distance], through);
        }
        workgroupBarrier();
        shared_states[local] = through;
        workgroupBarrier();
    }
}

// A workgroup per chunk: invocations take neighboring pieces of it.
fn blocks(group: u32, local: u32, groups: u32) {
    let number = group / p.chunks;
    let chunk = group % p.chunks;
    let begin = chunk * p.chunk;
    let to = min(begin + p.chunk, p.n);
    let at = line_at(number);
    var carry = none();
    if (p.chunks > 1u && p.totals == 0u) { // there are no more chunks than invocations
        var before = none();
        if (local < chunk) {
            before = total_of(number * p.chunks + local);
        }
        scan_shared(before, local);
        carry = shared_states[THREADS - 1u];
    }
    for (var next = begin; next < to; next += THREADS * EACH) {
        let first = next + local * EACH;
        var elements: array<State, EACH>;
        var own = none();
        for (var k = 0u; k < EACH; k++) {
            elements[k] = none();
            if (first + k < to) {
                elements[k] = element(at, first + k);
            }
            own = step(own, elements[k]);
        }
        scan_shared(own, local);
        if (p.totals == 0u) {
            var state = carry;
            if (local > 0u) {
                state = join(carry, shared_states[local - 1u]);
            }
            for (var k = 0u; k < EACH; k++) {
                if (first + k < to) {
                    state = step(state, elements[k]);
                    put(at + (first + k) * p.step.xyz, at, state);
                }
            }
        }
        carry = join(carry, shared_states[THREADS - 1u]);
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
    let at = line_at(number);
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
