/* Items and filters as pictures. */
#include "cli/train/picture.h"

#include <math.h>
#include <stdlib.h>

void picture_free(picture *p) {
    ct_free(p->png);
    *p = (picture){0};
}

static bool encode(ct_tensor *pixels, picture *result) {
    if (!pixels || !ct_image_encode_png(pixels, &result->png, &result->bytes)) return false;
    result->height = (int)ct_dim(pixels, 1);
    result->width = (int)ct_dim(pixels, 2);
    return true;
}

bool picture_of_item(ct_tensor *x, picture *result) {
    bool right = false;
    *result = (picture){0};
    ct_scope {
        if (ct_dtype_of(x) != CT_U8)
            x = ct_cast(ct_clamp(ct_mul_s(x, 255), .min = CT_SET(0), .max = CT_SET(255)), CT_U8);
        if (ct_dim(x, 0) == 2 || ct_dim(x, 0) > 4) x = ct_narrow(x, 0, 0, 1);
        right = encode(ct_contiguous(x), result);
    }
    return right;
}

/* Hues that are as far apart as can be for any number of classes: each next one is the golden section of the circle further. */
void picture_class_color(int64_t label, unsigned char rgb[3]) {
    static const unsigned char ground[3] = {38, 40, 46};
    const double hue = fmod((double)(label - 1) * 0.618033988749895 + 0.58, 1) * 6;
    for (int c = 0; c < 3; c++) {
        if (label == 0) {
            rgb[c] = ground[c];
            continue;
        }
        /* HSV with saturation 0.62 and value 0.95 */
        const double turn = fmod(hue + (c == 0 ? 5 : c == 1 ? 3 : 1), 6);
        rgb[c] = (unsigned char)(255 * 0.95 * (1 - 0.62 * fmax(0, fmin(fmin(turn, 4 - turn), 1))) + 0.5);
    }
}

bool picture_of_mask(const uint8_t *mask, int64_t height, int64_t width, picture *result) {
    const size_t plane = (size_t)(height * width);
    unsigned char *rgb = malloc(3 * plane + 1), colors[256][3];
    *result = (picture){0};
    if (!rgb) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    for (int i = 0; i < 256; i++) picture_class_color(i, colors[i]);
    for (size_t i = 0; i < plane; i++)
        for (size_t c = 0; c < 3; c++) rgb[c * plane + i] = colors[mask[i]][c];
    bool right = false;
    ct_scope {
        right = encode(ct_from_data(rgb, CT_DIMS(3, height, width), CT_U8), result);
    }
    free(rgb);
    return right;
}

/* A number from -1 to 1 as blue, white or red. */
static void signed_color(double value, unsigned char *rgb, size_t plane) {
    static const double negative[3] = {33, 102, 172}, positive[3] = {190, 40, 40};
    const double *end = value < 0 ? negative : positive, share = fmin(fabs(value), 1);
    for (int c = 0; c < 3; c++) rgb[(size_t)c * plane] = (unsigned char)(247 + share * (end[c] - 247) + 0.5);
}

enum { GAP = 1, MOST_FILTERS = 64 };

typedef struct grid {
    int64_t n, channels, height, width; /* of the filters */
    int columns, rows;
    size_t pixel_width, pixel_height;
    unsigned char *rgb; /* (4, pixel_height, pixel_width): with an alpha, so that gaps are the page */
} grid;

/* A filter of three channels in their colors, from its least to its greatest weight; any other by sign, the mean over the
 * channels. */
static void draw_filter(const grid *g, const float *w /* (channels,height,width) */, int at) {
    const size_t plane = g->pixel_width * g->pixel_height;
    const int64_t size = g->height * g->width;
    const size_t top = (size_t)(at / g->columns) * (size_t)(g->height + GAP) + GAP,
                 left = (size_t)(at % g->columns) * (size_t)(g->width + GAP) + GAP;
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < g->channels * size; i++) low = fmin(low, (double)w[i]), high = fmax(high, (double)w[i]);
    double most = 0;
    for (int64_t i = 0; i < size; i++) {
        double mean = 0;
        for (int64_t c = 0; c < g->channels; c++) mean += (double)w[c * size + i] / (double)g->channels;
        most = fmax(most, fabs(mean));
    }
    for (int64_t i = 0; i < size; i++) {
        unsigned char *to = g->rgb + (top + (size_t)(i / g->width)) * g->pixel_width + left + (size_t)(i % g->width);
        to[3 * plane] = 255;
        if (g->channels == 3) {
            for (int64_t c = 0; c < 3; c++)
                to[(size_t)c * plane] =
                    (unsigned char)(high > low ? 255 * ((double)w[c * size + i] - low) / (high - low) + 0.5 : 128);
            continue;
        }
        double mean = 0;
        for (int64_t c = 0; c < g->channels; c++) mean += (double)w[c * size + i] / (double)g->channels;
        signed_color(most > 0 ? mean / most : 0, to, plane);
    }
}

static bool draw_grid(const float *w, grid *g, picture *result) {
    if (g->n > MOST_FILTERS) g->n = MOST_FILTERS;
    g->columns = g->n < 16 ? (int)g->n : 16;
    if (g->n > 16 && g->n < 64 && g->n % 8 == 0) g->columns = (int)(g->n / 2 < 16 ? g->n / 2 : 16);
    g->rows = (int)((g->n + g->columns - 1) / g->columns);
    g->pixel_width = (size_t)g->columns * (size_t)(g->width + GAP) + GAP;
    g->pixel_height = (size_t)g->rows * (size_t)(g->height + GAP) + GAP;
    g->rgb = calloc(4, g->pixel_width * g->pixel_height);
    if (!g->rgb) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    for (int i = 0; i < (int)g->n; i++) draw_filter(g, w + (int64_t)i * g->channels * g->height * g->width, i);
    bool right = false;
    ct_scope {
        right =
            encode(ct_from_data(g->rgb, CT_DIMS(4, (int64_t)g->pixel_height, (int64_t)g->pixel_width), CT_U8), result);
    }
    free(g->rgb);
    return right;
}

/* The first parameter that is a kernel over the image's channels, or weights for each of its pixels. */
static bool is_first_layer(const learner *l, const ct_tensor *w, grid *g) {
    const int64_t channels = l->item.d[0], height = l->item.d[1], width = l->item.d[2];
    if (ct_ndim(w) == 4 && ct_dim(w, 1) == channels && ct_dim(w, 2) > 1) {
        *g = (grid){.n = ct_dim(w, 0), .channels = channels, .height = ct_dim(w, 2), .width = ct_dim(w, 3)};
        return true;
    }
    if (ct_ndim(w) != 2 || ct_dim(w, 1) != channels * height * width) return false;
    *g = (grid){.n = ct_dim(w, 0), .channels = channels, .height = height, .width = width};
    return true;
}

bool picture_of_filters(learner *l, picture *result) {
    *result = (picture){0};
    if (!learner_is_image(l)) return true;
    ct_parameters *list = ct_module_parameters(l->net);
    bool right = list != NULL;
    for (int i = 0; right && i < ct_parameters_count(list) && !result->png; i++) {
        ct_no_grad {
            ct_scope {
                grid g;
                ct_tensor *w = ct_parameter_tensor(ct_parameters_at(list, i));
                if (is_first_layer(l, w, &g)) {
                    ct_tensor *values = ct_contiguous(learner_on_host(l, ct_cast(ct_detach(w), CT_F32)));
                    right = values && draw_grid(ct_data(values), &g, result);
                }
            }
        }
    }
    ct_parameters_free(list);
    return right;
}
