// Words of elementwise lines on truth values, the same whatever T is.

fn ct_and(a: bool, b: bool) -> bool { return a && b; }
fn ct_or(a: bool, b: bool) -> bool { return a || b; }
fn ct_xor(a: bool, b: bool) -> bool { return a != b; }
fn ct_not(a: bool) -> bool { return !a; }
fn ct_select(c: bool, a: T, b: T) -> T { return select(b, a, c); }
