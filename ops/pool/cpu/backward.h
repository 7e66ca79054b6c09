/* The gradients of pooling, a row of dx at a time, in either layout (channels first: of volumes; planes go through bands.h).
 * Included by pool.c. */

/* A row of g, divided where it was a mean, and of the winners. */
static tap cotangent_row(const job *j, const desk *k, const int64_t *place) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    const int64_t size = (int64_t)ops->size, slot = slot_of(j, place);
    const int64_t tag = (place[0] * w->out[0] + place[1]) * w->out[1] + place[2];
    const char *g = j->from + (k->from_plane + row_at(&j->from_s, place)) * j->from_size;
    char *row = k->rows + slot * j->row * size, *codes = k->codes + slot * j->code_row * size;
    const tap found = {j->from_direct ? g : row, codes, 0};
    if (k->tags[slot] == tag) return found;
    k->tags[slot] = tag;
    /* a line each pixel, or a single one; dense rows of pixels are one as well */
    const bool whole =
        j->last && j->from_s.s[2] == j->inner * j->from_s.c && j->at_s.s[2] == j->inner * j->at_s.c && j->max;
    const int64_t lines = j->last && !whole ? w->out[2] : 1;
    const int64_t n = whole ? j->inner * w->out[2] : j->last ? j->inner : w->out[2], left = j->last ? 0 : j->reach;
    const int64_t along = j->last ? j->from_s.c : j->from_s.s[2], code_along = j->last ? j->at_s.c : j->at_s.s[2];
    const char *at = j->max ? j->at + (k->at_plane + row_at(&j->at_s, place)) * j->at_size : NULL;
    const double counted = j->max ? 1 : count_of(j, place);
    for (int64_t o = 0; o < lines; o++) {
        char *line = row + (left + o * n) * size;
        if (!j->from_direct) ops->load(line, g + o * j->from_s.s[2] * j->from_size, along, n, j->dtype);
        if (j->max)
            ops->load_codes(codes + (left + o * n) * size, at + o * j->at_s.s[2] * j->at_size, code_along, n,
                            j->at_dtype);
        const tap itself = {line, NULL, 0};
        if (!j->max && !j->last) ops->sum(&itself, 1, 0, n, line, j->divisor ? NULL : j->counts, counted);
        if (!j->max && j->last)
            ops->sum(&itself, 1, 0, n, line, NULL,
                     j->divisor ? counted : counted * (double)ct__pool_count(w, 2, o, j->exclude_pad));
    }
    return found;
}

static void gather_line(const job *j, const tap *taps, int64_t count, int64_t shift, int64_t n, char *y) {
    if (j->max) j->ops->pick(taps, count, shift, n, y);
    else j->ops->sum(taps, count, shift, n, y, NULL, 1);
}

/* A row of dx, channels first: elements p, p + stride, ... at a time. */
static void spread_row(const job *j, const desk *k, int64_t sources, char *dx) {
    const ct_window *w = &j->w;
    const int64_t size = (int64_t)j->ops->size, stride = w->stride[2];
    for (int64_t p = 0; p < j->parts; p++) {
        int64_t count = 0;
        for (int32_t e = j->phase[p]; e < j->phase[p + 1]; e++) {
            const int64_t at = j->phase_entry[2 * e + 1] * size;
            for (int64_t s = 0; s < sources; s++)
                k->taps[count++] = (tap){(const char *)k->sources[s].value + at, (const char *)k->sources[s].code + at,
                                         k->sources[s].number + j->phase_entry[2 * e]};
        }
        gather_line(j, k->taps, count, 0, p < j->rest ? j->part : j->part - 1,
                    stride == 1 ? dx : k->parts + p * j->part * size);
    }
    for (int64_t p = 0; p < j->parts; p++) k->weave[p] = k->parts + p * j->part * size;
    if (stride > 1) j->ops->interleave(dx, k->weave, stride, w->in[2]);
}

/* A row of dx, channels last: pixels a stride apart have the same taps, further on, but near the borders. pixels, where
 * given, is where they go past the caches. */
