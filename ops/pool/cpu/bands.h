/* Gradients of planes without depth, channels first, a band of rows at a time as single long lines: a row of scratch has `pitch`
 * elements with room for what lies beside the windows, so that every tap lies a constant distance from its place. One
 * such line is made for each place modulo the two strides, and the rows of dx are woven from them. Included by
 * pool.c. */

/* What lies `row` rows and `column` elements on in scratch. */
static int64_t pitch_at(const job *j, int64_t row, int64_t column) {
    return (row * j->pitch + column) * (int64_t)j->ops->size;
}

static void plan_bands(job *j) {
    const ct_window *w = &j->w;
    const int64_t rows = (w->before[1] + w->in[1] - 1) / w->stride[1] - w->before[1] / w->stride[1] + 1;
    const int64_t across = (w->before[2] + w->in[2] - 1) / w->stride[2] + 1;
    j->reach_1 = (w->kernel[1] - 1) * w->dilation[1] / w->stride[1];
    j->pitch = (j->reach + ct__max64(w->out[2], across) + 15) / 16 * 16;
    j->band = ct__min64(rows, ct__max64(1, 8192 / j->pitch));
    j->bands = (rows + j->band - 1) / j->band;
    j->area = (j->band + j->reach_1 + 1) * j->pitch + 64;
}

/* Zeros around the rows of g, and the taps of each line, one list after the other from lists[line] on. */
static void prepare_bands(const job *j, desk *k) {
    const ct_window *w = &j->w;
    int64_t count = 0;
    j->ops->fill(k->planes, j->area, 0);
    if (j->max) memset(k->plane_codes, 0, (size_t)j->area * j->ops->size);
    for (int64_t p = 0; p < w->stride[1]; p++)
        for (int64_t q = 0; q < w->stride[2]; q++) {
            k->lists[p * w->stride[2] + q] = (int32_t)count;
            for (int64_t b = 0; b < w->kernel[1]; b++)
                for (int64_t c = 0; c < w->kernel[2]; c++) {
                    const int64_t y = b * w->dilation[1] - p, x = c * w->dilation[2] - q;
                    if (y % w->stride[1] || x % w->stride[2]) continue;
                    const int64_t at = pitch_at(j, j->reach_1 - y / w->stride[1], j->reach - x / w->stride[2]);
                    k->taps[count++] = (tap){k->planes + at, k->plane_codes + at, b * w->kernel[2] + c};
                }
        }
    k->lists[w->stride[1] * w->stride[2]] = (int32_t)count;
}

/* Rows o to o + n - 1 of g, divided where it was a mean, and the winners; zeros beyond. */
static void stage_cotangents(const job *j, const desk *k, int64_t plane, int64_t o, int64_t n) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    for (int64_t i = 0; i < n; i++) {
        const int64_t place[3] = {plane, 0, o + i};
        char *row = k->planes + pitch_at(j, i, 0), *g = k->planes + pitch_at(j, i, j->reach);
        if (o + i < 0 || o + i >= w->out[1]) {
            ops->fill(row, j->pitch, 0);
            continue;
        }
        ops->load(g, j->from + (k->from_plane + row_at(&j->from_s, place)) * j->from_size, j->from_s.s[2], w->out[2],
                  j->dtype);
        if (j->max) {
            ops->load_codes(k->plane_codes + pitch_at(j, i, j->reach),
                            j->at + (k->at_plane + row_at(&j->at_s, place)) * j->at_size, j->at_s.s[2], w->out[2],
                            j->at_dtype);
        } else {
            const tap itself = {g, NULL, 0};
            ops->sum(&itself, 1, 0, w->out[2], g, j->divisor ? NULL : j->counts, count_of(j, place));
        }
    }
}

static void backward_band(const job *j, desk *k, int64_t plane, int64_t band) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    const int64_t first = w->before[1] / w->stride[1] + band * j->band;
    const int64_t end = (w->before[1] + w->in[1] - 1) / w->stride[1] + 1, n = ct__min64(j->band, end - first);
    const int64_t length = (n - 1) * j->pitch + (w->before[2] + w->in[2] - 1) / w->stride[2] + 1;
    const int64_t lines = w->stride[1] * w->stride[2], size = (int64_t)ops->size;
    stage_cotangents(j, k, plane, first - j->reach_1, n + j->reach_1);
    for (int64_t p = 0; p < lines; p++) { /* a single tap of a mean is the line itself */
        const tap *taps = k->taps + k->lists[p];
        const int64_t count = k->lists[p + 1] - k->lists[p];
        const bool itself = count == 1 && !j->max;
        k->made[p] = itself ? taps->value : k->band + p * j->area * size;
        if (!itself) gather_line(j, taps, count, 0, length, k->band + p * j->area * size);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < w->stride[1]; p++) {
            const int64_t h = (first + i) * w->stride[1] + p - w->before[1], place[3] = {plane, 0, h};
            if (h < 0 || h >= w->in[1]) continue;
            char *to = j->to + (k->to_plane + row_at(&j->to_s, place)) * j->from_size;
            const char *const *made = k->made + p * w->stride[2], *dx = made[0] + pitch_at(j, i, w->before[2]);
            if (w->stride[2] > 1) {
                for (int64_t q = 0, r = w->before[2] % w->stride[2], at = w->before[2] / w->stride[2]; q < j->parts;
                     q++) {
                    k->weave[q] = made[r] + pitch_at(j, i, at);
                    if (++r == w->stride[2]) r = 0, at++;
                }
                ops->interleave(k->line, k->weave, w->stride[2], w->in[2]);
                dx = k->line;
            }
            if (j->stream) ct__stream_run(to, dx, w->in[2], ops->size);
            else ops->store(to, j->to_s.s[2], dx, w->in[2], j->dtype);
        }
}

static void band_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    desk k;
    set_desk(j, j->memory + (size_t)worker * j->worker_bytes, &k);
    prepare_bands(j, &k);
    for (int64_t u = chunk * j->chunk; u < ct__min64((chunk + 1) * j->chunk, j->planes * j->bands); u++) {
        set_plane(j, &k, u / j->bands);
        backward_band(j, &k, u / j->bands, u % j->bands);
    }
    if (j->stream) ct__stream_end();
}
