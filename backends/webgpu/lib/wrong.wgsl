// Values that a kernel finds wrong: the first is noted in the device's error word, which the next wait of the host raises. Its words:
// taken, call, code, argument, what, is_real, position (2), value (2), low (2), high (2), real value, low, high.

fn ct_wrong_take(code: u32, argument: u32, what: u32, position: ct_i64) -> bool {
    if (atomicExchange(&ct_error[0], 1u) != 0u) { return false; }
    atomicStore(&ct_error[1], p.ct_call);
    atomicStore(&ct_error[2], code);
    atomicStore(&ct_error[3], argument);
    atomicStore(&ct_error[4], what);
    atomicStore(&ct_error[6], position.x);
    atomicStore(&ct_error[7], position.y);
    return true;
}

fn ct_wrong_put(i: u32, v: ct_i64) {
    atomicStore(&ct_error[i], v.x);
    atomicStore(&ct_error[i + 1u], v.y);
}

// Element `position` (in row-major order) of input `argument` is no index below count; 0xffffffff: there is no upper bound.
fn ct_wrong_index(argument: u32, position: u32, value: ct_i64, count: u32) {
    if (!ct_wrong_take(0u, argument, 0u, ct_i64(position, 0u))) { return; }
    ct_wrong_put(8u, value);
    ct_wrong_put(10u, ct_i64(0u, 0u));
    if (count == 0xffffffffu) { ct_wrong_put(12u, ct_i64(0xffffffffu, 0x7fffffffu)); }
    else { ct_wrong_put(12u, ct_i64(count - 1u, select(0u, 0xffffffffu, count == 0u))); }
}

// An integer, or a number made of the argument's elements, that does not lie in low to high. what: 0, or 1 + the number of a text.
fn ct_wrong_count(argument: u32, what: u32, position: i32, value: ct_i64, low: ct_i64, high: ct_i64) {
    if (!ct_wrong_take(1u, argument, what, ct_i64(bitcast<u32>(position), bitcast<u32>(position >> 31u)))) { return; }
    ct_wrong_put(8u, value);
    ct_wrong_put(10u, low);
    ct_wrong_put(12u, high);
}

// The same of a real number.
fn ct_wrong_value(argument: u32, what: u32, position: i32, value: f32, low: f32, high: f32) {
    if (!ct_wrong_take(1u, argument, what, ct_i64(bitcast<u32>(position), bitcast<u32>(position >> 31u)))) { return; }
    atomicStore(&ct_error[5], 1u);
    atomicStore(&ct_error[14], bitcast<u32>(value));
    atomicStore(&ct_error[15], bitcast<u32>(low));
    atomicStore(&ct_error[16], bitcast<u32>(high));
}