static void spread_pixels(const job *j, const desk *k, int64_t sources, char *dx, char *pixels) {
    const ct_window *w = &j->w;
    const windows *in = &j->windows[2];
    const int64_t size = (int64_t)j->ops->size;
    for (int64_t p = 0; p < ct__min64(w->stride[2], w->in[2]); p++) {
        int64_t listed = -1, count = 0, length = 0, tap_of_first = 0;
        for (int64_t i = p; i < w->in[2]; i += w->stride[2]) {
            const int32_t *entry = in->entry + 2 * in->start[i];
            const int64_t n = in->start[i + 1] - in->start[i];
            if (listed < 0 || n != length || (n && entry[1] != tap_of_first)) {
                listed = i;
                length = n;
                tap_of_first = n ? entry[1] : 0;
                count = 0;
                for (int64_t s = 0; s < sources; s++)
                    for (int64_t e = 0; e < n; e++) {
                        const int64_t at = entry[2 * e] * j->inner * size;
                        k->taps[count++] =
                            (tap){(const char *)k->sources[s].value + at, (const char *)k->sources[s].code + at,
                                  k->sources[s].number + entry[2 * e + 1]};
                    }
            }
            const int64_t shift = (i - listed) / w->stride[2] * j->inner;
            gather_line(j, k->taps, count, shift, j->inner, pixels ? k->line : dx + i * j->inner * size);
            if (pixels) ct__stream_run(pixels + i * j->inner * size, k->line, j->inner, j->ops->size);
        }
    }
}

/* Whether row h is in the same windows as the row before it: then a mean has the same gradient. */
static bool same_windows(const windows *b, int64_t h) {
    const int32_t *now = b->start + h, n = now[1] - now[0];
    if (h == 0 || now[0] - now[-1] != n) return false;
    for (int32_t e = 0; e < n; e++)
        if (b->entry[2 * (now[0] + e)] != b->entry[2 * (now[-1] + e)]) return false;
    return true;
}

/* The rows of g that row h takes part in. Those of the next row are staged as well, ahead of their use: a load across two
 * stores that are still under way would have to wait for them. */
static int64_t stage_rows(const job *j, desk *k, const int64_t *place, bool again) {
    const ct_window *w = &j->w;
    const windows *a = &j->windows[0], *b = &j->windows[1];
    const int32_t begin = b->start[place[2]], end = b->start[place[2] + 1];
    int64_t sources = 0;
    if (w->kernel[0] == 1 && a->start[place[1]] < a->start[place[1] + 1]) {
        const int32_t next = place[2] + 1 < w->in[1] ? b->start[place[2] + 2] : end;
        int64_t of[3] = {place[0], a->entry[2 * a->start[place[1]]], 0}, last = -1;
        for (int32_t h = begin; h < next; h++) last = ct__max64(last, b->entry[2 * h]);
        if (!again) k->ready = end > begin ? b->entry[2 * (end - 1)] - 1 : last;
        while (k->ready < last) {
            of[2] = ++k->ready;
            cotangent_row(j, k, of);
        }
    }
    for (int32_t d = a->start[place[1]]; d < a->start[place[1] + 1]; d++)
        for (int32_t h = begin; h < end; h++) {
            const int64_t of[3] = {place[0], a->entry[2 * d], b->entry[2 * h]};
            k->sources[sources] = cotangent_row(j, k, of);
            k->sources[sources++].number = (a->entry[2 * d + 1] * w->kernel[1] + b->entry[2 * h + 1]) * w->kernel[2];
        }
    return sources;
}

static void backward_row(const job *j, desk *k, const int64_t *place, bool again) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    const bool same = again && j->stream && !j->max && same_windows(&j->windows[1], place[2]);
    const int64_t sources = same ? 0 : stage_rows(j, k, place, again);
    char *to = j->to + (k->to_plane + row_at(&j->to_s, place)) * j->from_size,
         *dx = j->to_direct && !j->stream ? to : k->line;
    const bool by_pixel = j->stream && j->last && j->max && j->inner * (int64_t)ops->size % 64 == 0;
    if (j->last && !same) spread_pixels(j, k, sources, dx, by_pixel ? to : NULL);
    else if (!same) spread_row(j, k, sources, dx);
    if (by_pixel) return;
    if (j->stream) ct__stream_run(to, dx, j->out_row, ops->size);
    else if (!j->to_direct && !j->last) ops->store(to, j->to_s.s[2], dx, j->out_row, j->dtype);
    else if (!j->to_direct)
        for (int64_t p = 0; p < w->in[2]; p++)
            ops->store(to + p * j->to_s.s[2] * j->from_size, j->to_s.c, dx + p * j->inner * (int64_t)ops->size,
                       j->inner, j->dtype);
}
