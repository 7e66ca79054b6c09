/* Pooling a row of windows, in either layout. Included by pool.c. */

/* A row of x: itself, or staged. */
static const char *input_row(const job *j, const desk *k, const int64_t *place) {
    const line_ops *ops = j->ops;
    const char *from = j->from + (k->from_plane + row_at(&j->from_s, place)) * j->from_size;
    if (j->from_direct) return from;
    const int64_t slot = slot_of(j, place);
    const int64_t tag = (place[0] * j->w.in[0] + place[1]) * j->w.in[1] + place[2];
    char *row = k->rows + slot * j->row * (int64_t)ops->size;
    if (k->tags[slot] == tag) return row;
    k->tags[slot] = tag;
    if (!j->last) ops->load(row, from, j->from_s.s[2], j->w.in[2], j->dtype);
    for (int64_t p = 0; p < j->w.in[2] && j->last; p++)
        ops->load(row + p * j->inner * (int64_t)ops->size, from + p * j->from_s.s[2] * j->from_size, j->from_s.c,
                  j->inner, j->dtype);
    return row;
}

/* A row of windows with NaN in it, one by one: the first NaN wins. */
static void max_with_nan(const job *j, const desk *k, int64_t sources, char *y, char *codes) {
    const ct_window *w = &j->w;
    const int64_t size = (int64_t)j->ops->size;
    for (int64_t o = 0; o < w->out[2]; o++) {
        int64_t count = 0;
        for (int64_t s = 0; s < sources; s++)
            for (int64_t c = j->first[2][o]; c < j->end[2][o]; c++) {
                const int64_t at = o * w->stride[2] - w->before[2] + c * w->dilation[2];
                k->taps[count++] = (tap){(const char *)k->sources[s].value + at * size, NULL, k->sources[s].number + c};
            }
        j->ops->max(k->taps, count, 0, 1, y + o * size, codes ? codes + o * size : NULL);
    }
}

/* Windows of a row, as pairs.h has them. Winners in `bytes`. */
static bool reduce_pairs(const job *j, const desk *k, int64_t sources, char *y, uint8_t *bytes, double divisor) {
    const ct_window *w = &j->w;
    const tap *rows = k->sources;
    if (!j->max) {
        if (sources != 2) return false;
        j->ops->mean_pairs(rows[0].value, rows[1].value, w->out[2], j->pair_inner, j->divisor ? divisor : divisor * 2,
                           y);
        return true;
    }
    if (sources != 2 + (w->kernel[2] == 3) && !(sources == 2 && w->before[2])) return false;
    if (j->last)
        return sources == w->kernel[2] && !j->ops->max_pixels(rows, w->kernel[2], w->out[2], j->inner, y, bytes);
    return !j->ops->max_pairs(rows, sources, w->before[2], w->out[2], y, bytes);
}

/* Windows of a row, channels first: rows to one, then along it. */
static void reduce_row(const job *j, const desk *k, int64_t sources, char *y, char *codes, double divisor) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    const int64_t size = (int64_t)ops->size;
    const int64_t left =
        w->stride[2] > 1 ? 0 : w->before[2] * size; /* a row that is not taken apart is framed itself */
    char *one = k->frame + left, *one_codes = k->frame_codes + left;
    if (!j->max) ops->sum(k->sources, sources, 0, w->in[2], one, NULL, 1);
    else ops->max(k->sources, sources, 0, w->in[2], one, codes ? one_codes : NULL);
    if (codes && ops->has_nan(one, w->in[2])) {
        max_with_nan(j, k, sources, y, codes);
        return;
    }
    if (w->stride[2] > 1) {
        ops->take_apart(k->parts, j->part, one, w->in[2], w->stride[2], w->before[2], j->parts);
        if (codes) ops->take_apart(k->part_codes, j->part, one_codes, w->in[2], w->stride[2], w->before[2], j->parts);
    }
    if (codes) ops->across(k->along, w->kernel[2], w->out[2], y, codes);
    else if (j->max) ops->max(k->along, w->kernel[2], 0, w->out[2], y, NULL);
    else ops->sum(k->along, w->kernel[2], 0, w->out[2], y, j->divisor ? NULL : j->counts, divisor);
}

