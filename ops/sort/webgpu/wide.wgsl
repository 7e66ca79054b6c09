// Items of elements that are i64.
struct Item {
    low: u32,
    high: u32,
    place: u32,
}

fn item_of(x: x_t, place: u32) -> Item {
    let key = ct_rank_i64(x, p.descending == 0u);
    return Item(key.x, key.y, place);
}

fn last_item() -> Item {
    return Item(0xffffffffu, 0xffffffffu, 0xffffffffu);
}

fn less(a: Item, b: Item) -> bool {
    if (a.high != b.high) {
        return a.high < b.high;
    }
    return a.low < b.low || (a.low == b.low && a.place < b.place);
}

fn item_load(i: u32) -> Item {
    let key = source_load(2u * i);
    return Item(key.x, key.y, source_load(2u * i + 1u).x);
}

fn item_store(i: u32, item: Item) {
    sink_store(2u * i, ct_i64(item.low, item.high));
    sink_store(2u * i + 1u, ct_i64(item.place, 0u));
}
