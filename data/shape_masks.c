/* Drawn shapes with the class of every pixel, for networks that give one: a few shapes in each image, some in front of others. */
#include "data/shapes.h"

/* Those that are told apart at a glance, also where they are small and half hidden. */
static const int kinds[] = {CT__CIRCLE, CT__RING, CT__SQUARE, CT__TRIANGLE, CT__CROSS};
enum { MOST_FIGURES = 3, KINDS = sizeof kinds / sizeof *kinds, CLASSES = KINDS + 1 }; /* class 0 is the ground */

typedef struct figure {
    ct__shape shape;
    uint8_t label;
    double light;
} figure;

static void paint(uint8_t *pixels, uint8_t *mask, int64_t size, ct_draw *draw) {
    figure figures[MOST_FIGURES];
    const int n = 1 + (int)ct_draw_below(draw, MOST_FIGURES);
    for (int f = 0; f < n; f++) {
        const int64_t which = ct_draw_below(draw, KINDS);
        const double radius = (double)size * (0.16 + 0.1 * ct_draw_uniform(draw));
        figures[f].label = (uint8_t)(which + 1);
        figures[f].shape = ct__shape_place(kinds[which], size, radius, draw);
        figures[f].light = 0.45 + 0.5 * ct_draw_uniform(draw);
    }
    const double ground = 0.25 * ct_draw_uniform(draw), noise = 0.02 + 0.06 * ct_draw_uniform(draw);
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++) {
            double value = ground;
            for (int f = 0; f < n; f++) { /* a later one is in front */
                const double cover = ct__shape_cover(&figures[f].shape, i, j);
                value += (figures[f].light - value) * cover;
                if (cover >= 0.5) mask[i * size + j] = figures[f].label;
            }
            pixels[i * size + j] = ct__shape_gray(value, noise, draw);
        }
}

ct_dataset *ct_dataset_shape_masks(int64_t count, int64_t size, uint64_t seed) {
    const char *me = "dataset_shape_masks";
    if (!ct__shapes_check(me, count, size)) return NULL;
    const char *names[CLASSES] = {"background"};
    for (int i = 0; i < KINDS; i++) names[i + 1] = ct__shape_names[kinds[i]];
    uint8_t *pixels = ct__zeroed(me, count, (size_t)(size * size));
    uint8_t *masks = pixels ? ct__zeroed(me, count, (size_t)(size * size)) : NULL;
    for (int64_t i = 0; masks && i < count; i++) {
        ct_draw draw = ct__draw_begin(seed, CT__DRAW_SHAPE_MASKS, 0, i);
        paint(pixels + i * size * size, masks + i * size * size, size, &draw);
    }
    return ct__shapes_dataset(pixels, CT_DIMS(count, 1, size, size), masks, CT_DIMS(count, size, size), CT_U8, CLASSES,
                              names);
}