/* Windows of a row, channels last. Those inside x have the same taps, further on. */
static void reduce_pixels(const job *j, const desk *k, int64_t sources, char *y, char *codes, int64_t step,
                          double divisor) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    const int64_t size = (int64_t)ops->size;
    int64_t count = 0, listed = -1;
    for (int64_t o = 0; o < w->out[2]; o++) {
        const bool inside = o >= j->inside_first && o < j->inside_end;
        if (!inside || listed < 0) {
            count = 0;
            for (int64_t s = 0; s < sources; s++)
                for (int64_t c = j->first[2][o]; c < j->end[2][o]; c++) {
                    const int64_t at = (o * w->stride[2] - w->before[2] + c * w->dilation[2]) * j->pixel;
                    k->taps[count++] =
                        (tap){(const char *)k->sources[s].value + at * size, NULL, k->sources[s].number + c};
                }
            listed = inside ? o : -1;
        }
        const int64_t shift = inside ? (o - listed) * w->stride[2] * j->pixel : 0;
        char *to = y + o * step * size;
        if (j->max) ops->max(k->taps, count, shift, j->inner, to, codes ? codes + o * j->inner * size : NULL);
        else
            ops->sum(k->taps, count, shift, j->inner, to, NULL,
                     j->divisor ? divisor : divisor * (double)ct__pool_count(w, 2, o, j->exclude_pad));
    }
}

/* staged: where y is to go instead, or NULL. */
static void forward_row(const job *j, const desk *k, const int64_t *place, int64_t row, char *staged) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    int64_t sources = 0, of[3] = {place[0]};
    for (int64_t a = j->first[0][place[1]]; a < j->end[0][place[1]]; a++)
        for (int64_t b = j->first[1][place[2]]; b < j->end[1][place[2]]; b++) {
            of[1] = place[1] * w->stride[0] - w->before[0] + a * w->dilation[0];
            of[2] = place[2] * w->stride[1] - w->before[1] + b * w->dilation[1];
            k->sources[sources++] = (tap){input_row(j, k, of), NULL, (a * w->kernel[1] + b) * w->kernel[2]};
        }
    if (j->from_direct && !j->last && w->kernel[0] == 1 &&
        !j->paired) /* the processor's own prefetching stops at each page */
        for (int64_t s = ct__max64(0, sources - w->stride[1]); s < sources; s++)
            for (int64_t at = 0; at < w->in[2] * (int64_t)ops->size; at += 64)
                __builtin_prefetch((const char *)k->sources[s].value + 3072 + at, 0, 2);
    char *to = j->to + (k->to_plane + row_at(&j->to_s, place)) * j->from_size, *y = staged         ? staged
                                                                                    : j->to_direct ? to
                                                                                                   : k->line;
    char *codes = j->codes ? k->line_codes : NULL;
    const double divisor = j->max ? 1 : count_of(j, place);
    uint8_t *bytes = j->codes ? (uint8_t *)j->codes + row * j->out_row * j->at_size : NULL;
    if (j->paired && !j->last && reduce_pairs(j, k, sources, y, bytes, divisor)) codes = NULL;
    else if (!j->last) reduce_row(j, k, sources, y, codes, divisor);
    if (!j->last) {
        if (!j->to_direct) ops->store(to, j->to_s.s[2], y, w->out[2], j->dtype);
    } else {
        reduce_pixels(j, k, sources, y, codes, j->to_direct ? j->to_s.s[2] : j->inner, divisor);
        for (int64_t o = 0; o < w->out[2] && !j->to_direct; o++)
            ops->store(to + o * j->to_s.s[2] * j->from_size, j->to_s.c, y + o * j->inner * (int64_t)ops->size, j->inner,
                       j->dtype);
    }
    if (codes) ops->store_codes(j->codes + row * j->out_row * j->at_size, codes, j->out_row, j->at_dtype);
}

/* A row of windows of a plane, all in place and as pairs.h has them; false: it takes the longer way. */
static bool forward_paired(const job *j, const desk *k, const int64_t *place, int64_t row, char *staged) {
    const ct_window *w = &j->w;
    const int32_t first = j->first[1][place[2]], end = j->end[1][place[2]];
    const int64_t step = j->from_s.s[1] * j->from_size;
    const char *x = j->from + k->from_plane * j->from_size + (place[2] * w->stride[1] - w->before[1]) * step;
    for (int64_t b = first; b < end; b++)
        k->sources[b - first] = (tap){x + b * w->dilation[1] * step, NULL, b * w->kernel[2]};
    const double divisor = j->max                                       ? 1
                           : !j->divisor && end - first == w->kernel[1] ? (double)w->kernel[1]
                                                                        : count_of(j, place);
    return reduce_pairs(j, k, end - first,
                        staged ? staged : j->to + (k->to_plane + row_at(&j->to_s, place)) * j->from_size,
                        j->codes ? (uint8_t *)j->codes + row * j->out_row : NULL, divisor);
}
