/* See resample.h. */
#include "support/resample.h"

#include <math.h>
#include <stdlib.h>

static double tent(double distance, double reach) {
    const double height = 1 - fabs(distance) / reach;
    return height > 0 ? height : 0;
}

static bool make_weights(ct__weights *w, int64_t from, int64_t to) {
    const double scale = (double)from / (double)to, reach = scale > 1 ? scale : 1;
    w->most = 2 * (int64_t)ceil(reach) + 1;
    w->first = ct_calloc((size_t)to, sizeof *w->first);
    w->count = ct_calloc((size_t)to, sizeof *w->count);
    w->weight = ct_calloc((size_t)to, (size_t)w->most * sizeof *w->weight);
    if (!w->first || !w->count || !w->weight) return false;
    for (int64_t i = 0; i < to; i++) {
        const double center = ((double)i + 0.5) * scale;
        int64_t begin = (int64_t)(center - reach + 0.5), end = (int64_t)(center + reach + 0.5);
        if (begin < 0) begin = 0;
        if (end > from) end = from;
        if (end - begin > w->most) end = begin + w->most;
        double total = 0;
        for (int64_t k = begin; k < end; k++) total += tent((double)k + 0.5 - center, reach);
        for (int64_t k = begin; k < end; k++)
            w->weight[i * w->most + k - begin] = (float)(tent((double)k + 0.5 - center, reach) / total);
        w->first[i] = begin;
        w->count[i] = end - begin;
    }
    return true;
}

static void free_weights(ct__weights *w) {
    ct_free(w->first);
    ct_free(w->count);
    ct_free(w->weight);
}

bool ct__resampler_begin(ct__resampler *r, int64_t from_height, int64_t from_width, int64_t height, int64_t width,
                         const char *op) {
    *r = (ct__resampler){.from_height = from_height, .from_width = from_width, .height = height, .width = width};
    r->line = ct_calloc((size_t)width, sizeof *r->line);
    return (r->line && make_weights(&r->rows, from_height, height) && make_weights(&r->columns, from_width, width)) ||
           ct_fail(CT_ERR_MEMORY, op, "out of memory: no room to resize a picture");
}

void ct__resampler_add(ct__resampler *r, int64_t y, const float *row, float *result) {
    for (int64_t j = 0; j < r->width; j++) {
        const float *from = row + r->columns.first[j], *by = r->columns.weight + j * r->columns.most;
        float sum = 0;
        for (int64_t k = 0; k < r->columns.count[j]; k++) sum += by[k] * from[k];
        r->line[j] = sum;
    }
    const ct__weights *rows = &r->rows;
    if (y == 0) r->current = 0;
    while (r->current < r->height && rows->first[r->current] + rows->count[r->current] <= y) r->current++;
    for (int64_t i = r->current; i < r->height && rows->first[i] <= y; i++) {
        const float by = rows->weight[i * rows->most + y - rows->first[i]];
        float *to = result + i * r->width;
        for (int64_t j = 0; j < r->width; j++) to[j] += by * r->line[j];
    }
}

void ct__resampler_end(ct__resampler *r) {
    ct_free(r->line);
    free_weights(&r->rows);
    free_weights(&r->columns);
    *r = (ct__resampler){0};
}

void ct__pixels_to_floats(float *to, const uint8_t *from, int64_t count, int64_t step) {
    for (int64_t i = 0; i < count; i++) to[i] = (float)from[i * step] * (1.0f / 255);
}

void ct__floats_to_pixels(uint8_t *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float value = from[i] * 255 + 0.5f;
        to[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}
