/* masked_take and masked_put over a range of elements, a template: BITS are those of an element. Included by mask.c. */
#define OF(x) CT_SIMD_PASTE(x, BITS)
#define UNIT  OF(unit)

static void OF(take_range)(const job *j, int64_t first, int64_t end, int64_t at) {
    walker m = walk_from(j->tested, first), x = walk_from(j->other, first);
    UNIT *out = CT_AT(UNIT, j->y);
    if (is_dense(j->tested) && is_dense(j->other) && j->y->strides[0] == 1) {
        const uint8_t *mask = (const uint8_t *)m.base;
        const UNIT *from = (const UNIT *)(const void *)x.base;
        const int64_t stop = j->starts[first / j->chunk + 1]; /* what follows is the next chunk's */
        for (int64_t i = first; i < end && at < stop; i++) {  /* each is written, and stays if it counts */
            out[at] = from[i];
            at += mask[i] != 0;
        }
        return;
    }
    for (int64_t i = first; i < end; i++, step(&m), step(&x))
        if (m.base[m.place]) out[at++ * j->y->strides[0]] = ((const UNIT *)(const void *)x.base)[x.place];
}

static void OF(put_range)(const job *j, int64_t first, int64_t end, int64_t at) {
    walker m = walk_from(j->tested, first), y = walk_from(j->y, first);
    const UNIT *g = CT_AT(const UNIT, j->other);
    UNIT *out = CT_AT(UNIT, j->y);
    if (is_dense(j->tested) && is_dense(j->y) && j->other->strides[0] == 1) {
        for (int64_t i = first; i < end; i++) out[i] = m.base[i] ? g[at++] : 0;
        return;
    }
    for (int64_t i = first; i < end; i++, step(&m), step(&y))
        out[y.place] = m.base[m.place] ? g[at++ * j->other->strides[0]] : 0;
}

#undef OF
#undef UNIT
#undef BITS
