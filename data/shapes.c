/* Drawn shapes, for a program that has no pictures at hand: ten classes that a small network learns in a minute,
 * with enough noise, slant and overlap of sizes that a linear one does not. Each shape is a formula that is
 * positive inside. */
#include "data/data.h"

#include <math.h>

/* A point of the shape's own plane, where it fills about -1 .. 1. */
typedef double (*shape_fn)(double x, double y);

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }
static double length(double x, double y) { return sqrt(x * x + y * y); }
static double circle(double x, double y) { return 1 - length(x, y); }
static double ring(double x, double y) { return 0.25 - fabs(length(x, y) - 0.75); }
static double square(double x, double y) { return 0.85 - most(fabs(x), fabs(y)); }
static double frame(double x, double y) { return 0.22 - fabs(most(fabs(x), fabs(y)) - 0.65); }
static double triangle(double x, double y) { return least(0.6 - y, (y + 1 - 1.8 * fabs(x)) * 0.5); }
static double cross(double x, double y) {
    return most(least(0.28 - fabs(x), 1 - fabs(y)), least(0.28 - fabs(y), 1 - fabs(x)));
}
static double bar(double x, double y) { return least(0.3 - fabs(x), 1 - fabs(y)); }
static double two_dots(double x, double y) { return most(0.42 - length(x, y - 0.55), 0.42 - length(x, y + 0.55)); }
static double crescent(double x, double y) { return least(circle(x, y), length(x - 0.45, y) - 0.75); }
static double star(double x, double y) { /* five points: the radius of the edge goes up and down with the angle */
    const double turn = fmod(atan2(y, x) + 8 * 6.283185307179586, 6.283185307179586 / 5) / (6.283185307179586 / 5);
    return (1 - 0.62 * (1 - fabs(2 * turn - 1)) - length(x, y)) * 0.7;
}

static const struct {
    const char *name;
    shape_fn inside;
} kinds[] = {{"circle", circle}, {"ring", ring}, {"square", square},     {"frame", frame},       {"triangle", triangle},
             {"cross", cross},   {"bar", bar},   {"two dots", two_dots}, {"crescent", crescent}, {"star", star}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* About normal, deviation 1: the sum of two evenly spread numbers, from one draw. */
static double grain(ct_draw *draw) {
    const uint64_t bits = (uint64_t)ct_draw_below(draw, INT64_MAX);
    return ((double)(bits >> 40) * 0x1p-23 + (double)(bits & 0xffffff) * 0x1p-24 - 1) * 2.449489742783178;
}

static void paint(uint8_t *pixels, int64_t size, shape_fn inside, ct_draw *draw) {
    const double radius = (double)size * (0.24 + 0.16 * ct_draw_uniform(draw));
    const double room = (double)size / 2 - radius * 0.8;
    const double cx = (double)(size - 1) / 2 + room * (2 * ct_draw_uniform(draw) - 1);
    const double cy = (double)(size - 1) / 2 + room * (2 * ct_draw_uniform(draw) - 1);
    const double angle = (2 * ct_draw_uniform(draw) - 1) * 0.6, squeeze = 0.8 + 0.4 * ct_draw_uniform(draw);
    const double c = cos(angle) / radius, s = sin(angle) / radius;
    const double light = 0.45 + 0.5 * ct_draw_uniform(draw), ground = 0.25 * ct_draw_uniform(draw);
    const double noise = 0.04 + 0.1 * ct_draw_uniform(draw);
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++) {
            const double dx = (double)j - cx, dy = (double)i - cy;
            /* The edge is one pixel wide: the formulas fall by about 1 / radius from one pixel to the next. No shape,
             * however it is squeezed, reaches further than 1.6 radii. */
            double cover = 0;
            if (dx * dx + dy * dy < 2.56 * radius * radius) {
                const double depth = inside((c * dx + s * dy) * squeeze, (c * dy - s * dx) / squeeze) * radius + 0.5;
                cover = most(0, least(1, depth));
            }
            const double value = ground + (light - ground) * cover + noise * grain(draw);
            pixels[i * size + j] = (uint8_t)(most(0, least(1, value)) * 255 + 0.5);
        }
}

static void free_pixels(void *context, void *data) {
    (void)context;
    free(data);
}

ct_dataset *ct_dataset_shapes(int64_t count, int64_t size, uint64_t seed) {
    if (size < 12 || size > 4096) {
        ct_fail(CT_ERR_VALUE, "dataset_shapes", "size is %lld; expected 12 to 4096", (long long)size);
        return NULL;
    }
    if (count < 0 || count > INT64_MAX / (size * size)) {
        ct_fail(CT_ERR_VALUE, "dataset_shapes", "count is %lld; expected 0 to %lld pictures of size %lld",
                (long long)count, (long long)(INT64_MAX / (size * size)), (long long)size);
        return NULL;
    }
    const char *names[KINDS];
    for (int i = 0; i < KINDS; i++) names[i] = kinds[i].name;
    ct_dataset *dataset = NULL;
    uint8_t *pixels = ct__zeroed("dataset_shapes", count, (size_t)(size * size));
    int64_t *labels = pixels ? ct__zeroed("dataset_shapes", count, sizeof *labels) : NULL;
    for (int64_t i = 0; labels && i < count; i++) {
        ct_draw draw = ct__draw_begin(seed, CT__DRAW_SHAPES, 0, i);
        labels[i] = ct_draw_below(&draw, KINDS);
        paint(pixels + i * size * size, size, kinds[labels[i]].inside, &draw);
    }
    if (labels)
        ct_scope {
            ct_tensor *x = ct_wrap(pixels, CT_DIMS(count, 1, size, size), CT_U8, free_pixels, NULL);
            pixels = NULL;
            ct_tensor *y = ct_from_data(labels, CT_DIMS(count), CT_I64);
            if (x && y) dataset = ct_dataset_tensors((ct_tensor *[]){x, y}, 2);
        }
    free(pixels);
    free(labels);
    if (dataset && !ct_dataset_set_classes(dataset, KINDS, names)) {
        ct_dataset_free(dataset);
        dataset = NULL;
    }
    return dataset;
}
