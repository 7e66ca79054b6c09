// What was sent, sorted by where it goes, is folded into the result: the first of each run by a loop over it, in order.
// Runs longer than `many` are cut where multiples of `many` lie in the order; each part is folded by itself
// (fold_parts) and then those of a run (fold_runs). In a chunk of `many` no more than two such runs lie: the first
// one's part and the last one's are kept. A lane is one element, or four, of a row.
struct Params {
    n: u32,
    lanes: u32,
    many: u32,
    none: u32, // the key of what goes nowhere
    lane_rank: u32,
    row_rank: u32,
    sent_rank: u32,
    pad: u32,
    lane_dims: array<vec4<u32>, 2>,
    lane_strides: array<array<vec4<u32>, 2>, 2>, // y, src
    row_dims: array<vec4<u32>, 2>,
    row_strides: array<vec4<u32>, 2>, // y, by key
    sent_dims: array<vec4<u32>, 2>,
    sent_strides: array<vec4<u32>, 2>, // src, by place in index
    alpha: vec2<u32>,
}

fn lane_at(lane: u32) -> vec2<u32> {
    var rest = lane;
    var at = vec2<u32>(0u, 0u);
    for (var i = p.lane_rank; i > 0u; i--) {
        let h = (i - 1u) >> 2u;
        let l = (i - 1u) & 3u;
        let next = rest / p.lane_dims[h][l];
        at += (rest - next * p.lane_dims[h][l]) * vec2<u32>(p.lane_strides[0][h][l], p.lane_strides[1][h][l]);
        rest = next;
    }
    return at;
}

fn row_at(key: u32) -> u32 {
    var rest = key;
    var at = 0u;
    for (var i = p.row_rank; i > 1u; i--) {
        let h = (i - 1u) >> 2u;
        let l = (i - 1u) & 3u;
        let next = rest / p.row_dims[h][l];
        at += (rest - next * p.row_dims[h][l]) * p.row_strides[h][l];
        rest = next;
    }
    return at + rest * p.row_strides[0].x;
}

fn sent_at(place: u32) -> u32 {
    var rest = place;
    var at = 0u;
    for (var i = p.sent_rank; i > 1u; i--) {
        let h = (i - 1u) >> 2u;
        let l = (i - 1u) & 3u;
        let next = rest / p.sent_dims[h][l];
        at += (rest - next * p.sent_dims[h][l]) * p.sent_strides[h][l];
        rest = next;
    }
    return at + rest * p.sent_strides[0].x;
}

fn key_at(i: u32) -> u32 { return u32(keys_load(i)); }
fn sent(lane: u32, i: u32) -> V { return scaled(src_at(lane + sent_at(u32(places_load(i))))); }

// The first place whose key is not below this one.
fn first_of(key: u32) -> u32 {
    var low = 0u;
    var high = p.n;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (key_at(middle) < key) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

fn fold_range(lane: u32, first: u32, end: u32) -> V {
    var value = sent(lane, first);
    for (var i = first + 1u; i < end; i++) {
        value = fold(value, sent(lane, i));
    }
    return value;
}

fn fold_parts(group: u32, local: u32, groups: u32) {
    let chunks = (p.n + p.many - 1u) / p.many;
    for (var e = group * THREADS + local; e < chunks * p.lanes; e += groups * THREADS) {
        let chunk = e / p.lanes;
        let number = e - chunk * p.lanes;
        let lane = lane_at(number).y;
        let begin = chunk * p.many;
        let end = min(begin + p.many, p.n);
        let first = key_at(begin);
        let last = key_at(end - 1u);
        if (first != p.none && (last == first || (begin > 0u && key_at(begin - 1u) == first))) {
            let after = first_of(first + 1u);
            if (after - first_of(first) > p.many) {
                put_part(2u * chunk * p.lanes + number, fold_range(lane, begin, min(end, after)));
            }
        }
        if (last != first && last != p.none && end < p.n && key_at(end) == last) {
            let before = first_of(last);
            if (first_of(last + 1u) - before > p.many) {
                put_part((2u * chunk + 1u) * p.lanes + number, fold_range(lane, before, end));
            }
        }
    }
}

fn fold_runs(group: u32, local: u32, groups: u32) {
    for (var e = group * THREADS + local; e < p.n * p.lanes; e += groups * THREADS) {
        let first = e / p.lanes;
        let number = e - first * p.lanes;
        let key = key_at(first);
        if (key == p.none || (first > 0u && key_at(first - 1u) == key)) {
            continue;
        }
        let lane = lane_at(number);
        let to = lane.x + row_at(key);
        var value = y_at(to);
        if (first + p.many < p.n && key_at(first + p.many) == key) {
            let end = first_of(key + 1u);
            if (FOLD == 4u) {
                value = sent(lane.y, end - 1u);
            } else {
                for (var chunk = first / p.many; chunk * p.many < end; chunk++) {
                    let part = 2u * chunk + select(0u, 1u, chunk * p.many < first);
                    value = fold(value, part_at(part * p.lanes + number));
                }
            }
        } else {
            for (var i = first; i < p.n; i++) {
                if (key_at(i) != key) {
                    break;
                }
                value = fold(value, sent(lane.y, i));
            }
        }
        put_y(to, value);
    }
}
