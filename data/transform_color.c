/* Transforms of colors: jitter of brightness, contrast, saturation and hue; gray. They give f32 in 0 .. 1. */
#include "data/image.h"

#include <math.h>

/* How far the factors may be from 1, and the turn from 0; where `fixed`, the factors and the turn themselves. */
typedef struct jitter {
    double brightness, contrast, saturation, hue;
    bool fixed;
} jitter;

static float within(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

static float gray_of(const float *x, int64_t i, int64_t plane) {
    return 0.2989f * x[i] + 0.587f * x[i + plane] + 0.114f * x[i + 2 * plane];
}

/* Each pixel between `other` (one number for all, or the pixel's own gray) and itself, or beyond itself. */
static void blend(float *x, int64_t channels, int64_t plane, float factor, bool with_gray, float other) {
    for (int64_t i = 0; i < plane; i++) {
        const float base = with_gray ? gray_of(x, i, plane) : other;
        for (int64_t c = 0; c < channels; c++)
            x[c * plane + i] = within(factor * x[c * plane + i] + (1 - factor) * base);
    }
}

/* Round the circle of hues by a fraction of it: red, green, blue as hue, largest and span, and back. */
static void turn_hue(float *x, int64_t plane, float by) {
    for (int64_t i = 0; i < plane; i++) {
        float *r = x + i, *g = x + plane + i, *b = x + 2 * plane + i;
        const float most = fmaxf(*r, fmaxf(*g, *b)), least = fminf(*r, fminf(*g, *b)), span = most - least;
        if (span <= 0) continue;
        float hue; /* in sixths of the circle */
        if (most == *r) hue = (*g - *b) / span;
        else if (most == *g) hue = 2 + (*b - *r) / span;
        else hue = 4 + (*r - *g) / span;
        hue = hue + 6 * by;
        hue -= 6 * floorf(hue / 6);
        if (!(hue >= 0 && hue <= 6)) continue; /* of no numbers, or turned further than numbers can tell */
        const float part = hue - floorf(hue), down = most - span * part, up = least + span * part;
        const float sixth[6][3] = {{most, up, least},   {down, most, least}, {least, most, up},
                                   {least, down, most}, {up, least, most},   {most, least, down}};
        const int k = (int)hue % 6;
        *r = sixth[k][0];
        *g = sixth[k][1];
        *b = sixth[k][2];
    }
}

static float mean_gray(const float *x, int64_t channels, int64_t plane) {
    double sum = 0;
    for (int64_t i = 0; channels == 3 && i < plane; i++) sum += gray_of(x, i, plane);
    for (int64_t i = 0; channels != 3 && i < plane * channels; i++) sum += x[i] / (double)channels;
    return plane ? (float)(sum / (double)plane) : 0;
}

static float factor_of(double amount, bool fixed, ct_draw *draw) {
    if (fixed) return (float)amount;
    const double factor = 1 + amount * (2 * ct_draw_uniform(draw) - 1);
    return (float)(factor < 0 ? 0 : factor);
}

static bool jitter_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n;
    const jitter *how = ct_transform_data(self);
    const double none = how->fixed ? 1 : 0; /* the setting that changes nothing */
    ct__image image;
    void *out;
    if (!ct__image_open_float("transform_color_jitter", fields[0], &image)) return false;
    if (image.channels != 3 && (how->saturation != none || how->hue != 0))
        return ct_fail(CT_ERR_SHAPE, "transform_color_jitter", "saturation and hue want 3 channels; the image has %lld",
                       (long long)image.channels);
    ct_tensor *y = ct__blank(CT_DIMS(image.channels, image.height, image.width), CT_F32, &out);
    if (!y) return false;
    const int64_t plane = image.height * image.width;
    float *x = out;
    if (image.data) memcpy(x, image.data, (size_t)(plane * image.channels) * sizeof *x);
    if (how->brightness != none)
        blend(x, image.channels, plane, factor_of(how->brightness, how->fixed, draw), false, 0);
    if (how->contrast != none)
        blend(x, image.channels, plane, factor_of(how->contrast, how->fixed, draw), false,
              mean_gray(x, image.channels, plane));
    if (how->saturation != none) blend(x, 3, plane, factor_of(how->saturation, how->fixed, draw), true, 0);
    if (how->hue != 0) turn_hue(x, plane, (float)(how->fixed ? how->hue : how->hue * (2 * ct_draw_uniform(draw) - 1)));
    fields[0] = y;
    return true;
}

static const ct_transform_class jitter_class = {
    sizeof(ct_transform_class), "transform_color_jitter", sizeof(jitter), jitter_item, NULL, NULL};

static ct_transform *new_jitter(const char *op, jitter how, double least_hue) {
    if (!(how.brightness >= 0 && how.contrast >= 0 && how.saturation >= 0 && how.hue >= least_hue && how.hue <= 0.5)) {
        ct_fail(CT_ERR_VALUE, op,
                "brightness %g, contrast %g, saturation %g, hue %g; expected 0 or more, and a hue of %g to 0.5",
                how.brightness, how.contrast, how.saturation, how.hue, least_hue);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(&jitter_class);
    if (transform) *(jitter *)ct_transform_data(transform) = how;
    return transform;
}

ct_transform *ct_transform_color_jitter(double brightness, double contrast, double saturation, double hue) {
    return new_jitter("transform_color_jitter", (jitter){brightness, contrast, saturation, hue, false}, 0);
}
ct_transform *ct_transform_color(double brightness, double contrast, double saturation, double hue) {
    return new_jitter("transform_color", (jitter){brightness, contrast, saturation, hue, true}, -0.5);
}

/* ---- Gray ---- */

static bool gray_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n, (void)draw;
    const int64_t channels = *(int64_t *)ct_transform_data(self);
    ct__image image;
    void *out;
    if (!ct__image_open_float("transform_gray", fields[0], &image)) return false;
    if (image.channels != 1 && image.channels != 3)
        return ct_fail(CT_ERR_SHAPE, "transform_gray", "the image has %lld channels; expected 1 or 3",
                       (long long)image.channels);
    ct_tensor *y = ct__blank(CT_DIMS(channels, image.height, image.width), CT_F32, &out);
    if (!y) return false;
    const int64_t plane = image.height * image.width;
    const float *x = image.data;
    for (int64_t i = 0; i < plane; i++) {
        const float gray = image.channels == 3 ? gray_of(x, i, plane) : x[i];
        for (int64_t c = 0; c < channels; c++) ((float *)out)[c * plane + i] = gray;
    }
    fields[0] = y;
    return true;
}

static const ct_transform_class gray_class = {
    sizeof(ct_transform_class), "transform_gray", sizeof(int64_t), gray_item, NULL, NULL};

ct_transform *ct_transform_gray(int64_t channels) {
    if (channels != 1 && channels != 3) {
        ct_fail(CT_ERR_VALUE, "transform_gray", "%lld channels; expected 1 or 3", (long long)channels);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(&gray_class);
    if (transform) *(int64_t *)ct_transform_data(transform) = channels;
    return transform;
}
