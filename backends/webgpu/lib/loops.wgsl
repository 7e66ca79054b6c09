// How often a loop of n turns goes, n being a constant: known to the compiler, which unrolls it, or, where the launch's
// constant ROLLED is 1 (a driver for the CPU, which takes longer to compile than to run), known to the device alone.
fn ct_times(n: u32) -> u32 {
    if (ROLLED == 1u) { return n | p.ct_zero; }
    return n;
}
