/* The places that taps look at, and gradients there, a template: POINT_T is the type, POINT(x) a name for it, POINT_LINKAGE how
 * functions are declared. Included by deform.c (f32) and gradient.c (f64). */

POINT_LINKAGE void POINT(pixels_from)(const lookup *t, int64_t first, POINT(pixels) * p) {
    const ct_window *w = &t->d.w;
    int64_t oy = first / w->out[2], ox = first % w->out[2];
    for (int64_t i = 0; i < POINTS; i++) {
        p->y[i] = (POINT_T)(oy * w->stride[1] - w->before[1]);
        p->x[i] = (POINT_T)(ox * w->stride[2] - w->before[2]);
        p->offset[i] = oy * t->offset_s.s[1] + ox * t->offset_s.s[2];
        p->mask[i] = oy * t->mask_s.s[1] + ox * t->mask_s.s[2];
        if (first + i + 1 < t->d.pixels && ++ox == w->out[2]) ox = 0, oy++;
    }
    p->dense = first + POINTS <= t->d.pixels && t->offset_s.s[2] == 1 && t->offset_s.s[1] == w->out[2] &&
               (!t->mask || (t->mask_s.s[2] == 1 && t->mask_s.s[1] == w->out[2]));
}

/* Tap k of a group of offsets, for the pixels of p. No branches in the second loop, and no constant that the
 * compiler could make one of. */
POINT_LINKAGE void POINT(find)(const lookup *t, int64_t image, int64_t group, int64_t k,
                               const POINT(pixels) *restrict p, POINT(points) *restrict s) {
    const ct_window *w = &t->d.w;
    const int32_t height = (int32_t)w->in[1], width = (int32_t)w->in[2];
    const POINT_T above = -(POINT_T)height - 1, beside = -(POINT_T)width - 1;
    const POINT_T down_by = (POINT_T)(k / w->kernel[2] * w->dilation[1]);
    const POINT_T right_by = (POINT_T)(k % w->kernel[2] * w->dilation[2]);
    const int64_t channel = group * t->d.taps + k;
    const POINT_T *move_y = (const POINT_T *)t->offset + image * t->offset_s.n + 2 * channel * t->offset_s.c;
    const POINT_T *move_x = move_y + t->offset_s.c;
    const POINT_T *mask = (const POINT_T *)t->mask + image * t->mask_s.n + channel * t->mask_s.c;
    if (p->dense) { /* of more channels than the processor follows: those of the next pixels but some are prefetched */
        __builtin_prefetch(move_y + p->offset[0] + 2 * POINTS, 0, 2);
        __builtin_prefetch(move_x + p->offset[0] + 2 * POINTS, 0, 2);
        if (t->mask) __builtin_prefetch(mask + p->mask[0] + 2 * POINTS, 0, 2);
        memcpy(s->part[0], move_y + p->offset[0], sizeof s->part[0]);
        memcpy(s->part[1], move_x + p->offset[0], sizeof s->part[1]);
        if (t->mask) memcpy(s->mask, mask + p->mask[0], sizeof s->mask);
    } else
        for (int i = 0; i < POINTS; i++) {
            s->part[0][i] = move_y[p->offset[i]];
            s->part[1][i] = move_x[p->offset[i]];
            if (t->mask) s->mask[i] = mask[p->mask[i]];
        }
    for (int i = 0; i < POINTS && !t->mask; i++) s->mask[i] = 1;
    for (int i = 0; i < POINTS; i++) {
        /* what is not near x may be no integer at all: it goes where all four pixels are outside */
        const POINT_T y = s->part[0][i] + (p->y[i] + down_by), x = s->part[1][i] + (p->x[i] + right_by);
        const POINT_T v0 = y >= -1 ? y : above, u0 = x >= -1 ? x : beside;
        const POINT_T v = v0 < (POINT_T)height ? v0 : above, u = u0 < (POINT_T)width ? u0 : beside;
        const int32_t vi = (int32_t)v, ui = (int32_t)u;
        const int32_t low_y = (POINT_T)vi > v ? vi - 1 : vi, low_x = (POINT_T)ui > u ? ui - 1 : ui;
        const POINT_T py = v - (POINT_T)low_y, px = u - (POINT_T)low_x, m = s->mask[i];
        const POINT_T a = (1 - py) * (1 - px), b = (1 - py) * px, c = py * (1 - px), d = py * px;
        /* whether the rows and the columns lie inside x: all bits or none */
        const int32_t up = low_y >= 0 ? -1 : 0, left = low_x >= 0 ? -1 : 0;
        const int32_t down = (low_y >= -1 ? -1 : 0) & (low_y < height - 1 ? -1 : 0);
        const int32_t right = (low_x >= -1 ? -1 : 0) & (low_x < width - 1 ? -1 : 0);
        const uint32_t corner = (uint32_t)low_y * (uint32_t)width + (uint32_t)low_x, under = corner + (uint32_t)width;
        s->part[0][i] = py, s->part[1][i] = px;
        s->at[0][i] = (int32_t)corner | ~(up & left), s->weight[0][i] = (up & left ? a : 0) * m;
        s->at[1][i] = (int32_t)(corner + 1) | ~(up & right), s->weight[1][i] = (up & right ? b : 0) * m;
        s->at[2][i] = (int32_t)under | ~(down & left), s->weight[2][i] = (down & left ? c : 0) * m;
        s->at[3][i] = (int32_t)(under + 1) | ~(down & right), s->weight[3][i] = (down & right ? d : 0) * m;
    }
}

/* Gradients of the offsets (y, x) and of the mask of one tap from the dots e of the four pixels:
 *     d y = mask ((e_2 - e_0)(1 - part_x) + (e_3 - e_1) part_x), and so on. */
POINT_LINKAGE void POINT(moves)(const POINT(points) * s, const POINT_T (*dots)[4], POINT_T (*moves)[POINTS]) {
    for (int i = 0; i < POINTS; i++) {
        const POINT_T py = s->part[0][i], px = s->part[1][i], mask = s->mask[i];
        const POINT_T d0 = dots[i][0], d1 = dots[i][1], d2 = dots[i][2], d3 = dots[i][3];
        /* outside there is nothing, whatever the gradient is */
        const POINT_T e0 = s->at[0][i] < 0 ? 0 : d0, e1 = s->at[1][i] < 0 ? 0 : d1;
        const POINT_T e2 = s->at[2][i] < 0 ? 0 : d2, e3 = s->at[3][i] < 0 ? 0 : d3;
        moves[0][i] = mask * ((e2 - e0) * (1 - px) + (e3 - e1) * px);
        moves[1][i] = mask * ((e1 - e0) * (1 - py) + (e3 - e2) * py);
        moves[2][i] = (1 - py) * ((1 - px) * e0 + px * e1) + py * ((1 - px) * e2 + px * e3);
    }
}

#undef POINT_T
#undef POINT
#undef POINT_LINKAGE
