// Items of elements that are loaded as f32 (REAL) or i32.
struct Item {
    key: u32,
    place: u32,
}

fn item_of(x: x_t, place: u32) -> Item {
    let key = ct_key(ct_one_zero(bitcast<u32>(x), REAL == 1u), REAL == 1u);
    return Item(select(key, ~key, p.descending == 1u), place);
}

fn last_item() -> Item {
    return Item(0xffffffffu, 0xffffffffu);
}

fn less(a: Item, b: Item) -> bool {
    return a.key < b.key || (a.key == b.key && a.place < b.place);
}

fn item_load(i: u32) -> Item {
    let words = source_load(i);
    return Item(words.x, words.y);
}

fn item_store(i: u32, item: Item) {
    sink_store(i, ct_i64(item.key, item.place));
}
