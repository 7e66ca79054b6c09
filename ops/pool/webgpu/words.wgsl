// Taps of bytes, stored as whole words.
fn put_tap(i: u32, tap: i32) {}

fn tap_word(w: u32) -> u32 { return at_word(w); }

fn put_tap_word(w: u32, word: u32) { at_put(w, word); }
